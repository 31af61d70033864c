//! What comes in on a connection: where its data goes, whose turn it is, and who deals with it.

use sanwire_core::Instant;

use super::command;
use super::command_window::{Held, Turn};
use super::session::{Rejection, Session};
use super::shared::{Shared, Starved};
use crate::ConnectionId;
use crate::receiver::{Beginning, Destination, Pdu, Step};
use crate::serial::Serial;
use crate::wire::field::{Bit, Bytes, Field, U32};
use crate::wire::{DataOut, Header, Opcode, SnackRequest, TAG_NONE};

/// What is kept of the data of a ping, or of text. RFC 7143 6.1: so much text an initiator may send at least.
pub(super) const TEXT_MAX_BYTES: usize = 8192;

/// Where the data of a PDU goes.
pub(super) enum Place {
    /// There.
    To(Destination),
    /// Nowhere yet: there is no memory.
    Wait,
}

impl Session {
    /// Looks at what has come, as far as there is memory for it.
    pub(super) fn handle_input(&mut self, id: ConnectionId, shared: &mut Shared, now: Instant) {
        let heap_max_bytes = shared.heap_share_bytes();
        while let Some(at) = self.position(id).filter(|at| !self.connections[*at].is_crammed(heap_max_bytes)) {
            match self.connections[at].mover.poll() {
                Step::Starving => return,
                Step::Header(header) => match self.place(at, &header, shared) {
                    Place::To(destination) => self.connections[at].mover.place(destination),
                    Place::Wait => {
                        self.connections[at].is_stalled = true;
                        self.is_starved = true;
                        shared.starved.push_back(Starved::Connection(id));
                        return;
                    }
                },
                Step::Pdu(pdu) => self.handle_pdu(at, pdu, shared, now),
                // RFC 7143 7.7: without the header's digest the next PDU cannot be found.
                Step::Torn => {
                    let has_stream = self.connections[at].mover.carried().is_none();
                    shared.tally.header_digest_errors += u64::from(has_stream);
                    self.drop_connection(at, shared, now);
                }
            }
        }
    }

    /// After something has come on a connection: RDMA may have an answer of its own to it, and it may be what others have waited for.
    pub(super) fn after_input(&mut self, id: ConnectionId, shared: &mut Shared) {
        if let Some(at) = self.position(id)
            && self.connections[at].has_answered()
        {
            shared.wake(&mut self.connections[at]);
        }
        self.answer_settled(shared);
    }

    /// Tries again to find memory for what a connection waits with; `false` if there is none yet.
    pub(super) fn unstall(&mut self, id: ConnectionId, shared: &mut Shared, now: Instant) -> bool {
        let Some(at) = self.position(id) else { return true };
        if let Step::Header(header) = self.connections[at].mover.poll() {
            match self.place(at, &header, shared) {
                Place::To(destination) => self.connections[at].mover.place(destination),
                Place::Wait => return false,
            }
        }
        (self.connections[at].is_stalled, self.connections[at].data_at) = (false, now);
        shared.wake(&mut self.connections[at]);
        self.handle_input(id, shared, now);
        true
    }

    fn place(&mut self, at: usize, header: &Header, shared: &mut Shared) -> Place {
        let length = header.data_bytes();
        let nowhere = Place::To(Destination::Nowhere);
        if length > self.connections[at].receive_max_bytes(header) {
            return nowhere;
        }
        match header.opcode() {
            Some(Opcode::ScsiCommand) => self.place_command(header, shared),
            Some(Opcode::DataOut) => self.place_data(at, header),
            Some(Opcode::NopOut | Opcode::TextRequest) => {
                Place::To(Destination::Beginning(Beginning::of(TEXT_MAX_BYTES)))
            }
            _ => nowhere,
        }
    }

    /// The initiator says which status it expects next. A Data-Out that RDMA has brought without one says nothing: 0 stands there.
    fn note_acknowledged(&mut self, at: usize, header: &Header, shared: &mut Shared) {
        let connection = &mut self.connections[at];
        if connection.mover.reaches_memory() && header.opcode() == Some(Opcode::DataOut) {
            return;
        }
        connection.acknowledge(Serial(U32::<28>::get(header)));
        if connection.push_waiting(&self.order) {
            shared.wake(connection);
        }
        self.ask_if_any_wait(at, shared);
    }

    fn handle_pdu(&mut self, at: usize, pdu: Pdu, shared: &mut Shared, now: Instant) {
        let header = pdu.header;
        if header.data_bytes() > self.connections[at].receive_max_bytes(&header) {
            return self.reject(at, &header, Rejection::InvalidField, shared);
        }
        self.note_pong(at, &header);
        self.note_acknowledged(at, &header, shared);
        if !matches!(header.opcode(), Some(Opcode::DataOut | Opcode::SnackRequest)) {
            self.note_received(at, &header);
        }
        match header.opcode() {
            Some(Opcode::DataOut) => self.handle_data(at, DataOut::read(&header), pdu, shared, now),
            Some(Opcode::SnackRequest) => self.handle_snack(at, SnackRequest::read(&header), &header, shared),
            Some(Opcode::NopOut) if header.task_tag() == TAG_NONE => {}
            Some(
                Opcode::NopOut
                | Opcode::ScsiCommand
                | Opcode::TaskRequest
                | Opcode::TextRequest
                | Opcode::LogoutRequest,
            ) => self.handle_request(at, pdu, shared, now),
            Some(_) => self.reject(at, &header, Rejection::Protocol, shared),
            None => self.reject(at, &header, Rejection::NotSupported, shared),
        }
    }

