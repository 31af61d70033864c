//! The thread that takes TCP connections and sees them through their logins, so that logins never disturb the shards.

mod absences;
mod accounts;
mod login;
mod parts;
mod places;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sanwire_core::{Alarm, Deadlines, Instant};
use sanwire_io::{Clock, Interest, Poller, descriptors};

use self::absences::Absences;
pub(crate) use self::accounts::{LoginAccounts, LoginResults};
pub(crate) use self::login::turn_away;
use self::login::{Login, Service};
pub(crate) use self::parts::{Arrival, FrontDeskParts, Portal};
use self::places::Places;
use crate::channel::{Channel, Incoming};
use crate::front::{Caller, LoginOutcome, LoginService, Newcomer, NexusSelection, Offence};
use crate::management_queue::{Content, QueuedRequest};
use crate::messages::{AdmittedConnection, ShardMessage};
use crate::random;
use crate::refusals::{Burst, Refusals};
use crate::registry::Place;

/// Connections that one listener has accepted before those that have input get their turn: fewer than the logins that are
/// attended to in a turn, so that no flood of newcomers pushes out those who go on with theirs.
const ACCEPTS_MAX: usize = 16;

/// How long the answer to a login that is refused may take on its way. An adapter keeps it for an initiator that has no receive for
/// it, for ever.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long no connection is taken after the system was short of something.
const BREATHER: Duration = Duration::from_millis(100);

/// Why a login was given up that nobody refused.
const PUSHED_OUT: &str = "too many logins at once, and the most of them from there: a newer one has its place";

/// What to do about it.
const LIMIT_ADVICE: &str = "; allow it more (`ulimit -n`, or LimitNOFILE= of its service) and start it again";

/// Keys below this are those of listeners.
const FIRST_LOGIN: u64 = 1 << 16;

/// The logins that there are.
pub(crate) struct LoginListener {
    parts: FrontDeskParts,
    poller: Poller,
    /// By keys that are not used again.
    logins: BTreeMap<u64, Login>,
    /// When they have taken too long.
    deadlines: Deadlines<u64>,
    /// Which of them there is room for.
    places: Places,
    /// Told by the last wait.
    ready: Vec<(u64, Interest)>,
    next_key: u64,
    refusals: Refusals,
    /// Portals at which nothing listens now.
    absences: Absences,
    /// Listeners are not watched until then.
    pause_until: Option<Instant>,
    /// Somebody was told that the system is short of something, and no connection was taken since.
    has_warned: bool,
}

/// Runs until it is told to stop.
pub(crate) fn run(parts: FrontDeskParts) {
    if let Err(error) = LoginListener::new(parts).serve() {
        tracing::error!("no more connections are taken: {error}; start the server again");
    }
}

impl LoginListener {
    pub(crate) fn new(parts: FrontDeskParts) -> Self {
        LoginListener {
            places: Places::new(Arc::clone(&parts.accounts)),
            parts,
            poller: Poller::with_spin(Duration::ZERO),
            logins: BTreeMap::new(),
            deadlines: Deadlines::default(),
            ready: Vec::new(),
            next_key: FIRST_LOGIN,
            refusals: Refusals::default(),
            absences: Absences::default(),
            pause_until: None,
            has_warned: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.logins.len()
    }

    fn serve(mut self) -> io::Result<()> {
        for (key, listener) in self.parts.listeners() {
            self.poller.add_stream(listener, key, Interest::READABLE)?;
        }
        let clock = Clock::new();
        while !self.parts.stop.load(Ordering::Acquire) {
            let deadline = self.deadline();
            self.poller.wait(&[], &[], Some(&self.parts.waker), deadline, &clock)?;
            self.turn(clock.now())?;
        }
        Ok(())
    }

    /// When there is something to do though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = [self.deadlines.next_at(), self.pause_until, self.absences.next_at()];
        own.into_iter().chain([self.refusals.poll_timeout()]).flatten().min()
    }

