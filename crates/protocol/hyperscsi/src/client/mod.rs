//! The client's end: it finds its server, keeps the connection, and sees every command through to an answer.
//!
//! It does no I/O and reads no clock. After every `handle_*`, [`Client::order`] or [`Client::disconnect`]: drain
//! [`Client::poll_event`], then [`Client::poll_transmit`], then read [`Client::poll_timeout`].
//!
//! A lost link or a restarted server is a pause: commands wait, the client seeks, and after the reconnection each
//! command in doubt is asked again under its old number. A server that remembers the session answers from memory;
//! one that does not executes it, unless that could do harm: such commands end with [`Failure::InDoubt`].

mod orders;
mod seek;

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::{Frame, Packet};
use sanwire_core::{Instant, Lun, Path};

pub use self::orders::{CommandId, Order};
use self::orders::{Answered, Orders};
pub use self::seek::discovery;
use self::seek::{Answering, Seeking};
use crate::channel::{Channel, Recovery, Rejected};
use crate::counters::Counters;
use crate::keys::{Identity, Psk, Randomness};
use crate::server::LinkLimits;
use crate::wire::command::Answer;
use crate::wire::live::{LiveRequest, write_live_reply};
use crate::wire::packet::{Salt, checksum_holds};
use crate::wire::setup::{AdnRequest, Refusal};
use crate::wire::{Opcode, Prefix, Protection, live};

/// A server that owes an answer for this long is sought anew.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// After a hint that the server does not know us, it has this long to prove otherwise.
const HINT_GRACE: Duration = Duration::from_millis(50);

/// How long a client that was refused at its first connection goes on to seek.
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);

/// What a client is made of.
pub struct ClientConfig {
    /// What the server may call us.
    pub name: String,
    /// The static key; its id is on the server's allow list.
    pub identity: Identity,
    /// The shared secret.
    pub psk: Psk,
    /// Where to look: a server's address, or everybody on the link.
    pub path: Path,
    /// Which server; empty for whichever answers first.
    pub server_name: String,
    /// Our link.
    pub link: LinkLimits,
    /// Commands in transit, at most [`sanwire_core::limits::COMMANDS_IN_TRANSIT_MAX`].
    pub commands_max: u16,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: u32,
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// How long to seek a server before giving up: at the first connection, and later.
    pub connect_patience: Duration,
    /// `None`: for ever.
    pub reconnect_patience: Option<Duration>,
    /// All randomness comes from this.
    pub seed: [u8; 32],
}

/// The server that a client is connected to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: Path,
    /// The largest packet that the path is known to take, in bytes.
    pub packet_max_bytes: u32,
    /// Commands in transit.
    pub commands_max: u16,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: u32,
    /// How often it asks for a sign of life.
    pub keep_alive: Duration,
    /// Differs each time the server starts.
    pub instance: u64,
}

/// Why a command has no answer, or a client no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answered, or nobody who may be meant.
    #[error("no server answered; it may be down, not reachable, or not configured to serve this client")]
    NoAnswer,
    /// The server refused the handshake.
    #[error("the server refused the handshake: the passwords differ")]
    NotAuthentic,
    /// The server has no room.
    #[error("the server has no room for another connection")]
    Full,
    /// The server was restarted and nobody knows whether the command was executed.
    #[error("the server was restarted while the command was under way; it may or may not have been executed")]
    InDoubt,
    /// The client was closed.
    #[error("the connection was closed")]
    Closed,
}

/// What the layer above must know.
#[derive(Debug)]
pub enum ClientEvent {
    /// There is a connection (again).
    Connected {
        /// With whom.
        server: ServerInfo,
        /// The server remembers the session (always false for the first connection).
        resumed: bool,
    },
    /// The connection is gone; it is being sought again.
    Lost {
        /// The server said that it stops.
        announced: bool,
    },
    /// A command was answered.
    Completed {
        /// Which.
        id: CommandId,
        /// How.
        answer: Answer,
        /// The frame for its data.
        data_in: Option<Frame>,
        /// How much of the frame was filled.
        data_in_bytes: usize,
    },
    /// A command will not be answered.
    Failed {
        /// Which.
        id: CommandId,
        /// Why.
        failure: Failure,
        /// The frame for its data.
        data_in: Option<Frame>,
    },
    /// Patience has run out: the client is closed.
    GivenUp(Failure),
}

enum State {
    Seeking(Seeking),
    Answering(Box<Answering>),
    Connected(Box<Connected>),
    Closed,
}

