//! What each I_T nexus must still be told (SAM-5 5.14, unit attention conditions), and what it asked for.

mod telling;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;

use sanwire_scsi::mode::threshold_at;
use sanwire_scsi::{AdditionalSense, Receipt, Sense, SenseKey};

use self::telling::Telling;
use crate::generation::{Generation, LastRaised};

/// A unit attention condition; the first of the list is reported first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum UnitAttention {
    PowerOn = 0,
    Reset = 1,
    LunsChanged = 2,
    CapacityChanged = 3,
    ModeChanged = 4,
    AccessStateChanged = 5,
    ReservationsPreempted = 6,
    ReservationsReleased = 7,
    RegistrationsPreempted = 8,
    MediumChanged = 9,
    /// A threshold was reached: that of the first descriptor of the mode page, ...
    FirstThreshold = 10,
    /// ... that of the second.
    SecondThreshold = 11,
    /// Others have written: what was said of that in the write verifier page holds no more.
    InquiryChanged = 12,
}

impl UnitAttention {
    const ALL: [UnitAttention; 13] = [
        UnitAttention::PowerOn,
        UnitAttention::Reset,
        UnitAttention::LunsChanged,
        UnitAttention::CapacityChanged,
        UnitAttention::ModeChanged,
        UnitAttention::AccessStateChanged,
        UnitAttention::ReservationsPreempted,
        UnitAttention::ReservationsReleased,
        UnitAttention::RegistrationsPreempted,
        UnitAttention::MediumChanged,
        UnitAttention::FirstThreshold,
        UnitAttention::SecondThreshold,
        UnitAttention::InquiryChanged,
    ];

    /// Somebody else has the unit now, perhaps for a while that is over: a nexus may have given any number of commands before it hears
    /// that, and none of them must change what the other has written. So all of them are told.
    const UNTIL_HEARD: u32 = UnitAttention::ReservationsPreempted.bit() | UnitAttention::RegistrationsPreempted.bit();

    /// Those that a RESERVATION CONFLICT does not hide (SAM-5 5.3.3).
    const RESETS: u32 = UnitAttention::PowerOn.bit() | UnitAttention::Reset.bit();

    const fn bit(self) -> u32 {
        1 << self as u8
    }

    fn sense(self) -> Sense {
        let additional = match self {
            UnitAttention::PowerOn => AdditionalSense::POWER_ON_OR_RESET_OCCURRED,
            UnitAttention::Reset => AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED,
            UnitAttention::LunsChanged => AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED,
            UnitAttention::CapacityChanged => AdditionalSense::CAPACITY_DATA_HAS_CHANGED,
            UnitAttention::ModeChanged => AdditionalSense::MODE_PARAMETERS_CHANGED,
            UnitAttention::AccessStateChanged => AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED,
            UnitAttention::ReservationsPreempted => AdditionalSense::RESERVATIONS_PREEMPTED,
            UnitAttention::ReservationsReleased => AdditionalSense::RESERVATIONS_RELEASED,
            UnitAttention::RegistrationsPreempted => AdditionalSense::REGISTRATIONS_PREEMPTED,
            UnitAttention::MediumChanged => AdditionalSense::NOT_READY_TO_READY_CHANGE,
            UnitAttention::InquiryChanged => AdditionalSense::INQUIRY_DATA_HAS_CHANGED,
            UnitAttention::FirstThreshold => return threshold_reached(0),
            UnitAttention::SecondThreshold => return threshold_reached(1),
        };
        Sense::new(SenseKey::UnitAttention, additional)
    }
}

/// SBC-4 4.7.3.8.4: the place of the threshold's descriptor in its mode page tells which it was.
fn threshold_reached(descriptor: u8) -> Sense {
    let sense = Sense::new(SenseKey::UnitAttention, AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
    sense.with_information(threshold_at(descriptor).into())
}

#[derive(Clone, Copy, Default, Debug)]
struct Nexus {
    /// One bit for each [`UnitAttention`] that is pending.
    pending: u32,
    prevents_removal: bool,
    /// The same, unless an initiator ejects the medium.
    prevents_removal_persistently: bool,
    /// The unit was added under a number by which this nexus may have known another unit before.
    is_unseen: bool,
}

impl Nexus {
    fn must_be_told(&self) -> bool {
        self.pending != 0 || self.is_unseen
    }
}

/// How a nexus comes to a unit, of which it has made no use yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    /// It is to be told of what happened since.
    pub(crate) since: Generation,
    /// See [`Nexuses::is_unseen`].
    pub(crate) is_unseen: bool,
    /// Since when it wants the medium to stay in, as that of all units.
    pub(crate) locked: Option<Generation>,
}

