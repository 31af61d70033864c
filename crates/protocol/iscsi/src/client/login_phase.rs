//! A connection that is logging in.

use std::time::Duration;

use rand_chacha::rand_core::RngCore;
use sanwire_buffer::{Frame, Packet, Slices};
use sanwire_core::Instant;

use super::seek::Attempt;
use super::session::FIRST_COMMAND;
use super::{Client, ClientAction, Connection, Failure, Stage, State};
use crate::ConnectionId;
use crate::datamover::Datamover;
use crate::login::{ClientAdmission, ClientLogin, ClientRefusal, LoginPlan};
use crate::receiver::{Destination, Step};
use crate::text::SEGMENT_MAX_BYTES;
use crate::wire::{LoginResponse, Opcode};

/// The other end of RDMA is nudged when it has not answered the first request for so long, and again after twice as long each time.
///
/// Linux' software iWARP loses a wake-up: it answers the request for a connection, and only then watches the socket for messages. A
/// login that comes in between stays unread until something else comes. Later, and at the end that has connected, nothing can be lost so:
/// that one watches before anybody sends.
const NUDGE_AFTER: Duration = Duration::from_millis(100);

/// A login under way, and its stream.
pub(super) struct Entering {
    mover: Box<dyn Datamover>,
    login: ClientLogin,
    /// When the other end is nudged, and how long it has had until then; `None` once it has answered, and where that is of no use.
    nudge: Option<(Instant, Duration)>,
}

impl Entering {
    pub(super) fn new(mover: Box<dyn Datamover>, plan: &LoginPlan<'_>, now: Instant) -> Self {
        let nudge = mover.reaches_memory().then_some((now + NUDGE_AFTER, NUDGE_AFTER));
        let mut entering = Entering { mover, login: ClientLogin::new(plan), nudge };
        entering.send();
        entering
    }

    /// Why there cannot be a session by this connection, if that is known.
    pub(super) fn trouble(&self) -> Option<Failure> {
        let reason = self.mover.trouble()?;
        let by_adapter = self.mover.carried().is_some();
        Some(if by_adapter { Failure::NoRdma { reason } } else { Failure::NoIser { reason } })
    }

    /// When there is something to do, before the login is given up.
    pub(super) fn timeout(&self, end: Instant) -> Instant {
        self.nudge.map_or(end, |(at, _)| at.min(end))
    }

    fn nudge(&mut self, now: Instant) {
        if let Some((at, after)) = self.nudge
            && at <= now
        {
            self.mover.nudge();
            self.nudge = Some((now + after * 2, after * 2));
        }
    }

    pub(super) fn mover(&self) -> &dyn Datamover {
        &*self.mover
    }

    pub(super) fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.mover.spaces()
    }

    pub(super) fn note_segment_bytes(&mut self, segment_bytes: usize) {
        self.mover.note_segment_bytes(segment_bytes);
    }

    pub(super) fn has_output(&self) -> bool {
        !self.mover.is_empty()
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Packet> {
        self.mover.pop()
    }

    /// The stream, with what came behind the login.
    pub(super) fn into_mover(self) -> Box<dyn Datamover> {
        self.mover
    }

    fn send(&mut self) {
        while let Some((request, text)) = self.login.poll_transmit() {
            self.mover.push(request.write(), Some(Slices::from(text)));
        }
    }

    /// So many bytes have arrived; gives how the login ended, once.
    pub(super) fn filled(&mut self, count: usize) -> Option<Result<ClientAdmission, Attempt>> {
        self.mover.filled(count);
        loop {
            match self.mover.poll() {
                Step::Starving => return None,
                Step::Torn => return Some(Err(self.torn())),
                Step::Header(header) => {
                    if header.data_bytes() > SEGMENT_MAX_BYTES {
                        return Some(Err(violation("it sent too much text in one PDU of a login")));
                    }
                    self.mover.place(Destination::Frame(Frame::from(vec![0; header.data_bytes()]), 0));
                }
                Step::Pdu(pdu) => {
                    self.nudge = None;
                    if pdu.header.opcode() != Some(Opcode::LoginResponse) {
                        return Some(Err(violation("it answered a login request with something else")));
                    }
                    let text = pdu.data.as_deref().unwrap_or(&[]);
                    let end = self.login.handle(&LoginResponse::read(&pdu.header), text);
                    self.send();
                    if let Some(end) = end {
                        return Some(end.map_err(Attempt::Refused));
                    }
                }
            }
        }
    }

    /// Nothing comes any more. By an adapter that says that the connection is lost, or did not come about: of a stream its driver tells.
    fn torn(&self) -> Attempt {
        match self.trouble() {
            failure if self.mover.carried().is_some() => Attempt::Ended(failure.unwrap_or(Failure::LoginClosed)),
            Some(failure) => Attempt::Refused(ClientRefusal::Unavailable(failure)),
            None => violation("its stream is damaged"),
        }
    }
}

