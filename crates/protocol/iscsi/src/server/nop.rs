//! NOP-Out and NOP-In: signs of life, both ways (RFC 7143 11.18, 11.19).

use std::time::Duration;

use sanwire_buffer::Frame;
use sanwire_core::{Instant, SessionEnd};

use super::connection::Connection;
use super::session::Session;
use super::shared::Shared;
use crate::receiver::Pdu;
use crate::wire::{Header, NopIn, NopOut, Opcode, TAG_NONE};

/// A connection that has been silent for so long is asked for a sign of life.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// So long it has for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

impl Session {
    /// An initiator asks for a sign of life; its data goes back as it came, as far as it takes so much.
    pub(super) fn handle_ping(&mut self, at: usize, pdu: Pdu, shared: &mut Shared) {
        let ping = NopOut::read(&pdu.header);
        if !ping.is_immediate {
            self.order.release();
        }
        let room = self.connections[at].parameters.send_data_max_bytes as usize;
        let data = pdu.data.map(Frame::freeze).map(|data| data.slice(0..data.len().min(room)));
        let header = NopIn {
            is_final: true,
            lun: ping.lun,
            task_tag: ping.task_tag,
            transfer_tag: TAG_NONE,
            ..NopIn::default()
        };
        self.send_status(at, header.write(), data.map(Into::into), shared);
    }

    /// An initiator gives a sign of life. It may answer a NOP-In, and ask by the same NOP-Out; one without a tag of ours answers none.
    pub(super) fn note_pong(&mut self, at: usize, header: &Header) {
        if header.opcode() != Some(Opcode::NopOut) {
            return;
        }
        let connection = &mut self.connections[at];
        connection.pinged_at = None;
        if NopOut::read(header).transfer_tag != TAG_NONE {
            connection.unexpected.answered();
        }
    }

    /// Asks silent connections for a sign of life, and gives up those that gave none, and the session if it did not leave in time.
    pub(super) fn check_signs_of_life(&mut self, shared: &mut Shared, now: Instant) {
        for at in (0..self.connections.len()).rev() {
            let Some(connection) = self.connections.get_mut(at) else { continue };
            if connection.leave_by.is_some_and(|leave_by| leave_by <= now) {
                self.announce_drop(shared);
                return self.close(SessionEnd::Dropped, shared);
            }
            if connection.pinged_at.is_some_and(|pinged_at| connection.heard_at > pinged_at) {
                connection.pinged_at = None;
            }
            if connection.pinged_at.is_some() && connection.due() <= now {
                self.drop_connection(at, shared, now);
            } else if connection.due() <= now {
                connection.pinged_at = Some(now);
                self.ping(at, shared);
            }
        }
    }

    /// Has that acknowledged which is in the way of what waits: the answer to a NOP-In comes at once.
    pub(super) fn ask_if_any_wait(&mut self, at: usize, shared: &mut Shared) {
        if self.connections[at].unexpected.wants_answer() {
            self.ping(at, shared);
        }
    }

    /// Asks for a sign of life; the answer acknowledges statuses, too. Over RDMA one question is open at a time.
    pub(super) fn ping(&mut self, at: usize, shared: &mut Shared) {
        if !self.connections[at].unexpected.ask() {
            return;
        }
        let transfer_tag = self.transfer_tag();
        let header = NopIn { is_final: true, task_tag: TAG_NONE, transfer_tag, ..NopIn::default() };
        // RFC 7143 11.19: without a task tag it takes no status number.
        self.send(at, header.write(), None, shared);
    }
}

impl Connection {
    /// When it is due to be asked for a sign of life, or to be given up.
    pub(super) fn due(&self) -> Instant {
        let silent = match self.pinged_at {
            Some(pinged_at) => pinged_at + ANSWER_MAX,
            None => self.heard_at + SILENCE_MAX,
        };
        self.leave_by.map_or(silent, |leave_by| leave_by.min(silent))
    }
}
