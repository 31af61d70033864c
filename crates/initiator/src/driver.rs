//! The loop around a session with a server: any number of volumes, one thread.

mod answers;
mod exclusive;
mod flushing;
mod keeping;
mod looking;
mod operations;
mod option_changes;
mod own;
mod rewriting;
mod verify;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use sanwire_buffer::Frame;
use sanwire_core::{Instant, Lun, Outages, Protection};
use sanwire_io::{ReceivePath, Waker};

pub(crate) use self::exclusive::Claimant;
use self::exclusive::Exclusive;
use self::keeping::Kept;
pub(crate) use self::keeping::tells_of_power;
pub use self::option_changes::OptionChanges;
pub(crate) use self::own::OwnCommand;
use crate::inventory::{VolumeFingerprint, VolumeSummary};
use crate::looker::LookDesk;
use crate::pauser::PauseDesk;
use crate::queue::{Completer, OpQueue};
use crate::session::{Answer, Event, Failure, LinkStatus, OrderId, ServerInfo, Session};
use crate::translate::{Again, CdbSize, Limits};
use crate::volume::{BufferPool, InfoCell, VolumeError};

/// A device that is busy is asked again after this.
const BUSY_WAIT: Duration = Duration::from_millis(5);

/// Between two looks at links that are to come.
const LINKS_PAUSE: Duration = Duration::from_millis(1);

/// A volume that the driver serves: its place in the table, and a number that is not used again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct VolumeId {
    index: usize,
    number: u64,
}

/// What is known of a volume's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trust {
    /// It is the volume's.
    Known,
    /// It may have become another one's: nothing is given under it until that is known. Commands that were given under it end
    /// first, so that none comes after the look.
    Doubted,
    /// It is not the volume's any more; it may have become one that nobody doubted at that time.
    Lost,
    /// It is the volume's; nothing is given under it before the writes that the volume has lost.
    Rewriting,
}

impl Trust {
    fn is_found(self) -> bool {
        matches!(self, Trust::Known | Trust::Rewriting)
    }
}

/// A volume that the driver serves.
pub(crate) struct Served {
    id: VolumeId,
    trust: Trust,
    lun: Lun,
    /// What tells the volume's content from any other.
    mark: VolumeFingerprint,
    form: CdbSize,
    block_bytes: u32,
    /// How much one command may be about, as the device has it.
    limits: Limits,
    queue: OpQueue,
    info: InfoCell,
    /// Where its acknowledged writes are kept.
    keeper: usize,
    /// Losses of which this handle was told.
    told_losses: u64,
    /// The unit has said that it had no power.
    has_lost_power: bool,
}

/// Which volumes are being looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verifying {
    Nothing,
    /// All, in a new session: what was given before is held.
    All,
    /// One, while the others are served.
    One,
}