impl Client {
    /// A connection is open.
    pub fn connected(&mut self, connection: ConnectionId, now: Instant) {
        self.enter(connection, None, now);
    }

    /// An adapter is opening a connection, which this datamover has: it sends when that is done, and says when it cannot be.
    pub fn connected_over(&mut self, connection: ConnectionId, mover: Box<dyn Datamover>, now: Instant) {
        self.enter(connection, Some(mover), now);
    }

    /// Begins a login, over a datamover that is made for it if none is given.
    fn enter(&mut self, connection: ConnectionId, own: Option<Box<dyn Datamover>>, now: Instant) {
        let (tsih, command_number) = match &self.state {
            State::Seeking(None) => (0, FIRST_COMMAND),
            State::Seeking(Some(session)) | State::Live(session) => (session.tsih, session.command_number()),
            State::Leaving(_) | State::Closed => return,
        };
        let known = self.connections.iter_mut().find(|known| known.id == connection);
        let Some(known) = known.filter(|known| matches!(known.stage, Stage::Opening)) else { return };
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        let (number, md5_only) = (known.number, self.seek.md5_only);
        let make = self.fallbacks.get(&known.portal).copied().unwrap_or(self.make_datamover);
        let mover = own.unwrap_or_else(|| make(seed));
        let is_iser = mover.reaches_memory();
        let plan =
            LoginPlan { config: &self.config, tsih, connection: number, command_number, md5_only, is_iser, seed };
        known.since = now;
        known.stage = Stage::Login(Box::new(Entering::new(mover, &plan, now)));
    }

    /// Bytes of a login have arrived.
    pub(super) fn filled_login(&mut self, at: usize, count: usize, now: Instant) {
        let Stage::Login(entering) = &mut self.connections[at].stage else { return };
        let Some(end) = entering.filled(count) else { return };
        let known = self.connections.swap_remove(at);
        match end {
            Ok(brought) => self.admit(known, brought, now),
            Err(attempt) => {
                self.actions.push_back(ClientAction::Close { connection: known.id });
                let attempt = if self.falls_back(&known) { Attempt::Older } else { attempt };
                self.attempt_failed(attempt, now);
            }
        }
        self.follow_up(now);
        self.send_waiting();
    }
}

impl Client {
    /// A login has failed. Whether the target has told how another one may do better, for the first time: connections to this portal are as
    /// it wants them from now on. Where that does not do better, the next one is as ever.
    fn falls_back(&mut self, known: &Connection) -> bool {
        let Stage::Login(entering) = &known.stage else { return false };
        let had = self.fallbacks.remove(&known.portal);
        let make = entering.mover().fallback().filter(|_| had.is_none());
        make.is_some_and(|make| self.fallbacks.insert(known.portal, make).is_none())
    }
}

impl Stage {
    /// Time has passed: nudges an end that does not answer a login.
    pub(super) fn nudge(&mut self, now: Instant) {
        if let Stage::Login(entering) = self {
            entering.nudge(now);
        }
    }
}

fn violation(what: &str) -> Attempt {
    Attempt::Refused(ClientRefusal::Unavailable(Failure::Protocol { what: what.to_owned() }))
}
