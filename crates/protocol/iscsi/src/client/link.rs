//! One connection of the session in full feature phase: its stream both ways and its numbers.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Slice, Slices};
use sanwire_core::Instant;

use super::Trouble;
use crate::datamover::{Datamover, UNEXPECTED_ANSWERS_MAX};
use crate::parameters::ConnectionParameters;
use crate::serial::Serial;
use crate::wire::{DataOut, Header, NopOut, TAG_NONE};

/// Answers to a target that asks faster than it listens, at the most.
const ANSWERS_MAX: usize = 256;

/// A silent target is asked for a sign of life after so long: with commands under way, and without.
const SILENCE_BUSY: Duration = Duration::from_secs(2);
const SILENCE_IDLE: Duration = Duration::from_secs(5);

/// How long it may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Statuses that may be missing, or have arrived before one that is missing.
const STATUSES_MAX: u32 = 4096;

/// Requests of our own that may be under way over RDMA where the target does not say how many it takes: as many receives as Linux' has for
/// them besides those for commands.
const REQUESTS_OF_UNKNOWN: usize = 6;

/// Of those that may be, so many are left for a sign of life and the logout.
const REQUESTS_LEFT: usize = 2;

/// Requests of our own that may be under way on a connection, where the target says that it takes so many that have no number (RFC 7145
/// 8.1; 0: it does not say). Over plain TCP, where it is the stream that waits, as many as there are.
pub(super) fn requests_max(mover: &dyn Datamover, unexpected_max: u32) -> usize {
    if !mover.reaches_memory() {
        return usize::MAX;
    }
    match usize::try_from(unexpected_max).unwrap_or(usize::MAX) {
        0 => REQUESTS_OF_UNKNOWN,
        taken => taken.min(UNEXPECTED_ANSWERS_MAX),
    }
}

/// What a request of our own is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// A sign of life.
    Ping,
    /// The end of the session.
    Leave,
    /// The end of a connection (number) that is lost, so that its tasks can go on elsewhere.
    Recover(u16),
    /// A task (tag) goes on here.
    Reassign(u32),
    /// The end of a task (tag) that is late.
    Abort(u32),
    /// A text exchange.
    Text,
}

/// A request that is not answered yet.
pub(super) struct Asked {
    /// That of its answer.
    tag: u32,
    pub(super) request: Request,
    /// Looks at the commands under way since then.
    looks: u8,
}

/// Data-Out that is to be sent: all data that one R2T wants, or that is sent unasked.
pub(super) struct Burst {
    pub(super) task_tag: u32,
    pub(super) transfer_tag: u32,
    pub(super) lun: [u8; 8],
    /// All data of the command.
    pub(super) data: Slice,
    pub(super) offset_bytes: u32,
    pub(super) end_bytes: u32,
    pub(super) data_number: u32,
}

impl Burst {
    fn is_solicited(&self) -> bool {
        self.transfer_tag != TAG_NONE
    }
}

/// A connection that carries commands.
pub(super) struct Link {
    pub(super) mover: Box<dyn Datamover>,
    pub(super) parameters: ConnectionParameters,
    /// The last whole PDU.
    pub(super) heard_at: Instant,
    /// Since when a sign of life is owed.
    pub(super) pinged_at: Option<Instant>,
    /// Commands with lower numbers were sent before the last question for one.
    pub(super) pinged_behind: Serial,
    /// Requests without an answer, by their tags.
    pub(super) requests: Vec<Asked>,
    requests_max: usize,
    /// Commands in transit here.
    pub(super) load: usize,
    /// Tasks of which PDUs were asked for once more; [`TAG_NONE`] for statuses.
    owed: BTreeSet<u32>,
    /// Data, or the answer to a command, has passed since the last look.
    pub(super) has_moved: bool,
    owed_since: Instant,
    answers: VecDeque<Header>,
    bursts: VecDeque<Burst>,
    expected_status: Serial,
    /// Statuses that came before one that is missing.
    statuses: BTreeSet<u32>,
}

impl Link {
    /// A connection whose login is over now; `expected_status` is the number that follows that of its last answer.
    pub(super) fn new(
        mut mover: Box<dyn Datamover>,
        parameters: ConnectionParameters,
        commands_max: u16,
        requests_max: usize,
        expected_status: Serial,
        now: Instant,
    ) -> Self {
        mover.begin(&parameters, commands_max.into());
        Link {
            mover,
            parameters,
            heard_at: now,
            pinged_at: None,
            pinged_behind: Serial(0),
            owed: BTreeSet::new(),
            has_moved: false,
            owed_since: now,
            requests: Vec::new(),
            requests_max,
            load: 0,
            answers: VecDeque::new(),
            bursts: VecDeque::new(),
            expected_status,
            statuses: BTreeSet::new(),
        }
    }

