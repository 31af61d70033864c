//! What comes from the network to a client.

use sanwire_core::{Instant, Path};

use super::answering::Answering;
use super::orders::{Answered, Placed, is_too_weak, place, vacancy_for};
use super::seek::Rejection;
use super::{Client, ClientEvent, Connected, Failure, Orders, State};
use crate::channel::{LinkAt, Rejected};
use crate::wire::flow::{IN_FLIGHT_MAX_PACKETS, Window, Windows};
use crate::wire::live::{LiveReply, LiveRequest};
use crate::wire::setup::{AdnRequest, Proof, Refusal, SecondStep};
use crate::wire::{Opcode, Prefix, Protection, RawPacket};

impl Client {
    /// A packet has arrived.
    pub fn handle_input(&mut self, path: Path, bytes: &[u8], now: Instant) {
        let Ok(packet) = RawPacket::read(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        match (packet.prefix.header.opcode, packet.prefix.protection) {
            (Opcode::HcbeReply, _) | (Opcode::LocalReply, Protection::Aes256Gcm) => {
                self.handle_data(path, &packet, now);
            }
            (Opcode::AdnRequest, Protection::Checksum) => {
                if packet.checksum_holds(None) {
                    self.handle_setup(path, &packet, now);
                } else {
                    self.counters.rejected += 1;
                }
            }
            (opcode, Protection::Aes256Gcm) => self.handle_control(path, opcode, &packet, now),
            _ => self.counters.malformed += 1,
        }
    }

    fn handle_data(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) {
        let prefix = &packet.prefix;
        let State::Connected(connected) = &mut self.state else {
            self.counters.unknown_connection += 1;
            return;
        };
        let channel = &mut connected.channel;
        if channel.connection() != prefix.connection || channel.link_of(path).is_none() {
            self.counters.unknown_connection += 1;
            return;
        }
        // Before its sequence is taken: what is forged must not stand in for what is true.
        if is_too_weak(&self.orders, prefix.header.tag, prefix.protection) {
            self.counters.downgrades += 1;
            return;
        }
        let vacancy = vacancy_for(&mut self.orders, packet);
        match channel.check_data(packet, (&mut self.plain, vacancy), now) {
            Ok((fragment, head, data)) => {
                let placed = place(&mut self.orders, prefix.header, &fragment, (head, data));
                channel.take_data(&fragment, now);
                while channel.poll_delivered().is_some() {}
                match placed {
                    Ok(Placed::Noted) => {}
                    Ok(Placed::Answered(answered)) => self.complete(answered),
                    Ok(Placed::Weak(tag)) => self.ask(tag),
                    Err(()) => {
                        // The answer is lost for this connection; another one will bring it again.
                        self.counters.violations += 1;
                        self.lose(false, now);
                    }
                }
            }
            Err(Rejected::Duplicate) => self.counters.duplicates += 1,
            Err(Rejected::Bad) => self.counters.rejected += 1,
            Err(Rejected::Weak) => self.counters.downgrades += 1,
        }
    }

    fn complete(&mut self, answered: Answered) {
        let Answered { id, answer, data_in, data_in_bytes } = answered;
        self.events.push_back(ClientEvent::Completed { id, answer, data_in, data_in_bytes });
    }

    fn handle_setup(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) {
        let RawPacket { prefix, body, .. } = packet;
        match AdnRequest::read(body) {
            Ok(AdnRequest::Handshake(second)) => self.handle_second_step(path, prefix, second, now),
            Ok(AdnRequest::Refusal(refusal, proof)) => self.handle_refusal(path, (refusal, proof), prefix, now),
            Ok(AdnRequest::Cookie(cookie)) => {
                if let State::Seeking(seeking) = &mut self.state
                    && seeking.is_answered_by(prefix)
                {
                    seeking.take_cookie(path, &cookie, now);
                }
            }
            Ok(AdnRequest::Announcement { .. }) => {}
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn handle_second_step(&mut self, path: Path, prefix: &Prefix, second: SecondStep<'_>, now: Instant) {
        let offer = self.offer();
        let State::Seeking(seeking) = &mut self.state else {
            self.counters.duplicates += 1;
            return;
        };
        if !seeking.is_answered_by(prefix) {
            self.counters.duplicates += 1;
            return;
        }
        let offer = offer.map_err(|_| Rejection::NotAuthentic);
        let (config, chance) = (&self.config, (&mut self.answers, &mut self.random));
        match offer.and_then(|offer| seeking.second_step(config, (path, second), offer, chance, now)) {
            Ok(()) => {}
            Err(Rejection::TooMany) => self.counters.duplicates += 1,
            Err(Rejection::NotAuthentic) => self.counters.not_authentic += 1,
            Err(Rejection::OtherServer { key }) => {
                self.other_server = Some(key);
                self.counters.not_authentic += 1;
            }
            Err(Rejection::Option(option)) => self.note_conflict(option),
        }
    }

    /// A refusal without a proof makes us look, not leave. What others say, who have only overheard us, counts for nothing.
    fn handle_refusal(
        &mut self,
        path: Path,
        (refusal, proof): (Refusal, Option<Proof>),
        prefix: &Prefix,
        now: Instant,
    ) {
        match &mut self.state {
            State::Connected(connected)
                if connected.channel.connection() == prefix.connection
                    && connected.channel.path() == path
                    && refusal == Refusal::UnknownConnection
                    && connected.hinted_at.is_none() =>
            {
                connected.hinted_at = Some(now);
                connected.channel.query(now);
            }
            State::Seeking(seeking) => {
                let (mut is_known, mut is_proven) = (seeking.is_answered_by(prefix), false);
                for (_, answering) in seeking.answering(path, prefix.connection) {
                    is_known = true;
                    if answering.is_proven(refusal, proof.as_ref()) {
                        is_proven = true;
                    } else {
                        answering.hinted(refusal, now);
                    }
                }
                if is_proven {
                    self.is_refused |= refusal.must_be_proven();
                    self.refusal = Some(refusal);
                } else if is_known && !refusal.must_be_proven() {
                    self.refusal.get_or_insert(refusal);
                }
            }
            _ => {}
        }
    }

    /// What is sealed in a control packet, the link by which it came, and of those that have made a second step who has sent it.
    fn open(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) -> Option<(Vec<u8>, LinkAt, usize)> {
        let connection = packet.prefix.connection;
        let (opened, is_known) = match &mut self.state {
            State::Connected(connected) => {
                let channel = &mut connected.channel;
                let at = channel.link_of(path).filter(|_| channel.connection() == connection);
                (at.and_then(|at| Some((channel.open(packet, now)?, at, 0))), at.is_some())
            }
            State::Seeking(seeking) => {
                let (mut is_known, is_answered) = (false, seeking.is_answered());
                let mut opened =
                    seeking.answering(path, connection).filter_map(|(index, Answering { channel, .. })| {
                        is_known = true;
                        let at = channel.link_of(path)?;
                        Some((channel.open(packet, now)?, at, index))
                    });
                let opened = opened.next();
                if !is_answered {
                    return None;
                }
                (opened, is_known)
            }
            State::Closed => return None,
        };
        match (&opened, is_known) {
            (Some(_), _) => {}
            (None, true) => self.counters.rejected += 1,
            (None, false) => self.counters.unknown_connection += 1,
        }
        opened
    }

    fn handle_control(&mut self, path: Path, opcode: Opcode, packet: &RawPacket<'_>, now: Instant) {
        let capacity_packets = self.capacity_packets();
        if opcode == Opcode::AddrReply
            && let State::Connected(connected) = &mut self.state
            && connected.channel.connection() == packet.prefix.connection
            && connected.channel.is_joining(path)
        {
            let channel = &mut connected.channel;
            match channel.open(packet, now) {
                Some(plain) => channel.handle_reply(&plain, path, now),
                None => self.counters.rejected += 1,
            }
            return;
        }
        let Some((plain, at, index)) = self.open(path, packet, now) else { return };
        let channel = match &mut self.state {
            State::Connected(connected) => &mut connected.channel,
            State::Seeking(seeking) => match seeking.answering_mut(index) {
                Some(answering) => &mut answering.channel,
                None => return,
            },
            State::Closed => return,
        };
        match opcode {
            Opcode::AckSnr => {
                let inward = Window::fitting(capacity_packets);
                let most = Windows { outward: Window::fitting(IN_FLIGHT_MAX_PACKETS), inward };
                match channel.handle_snr(&plain, packet.length_bytes(), (at, now), most) {
                    Ok(Some((resumed, weight))) => {
                        channel.set_weight(weight);
                        self.accepted(index, resumed, now);
                    }
                    Ok(None) => {}
                    Err(_) => self.counters.violations += 1,
                }
            }
            Opcode::AckReply => {
                channel.handle_ack(&plain, at, now);
                while channel.poll_delivered().is_some() {}
            }
            Opcode::AdnRequest => match LiveRequest::read(&plain) {
                Ok(LiveRequest::KeepAlive { nonce }) => {
                    channel.send_control(Opcode::AdnReply, LiveReply::KeepAlive { nonce }.write());
                }
                Ok(LiveRequest::NewKeys(request)) => match channel.keys_mut().answer(request, || self.random.bytes()) {
                    Ok(Some(answer)) => channel.send_control(Opcode::AdnReply, LiveReply::NewKeys(answer).write()),
                    Ok(None) => {}
                    Err(_) => self.counters.violations += 1,
                },
                Ok(LiveRequest::Options(request)) => self.handle_options(request, now),
                Ok(LiveRequest::Farewell) if matches!(self.state, State::Connected(_)) => self.lose(true, now),
                Ok(LiveRequest::Farewell) => self.seek(None, now),
                Err(_) => self.counters.violations += 1,
            },
            Opcode::AdnReply => self.handle_live_reply(&plain, now),
            Opcode::AddrReport => {
                let own = (self.config.link, 0);
                if let Some(addresses) = channel.handle_report(&plain, path, own, now) {
                    self.events.push_back(ClientEvent::Addresses(addresses));
                }
            }
            // An answer on a path that has become a link meanwhile.
            Opcode::AddrReply => {}
            _ => self.counters.violations += 1,
        }
    }

    /// The server has set the windows: the first time, that means that it accepts us.
    fn accepted(&mut self, index: usize, resumed: bool, now: Instant) {
        let State::Seeking(seeking) = &mut self.state else { return };
        let Some(Answering { mut channel, mut info, mut terms, .. }) = seeking.take(index) else { return };
        self.known_server = Some(info.public_key);
        self.orders.unask();
        if resumed {
            // What the server has been asked may be under way there: nothing of it fails beside that.
            terms.keep_transfer_limit(self.session_limit_bytes);
            info.transfer_limit_bytes = terms.transfer_limit_bytes();
        } else if self.was_connected {
            self.orders.forget_receipts();
            self.fail(Orders::take_in_doubt, Failure::InDoubt);
            if self.holds_after_restart {
                self.orders.hold();
            }
        }
        if self.is_paused {
            channel.pause(true, now);
        }
        channel.start_probing(now);
        self.was_connected = true;
        self.events.push_back(ClientEvent::Connected { server: info.clone(), resumed });
        self.state = State::Connected(Box::new(Connected { channel, first_info: info, terms, hinted_at: None }));
        self.propose_wanted(now);
        self.fail_what_is_too_large();
        self.join_all(now);
        self.ask_unasked();
    }
}

/// What a server says of itself in answer to [`super::discovery`]. Anybody on the way may have written it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// Its name.
    pub server_name: String,
    /// The largest packet that its link takes, in bytes.
    pub packet_max_bytes: u32,
    /// Differs each time the server starts, and is the same on all its links.
    pub instance: u64,
}

/// The announcement in a packet, if it answers the discovery of that number.
#[must_use]
pub fn announcement(bytes: &[u8], number: u64) -> Option<Announcement> {
    let packet = RawPacket::read(bytes).ok()?;
    let expected = packet.prefix.header.opcode == Opcode::AdnRequest
        && packet.prefix.number == number
        && packet.checksum_holds(None);
    match AdnRequest::read(packet.body) {
        Ok(AdnRequest::Announcement { packet_max_bytes, instance, server_name }) if expected => {
            Some(Announcement { server_name: server_name.to_owned(), packet_max_bytes, instance })
        }
        _ => None,
    }
}