/// What waits for the answer to a command.
enum Waiting {
    Operation {
        again: Again,
        completer: Completer,
    },
    /// A command of the driver's own: the answer goes to `answers`.
    Own,
    /// A flush that nobody asked for, of what was acknowledged below this number.
    Background {
        keeper: usize,
        below: u64,
    },
    /// A write that the device had lost.
    Again {
        keeper: usize,
    },
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
pub(crate) enum ConnectionState {
    Seeking,
    Up(ServerInfo),
    /// There is none for longer than operations wait: they fail. It is sought on, unless there will be none any more.
    Down(Failure),
}

/// The state of one client.
pub(crate) struct Driver {
    session: Box<dyn Session>,
    waker: Waker,
    /// What other threads want of the connection.
    wishes: Arc<OptionChanges>,
    volumes: Vec<Option<Served>>,
    /// Where the last look for operations began.
    first_volume: usize,
    waiting: BTreeMap<OrderId, Waiting>,
    stalled: VecDeque<Stalled>,
    answers: BTreeMap<OrderId, Result<OwnAnswer, Failure>>,
    /// Those for whose answers nobody waits any more, and their units: what these tell is heard all the same.
    given_up: BTreeMap<OrderId, Lun>,
    /// When commands of the driver's own are no longer waited for.
    own_until: Option<Instant>,
    /// When one of them is given again to a unit that was busy.
    rest_until: Option<Instant>,
    link: ConnectionState,
    /// Sessions so far: connections to a server that knew of none.
    sessions: u64,
    lost_at: Option<StdInstant>,
    pub(crate) outages: Arc<Outages>,
    server_name: Arc<str>,
    /// The server has forgotten the session: are the volumes still the same?
    must_verify: bool,
    /// Some volume is not [`Trust::Known`].
    has_doubts: bool,
    verifying: Verifying,
    /// The number of a unit that is being asked who it is: nothing else is given to it.
    quiet: Option<Lun>,
    /// Commands that are held now are to be given anew, to another unit, when they fail.
    is_moving: bool,
    next_volume: u64,
    /// What is kept of the volumes' acknowledged writes, and how much of each at the most.
    keepers: Vec<Option<Kept>>,
    keep_bytes: u64,
    exclusive: Vec<Exclusive>,
    /// Some of it may want a flush.
    wants_flush: bool,
    buffers: Option<BufferPool>,
    pauses: Arc<PauseDesk>,
    looks: Arc<LookDesk>,
    /// What was asked of the server for another thread, which waits until it has heard.
    unheard: Option<bool>,
}

impl Driver {
    /// A driver of this session.
    pub(crate) fn new(mut session: Box<dyn Session>, waker: Waker) -> Self {
        session.hold_after_restart();
        Driver {
            session,
            wishes: Arc::new(OptionChanges::new(waker.clone())),
            waker,
            volumes: Vec::new(),
            first_volume: 0,
            waiting: BTreeMap::new(),
            stalled: VecDeque::new(),
            answers: BTreeMap::new(),
            given_up: BTreeMap::new(),
            own_until: None,
            rest_until: None,
            link: ConnectionState::Seeking,
            sessions: 0,
            lost_at: None,
            outages: Arc::default(),
            server_name: Arc::from(""),
            must_verify: false,
            has_doubts: false,
            verifying: Verifying::Nothing,
            quiet: None,
            is_moving: false,
            next_volume: 0,
            keepers: Vec::new(),
            keep_bytes: 0,
            exclusive: Vec::new(),
            wants_flush: false,
            buffers: None,
            pauses: Arc::default(),
            looks: Arc::default(),
            unheard: None,
        }
    }

    pub(crate) fn link(&self) -> &ConnectionState {
        &self.link
    }

    pub(crate) fn server(&self) -> Option<ServerInfo> {
        self.session.server()
    }

    pub(crate) fn protection(&self, lun: Lun) -> Option<Protection> {
        self.session.protection(lun)
    }

    pub(crate) fn is_compressed(&self, lun: Lun) -> bool {
        self.session.is_compressed(lun) == Some(true)
    }

    /// The links of the connection; `patience`: how long may be waited for those that are to come.
    pub(crate) fn links(&mut self, patience: Duration) -> Vec<LinkStatus> {
        let end = self.session.now() + patience;
        while self.session.links().1 && self.session.now() < end && matches!(self.link, ConnectionState::Up(_)) {
            self.turn();
            std::thread::sleep(LINKS_PAUSE);
        }
        self.session.links().0
    }

    pub(crate) fn receive_path(&self) -> Option<ReceivePath> {
        self.session.receive_path()
    }

