//! What is kept of a task for its reply.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::{Reply, Status};

use super::Progress;
use crate::beginning::Account;
use crate::logical_unit::LogicalUnit;

/// What an execution keeps of its task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) nexus: NexusId,
    /// See [`sanwire_scsi::Task::receipts`].
    pub(crate) receipts: u64,
    /// See [`Reply::is_bulk_read`].
    pub(crate) is_bulk_read: bool,
}

impl Account {
    /// The end of a command, or of a piece of it.
    pub(super) fn close(self, disk: &Arc<LogicalUnit>, reply: Reply) -> Progress {
        match self {
            Account::Left(rest) if reply.status == Status::Good => {
                Progress::Piece(Reply { rest: Some(rest), ..reply }, Arc::clone(disk))
            }
            Account::Takes(bytes) => Progress::Done(Reply { data_out_bytes: Some(bytes), ..reply }),
            Account::Even | Account::Left(_) => Progress::Done(reply),
        }
    }
}