    /// The next status number that we expect.
    pub(super) fn expected_status(&self) -> Serial {
        self.expected_status
    }

    /// Queues a command or another request; they go out in this order.
    pub(super) fn push(&mut self, header: Header, additional: Vec<u8>, data: Option<Slice>) {
        self.mover.push_extended(header, additional, data.map(Slices::from));
    }

    /// Queues an answer; it may overtake data.
    pub(super) fn answer(&mut self, header: Header) -> Result<(), Trouble> {
        if self.answers.len() >= ANSWERS_MAX {
            return Err(Trouble::violation("it asks and does not listen to the answers"));
        }
        self.answers.push_back(header);
        Ok(())
    }

    /// Queues data.
    pub(super) fn send_data(&mut self, burst: Burst) {
        self.bursts.push_back(burst);
    }

    /// R2Ts of a task whose data is not sent yet.
    pub(super) fn unanswered_ready(&self, task_tag: u32) -> usize {
        self.bursts.iter().filter(|burst| burst.task_tag == task_tag && burst.is_solicited()).count()
    }

    /// The command is over: what the target had asked for is not sent any more. What it was promised is.
    pub(super) fn forget(&mut self, task_tag: u32) {
        self.bursts.retain(|burst| burst.task_tag != task_tag || !burst.is_solicited());
        self.settle(task_tag);
    }

    /// The target asks for this data of a task anew: what waits to be sent of it is not what it expects any more.
    pub(super) fn supersede(&mut self, task_tag: u32, data: Range<u32>) {
        self.bursts.retain(|burst| {
            burst.task_tag != task_tag || burst.offset_bytes >= data.end || burst.end_bytes <= data.start
        });
    }

    /// Whether there is something to send.
    pub(super) fn has_output(&self) -> bool {
        !self.mover.is_empty() || !self.answers.is_empty() || !self.bursts.is_empty()
    }

    /// The next bytes to send. Data is cut into PDUs here, at the last moment: what is urgent overtakes it.
    pub(super) fn poll_transmit(&mut self) -> Option<Packet> {
        if self.mover.carried().is_some() {
            // An adapter takes what there is for it unasked, and says later when that is sent.
            while self.push_next() {}
        } else if self.mover.queued_bytes() == 0 {
            self.push_next();
        }
        self.mover.pop()
    }

    /// Queues an answer, or a part of the data; `false` when there is none.
    fn push_next(&mut self) -> bool {
        match self.answers.pop_front() {
            Some(answer) => {
                self.mover.push(answer, None);
                true
            }
            None => self.cut_burst(),
        }
    }

    fn cut_burst(&mut self) -> bool {
        let Some(burst) = self.bursts.front_mut() else { return false };
        self.has_moved = true;
        let length = self.parameters.send_data_max_bytes.max(1).min(burst.end_bytes - burst.offset_bytes);
        let end = burst.offset_bytes + length;
        let header = DataOut {
            is_final: end == burst.end_bytes,
            lun: burst.lun,
            task_tag: burst.task_tag,
            transfer_tag: burst.transfer_tag,
            expected_status_number: self.expected_status.0,
            data_number: burst.data_number,
            offset_bytes: burst.offset_bytes,
        };
        self.mover.push(header.write(), Some(burst.data.slice(burst.offset_bytes as usize..end as usize).into()));
        (burst.offset_bytes, burst.data_number) = (end, burst.data_number.wrapping_add(1));
        if end == burst.end_bytes {
            self.bursts.pop_front();
        }
        true
    }

    /// A status of this number has arrived. Gives the first that is missing before it and how many are, once.
    pub(super) fn note_status(&mut self, number: Serial, recovers: bool) -> Result<Option<(Serial, u32)>, Trouble> {
        let ahead = number.since(self.expected_status);
        if !recovers || ahead == 0 {
            if ahead >= 0 {
                self.expected_status = number.next();
            }
            while self.statuses.remove(&self.expected_status.0) {
                self.expected_status = self.expected_status.next();
            }
            if self.statuses.is_empty() {
                self.settle(TAG_NONE);
            }
            return Ok(None);
        }
        if ahead < 0 {
            return Ok(None);
        }
        let ahead = ahead.unsigned_abs();
        if ahead > STATUSES_MAX {
            return Err(Trouble::violation(format!("{ahead} statuses are missing")));
        }
        let is_first = self.statuses.is_empty();
        self.statuses.insert(number.0);
        Ok(is_first.then_some((self.expected_status, ahead)))
    }

