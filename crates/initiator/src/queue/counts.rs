//! What was asked of a volume.

use std::sync::Arc;

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

/// Sees what a volume is asked, without being a handle of it.
#[derive(Clone)]
pub struct VolumeLooker(Arc<Channel>);

impl VolumeLooker {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        VolumeLooker(channel)
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