    /// Does what there is to do; gives how many connections were ready.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn turn(&mut self, now: Instant) -> io::Result<usize> {
        let mut ready = std::mem::take(&mut self.ready);
        let count = self.poller.poll_streams(&mut |key, interest| ready.push((key, interest)))?;
        // Who is here already goes first: newcomers may push out who has not said anything.
        for (key, interest) in ready.iter().filter(|(key, _)| *key >= FIRST_LOGIN) {
            self.attend(*key, interest.readable, now);
        }
        for (key, _) in ready.drain(..).filter(|(key, _)| *key < FIRST_LOGIN) {
            self.accept(key as usize, now);
        }
        self.ready = ready;
        self.handle_timeouts(now);
        Ok(count)
    }

    fn accept(&mut self, portal: usize, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            let Some(Portal { listener: Some(listener), group_tag, logins }) = self.parts.portals.get_mut(portal)
            else {
                return;
            };
            match listener.accept() {
                Ok(Some(Incoming { channel, peer, queue_pair })) => {
                    let (group_tag, logins) = (*group_tag, Arc::clone(logins));
                    self.has_warned = false;
                    let begun = channel.portal().and_then(|(address, _)| {
                        let caller = Caller { portal: (address, group_tag), peer, queue_pair };
                        self.begin(channel, caller, &*logins, now)
                    });
                    if let Err(error) = begun {
                        let reason = format!("the connection is turned away: {error}");
                        self.note(peer.ip().to_canonical(), Service::of(&*logins), &reason, now);
                    }
                }
                Ok(None) => return,
                Err(error) if listener.is_gone(&error) => return self.leave_portal(portal, &error, now),
                Err(error) => {
                    self.warn(&error, now);
                    return self.pause(now);
                }
            }
        }
    }

    /// Says once why no connections are taken, however often it is tried again.
    fn warn(&mut self, error: &io::Error, now: Instant) {
        if std::mem::replace(&mut self.has_warned, true) {
            return;
        }
        let advice = if descriptors::are_used_up(error) { LIMIT_ADVICE } else { "" };
        if let Some(unlogged) = self.parts.accounts.next_line(now) {
            tracing::warn!("no connections are taken until others end: {error}{advice}{unlogged}");
        }
    }

    /// Begins with a connection that came in.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn begin(
        &mut self,
        channel: Channel,
        caller: Caller,
        logins: &dyn LoginService,
        now: Instant,
    ) -> io::Result<()> {
        let address = caller.peer.ip().to_canonical();
        let is_local = address.is_loopback() || address == caller.portal.0.ip().to_canonical();
        let (seed, by_adapter) = (random::bytes()?, caller.queue_pair.is_some());
        let is_beyond = descriptors::number(channel.as_fd()) >= self.parts.budget.descriptors_max;
        if by_adapter && is_beyond {
            // An adapter's connection takes several descriptors, and logins are counted as if each took one.
            return Err(io::Error::other(no_descriptors()));
        }
        let key = self.next_key;
        self.poller.add_stream(&channel, key, Interest::READABLE)?;
        self.next_key += 1;
        let machine = logins.begin(caller, seed, now);
        let (service, watched) = (Service::of(logins), Interest::READABLE);
        let alarm = Alarm::default();
        let (is_over, closes_at) = (false, None);
        let login = Login { channel, machine, alarm, service, peer: address, watched, is_beyond, is_over, closes_at };
        self.logins.insert(key, login);
        self.note_deadline(key);
        let is_stranger = !logins.may_permit(address, is_local);
        if let Some(victim) = self.places.take(key, address, is_stranger)
            && let Some(login) = self.remove(victim)
        {
            self.note(login.peer, login.service, PUSHED_OUT, now);
        }
        if by_adapter {
            // It has the request for the connection, of which its descriptor says nothing.
            self.attend(key, true, now);
        }
        Ok(())
    }

    /// A login has failed: the log and the audit log are to say so.
    fn note(&mut self, peer: IpAddr, of: Service, reason: &str, now: Instant) {
        self.parts.accounts.note_result(of.results, |results| results.refused += 1);
        if self.refusals.note(peer, of.login, reason, now)
            && let Some(unlogged) = self.parts.accounts.next_line(now)
        {
            tracing::warn!("a login from {peer} is refused: {reason}{unlogged}");
        }
    }

    /// The connection is gone, or goes to a shard.
    fn remove(&mut self, key: u64) -> Option<Login> {
        self.places.leave(key);
        let mut login = self.logins.remove(&key)?;
        self.deadlines.forget(key, &mut login.alarm);
        Some(login)
    }

    /// Takes note of when a login will have taken too long.
    fn note_deadline(&mut self, key: u64) {
        if let Some(login) = self.logins.get_mut(&key)
            && let Some(at) = login.machine.poll_timeout()
        {
            self.deadlines.note(key, &mut login.alarm, at);
        }
    }

    /// Goes on with a login that has input, or room for output.
    fn attend(&mut self, key: u64, is_readable: bool, now: Instant) {
        let Some(login) = self.logins.get_mut(&key) else { return };
        if is_readable && !login.receive(now) {
            return self.lose(key);
        }
        if login.machine.has_spoken() {
            self.places.has_spoken(key);
        }
        self.advance(key, now);
    }

    /// A connection has ended before its login.
    fn lose(&mut self, key: u64) {
        if let Some(login) = self.remove(key).filter(|login| !login.is_over) {
            self.parts.accounts.note_result(login.service.results, |results| results.lost += 1);
        }
    }

    /// Sends what a login has to say, and sees whether it has come to an end.
    fn advance(&mut self, key: u64, now: Instant) {
        let Some(login) = self.logins.get_mut(&key) else { return };
        let outcome = login.machine.poll_outcome();
        if login.transmit().is_err() {
            login.is_over |= outcome.is_some();
            return self.lose(key);
        }
        match outcome {
            Some(LoginOutcome::Passed(newcomer)) => return self.hand_over(key, newcomer, now),
            Some(LoginOutcome::Refused(reason)) => {
                login.is_over = true;
                let (peer, service) = (login.peer, login.service);
                self.note(peer, service, &reason, now);
            }
            Some(LoginOutcome::Redirected(note)) => {
                self.parts.accounts.note_result(login.service.results, |results| results.redirected += 1);
                if let Some(unlogged) = self.parts.accounts.next_line(now) {
                    tracing::info!("a login from {} is redirected: {note}{unlogged}", login.peer);
                }
                login.is_over = true;
            }
            Some(LoginOutcome::Lost) => return self.lose(key),
            None => {}
        }
        let Some(login) = self.logins.get_mut(&key) else { return };
        if login.is_over {
            let closes_at = *login.closes_at.get_or_insert(now + ANSWER_MAX);
            if closes_at <= now || login.is_all_sent() {
                self.remove(key);
                return;
            }
            self.deadlines.note(key, &mut login.alarm, closes_at);
        }
        let wanted = Interest { readable: true, writable: login.channel.wants_write() };
        if wanted != login.watched && self.poller.change_stream(&login.channel, key, wanted).is_ok() {
            login.watched = wanted;
        }
    }

    fn hand_over(&mut self, key: u64, newcomer: Newcomer, now: Instant) {
        let Some(login) = self.remove(key) else { return };
        let place = match self.place_for(&login, &newcomer) {
            Ok(place) => place,
            Err(why) => {
                let initiator = newcomer.port.initiator;
                turn_away(login.channel, newcomer.login);
                let reason = format!("{initiator} is turned away: {why}");
                return self.note(login.peer, login.service, &reason, now);
            }
        };
        self.parts.accounts.note_result(login.service.results, |results| results.passed += 1);
        let Place { shard, admission, seat, loser } = place;
        if let Some((shard, nexus)) = loser {
            self.parts.shards[shard].send(ShardMessage::Drop(NexusSelection::One(nexus)));
        }
        let arrival = Arrival { channel: login.channel, newcomer, admission, seat };
        // One that belongs in a shard, whoever else is there, takes nothing over from a session of another shard.
        let is_at_home = arrival.newcomer.shard.is_some();
        let newcomer = AdmittedConnection::new(self.parts.shards[shard].clone(), Box::new(arrival));
        // All of them each time, so that newcomers keep their order.
        for (index, other) in self.parts.shards.iter().enumerate() {
            if index != shard && !is_at_home {
                other.send(ShardMessage::Look(Arc::clone(&newcomer)));
            }
        }
    }

    /// Where a login goes on, or why it cannot.
    fn place_for(&mut self, login: &Login, newcomer: &Newcomer) -> Result<Place, String> {
        self.poller.remove_stream(&login.channel).map_err(|error| error.to_string())?;
        if login.is_beyond {
            return Err(no_descriptors());
        }
        self.parts.registry.place(newcomer).map_err(|full| {
            let advice = if full.lacks_descriptors { LIMIT_ADVICE } else { "" };
            let cause = if full.lacks_descriptors { ", and no descriptors left for more" } else { "" };
            format!("{full}{cause}{advice}")
        })
    }

    fn handle_timeouts(&mut self, now: Instant) {
        if self.pause_until.is_some_and(|until| until <= now) {
            self.watch_listeners(Interest::READABLE);
            self.pause_until = None;
        }
        self.return_to_portals(now);
        for (key, at) in self.deadlines.take_due(now) {
            if let Some(login) = self.logins.get_mut(&key)
                && login.alarm.rings(at)
            {
                login.machine.handle_timeout(now);
                self.advance(key, now);
                self.note_deadline(key);
            }
        }
        while let Some(Burst { from, login, reason, count, .. }) = self.refusals.poll(now) {
            if count > 1
                && let Some(unlogged) = self.parts.accounts.next_line(now)
            {
                let more = count - 1;
                tracing::warn!("logins from {from} were refused {more} more times within a second: {reason}{unlogged}");
            }
            // What cannot be written down stands in the log.
            let offence = Offence { what: format!("{login}: {reason}"), is_proven: false };
            let content = Content::Refused(offence, count);
            self.parts.inbox.put(QueuedRequest { client: None, address: from.to_string(), content });
        }
    }

    /// Takes no connections for a moment.
    fn pause(&mut self, now: Instant) {
        self.watch_listeners(Interest::default());
        self.pause_until = Some(now + BREATHER);
    }

    fn watch_listeners(&mut self, interest: Interest) {
        for (key, listener) in self.parts.listeners() {
            // A listener was added when the thread began.
            drop(self.poller.change_stream(listener, key, interest));
        }
    }
}

fn no_descriptors() -> String {
    format!("the process has no descriptors left{LIMIT_ADVICE}")
}

#[cfg(test)]
mod tests;
