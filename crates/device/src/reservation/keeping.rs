//! An order whose record is being kept: its command waits, and no other one does.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::reservation::Order;

use super::keeper::ReservationKeeper;
use super::registry::{Effects, Registry};
use crate::refusal::Refusal;

/// What an order changes.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) registry: Registry,
    pub(super) effects: Effects,
    /// Who orders it; `None`: the owner of the unit.
    pub(super) nexus: Option<NexusId>,
}

/// What became of an order, at first.
#[derive(Debug)]
pub(super) enum Begun {
    /// It is done; the commands of these nexuses are to be aborted.
    Done(BTreeSet<NexusId>),
    /// It is done when this record is kept.
    Keep(Arc<dyn ReservationKeeper>, Vec<u8>, Change),
    /// It comes after another one.
    Later,
}

/// What became of it in the end.
pub(super) type Outcome = Result<BTreeSet<NexusId>, Refusal>;

/// A PERSISTENT RESERVE OUT that waits for its turn, or for its record.
#[derive(Debug)]
pub(crate) struct Reserving {
    pub(super) order: Order,
    pub(super) nexus: NexusId,
    /// Where it is told what became of it, once it has begun.
    pub(super) outcome: Option<Arc<Mutex<Option<Outcome>>>>,
}

impl Reserving {
    pub(super) fn new(order: Order, nexus: NexusId) -> Box<Self> {
        Box::new(Reserving { order, nexus, outcome: None })
    }

    /// Whether there is something to do.
    pub(crate) fn may_go(&self) -> bool {
        self.outcome.as_ref().is_none_or(|outcome| lock(outcome).is_some())
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // One write of one value: a poisoned one is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