/// The nexuses that a logical unit knows: those that have used it, or must be told something that others are not.
#[derive(Default, Debug)]
pub(crate) struct Nexuses {
    /// A one where some nexus whose number has this remainder by 64 must be told something. It is all that a command reads when, as
    /// nearly always, there is none.
    pending: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    by_id: BTreeMap<NexusId, Nexus>,
    /// What some nexuses were told, and may not have heard yet.
    tellings: BTreeMap<(NexusId, UnitAttention), Telling>,
    /// What was last established for all, for nexuses that are not known yet.
    raised: Vec<(UnitAttention, LastRaised)>,
    /// When the removal of the medium was last allowed for all, whatever nexuses had asked.
    allowed: Generation,
    /// How many nexuses must be told something, by the remainders of their numbers: so no command has to look at all
    /// nexuses when something was established for all.
    waiting: [u32; PLACES],
}

/// Remainders by which nexuses are told apart.
const PLACES: usize = 64;

impl Default for Table {
    fn default() -> Self {
        let (raised, allowed) = (Vec::new(), Generation::default());
        Table { by_id: BTreeMap::new(), tellings: BTreeMap::new(), raised, allowed, waiting: [0; PLACES] }
    }
}

impl Table {
    fn last_raised(&mut self, attention: UnitAttention) -> &mut LastRaised {
        let known = self.raised.iter().position(|(raised, _)| *raised == attention);
        let at = known.unwrap_or_else(|| {
            self.raised.push((attention, LastRaised::default()));
            self.raised.len() - 1
        });
        &mut self.raised[at].1
    }

    /// The first of these that the nexus must be told of.
    fn next(&self, nexus: NexusId, bits: u32) -> Option<UnitAttention> {
        let pending = self.by_id.get(&nexus)?.pending & bits;
        UnitAttention::ALL.into_iter().find(|attention| pending & attention.bit() != 0)
    }

    /// What a nexus must be told that was there since then, and is not known yet.
    fn raised_since(&self, since: Generation, nexus: NexusId) -> u32 {
        let raised = self.raised.iter().filter(|(_, last)| last.for_nexus(nexus) > since);
        raised.fold(0, |all, (attention, _)| all | attention.bit())
    }
}

impl Nexuses {
    /// Takes in a nexus, which must be told of power on, and of what happened since it came; one that is known stays as it is.
    pub(crate) fn establish(&self, nexus: NexusId, met: Met) {
        let mut table = self.lock();
        if !table.by_id.contains_key(&nexus) {
            let pending = UnitAttention::PowerOn.bit() | table.raised_since(met.since, nexus);
            let prevents_removal = met.locked.is_some_and(|locked| locked > table.allowed);
            table
                .by_id
                .insert(nexus, Nexus { pending, prevents_removal, is_unseen: met.is_unseen, ..Nexus::default() });
            self.note(&mut table, nexus, false, true);
        }
    }

    /// Whether the nexus, which was there before the unit came under its number, has not yet asked for the identity of that unit. Commands
    /// that were meant for the unit that had the number before may still be on their way, any number of them: a unit
    /// attention would stop the first one only.
    pub(crate) fn is_unseen(&self, nexus: NexusId) -> bool {
        self.may_be_pending(nexus) && self.lock().by_id.get(&nexus).is_some_and(|state| state.is_unseen)
    }

    /// The nexus has asked for the identity of the unit.
    pub(crate) fn see(&self, nexus: NexusId) {
        if self.may_be_pending(nexus) {
            self.change(&mut self.lock(), nexus, |state| state.is_unseen = false);
        }
    }

    pub(crate) fn forget(&self, nexus: NexusId) {
        let mut table = self.lock();
        table.tellings.retain(|(told, _), _| *told != nexus);
        if let Some(state) = table.by_id.remove(&nexus) {
            self.note(&mut table, nexus, state.must_be_told(), false);
        }
    }

    /// Queues the condition for every nexus but `except`, also for those that are not known yet.
    pub(crate) fn raise(&self, attention: UnitAttention, except: Option<NexusId>) {
        let mut table = self.lock();
        table.tellings.retain(|(nexus, told), _| *told != attention || Some(*nexus) == except);
        table.last_raised(attention).note(except);
        let Table { by_id, waiting, .. } = &mut *table;
        for (nexus, state) in by_id.iter_mut().filter(|(nexus, _)| Some(**nexus) != except) {
            waiting[place(*nexus)] += u32::from(!state.must_be_told());
            state.pending |= attention.bit();
        }
        let pending = (0..).zip(&table.waiting).filter(|(_, count)| **count > 0).fold(0, |all, (at, _)| all | 1 << at);
        self.pending.store(pending, Ordering::Release);
    }

    /// Queues the condition for these nexuses.
    pub(crate) fn raise_for(&self, attention: UnitAttention, nexuses: impl Iterator<Item = NexusId>) {
        let mut table = self.lock();
        for nexus in nexuses {
            table.tellings.remove(&(nexus, attention));
            self.change(&mut table, nexus, |state| state.pending |= attention.bit());
        }
    }

    pub(crate) fn clear(&self, attention: UnitAttention, nexus: NexusId) {
        if self.may_be_pending(nexus) {
            self.told(&mut self.lock(), nexus, attention);
        }
    }

