//! Data and statuses of commands, on their way in (RFC 7143 11.4, 11.7).

use sanwire_core::Instant;
use sanwire_scsi::Status;

use super::link::Link;
use super::tasks::Answer;
use super::{Client, ClientEvent, Failure, State, Trouble, recovery};
use crate::receiver::Destination;
use crate::wire::{DataIn, Header, ScsiResponse};

/// Bytes of the length in front of sense data (RFC 7143 11.4.7).
const SENSE_LENGTH_BYTES: usize = 2;

impl Client {
    /// The part of the caller's frame into which a data segment is received.
    pub(super) fn data_in_destination(
        &mut self,
        number: u16,
        data: &DataIn,
        length: usize,
    ) -> Result<Destination, Trouble> {
        let State::Live(session) = &self.state else { return Ok(Destination::Nowhere) };
        let recovers = session.recovers_data();
        let Some(task) = self.tasks.get_on(number, data.task_tag) else {
            // What was asked for once more may come after all.
            return if recovers { Ok(Destination::Nowhere) } else { Err(unknown("data")) };
        };
        let is_known = task.sent().is_some_and(|sent| sent.numbers.contains(data.data_number));
        if recovers && is_known {
            return Ok(Destination::Nowhere);
        }
        let offset = data.offset_bytes as usize;
        let Some(frame) = task.order.data_in.take_if(|frame| offset.saturating_add(length) <= frame.len()) else {
            return Err(Trouble::violation("it sent more data than it was asked for"));
        };
        Ok(Destination::Frame(frame, offset))
    }

    /// Data has arrived, if it has a length into its place.
    pub(super) fn handle_data_in(
        &mut self,
        link: &mut Link,
        number: u16,
        header: &Header,
        is_intact: bool,
        now: Instant,
    ) -> Result<(), Trouble> {
        let data = DataIn::read(header);
        let State::Live(session) = &mut self.state else { return Ok(()) };
        let recovers = session.recovers_data();
        let Some(task) = self.tasks.get_on(number, data.task_tag) else {
            return if recovers { Ok(()) } else { Err(unknown("data")) };
        };
        if !is_intact {
            if !recovers {
                return Err(Trouble::Broken);
            }
            let numbers = data.data_number..data.data_number.wrapping_add(1);
            return recovery::ask_for_data(link, data.task_tag, numbers, now);
        }
        let Some(sent) = task.sent() else { return Ok(()) };
        if sent.numbers.contains(data.data_number) {
            return if recovers { Ok(()) } else { Err(Trouble::violation("it sent the same data twice")) };
        }
        if !recovers && data.data_number != sent.numbers.end() {
            return Err(Trouble::violation("it left out data"));
        }
        let end = data.offset_bytes.checked_add(header.data_bytes() as u32);
        if !end.is_some_and(|end| sent.received.insert(data.offset_bytes..end)) {
            return Err(Trouble::violation("it sent the same data twice"));
        }
        recovery::note_number(link, data.task_tag, task, data.data_number, now)?;
        if data.wants_acknowledgement && recovers {
            recovery::acknowledge(link, task, &data)?;
        }
        let earlier = task.sent().and_then(|sent| sent.answer.take());
        if self.take_numbers(link, header, now)? || !data.has_status {
            // Perhaps it was all that was missing.
            return earlier.map_or(Ok(()), |answer| self.conclude(link, data.task_tag, answer, now));
        }
        let answer =
            Answer { status: data.status, sense: Vec::new(), expected_numbers: data.data_number.saturating_add(1) };
        self.conclude(link, data.task_tag, answer, now)
    }

    /// A command was answered.
    pub(super) fn handle_response(
        &mut self,
        link: &mut Link,
        number: u16,
        response: &ScsiResponse,
        data: &[u8],
        now: Instant,
    ) -> Result<(), Trouble> {
        let tag = response.task_tag;
        if self.tasks.get_on(number, tag).is_none() {
            return Err(unknown("an answer"));
        }
        if response.response != 0 {
            let what = format!("it ended a command with response {:02x}h instead of a status", response.response);
            self.end(link, tag, Err(Failure::Protocol { what }));
            return Ok(());
        }
        let sense = match data.split_first_chunk::<SENSE_LENGTH_BYTES>() {
            None => &[],
            Some((length, rest)) => rest
                .get(..usize::from(u16::from_be_bytes(*length)))
                .ok_or_else(|| Trouble::violation("it sent less sense data than it said"))?,
        };
        let answer =
            Answer { status: response.status, sense: sense.to_vec(), expected_numbers: response.expected_data_number };
        self.conclude(link, tag, answer, now)
    }

    /// The status is known: ends the command, unless some of its data must be asked for once more.
    pub(super) fn conclude(&mut self, link: &mut Link, tag: u32, answer: Answer, now: Instant) -> Result<(), Trouble> {
        let State::Live(session) = &self.state else { return Ok(()) };
        let recovers = session.recovers_data();
        let Some(task) = self.tasks.get(tag) else { return Ok(()) };
        let is_read = task.order.data_in.is_some();
        let Some(sent) = task.sent() else { return Ok(()) };
        if is_read
            && recovers
            && let Some(gap) = sent.numbers.first_gap(answer.expected_numbers)
        {
            sent.answer = Some(answer);
            return recovery::ask_for_data(link, tag, gap, now);
        }
        if is_read && answer.status == Status::Good as u8 && !sent.received.is_whole() {
            return Err(Trouble::violation("it said that a command was done, and left out some of its data"));
        }
        self.end(link, tag, Ok(answer));
        Ok(())
    }

    /// A command is over.
    pub(super) fn end(&mut self, link: &mut Link, tag: u32, result: Result<Answer, Failure>) {
        let frame = link.mover.recall(tag);
        self.tasks.put_back(frame.map(|frame| (tag, frame)));
        let Some(mut task) = self.tasks.take(tag) else { return };
        link.load = link.load.saturating_sub(1);
        link.has_moved = true;
        link.forget(tag);
        if let State::Live(session) = &mut self.state {
            session.is_settled = true;
            self.seek.settle();
        }
        let received = task.sent().map_or(0, |sent| sent.received.prefix() as usize);
        let (id, data_in) = (task.id, task.order.data_in);
        self.events.push_back(match result.map(|answer| (Status::from_code(answer.status), answer)) {
            Ok((Some(status), answer)) => {
                ClientEvent::Completed { id, status, sense: answer.sense, data_in, data_in_bytes: received }
            }
            Ok((None, answer)) => {
                let what = format!("it ended a command with status {:02x}h, which no target has", answer.status);
                ClientEvent::Failed { id, failure: Failure::Protocol { what }, data_in }
            }
            Err(failure) => ClientEvent::Failed { id, failure, data_in },
        });
    }
}

fn unknown(what: &str) -> Trouble {
    Trouble::violation(format!("it sent {what} for a command that was not given"))
}