    pub(crate) fn pause(&mut self, is_paused: bool) -> bool {
        self.session.pause(is_paused, self.session.now())
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Whether every volume's last handle is gone and nothing is under way.
    pub(crate) fn is_unused(&self) -> bool {
        let is_for_nobody = |waiting: &Waiting| matches!(waiting, Waiting::Background { .. } | Waiting::Again { .. });
        let is_left = |served: &Served| served.queue.is_abandoned() && served.queue.is_empty();
        let is_idle = self.waiting.values().all(is_for_nobody) && self.stalled.is_empty();
        is_idle && self.volumes.iter().flatten().all(is_left)
    }

    pub(crate) fn turn_or_sleep(&mut self) {
        if !self.turn() {
            self.sleep();
        }
    }

    /// Does what there is to do; false when there was nothing.
    pub(crate) fn turn(&mut self) -> bool {
        self.settle_doubts();
        let now = self.session.now();
        self.take_wish(now);
        let received = self.session.receive(now);
        self.tend_desks(now);
        self.session.handle_timeout(now);
        let told = self.drain_events(now);
        let asked = self.take_operations(now) + self.write_again(now);
        self.flush_in_background(now);
        let sent = self.session.transmit(now);
        received + told + asked + sent > 0
    }

    /// Sleeps until there is something to do.
    pub(crate) fn sleep(&mut self) {
        let has_room = self.room() > 0;
        let limit = self.next_stalled_at().filter(|_| has_room);
        let now = self.session.now();
        let own = [self.own_until, self.rest_until, self.next_flush_at(now), self.next_again_at(now)];
        let deadline = [self.session.poll_timeout(), limit].into_iter().chain(own).flatten().min();
        // Without room nothing can be taken: only packets and time bring some. While nothing is waited for, operations fail
        // at once, also those of volumes that are in doubt.
        let is_down = matches!(self.link, ConnectionState::Down(_));
        let is_deaf = |served: &Served| !is_down && (!has_room || !self.is_served(served));
        let idle = self.volumes.iter().flatten().all(|served| is_deaf(served) || served.queue.prepare_to_sleep());
        if idle && let Err(error) = self.session.wait(&self.waker, deadline) {
            tracing::error!("the client cannot wait for packets: {error}");
            std::thread::sleep(BUSY_WAIT);
        }
        self.volumes.iter().flatten().for_each(|served| served.queue.awake());
    }

    fn drain_events(&mut self, now: Instant) -> usize {
        let mut told = 0;
        while let Some(event) = self.session.poll_event() {
            told += 1;
            match event {
                Event::Completed { id, answer, data_in, data_in_bytes } => {
                    self.completed(id, answer, data_in, data_in_bytes, now);
                }
                Event::Failed { id, failure, data_in } => self.failed(id, failure, data_in, now),
                Event::Connected { server, resumed } => self.connected(server, resumed),
                Event::Changed { server, terms } => {
                    tracing::info!("agreed with server {}: {terms}", server.name);
                    self.changed(server);
                }
                Event::WishRefused(why) => {
                    tracing::warn!("the options of the connection with {} do not change: {why}", self.server_name)
                }
                Event::Lost { announced } => {
                    self.lost_at = Some(StdInstant::now());
                    self.outages.begin();
                    let why = if announced { "stops" } else { "does not answer" };
                    tracing::warn!("server {} {why}; seeking it", self.server_name);
                    self.link = ConnectionState::Seeking;
                }
                Event::OutOfPatience(failure) => {
                    tracing::warn!(
                        "server {} is away for longer than --wait: I/O fails until it is back",
                        self.server_name
                    );
                    self.fail_operations(failure);
                }
                Event::GivenUp(failure) => {
                    let error = self.fail_operations(failure);
                    self.volumes.iter().flatten().for_each(|served| served.queue.close(error.clone()));
                }
            }
        }
        told
    }

    fn connected(&mut self, server: ServerInfo, resumed: bool) {
        if let Some(lost_at) = self.lost_at.take() {
            let state = match &self.link {
                ConnectionState::Down(_) => "I/O works again; requests that failed in between are not repeated",
                _ if resumed => "the session goes on",
                _ => "reconnected with a new session; outstanding commands are retried",
            };
            tracing::warn!("server {} is back after {:.1} s: {state}", server.name, lost_at.elapsed().as_secs_f32());
        }
        self.outages.end();
        self.server_name = Arc::from(&*server.name);
        // Who was told that the server is away may rely on nothing.
        if !resumed || matches!(self.link, ConnectionState::Down(_)) {
            self.sessions += 1;
            self.must_verify = true;
        }
        self.link = ConnectionState::Up(server);
    }

    /// Fails what waits for the server, and what comes from now on until it is back; gives with what.
    fn fail_operations(&mut self, failure: Failure) -> VolumeError {
        let error = if failure == Failure::VolumeGone { self.gone() } else { self.disconnected() };
        self.link = ConnectionState::Down(failure);
        for Stalled { again, completer, .. } in std::mem::take(&mut self.stalled) {
            self.note_in_doubt(&again);
            completer.complete(Err(error.clone()));
        }
        error
    }

    fn disconnected(&self) -> VolumeError {
        let since = self.lost_at.unwrap_or_else(StdInstant::now);
        VolumeError::Disconnected { server: Arc::clone(&self.server_name), since }
    }

    /// Leaves the server.
    pub(crate) fn leave(&mut self) {
        let now = self.session.now();
        self.session.disconnect(now);
        self.drain_events(now);
        self.session.transmit(now);
        self.session.part(&self.waker);
    }
}

#[cfg(test)]
mod tests;
