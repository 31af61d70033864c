//! Signs of life, messages and rejections of a target, and taking leave (RFC 7143 11.9, 11.14, 11.17 to 11.19).

use std::time::Duration;

use sanwire_core::Instant;

use super::link::{Link, Request};
use super::session::bounded_wait;
use super::{Client, Failure, LOGOUT_MAX, Stage, State, Trouble, recovery};
use crate::serial::Serial;
use crate::wire::{
    AsyncMessage, HEADER_BYTES, Header, LogoutRequest, LogoutResponse, NopIn, NopOut, Opcode, Reject, TAG_NONE,
};

/// Events of asynchronous messages (RFC 7143 11.9.1).
const EVENT_LOGOUT: u8 = 1;
const EVENT_CONNECTION_DROPPED: u8 = 2;
const EVENT_SESSION_DROPPED: u8 = 3;
const EVENT_NEGOTIATE: u8 = 4;

/// Commands under way may end before a logout that the target wants; but not for longer.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Reasons of a Reject that mean less than a broken rule (RFC 7143 11.17.1).
const REJECT_DIGEST: u8 = 2;
const REJECT_SNACK: u8 = 3;
const REJECT_TOO_MANY_IMMEDIATE: u8 = 6;
const REJECT_IN_PROGRESS: u8 = 7;
const REJECT_ACKNOWLEDGEMENT: u8 = 8;
const REJECT_WAITING_FOR_LOGOUT: u8 = 12;

impl Client {
    /// A sign of life, or the wish for one.
    pub(super) fn handle_nop(&mut self, link: &mut Link, number: u16, nop: &NopIn) -> Result<(), Trouble> {
        if nop.task_tag != TAG_NONE && self.has_dropped_command(number, link.pinged_behind) {
            self.narrow();
            return Err(Trouble::Broken);
        }
        let State::Live(session) = &mut self.state else { return Ok(()) };
        if nop.task_tag != TAG_NONE {
            if link.take_request(nop.task_tag) != Some(Request::Ping) {
                return Err(Trouble::violation("it answered a NOP-Out that was not sent"));
            }
            link.pinged_at = None;
            session.is_settled = true;
        }
        if nop.transfer_tag == TAG_NONE {
            return Ok(());
        }
        let answer = NopOut {
            is_immediate: true,
            is_final: true,
            lun: nop.lun,
            task_tag: TAG_NONE,
            transfer_tag: nop.transfer_tag,
            command_number: session.command_number().0,
            expected_status_number: link.expected_status().0,
        };
        link.answer(answer.write())
    }

    /// Something that the target says unasked. SCSI events bring nothing that a unit attention does not.
    pub(super) fn handle_message(
        &mut self,
        link: &mut Link,
        number: u16,
        message: &AsyncMessage,
        now: Instant,
    ) -> Result<(), Trouble> {
        let State::Live(session) = &mut self.state else { return Ok(()) };
        match message.event {
            EVENT_LOGOUT => {
                let until = now + bounded_wait(message.parameter_3).min(DRAIN_MAX);
                session.leave_at = Some(session.leave_at.map_or(until, |at| at.min(until)));
            }
            EVENT_CONNECTION_DROPPED if message.parameter_1 == number => return Err(Trouble::Broken),
            EVENT_CONNECTION_DROPPED if session.dropped.len() < 8 => session.dropped.push(message.parameter_1),
            EVENT_SESSION_DROPPED => session.ended = Some(bounded_wait(message.parameter_2)),
            EVENT_NEGOTIATE => self.negotiate(link),
            _ => {}
        }
        Ok(())
    }

