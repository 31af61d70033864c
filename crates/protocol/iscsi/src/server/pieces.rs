//! Commands whose data goes in pieces: the next piece is asked for when the one before has left the memory, or has arrived.
//!
//! Of a long WRITE one piece at a time is solicited, and executed before the next one is. Of a long READ the pieces are
//! sent as they come from above, and a connection is ahead of its socket by [`AHEAD_BYTES`] at the most, whatever its
//! commands are together. What was sent of them is not kept for error recovery: a SNACK for it is rejected, and a command
//! in the middle of its pieces ends with its connection, so that its initiator gives it again.

use std::collections::VecDeque;

use sanwire_buffer::Slices;
use sanwire_core::limits::PIECE_BYTES;
use sanwire_core::{Instant, Lun};
use sanwire_scsi::Rest;

use super::commands::Phase;
use super::event::{CommandHandle, Function};
use super::session::Session;
use super::shared::Shared;
use super::write_transfer::Gathering;

/// Data of long answers that waits to be sent on a connection, or is being read for it.
const AHEAD_BYTES: usize = 2 * PIECE_BYTES;

/// The long answers of one connection.
#[derive(Default)]
pub(super) struct Pieces {
    /// Commands of which the next piece is to be asked for.
    waiting: VecDeque<u64>,
    /// Commands of which it was asked for.
    asked: Vec<u64>,
}

impl Pieces {
    /// Whether nothing is to be asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Session {
    /// The layer above has begun a command and done a piece of it.
    pub(super) fn handle_piece(
        &mut self,
        number: u64,
        rest: Rest,
        data: Option<Slices>,
        shared: &mut Shared,
        now: Instant,
    ) {
        let Some(command) = self.commands.get_mut(number) else { return };
        command.rest = Some(rest);
        let (id, is_write) = (command.connection, command.is_write);
        if is_write {
            let end = rest.from_bytes.saturating_add(PIECE_BYTES as u32).min(rest.end_bytes);
            command.phase = Phase::Gathering(Box::new(Gathering::piece(rest.from_bytes, end, now)));
        }
        let Some(at) = self.position(id) else { return self.forsake(number, shared) };
        if is_write {
            return self.go_on(number, shared, now);
        }
        self.send_piece(at, number, data, shared);
        let pieces = &mut self.connections[at].pieces;
        pieces.asked.retain(|asked| *asked != number);
        // What was begun is brought to its end first.
        pieces.waiting.push_front(number);
    }

    /// Asks for pieces on all connections.
    pub(super) fn ask_for_pieces(&mut self, shared: &mut Shared) {
        for at in 0..self.connections.len() {
            if !self.connections[at].pieces.is_empty() {
                self.ask_for_pieces_on(at, shared);
            }
        }
    }

    /// Asks for as many pieces as a connection may be ahead of its socket.
    pub(super) fn ask_for_pieces_on(&mut self, at: usize, shared: &mut Shared) {
        let commands = &mut self.commands;
        self.connections[at].pieces.asked.retain(|number| commands.get_mut(*number).is_some());
        while let Some(number) = self.next_piece(at) {
            let is_next = |phase: &Phase| matches!(phase, Phase::Executing);
            if self.commands.get_mut(number).is_some_and(|command| is_next(&command.phase)) {
                self.connections[at].pieces.asked.push(number);
                self.pass_up(number, None, shared);
            }
        }
    }

    fn next_piece(&mut self, at: usize) -> Option<u64> {
        let connection = &mut self.connections[at];
        let ahead_bytes = connection.mover.queued_bytes() + connection.pieces.asked.len() * PIECE_BYTES;
        if ahead_bytes < AHEAD_BYTES { connection.pieces.waiting.pop_front() } else { None }
    }

    /// Ends a command that the layer above has, without an answer.
    pub(super) fn forsake(&mut self, number: u64, shared: &mut Shared) {
        self.forget_memory(number);
        self.commands.forget_tag(number);
        let Some(command) = self.commands.get_mut(number) else { return };
        command.phase = Phase::Forsaken;
        let lun = Lun::from_wire(command.lun);
        let handle = CommandHandle { nexus: self.nexus, number };
        self.ask_above(Function::AbandonTask(handle), lun, None, shared);
    }

    /// A command has failed here: if the layer above waits for the next piece of it, it waits in vain.
    pub(super) fn forget_above(&mut self, number: u64, shared: &mut Shared) {
        let Some(command) = self.commands.get_mut(number).filter(|command| command.rest.is_some()) else { return };
        let lun = Lun::from_wire(command.lun);
        let handle = CommandHandle { nexus: self.nexus, number };
        self.ask_above(Function::AbandonTask(handle), lun, None, shared);
    }
}
