//! One connection of a server: its channel, the requests that are coming in, its keep-alive.

use std::time::Duration;

use sanwire_buffer::{Region, Slice};
use sanwire_core::quota::Account;
use sanwire_core::{Alarm, Headway, Instant, NexusId};

use super::changes::News;
use super::intake::{Intake, Piece, Taken, Wanted};
use super::security_events::SecurityEvent;
use super::turns::Turn;
use crate::channel::{Channel, LinkAt, Rejected, Shaper};
use crate::counters::Counters;
use crate::keys::KeyError;
use crate::option_exchange::OptionExchange;
use crate::options::Agreed;
use crate::wire::command::RequestHead;
use crate::wire::flow::{Window, Windows};
use crate::wire::links::{AddrReply, AddrReport, Address};
use crate::wire::live::{LiveReply, LiveRequest};
use crate::wire::{Opcode, Protection, RawPacket, Tag};

/// A client that missed this many keep-alives is gone.
const MISSED_MAX: u32 = 3;

/// The same for one that has let the server wait: its process may be stopped.
pub(super) const MISSED_MAX_PAUSED: u32 = 12;

/// An acceptance that was not answered is repeated after this.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A request for new keys that was not answered is repeated after this.
const REKEY_AGAIN: Duration = Duration::from_millis(200);

/// Addresses that were not answered are told again after this.
const REPORT_AGAIN: Duration = Duration::from_millis(250);

/// A request that has arrived whole.
pub(super) struct Request {
    pub(super) tag: Tag,
    pub(super) head: RequestHead,
    pub(super) data: Option<Slice>,
    /// How the least guarded of its packets was.
    pub(super) protection: Protection,
    /// Whether it came as one to manage the server: all of it sealed.
    pub(super) is_local: bool,
}

/// An established connection.
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) nexus: NexusId,
    /// Its session's share.
    pub(super) memory: Region,
    /// Whether it stands in the queue of connections that may have something to send.
    pub(super) is_queued: bool,
    /// Whose turn it is to send.
    pub(super) turn: Turn,
    pub(super) sent_packets: u64,
    pub(super) received_packets: u64,
    /// How often it got new keys.
    pub(super) rekeys: u64,
    /// When it is next seen what of it is due.
    pub(super) alarm: Alarm,
    /// How many connections its client had when it was told what is wanted of it.
    pub(super) sharers: u32,
    /// The windows that the client was told last.
    offered: Option<Windows>,
    pub(super) intake: Intake,
    /// How the client takes answers, and goes on with requests, while others have no memory.
    pub(super) headways: [Headway; 2],
    /// Keeps the client to its cap, if it does not do so itself.
    pub(super) police: Shaper,
    /// For what there was no memory, if the client was told so.
    wanted: Option<Wanted>,
    pub(super) terms: OptionExchange,
    /// What has become of them and was not told yet.
    pub(super) news: News,
    /// The client does not support what the server enforces now.
    pub(super) is_refused: bool,
    pub(super) keep_alive: Duration,
    keep_alive_at: Instant,
    keep_alive_nonce: u64,
    rekey_interval: Duration,
    keys_since: Instant,
    /// When to ask for new keys, or to see after what came of it.
    rekey_at: Instant,
    /// When to tell again where the server can be reached, until the client has answered.
    report_at: Option<Instant>,
    /// The acceptance, until the client has answered it, and when to repeat it.
    unaccepted: Option<(bool, Windows, Instant)>,
}

impl Connection {
    pub(super) fn new(
        channel: Channel,
        nexus: NexusId,
        memory: Region,
        terms: OptionExchange,
        (keep_alive, rekey_interval): (Duration, Duration),
        now: Instant,
    ) -> Self {
        let mut police = Shaper::inward();
        police.set_cap(terms.agreed().rate_cap_bytes_per_second);
        Connection {
            channel,
            nexus,
            memory,
            is_queued: false,
            turn: Turn::default(),
            sent_packets: 0,
            received_packets: 0,
            rekeys: 0,
            alarm: Alarm::default(),
            sharers: 0,
            offered: None,
            intake: Intake::new(terms.taken_transfer_bytes(), terms.takes_compressed()),
            headways: [Headway::default(); 2],
            police,
            wanted: None,
            terms,
            news: News::default(),
            is_refused: false,
            keep_alive,
            keep_alive_at: now + keep_alive,
            keep_alive_nonce: 0,
            rekey_interval,
            keys_since: now,
            rekey_at: now + rekey_interval,
            report_at: None,
            unaccepted: None,
        }
    }

    /// The server can be reached elsewhere: the client is to be told, unless it is not accepted yet, and is told then.
    pub(super) fn report_anew(&mut self, now: Instant) {
        if self.unaccepted.is_none() {
            self.report_at = Some(now);
        }
    }

    /// Whether the client is to be told where the server can be reached.
    pub(super) fn wants_report(&self, now: Instant) -> bool {
        self.report_at.is_some_and(|at| at <= now)
    }

