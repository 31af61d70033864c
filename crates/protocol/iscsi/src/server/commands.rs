//! The SCSI commands of a session that are under way.

use rustc_hash::FxHashMap;
use sanwire_scsi::{Cdb, Reply, Rest};
use slab::Slab;

use super::write_transfer::Gathering;
use crate::ConnectionId;

/// Bits of a command's number that are its place in the table; the others count.
const PLACE_BITS: u32 = 16;

/// One SCSI command under way.
pub(super) struct Command {
    /// The initiator's tag.
    pub(super) tag: u32,
    /// What the layer above knows it by: never used twice in a session.
    pub(super) number: u64,
    /// The connection that it came on and is answered on.
    pub(super) connection: ConnectionId,
    pub(super) lun: [u8; 8],
    /// It came out of the order of commands and takes no room in the window.
    pub(super) is_immediate: bool,
    pub(super) cdb: Cdb,
    /// Data that the initiator expects to send, in bytes.
    pub(super) write_bytes: u32,
    /// Data that the initiator has room for, in bytes.
    pub(super) read_bytes: u32,
    pub(super) is_bidirectional: bool,
    pub(super) is_write: bool,
    /// The number of the next Data-In or R2T (RFC 7143 4.2.2.3).
    pub(super) data_number: u32,
    /// What is left of it, when pieces of it are done: the layer above has it then, whatever its phase.
    pub(super) rest: Option<Rest>,
    /// Data that was sent with pieces, or that there was no room for, in bytes.
    pub(super) answered_bytes: u32,
    pub(super) phase: Phase,
    /// Up to which receipt its initiator had the answers when it gave it.
    pub(super) receipts: u64,
}

impl Command {
    /// The layer above has it.
    pub(super) fn is_above(&self) -> bool {
        self.rest.is_some() || matches!(self.phase, Phase::Executing | Phase::Forsaken)
    }
}

/// How far a command is.
pub(super) enum Phase {
    /// Its data comes in.
    Gathering(Box<Gathering>),
    /// The layer above works on it, or waits until it may go on with its next piece.
    Executing,
    /// It was executed, and is answered when its connection is back.
    Answered(Box<Reply>),
    /// The layer above works on it, and nobody wants to know what comes of it.
    Forsaken,
}

/// All commands of a session, by what the layer above and by what the initiator calls them.
#[derive(Default)]
pub(super) struct Commands {
    slab: Slab<Command>,
    by_tag: FxHashMap<u32, usize>,
    count: u64,
}

impl Commands {
    /// Whether the tag is in use.
    pub(super) fn has_tag(&self, tag: u32) -> bool {
        self.by_tag.contains_key(&tag)
    }

    /// How many are under way.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds a command, gives it its number, and says it.
    pub(super) fn insert(&mut self, mut command: Command) -> u64 {
        let entry = self.slab.vacant_entry();
        let number = self.count << PLACE_BITS | entry.key() as u64;
        self.count += 1;
        command.number = number;
        self.by_tag.insert(command.tag, entry.key());
        entry.insert(command);
        number
    }

    /// The command with this number.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Command> {
        self.slab.get_mut(place(number)).filter(|command| command.number == number)
    }

    /// The command with this tag.
    pub(super) fn by_tag(&self, tag: u32) -> Option<&Command> {
        self.slab.get(*self.by_tag.get(&tag)?)
    }

    /// The command with this tag.
    pub(super) fn by_tag_mut(&mut self, tag: u32) -> Option<&mut Command> {
        self.slab.get_mut(*self.by_tag.get(&tag)?)
    }

    /// Takes a command out.
    pub(super) fn remove(&mut self, number: u64) -> Option<Command> {
        self.get_mut(number)?;
        let command = self.slab.try_remove(place(number))?;
        if self.by_tag.get(&command.tag) == Some(&place(number)) {
            self.by_tag.remove(&command.tag);
        }
        Some(command)
    }

    /// Lets the tag of a command be used again while the command is still under way.
    pub(super) fn forget_tag(&mut self, number: u64) {
        let Some(tag) = self.get_mut(number).map(|command| command.tag) else { return };
        if self.by_tag.get(&tag) == Some(&place(number)) {
            self.by_tag.remove(&tag);
        }
    }

    /// All of them, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Command> {
        self.slab.iter_mut().map(|(_, command)| command)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Command> {
        self.slab.iter().map(|(_, command)| command)
    }
}

fn place(number: u64) -> usize {
    (number & ((1 << PLACE_BITS) - 1)) as usize
}
