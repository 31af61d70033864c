//! The initiator's end: one session that is found again when it is lost.
//!
//! A lost connection or a restarted target is a pause. What becomes of the commands under way depends on the error
//! recovery level that was agreed on:
//!
//! | level | what is lost | what happens |
//! |---|---|---|
//! | 0 | anything | the session is made anew and all commands are given again, except those that must not be executed twice |
//! | 1 | a data segment or a status | it is asked for once more (SNACK) |
//! | 2 | a connection | its tasks go on on another one, or on the next (TASK REASSIGN) |

mod adapter;
mod backoff;
mod commands;
mod connection_failure;
mod control;
mod data_in;
mod discovery;
mod input;
mod link;
mod login_phase;
mod movement;
mod narrowing;
mod ranges;
mod recovery;
mod seek;
mod session;
mod tasks;
mod timeouts;
mod transmit;
mod types;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use sanwire_core::{Instant, Lun};

use self::link::Link;
use self::login_phase::Entering;
use self::seek::Seek;
use self::session::Session;
use self::tasks::{Task, Tasks};
pub use self::types::{
    ClientAction, ClientConfig, ClientEvent, CommandId, DesiredParameters, DiscoveredTarget, Failure, Order, ServerInfo,
};
use crate::ConnectionId;
use crate::byte_stream::ByteStream;
use crate::datamover::{Datamover, MakeDatamover};

/// Bytes that a connection over plain TCP receives at once, beyond what goes straight into a frame.
const STAGING_BYTES: usize = 64 << 10;

/// How long a connection may take to open.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// How long a login may take.
const LOGIN_MAX: Duration = Duration::from_secs(10);

/// How long a logout may take.
const LOGOUT_MAX: Duration = Duration::from_secs(2);

/// Why a connection cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Trouble {
    /// It is gone, or its stream is damaged.
    Broken,
    /// Nothing comes any more.
    Silent,
    /// The target breaks the rules: what it says of the session is not to be trusted any more.
    Violation(String),
}

impl Trouble {
    fn violation(what: impl Into<String>) -> Self {
        Trouble::Violation(what.into())
    }
}

/// A connection of the driver.
struct Connection {
    id: ConnectionId,
    /// Its number in the session.
    number: u16,
    portal: SocketAddr,
    /// When its stage began.
    since: Instant,
    stage: Stage,
    /// The driver knows that it has something to send.
    is_announced: bool,
}

enum Stage {
    Opening,
    Login(Box<Entering>),
    Full(Box<Link>),
}

enum State {
    /// There is no session; perhaps one that can be taken up again.
    Seeking(Option<Box<Session>>),
    Live(Box<Session>),
    /// The logout is under way, until then at the most.
    Leaving(Instant),
    Closed,
}

/// The initiator's end of iSCSI: one session.
pub struct Client {
    config: ClientConfig,
    /// What carries its connections.
    make_datamover: MakeDatamover,
    /// The same for portals whose targets have said that they speak only an older revision of it: as long as the session lives.
    fallbacks: BTreeMap<SocketAddr, MakeDatamover>,
    random: ChaCha20Rng,
    state: State,
    seek: Seek,
    connections: Vec<Connection>,
    /// Those that adapters carry, after the logout: their targets are to end them.
    parting: Vec<(ConnectionId, Box<dyn Datamover>)>,
    /// What was wrong with the last connection that was lost after its login, if more is known than that.
    trouble: Option<String>,
    next_connection: u64,
    tasks: Tasks,
    was_connected: bool,
    /// Sessions in a row with several connections that the target has soon ended.
    short_sessions: u8,
    /// It gets no more than one connection, for it does not bear more.
    is_narrowed: bool,
    /// When the commands under way are looked at.
    look_at: Option<Instant>,
    /// Commands are late whose connections have no room for their aborts.
    has_late: bool,
    holds_after_restart: bool,
    /// All targets are to be asked for, as soon as there is a session.
    wants_targets: bool,
    events: VecDeque<ClientEvent>,
    actions: VecDeque<ClientAction>,
}