    /// The target did not take a PDU, whose header it sends back.
    pub(super) fn handle_reject(
        &mut self,
        link: &mut Link,
        number: u16,
        reject: &Reject,
        data: &[u8],
        now: Instant,
    ) -> Result<(), Trouble> {
        let Some(header) = data.first_chunk::<HEADER_BYTES>() else {
            return Err(Trouble::violation("it rejected something and did not say what"));
        };
        let rejected = Header::from_bytes(*header);
        let tag = rejected.task_tag();
        match (reject.reason, rejected.opcode()) {
            // The command ends with a status, or its data is asked for again (RFC 7143 7.8).
            (REJECT_DIGEST, Some(Opcode::DataOut)) => Ok(()),
            // The target has thrown a request away, and goes no further than its number until it comes again (RFC 7143 7.8).
            (REJECT_DIGEST, _) => Err(Trouble::Broken),
            (REJECT_IN_PROGRESS | REJECT_ACKNOWLEDGEMENT, _) => Ok(()),
            (REJECT_WAITING_FOR_LOGOUT, _) => {
                if let State::Live(session) = &mut self.state {
                    session.leave_at.get_or_insert(now);
                }
                Ok(())
            }
            // It hears us, and that is what was asked.
            (_, Some(Opcode::NopOut)) => {
                if link.take_request(tag).is_some() {
                    link.pinged_at = None;
                }
                Ok(())
            }
            // What is missing is not kept any more: recovery goes on a level higher.
            (REJECT_TOO_MANY_IMMEDIATE | REJECT_SNACK, _) => Err(Trouble::Broken),
            (reason, Some(Opcode::ScsiCommand)) => {
                if self.tasks.get_on(number, tag).is_none() {
                    return Err(Trouble::violation("it rejected a command that was not given"));
                }
                let what = format!("it rejected a command, with reason {reason:02x}h");
                self.end(link, tag, Err(Failure::Protocol { what }));
                Ok(())
            }
            (reason, _) => Err(Trouble::violation(format!(
                "it rejected a PDU with operation code {:02x}h, with reason {reason:02x}h",
                header[0] & 0x3f
            ))),
        }
    }

    /// A data segment was damaged on its way.
    pub(super) fn handle_damage(&mut self, link: &mut Link, header: &Header, now: Instant) -> Result<(), Trouble> {
        let State::Live(session) = &self.state else { return Ok(()) };
        if !session.recovers_data() || header.opcode() != Some(Opcode::ScsiResponse) {
            return Err(Trouble::Broken);
        }
        let status = Serial(NopIn::read(header).status_number);
        if link.knows_status(status) { Ok(()) } else { recovery::ask_for_statuses(link, status, 1, now) }
    }

    /// Whether the target has still to answer the logout, after [`Client::disconnect`].
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        matches!(self.state, State::Leaving(_))
    }

    /// Sends the logout of the session, on any connection that has room for it.
    pub(super) fn log_out_session(&mut self) -> bool {
        let State::Live(session) = &mut self.state else { return false };
        let link = self.connections.iter_mut().find_map(|known| match &mut known.stage {
            Stage::Full(link) if link.may_leave() => Some((known.number, link)),
            _ => None,
        });
        let Some((connection, link)) = link else { return false };
        session.is_leaving = true;
        let request = LogoutRequest {
            is_immediate: true,
            is_final: true,
            reason: 0,
            task_tag: session.next_tag(),
            connection,
            command_number: session.command_number().0,
            expected_status_number: link.expected_status().0,
        };
        link.request(request.task_tag, Request::Leave, request.write(), None);
        true
    }

    /// A logout is done.
    pub(super) fn handle_logout(
        &mut self,
        link: &mut Link,
        response: &LogoutResponse,
        now: Instant,
    ) -> Result<(), Trouble> {
        match link.take_request(response.task_tag) {
            Some(Request::Leave) => {
                if let State::Live(session) = &mut self.state {
                    session.ended = Some(bounded_wait(response.time_to_wait_s));
                }
                Ok(())
            }
            Some(Request::Recover(lost)) => self.handle_recovered(lost, response, now),
            _ => Err(Trouble::violation("it answered a logout that was not asked for")),
        }
    }

    /// What a PDU has made necessary beyond its connection.
    pub(super) fn follow_up(&mut self, now: Instant) {
        match &mut self.state {
            State::Leaving(until) if *until <= now => self.close(),
            State::Live(session) => {
                if let Some(wait) = session.ended {
                    return self.lose_session(true, now + wait, now);
                }
                let dropped = std::mem::take(&mut session.dropped);
                let must_leave = session.leave_at.is_some() && !session.is_leaving && !self.tasks.is_any_sent();
                for number in dropped {
                    let known = self.connections.iter().find(|known| known.number == number).map(|known| known.id);
                    if let Some(id) = known {
                        self.drop_connection(id, Trouble::Broken, now);
                    }
                }
                if must_leave {
                    self.leave(now);
                }
                self.recover_connections(now);
            }
            _ => {}
        }
    }

    /// What has become due for the session.
    pub(super) fn check_session(&mut self, now: Instant) {
        let State::Live(session) = &self.state else { return };
        if session.leave_at.is_some_and(|at| at <= now) {
            if session.is_leaving { self.lose_session(true, now, now) } else { self.leave(now) }
        }
        self.recover_connections(now);
    }

    /// Logs out because the target wants it, to come back at once.
    fn leave(&mut self, now: Instant) {
        if !self.log_out_session() {
            return self.lose_session(true, now, now);
        }
        if let State::Live(session) = &mut self.state {
            session.leave_at = Some(now + LOGOUT_MAX);
        }
    }
}
