//! What was asked of a volume, and how long that took.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sanwire_core::Durations;

use super::{Channel, OpKind};
use crate::volume::VolumeError;

/// What was asked of a volume since it was opened, also what has failed or is under way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpCounts {
    /// Operations of all kinds.
    pub operations: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
}

/// Of which kind an operation is in what is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpClass {
    /// A read.
    Read,
    /// A write.
    Write,
    /// Anything else.
    Other,
}

/// How long operations have taken, until their results were there, by their classes.
#[derive(Clone, Default, Debug)]
pub struct OpDurations([Durations; 3]);

impl OpDurations {
    /// Those of each class.
    pub fn iter(&self) -> impl Iterator<Item = (OpClass, &Durations)> {
        [OpClass::Read, OpClass::Write, OpClass::Other].into_iter().zip(&self.0)
    }
}

/// The durations of a volume's operations, for all who note and look at them.
#[derive(Clone, Default, Debug)]
pub(super) struct Timekeeper(Arc<Mutex<OpDurations>>);

/// When an operation began, and where it is noted.
#[derive(Debug)]
pub(super) struct Timer {
    begun: Instant,
    class: OpClass,
    keeper: Timekeeper,
}

impl Timekeeper {
    /// Nothing for questions about the volume itself.
    pub(super) fn start(&self, kind: &OpKind) -> Option<Timer> {
        let class = match kind {
            OpKind::Check => return None,
            OpKind::Read { .. } => OpClass::Read,
            OpKind::Write { .. } => OpClass::Write,
            _ => OpClass::Other,
        };
        Some(Timer { begun: Instant::now(), class, keeper: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, OpDurations> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Timer {
    /// The operation is over.
    pub(super) fn stop(self) {
        let took = self.begun.elapsed();
        self.keeper.lock().0[self.class as usize].note(took);
    }
}

/// Sees what a volume is asked, without being a handle of it.
#[derive(Clone)]
pub struct VolumeLooker(Arc<Channel>);

impl VolumeLooker {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        VolumeLooker(channel)
    }

    /// How long it has taken.
    #[must_use]
    pub fn durations(&self) -> OpDurations {
        self.0.durations.lock().clone()
    }

    /// What was asked so far; and why the volume is lost for good, when it is.
    #[must_use]
    pub fn look(&self) -> (OpCounts, Option<VolumeError>) {
        let ops = self.0.lock();
        (ops.counts, ops.closed.clone())
    }
}

impl OpCounts {
    /// Questions about the volume itself are nobody's use of it.
    pub(super) fn note(&mut self, kind: &OpKind) {
        self.operations += u64::from(!matches!(kind, OpKind::Check));
        match kind {
            OpKind::Read { buffer, .. } => self.read_bytes += buffer.len() as u64,
            OpKind::Write { data, .. } => self.written_bytes += data.len() as u64,
            _ => {}
        }
    }
}
