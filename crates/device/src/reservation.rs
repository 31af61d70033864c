//! Reservations of a unit (SPC-5 5.14; RESERVE and RELEASE by SPC-2 5.5): which nexus may do what.
//!
//! [`registry`] holds the rules and nothing else; here are the lock, what the hot path reads without it, and the record
//! that survives the server.

pub(crate) mod clearing;
pub(crate) mod command;
mod keeper;
mod keeping;
mod record;
mod registry;
mod room;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use sanwire_core::NexusId;
use sanwire_core::quota::Usage;
use sanwire_scsi::reservation::{Access, Order, ReservationQuery, TransportId, capabilities};
use sanwire_scsi::{Cdb, CommandSet, Sense};

use crate::fault;
use crate::nexus::NexusPorts;
use crate::refusal::Refusal;
use crate::unit_attention::Nexuses;

pub use keeper::{KeptError, ReservationKeeper, Saved};
pub(crate) use keeping::Reserving;
use keeping::{Begun, Change};
pub use record::RecordError;
use registry::{Effects, Registrant, Registry};
use room::Room;
pub use told::{RegistrationReport, ReservationReport};

/// The reservations of one unit.
#[derive(Debug)]
pub(crate) struct Reservations {
    /// Whether anything is reserved. It is all that a command reads when, as nearly always, there is nothing.
    is_restricted: AtomicBool,
    restriction: ArcSwapOption<Restriction>,
    state: Mutex<ReservationState>,
    keeper: Option<Arc<dyn ReservationKeeper>>,
}

#[derive(Default, Debug)]
struct ReservationState {
    registry: Registry,
    room: Room,
    /// Whether an order waits until its record is kept. Others come after it.
    is_keeping: bool,
    /// The nexus that has the unit by RESERVE.
    reserved_by: Option<NexusId>,
    /// The nexuses there are.
    nexuses: BTreeMap<NexusId, Arc<NexusPorts>>,
}

/// What is reserved, as the commands of others see it.
#[derive(Debug)]
enum Restriction {
    /// By RESERVE, for one nexus.
    Reserved(NexusId),
    /// By a persistent reservation, for these nexuses; perhaps all others may read.
    Persistent { others_read: bool, admitted: BTreeSet<NexusId> },
}

impl Restriction {
    fn permits(&self, access: Access, nexus: NexusId) -> bool {
        match (self, access) {
            // Reservation commands look for themselves.
            (_, Access::Free | Access::Reservation) | (Restriction::Persistent { .. }, Access::FreeUnlessReserved) => {
                true
            }
            (Restriction::Persistent { others_read: true, .. }, Access::Read) => true,
            (Restriction::Persistent { admitted, .. }, _) => admitted.contains(&nexus),
            (Restriction::Reserved(by), _) => *by == nexus,
        }
    }
}

impl Reservations {
    /// What is kept is there again (SPC-5 5.14.5).
    ///
    /// # Errors
    /// [`KeptError`] when it cannot be known what was kept: to begin without it could cost data.
    pub(crate) fn load(keeper: Option<Arc<dyn ReservationKeeper>>) -> Result<Self, KeptError> {
        let registry = keeper.as_deref().map_or_else(|| Ok(Registry::default()), load)?;
        let reservations = Reservations {
            is_restricted: AtomicBool::new(false),
            restriction: ArcSwapOption::empty(),
            state: Mutex::new(ReservationState { registry, ..ReservationState::default() }),
            keeper,
        };
        reservations.publish(&reservations.lock());
        Ok(reservations)
    }

    /// Whether they are kept through restarts.
    pub(crate) fn are_kept(&self) -> bool {
        self.keeper.is_some()
    }

    /// Refuses a command that a reservation of others forbids.
    pub(crate) fn check(&self, cdb: &Cdb, commands: CommandSet, nexus: NexusId) -> Result<(), Refusal> {
        if !self.is_restricted.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check_access(commands.access(cdb), nexus)
    }

    /// The same for one kind of access, whatever the command.
    pub(crate) fn check_access(&self, access: Access, nexus: NexusId) -> Result<(), Refusal> {
        match &*self.restriction.load() {
            Some(restriction) if !restriction.permits(access, nexus) => Err(Refusal::Conflict),
            _ => Ok(()),
        }
    }

    pub(crate) fn establish(&self, nexus: NexusId, ports: Arc<NexusPorts>) {
        let mut state = self.lock();
        state.nexuses.insert(nexus, ports);
        self.publish(&state);
    }

    /// What was registered stays; what was reserved by RESERVE does not (SPC-2 5.5.1).
    pub(crate) fn forget(&self, nexus: NexusId) {
        let mut state = self.lock();
        state.nexuses.remove(&nexus);
        state.reserved_by = state.reserved_by.filter(|by| *by != nexus);
        self.publish(&state);
    }