struct Connected {
    channel: Channel,
    info: ServerInfo,
    /// The server hinted that it does not know us.
    hinted_at: Option<Instant>,
}

/// The client's end of HyperSCSI: one session with one server.
pub struct Client {
    config: ClientConfig,
    random: Randomness,
    session: u64,
    state: State,
    orders: Orders,
    was_connected: bool,
    /// Whether commands wait for [`Client::release`] after the server has forgotten the session.
    holds_after_restart: bool,
    is_held: bool,
    /// Since when there is no connection.
    seeking_since: Instant,
    refusal: Option<Refusal>,
    events: VecDeque<ClientEvent>,
    /// Last words of a connection that is closed.
    last: VecDeque<(Path, Packet)>,
    counters: Counters,
}

impl Client {
    /// A client that begins to seek its server at `now`.
    #[must_use]
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        let mut random = Randomness::new(config.seed);
        let session = random.u64();
        let mut client = Client {
            config,
            random,
            session,
            state: State::Closed,
            orders: Orders::new(),
            was_connected: false,
            holds_after_restart: false,
            is_held: false,
            seeking_since: now,
            refusal: None,
            events: VecDeque::new(),
            last: VecDeque::new(),
            counters: Counters::default(),
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
            State::Connected(connected) => {
                let mut info = connected.info.clone();
                info.packet_max_bytes = connected.channel.packet_max_bytes() as u32;
                Some(info)
            }
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

    /// Commands without an answer.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.orders.in_transit()
    }

    /// Gives a command. It is sent at once, or after the reconnection.
    ///
    /// # Errors
    /// Gives the order back while as many are in transit as the server takes, or when the client is closed.
    pub fn order(&mut self, order: Order, _now: Instant) -> Result<CommandId, Order> {
        let limit = match &self.state {
            State::Connected(connected) => connected.info.commands_max,
            State::Closed => return Err(order),
            _ => self.config.commands_max,
        };
        let (tag, id) = self.orders.insert(order, usize::from(limit))?;
        if let State::Connected(connected) = &mut self.state
            && let Some((head, data)) = self.orders.request(tag)
        {
            connected.channel.send(tag, id.0, head, data);
        }
        Ok(id)
    }

    /// From now on, when a server that has forgotten the session is connected again, commands under way wait for
    /// [`Client::release`]: the layer above can first see (by new commands, which do not wait) whether the logical units
    /// are still the same.
    pub fn hold_after_restart(&mut self) {
        self.holds_after_restart = true;
    }

    /// Gives the commands that were held.
    pub fn release(&mut self) {
        self.is_held = false;
        if let State::Connected(connected) = &mut self.state {
            for tag in self.orders.unasked_tags() {
                if let Some((head, data)) = self.orders.request(tag) {
                    connected.channel.send(tag, 0, head, data);
                }
            }
        }
    }

    /// Gives up every command for a logical unit; what the server has been asked may still be executed.
    pub fn abandon(&mut self, lun: Lun, failure: Failure) {
        self.fail(|orders| orders.take_of(lun), failure);
    }

