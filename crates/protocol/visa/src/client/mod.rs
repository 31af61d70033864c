//! The client's end: it finds its server, keeps the connection, and sees every command through to an answer.
//!
//! A lost link or a restarted server is a pause: commands wait, the client seeks, and after the reconnection each
//! command in doubt is asked again under its old number. A server that remembers the session answers from memory;
//! one that does not executes it, unless that could do harm: such commands end with [`Failure::InDoubt`].

mod answers;
mod found;
mod input;
mod seek;
mod types;

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::{Packet, Slices};
use sanwire_core::{Instant, Lun, Path, Protection};
use sanwire_exchange::{Asking, CommandId, Order, succession};
use sanwire_security::keys::{NO_PASSWORD, Randomness};

use self::answers::Orders;
pub use self::found::{discovery, found};
use self::seek::Seek;
pub use self::types::{ClientConfig, ClientEvent, Failure, ServerInfo};
use crate::channel::{Channel, Message, Patience};
use crate::counters::{Counters, Traffic};
use crate::wire::Kind;
use crate::wire::flow::Close;
use crate::wire::setup::Refusal;

/// A server that owes an answer for this long is asked whether it is there, and has as long to say so.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// How long a client that was refused at its first connection goes on to seek.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that lives.
struct Live {
    channel: Channel,
    info: ServerInfo,
    /// How long the last step of the handshake took: a round trip, before one was measured.
    accepted_in: Duration,
    answers: answers::Intake,
}

/// Somebody says that the server does not know the connection. It is asked.
struct Doubt {
    /// Until when it may answer.
    until: Instant,
    /// What had been heard of it before.
    heard: u64,
}

/// The client's end of VISA: one session with one server.
pub struct Client {
    config: ClientConfig,
    random: Randomness,
    session: u64,
    live: Option<Live>,
    seek: Option<Seek>,
    orders: Orders,
    was_connected: bool,
    /// Whether commands wait for [`Client::release`] after the server has forgotten the session.
    holds_after_restart: bool,
    /// Since when there is no connection.
    lost_at: Instant,
    /// There is none for longer than anybody waits.
    is_out_of_patience: bool,
    is_closed: bool,
    /// Why a server whose challenge was answered does not want us.
    refusal: Option<Refusal>,
    /// A server with another key than the pinned one has answered.
    other_server: Option<[u8; 32]>,
    /// The key of the server that has accepted us last.
    known_server: Option<[u8; 32]>,
    doubt: Option<Doubt>,
    loose: VecDeque<(Path, Packet)>,
    events: VecDeque<ClientEvent>,
    counters: Counters,
    /// Memory for what is decrypted.
    plain: Vec<u8>,
}

