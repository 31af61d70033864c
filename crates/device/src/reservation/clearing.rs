//! Reservations that the owner of a unit ends: those of a host that does not come again.

use std::collections::BTreeSet;

use sanwire_core::NexusId;
use sanwire_scsi::reservation::ReservationType;

use super::keeping::{Begun, Change};
use super::registry::Registrant;
use super::told::RegistrationReport;
use super::{ReservationState, Reservations};
use crate::unit_attention::{Nexuses, UnitAttention};

/// What was ended.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClearedReservations {
    /// The registrations.
    pub registrations: Vec<RegistrationReport>,
    /// The persistent reservation, by its type.
    pub kind: Option<ReservationType>,
    /// The nexus that had the unit by RESERVE (SPC-2).
    pub reserved_by: Option<NexusId>,
}

/// Why nothing was ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotCleared {
    /// Nobody is registered with that key.
    Unknown,
    /// These initiators are connected whose registrations or reservation that would end, for people.
    Connected(BTreeSet<String>),
    /// An order of an initiator is just being kept: it comes first.
    Ordering,
    /// It could not be kept, in this place.
    NotKept(String),
}

impl Reservations {
    /// What would be ended: everything, or what has this key; if it is `forced`, also what connected initiators have.
    ///
    /// # Errors
    /// [`NotCleared`].
    pub(crate) fn would_clear(&self, key: Option<u64>, forced: bool) -> Result<ClearedReservations, NotCleared> {
        self.lock().to_clear(key, forced)
    }

    /// Ends it, if nothing of that is to be kept.
    ///
    /// # Errors
    /// [`NotCleared`].
    pub(super) fn begin_clearing(
        &self,
        key: Option<u64>,
        forced: bool,
        attentions: &Nexuses,
    ) -> Result<(Begun, ClearedReservations), NotCleared> {
        let mut state = self.lock();
        if state.is_keeping {
            return Err(NotCleared::Ordering);
        }
        let cleared = state.to_clear(key, forced)?;
        if let Some(nexus) = cleared.reserved_by {
            state.reserved_by = None;
            self.publish(&state);
            attentions.raise_for(UnitAttention::ReservationsPreempted, [nexus].into_iter());
        }
        if cleared.registrations.is_empty() {
            return Ok((Begun::Done(BTreeSet::new()), cleared));
        }
        let (registry, effects) = state.registry.without(key);
        let change = Change { registry, effects, nexus: None };
        let begun = match self.to_keep(&state.registry, &change.registry) {
            Some((keeper, record)) => {
                state.is_keeping = true;
                Begun::Keep(keeper, record, change)
            }
            None => Begun::Done(self.apply(&mut state, change, attentions)),
        };
        Ok((begun, cleared))
    }
}

impl ReservationState {
    fn to_clear(&self, key: Option<u64>, forced: bool) -> Result<ClearedReservations, NotCleared> {
        let before = self.registry.report(self.reserved_by);
        let is_meant = |registration: &RegistrationReport| key.is_none_or(|key| registration.key == key);
        let registrations: Vec<_> = before.registrations.into_iter().filter(is_meant).collect();
        if key.is_some() && registrations.is_empty() {
            return Err(NotCleared::Unknown);
        }
        let reserved_by = before.reserved_by.filter(|_| key.is_none());
        let (left, _) = self.registry.without(key);
        let kind = before.kind.filter(|_| left.kind().is_none());
        let registrants: Vec<_> = registrations
            .iter()
            .map(|known| Registrant { initiator: known.initiator.clone(), target_port: known.target_port })
            .collect();
        let connected = self.nexuses_of(&registrants).into_iter().chain(reserved_by);
        let connected = connected.filter_map(|nexus| self.nexuses.get(&nexus));
        let connected: BTreeSet<String> = connected.map(|ports| ports.initiator.to_string()).collect();
        if !forced && !connected.is_empty() {
            return Err(NotCleared::Connected(connected));
        }
        Ok(ClearedReservations { registrations, kind, reserved_by })
    }
}
