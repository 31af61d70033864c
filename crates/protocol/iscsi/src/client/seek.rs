//! The search for the target: portals in turn, waiting in between, redirections, and logins.

use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use sanwire_core::Instant;

use super::backoff::Backoff;
use super::link::{Link, requests_max};
use super::session::{Beginning, FIRST_CONNECTION, LostStage, Session};
use super::{Client, ClientAction, ClientEvent, Connection, Failure, Stage, State};
use crate::ConnectionId;
use crate::login::{ClientAdmission, ClientRefusal};
use crate::serial::Serial;

/// Portals that are tried.
const PORTALS_MAX: usize = 16;

/// Redirections that are followed one after the other.
const REDIRECTIONS_MAX: u8 = 8;

/// How a connection did not come about.
pub(super) enum Attempt {
    /// Nobody answered.
    Unanswered,
    /// It ended during the login, without a word.
    Ended(Failure),
    /// The target said why.
    Refused(ClientRefusal),
    /// The target speaks only an older revision of what carries connections: the next one asks for that.
    Older,
}

/// How the search for a session goes.
pub(super) struct Seek {
    /// Since when: patience is counted from there.
    since: Instant,
    /// It lasts for longer than anybody waits.
    is_out_of_patience: bool,
    /// No connection is opened before.
    at: Instant,
    portals: Vec<SocketAddr>,
    next: usize,
    /// The next one was learned while another was tried: it comes next in any case.
    is_fresh: bool,
    /// What has failed in this round over the portals, and what of it was a refusal that waiting does not mend.
    failures: usize,
    refusals: usize,
    /// Where the target wants us for now.
    redirected: Option<SocketAddr>,
    redirections: u8,
    /// The target has refused a list of CHAP algorithms.
    pub(super) md5_only: bool,
    backoff: Backoff,
    /// What went wrong last, other than silence.
    pub(super) last: Option<Failure>,
    /// Sessions in a row in which the target broke the rules before it answered a command.
    pub(super) violations: u8,
}

impl Seek {
    pub(super) fn new(portals: Vec<SocketAddr>, now: Instant) -> Self {
        Seek {
            since: now,
            is_out_of_patience: false,
            at: now,
            portals,
            next: 0,
            is_fresh: false,
            failures: 0,
            refusals: 0,
            redirected: None,
            redirections: 0,
            md5_only: false,
            backoff: Backoff::default(),
            last: None,
            violations: 0,
        }
    }

    /// A session was lost. If it had never worked, this is still the same search: what was asked in that session has no patience of
    /// its own.
    pub(super) fn begin(&mut self, is_settled: bool, at: Instant, now: Instant) {
        self.is_out_of_patience = false;
        if is_settled {
            (self.since, self.backoff) = (now, Backoff::default());
        }
        (self.failures, self.refusals, self.redirected, self.redirections) = (0, 0, None, 0);
        self.at = at;
    }

    /// The target may be at these portals, and at those that were known before: these come first, from now on.
    fn add_portals(&mut self, mut portals: Vec<SocketAddr>) {
        let is_tried = self.portals.get(self.next).copied();
        portals.extend(self.portals.iter().filter(|known| !portals.contains(known)).copied().collect::<Vec<_>>());
        portals.truncate(PORTALS_MAX);
        let is_same = portals.len() == self.portals.len() && portals.iter().all(|portal| self.portals.contains(portal));
        let next = portals.iter().position(|portal| is_same && Some(*portal) == is_tried);
        (self.portals, self.next) = (portals, next.unwrap_or(0));
        if !is_same {
            (self.failures, self.refusals, self.is_fresh) = (0, 0, true);
        }
    }

    /// A command was answered: the target keeps the rules.
    pub(super) fn settle(&mut self) {
        (self.violations, self.last) = (0, None);
    }

    fn portal(&self) -> Option<SocketAddr> {
        self.redirected.or_else(|| self.portals.get(self.next % self.portals.len().max(1)).copied())
    }

    /// Goes on to the next portal; after the last one there is a pause.
    fn fail(&mut self, random: &mut ChaCha20Rng, now: Instant) {
        if self.is_fresh {
            // What has failed was none of this round.
            (self.redirected, self.redirections, self.at) = (None, 0, now);
            return;
        }
        self.next = (self.next + 1) % self.portals.len().max(1);
        (self.redirected, self.redirections) = (None, 0);
        self.failures += 1;
        if self.failures >= self.portals.len() {
            (self.failures, self.refusals) = (0, 0);
            self.at = now + self.backoff.next(random);
        }
    }

