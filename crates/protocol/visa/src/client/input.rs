//! What comes from the network to a client.

use std::time::Duration;

use sanwire_core::{Instant, Path};

use super::answers::{Answered, Placed};
use super::seek::{Candidate, Challenged};
use super::{Client, ClientEvent, Doubt, Failure, Live, Orders, ServerInfo, patience};
use crate::channel::{Channel, Heard, Rejected, Setup};
use crate::server::LinkLimits;
use crate::wire::Kind;
use crate::wire::flow::{Close, write_waiting};
use crate::wire::header::RawPacket;
use crate::wire::offer::{Offer, Terms};
use crate::wire::setup::{Accept, Refusal};

/// After a hint that the server does not know us, it has this long to prove that it does, or three round trips.
const HINT_GRACE: Duration = Duration::from_millis(50);

impl Client {
    /// A packet has come.
    pub fn handle_input(&mut self, path: Path, packet: &[u8], now: Instant) {
        match RawPacket::read(packet) {
            Ok(raw) if !raw.header.from_device => self.counters.malformed += 1,
            Ok(raw) => match raw.header.kind {
                Kind::Accept if raw.is_whole() => self.handle_accept(path, &raw, now),
                Kind::Data => self.handle_data(path, &raw, now),
                Kind::Ack | Kind::Nak | Kind::Ping | Kind::Close | Kind::Agree => self.handle_control(path, &raw, now),
                Kind::Accept | Kind::Connect | Kind::Confirm => self.counters.malformed += 1,
            },
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn handle_data(&mut self, path: Path, raw: &RawPacket<'_>, now: Instant) {
        let connection = raw.header.connection;
        let Some(live) = self.live.as_mut().filter(|live| live.channel.is_of(path, connection)) else {
            self.counters.unknown_connection += 1;
            return;
        };
        let mut placed = Vec::new();
        let (orders, answers) = (&mut self.orders, &mut live.answers);
        let mut take = |header: &_, payload: &[u8]| {
            let taken = answers.take(orders, header, payload);
            let is_bad = matches!(taken, Placed::Violation | Placed::Downgrade);
            placed.push(taken);
            if is_bad { Err(Rejected::Violation) } else { Ok(()) }
        };
        let result = live.channel.handle_data(raw, (&mut self.plain, true), &mut take, now);
        for placed in placed {
            self.placed(placed, now);
        }
        self.settle_patience();
        match result {
            Ok(()) => {}
            Err(Rejected::Violation) => {
                self.counters.violations += 1;
                self.lose(false, now);
            }
            Err(rejected) => self.count(rejected),
        }
    }

    fn placed(&mut self, placed: Placed, now: Instant) {
        match placed {
            Placed::Answered(Answered { id, answer, data_in, data_in_bytes }) => {
                self.events.push_back(ClientEvent::Completed { id, answer, data_in, data_in_bytes });
            }
            Placed::Weak(tag) => self.ask(tag, now),
            Placed::Downgrade => self.counters.downgrades += 1,
            Placed::Noted | Placed::Violation => {}
        }
    }

    /// Who waits for nothing waits for signs of life longer.
    fn settle_patience(&mut self) {
        let is_idle = self.orders.is_empty();
        if let Some(live) = self.live.as_mut().filter(|_| is_idle) {
            live.channel.set_patience(patience(true, live.info.keep_alive));
        }
    }

    fn count(&mut self, rejected: Rejected) {
        match rejected {
            Rejected::Malformed => self.counters.malformed += 1,
            Rejected::NotAuthentic => self.counters.not_authentic += 1,
            Rejected::Downgrade => self.counters.downgrades += 1,
            Rejected::Duplicate => self.counters.duplicates += 1,
            Rejected::OutOfOrder => self.counters.out_of_order += 1,
            Rejected::NoMemory | Rejected::Overrun => self.counters.no_memory += 1,
            Rejected::Violation => self.counters.violations += 1,
        }
    }

    fn handle_control(&mut self, path: Path, raw: &RawPacket<'_>, now: Instant) {
        let connection = raw.header.connection;
        if let Some(live) = self.live.as_mut().filter(|live| live.channel.is_of(path, connection)) {
            match live.channel.handle_control(raw, now) {
                Ok(Heard::Closed(Close::Session | Close::Connection)) => self.lose(true, now),
                // It says again that we are accepted: our last step has come twice.
                Ok(Heard::Nothing | Heard::Delivered(_) | Heard::Terms(_) | Heard::Waits(_) | Heard::Lives) => {}
                Err(Rejected::Violation) => {
                    self.counters.violations += 1;
                    self.lose(false, now);
                }
                Err(rejected) => self.count(rejected),
            }
            return;
        }
        match self.seek.as_mut().and_then(|seek| seek.accepted(path, raw, now)) {
            Some((candidate, terms)) if !terms.is_within(&candidate.own) => self.counters.violations += 1,
            Some((candidate, terms)) => self.connected(candidate, terms, now),
            None => self.counters.unknown_connection += 1,
        }
    }

    fn link(&self, path: Path) -> LinkLimits {
        let unknown = LinkLimits { packet_max_bytes: 1232, window_packets: 8, is_stream: false };
        self.config.links.get(usize::from(path.link.0)).copied().unwrap_or(unknown)
    }

    /// What we say of ourselves on this path.
    fn offer(&self, path: Path) -> Offer {
        let (link, wishes) = (self.link(path), &self.config.wishes);
        Offer {
            packet_max_bytes: link.packet_max_bytes,
            window_packets: link.window_packets.max(1),
            allows_classic: wishes.classic || wishes.allows_classic,
            wants_classic: wishes.classic,
            allows_unchecked: wishes.unchecked || wishes.allows_unchecked,
            wants_unchecked: wishes.unchecked,
            classic_payload_bytes: wishes.classic_payload_bytes,
            protection_min: self.config.protection_min,
        }
    }

    fn handle_accept(&mut self, path: Path, raw: &RawPacket<'_>, now: Instant) {
        let Ok(accept) = Accept::read(raw.payload) else {
            self.counters.malformed += 1;
            return;
        };
        let own = self.offer(path);
        match accept {
            Accept::Challenge { attempt, step } => {
                let Some(seek) = &mut self.seek else { return };
                match seek.challenged((&self.config, own), path, (attempt, step), &mut self.random, now) {
                    Challenged::Answer(packet) => self.loose.push_back((path, *packet)),
                    Challenged::OtherServer { key } => {
                        self.counters.not_authentic += 1;
                        self.other_server = Some(key);
                    }
                    Challenged::Ignore => self.counters.duplicates += 1,
                }
            }
            Accept::Cookie { attempt, cookie } => {
                let packet = self.seek.as_mut().and_then(|seek| seek.bring_back(&self.config, attempt, cookie));
                self.loose.extend(packet.map(|packet| (path, packet)));
            }
            Accept::Refusal { reason, proof, .. } => {
                self.refused((path, raw.header.connection), reason, proof.as_ref(), now);
            }
            Accept::Found { .. } => self.counters.malformed += 1,
        }
    }

    fn refused(&mut self, (path, connection): (Path, u32), reason: Refusal, proof: Option<&[u8; 16]>, now: Instant) {
        if self.seek.as_mut().is_some_and(|seek| seek.refused((path, connection), reason, proof)) {
            self.refusal = Some(reason);
            if reason == Refusal::Outdated && self.live.is_none() {
                // Whatever it is, it is not ours any more: what was asked there nobody answers.
                self.session = sanwire_exchange::succession::successor(self.session);
                self.fail(Orders::take_all, Failure::InDoubt);
                self.begin_seek(now);
            }
            return;
        }
        let Some(live) = self.live.as_mut().filter(|live| live.channel.is_of(path, connection)) else { return };
        if reason == Refusal::UnknownConnection && self.doubt.is_none() {
            // Anybody can have said so: the server has the time of some round trips to show that it knows us.
            live.channel.ask(now);
            let round_trip = live.channel.round_trip().unwrap_or(live.accepted_in);
            let grace = (round_trip * 3).max(HINT_GRACE);
            self.doubt = Some(Doubt { until: now + grace, heard: live.channel.heard() });
        }
    }

    /// A server has accepted us.
    fn connected(&mut self, candidate: Candidate, terms: Terms, now: Instant) {
        let Candidate { path, connection, key, offer, guard, met_at, .. } = candidate;
        let keep_alive = Duration::from_millis(u64::from(offer.keep_alive_ms).clamp(10, 60_000));
        let (is_stream, patience) = (self.link(path).is_stream, patience(self.orders.is_empty(), keep_alive));
        let setup = Setup { path, connection, from_device: false, guard, terms, is_stream, patience };
        let mut channel = Channel::new(setup, now);
        channel.control(Kind::Agree, write_waiting(&self.orders.numbers()));
        let info = ServerInfo {
            name: offer.name,
            path,
            terms,
            commands_max: offer.commands_max,
            transfer_max_bytes: offer.transfer_max_bytes,
            keep_alive,
            instance: offer.instance,
            public_key: key,
        };
        // Where this one takes the place of one that is worn, nothing is lost, and what carries it is what carried that.
        self.orders.unask();
        let resumed = terms.is_resumed && self.was_connected;
        if !resumed && self.was_connected {
            self.orders.forget_receipts();
            self.fail(Orders::take_in_doubt, Failure::InDoubt);
            if self.holds_after_restart {
                self.orders.hold();
            }
        }
        (self.was_connected, self.is_out_of_patience) = (true, false);
        (self.known_server, self.seek, self.doubt) = (Some(key), None, None);
        self.events.push_back(ClientEvent::Connected { server: info.clone(), resumed });
        self.live =
            Some(Live { channel, info, accepted_in: now.saturating_since(met_at), answers: Default::default() });
        self.fail_what_is_too_large();
        self.ask_unasked(now);
    }
}
