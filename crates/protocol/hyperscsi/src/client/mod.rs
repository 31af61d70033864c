//! The client's end: it finds its server, keeps the connection, and sees every command through to an answer.
//!
//! It does no I/O and reads no clock. After every `handle_*`, [`Client::order`] or [`Client::disconnect`]: drain
//! [`Client::poll_event`], then [`Client::poll_transmit`], then read [`Client::poll_timeout`].
//!
//! A lost link or a restarted server is a pause: commands wait, the client seeks, and after the reconnection each
//! command in doubt is asked again under its old number. A server that remembers the session answers from memory;
//! one that does not executes it, unless that could do harm: such commands end with [`Failure::InDoubt`].

mod answering;
mod chance;
mod connected;
mod desired_options;
mod held;
mod input;
mod links;
mod orders;
#[cfg(test)]
mod rogue;
mod seek;
mod types;

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::{Packet, Slices};
use sanwire_core::{Instant, Lun, Path};

use self::chance::Answers;
use self::connected::Connected;
use self::desired_options::Wanted;
pub use self::input::{Announcement, announcement};
use self::orders::{Asking, Orders};
pub use self::orders::{CommandId, Order};
use self::seek::Seeking;
pub use self::seek::discovery;
pub use self::types::{ClientConfig, ClientEvent, Failure, ServerInfo};
use crate::channel::Message;
use crate::counters::Counters;
use crate::keys::{NO_PASSWORD, Randomness};
use crate::options::DeviceOption;
use crate::server::LinkLimits;
use crate::succession;
use crate::wire::setup::Refusal;
use crate::wire::{Opcode, Protection, Tag, live};

/// How long a client that was refused at its first connection goes on to seek.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

enum State {
    Seeking(Box<Seeking>),
    Connected(Box<Connected>),
    Closed,
}

/// The client's end of HyperSCSI: one session with one server.
pub struct Client {
    config: ClientConfig,
    random: Randomness,
    session: u64,
    state: State,
    orders: Orders,
    /// Further paths to the server, and their ends here.
    paths: Vec<(Path, LinkLimits)>,
    /// Attempts to connect since the last connection: they take turns among the paths.
    attempts: usize,
    was_connected: bool,
    /// Whether commands wait for [`Client::release`] after the server has forgotten the session.
    holds_after_restart: bool,
    /// The largest transfer that the connections of this session so far have taken, in bytes.
    session_limit_bytes: u32,
    /// The server is to send no answers.
    is_paused: bool,
    /// What we want from now on, until the server has agreed or refused.
    wanted: Option<Wanted>,
    /// Since when there is no connection.
    seeking_since: Instant,
    /// There is none for longer than anybody waits.
    is_out_of_patience: bool,
    refusal: Option<Refusal>,
    /// A server has refused our third step, and has proven that it was itself.
    is_refused: bool,
    answers: Answers,
    /// The key of the server that has accepted us last.
    known_server: Option<[u8; 32]>,
    /// A server with another key than the pinned one has answered.
    other_server: Option<[u8; 32]>,
    /// An option that keeps us from the server that has answered.
    conflict: Option<DeviceOption>,
    events: VecDeque<ClientEvent>,
    /// Last words of a connection that is closed.
    last: VecDeque<(Path, Packet)>,
    counters: Counters,
    /// Where packets are decrypted.
    plain: Vec<u8>,
}