    /// A logical unit reset ends what RESERVE began; persistent reservations stay (SPC-5 5.14.1).
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        state.reserved_by = None;
        self.publish(&state);
    }

    /// The registrants.
    fn registrants(&self) -> BTreeSet<Registrant> {
        self.lock().registry.registrations().map(|(registrant, _)| registrant.clone()).collect()
    }

    /// RESERVE.
    pub(crate) fn reserve(&self, nexus: NexusId) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.registry.is_empty() {
            // What is being kept was first: an initiator registers.
            if state.is_keeping || state.reserved_by.is_some_and(|by| by != nexus) {
                return Err(Refusal::Conflict);
            }
            state.reserved_by = Some(nexus);
            self.publish(&state);
            return Ok(());
        }
        state.check_compatible(nexus)
    }

    /// RELEASE: without effect for a nexus that has not reserved.
    pub(crate) fn release(&self, nexus: NexusId) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.registry.is_empty() {
            state.reserved_by = state.reserved_by.filter(|by| *by != nexus);
            self.publish(&state);
            return Ok(());
        }
        state.check_compatible(nexus)
    }

    /// PERSISTENT RESERVE IN parameter data.
    pub(crate) fn answer(&self, query: ReservationQuery) -> Result<Vec<u8>, Refusal> {
        let state = self.lock();
        state.check_not_reserved()?;
        Ok(match query {
            ReservationQuery::Keys => state.registry.read_keys(),
            ReservationQuery::Reservation => state.registry.read_reservation(),
            ReservationQuery::Capabilities => capabilities(self.are_kept(), state.registry.is_kept()).to_vec(),
            ReservationQuery::FullStatus => state.registry.full_status(),
        })
    }

    /// PERSISTENT RESERVE OUT: does it, if nothing of it is to be kept.
    fn begin(&self, order: &Order, nexus: NexusId, attentions: &Nexuses) -> Result<Begun, Refusal> {
        let mut state = self.lock();
        if state.is_keeping {
            return Ok(Begun::Later);
        }
        state.check_not_reserved()?;
        let by = state.nexuses.get(&nexus).cloned().ok_or(Refusal::Conflict)?;
        let order = state.with_ports_of_devices(order.clone(), &by)?;
        if order.keeps() && self.keeper.is_none() {
            // SPC-5 6.16.3, APTPL; REGISTER AND MOVE has the bit elsewhere.
            let byte = if matches!(order, Order::Move { .. }) { 17 } else { 20 };
            return Err(Sense::invalid_field_in_parameters(byte, Some(0)).into());
        }
        let mut registry = state.registry.clone();
        let effects = registry.execute(&order, &by)?;
        let ReservationState { room, registry: before, .. } = &mut *state;
        room.check(&order, &by, before, &registry)?;
        let change = Change { registry, effects, nexus: Some(nexus) };
        Ok(match self.to_keep(&state.registry, &change.registry) {
            Some((keeper, record)) => {
                state.is_keeping = true;
                Begun::Keep(keeper, record, change)
            }
            None => Begun::Done(self.apply(&mut state, change, attentions)),
        })
    }

    /// The record of an order was kept, or was not. Only now it is done, if at all (SPC-5 5.14.5).
    fn finish(&self, change: Change, is_kept: bool, attentions: &Nexuses) -> Result<BTreeSet<NexusId>, Refusal> {
        let mut state = self.lock();
        state.is_keeping = false;
        if is_kept { Ok(self.apply(&mut state, change, attentions)) } else { Err(fault::INTERNAL.into()) }
    }

    /// What is so from now on: tells the others through `attentions`, and gives the nexuses whose commands must be aborted: not the
    /// one that orders it, unless it has struck itself out. These prevent the removal of the medium no longer.
    fn apply(&self, state: &mut ReservationState, change: Change, attentions: &Nexuses) -> BTreeSet<NexusId> {
        let Change { registry, effects, nexus } = change;
        state.registry = registry;
        self.publish(state);
        for attention in Effects::ATTENTIONS {
            let told = state.nexuses_of(effects.told(attention));
            attentions.raise_for(attention, told.into_iter().filter(|told| Some(*told) != nexus));
        }
        let mut aborted = state.nexuses_of(&effects.aborted);
        if let Some((nexus, by)) = nexus.and_then(|nexus| state.nexuses.get_key_value(&nexus))
            && state.registry.has(by)
        {
            aborted.remove(nexus);
        }
        // SPC-3 6.13: a nexus that is preempted allows the removal of the medium again.
        aborted.iter().for_each(|nexus| attentions.set_prevent(*nexus, false));
        aborted
    }

    /// The record of what is so from now on, if it is another one.
    fn to_keep(&self, before: &Registry, after: &Registry) -> Option<(Arc<dyn ReservationKeeper>, Vec<u8>)> {
        let keeper = self.keeper.as_ref()?;
        if before == after || !(before.is_kept() || after.is_kept()) {
            return None;
        }
        let record = if after.is_kept() { record::write(after) } else { record::write(&Registry::default()) };
        Some((Arc::clone(keeper), record))
    }

    /// The initiator port of a nexus that is there.
    pub(crate) fn initiator_of(&self, nexus: NexusId) -> Option<TransportId> {
        self.lock().nexuses.get(&nexus).map(|ports| ports.initiator.clone())
    }

    /// How many registrations there are, and whether anything is reserved.
    pub(crate) fn tally(&self) -> (usize, bool) {
        (self.lock().registry.len(), self.is_restricted.load(Ordering::Acquire))
    }

    /// Who is registered, and what is reserved.
    pub(crate) fn report(&self) -> ReservationReport {
        let state = self.lock();
        state.registry.report(state.reserved_by)
    }

    /// How the quota of registrations is used.
    pub(crate) fn usage(&self) -> Usage {
        self.lock().room.usage()
    }

    fn publish(&self, state: &ReservationState) {
        let restriction = state.restriction();
        let is_restricted = restriction.is_some();
        self.restriction.store(restriction.map(Arc::new));
        self.is_restricted.store(is_restricted, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, ReservationState> {
        // Nothing panics between two writes to the state: a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReservationState {
    fn restriction(&self) -> Option<Restriction> {
        if let Some(nexus) = self.reserved_by {
            return Some(Restriction::Reserved(nexus));
        }
        let (kind, admitted) = self.registry.admitted()?;
        Some(Restriction::Persistent { others_read: kind.is_write_exclusive(), admitted: self.nexuses_of(admitted) })
    }

    /// The nexuses of these registrants.
    fn nexuses_of<'a>(&self, registrants: impl IntoIterator<Item = &'a Registrant>) -> BTreeSet<NexusId> {
        let registrants: BTreeSet<&Registrant> = registrants.into_iter().collect();
        if registrants.is_empty() {
            return BTreeSet::new();
        }
        let is_one = |ports: &NexusPorts| Registrant::names_of(ports).iter().any(|name| registrants.contains(name));
        self.nexuses.iter().filter(|(_, ports)| is_one(ports)).map(|(nexus, _)| *nexus).collect()
    }

    /// Compatible reservation handling (SPC-5 5.14.3): in the presence of registrations, RESERVE and RELEASE do nothing
    /// for those that a persistent reservation admits, and conflict (SPC-2 5.5.1) for all others.
    fn check_compatible(&self, nexus: NexusId) -> Result<(), Refusal> {
        let ports = self.nexuses.get(&nexus).ok_or(Refusal::Conflict)?;
        let names = Registrant::names_of(ports);
        match self.registry.admitted() {
            Some((_, admitted)) if admitted.iter().any(|registrant| names.contains(registrant)) => Ok(()),
            _ => Err(Refusal::Conflict),
        }
    }

    /// SPC-2 5.5.1: persistent reservations cannot be dealt with while RESERVE is in effect, not even by the nexus that sent it.
    fn check_not_reserved(&self) -> Result<(), Refusal> {
        if self.reserved_by.is_some() { Err(Refusal::Conflict) } else { Ok(()) }
    }

    /// The order with the known ports of an initiator in the place of its device's name (SPC-5 7.6.4.6).
    fn with_ports_of_devices(&self, mut order: Order, by: &NexusPorts) -> Result<Order, Sense> {
        let Order::Register { others: Some(others), all_ports, .. } = &mut order else { return Ok(order) };
        let (devices, mut ports): (Vec<_>, Vec<_>) = others.drain(..).partition(|id| id.is_device());
        for device in devices {
            let known =
                self.nexuses.values().filter(|known| *all_ports || known.target.relative_id == by.target.relative_id);
            let before = ports.len();
            ports.extend(known.map(|known| &known.initiator).filter(|port| device.covers(port)).cloned());
            if ports.len() == before {
                return Err(Sense::invalid_field_in_parameters(28, None));
            }
        }
        *others = ports;
        Ok(order)
    }
}

fn load(keeper: &dyn ReservationKeeper) -> Result<Registry, KeptError> {
    let record = keeper.load().map_err(|error| KeptError::Unreadable { place: keeper.place(), kind: error.kind() })?;
    let Some(record) = record else { return Ok(Registry::default()) };
    record::read(&record).map_err(|reason| KeptError::Damaged { place: keeper.place(), reason })
}