impl Client {
    /// A client that begins to seek its server.
    #[must_use]
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        let mut random = Randomness::new(config.seed);
        let session = succession::first(random.u64());
        let mut client = Client {
            config,
            random,
            session,
            live: None,
            seek: None,
            orders: Orders::default(),
            was_connected: false,
            holds_after_restart: false,
            lost_at: now,
            is_out_of_patience: false,
            is_closed: false,
            refusal: None,
            other_server: None,
            known_server: None,
            doubt: None,
            loose: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            plain: Vec::new(),
        };
        client.begin_seek(now);
        client
    }

    fn begin_seek(&mut self, now: Instant) {
        if !self.is_closed {
            let known = self.config.server_key.or(self.known_server);
            // The library refuses no key that we draw; if it did, the next attempt would draw another.
            self.seek = Seek::new(&self.config, self.session, known, &mut self.random, now).ok();
        }
    }

    /// Where the server is sought from now on.
    pub fn set_places(&mut self, places: Vec<Path>) {
        self.config.places = places;
    }

    /// What was dropped so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The server, while there is a connection.
    #[must_use]
    pub fn server(&self) -> Option<ServerInfo> {
        self.live.as_ref().map(|live| live.info.clone())
    }

    /// What went through the connection, while there is one.
    #[must_use]
    pub fn traffic(&self) -> Option<Traffic> {
        self.live.as_ref().map(|live| live.channel.traffic())
    }

    /// Commands without an answer.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.orders.in_transit()
    }

    /// How the packets of a logical unit are guarded, once it has answered on this connection.
    #[must_use]
    pub fn protection(&self, lun: Lun) -> Option<Protection> {
        let floor = self.live.as_ref()?.info.terms.protection_min;
        self.orders.level(lun).map(|level| level.max(floor))
    }

    /// Gives a command. It is sent at once, or after the reconnection.
    ///
    /// # Errors
    /// Gives the order back while as many are in transit as the server takes, from [`ClientEvent::OutOfPatience`] on until there is a
    /// connection again, or when the client is closed.
    pub fn order(&mut self, order: Order, now: Instant) -> Result<CommandId, Order> {
        let limit = match &self.live {
            Some(live) => live.info.commands_max.min(self.config.commands_max),
            None if self.is_closed || self.is_out_of_patience => return Err(order),
            None => self.config.commands_max,
        };
        let is_large = order.data_out.is_some();
        let (tag, id) = self.orders.insert(order, limit.into())?;
        if is_large {
            self.fail_what_is_too_large();
        }
        self.ask(tag, now);
        Ok(id)
    }

    /// Sends a command, while there is a connection.
    fn ask(&mut self, tag: u16, now: Instant) {
        let Some(live) = &mut self.live else { return };
        let Some(Asking { head, data, protection, .. }) = self.orders.request(tag) else { return };
        let protection = protection.max(live.info.terms.protection_min);
        live.channel.send(Message { tag, protection, head, data: data.map(Slices::from), cookie: None }, now);
        live.channel.set_patience(patience(false, live.info.keep_alive));
    }

    /// Asks what was not asked on this connection, but for what is held.
    fn ask_unasked(&mut self, now: Instant) {
        if self.live.is_some() {
            self.orders.unasked_tags().into_iter().for_each(|tag| self.ask(tag, now));
        }
    }

    /// A server drops what is larger than it takes, so that is never sent.
    fn fail_what_is_too_large(&mut self) {
        if let Some(limit_bytes) = self.live.as_ref().map(|live| live.info.transfer_max_bytes) {
            self.fail(|orders| orders.take_larger_than(limit_bytes), Failure::TooLarge);
        }
    }

    fn fail(&mut self, take: impl FnOnce(&mut Orders) -> Vec<(CommandId, Order)>, failure: Failure) {
        for (id, order) in take(&mut self.orders) {
            self.events.push_back(ClientEvent::Failed { id, failure, data_in: order.data_in });
        }
    }

    /// From now on, when a server that has forgotten the session is connected again, commands under way wait for
    /// [`Client::release`]: the layer above can first see (by new commands, which do not wait) whether the logical units
    /// are still the same. They wait through further reconnections.
    pub fn hold_after_restart(&mut self) {
        self.holds_after_restart = true;
    }

    /// Gives the commands that were held.
    pub fn release(&mut self, now: Instant) {
        self.orders.release();
        self.ask_unasked(now);
    }

    /// Gives up the commands for a logical unit that are held.
    pub fn abandon(&mut self, lun: Lun, failure: Failure) {
        self.fail(|orders| orders.take_held(lun), failure);
    }

    /// Gives up the command of this number, if it is held; it fails with [`Failure::InDoubt`].
    pub fn withdraw(&mut self, number: u64) {
        self.fail(|orders| orders.take_held_one(number), Failure::InDoubt);
    }

    /// Leaves the server. Every command without an answer fails.
    pub fn disconnect(&mut self) {
        self.farewell(Close::Session);
        self.close(Failure::Closed);
    }

    fn farewell(&mut self, what: Close) {
        let Some(live) = &mut self.live else { return };
        let path = live.channel.path();
        self.loose.extend(live.channel.seal(Kind::Close, &[what as u8]).map(|packet| (path, packet)));
    }

    fn close(&mut self, failure: Failure) {
        (self.is_closed, self.live, self.seek, self.doubt) = (true, None, None, None);
        self.fail(Orders::take_all, failure);
    }

    /// There is no connection any more.
    fn lose(&mut self, announced: bool, now: Instant) {
        self.doubt = None;
        if self.live.take().is_some() {
            (self.lost_at, self.is_out_of_patience) = (now, false);
            (self.refusal, self.other_server) = (None, None);
            self.events.push_back(ClientEvent::Lost { announced });
            self.orders.unask();
        }
        if self.seek.is_none() {
            self.begin_seek(now);
        }
    }

    /// TCP has lost the connection to there.
    pub fn lost(&mut self, path: Path, now: Instant) {
        if self.live.as_ref().is_some_and(|live| live.channel.path() == path) {
            self.lose(false, now);
        } else if self.live.is_none()
            && let Some(former) = self.seek.take_if(|seek| seek.lost(path))
        {
            // What was said on the way there is gone with it. Who ends each connection at once does not have us ask more often.
            self.begin_seek(now);
            self.seek = self.seek.take().map(|seek| seek.in_place_of(&former));
        }
    }

    /// What there is to tell.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// The next packet, and where it goes.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if let Some(loose) = self.loose.pop_front() {
            return Some(loose);
        }
        if let Some(seek) = &mut self.seek {
            self.loose.extend(seek.poll(&self.config.places, now));
        }
        if let Some(loose) = self.loose.pop_front() {
            return Some(loose);
        }
        let live = self.live.as_mut()?;
        let packet = live.channel.poll_transmit(now)?;
        Some((live.channel.path(), packet))
    }

    /// When [`Client::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let live = self.live.as_ref().map(|live| live.channel.poll_timeout());
        let (seek, doubt) = (self.seek.as_ref().map(Seek::poll_timeout), self.doubt.as_ref().map(|doubt| doubt.until));
        [live, seek, doubt, self.impatient_at()].into_iter().flatten().min()
    }

    fn impatient_at(&self) -> Option<Instant> {
        if self.live.is_some() || self.is_closed {
            return None;
        }
        if self.was_connected {
            let patience = self.config.reconnect_patience.filter(|_| !self.is_out_of_patience)?;
            return Some(self.lost_at + patience);
        }
        // Another password does not become right by waiting; another server could still answer, so not at once.
        let is_refused =
            self.refusal.is_some_and(|refusal| refusal == Refusal::NotAuthentic) || self.other_server.is_some();
        let patience = self.config.connect_patience;
        Some(self.lost_at + if is_refused { patience.min(REFUSED_TIMEOUT) } else { patience })
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.settle_doubt(now);
        if let Some(live) = &mut self.live {
            let is_alive = live.channel.handle_timeout(now);
            let is_worn = live.channel.is_worn();
            if !is_alive {
                self.lose(false, now);
            } else if is_worn && self.seek.is_none() {
                self.begin_seek(now);
            }
        }
        if self.impatient_at().is_some_and(|at| at <= now) {
            self.run_out_of_patience(now);
        }
        if self.seek.as_ref().is_some_and(|seek| seek.is_over(now)) {
            // A hint that was wrong: the server goes on.
            let goes_on = self.live.as_ref().is_some_and(|live| !live.channel.is_worn());
            self.seek = None;
            if !goes_on {
                self.begin_seek(now);
            }
        }
    }

    /// Why there is no connection.
    fn reason(&self) -> Failure {
        match (self.refusal, self.config.server_key, self.other_server) {
            (Some(Refusal::NotAuthentic), ..) if self.config.psk == NO_PASSWORD => Failure::NoPassword,
            (Some(Refusal::NotAuthentic), ..) => Failure::WrongPassword,
            (Some(Refusal::Full), ..) => Failure::Full,
            (_, Some(pinned), Some(received)) => Failure::OtherServer { pinned, received },
            _ => Failure::NoAnswer,
        }
    }

    /// What was asked has failed for its caller: a server that comes back is not asked again. What it executes already is
    /// not undone, but nothing that is asked later may overtake it: it ends with the session, before the next one begins.
    fn run_out_of_patience(&mut self, now: Instant) {
        let failure = self.reason();
        if self.was_connected {
            self.is_out_of_patience = true;
            self.fail(Orders::take_all, failure);
            self.events.push_back(ClientEvent::OutOfPatience(failure));
            self.session = succession::successor(self.session);
            self.begin_seek(now);
        } else {
            self.close(failure);
            self.events.push_back(ClientEvent::GivenUp(failure));
        }
    }

    /// A connection that was said to be unknown and has not answered since: the server is sought anew.
    fn settle_doubt(&mut self, now: Instant) {
        let Some(doubt) = self.doubt.take_if(|doubt| doubt.until <= now) else { return };
        if self.live.as_ref().is_some_and(|live| live.channel.heard() == doubt.heard) {
            self.lose(false, now);
        }
    }
}

/// How long a server may be silent: while it owes answers, not for long.
fn patience(is_idle: bool, keep_alive: Duration) -> Patience {
    Patience { silence: if is_idle { keep_alive * 3 } else { SILENCE_MAX }, answer: SILENCE_MAX }
}

#[cfg(test)]
mod tests;
