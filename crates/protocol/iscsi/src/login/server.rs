//! The target's end of one login: its stream, its time, its limits.

use std::net::IpAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sanwire_buffer::Packet;
use sanwire_core::Instant;

use super::exchange::{Answer, Exchange, Refusal};
use super::status::LoginStatus;
use super::{Admitted, Directory, LoginOutcome, Portal};
use crate::byte_stream::ByteStream;
use crate::datamover::Datamover;
use crate::name::Isid;
use crate::receiver::{Beginning, Destination, Pdu, Step};
use crate::text::SEGMENT_MAX_BYTES;
use crate::wire::{Header, LoginRequest, LoginResponse, Opcode};

/// How long a login may take, ...
const LOGIN_MAX: Duration = Duration::from_secs(15);

/// ... and the first request, which an initiator sends as soon as it is connected.
const FIRST_REQUEST_MAX: Duration = Duration::from_secs(5);

/// Requests of one login, at the most; with that, its bytes are limited too.
const REQUESTS_MAX: u32 = 64;

/// A reason for the log, at the most.
const REASON_MAX_CHARS: usize = 600;

/// How the stream of an iSER initiator over iWARP begins (RFC 5044 7.1).
const MPA_REQUEST: &[u8] = b"MPA ID Req Frame";

/// The target's end of one login.
pub struct ServerLogin {
    portal: Portal,
    peer: IpAddr,
    /// Goes to the session in the end.
    mover: Box<dyn Datamover>,
    exchange: Exchange,
    requests: u32,
    /// The number of the next answer.
    status_number: u32,
    begun_at: Instant,
    is_over: bool,
    outcome: Option<LoginOutcome>,
}

impl ServerLogin {
    /// A login that begins, over plain TCP. The seed must be another one each time, and nobody may be able to guess it.
    #[must_use]
    pub fn new(portal: Portal, peer: IpAddr, seed: [u8; 32], now: Instant) -> Self {
        ServerLogin::over(Box::new(ByteStream::new(0)), portal, peer, seed, now)
    }

    /// The same over this datamover.
    #[must_use]
    pub fn over(mover: Box<dyn Datamover>, portal: Portal, peer: IpAddr, seed: [u8; 32], now: Instant) -> Self {
        let mut random = ChaCha20Rng::from_seed(seed);
        ServerLogin {
            portal,
            peer,
            mover,
            status_number: random.next_u32(),
            exchange: Exchange::new(portal, peer, random),
            requests: 0,
            begun_at: now,
            is_over: false,
            outcome: None,
        }
    }

    /// Bytes have arrived.
    pub fn handle_input(&mut self, mut bytes: &[u8], directory: &dyn Directory, now: Instant) {
        self.handle_timeout(now);
        if !self.has_spoken() && !self.portal.carrier.is_rdma() && bytes.starts_with(MPA_REQUEST) {
            let reason =
                "an iSER initiator has come to a portal of plain iSCSI: let it use iscsi://, or serve iser: there";
            self.end(LoginOutcome::Refused(reason.to_owned()));
        }
        while !self.is_over && !bytes.is_empty() {
            let taken = self.mover.take(bytes);
            bytes = &bytes[taken..];
            self.advance(directory);
        }
        if let Some(LoginOutcome::Admitted(admitted)) = &mut self.outcome {
            admitted.leftover.extend_from_slice(bytes);
        }
    }

    /// The adapter that carries the connection has something, perhaps: to be called at once, and whenever its descriptor is readable.
    pub fn handle_ready(&mut self, directory: &dyn Directory, now: Instant) {
        self.handle_timeout(now);
        self.mover.filled(0);
        self.advance(directory);
    }

    /// Whether nothing is left here of what is to be sent.
    #[must_use]
    pub fn is_all_sent(&self) -> bool {
        self.mover.is_empty() && self.mover.queued_bytes() == 0
    }

