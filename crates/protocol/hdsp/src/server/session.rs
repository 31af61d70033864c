//! A client's session: what it asked and what it was answered, kept through reconnections, so that each command runs at most once.
//!
//! Numbers of commands have 16 bits. A client uses one only when it has the answers to all that are 256 or more before it, so each
//! number has a place among 256, and who is found there is the same command or one that is long over.

use std::collections::VecDeque;

use sanwire_ata::TaskFile;
use sanwire_buffer::Region;
use sanwire_core::{Alarm, Instant};

use super::assembly::Whole;
use super::batch::Batch;
use super::types::{Answer, Disk};
use crate::wire::connection::SessionName;
use crate::wire::offer::{COMMANDS_MAX, Waiting};

#[derive(Debug)]
enum State {
    /// It is executed. `is_asked`: the connection that lives waits for it.
    Executing { task_file: Option<TaskFile>, is_asked: bool },
    /// Answered, not yet known to have arrived.
    Answered { task_file: Option<TaskFile>, answer: Answer, is_sent: bool },
    /// The answer is on its way, and only the connection has it: if that ends before, it is as if nobody had asked.
    Sending,
    /// The client has the answer.
    Settled,
}

#[derive(Debug)]
struct Slot {
    number: u16,
    state: State,
    /// What its answer takes, or may take.
    answer_bytes: u64,
    /// Packets of what it writes that have stayed where they came.
    kept: usize,
}

/// What to do about a command that is whole.
#[derive(Debug)]
pub(super) enum Asked {
    /// It is new.
    Execute,
    /// It is executed already.
    Wait,
    /// It was executed: this is the answer.
    Repeat(Option<TaskFile>, Answer),
    /// There is nothing to do: it is over.
    Ignore,
    /// There can be no such number.
    Refuse,
}

/// One client's session.
pub(super) struct Session {
    pub(super) name: SessionName,
    pub(super) disk: Disk,
    pub(super) memory: Region,
    /// The port of its connection.
    pub(super) connection: Option<u16>,
    /// Something authentic has come: its client has heard that it has this session.
    pub(super) is_heard: bool,
    pub(super) orphaned_at: Instant,
    pub(super) alarm: Alarm,
    pub(super) batch: Batch,
    /// Commands that are whole, and wait for their turn.
    pub(super) ready: VecDeque<(u16, Whole)>,
    /// What the disk has to end before this session begins: commands of sessions that it follows.
    pub(super) predecessors: usize,
    slots: Vec<Option<Slot>>,
    /// What all answers take, or may take, that have not arrived.
    answers_bytes: u64,
    /// Packets of commands without answer that have stayed where they came.
    kept: usize,
}

impl Session {
    pub(super) fn new(name: SessionName, disk: Disk, memory: Region, now: Instant) -> Self {
        let slots = (0..COMMANDS_MAX).map(|_| None).collect();
        let (alarm, batch) = (Alarm::default(), Batch::default());
        Session {
            name,
            disk,
            memory,
            connection: None,
            is_heard: false,
            orphaned_at: now,
            alarm,
            batch,
            ready: VecDeque::new(),
            predecessors: 0,
            slots,
            answers_bytes: 0,
            kept: 0,
        }
    }

    fn slot(&mut self, number: u16) -> &mut Option<Slot> {
        &mut self.slots[usize::from(number % COMMANDS_MAX)]
    }

    fn own(&mut self, number: u16) -> Option<&mut Slot> {
        self.slot(number).as_mut().filter(|slot| slot.number == number)
    }

    /// Whether a command has come whole before.
    pub(super) fn knows(&self, number: u16) -> bool {
        self.slots[usize::from(number % COMMANDS_MAX)].as_ref().is_some_and(|slot| slot.number == number)
    }

    /// Whether commands have come whole, and are not answered.
    pub(super) fn is_busy(&self) -> bool {
        self.slots.iter().flatten().any(|slot| matches!(slot.state, State::Executing { .. }))
    }