impl Client {
    /// A client that begins to seek its server at `now`.
    #[must_use]
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        let mut random = Randomness::new(config.seed);
        let session = succession::first(random.u64());
        let mut client = Client {
            config,
            random,
            session,
            state: State::Closed,
            orders: Orders::default(),
            paths: Vec::new(),
            attempts: 0,
            was_connected: false,
            holds_after_restart: false,
            session_limit_bytes: 0,
            is_paused: false,
            wanted: None,
            seeking_since: now,
            is_out_of_patience: false,
            refusal: None,
            is_refused: false,
            answers: Answers::default(),
            known_server: None,
            other_server: None,
            conflict: None,
            events: VecDeque::new(),
            last: VecDeque::new(),
            counters: Counters::default(),
            plain: Vec::new(),
        };
        client.seek(None, now);
        client
    }

    /// What was dropped so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The server, while there is a connection.
    #[must_use]
    pub fn server(&self) -> Option<ServerInfo> {
        match &self.state {
            State::Connected(connected) => Some(connected.info()),
            _ => None,
        }
    }

    /// The round trip, smoothed, while there is a connection and once it was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        match &self.state {
            State::Connected(connected) => connected.channel.round_trip(),
            _ => None,
        }
    }

    /// The number of its session.
    #[cfg(test)]
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Commands without an answer.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.orders.in_transit()
    }

    /// Gives a command. It is sent at once, or after the reconnection.
    ///
    /// # Errors
    /// Gives the order back while as many are in transit as the server takes, from [`ClientEvent::OutOfPatience`] on until there is a
    /// connection again (a command that was kept meanwhile would have nobody's patience for its end), or when the client is closed.
    pub fn order(&mut self, order: Order, _now: Instant) -> Result<CommandId, Order> {
        let limit = match &self.state {
            State::Connected(connected) => connected.first_info.commands_max,
            State::Closed => return Err(order),
            _ if self.is_out_of_patience => return Err(order),
            _ => self.config.commands_max,
        };
        let is_large = order.data_out.is_some();
        let (tag, id) = self.orders.insert(order, usize::from(limit))?;
        if is_large {
            self.fail_what_is_too_large();
        }
        self.ask(tag);
        Ok(id)
    }

    /// Sends a command, while there is a connection.
    fn ask(&mut self, number: u16) {
        if let Some(tag) = Tag::new(number)
            && let State::Connected(connected) = &mut self.state
            && let Some(Asking { head, data, protection, is_local, is_compressible }) = self.orders.request(number)
        {
            let message = Message::new(tag, 0, protection, head, data.map(Slices::from));
            connected.channel.send(message.local(is_local).compressible(is_compressible));
        }
    }

    /// How the packets of a logical unit are guarded, once it has answered on this connection.
    #[must_use]
    pub fn protection(&self, lun: Lun) -> Option<Protection> {
        match &self.state {
            State::Connected(connected) => self.orders.level(lun).map(|level| level.max(connected.channel.floor())),
            _ => None,
        }
    }

    /// Whether data of a logical unit is compressed where it shrinks, once it has answered on this connection.
    #[must_use]
    pub fn is_compressed(&self, lun: Lun) -> Option<bool> {
        match &self.state {
            State::Connected(connected) => {
                self.orders.is_compressible(lun).map(|can| can && connected.terms.agreed().compression)
            }
            _ => None,
        }
    }

    /// A server drops what is larger than it takes, so that is never sent.
    fn fail_what_is_too_large(&mut self) {
        if let State::Connected(connected) = &self.state {
            let limit_bytes = connected.terms.transfer_limit_bytes();
            self.fail(|orders| orders.take_larger_than(limit_bytes), Failure::TooLarge);
        }
    }

    /// Lets the server send no answers, or lets it go on, through reconnections too. Commands are asked and executed meanwhile.
    pub fn pause(&mut self, is_paused: bool, now: Instant) {
        if std::mem::replace(&mut self.is_paused, is_paused) != is_paused
            && let State::Connected(connected) = &mut self.state
        {
            connected.channel.pause(is_paused, now);
        }
    }

    /// Whether the server has heard of the last [`Client::pause`], as far as there is a connection.
    #[must_use]
    pub fn is_pause_heard(&self) -> bool {
        !matches!(&self.state, State::Connected(connected) if !connected.channel.is_pause_heard())
    }

    /// Leaves the server. Every command without an answer fails.
    pub fn disconnect(&mut self, now: Instant) {
        if let State::Connected(connected) = &mut self.state {
            connected.channel.send_control(Opcode::Disconnect, live::write_disconnect());
            while let Some(packet) = connected.channel.poll_transmit(now) {
                self.last.push_back(packet);
            }
        }
        self.close(Failure::Closed);
    }

    fn close(&mut self, failure: Failure) {
        self.state = State::Closed;
        self.fail(|orders| orders.take_all(), failure);
    }

    fn fail(&mut self, take: impl FnOnce(&mut Orders) -> Vec<(CommandId, Order)>, failure: Failure) {
        for (id, order) in take(&mut self.orders) {
            self.events.push_back(ClientEvent::Failed { id, failure, data_in: order.data_in });
        }
    }

    fn seek(&mut self, wait: Option<Duration>, now: Instant) {
        let path = self.path_of_attempt();
        let known = self.config.server_key.or(self.known_server);
        match Seeking::new(&self.config, (path, known), self.session, &mut self.random, wait, now) {
            Ok(seeking) => self.state = State::Seeking(Box::new(seeking)),
            Err(_) => {
                self.close(Failure::Closed);
                self.events.push_back(ClientEvent::GivenUp(Failure::Closed));
            }
        }
    }

    fn lose(&mut self, announced: bool, now: Instant) {
        if let State::Connected(connected) = &self.state {
            self.session_limit_bytes = connected.terms.transfer_limit_bytes();
        }
        self.events.push_back(ClientEvent::Lost { announced });
        self.seeking_since = now;
        self.is_out_of_patience = false;
        self.attempts = 0;
        (self.refusal, self.is_refused, self.other_server, self.conflict) = (None, false, None, None);
        self.seek(None, now);
    }

    /// The next thing that the layer above must know.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(last) = self.last.pop_front() {
            return Some(last);
        }
        match &mut self.state {
            State::Seeking(seeking) => seeking.poll_transmit(now),
            State::Connected(connected) => connected.channel.poll_transmit(now),
            State::Closed => None,
        }
    }

    /// When [`Client::handle_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let patience = self.patience().map(|patience| self.seeking_since + patience);
        match &self.state {
            State::Seeking(seeking) => Some(patience.map_or(seeking.again_at(), |at| at.min(seeking.again_at()))),
            State::Connected(connected) => {
                let silent = connected.silent_at(self.orders.is_empty());
                let others = [connected.channel.poll_timeout(), connected.terms.poll_timeout()];
                others.into_iter().flatten().min().map_or(Some(silent), |at| Some(at.min(silent)))
            }
            State::Closed => None,
        }
    }

    fn patience(&self) -> Option<Duration> {
        if self.was_connected {
            return self.config.reconnect_patience.filter(|_| !self.is_out_of_patience);
        }
        // Another password does not become right by waiting; another server could still answer, so not at once.
        let is_refused = self.is_refused || self.other_server.is_some() || self.conflict.is_some();
        let patience = self.config.connect_patience;
        Some(if is_refused { patience.min(REFUSED_TIMEOUT) } else { patience })
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.state {
            State::Closed => return,
            State::Connected(connected) => {
                connected.channel.handle_timeout(now);
                if connected.is_dead(now) {
                    self.lose(false, now);
                } else if connected.silent_at(self.orders.is_empty()) <= now {
                    connected.channel.query(now);
                }
                self.tend_terms(now);
                return;
            }
            State::Seeking(seeking) => {
                if seeking.is_over(now) {
                    let wait = seeking.wait();
                    self.seek(Some(wait), now);
                }
            }
        }
        if self.patience().is_some_and(|patience| now.saturating_since(self.seeking_since) >= patience) {
            self.run_out_of_patience(self.reason(), now);
        }
    }

    /// Why there is no connection.
    fn reason(&self) -> Failure {
        match (self.refusal, self.conflict) {
            (_, Some(option)) => Failure::Option(option),
            (Some(Refusal::NotAuthentic), _) if self.config.psk == NO_PASSWORD => Failure::NoPassword,
            (Some(Refusal::NotAuthentic), _) => Failure::WrongPassword,
            (Some(Refusal::Options), _) => Failure::RefusedOptions,
            (Some(Refusal::Full), _) => Failure::Full,
            _ => match (self.config.server_key, self.other_server) {
                (Some(pinned), Some(received)) => Failure::OtherServer { pinned, received },
                _ => Failure::NoAnswer,
            },
        }
    }

    /// What was asked has failed for its caller: a server that comes back is not asked again. What it executes already is
    /// not undone, but nothing that is asked later may overtake it: it ends with the session, before the next one begins.
    fn run_out_of_patience(&mut self, failure: Failure, now: Instant) {
        if self.was_connected {
            self.is_out_of_patience = true;
            self.fail(Orders::take_all, failure);
            self.events.push_back(ClientEvent::OutOfPatience(failure));
            self.session = succession::successor(self.session);
            let wait = if let State::Seeking(seeking) = &self.state { Some(seeking.wait()) } else { None };
            self.seek(wait, now);
        } else {
            self.close(failure);
            self.events.push_back(ClientEvent::GivenUp(failure));
        }
    }
}
