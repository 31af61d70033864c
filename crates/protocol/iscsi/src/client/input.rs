//! What comes from a target.

use sanwire_buffer::Frame;
use sanwire_core::Instant;

use super::link::{Link, Request};
use super::{Client, Connection, Stage, State, Trouble, commands, recovery};
use crate::ConnectionId;
use crate::receiver::{Destination, Pdu, Step};
use crate::serial::Serial;
use crate::wire::{
    AsyncMessage, DataIn, Header, LogoutResponse, NopIn, Opcode, ReadyToTransfer, Reject, ScsiResponse, TaskResponse,
    TextResponse,
};

impl Client {
    /// So many bytes were received into the spaces.
    pub fn filled(&mut self, connection: ConnectionId, count: usize, now: Instant) {
        let Some(at) = self.connections.iter().position(|known| known.id == connection) else { return };
        if !matches!(self.connections[at].stage, Stage::Full(_)) {
            return self.filled_login(at, count, now);
        }
        let mut taken = self.connections.swap_remove(at);
        let result = self.receive(&mut taken, count, now);
        self.connections.push(taken);
        if let Err(trouble) = result {
            self.drop_connection(connection, trouble, now);
        }
        self.follow_up(now);
        self.send_waiting();
    }

    fn receive(&mut self, from: &mut Connection, count: usize, now: Instant) -> Result<(), Trouble> {
        let number = from.number;
        let Stage::Full(link) = &mut from.stage else { return Ok(()) };
        link.mover.filled(count);
        self.poll_link(link, number, now)
    }

    /// Takes what has arrived on a connection.
    pub(super) fn poll_link(&mut self, link: &mut Link, number: u16, now: Instant) -> Result<(), Trouble> {
        loop {
            match link.mover.poll() {
                Step::Starving => return Ok(()),
                Step::Torn => return Err(Trouble::Broken),
                Step::Header(header) => {
                    let destination = self.destination(link, number, &header)?;
                    link.mover.place(destination);
                }
                Step::Pdu(pdu) => {
                    link.heard_at = now;
                    self.handle_pdu(link, number, pdu, now)?;
                }
            }
        }
    }

    /// Where a data segment belongs.
    fn destination(&mut self, link: &Link, number: u16, header: &Header) -> Result<Destination, Trouble> {
        let length = header.data_bytes();
        // What was written straight into memory came in no PDU.
        let was_written = link.mover.reaches_memory() && header.opcode() == Some(Opcode::DataIn);
        if length > link.parameters.receive_data_max_bytes as usize && !was_written {
            return Err(Trouble::violation(format!("{length} bytes of data in one PDU are more than it may send")));
        }
        if !matches!(self.state, State::Live(_)) {
            return Ok(Destination::Nowhere);
        }
        match header.opcode() {
            Some(Opcode::DataIn) => self.data_in_destination(number, &DataIn::read(header), length),
            Some(Opcode::ScsiResponse | Opcode::TextResponse | Opcode::Reject) => {
                Ok(Destination::Frame(Frame::from(vec![0; length]), 0))
            }
            _ => Ok(Destination::Nowhere),
        }
    }

    fn handle_pdu(&mut self, link: &mut Link, number: u16, pdu: Pdu, now: Instant) -> Result<(), Trouble> {
        let Pdu { header, data, is_intact, .. } = pdu;
        if !matches!(self.state, State::Live(_)) {
            // The logout is under way: nothing but its answer matters.
            if header.opcode() == Some(Opcode::LogoutResponse)
                && link.take_request(header.task_tag()) == Some(Request::Leave)
            {
                self.state = State::Leaving(now);
            }
            return Ok(());
        }
        let is_data = header.opcode() == Some(Opcode::DataIn);
        if is_data {
            let frame = data.map(|frame| (header.task_tag(), frame));
            let was_placed = frame.is_some();
            self.tasks.put_back(frame);
            if header.data_bytes() > 0 && !was_placed {
                return Ok(());
            }
            return self.handle_data_in(link, number, &header, is_intact, now);
        }
        if !is_intact {
            return self.handle_damage(link, &header, now);
        }
        if self.take_numbers(link, &header, now)? {
            return Ok(());
        }
        self.dispatch(link, number, &header, data.as_deref().unwrap_or(&[]), now)
    }

    /// Takes the numbers that every PDU of a target carries at the same places; true for one that was taken before.
    pub(super) fn take_numbers(&mut self, link: &mut Link, header: &Header, now: Instant) -> Result<bool, Trouble> {
        let State::Live(session) = &mut self.state else { return Ok(true) };
        let numbers = NopIn::read(header);
        session.note_window(Serial(numbers.expected_command_number), Serial(numbers.max_command_number));
        if !has_status(header, &numbers) {
            return Ok(false);
        }
        let (status, recovers) = (Serial(numbers.status_number), session.recovers_data());
        if recovers && link.knows_status(status) {
            return Ok(true);
        }
        if let Some((first, count)) = link.note_status(status, recovers)? {
            recovery::ask_for_statuses(link, first, count, now)?;
        }
        Ok(false)
    }

    fn dispatch(
        &mut self,
        link: &mut Link,
        number: u16,
        header: &Header,
        data: &[u8],
        now: Instant,
    ) -> Result<(), Trouble> {
        match header.opcode() {
            Some(Opcode::ScsiResponse) => self.handle_response(link, number, &ScsiResponse::read(header), data, now),
            Some(Opcode::ReadyToTransfer) => self.handle_ready(link, number, &ReadyToTransfer::read(header), now),
            Some(Opcode::NopIn) => self.handle_nop(link, number, &NopIn::read(header)),
            Some(Opcode::TextResponse) => self.handle_text(link, &TextResponse::read(header), data),
            Some(Opcode::AsyncMessage) => self.handle_message(link, number, &AsyncMessage::read(header), now),
            Some(Opcode::Reject) => self.handle_reject(link, number, &Reject::read(header), data, now),
            Some(Opcode::LogoutResponse) => self.handle_logout(link, &LogoutResponse::read(header), now),
            Some(Opcode::TaskResponse) => self.handle_managed(link, &TaskResponse::read(header)),
            Some(_) | None => {
                let code = header.as_bytes()[0] & 0x3f;
                Err(Trouble::violation(format!("it sent a PDU with operation code {code:02x}h")))
            }
        }
    }

    fn handle_ready(
        &mut self,
        link: &mut Link,
        number: u16,
        ready: &ReadyToTransfer,
        now: Instant,
    ) -> Result<(), Trouble> {
        let State::Live(session) = &self.state else { return Ok(()) };
        match self.tasks.get_on(number, ready.task_tag) {
            Some(task) => commands::handle_ready(session, link, task, ready, now),
            // A repeated R2T may come after the status (RFC 7143 7.2.1).
            None if session.recovers_data() => Ok(()),
            None => Err(Trouble::violation("it is ready for the data of a command that was not given")),
        }
    }
}

/// Whether the PDU has a status number of its own (RFC 7143 4.2.2.2): then the next one's is higher.
fn has_status(header: &Header, numbers: &NopIn) -> bool {
    match header.opcode() {
        Some(Opcode::DataIn) => DataIn::read(header).has_status,
        Some(Opcode::NopIn) => numbers.task_tag != crate::wire::TAG_NONE,
        Some(Opcode::ReadyToTransfer) | None => false,
        Some(_) => true,
    }
}