    /// Whether the status of this number has been taken already.
    pub(super) fn knows_status(&self, number: Serial) -> bool {
        number < self.expected_status || self.statuses.contains(&number.0)
    }

    /// PDUs of a task were asked for once more; of [`TAG_NONE`]: statuses.
    pub(super) fn owe(&mut self, tag: u32, now: Instant) {
        if self.owed.insert(tag) {
            self.owed_since = now;
        }
    }

    /// They have arrived.
    pub(super) fn settle(&mut self, tag: u32) {
        self.owed.remove(&tag);
    }

    /// Whether statuses were asked for once more.
    pub(super) fn owes_statuses(&self) -> bool {
        self.owed.contains(&TAG_NONE)
    }

    /// Whether another request may go out, of those that can wait.
    pub(super) fn may_ask(&self) -> bool {
        self.asked() < self.requests_max.saturating_sub(REQUESTS_LEFT).max(1)
    }

    /// Whether a logout may go out.
    pub(super) fn may_leave(&self) -> bool {
        self.asked() + 1 < self.requests_max
    }

    /// Requests without an answer; signs of life, of which there is one at the most, have their own room.
    fn asked(&self) -> usize {
        self.requests.iter().filter(|asked| asked.request != Request::Ping).count()
    }

    /// Takes the request of this tag out.
    pub(super) fn take_request(&mut self, tag: u32) -> Option<Request> {
        let at = self.requests.iter().position(|asked| asked.tag == tag)?;
        Some(self.requests.swap_remove(at).request)
    }

    /// Whether the end of this task was asked for already.
    pub(super) fn is_aborting(&self, tag: u32) -> bool {
        self.requests.iter().any(|asked| asked.request == Request::Abort(tag))
    }

    /// The commands under way are looked at. Whether a request has seen more of that than so many times, and is not answered.
    pub(super) fn look_at_requests(&mut self, most: u8) -> bool {
        let asked = self.requests.iter_mut().filter(|asked| asked.request != Request::Ping);
        asked.fold(false, |is_late, asked| {
            asked.looks = asked.looks.saturating_add(1);
            is_late || asked.looks > most
        })
    }

    /// The frames that data was being received into, with the tags of their tasks.
    pub(super) fn withdraw(&mut self) -> Vec<(u32, Frame)> {
        self.mover.withdraw()
    }

    /// When to ask for a sign of life, or to stop waiting.
    pub(super) fn timeout(&self, is_busy: bool) -> Instant {
        if self.mover.has_failed() {
            return Instant::ZERO;
        }
        let owed = (!self.owed.is_empty()).then_some(self.owed_since + ANSWER_MAX);
        let heard = match self.pinged_at {
            Some(since) => since.max(self.heard_at) + ANSWER_MAX,
            None => self.heard_at + if is_busy { SILENCE_BUSY } else { SILENCE_IDLE },
        };
        owed.map_or(heard, |at| at.min(heard))
    }

    /// Whether the target has not answered in time.
    pub(super) fn is_dead(&self, now: Instant) -> bool {
        let is_silent = self.pinged_at.is_some_and(|since| since.max(self.heard_at) + ANSWER_MAX <= now);
        is_silent || (!self.owed.is_empty() && self.owed_since + ANSWER_MAX <= now)
    }

    /// Whether it is time to ask for a sign of life.
    pub(super) fn wants_ping(&self, is_busy: bool, now: Instant) -> bool {
        self.pinged_at.is_none() && self.timeout(is_busy) <= now
    }

    /// Asks for a sign of life.
    pub(super) fn ping(&mut self, task_tag: u32, command_number: Serial, now: Instant) {
        let ping = NopOut {
            is_immediate: true,
            is_final: true,
            task_tag,
            transfer_tag: TAG_NONE,
            command_number: command_number.0,
            expected_status_number: self.expected_status.0,
            ..NopOut::default()
        };
        self.request(task_tag, Request::Ping, ping.write(), None);
        (self.pinged_at, self.pinged_behind) = (Some(now), command_number);
    }

    /// Queues a request of our own, whose answer will have this tag.
    pub(super) fn request(&mut self, tag: u32, request: Request, header: Header, data: Option<Slice>) {
        self.requests.push(Asked { tag, request, looks: 0 });
        self.mover.push(header, data.map(Slices::from));
    }
}