    /// What a command is told instead of being executed, which its nexus gave when it had the answers up to this receipt. Where it must
    /// be known that it has heard it, with the receipt of this answer.
    pub(crate) fn tell(&self, nexus: NexusId, receipts: u64) -> Option<(Sense, Option<Receipt>)> {
        if !self.may_be_pending(nexus) {
            return None;
        }
        let mut table = self.lock();
        loop {
            let next = table.next(nexus, u32::MAX)?;
            if next.bit() & UnitAttention::UNTIL_HEARD == 0 {
                self.told(&mut table, nexus, next);
                return Some((next.sense(), None));
            }
            let telling = table.tellings.entry((nexus, next)).or_default();
            if !telling.is_heard(receipts) {
                return Some((next.sense(), Some(telling.tell())));
            }
            self.told(&mut table, nexus, next);
        }
    }

    /// The next condition that the nexus must be told of. It counts as told, unless it must be known to be heard, which this way of telling
    /// says nothing of.
    pub(crate) fn take(&self, nexus: NexusId) -> Option<Sense> {
        if !self.may_be_pending(nexus) {
            return None;
        }
        let mut table = self.lock();
        let next = table.next(nexus, u32::MAX)?;
        if next.bit() & UnitAttention::UNTIL_HEARD == 0 {
            self.told(&mut table, nexus, next);
        }
        Some(next.sense())
    }

    /// The same, for what precedes a reservation conflict.
    pub(crate) fn take_reset(&self, nexus: NexusId) -> Option<Sense> {
        self.take_one_of(nexus, UnitAttention::RESETS)
    }

    /// The same, for what stops a write that others have overtaken.
    pub(crate) fn take_inquiry_changed(&self, nexus: NexusId) -> Option<Sense> {
        self.take_one_of(nexus, UnitAttention::InquiryChanged.bit())
    }

    /// Those that it knows.
    pub(crate) fn all(&self) -> Vec<NexusId> {
        self.lock().by_id.keys().copied().collect()
    }

    /// How many it knows.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    fn take_one_of(&self, nexus: NexusId, bits: u32) -> Option<Sense> {
        if !self.may_be_pending(nexus) {
            return None;
        }
        let mut table = self.lock();
        let next = table.next(nexus, bits)?;
        self.told(&mut table, nexus, next);
        Some(next.sense())
    }

    /// The nexus need not be told of that any more.
    fn told(&self, table: &mut Table, nexus: NexusId, attention: UnitAttention) {
        table.tellings.remove(&(nexus, attention));
        self.change(table, nexus, |state| state.pending &= !attention.bit());
    }

    pub(crate) fn set_prevent(&self, nexus: NexusId, prevents_removal: bool) {
        if let Some(state) = self.lock().by_id.get_mut(&nexus) {
            state.prevents_removal = prevents_removal;
        }
    }

    pub(crate) fn set_persistent_prevent(&self, nexus: NexusId, prevents_removal: bool) {
        if let Some(state) = self.lock().by_id.get_mut(&nexus) {
            state.prevents_removal_persistently = prevents_removal;
        }
    }

    pub(crate) fn allow_all(&self) {
        let mut table = self.lock();
        table.allowed = Generation::next();
        for state in table.by_id.values_mut() {
            (state.prevents_removal, state.prevents_removal_persistently) = (false, false);
        }
    }

    pub(crate) fn is_removal_prevented(&self) -> bool {
        self.lock().by_id.values().any(|state| state.prevents_removal)
    }

    pub(crate) fn is_removal_persistently_prevented(&self) -> bool {
        self.lock().by_id.values().any(|state| state.prevents_removal_persistently)
    }

    fn may_be_pending(&self, nexus: NexusId) -> bool {
        self.pending.load(Ordering::Acquire) & 1 << place(nexus) != 0
    }

    /// Changes what a nexus must be told, if it is there.
    fn change(&self, table: &mut Table, nexus: NexusId, change: impl FnOnce(&mut Nexus)) {
        let Some(state) = table.by_id.get_mut(&nexus) else { return };
        let before = state.must_be_told();
        change(state);
        let after = state.must_be_told();
        self.note(table, nexus, before, after);
    }

    /// Notes whether a nexus had to be told something, and has to now.
    fn note(&self, table: &mut Table, nexus: NexusId, before: bool, after: bool) {
        let place = place(nexus);
        let waiting = &mut table.waiting[place];
        match (before, after) {
            (false, true) => {
                *waiting += 1;
                self.pending.fetch_or(1 << place, Ordering::Release);
            }
            (true, false) => {
                *waiting -= 1;
                if *waiting == 0 {
                    self.pending.fetch_and(!(1 << place), Ordering::Release);
                }
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing panics between two writes to the table: a poisoned one is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(nexus: NexusId) -> usize {
    (nexus.0 % PLACES as u64) as usize
}

#[cfg(test)]
mod tests;