    /// Time has passed: a login that takes too long is refused.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_over || now < self.deadline() {
            return;
        }
        let reason = if self.has_spoken() {
            format!("the login took more than {} seconds", LOGIN_MAX.as_secs())
        } else {
            format!("no login request came within {} seconds", FIRST_REQUEST_MAX.as_secs())
        };
        self.end(LoginOutcome::Refused(reason));
    }

    /// When [`ServerLogin::handle_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_over).then(|| self.deadline())
    }

    /// Whether a whole request has arrived.
    #[must_use]
    pub fn has_spoken(&self) -> bool {
        self.requests > 0
    }

    fn deadline(&self) -> Instant {
        self.begun_at + if self.has_spoken() { LOGIN_MAX } else { FIRST_REQUEST_MAX }
    }

    /// The next bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Packet> {
        self.mover.pop()
    }

    /// How it ended, once; then only transmits are left.
    pub fn poll_outcome(&mut self) -> Option<LoginOutcome> {
        self.outcome.take()
    }

    fn advance(&mut self, directory: &dyn Directory) {
        while !self.is_over {
            match self.mover.poll() {
                Step::Starving => return,
                Step::Header(header) => self.handle_header(&header),
                Step::Pdu(pdu) => self.handle_pdu(pdu, directory),
                Step::Torn => self.end(self.why_torn()),
            }
        }
    }

    fn why_torn(&self) -> LoginOutcome {
        match self.mover.trouble() {
            Some(reason) => LoginOutcome::Refused(reason),
            None if self.mover.carried().is_some() => LoginOutcome::Lost,
            None => LoginOutcome::Refused("its stream broke".to_owned()),
        }
    }

    /// A header with data: is it worth the memory?
    fn handle_header(&mut self, header: &Header) {
        if !self.expects(header) {
            return;
        }
        if header.data_bytes() > SEGMENT_MAX_BYTES {
            let reason = format!("its request has {} bytes, more than a login may", header.data_bytes());
            return self.refuse(&LoginRequest::read(header), Refusal::new(LoginStatus::InitiatorError, reason));
        }
        self.mover.place(Destination::Beginning(Beginning::of(SEGMENT_MAX_BYTES)));
    }

    /// RFC 7143 6.3: until the login is over, there are login requests only. Anything else ends the connection, with an
    /// answer if a login has begun.
    fn expects(&mut self, header: &Header) -> bool {
        if header.opcode() == Some(Opcode::LoginRequest) {
            return true;
        }
        let reason = "it sent something else than a login request".to_owned();
        if self.exchange.has_begun() {
            let request = LoginRequest { task_tag: header.task_tag(), ..LoginRequest::default() };
            self.refuse(&request, Refusal::new(LoginStatus::InvalidDuringLogin, reason));
        } else {
            self.end(LoginOutcome::Refused(reason));
        }
        false
    }

    fn handle_pdu(&mut self, pdu: Pdu, directory: &dyn Directory) {
        if !self.expects(&pdu.header) {
            return;
        }
        let request = LoginRequest::read(&pdu.header);
        self.requests += 1;
        if self.requests > REQUESTS_MAX {
            let reason = format!("the login has more than {REQUESTS_MAX} requests");
            return self.refuse(&request, Refusal::new(LoginStatus::InitiatorError, reason));
        }
        match self.exchange.handle(&request, pdu.data.as_deref().unwrap_or(&[]), directory) {
            Ok(Answer::Continue { text, continues, transits }) => {
                let next_stage = if transits { request.next_stage } else { 0 };
                let response = LoginResponse { transits, continues, next_stage, ..self.response(&request) };
                self.send(&response, text);
            }
            Ok(Answer::Admit { text, agreement }) => {
                let datamover = std::mem::replace(&mut self.mover, Box::new(ByteStream::new(0)));
                self.end(LoginOutcome::Admitted(Box::new(Admitted {
                    request,
                    text,
                    status_number: self.status_number,
                    initiator: agreement.initiator,
                    alias: agreement.alias,
                    isid: Isid(request.isid),
                    user: agreement.user,
                    peer: self.peer,
                    portal: self.portal,
                    kind: agreement.kind,
                    connection: agreement.connection,
                    session: agreement.session,
                    datamover,
                    leftover: Vec::new(),
                })));
            }
            Err(refusal) => self.refuse(&request, refusal),
        }
    }

    fn refuse(&mut self, request: &LoginRequest, mut refusal: Refusal) {
        let [status_class, status_detail] = refusal.status.to_wire();
        let response = LoginResponse { status_class, status_detail, ..self.response(request) };
        let (text, _) = refusal.text.cut(SEGMENT_MAX_BYTES);
        self.send(&response, text);
        // What a peer wrote may be in it, and goes to a log: no control characters, and not endlessly.
        let reason = refusal.reason.chars().filter(|c| !c.is_control()).take(REASON_MAX_CHARS).collect();
        self.end(match refusal.status {
            LoginStatus::MovedTemporarily | LoginStatus::MovedPermanently => LoginOutcome::Redirected(reason),
            _ => LoginOutcome::Refused(reason),
        });
    }

    fn send(&mut self, response: &LoginResponse, text: Vec<u8>) {
        self.status_number = self.status_number.wrapping_add(1);
        self.mover.push(response.write(), Some(text.into()));
    }

    /// What all answers to a request have in common.
    fn response(&self, request: &LoginRequest) -> LoginResponse {
        LoginResponse {
            current_stage: request.current_stage,
            isid: request.isid,
            tsih: request.tsih,
            task_tag: request.task_tag,
            status_number: self.status_number,
            expected_command_number: request.command_number,
            max_command_number: request.command_number,
            ..LoginResponse::default()
        }
    }

    fn end(&mut self, outcome: LoginOutcome) {
        self.is_over = true;
        self.outcome = Some(outcome);
    }
}