impl Client {
    /// A client that seeks its target, over plain TCP.
    #[must_use]
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        Client::over(|_| Box::new(ByteStream::new(STAGING_BYTES)), config, now)
    }

    /// The same over datamovers that are made so.
    #[must_use]
    pub fn over(make_datamover: MakeDatamover, config: ClientConfig, now: Instant) -> Self {
        let mut client = Client {
            make_datamover,
            fallbacks: BTreeMap::new(),
            random: ChaCha20Rng::from_seed(config.seed),
            state: State::Seeking(None),
            seek: Seek::new(config.portals.clone(), now),
            connections: Vec::new(),
            parting: Vec::new(),
            trouble: None,
            next_connection: 0,
            tasks: Tasks::new(config.commands_max),
            was_connected: false,
            short_sessions: 0,
            is_narrowed: false,
            look_at: None,
            has_late: false,
            holds_after_restart: false,
            wants_targets: false,
            events: VecDeque::new(),
            actions: VecDeque::new(),
            config,
        };
        client.seek_on(now);
        client
    }

    /// What the driver must do next.
    pub fn poll_action(&mut self) -> Option<ClientAction> {
        self.actions.pop_front()
    }

    /// A connection could not be opened, has ended or failed.
    pub fn connection_lost(&mut self, connection: ConnectionId, now: Instant) {
        self.drop_connection(connection, Trouble::Broken, now);
        self.parting.retain(|(parting, _)| *parting != connection);
        // The driver knows that it is closed.
        self.actions.retain(|action| *action != ClientAction::Close { connection });
    }

    /// Where the next bytes of a connection belong: first all of the first space, then the second. Both are empty for a
    /// connection that is not the client's any more.
    pub fn spaces(&mut self, connection: ConnectionId) -> [&mut [u8]; 2] {
        match self.connections.iter_mut().find(|known| known.id == connection).map(|known| &mut known.stage) {
            Some(Stage::Login(entering)) => entering.spaces(),
            Some(Stage::Full(link)) => link.mover.spaces(),
            Some(Stage::Opening) | None => [&mut [], &mut []],
        }
    }

    /// Gives a command; hands it back while there is no room for it, and from [`ClientEvent::OutOfPatience`] on until there is a session
    /// again: a command that was kept meanwhile would have nobody's patience for its end.
    ///
    /// # Errors
    /// The order.
    pub fn order(&mut self, order: Order, now: Instant) -> Result<CommandId, Order> {
        if matches!(self.state, State::Leaving(_) | State::Closed) || self.is_out_of_patience() {
            return Err(order);
        }
        let id = self.tasks.insert(order)?;
        self.look_after_commands(now);
        self.send_waiting();
        Ok(id)
    }

    /// Commands that were given and not answered.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.tasks.in_transit()
    }

    /// Asks for all targets (in a session with a target: for its addresses); [`ClientEvent::Targets`] is the answer.
    pub fn discover(&mut self, _now: Instant) {
        self.wants_targets = true;
        self.send_waiting();
    }

    /// From now on, after the loss of a session, commands wait for [`Client::release`]: its caller first makes sure that
    /// the units are what they were. Commands given while held go out at once.
    pub fn hold_after_restart(&mut self) {
        self.holds_after_restart = true;
    }

    /// Lets held commands go.
    pub fn release(&mut self) {
        self.tasks.release();
        self.send_waiting();
    }

    /// Fails the held commands of a logical unit.
    pub fn abandon(&mut self, lun: Lun, failure: Failure) {
        let held = self.tasks.take_held(lun);
        self.fail(held, &failure);
    }

    /// Fails the command of this number with [`Failure::InDoubt`], if it is held.
    pub fn withdraw(&mut self, number: u64) {
        let held = self.tasks.take_held_one(CommandId(number));
        self.fail(held, &Failure::InDoubt);
    }

    /// Leaves the target: logout, without waiting for commands.
    pub fn disconnect(&mut self, now: Instant) {
        if matches!(self.state, State::Closed | State::Leaving(_)) {
            return;
        }
        let is_live = self.log_out_session();
        self.withdraw_frames();
        let given = self.tasks.take_where(|_| true);
        self.fail(given, &Failure::Closed);
        self.state = State::Leaving(now + LOGOUT_MAX);
        if is_live {
            self.close_where(|connection| !matches!(connection.stage, Stage::Full(_)));
        } else {
            self.close();
        }
    }

    /// The target, while there is a session.
    #[must_use]
    pub fn server(&self) -> Option<ServerInfo> {
        let State::Live(session) = &self.state else { return None };
        let connections = self.connections.iter().filter(|known| matches!(known.stage, Stage::Full(_))).count();
        Some(ServerInfo { is_narrowed: self.is_narrowed, ..session.info(&self.config, connections) })
    }

    /// The next thing that the layer above must know.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// When [`Client::handle_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let session = match &self.state {
            State::Seeking(_) => self.seek_timeout(),
            State::Live(session) => session.timeout(self.growth()),
            // Nothing else is waited for.
            State::Leaving(until) => return Some(*until),
            State::Closed => return None,
        };
        let is_busy = self.tasks.in_transit() > 0;
        let stages = self.connections.iter().map(|known| match &known.stage {
            Stage::Opening => known.since + OPEN_MAX,
            Stage::Login(entering) => entering.timeout(known.since + LOGIN_MAX),
            Stage::Full(link) => link.timeout(is_busy),
        });
        stages.chain(session).chain(self.look_at).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if matches!(&self.state, State::Leaving(until) if *until <= now) {
            self.close();
        }
        self.drop_failed(now);
        self.check_stages(now);
        self.check_commands(now);
        self.check_session(now);
        self.seek_on(now);
        self.send_waiting();
    }

    /// How many connections there are; `None` while one is being opened.
    fn growth(&self) -> Option<usize> {
        let is_full = |known: &Connection| matches!(known.stage, Stage::Full(_));
        self.connections.iter().all(is_full).then_some(self.connections.len())
    }

    /// Gives up connections that are too slow, and asks for signs of life.
    fn check_stages(&mut self, now: Instant) {
        let is_busy = self.tasks.in_transit() > 0;
        let late: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|known| match &known.stage {
                Stage::Opening => known.since + OPEN_MAX <= now,
                Stage::Login(_) => known.since + LOGIN_MAX <= now,
                Stage::Full(link) => link.is_dead(now),
            })
            .map(|known| known.id)
            .collect();
        late.into_iter().for_each(|id| self.drop_connection(id, Trouble::Silent, now));
        self.connections.iter_mut().for_each(|known| known.stage.nudge(now));
        let State::Live(session) = &mut self.state else { return };
        for known in &mut self.connections {
            if let Stage::Full(link) = &mut known.stage
                && link.wants_ping(is_busy, now)
            {
                link.ping(session.next_tag(), session.command_number(), now);
            }
        }
    }

    fn fail(&mut self, tasks: Vec<Task>, failure: &Failure) {
        self.events.extend(tasks.into_iter().map(|task| ClientEvent::Failed {
            id: task.id,
            failure: failure.clone(),
            data_in: task.order.data_in,
        }));
    }

    /// Closes these connections.
    fn close_where(&mut self, wanted: impl Fn(&Connection) -> bool) {
        let closed = self.connections.extract_if(.., |known| wanted(known));
        self.actions.extend(closed.map(|known| ClientAction::Close { connection: known.id }));
    }

    /// Closes everything.
    fn close(&mut self) {
        self.withdraw_frames();
        self.keep_parting();
        self.close_where(|_| true);
        self.state = State::Closed;
    }

    /// Gives up.
    fn give_up(&mut self, failure: Failure) {
        self.close();
        let given = self.tasks.take_where(|_| true);
        self.fail(given, &failure);
        self.events.push_back(ClientEvent::GivenUp(failure));
    }

    /// Takes the frames back into which data was being received.
    fn withdraw_frames(&mut self) {
        for known in &mut self.connections {
            if let Stage::Full(link) = &mut known.stage {
                self.tasks.put_back(link.withdraw());
            }
        }
    }
}

#[cfg(test)]
mod tests;