    /// Follows a redirection (RFC 7143 11.13.5), or says why not.
    fn redirect(&mut self, address: &str, is_permanent: bool) -> Result<(), Failure> {
        self.redirections += 1;
        let bare = address.rsplit_once(',').map_or(address, |(bare, _)| bare);
        let ip = bare.trim_matches(['[', ']']).parse().map(|ip| SocketAddr::new(ip, crate::ISCSI_PORT));
        let Ok(portal) = bare.parse::<SocketAddr>().or(ip) else {
            let reason = format!("it wants to be asked at {address}, which is no IP address: connect there yourself");
            return Err(Failure::Refused { reason });
        };
        if self.redirections > REDIRECTIONS_MAX {
            let reason = format!("it was redirected {REDIRECTIONS_MAX} times, at last to {address}");
            return Err(Failure::Refused { reason });
        }
        match self.portals.get_mut(self.next) {
            Some(known) if is_permanent && !self.is_fresh => (*known, self.redirected) = (portal, None),
            _ => self.redirected = Some(portal),
        }
        Ok(())
    }
}

impl Client {
    /// Whether the target is sought, for the first time or again.
    #[must_use]
    pub fn is_seeking(&self) -> bool {
        matches!(self.state, State::Seeking(_))
    }

    /// Whether the target is sought for longer than anybody waits.
    pub(super) fn is_out_of_patience(&self) -> bool {
        self.is_seeking() && self.seek.is_out_of_patience
    }

    /// The target's host has these addresses now: they are tried next, before those that are known.
    pub fn learn_portals(&mut self, portals: Vec<SocketAddr>) {
        self.seek.add_portals(portals);
    }

    /// How long the search may last.
    fn patience(&self) -> Option<Duration> {
        if self.was_connected {
            self.config.reconnect_patience.filter(|_| !self.seek.is_out_of_patience)
        } else {
            Some(self.config.connect_patience)
        }
    }

    /// What was asked has failed for its caller and must not be executed any more. So a session that could be taken up
    /// again is forgotten: a new one makes the target end the tasks of the old one (RFC 7143 6.3.5).
    fn run_out_of_patience(&mut self, failure: Failure) {
        if !self.was_connected {
            return self.give_up(failure);
        }
        self.seek.is_out_of_patience = true;
        self.close_where(|_| true);
        self.state = State::Seeking(None);
        let given = self.tasks.take_where(|_| true);
        self.fail(given, &failure);
        self.events.push_back(ClientEvent::OutOfPatience(failure));
    }

    pub(super) fn seek_timeout(&self) -> Option<Instant> {
        let at = self.connections.is_empty().then_some(self.seek.at);
        let end = self.patience().map(|patience| self.seek.since + patience);
        at.into_iter().chain(end).min()
    }

    /// Opens the connection that is due.
    pub(super) fn seek_on(&mut self, now: Instant) {
        let growth = self.growth();
        match &mut self.state {
            State::Seeking(suspended) => {
                suspended.take_if(|session| session.retained_until < now);
                let number = suspended.as_ref().and_then(|session| session.lost.first()).map(|lost| lost.number);
                let is_over = self.patience().is_some_and(|patience| self.seek.since + patience <= now);
                let Some(portal) = self.seek.portal().filter(|_| !is_over) else {
                    let failure = self.seek.last.take().unwrap_or(Failure::NoAnswer);
                    return self.run_out_of_patience(failure);
                };
                if self.connections.is_empty() && self.seek.at <= now {
                    self.seek.is_fresh &= self.seek.redirected.is_some();
                    self.open(portal, number.unwrap_or(FIRST_CONNECTION), now);
                }
            }
            State::Live(session) => {
                if session.wants_more(growth) && session.grow.as_ref().is_some_and(|(at, _)| *at <= now) {
                    let (number, portal) = (session.next_connection(), session.portal);
                    self.open(portal, number, now);
                }
            }
            State::Leaving(_) | State::Closed => {}
        }
    }

    fn open(&mut self, portal: SocketAddr, number: u16, now: Instant) {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.actions.push_back(ClientAction::Connect { connection: id, to: portal });
        let stage = Stage::Opening;
        self.connections.push(Connection { id, number, portal, since: now, stage, is_announced: false });
    }

