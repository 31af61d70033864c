//! What is kept of a task for its reply.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::{Reply, Rest, Status};

use super::Progress;
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

/// What a command's reply says of its data besides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// Nothing: it takes what came with it.
    Even,
    /// So many bytes it takes, and another amount came with it.
    Takes(u64),
    /// This is left of it, when it is well.
    Left(Rest),
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
