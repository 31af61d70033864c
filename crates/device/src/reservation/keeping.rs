//! An order whose record is being kept: its command waits, and nobody else does.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::reservation::{Order, TransportId};

use super::registry::{Effects, Registrant, Registry};
use super::{AbortScope, ReservationKeeper};
use crate::logical_unit::LogicalUnit;
use crate::nexus::NexusPorts;
use crate::refusal::Refusal;
use crate::step::Step;

/// Who waits until a record is kept. Dropped untold, it is told that it was not.
pub struct Saved(Option<Box<dyn FnOnce(bool) + Send>>);

impl Saved {
    /// What is called with whether the record is on stable storage.
    pub fn new(told: impl FnOnce(bool) + Send + 'static) -> Saved {
        Saved(Some(Box::new(told)))
    }

    /// The record is on stable storage, or may not be.
    pub fn tell(mut self, is_kept: bool) {
        self.end(is_kept);
    }

    fn end(&mut self, is_kept: bool) {
        if let Some(told) = self.0.take() {
            told(is_kept);
        }
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl fmt::Debug for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Saved")
    }
}

/// What an order changes.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) registry: Registry,
    pub(super) effects: Effects,
    pub(super) nexus: NexusId,
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
type Outcome = Result<BTreeSet<NexusId>, Refusal>;

/// A PERSISTENT RESERVE OUT that waits for its turn, or for its record.
#[derive(Debug)]
pub(crate) struct Reserving {
    order: Order,
    nexus: NexusId,
    /// Where it is told what became of it, once it has begun.
    outcome: Option<Arc<Mutex<Option<Outcome>>>>,
}

impl Reserving {
    pub(super) fn new(order: Order, nexus: NexusId) -> Box<Self> {
        Box::new(Reserving { order, nexus, outcome: None })
    }

    /// Whether there is something to do.
    pub(crate) fn may_go(&self) -> bool {
        self.outcome.as_ref().is_none_or(|outcome| lock(outcome).is_some())
    }

    /// Begins, ends, or waits on. Once its record is being kept, it is done with or without its command.
    pub(crate) fn next(mut self: Box<Self>, disk: &Arc<LogicalUnit>) -> Result<Step, Refusal> {
        if self.outcome.is_none() {
            disk.acquaint_with_concerned(Some(&self.order));
            match disk.reservations.begin(&self.order, self.nexus, &disk.nexuses)? {
                Begun::Done(aborted) => return Ok(step(disk, aborted)),
                Begun::Later => {}
                Begun::Keep(keeper, record, change) => self.outcome = Some(keep(disk, &*keeper, record, change)),
            }
        }
        match self.outcome.as_ref().and_then(|outcome| lock(outcome).take()) {
            Some(outcome) => outcome.map(|aborted| step(disk, aborted)),
            None => Ok(Step::Reserve(self)),
        }
    }
}

impl LogicalUnit {
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
            self.acquaint_with(|member| is_registered(&member.ports) || is_named(&member.ports));
        }
    }
}

fn keep(
    disk: &Arc<LogicalUnit>,
    keeper: &dyn ReservationKeeper,
    record: Vec<u8>,
    change: Change,
) -> Arc<Mutex<Option<Outcome>>> {
    let outcome = Arc::new(Mutex::new(None));
    let (disk, told) = (Arc::clone(disk), Arc::clone(&outcome));
    let saved = Saved::new(move |is_kept| {
        disk.acquaint_with_concerned(None);
        *lock(&told) = Some(disk.reservations.finish(change, is_kept, &disk.nexuses));
    });
    keeper.save(record, saved);
    outcome
}

fn step(disk: &Arc<LogicalUnit>, aborted: BTreeSet<NexusId>) -> Step {
    if aborted.is_empty() { Step::Good } else { Step::Abort(AbortScope::new(Arc::clone(disk), aborted)) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // One write of one value: a poisoned one is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