    /// A connection is logged in.
    pub(super) fn admit(&mut self, mut known: Connection, brought: ClientAdmission, now: Instant) {
        let Stage::Login(entering) = std::mem::replace(&mut known.stage, Stage::Opening) else { return };
        let (mover, expected_status) = (entering.into_mover(), Serial(brought.status_number).next());
        let unexpected_max = match &self.state {
            State::Live(session) | State::Seeking(Some(session)) => session.parameters.unexpected_max,
            _ => brought.session.unexpected_max,
        };
        let requests_max = requests_max(&*mover, unexpected_max);
        let commands_max = self.config.commands_max;
        let link = Link::new(mover, brought.connection, commands_max, requests_max, expected_status, now);
        known.stage = Stage::Full(Box::new(link));
        let (id, portal) = (known.id, known.portal);
        self.connections.push(known);
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Seeking(None) => self.begin(portal, brought, now),
            State::Seeking(Some(mut session)) => {
                // What has arrived meanwhile must not be sent again under its old number: the target would not answer.
                session.note_window(Serial(brought.expected_command_number), Serial(brought.max_command_number));
                self.resume(session, now);
            }
            State::Live(mut session) => {
                (session.grow, session.was_wide) = (Some((now, Backoff::default())), true);
                self.state = State::Live(session);
                self.seek_on(now);
            }
            other => self.state = other,
        }
        // What came behind the last answer.
        self.filled(id, 0, now);
    }

    fn begin(&mut self, portal: SocketAddr, brought: ClientAdmission, now: Instant) {
        let beginning = Beginning {
            tsih: brought.tsih,
            parameters: brought.session,
            connection: brought.connection,
            alias: brought.alias,
            portal,
            expected_command: Serial(brought.expected_command_number),
            max_command: Serial(brought.max_command_number),
        };
        self.state = State::Live(Box::new(Session::new(beginning, &self.config, now)));
        self.tasks.restart(self.was_connected && self.holds_after_restart);
        let doubtful = self.tasks.take_in_doubt();
        self.fail(doubtful, &Failure::InDoubt);
        self.tell_connected(false);
        self.seek_on(now);
    }

    /// A session without connections has one again: the login of the same number has ended the lost one (RFC 7143
    /// 6.3.4).
    fn resume(&mut self, mut session: Box<Session>, now: Instant) {
        if let Some(first) = session.lost.first_mut() {
            first.stage = LostStage::Waiting { until: now, is_known: true };
        }
        session.grow = session.grow.map(|(_, backoff)| (now, backoff));
        self.state = State::Live(session);
        self.tell_connected(true);
        self.recover_connections(now);
        self.seek_on(now);
    }

    fn tell_connected(&mut self, resumed: bool) {
        self.was_connected = true;
        if let Some(server) = self.server() {
            self.events.push_back(ClientEvent::Connected { server: Box::new(server), resumed });
        }
    }

    /// A connection did not come about.
    pub(super) fn attempt_failed(&mut self, attempt: Attempt, now: Instant) {
        let is_refused = matches!(attempt, Attempt::Refused(_));
        match &mut self.state {
            State::Live(session) if matches!(attempt, Attempt::Older) => {
                session.grow = session.grow.take().map(|(_, backoff)| (now, backoff));
                self.seek_on(now);
            }
            State::Live(session) => {
                // The session does well without it. What the target refuses once it refuses again.
                let random = &mut self.random;
                session.grow = session.grow.take().filter(|_| !is_refused).map(|(_, mut backoff)| {
                    let at = now + backoff.next(random);
                    (at, backoff)
                });
            }
            State::Seeking(suspended) => {
                if is_refused && suspended.take().is_some() {
                    // The target has forgotten the session: a new one begins.
                    self.seek.at = now;
                } else {
                    self.seek_failed(attempt, now);
                }
                self.seek_on(now);
            }
            State::Leaving(_) | State::Closed => {}
        }
    }

    fn seek_failed(&mut self, attempt: Attempt, now: Instant) {
        let seek = &mut self.seek;
        let refusal = match attempt {
            Attempt::Refused(refusal) => Some(refusal),
            Attempt::Ended(failure) => {
                seek.last = Some(failure);
                None
            }
            Attempt::Unanswered => None,
            Attempt::Older => {
                seek.at = now;
                return;
            }
        };
        let failure = match refusal {
            None => None,
            Some(ClientRefusal::Md5Only) if !seek.md5_only => {
                (seek.md5_only, seek.at) = (true, now);
                return;
            }
            Some(ClientRefusal::Md5Only) => {
                seek.refusals += 1;
                Some(Failure::NotAuthentic { reason: "the target refuses every CHAP algorithm that we know".into() })
            }
            Some(ClientRefusal::Redirected { address, is_permanent }) => match seek.redirect(&address, is_permanent) {
                Ok(()) => {
                    seek.at = now;
                    return;
                }
                Err(failure) => Some(failure),
            },
            Some(ClientRefusal::Refused(failure)) => {
                seek.refusals += 1;
                Some(failure)
            }
            Some(ClientRefusal::Unavailable(failure)) => Some(failure),
        };
        let is_final = seek.refusals >= seek.portals.len() && !self.was_connected;
        seek.last = failure.or(seek.last.take());
        if is_final && let Some(failure) = seek.last.take() {
            return self.give_up(failure);
        }
        seek.fail(&mut self.random, now);
    }
}