    /// The place of a command has this in it from now on.
    fn put(&mut self, number: u16, slot: Option<Slot>) {
        let takes = |slot: &Option<Slot>| slot.as_ref().map_or((0, 0), |slot| (slot.answer_bytes, slot.kept));
        let (bytes, kept) = takes(&slot);
        let (before_bytes, before_kept) = takes(&std::mem::replace(self.slot(number), slot));
        self.answers_bytes = self.answers_bytes + bytes - before_bytes;
        self.kept = self.kept + kept - before_kept;
    }

    /// So many packets of what a command writes stay where they came, until it is answered.
    pub(super) fn keep(&mut self, number: u16, kept: usize) {
        let Some(slot) = self.own(number) else { return };
        let before = std::mem::replace(&mut slot.kept, kept);
        self.kept = self.kept + kept - before;
    }

    /// Packets of commands without answer that have stayed where they came.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// The answer to a command takes so much.
    fn weigh(&mut self, number: u16, bytes: u64) {
        let Some(slot) = self.own(number) else { return };
        let before = std::mem::replace(&mut slot.answer_bytes, bytes);
        self.answers_bytes = self.answers_bytes + bytes - before;
    }

    /// Whether there is room for an answer of so many bytes beside those that have not arrived; for one there always is.
    pub(super) fn has_room(&self, bytes: u64, room_bytes: u32) -> bool {
        bytes == 0 || self.answers_bytes == 0 || self.answers_bytes + bytes <= room_bytes.into()
    }

    /// A command begins, whose answer may take so much.
    pub(super) fn begin(&mut self, number: u16, bytes: u64) {
        self.weigh(number, bytes);
    }

    /// A new connection takes over: its client waits for these commands and has the answers to all others that it gave.
    pub(super) fn connect(&mut self, port: u16, waiting: &Waiting) {
        self.connection = Some(port);
        self.forget_ready();
        for place in 0..COMMANDS_MAX {
            let Some(Slot { number, state, .. }) = &mut self.slots[usize::from(place)] else { continue };
            let number = *number;
            match state {
                State::Executing { is_asked, .. } => *is_asked = false,
                State::Answered { .. } if waiting.is_settled(number) => {
                    *state = State::Settled;
                    self.weigh(number, 0);
                }
                State::Answered { is_sent, .. } => *is_sent = false,
                State::Sending => self.put(number, None),
                State::Settled => {}
            }
        }
    }

    pub(super) fn disconnect(&mut self, now: Instant) {
        self.connection = None;
        self.orphaned_at = now;
        self.forget_ready();
    }

    /// What has not begun the client gives again on its next connection.
    fn forget_ready(&mut self) {
        for (number, _) in std::mem::take(&mut self.ready) {
            self.put(number, None);
        }
    }

    /// A command has come whole.
    pub(super) fn ask(&mut self, number: u16, task_file: Option<TaskFile>) -> Asked {
        let new = Slot { number, state: State::Executing { task_file, is_asked: true }, answer_bytes: 0, kept: 0 };
        let Some(Slot { number: other, state, .. }) = self.slot(number) else {
            self.put(number, Some(new));
            return Asked::Execute;
        };
        if *other != number {
            // Only of an older command that is over the client can have the answer.
            let is_older = (number.wrapping_sub(*other) as i16) > 0;
            if !is_older || matches!(state, State::Executing { .. }) {
                return Asked::Refuse;
            }
            self.put(number, Some(new));
            return Asked::Execute;
        }
        match state {
            State::Executing { is_asked, .. } => {
                *is_asked = true;
                Asked::Wait
            }
            State::Answered { task_file, answer, is_sent } if !*is_sent => {
                *is_sent = true;
                Asked::Repeat(*task_file, answer.clone())
            }
            State::Answered { .. } | State::Sending | State::Settled => Asked::Ignore,
        }
    }