    /// Leaves the server. Every command without an answer fails.
    pub fn disconnect(&mut self, now: Instant) {
        if let State::Connected(connected) = &mut self.state {
            connected.channel.send_control(Opcode::Disconnect, live::write_disconnect());
            let path = connected.channel.path();
            while let Some(packet) = connected.channel.poll_transmit(now) {
                self.last.push_back((path, packet));
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
        self.state = match Seeking::new(&self.config, self.session, &mut self.random, wait, now) {
            Ok(seeking) => State::Seeking(seeking),
            Err(_) => State::Closed,
        };
    }

    fn lose(&mut self, announced: bool, now: Instant) {
        self.events.push_back(ClientEvent::Lost { announced });
        self.seeking_since = now;
        self.refusal = None;
        self.seek(None, now);
    }

    /// A packet has come.
    pub fn handle_input(&mut self, path: Path, bytes: &[u8], now: Instant) {
        let Ok((prefix, checksum, body)) = Prefix::read(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        match (prefix.header.opcode, prefix.protection) {
            (Opcode::HcbeReply, Protection::Checksum) => self.handle_data(path, bytes, &prefix, checksum, body, now),
            (Opcode::AdnRequest, Protection::Checksum) => {
                if checksum_holds(Salt::default(), bytes, checksum, body) {
                    self.handle_setup(path, &prefix, body, now);
                } else {
                    self.counters.rejected += 1;
                }
            }
            (opcode, Protection::Sealed) => self.handle_control(path, opcode, bytes, &prefix, body, now),
            _ => self.counters.malformed += 1,
        }
    }

    fn handle_data(&mut self, path: Path, bytes: &[u8], prefix: &Prefix, checksum: u32, body: &[u8], now: Instant) {
        let State::Connected(connected) = &mut self.state else {
            self.counters.unknown_connection += 1;
            return;
        };
        let channel = &mut connected.channel;
        if channel.connection() != prefix.connection || channel.path() != path {
            self.counters.unknown_connection += 1;
            return;
        }
        match channel.check_data(bytes, prefix, checksum, body) {
            Ok((fragment, head, data)) => {
                let placed = self.orders.place(prefix.header, &fragment, head, data);
                channel.take_data(prefix.number, fragment.acknowledgement, now);
                while channel.poll_delivered().is_some() {}
                match placed {
                    Ok(None) => {}
                    Ok(Some(answered)) => self.complete(answered),
                    Err(()) => self.counters.violations += 1,
                }
            }
            Err(Rejected::Duplicate) => self.counters.duplicates += 1,
            Err(Rejected::Bad) => self.counters.rejected += 1,
        }
    }

    fn complete(&mut self, answered: Answered) {
        let Answered { id, answer, data_in, data_in_bytes } = answered;
        self.events.push_back(ClientEvent::Completed { id, answer, data_in, data_in_bytes });
    }

    fn handle_setup(&mut self, path: Path, prefix: &Prefix, body: &[u8], now: Instant) {
        match AdnRequest::read(body) {
            Ok(AdnRequest::Handshake { connection, noise }) => {
                if !matches!(&self.state, State::Seeking(seeking) if seeking.is_answered_by(prefix)) {
                    return;
                }
                let State::Seeking(seeking) = std::mem::replace(&mut self.state, State::Closed) else { return };
                let wait = seeking.wait();
                match seeking.second_step(&self.config, path, connection, noise, now) {
                    Ok(answering) => self.state = State::Answering(Box::new(answering)),
                    Err(_) => {
                        self.counters.not_authentic += 1;
                        self.seek(Some(wait), now + wait);
                    }
                }
            }
            Ok(AdnRequest::Refusal(refusal)) => self.handle_refusal(refusal, prefix, now),
            Ok(AdnRequest::Announcement { .. }) => {}
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// A refusal is not authentic: it makes us look, not leave.
    fn handle_refusal(&mut self, refusal: Refusal, prefix: &Prefix, now: Instant) {
        match &mut self.state {
            State::Connected(connected) if connected.channel.connection() == prefix.connection => {
                if refusal == Refusal::UnknownConnection && connected.hinted_at.is_none() {
                    connected.hinted_at = Some(now);
                    connected.channel.query(now);
                }
            }
            State::Seeking(seeking) if seeking.is_answered_by(prefix) => {
                self.refusal.get_or_insert(refusal);
            }
            // After the first refusal the server no longer knows the handshake: only the first one says why.
            State::Answering(answering) if answering.channel.connection() == prefix.connection => {
                self.refusal.get_or_insert(refusal);
            }
            _ => {}
        }
    }

    fn handle_control(&mut self, path: Path, opcode: Opcode, bytes: &[u8], prefix: &Prefix, body: &[u8], now: Instant) {
        let channel = match &mut self.state {
            State::Connected(connected) => &mut connected.channel,
            State::Answering(answering) => &mut answering.channel,
            State::Seeking(_) | State::Closed => return,
        };
        if channel.connection() != prefix.connection || channel.path() != path {
            self.counters.unknown_connection += 1;
            return;
        }
        let Some(plain) = channel.open(bytes, prefix, body, now) else {
            self.counters.rejected += 1;
            return;
        };
        match opcode {
            Opcode::AckSnr => {
                let capacity = self.config.link.receive_capacity_packets;
                if let Some(resumed) = channel.handle_snr(&plain, bytes.len(), capacity) {
                    self.accepted(resumed, now);
                }
            }
            Opcode::AckReply => {
                channel.handle_ack(&plain, now);
                while channel.poll_delivered().is_some() {}
            }
            Opcode::AdnRequest => match LiveRequest::read(&plain) {
                Ok(LiveRequest::KeepAlive { nonce }) => {
                    channel.send_control(Opcode::AdnReply, write_live_reply(nonce));
                }
                Ok(LiveRequest::Farewell) => self.lose(true, now),
                Err(_) => self.counters.violations += 1,
            },
            _ => self.counters.violations += 1,
        }
    }

    /// The server has set the windows: the first time, that means that it accepts us.
    fn accepted(&mut self, resumed: bool, now: Instant) {
        if !matches!(self.state, State::Answering(_)) {
            return;
        }
        let State::Answering(answering) = std::mem::replace(&mut self.state, State::Closed) else { return };
        let Answering { mut channel, info, .. } = *answering;
        if self.was_connected && !resumed {
            self.fail(Orders::take_in_doubt, Failure::InDoubt);
        }
        self.is_held = self.holds_after_restart && self.was_connected && (self.is_held || !resumed);
        self.orders.unask();
        channel.start_probing(now);
        self.was_connected = true;
        self.events.push_back(ClientEvent::Connected { server: info.clone(), resumed });
        self.state = State::Connected(Box::new(Connected { channel, info, hinted_at: None }));
        if !self.is_held {
            self.release();
        }
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
            State::Seeking(seeking) => seeking.poll_transmit(now).map(|packet| (self.config.path, packet)),
            State::Answering(answering) => {
                let path = answering.channel.path();
                answering.poll_transmit(now).map(|packet| (path, packet))
            }
            State::Connected(connected) => {
                let path = connected.channel.path();
                connected.channel.poll_transmit(now).map(|packet| (path, packet))
            }
            State::Closed => None,
        }
    }

    /// When [`Client::handle_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let patience = self.patience().map(|patience| self.seeking_since + patience);
        match &self.state {
            State::Seeking(seeking) => Some(patience.map_or(seeking.again_at(), |at| at.min(seeking.again_at()))),
            State::Answering(answering) => {
                Some(patience.map_or(answering.again_at(), |at| at.min(answering.again_at())))
            }
            State::Connected(connected) => {
                let silent = connected.silent_at(self.orders.is_empty());
                Some(connected.channel.poll_timeout().map_or(silent, |at| at.min(silent)))
            }
            State::Closed => None,
        }
    }

    fn patience(&self) -> Option<Duration> {
        if self.was_connected {
            return self.config.reconnect_patience;
        }
        // Another password does not become right by waiting; another server could still answer, so not at once.
        let is_refused = self.refusal == Some(Refusal::NotAuthentic);
        let patience = self.config.connect_patience;
        Some(if is_refused { patience.min(REFUSED_PATIENCE) } else { patience })
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
                return;
            }
            State::Seeking(seeking) if seeking.is_worn() && seeking.again_at() <= now => {
                let wait = seeking.wait();
                self.seek(Some(wait), now);
            }
            State::Answering(answering) if answering.is_worn() && answering.again_at() <= now => self.seek(None, now),
            _ => {}
        }
        if self.patience().is_some_and(|patience| now.saturating_since(self.seeking_since) >= patience) {
            let failure = match self.refusal {
                Some(Refusal::NotAuthentic) => Failure::NotAuthentic,
                Some(Refusal::Full) => Failure::Full,
                _ => Failure::NoAnswer,
            };
            self.close(failure);
            self.events.push_back(ClientEvent::GivenUp(failure));
        }
    }
}

impl Connected {
    /// When to ask for a sign of life, or to stop waiting for one.
    fn silent_at(&self, idle: bool) -> Instant {
        if let Some(hinted_at) = self.hinted_at {
            return hinted_at + HINT_GRACE;
        }
        if let Some(since) = self.channel.unanswered_since() {
            return since + SILENCE_MAX;
        }
        let silence = if idle { self.info.keep_alive * 3 } else { SILENCE_MAX };
        self.channel.last_heard() + silence
    }

    fn is_dead(&mut self, now: Instant) -> bool {
        if let Some(hinted_at) = self.hinted_at
            && hinted_at + HINT_GRACE <= now
        {
            if self.channel.last_heard() <= hinted_at {
                return true;
            }
            self.hinted_at = None;
        }
        self.channel.is_stuck() || self.channel.unanswered_since().is_some_and(|since| since + SILENCE_MAX <= now)
    }
}

/// What a server said of itself in answer to [`discovery`].
#[must_use]
pub fn announcement(bytes: &[u8], number: u64) -> Option<(String, u32)> {
    let (prefix, checksum, body) = Prefix::read(bytes).ok()?;
    let expected = prefix.header.opcode == Opcode::AdnRequest
        && prefix.protection == Protection::Checksum
        && prefix.number == number
        && checksum_holds(Salt::default(), bytes, checksum, body);
    match AdnRequest::read(body) {
        Ok(AdnRequest::Announcement { packet_max_bytes, server_name }) if expected => {
            Some((server_name.to_owned(), packet_max_bytes))
        }
        _ => None,
    }
}