    /// A request that has a place in the order of commands.
    fn handle_request(&mut self, at: usize, pdu: Pdu, shared: &mut Shared, now: Instant) {
        let id = self.connections[at].id;
        let is_immediate = Bit::<0, 6>::get(&pdu.header);
        if let Some(reason) = self.refusal(&pdu, is_immediate) {
            self.forget_untaken(at, &pdu.header);
            return self.reject(at, &pdu.header, reason, shared);
        }
        if is_immediate {
            return self.execute(at, pdu, shared, now);
        }
        let number = Serial(U32::<24>::get(&pdu.header));
        match self.order.turn(number) {
            Turn::Now => {
                self.order.advance();
                self.execute(at, pdu, shared, now);
                self.catch_up(shared, now);
            }
            Turn::Later => {
                self.order.hold(number, Held::Request(id, pdu));
            }
            // RFC 7143 4.2.2.1: what is outside the window is silently ignored.
            Turn::Never => self.forget_untaken(at, &pdu.header),
        }
    }

    /// The memory that comes with a command that is not taken is not kept, unless it has the tag of one that is.
    fn forget_untaken(&mut self, at: usize, header: &Header) {
        let tag = header.task_tag();
        let mover = &mut self.connections[at].mover;
        let is_held = |held: &Held| matches!(held, Held::Request(_, pdu) if pdu.header.task_tag() == tag);
        if mover.reaches_memory() && !self.commands.has_tag(tag) && !self.order.held().any(is_held) {
            mover.forget(tag);
        }
    }

    /// Executes what was held and has its turn now.
    pub(super) fn catch_up(&mut self, shared: &mut Shared, now: Instant) {
        while let Some(held) = self.order.next_held() {
            match held {
                Held::Void => self.order.release(),
                Held::Request(id, pdu) => match self.position(id) {
                    // Another command that was held may have taken its tag meanwhile.
                    Some(at) if self.is_in_progress(&pdu) => {
                        self.order.release();
                        self.reject(at, &pdu.header, Rejection::TaskInProgress, shared);
                    }
                    Some(at) => self.execute(at, pdu, shared, now),
                    None => self.order.release(),
                },
            }
        }
        self.manage_deferred(shared, now);
    }

    /// Whether there is a command with the tag of this one.
    fn is_in_progress(&self, pdu: &Pdu) -> bool {
        pdu.header.opcode() == Some(Opcode::ScsiCommand) && self.commands.has_tag(pdu.header.task_tag())
    }

    /// Why a request is not even looked at; its number does not count as come then (RFC 7143 7.3).
    fn refusal(&mut self, pdu: &Pdu, is_immediate: bool) -> Option<Rejection> {
        let is_command = pdu.header.opcode() == Some(Opcode::ScsiCommand);
        if !pdu.is_intact {
            return Some(Rejection::DataDigest);
        }
        let needs_target = matches!(pdu.header.opcode(), Some(Opcode::ScsiCommand | Opcode::TaskRequest));
        if needs_target && self.target().is_none() {
            // RFC 7143 4.3: a discovery session carries text and logout only.
            return Some(Rejection::Protocol);
        }
        if !pdu.additional.is_empty() {
            let additional = command::read_additional(&pdu.additional);
            let cdb_first = Bytes::<32, 16>::get(&pdu.header);
            if additional.is_none_or(|additional| is_command && additional.cdb(cdb_first).is_none()) {
                return Some(Rejection::InvalidField);
            }
        }
        if self.is_in_progress(pdu) {
            let is_new = is_immediate || self.order.is_open(Serial(U32::<24>::get(&pdu.header)));
            return is_new.then_some(Rejection::TaskInProgress);
        }
        let is_crowded = is_immediate && is_command && !self.order.admits_immediate(self.commands.len());
        is_crowded.then_some(Rejection::TooManyImmediate)
    }

    fn execute(&mut self, at: usize, pdu: Pdu, shared: &mut Shared, now: Instant) {
        match pdu.header.opcode() {
            Some(Opcode::ScsiCommand) => self.handle_command(at, pdu, shared, now),
            Some(Opcode::TaskRequest) => self.handle_management(at, &pdu.header, shared, now),
            Some(Opcode::TextRequest) => self.handle_text(at, pdu, shared),
            Some(Opcode::LogoutRequest) => self.handle_logout(at, &pdu.header, shared, now),
            _ => self.handle_ping(at, pdu, shared),
        }
    }
}
