//! What a command does to the medium, and how much data goes with it, seen from its registers.

use std::ops::Range;

use sanwire_ata::{Command, TaskFile};

use crate::wire::SECTOR_BYTES;

/// Whether a command that was obeyed must not be obeyed once more after others: what changes the medium, and flushes, whose failures are told
/// only once.
pub(super) fn is_remembered(task_file: &TaskFile) -> bool {
    let command = Command::parse(task_file);
    matches!(command, Some(Command::Write { .. } | Command::Trim { .. } | Command::Zero { .. } | Command::Flush))
}

/// The sectors that a command changes, as far as that can be said before its data is looked at.
pub(super) fn changes(task_file: &TaskFile) -> Option<Range<u64>> {
    match Command::parse(task_file)? {
        // What does not fit on any disk changes nothing.
        Command::Write { place, .. } | Command::Zero { place, .. } => {
            place.on(u64::MAX).map(|extent| extent.lba..extent.lba + u64::from(extent.blocks))
        }
        Command::Trim { .. } => Some(0..u64::MAX),
        _ => None,
    }
}

/// How much data comes with a command, in bytes.
pub(super) fn data_out_bytes(task_file: &TaskFile) -> usize {
    match Command::parse(task_file) {
        Some(Command::Write { place, .. }) => place.sectors() as usize * SECTOR_BYTES,
        Some(Command::Trim { blocks }) => usize::from(blocks) * SECTOR_BYTES,
        _ => 0,
    }
}

/// How much a command reads, in bytes, whether it is sent or not. As much is announced as the most of one command.
pub(super) fn read_bytes(task_file: &TaskFile) -> usize {
    match Command::parse(task_file) {
        Some(Command::Read { place, .. } | Command::Verify(place)) => place.sectors() as usize * SECTOR_BYTES,
        _ => 0,
    }
}

/// Whether a command reads what it does not send.
pub(super) fn is_verify(task_file: &TaskFile) -> bool {
    matches!(Command::parse(task_file), Some(Command::Verify(_)))
}