    /// Tells where the server can be reached.
    pub(super) fn report(&mut self, addresses: &[Address], now: Instant) {
        self.report_at = (!addresses.is_empty()).then(|| now + REPORT_AGAIN);
        if !addresses.is_empty() {
            self.channel.send_control(Opcode::AddrReport, AddrReport::Addresses(addresses.to_vec()).write());
        }
    }

    /// The client is to be accepted, with the first share that it gets: two answers in a row could not be told apart.
    pub(super) fn admit(&mut self, resumed: bool, now: Instant) {
        let least = Window::fitting(1);
        self.unaccepted = Some((resumed, Windows { outward: least, inward: least }, now));
    }

    /// Tells the client that it is accepted, until it answers.
    fn accept(&mut self, resumed: bool, windows: Windows, now: Instant) {
        self.offered = Some(windows);
        self.channel.request_windows(resumed, windows, now);
        self.unaccepted = Some((resumed, windows, now + ACCEPT_AGAIN));
    }

    /// Lets no more than a share be under way at once, each way, with this weight; true when that is new.
    pub(super) fn share(&mut self, windows: Windows, weight: u16, now: Instant) -> bool {
        let is_known = !self.channel.set_weight(weight);
        if is_known && self.offered == Some(windows) {
            return false;
        }
        let resumed = self.unaccepted.is_none_or(|(resumed, ..)| resumed);
        self.accept(resumed, windows, now);
        true
    }

    /// The client's third step came again: it has not heard that it is accepted.
    pub(super) fn accept_again(&mut self, now: Instant) {
        if let Some((resumed, windows, _)) = self.unaccepted {
            self.accept(resumed, windows, now);
        }
    }

    /// Takes a data packet; gives the request that it completes.
    ///
    /// # Errors
    /// The [`SecurityEvent`] that it is.
    pub(super) fn handle_data(
        &mut self,
        packet: &RawPacket<'_>,
        plain: &mut Vec<u8>,
        (counters, incoming): (&mut Counters, &mut Account),
        now: Instant,
    ) -> Result<Option<Request>, SecurityEvent> {
        let vacancy = self.intake.vacancy_for(packet);
        let (fragment, head, data) = match self.channel.check_data(packet, (plain, vacancy), now) {
            Ok(parts) => parts,
            Err(Rejected::Duplicate) => {
                counters.duplicates += 1;
                return Ok(None);
            }
            Err(Rejected::Bad) => return Err(SecurityEvent::NotAuthentic),
            Err(Rejected::Weak) => return Err(SecurityEvent::Downgrade),
        };
        if !self.police.is_free(now) {
            counters.excess += 1;
            return Ok(None);
        }
        self.police.sent(packet.length_bytes(), now);
        let is_next = self.channel.is_next(fragment.sequence);
        let piece = Piece { prefix: &packet.prefix, fragment: &fragment, head, data, is_next };
        let taken = self.intake.take(piece, &self.memory, incoming, now);
        if let Taken::NoMemory { wanted } = taken {
            counters.no_memory += 1;
            if self.channel.no_room_from().is_none_or(|from| fragment.sequence <= from) {
                self.wanted = Some(wanted);
            }
            self.channel.lacks_room(fragment.sequence, now);
            return Ok(None);
        }
        self.channel.take_data(&fragment, now);
        if fragment.data_length > 0 && self.channel.no_room_from().is_some_and(|from| fragment.sequence >= from) {
            self.found_room(now);
        }
        match taken {
            Taken::Request(request) => Ok(Some(request)),
            Taken::Violation => Err(SecurityEvent::Violation),
            Taken::NoMemory { .. } | Taken::Noted => Ok(None),
        }
    }

    /// Whether the client was told that there is no room, and nothing of room since.
    pub(super) fn wants_room(&self) -> bool {
        self.wanted.is_some() && self.channel.no_room_from().is_some()
    }

    /// Tells the client that there is room, if so many free bytes are enough for what it waits for: gives how many that takes.
    pub(super) fn tell_of_room(&mut self, free_bytes: usize, now: Instant) -> Option<usize> {
        let is_next = self.channel.is_next(self.channel.no_room_from()?);
        let (wanted, bytes) = self.wanted.map(|wanted| (wanted, wanted.bytes(is_next)))?;
        // In any case: who asks for nothing is left nothing.
        let has_frames = wanted.has_frames(&self.memory);
        if !has_frames || bytes > free_bytes.min(self.memory.free_bytes()) {
            return None;
        }
        self.found_room(now);
        Some(bytes)
    }

    /// The client is to send nothing, or to go on.
    pub(super) fn pause(&mut self, is_paused: bool, now: Instant) {
        self.channel.pause(is_paused, now);
        self.intake.go_on(now);
    }

    /// There is room again.
    fn found_room(&mut self, now: Instant) {
        self.intake.go_on(now);
        self.wanted = None;
        self.channel.has_room(now);
    }

