//! Within a connection: what is damaged or missing is asked for once more (RFC 7143 7.2, 11.16). Between connections:
//! tasks go on elsewhere (RFC 7143 7.2.2).

use std::ops::Range;

use sanwire_core::Instant;

use super::link::{Link, Request};
use super::ranges::Ranges;
use super::session::{LostStage, bounded_wait};
use super::tasks::Task;
use super::{Client, Failure, Stage, State, Trouble, commands};
use crate::serial::Serial;
use crate::wire::{DataIn, LogoutRequest, LogoutResponse, SnackRequest, TAG_NONE, TaskRequest, TaskResponse};

/// Kinds of SNACK (RFC 7143 11.16.1).
const SNACK_DATA: u8 = 0;
const SNACK_STATUS: u8 = 1;
const SNACK_DATA_ACK: u8 = 2;

/// Numbers that may be missing at a time.
const GAP_MAX: u32 = 65_536;

/// TASK REASSIGN, and the reason of a logout for recovery.
const TASK_REASSIGN: u8 = 8;
const FOR_RECOVERY: u8 = 2;

/// Responses to TASK REASSIGN (RFC 7143 11.6.1).
const COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;

/// Responses to a logout for recovery (RFC 7143 11.15.1).
const CLOSED: u8 = 0;
const NO_SUCH_CONNECTION: u8 = 1;

fn snack(link: &Link, kind: u8, task_tag: u32, run: Range<u32>) -> SnackRequest {
    SnackRequest {
        is_final: true,
        kind,
        task_tag,
        transfer_tag: TAG_NONE,
        expected_status_number: link.expected_status().0,
        first: run.start,
        count: run.end.wrapping_sub(run.start),
        ..SnackRequest::default()
    }
}

/// Asks once more for Data-In or R2T PDUs of these numbers.
pub(super) fn ask_for_data(link: &mut Link, task_tag: u32, run: Range<u32>, now: Instant) -> Result<(), Trouble> {
    link.owe(task_tag, now);
    link.answer(snack(link, SNACK_DATA, task_tag, run).write())
}

/// Asks once more for statuses.
pub(super) fn ask_for_statuses(link: &mut Link, first: Serial, count: u32, now: Instant) -> Result<(), Trouble> {
    link.owe(TAG_NONE, now);
    link.answer(snack(link, SNACK_STATUS, TAG_NONE, first.0..first.plus(count).0).write())
}

/// Says which data has arrived (RFC 7143 11.16.1), if none is missing before it.
pub(super) fn acknowledge(link: &mut Link, task: &mut Task, data: &DataIn) -> Result<(), Trouble> {
    let Some(sent) = task.sent() else { return Ok(()) };
    if !sent.numbers.is_whole() {
        return Ok(());
    }
    let (lun, transfer_tag, first) = (data.lun, data.transfer_tag, sent.numbers.end());
    let acknowledgement = SnackRequest { lun, transfer_tag, first, ..snack(link, SNACK_DATA_ACK, TAG_NONE, 0..0) };
    link.answer(acknowledgement.write())
}

/// A Data-In or R2T of this number has arrived; those between it and the highest before are missing and asked for.
pub(super) fn note_number(
    link: &mut Link,
    tag: u32,
    task: &mut Task,
    number: u32,
    now: Instant,
) -> Result<(), Trouble> {
    let Some(sent) = task.sent() else { return Ok(()) };
    (sent.looks, link.has_moved) = (0, true);
    let end = sent.numbers.end();
    let next = number.checked_add(1).filter(|next| next.saturating_sub(end) <= GAP_MAX);
    if !next.is_some_and(|next| sent.numbers.insert(number..next)) {
        return Err(Trouble::violation(format!("it jumped from data PDU {end} to {number}")));
    }
    if number > end {
        return ask_for_data(link, tag, end..number, now);
    }
    if sent.numbers.is_whole() {
        link.settle(tag);
    }
    Ok(())
}

