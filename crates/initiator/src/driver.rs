//! The loop around the client's end of the protocol: one port, one connection, any number of volumes.

mod own;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use sanwire_buffer::Frame;
use sanwire_core::{Instant, Lun, Path};
use sanwire_hyperscsi::wire::command::Answer;
use sanwire_hyperscsi::{Client as Protocol, ClientEvent, CommandId, Failure, ServerInfo};
use sanwire_io::{Clock, Poller, Port, Waker};

use crate::queue::{Completer, OpQueue};
use crate::translate::{Again, Verdict, command, verdict};
use crate::volume::{InfoCell, VolumeError};

/// Packets taken from the port before the driver looks at anything else.
const RECEIVE_BUDGET: usize = 256;

/// Packets sent before the driver looks for what has come.
const TRANSMIT_BUDGET: usize = 256;

/// A device that is busy is asked again after this.
const BUSY_WAIT: Duration = Duration::from_millis(5);

/// A volume that the driver serves.
pub(crate) struct Served {
    pub(crate) lun: Lun,
    /// What tells the volume's content from any other.
    pub(crate) uuid: [u8; 16],
    pub(crate) queue: OpQueue,
    pub(crate) info: InfoCell,
}

/// What waits for the answer to a command.
enum Waiting {
    Operation {
        again: Again,
        completer: Completer,
    },
    /// A command of the driver's own: the answer goes to `answers`.
    Own,
}

/// A command that could not be given yet.
struct Stalled {
    not_before: Instant,
    again: Again,
    data_in: Option<Frame>,
    completer: Completer,
}

/// The answer to a command of the driver's own.
pub(crate) struct OwnAnswer {
    pub(crate) answer: Answer,
    pub(crate) data: Vec<u8>,
}

/// What is known of the connection.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    Seeking,
    Up(ServerInfo),
    Down(Failure),
}

/// The state of one client.
pub(crate) struct Driver {
    port: Port,
    protocol: Protocol,
    clock: Clock,
    poller: Poller,
    waker: Waker,
    volumes: Vec<Option<Served>>,
    waiting: BTreeMap<CommandId, Waiting>,
    stalled: VecDeque<Stalled>,
    answers: BTreeMap<CommandId, Result<OwnAnswer, Failure>>,
    link: Link,
    lost_at: Option<StdInstant>,
    server_name: Arc<str>,
    /// The server has forgotten the session: are the volumes still the same?
    must_verify: bool,
    is_verifying: bool,
}