    /// A command has been executed. Gives what its answer is sent for, if the connection that lives waits for it. What `may_repeat`
    /// is executed again rather than kept when nobody has asked, or the connection ends.
    pub(super) fn answer(&mut self, number: u16, answer: &Answer, may_repeat: bool) -> Option<Option<TaskFile>> {
        let is_connected = self.connection.is_some();
        let slot = self.own(number)?;
        let State::Executing { task_file, is_asked } = slot.state else { return None };
        let is_asked = is_asked && is_connected;
        match (may_repeat, is_asked) {
            (true, true) => slot.state = State::Sending,
            (true, false) => self.put(number, None),
            (false, is_sent) => slot.state = State::Answered { task_file, answer: answer.clone(), is_sent },
        }
        self.weigh(number, answer.data_bytes());
        self.keep(number, 0);
        is_asked.then_some(task_file)
    }

    /// A command is not going to be executed. Gives whether the connection that lives waits for it.
    pub(super) fn withdraw(&mut self, number: u16) -> bool {
        let Some(Slot { state: State::Executing { is_asked, .. }, .. }) = self.own(number) else { return false };
        let is_asked = *is_asked;
        self.put(number, None);
        is_asked && self.connection.is_some()
    }

    /// The client has the whole answer.
    pub(super) fn arrived(&mut self, number: u16) {
        let state = self.own(number).map(|slot| &mut slot.state);
        if let Some(state @ (State::Answered { is_sent: true, .. } | State::Sending)) = state {
            *state = State::Settled;
            self.weigh(number, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::{ClientId, Protection};

    use super::*;
    use crate::wire::DiskType;

    fn session() -> Session {
        let name = SessionName { client: ClientId([1; 16]), run: 1, epoch: 0 };
        let disk = Disk { address: 0, volume: [0; 16], disk_type: DiskType::Scsi, protection: Protection::Checksum };
        let mut session = Session::new(name, disk, Region::new(1 << 20).unwrap(), Instant::ZERO);
        session.connect(1, &Waiting::default());
        session
    }

    fn answer() -> Answer {
        Answer::Scsi { status: 0, sense: Vec::new(), data: None }
    }

    #[test]
    fn a_command_runs_once_and_its_answer_comes_again_on_another_connection() {
        let mut session = session();
        assert!(matches!(session.ask(7, None), Asked::Execute));
        assert!(matches!(session.ask(7, None), Asked::Wait));
        assert!(session.answer(7, &answer(), false).is_some());
        assert!(matches!(session.ask(7, None), Asked::Ignore), "it is on its way");
        session.connect(2, &Waiting::new(7, 8, [7].into_iter()));
        assert!(matches!(session.ask(7, None), Asked::Repeat(..)));
        session.connect(3, &Waiting::new(8, 8, [].into_iter()));
        assert!(matches!(session.ask(7, None), Asked::Ignore), "its client has the answer");
    }

    #[test]
    fn what_nobody_asks_for_on_this_connection_is_kept_and_a_read_is_read_again() {
        let mut session = session();
        let waiting = Waiting::new(0, 2, [0, 1].into_iter());
        assert!(matches!(session.ask(0, None), Asked::Execute) && matches!(session.ask(1, None), Asked::Execute));
        session.connect(2, &waiting);
        assert!(session.answer(0, &answer(), false).is_none() && session.answer(1, &answer(), true).is_none());
        assert!(matches!(session.ask(0, None), Asked::Repeat(..)) && matches!(session.ask(1, None), Asked::Execute));
        assert!(session.answer(1, &answer(), true).is_some());
        session.connect(3, &waiting);
        assert!(matches!(session.ask(1, None), Asked::Execute), "the answer was lost with its connection");
    }

    #[test]
    fn numbers_come_again_and_what_is_executed_never_gives_way() {
        let mut session = session();
        for number in (65_000u16..=u16::MAX).chain(0..1000) {
            assert!(matches!(session.ask(number, None), Asked::Execute), "{number}");
            assert!(session.answer(number, &answer(), false).is_some());
            session.arrived(number);
        }
        assert!(matches!(session.ask(999 - 256, None), Asked::Refuse), "long over");
        assert!(matches!(session.ask(1000, None), Asked::Execute));
        assert!(matches!(session.ask(1256, None), Asked::Refuse), "the other one is executed");
    }
}