impl Client {
    /// Sees that the tasks of lost connections go on elsewhere.
    pub(super) fn recover_connections(&mut self, now: Instant) {
        let State::Live(session) = &mut self.state else { return };
        let link = self.connections.iter_mut().find_map(|known| match &mut known.stage {
            Stage::Full(link) => Some((known.number, link)),
            _ => None,
        });
        let Some((number, link)) = link else { return };
        let mut due = Vec::new();
        session.lost.retain(|lost| match lost.stage {
            LostStage::Waiting { until, is_known } if until <= now => {
                due.push((lost.number, is_known));
                false
            }
            _ => true,
        });
        for at in 0..session.lost.len() {
            if session.lost[at].stage != LostStage::Found {
                continue;
            }
            let (tag, command_number) = (session.next_tag(), session.command_number());
            let lost = &mut session.lost[at];
            lost.stage = LostStage::LoggingOut;
            let request = LogoutRequest {
                is_immediate: true,
                is_final: true,
                reason: FOR_RECOVERY,
                task_tag: tag,
                connection: lost.number,
                command_number: command_number.0,
                expected_status_number: link.expected_status().0,
            };
            link.request(tag, Request::Recover(lost.number), request.write(), None);
        }
        let mut doubtful = Vec::new();
        for (lost, is_known) in due {
            for tag in self.tasks.tags_on(lost) {
                let Some(task) = self.tasks.get(tag) else { continue };
                let Some(sent) = task.sent() else { continue };
                let command_number = sent.command_number;
                if !session.has_arrived(command_number) {
                    // The target waits for just this number (RFC 7143 7.2.1).
                    commands::send(session, link, number, tag, task, command_number);
                } else if is_known {
                    let (own_tag, next) = (session.next_tag(), session.command_number());
                    reassign(link, number, tag, task, own_tag, next);
                } else {
                    doubtful.push(tag);
                }
            }
        }
        doubtful.into_iter().for_each(|tag| self.repeat(tag));
    }

    /// The target no longer knows a command that it has had: gives it again, if that can do no harm.
    pub(super) fn repeat(&mut self, tag: u32) {
        if self.tasks.get(tag).is_some_and(|task| task.order.is_repeatable) {
            self.tasks.requeue(tag);
        } else {
            let task = self.tasks.take(tag);
            self.fail(task.into_iter().collect(), &Failure::InDoubt);
        }
    }

    /// A lost connection is logged out, or not.
    pub(super) fn handle_recovered(
        &mut self,
        lost: u16,
        response: &LogoutResponse,
        now: Instant,
    ) -> Result<(), Trouble> {
        let State::Live(session) = &mut self.state else { return Ok(()) };
        let is_known = match response.response {
            CLOSED => true,
            NO_SUCH_CONNECTION => false,
            other => return Err(Trouble::violation(format!("it does not recover connections: response {other}"))),
        };
        let until = now + bounded_wait(response.time_to_wait_s);
        if let Some(lost) = session.lost.iter_mut().find(|known| known.number == lost) {
            lost.stage = LostStage::Waiting { until, is_known };
        }
        Ok(())
    }

    /// A task goes on, or not.
    pub(super) fn handle_managed(&mut self, link: &mut Link, response: &TaskResponse) -> Result<(), Trouble> {
        let tag = match link.take_request(response.task_tag) {
            Some(Request::Reassign(tag)) => tag,
            Some(Request::Abort(tag)) => return self.handle_aborted(link, tag, response),
            _ => return Err(Trouble::violation("it answered task management that was not asked for")),
        };
        match response.response {
            COMPLETE => Ok(()),
            NO_SUCH_TASK => {
                if self.tasks.get(tag).is_some() {
                    link.load = link.load.saturating_sub(1);
                    self.repeat(tag);
                }
                Ok(())
            }
            other => Err(Trouble::violation(format!("it does not go on with a task: response {other}"))),
        }
    }
}

/// Lets a task go on on this connection (RFC 7143 11.5.6): from the data on that has not come.
fn reassign(link: &mut Link, number: u16, tag: u32, task: &mut Task, own_tag: u32, next_command: Serial) {
    let (lun, is_read) = (task.order.lun.to_wire(), task.order.data_in.is_some());
    let Some(sent) = task.sent() else { return };
    (sent.connection, sent.looks) = (number, 0);
    if !is_read {
        // R2Ts come again under numbers of the target's choice.
        (sent.numbers, sent.is_reassigned) = (Ranges::default(), true);
    }
    let request = TaskRequest {
        is_immediate: true,
        is_final: true,
        function: TASK_REASSIGN,
        lun,
        task_tag: own_tag,
        referenced_task_tag: tag,
        command_number: next_command.0,
        expected_status_number: link.expected_status().0,
        referenced_command_number: sent.command_number.0,
        expected_data_number: sent.numbers.prefix(),
    };
    link.load += 1;
    link.request(own_tag, Request::Reassign(tag), request.write(), None);
}
