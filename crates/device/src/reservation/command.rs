//! PERSISTENT RESERVE OUT (SPC-5 6.16), as a command of a unit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use sanwire_core::NexusId;
use sanwire_scsi::Task;
use sanwire_scsi::reservation::{Order, OrderAction, TransportId, order};

use super::clearing::{ClearedReservations, NotCleared};
use super::keeper::{ReservationKeeper, Saved};
use super::keeping::{Begun, Change, Outcome, Reserving, lock};
use super::registry::Registrant;
use crate::abort_scope::AbortScope;
use crate::data::parameter_list;
use crate::nexus::NexusPorts;
use crate::refusal::Refusal;
use crate::step::Step;
use crate::unit_state::UnitState;
use crate::viewers::Wanted;

pub(crate) fn persistent_reserve_out(
    (action, scope_and_type, parameter_bytes): (OrderAction, u8, u32),
    unit: &Arc<UnitState>,
    nexus: NexusId,
    task: &Task,
) -> Result<Step, Refusal> {
    let list = parameter_list(task, parameter_bytes as usize)?;
    Reserving::new(order(action, scope_and_type, &list)?, nexus).next(unit)
}

impl Reserving {
    /// Begins, ends, or waits on. Once its record is being kept, it is done with or without its command.
    pub(crate) fn next(mut self: Box<Self>, unit: &Arc<UnitState>) -> Result<Step, Refusal> {
        if self.outcome.is_none() {
            unit.acquaint_with_concerned(Some(&self.order));
            match unit.reservations.begin(&self.order, self.nexus, &unit.nexuses)? {
                Begun::Done(aborted) => return Ok(step(unit, aborted)),
                Begun::Later => {}
                Begun::Keep(keeper, record, change) => self.outcome = Some(keep(unit, &*keeper, record, change)),
            }
        }
        match self.outcome.as_ref().and_then(|outcome| lock(outcome).take()) {
            Some(outcome) => outcome.map(|aborted| step(unit, aborted)),
            None => Ok(Step::Reserve(self)),
        }
    }
}

impl UnitState {
    /// Ends all reservations, or those with a key, in the name of the owner, and tells what that was: at once, or when it is kept.
    pub fn clear_reservations(
        self: &Arc<Self>,
        key: Option<u64>,
        forced: bool,
        told: impl FnOnce(Result<ClearedReservations, NotCleared>) + Send + 'static,
    ) {
        self.acquaint_with_concerned(None);
        match self.reservations.begin_clearing(key, forced, &self.nexuses) {
            Err(refused) => told(Err(refused)),
            Ok((Begun::Keep(keeper, record, change), cleared)) => {
                let (unit, place) = (Arc::clone(self), keeper.place());
                let saved = Saved::new(move |is_kept| {
                    unit.acquaint_with_concerned(None);
                    let finished = unit.reservations.finish(change, is_kept, &unit.nexuses);
                    // Orders of initiators come after it.
                    unit.exclusion.bell().ring();
                    told(finished.map(|_| cleared).map_err(|_| NotCleared::NotKept(place)));
                });
                keeper.save(record, saved);
            }
            Ok((Begun::Done(_) | Begun::Later, cleared)) => told(Ok(cleared)),
        }
    }

    /// What that would end.
    ///
    /// # Errors
    /// [`NotCleared`].
    pub fn would_clear_reservations(&self, key: Option<u64>, forced: bool) -> Result<ClearedReservations, NotCleared> {
        self.acquaint_with_concerned(None);
        self.reservations.would_clear(key, forced)
    }

    /// Makes the nexuses known to the unit that an order may concern, whether they have used it or not: those of registrants, and those
    /// of the initiator devices that it names.
    fn acquaint_with_concerned(&self, order: Option<&Order>) {
        let registrants = self.reservations.registrants();
        let named = match order {
            Some(Order::Register { others: Some(others), .. }) => &others[..],
            _ => &[],
        };
        let is_named = |ports: &NexusPorts| named.iter().any(|id| id.is_device() && id.covers(&ports.initiator));
        let is_registered =
            |ports: &NexusPorts| Registrant::names_of(ports).iter().any(|name| registrants.contains(name));
        if !registrants.is_empty() || named.iter().any(TransportId::is_device) {
            self.acquaint_with(&Wanted::Ports(&|ports| is_registered(ports) || is_named(ports)));
        }
    }
}

fn keep(
    unit: &Arc<UnitState>,
    keeper: &dyn ReservationKeeper,
    record: Vec<u8>,
    change: Change,
) -> Arc<Mutex<Option<Outcome>>> {
    let outcome = Arc::new(Mutex::new(None));
    let (unit, told) = (Arc::clone(unit), Arc::clone(&outcome));
    let saved = Saved::new(move |is_kept| {
        unit.acquaint_with_concerned(None);
        *lock(&told) = Some(unit.reservations.finish(change, is_kept, &unit.nexuses));
        // The order itself waits for that, and those that come after it.
        unit.exclusion.bell().ring();
    });
    keeper.save(record, saved);
    outcome
}

fn step(unit: &Arc<UnitState>, aborted: BTreeSet<NexusId>) -> Step {
    if aborted.is_empty() { Step::Good } else { Step::Abort(AbortScope::new(unit.id(), aborted)) }
}