    /// Takes an authentic control packet that is no DISCONNECT.
    ///
    /// # Errors
    /// [`SecurityEvent::Violation`] for a question that none is, or an answer to none; it changes nothing. [`SecurityEvent::Conflict`] for
    /// options with which there is no agreement.
    pub(super) fn handle_control(
        &mut self,
        opcode: Opcode,
        plain: &[u8],
        (packet_bytes, at): (usize, LinkAt),
        now: Instant,
    ) -> Result<(), SecurityEvent> {
        match opcode {
            Opcode::AckSnr => {
                // No client takes more than its share.
                let least = Window::fitting(1);
                let most = self.offered.unwrap_or(Windows { outward: least, inward: least });
                self.channel.handle_snr(plain, packet_bytes, (at, now), most).map_err(|_| SecurityEvent::Violation)?;
            }
            Opcode::AckReply => {
                self.channel.handle_ack(plain, at, now);
                while self.channel.poll_accepted().is_some() {
                    if self.unaccepted.take().is_some() {
                        self.channel.start_probing(now);
                        self.report_at = Some(now);
                    }
                }
            }
            Opcode::AdnReply => match LiveReply::read(plain) {
                Ok(LiveReply::NewKeys(answer)) => {
                    if self.channel.keys_mut().take_answer(answer, now) == Ok(true) {
                        self.rekeys += 1;
                        // The client sends under the new keys once it has a packet of them.
                        self.send_keep_alive();
                        (self.keys_since, self.rekey_at) = (now, now + REKEY_AGAIN);
                    }
                }
                Ok(LiveReply::Options { change, options }) => self.take_answer(change, options, now)?,
                // An answer to a keep-alive has done its work by being heard.
                Ok(LiveReply::KeepAlive { .. }) => {}
                Err(_) => return Err(SecurityEvent::Violation),
            },
            Opcode::AdnRequest => match LiveRequest::read(plain) {
                Ok(LiveRequest::Options(request)) => self.take_request(request, now)?,
                _ => return Err(SecurityEvent::Violation),
            },
            Opcode::AddrReply if AddrReply::read(plain) == Ok(AddrReply::Addresses) => self.report_at = None,
            _ => {}
        }
        Ok(())
    }

    /// Whether new keys are due, or what was said of them must be said again.
    pub(super) fn wants_rekey(&self, now: Instant) -> bool {
        self.rekey_at <= now && self.unaccepted.is_none()
    }

    /// Asks for new keys, made with the private key of `draw`, or sees to it that those that were agreed on are used.
    pub(super) fn rekey(&mut self, draw: impl FnOnce() -> [u8; 32], now: Instant) -> Result<(), KeyError> {
        self.rekey_at = now + REKEY_AGAIN;
        let keys = self.channel.keys_mut();
        if !keys.is_confirmed() {
            self.send_keep_alive();
        } else if !keys.is_asking() && self.keys_since + self.rekey_interval > now && !keys.is_worn() {
            self.rekey_at = self.keys_since + self.rekey_interval;
        } else {
            let request = LiveRequest::NewKeys(keys.ask(draw)?);
            self.channel.send_control(Opcode::AdnRequest, request.write());
        }
        Ok(())
    }

    /// What both ends have agreed on.
    pub(super) fn agreed(&self) -> &Agreed {
        self.terms.agreed()
    }

    /// The largest data transfer of a command, also of one that was given before a change.
    pub(super) fn taken_transfer_bytes(&self) -> u32 {
        self.terms.taken_transfer_bytes()
    }

    fn send_keep_alive(&mut self) {
        self.keep_alive_nonce += 1;
        let request = LiveRequest::KeepAlive { nonce: self.keep_alive_nonce };
        self.channel.send_control(Opcode::AdnRequest, request.write());
    }

    /// Whether the client is gone.
    pub(super) fn is_dead(&self, now: Instant) -> bool {
        let missed_max = if self.channel.is_held() { MISSED_MAX_PAUSED } else { MISSED_MAX };
        now.saturating_since(self.channel.last_heard()) > self.keep_alive * missed_max
            || self.is_deaf(now)
            || self.has_abandoned_a_request(now)
            || self.channel.is_stuck()
            || self.is_refused
    }

    /// When it is next due, if nothing comes and nothing is sent before.
    pub(super) fn poll_timeout(&self) -> Instant {
        let next = self.unaccepted.map_or(self.rekey_at, |(_, _, at)| at).min(self.keep_alive_at);
        let next = if self.is_refused { self.channel.last_heard() } else { next };
        let others = [self.channel.poll_timeout(), self.report_at, self.terms.poll_timeout()];
        others.into_iter().flatten().fold(next, Instant::min)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.channel.handle_timeout(now);
        if self.unaccepted.is_some_and(|(_, _, at)| at <= now) {
            self.accept_again(now);
        }
        self.tend_terms(now);
        if self.keep_alive_at <= now {
            self.keep_alive_at = now + self.keep_alive;
            self.send_keep_alive();
            // Keys wear out slowly: to look now and then is enough.
            if self.channel.keys_mut().is_worn() {
                self.rekey_at = self.rekey_at.min(now);
            }
        }
    }
}
