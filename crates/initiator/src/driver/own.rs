//! Commands of the driver's own: to learn what a server has.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::{Instant, Lun};
use sanwire_scsi::Cdb;

use super::{BUSY_WAIT, ConnectionState, Driver, OwnAnswer, Verifying, Waiting};
use crate::session::{Failure, Order, OrderId};

/// How long a unit is asked again that is busy.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// A command of the driver's own that sends no data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnCommand {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    /// Room for the answer.
    pub(crate) data_in_bytes: usize,
}

impl OwnCommand {
    fn order(self) -> Order {
        let OwnCommand { lun, cdb, data_in_bytes } = self;
        let data_in = (data_in_bytes > 0).then(|| Frame::from(vec![0; data_in_bytes]));
        Order { data_in, ..Order::of_disk(lun, cdb) }
    }
}

impl Driver {
    /// Does something with commands of the driver's own, and has no more patience for their answers than that.
    pub(crate) fn within<T>(&mut self, patience: Duration, work: impl FnOnce(&mut Self) -> T) -> T {
        self.limit_own(Some(patience));
        let result = work(self);
        self.limit_own(None);
        result
    }

    /// From now on there is no more patience than that for the answers to all commands of the driver's own; `None`: without a limit.
    pub(crate) fn limit_own(&mut self, patience: Option<Duration>) {
        self.own_until = patience.map(|patience| self.session.now() + patience);
    }

    pub(super) fn is_too_late(&self) -> bool {
        self.own_until.is_some_and(|end| end <= self.session.now())
    }

    /// Serves everything else for a moment: a unit was busy, for the first time at `since`. `false`: for too long.
    pub(crate) fn rest(&mut self, since: &mut Option<Instant>) -> bool {
        let now = self.session.now();
        if now >= *since.get_or_insert(now) + BUSY_MAX {
            return false;
        }
        let end = now + BUSY_WAIT;
        let before = self.rest_until.replace(end);
        while self.session.now() < end && matches!(self.link, ConnectionState::Up(_)) && !self.is_too_late() {
            self.turn_or_sleep();
        }
        self.rest_until = before;
        true
    }

    /// Gives a command of the driver's own, perhaps with data, and waits for its answer, serving everything else meanwhile.
    pub(crate) fn execute(
        &mut self,
        lun: Lun,
        cdb: Cdb,
        data_out: Option<Slice>,
        data_in_bytes: usize,
    ) -> Result<OwnAnswer, Failure> {
        let mut order = Order { data_out, ..OwnCommand { lun, cdb, data_in_bytes }.order() };
        let id = loop {
            if let ConnectionState::Down(failure) = &self.link {
                return Err(failure.clone());
            }
            if self.is_too_late() {
                return Err(too_late());
            }
            match self.session.order(order, self.session.now()) {
                Ok(id) => break id,
                Err(back) => order = back,
            }
            // Held commands take all places, and they stay until the verification is over.
            if self.verifying == Verifying::All && matches!(self.link, ConnectionState::Up(_)) {
                return Err(Failure::Full);
            }
            self.turn_or_sleep();
        };
        self.wait_for(id, lun)
    }

    /// Gives several commands of the driver's own, as many at once as the session takes, and waits for their answers, serving everything
    /// else meanwhile. `None` for those that were not given, or have failed: where the session has no room, or is lost, none is given any
    /// more.
    pub(crate) fn execute_all(&mut self, commands: &[OwnCommand]) -> Vec<Option<OwnAnswer>> {
        let mut answers: Vec<Option<OwnAnswer>> = commands.iter().map(|_| None).collect();
        let (mut given, mut waiting) = (VecDeque::new(), commands.iter().enumerate());
        let mut next = waiting.next();
        let sessions = self.sessions;
        while next.is_some() || !given.is_empty() {
            let is_away = matches!(self.link, ConnectionState::Down(_));
            let order = next.filter(|_| self.sessions == sessions && !is_away && !self.is_too_late());
            if let Some((at, command)) = order
                && let Ok(id) = self.session.order(command.order(), self.session.now())
            {
                self.waiting.insert(id, Waiting::Own);
                given.push_back((at, id, command.lun));
                next = waiting.next();
                continue;
            }
            let Some((at, id, lun)) = given.pop_front() else { break };
            answers[at] = self.answer_to(id, lun, sessions).ok();
        }
        answers
    }

    /// Asks to manage the server, in the words that it knows, and waits for its answer; `None` when the wire has no such
    /// thing.
    pub(crate) fn administer(&mut self, request: &[u8], room_bytes: usize) -> Option<Result<Vec<u8>, Failure>> {
        let (mut request, mut room) = (Slice::from(request.to_vec()), Frame::from(vec![0; room_bytes]));
        let id = loop {
            if let ConnectionState::Down(failure) = &self.link {
                return Some(Err(failure.clone()));
            }
            match self.session.administer(request, room, self.session.now())? {
                Ok(id) => break id,
                Err(back) => (request, room) = back,
            }
            self.turn_or_sleep();
        };
        Some(self.wait_for(id, Lun::default()).map(|answer| answer.data))
    }

    fn wait_for(&mut self, id: OrderId, lun: Lun) -> Result<OwnAnswer, Failure> {
        self.waiting.insert(id, Waiting::Own);
        self.answer_to(id, lun, self.sessions)
    }

    /// Waits for the answer to a command that was given in the session of this number.
    fn answer_to(&mut self, id: OrderId, lun: Lun, sessions: u64) -> Result<OwnAnswer, Failure> {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            if self.verifying != Verifying::Nothing && self.sessions != sessions {
                // In the new session it is held until the verification is over, that is until we are here no more.
                self.session.withdraw(id);
                self.waiting.remove(&id);
                return Err(Failure::Closed);
            }
            if self.is_too_late() {
                self.waiting.remove(&id);
                self.given_up.insert(id, lun);
                return Err(too_late());
            }
            self.turn_or_sleep();
        }
    }
}

pub(super) fn too_late() -> Failure {
    Failure::NoAnswer("it is connected, but does not answer what it is asked".into())
}