impl Driver {
    pub(crate) fn new(port: Port, mut protocol: Protocol, waker: Waker) -> Self {
        protocol.hold_after_restart();
        Driver {
            port,
            protocol,
            clock: Clock::new(),
            poller: Poller::new(),
            waker,
            volumes: Vec::new(),
            waiting: BTreeMap::new(),
            stalled: VecDeque::new(),
            answers: BTreeMap::new(),
            link: Link::Seeking,
            lost_at: None,
            server_name: Arc::from(""),
            must_verify: false,
            is_verifying: false,
        }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn server(&self) -> Option<ServerInfo> {
        self.protocol.server()
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn serve(&mut self, served: Served) {
        self.volumes.push(Some(served));
    }

    /// Whether every volume's last handle is gone and nothing is under way.
    pub(crate) fn is_unused(&self) -> bool {
        self.volumes.iter().all(Option::is_none) && self.waiting.is_empty() && self.stalled.is_empty()
    }

    pub(crate) fn turn_or_sleep(&mut self) {
        if !self.turn() {
            self.sleep();
        }
    }

    /// Does what there is to do; false when there was nothing.
    pub(crate) fn turn(&mut self) -> bool {
        if self.must_verify && !self.is_verifying {
            self.verify();
        }
        let now = self.clock.now();
        match self.try_turn(now) {
            Ok(busy) => busy,
            Err(error) => {
                tracing::error!("the network port no longer works: {error}");
                self.protocol.disconnect(now);
                self.give_up(Failure::Closed);
                self.drain_events(now);
                false
            }
        }
    }

    fn try_turn(&mut self, now: Instant) -> io::Result<bool> {
        let protocol = &mut self.protocol;
        let link = sanwire_core::LinkId(0);
        let received = self.port.receive(RECEIVE_BUDGET, &mut |peer, bytes| {
            protocol.handle_input(Path { link, peer }, bytes, now);
        })?;
        if self.protocol.poll_timeout().is_some_and(|at| at <= now) {
            self.protocol.handle_timeout(now);
        }
        let told = self.drain_events(now);
        let asked = self.take_operations(now);
        let sent = self.transmit(now)?;
        Ok(received + told + asked + sent > 0)
    }

    fn transmit(&mut self, now: Instant) -> io::Result<usize> {
        let mut sent = 0;
        while sent < TRANSMIT_BUDGET
            && let Some((path, packet)) = self.protocol.poll_transmit(now)
        {
            sent += 1;
            if let Err(packet) = self.port.queue(path.peer, packet) {
                self.port.flush()?;
                // An empty batch takes a packet.
                drop(self.port.queue(path.peer, packet));
            }
        }
        if sent > 0 {
            self.port.flush()?;
        }
        Ok(sent)
    }

    /// Sleeps until there is something to do.
    pub(crate) fn sleep(&mut self) {
        let limit = self.stalled.front().map(|stalled| stalled.not_before);
        let deadline = [self.protocol.poll_timeout(), limit].into_iter().flatten().min();
        let idle = self.volumes.iter().flatten().all(|served| served.queue.prepare_to_sleep());
        if idle
            && let Err(error) =
                self.poller.wait(std::slice::from_ref(&self.port), &[], Some(&self.waker), deadline, &self.clock)
        {
            tracing::error!("the client cannot wait for packets: {error}");
            std::thread::sleep(BUSY_WAIT);
        }
        self.volumes.iter().flatten().for_each(|served| served.queue.awake());
    }

    fn drain_events(&mut self, now: Instant) -> usize {
        let mut told = 0;
        while let Some(event) = self.protocol.poll_event() {
            told += 1;
            match event {
                ClientEvent::Completed { id, answer, data_in, data_in_bytes } => {
                    self.completed(id, answer, data_in, data_in_bytes, now);
                }
                ClientEvent::Failed { id, failure, .. } => self.failed(id, failure),
                ClientEvent::Connected { server, resumed } => self.connected(server, resumed),
                ClientEvent::Lost { announced } => {
                    self.lost_at = Some(StdInstant::now());
                    let why = if announced { "stops" } else { "does not answer" };
                    tracing::warn!("server {} {why}; seeking it", self.server_name);
                    self.link = Link::Seeking;
                }
                ClientEvent::GivenUp(failure) => self.give_up(failure),
            }
        }
        told
    }

    fn connected(&mut self, server: ServerInfo, resumed: bool) {
        if let Some(lost_at) = self.lost_at.take() {
            let away = lost_at.elapsed().as_secs_f32();
            let state =
                if resumed { "the session goes on" } else { "a new session; commands in doubt are given again" };
            tracing::warn!("server {} is back after {away:.1} s: {state}", server.name);
        }
        self.server_name = Arc::from(&*server.name);
        self.must_verify |= !resumed;
        self.link = Link::Up(server);
    }

    fn give_up(&mut self, failure: Failure) {
        self.link = Link::Down(failure);
        let error = self.disconnected();
        for served in self.volumes.iter().flatten() {
            served.queue.close(error.clone());
        }
        for stalled in self.stalled.drain(..) {
            stalled.completer.complete(Err(error.clone()));
        }
    }

    fn disconnected(&self) -> VolumeError {
        let since = self.lost_at.unwrap_or_else(StdInstant::now);
        VolumeError::Disconnected { server: Arc::clone(&self.server_name), since }
    }

    fn failed(&mut self, id: CommandId, failure: Failure) {
        match self.waiting.remove(&id) {
            Some(Waiting::Operation { completer, .. }) => {
                let error = match failure {
                    Failure::InDoubt => VolumeError::Protocol { what: failure.to_string().into() },
                    Failure::TooLarge => VolumeError::Protocol { what: failure.to_string().into() },
                    Failure::Closed => VolumeError::Closed,
                    _ => self.disconnected(),
                };
                completer.complete(Err(error));
            }
            Some(Waiting::Own) => {
                self.answers.insert(id, Err(failure));
            }
            None => {}
        }
    }

    fn completed(&mut self, id: CommandId, answer: Answer, data_in: Option<Frame>, data_in_bytes: usize, now: Instant) {
        match self.waiting.remove(&id) {
            Some(Waiting::Operation { again, completer }) => match verdict(&again, &answer, data_in, data_in_bytes) {
                Verdict::Tell(result) => completer.complete(result),
                Verdict::Again(data_in) => {
                    let is_busy = !matches!(&answer, Answer::Command { sense, .. } if !sense.is_empty());
                    let not_before = if is_busy { now + BUSY_WAIT } else { now };
                    self.stalled.push_back(Stalled { not_before, again, data_in, completer });
                }
            },
            Some(Waiting::Own) => {
                let data = data_in.map(|frame| frame[..data_in_bytes.min(frame.len())].to_vec()).unwrap_or_default();
                self.answers.insert(id, Ok(OwnAnswer { answer, data }));
            }
            None => {}
        }
    }

    /// Gives the protocol what volumes ask, as far as it takes it.
    fn take_operations(&mut self, now: Instant) -> usize {
        let mut taken = 0;
        while !self.is_verifying
            && self.stalled.front().is_some_and(|stalled| stalled.not_before <= now)
            && let Some(stalled) = self.stalled.pop_front()
        {
            if !self.give(stalled, now) {
                return taken;
            }
            taken += 1;
        }
        let room = self.commands_max().saturating_sub(self.protocol.in_transit());
        for index in 0..self.volumes.len() {
            taken += self.take_from(index, room.saturating_sub(taken), now);
        }
        taken
    }

    fn take_from(&mut self, index: usize, room: usize, now: Instant) -> usize {
        for taken in 0..room {
            let Some(served) = self.volumes[index].as_ref() else { return taken };
            let Some(op) = served.queue.pop() else {
                if served.queue.is_abandoned() {
                    self.volumes[index] = None;
                }
                return taken;
            };
            let block_bytes = served.info.get().block_bytes;
            match command(served.lun, block_bytes, op.kind) {
                Some((again, data_in)) => {
                    let stalled = Stalled { not_before: now, again, data_in, completer: op.completer };
                    if !self.give(stalled, now) {
                        return taken;
                    }
                }
                None => op.completer.complete(Err(VolumeError::Unsupported)),
            }
        }
        room
    }

    fn commands_max(&self) -> usize {
        match &self.link {
            Link::Up(_) if self.is_verifying || self.must_verify => 0,
            Link::Up(server) => usize::from(server.commands_max),
            Link::Seeking | Link::Down(_) => 0,
        }
    }

    /// Gives a command; keeps it for later when none more may be in transit.
    fn give(&mut self, stalled: Stalled, now: Instant) -> bool {
        let Stalled { again, data_in, completer, .. } = stalled;
        match self.protocol.order(again.order(data_in), now) {
            Ok(id) => {
                self.waiting.insert(id, Waiting::Operation { again, completer });
                true
            }
            Err(order) => {
                self.stalled.push_front(Stalled { not_before: now, again, data_in: order.data_in, completer });
                false
            }
        }
    }

    /// Leaves the server.
    pub(crate) fn leave(&mut self) {
        let now = self.clock.now();
        self.protocol.disconnect(now);
        self.drain_events(now);
        if let Err(error) = self.transmit(now) {
            tracing::debug!("the last words were not sent: {error}");
        }
    }
}
