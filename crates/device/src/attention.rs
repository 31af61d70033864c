//! What each I_T nexus must still be told (SAM-5 5.14, unit attention conditions), and what it asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::mode::threshold_at;
use sanwire_scsi::{AdditionalSense, Sense, SenseKey};

/// A unit attention condition; the first of the list is reported first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Attention {
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

impl Attention {
    const ALL: [Attention; 13] = [
        Attention::PowerOn,
        Attention::Reset,
        Attention::LunsChanged,
        Attention::CapacityChanged,
        Attention::ModeChanged,
        Attention::AccessStateChanged,
        Attention::ReservationsPreempted,
        Attention::ReservationsReleased,
        Attention::RegistrationsPreempted,
        Attention::MediumChanged,
        Attention::FirstThreshold,
        Attention::SecondThreshold,
        Attention::InquiryChanged,
    ];

    /// Those that a RESERVATION CONFLICT does not hide (SAM-5 5.3.3).
    const RESETS: u32 = Attention::PowerOn.bit() | Attention::Reset.bit();

    const fn bit(self) -> u32 {
        1 << self as u8
    }

    fn sense(self) -> Sense {
        let additional = match self {
            Attention::PowerOn => AdditionalSense::POWER_ON_OR_RESET_OCCURRED,
            Attention::Reset => AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED,
            Attention::LunsChanged => AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED,
            Attention::CapacityChanged => AdditionalSense::CAPACITY_DATA_HAS_CHANGED,
            Attention::ModeChanged => AdditionalSense::MODE_PARAMETERS_CHANGED,
            Attention::AccessStateChanged => AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED,
            Attention::ReservationsPreempted => AdditionalSense::RESERVATIONS_PREEMPTED,
            Attention::ReservationsReleased => AdditionalSense::RESERVATIONS_RELEASED,
            Attention::RegistrationsPreempted => AdditionalSense::REGISTRATIONS_PREEMPTED,
            Attention::MediumChanged => AdditionalSense::NOT_READY_TO_READY_CHANGE,
            Attention::InquiryChanged => AdditionalSense::INQUIRY_DATA_HAS_CHANGED,
            Attention::FirstThreshold => return threshold_reached(0),
            Attention::SecondThreshold => return threshold_reached(1),
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
    /// One bit for each [`Attention`] that is pending.
    pending: u32,
    prevents_removal: bool,
    /// The unit was added under a number by which this nexus may have known another unit before.
    is_unseen: bool,
}

impl Nexus {
    fn must_be_told(&self) -> bool {
        self.pending != 0 || self.is_unseen
    }
}

/// The nexuses that a logical unit has.
#[derive(Default, Debug)]
pub(crate) struct Nexuses {
    /// A one where some nexus whose number has this remainder by 64 has attentions pending. It is all that a command
    /// reads when, as nearly always, there are none.
    pending: AtomicU64,
    table: Mutex<BTreeMap<NexusId, Nexus>>,
}

impl Nexuses {
    /// Takes in a nexus, which must be told of power on; one that is known stays as it is. While it `is_unseen`, the unit is
    /// not there for the nexus: see [`Nexuses::is_unseen`].
    pub(crate) fn establish(&self, nexus: NexusId, is_unseen: bool) {
        let mut table = self.lock();
        table.entry(nexus).or_insert(Nexus { pending: Attention::PowerOn.bit(), prevents_removal: false, is_unseen });
        self.publish(&table);
    }

    /// Whether the nexus, which was there before the unit came under its number, has not yet asked who is there. Commands
    /// that were meant for the unit that had the number before may still be on their way, any number of them: a unit
    /// attention would stop the first one only.
    pub(crate) fn is_unseen(&self, nexus: NexusId) -> bool {
        self.may_be_pending(nexus) && self.lock().get(&nexus).is_some_and(|state| state.is_unseen)
    }

    /// The nexus has asked who is there.
    pub(crate) fn see(&self, nexus: NexusId) {
        if !self.may_be_pending(nexus) {
            return;
        }
        let mut table = self.lock();
        if let Some(state) = table.get_mut(&nexus) {
            state.is_unseen = false;
        }
        self.publish(&table);
    }

    pub(crate) fn forget(&self, nexus: NexusId) {
        let mut table = self.lock();
        table.remove(&nexus);
        self.publish(&table);
    }

    /// Queues the condition for every nexus but `except`.
    pub(crate) fn raise(&self, attention: Attention, except: Option<NexusId>) {
        let mut table = self.lock();
        for (_, state) in table.iter_mut().filter(|(nexus, _)| Some(**nexus) != except) {
            state.pending |= attention.bit();
        }
        self.publish(&table);
    }

    /// Queues the condition for these nexuses.
    pub(crate) fn raise_for(&self, attention: Attention, nexuses: impl Iterator<Item = NexusId>) {
        let mut table = self.lock();
        for nexus in nexuses {
            if let Some(state) = table.get_mut(&nexus) {
                state.pending |= attention.bit();
            }
        }
        self.publish(&table);
    }

    pub(crate) fn clear(&self, attention: Attention, nexus: NexusId) {
        if !self.may_be_pending(nexus) {
            return;
        }
        let mut table = self.lock();
        if let Some(state) = table.get_mut(&nexus) {
            state.pending &= !attention.bit();
        }
        self.publish(&table);
    }

    /// The next condition that the nexus must be told of; it counts as told.
    pub(crate) fn take(&self, nexus: NexusId) -> Option<Sense> {
        self.take_one_of(nexus, u32::MAX)
    }

    /// The same, for what precedes a reservation conflict.
    pub(crate) fn take_reset(&self, nexus: NexusId) -> Option<Sense> {
        self.take_one_of(nexus, Attention::RESETS)
    }

    /// The same, for what stops a write that others have overtaken.
    pub(crate) fn take_inquiry_changed(&self, nexus: NexusId) -> Option<Sense> {
        self.take_one_of(nexus, Attention::InquiryChanged.bit())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn take_one_of(&self, nexus: NexusId, bits: u32) -> Option<Sense> {
        if !self.may_be_pending(nexus) {
            return None;
        }
        let mut table = self.lock();
        let state = table.get_mut(&nexus)?;
        let next = Attention::ALL.into_iter().find(|attention| state.pending & bits & attention.bit() != 0)?;
        state.pending &= !next.bit();
        self.publish(&table);
        Some(next.sense())
    }

    pub(crate) fn set_prevent(&self, nexus: NexusId, prevents_removal: bool) {
        if let Some(state) = self.lock().get_mut(&nexus) {
            state.prevents_removal = prevents_removal;
        }
    }

    pub(crate) fn allow_all(&self) {
        self.lock().values_mut().for_each(|state| state.prevents_removal = false);
    }

    pub(crate) fn is_removal_prevented(&self) -> bool {
        self.lock().values().any(|state| state.prevents_removal)
    }

    fn may_be_pending(&self, nexus: NexusId) -> bool {
        self.pending.load(Ordering::Acquire) & place(nexus) != 0
    }

    fn publish(&self, table: &BTreeMap<NexusId, Nexus>) {
        let pending = table.iter().filter(|(_, state)| state.must_be_told()).fold(0, |all, (id, _)| all | place(*id));
        self.pending.store(pending, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NexusId, Nexus>> {
        // Nothing panics between two writes to the table: a poisoned one is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(nexus: NexusId) -> u64 {
    1 << (nexus.0 % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nexus_is_told_once_in_order_of_weight() {
        let nexuses = Nexuses::default();
        let (one, other) = (NexusId(1), NexusId(65));
        nexuses.establish(one, false);
        nexuses.establish(other, false);
        nexuses.raise(Attention::ModeChanged, Some(other));
        let told = |nexus| nexuses.take(nexus).map(|sense| sense.additional);
        assert_eq!(told(one), Some(AdditionalSense::POWER_ON_OR_RESET_OCCURRED));
        assert_eq!(told(one), Some(AdditionalSense::MODE_PARAMETERS_CHANGED));
        assert_eq!(told(one), None);
        assert_eq!(told(other), Some(AdditionalSense::POWER_ON_OR_RESET_OCCURRED), "shares a bit with the first");
        assert_eq!(told(other), None);
        assert_eq!(nexuses.pending.load(Ordering::Acquire), 0);
        nexuses.raise(Attention::LunsChanged, None);
        nexuses.clear(Attention::LunsChanged, one);
        nexuses.forget(other);
        assert_eq!((told(one), told(other)), (None, None));
        assert_eq!(nexuses.pending.load(Ordering::Acquire), 0);
    }

    #[test]
    fn removal_is_prevented_while_one_nexus_asks() {
        let nexuses = Nexuses::default();
        nexuses.establish(NexusId(1), false);
        nexuses.set_prevent(NexusId(1), true);
        assert!(nexuses.is_removal_prevented());
        nexuses.forget(NexusId(1));
        assert!(!nexuses.is_removal_prevented());
    }
}
