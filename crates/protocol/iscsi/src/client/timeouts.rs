//! Commands that are not answered in time: they are aborted, and where that is not answered either, their connection is
//! given up (RFC 7143 7.1.4.2).

use std::collections::BTreeMap;

use sanwire_core::Instant;

use super::link::{Link, Request};
use super::session::Session;
use super::tasks::Progress;
use super::{Client, Failure, Stage, State, Trouble};
use crate::serial::Serial;
use crate::wire::{TaskRequest, TaskResponse};

/// Looks at the commands under way, in the time that one has.
const LOOKS: u8 = 4;

/// What follows so many looks at a command: it is late, and its abort waits for room; ...
const LATE: u8 = LOOKS + 1;

/// ... that went out between two looks, or at one. The look after that finds that the target has had its time.
const ABORTED_BETWEEN: u8 = LATE + 1;
const ABORTED: u8 = ABORTED_BETWEEN + 1;

/// ABORT TASK, and its responses (RFC 7143 11.5.1, 11.6.1).
const ABORT_TASK: u8 = 1;
const COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;

impl Client {
    /// A command was given: it is looked at from now on.
    pub(super) fn look_after_commands(&mut self, now: Instant) {
        if let Some(patience) = self.config.command_patience {
            self.look_at.get_or_insert(now + patience / LOOKS.into());
        }
    }

    /// Aborts the commands that have stood still for as long as one may, and gives up the connections on which that
    /// was of no use.
    pub(super) fn check_commands(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        self.look_at = None;
        if self.tasks.in_transit() > 0 {
            self.look_after_commands(now);
        }
        // Where something moves, only a command that has long been the oldest stands still: on a slow way the others come
        // after it.
        let mut moving = self.take_moving();
        for tag in self.tasks.tags(|task| matches!(task.progress, Progress::Sent(_))) {
            let Some(sent) = self.tasks.get(tag).and_then(|task| task.sent()) else { continue };
            if let Some(has_older) = moving.get_mut(&sent.connection) {
                let is_oldest = !std::mem::replace(has_older, true);
                let was_oldest = std::mem::replace(&mut sent.is_oldest, is_oldest);
                // That others are aborted makes a late one no earlier.
                if !(is_oldest && was_oldest || sent.looks == LATE) {
                    sent.looks = 0;
                    continue;
                }
            }
            // The first look comes at any time after the command.
            sent.looks += u8::from(sent.looks != LATE);
            if sent.looks > ABORTED {
                self.abandon_late(tag, now);
            }
        }
        self.abort_late(ABORTED);
        self.abandon_waiting(now);
    }

    /// Aborts the late commands for which there was no room at the last look.
    pub(super) fn abort_waiting(&mut self) {
        if self.has_late {
            self.abort_late(ABORTED_BETWEEN);
        }
    }

    /// The connections (numbers) on which something has moved since the last look.
    fn take_moving(&mut self) -> BTreeMap<u16, bool> {
        let links = self.connections.iter_mut().filter_map(|known| match &mut known.stage {
            Stage::Full(link) => Some((known.number, link)),
            _ => None,
        });
        links.filter_map(|(number, link)| std::mem::take(&mut link.has_moved).then_some((number, false))).collect()
    }

    /// Aborts the late commands, as far as there is room on their connections; where there is nobody to ask, time passes as if that were
    /// done.
    fn abort_late(&mut self, aborted: u8) {
        self.has_late = false;
        let mut session = match &mut self.state {
            State::Live(session) => Some(session),
            _ => None,
        };
        for tag in self.tasks.tags(|task| matches!(&task.progress, Progress::Sent(sent) if sent.looks == LATE)) {
            let Some(task) = self.tasks.get(tag) else { continue };
            let lun = task.order.lun.to_wire();
            let Some(sent) = task.sent() else { continue };
            let link = self.connections.iter_mut().find_map(|known| match &mut known.stage {
                Stage::Full(link) if known.number == sent.connection => Some(link),
                _ => None,
            });
            if let (Some(session), Some(link)) = (&mut session, link)
                && !link.is_aborting(tag)
            {
                if !link.may_ask() {
                    self.has_late = true;
                    continue;
                }
                abort(session, link, (tag, lun), sent.command_number);
            }
            sent.looks = aborted;
        }
    }

    /// Gives up the connections on which late commands wait for room that requests take which are not answered in the time of a command
    /// either.
    fn abandon_waiting(&mut self, now: Instant) {
        let links = self.connections.iter_mut().filter_map(|known| match &mut known.stage {
            Stage::Full(link) => Some((known.number, link)),
            _ => None,
        });
        let deaf: Vec<u16> =
            links.filter_map(|(number, link)| link.look_at_requests(LOOKS).then_some(number)).collect();
        let waits = |progress: &Progress| matches!(progress, Progress::Sent(sent) if sent.looks == LATE && deaf.contains(&sent.connection));
        for tag in self.tasks.tags(|task| waits(&task.progress)) {
            self.abandon_late(tag, now);
        }
    }

    /// The target does not even abort it.
    fn abandon_late(&mut self, tag: u32, now: Instant) {
        let Some(number) = self.tasks.get(tag).and_then(|task| task.sent()).map(|sent| sent.connection) else { return };
        let known = self.connections.iter().find(|known| known.number == number).map(|known| known.id);
        if let Some(id) = known {
            self.drop_connection(id, Trouble::Broken, now);
        }
        let late = self.tasks.take(tag);
        let failure = self.timed_out();
        self.fail(late.into_iter().collect(), &failure);
    }

    /// A command was aborted, or not.
    pub(super) fn handle_aborted(&mut self, link: &mut Link, tag: u32, response: &TaskResponse) -> Result<(), Trouble> {
        if self.tasks.get(tag).is_none() {
            // It was answered before.
            return Ok(());
        }
        match response.response {
            COMPLETE => {
                let failure = self.timed_out();
                self.end(link, tag, Err(failure));
                Ok(())
            }
            // Its status was sent and lost, and is asked for once more.
            NO_SUCH_TASK if link.owes_statuses() => Ok(()),
            NO_SUCH_TASK => {
                let frame = link.mover.recall(tag);
                self.tasks.put_back(frame.map(|frame| (tag, frame)));
                link.load = link.load.saturating_sub(1);
                self.repeat(tag);
                Ok(())
            }
            _ => Err(Trouble::Broken),
        }
    }

    fn timed_out(&self) -> Failure {
        Failure::TimedOut { after: self.config.command_patience.unwrap_or_default() }
    }
}

/// Has the target end a command of this tag and number.
fn abort(session: &mut Session, link: &mut Link, (tag, lun): (u32, [u8; 8]), command_number: Serial) {
    let own_tag = session.next_tag();
    let request = TaskRequest {
        is_immediate: true,
        is_final: true,
        function: ABORT_TASK,
        lun,
        task_tag: own_tag,
        referenced_task_tag: tag,
        command_number: session.command_number().0,
        expected_status_number: link.expected_status().0,
        referenced_command_number: command_number.0,
        ..TaskRequest::default()
    };
    link.request(own_tag, Request::Abort(tag), request.write(), None);
}
