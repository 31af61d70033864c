//! From the third step of a handshake to an accepted connection (HyperSCSI 5.1).

use sanwire_core::{ClientId, Instant, NexusId, Path};
use sanwire_security::Who;

use super::connection::Connection;
use super::session::Session;
use super::setup::HalfOpen;
use super::{SecurityEvent, Server, ServerEvent};
use crate::channel::{Capacity, Channel, Setup, Sizes};
use crate::handshake::{Misread, Secrets};
use crate::keys::KeyError;
use crate::option_exchange::OptionExchange;
use crate::options::Agreed;
use crate::packet_base_bytes;
use crate::succession;
use crate::wire::flow::Window;
use crate::wire::offer::Offer;
use crate::wire::setup::{Refusal, read_adn_reply};
use crate::wire::{Opcode, Prefix, RawPacket};

/// A session that begins or goes on.
struct Opening<'a> {
    client: ClientId,
    number: u64,
    attempt: [u8; 32],
    name: &'a str,
    path: Path,
    options: Agreed,
}

impl Server {
    pub(super) fn handle_third_step(&mut self, path: Path, packet: &RawPacket<'_>, now: Instant) {
        let RawPacket { prefix, body, .. } = packet;
        if !packet.checksum_holds(None) {
            self.note_offence(SecurityEvent::NotAuthentic, None, path, now);
            return;
        }
        if let Some(connection) = self.connections.get_mut(&prefix.connection).filter(|c| c.channel.path() == path) {
            self.counters.duplicates += 1;
            connection.accept_again(now);
            self.touch(prefix.connection);
            return;
        }
        let Some(half_open) = self.half_opens.get_mut(prefix.connection, path, now) else {
            self.unknown_connection(path, prefix.connection, now);
            return;
        };
        if let Some(refused) = &half_open.refused {
            // Of another one anybody may be the sender: whoever has guessed says the same again.
            let proof =
                (refused == body).then(|| half_open.responder.refusal_key().prove(Refusal::NotAuthentic as u8, body));
            self.counters.duplicates += 1;
            if proof.is_some() {
                self.refuse(path, prefix, Refusal::NotAuthentic, proof);
            }
            return;
        }
        let client = half_open.client;
        // Handshakes that were begun before the wrong password are no way around the wait.
        if self.is_too_early(path, client, now) {
            self.note_too_early(prefix.number);
            return;
        }
        let Some((half_open, secrets, offer)) = self.verify(path, prefix, body, now) else { return };
        if self.is_closed {
            return;
        }
        self.throttle.forgive(path.peer, client);
        if !self.config.admission.permits(path.peer, Some(client)) {
            self.note_stranger(path, client, now);
        } else if !self.make_place(self.applicant((client, half_open.session), path.peer.host())) {
            let proof = half_open.responder.refusal_key().prove(Refusal::Full as u8, body);
            self.tally.handshakes.full += 1;
            self.refuse(path, prefix, Refusal::Full, Some(proof));
        } else {
            match OptionExchange::new(
                half_open.said.options.clone(),
                offer.options.clone(),
                self.config.transfer_max_bytes,
            ) {
                Err(_) => {
                    let proof = half_open.responder.refusal_key().prove(Refusal::Options as u8, body);
                    self.tally.handshakes.conflicts += 1;
                    self.note_offence(SecurityEvent::Conflict, Some(client), path, now);
                    self.refuse(path, prefix, Refusal::Options, Some(proof));
                }
                Ok(terms) => match self.establish(half_open, secrets, &offer, terms, now) {
                    Ok(()) => self.settle_shares(now),
                    Err(_) => self.note_offence(SecurityEvent::Handshake, Some(client), path, now),
                },
            }
        }
    }

    /// Whose wrong password it is that came in the name of a client. The key that was shown is the sender's own, whomever he names:
    /// a client waits for nobody who has only its name, and who names one that we know guesses no faster for that.
    fn guesser(&self, path: Path, client: ClientId, by: ClientId) -> Who {
        if by == client { self.who(path, client) } else { Who { peer: path.peer, client: by, is_known: false } }
    }

    /// Reads a third step. When it verifies, its handshake is no longer under way. What does not verify anybody can have sent: it
    /// changes nothing, and has no answer.
    fn verify(&mut self, path: Path, prefix: &Prefix, body: &[u8], now: Instant) -> Option<(HalfOpen, Secrets, Offer)> {
        let half_open = self.half_opens.get_mut(prefix.connection, path, now)?;
        let client = half_open.client;
        let noise = read_adn_reply(body).map_err(|_| Misread::Garbage);
        match noise.and_then(|noise| half_open.responder.read(client, noise)) {
            Ok((payload, secrets)) => match Offer::read(&payload) {
                Ok(offer) => {
                    let established = self.half_opens.establish(prefix.connection);
                    established.map(|half_open| (half_open, secrets, offer))
                }
                Err(_) => {
                    // Only the client can have written it, and each time that it comes costs as much as the first.
                    self.half_opens.take(prefix.connection);
                    self.note_offence(SecurityEvent::Violation, Some(client), path, now);
                    None
                }
            },
            Err(Misread::Garbage) => {
                self.note_offence(SecurityEvent::Handshake, Some(client), path, now);
                None
            }
            Err(Misread::Guess { by }) => {
                half_open.refused = Some(body.to_vec());
                let proof = half_open.responder.refusal_key().prove(Refusal::NotAuthentic as u8, body);
                let who = self.guesser(path, client, by);
                if self.throttle.is_too_early(who, now) {
                    self.note_too_early(prefix.number);
                    return None;
                }
                self.throttle.failed(who, now);
                self.note_offence(SecurityEvent::WrongPassword, Some(client), path, now);
                self.refuse(path, prefix, Refusal::NotAuthentic, Some(proof));
                None
            }
        }
    }

    /// The client hears that it is accepted when it gets its share.
    fn establish(
        &mut self,
        half_open: HalfOpen,
        secrets: Secrets,
        offer: &Offer,
        mut terms: OptionExchange,
        now: Instant,
    ) -> Result<(), KeyError> {
        let path = half_open.path;
        let link = self.link(path);
        let client = half_open.client;
        let session = half_open.session;
        let ring = secrets.of_server()?;
        let capacity = Capacity { ours: link.receive_capacity_packets, theirs: offer.receive_capacity_packets };
        let limit = link.packet_max_bytes.min(offer.packet_max_bytes).min(half_open.said.packet_max_bytes) as usize;
        let agreed = terms.agreed().clone();
        let mut channel = Channel::new(Setup {
            path,
            connection: half_open.connection,
            ring,
            floor: agreed.protection_min,
            data_opcode: Opcode::HcbeReply,
            window: Window::fitting(1),
            recovery: self.config.recovery,
            sizes: Sizes { packet_base_bytes: packet_base_bytes(path.peer).min(limit), packet_limit_bytes: limit },
            capacity,
            memory: self.sealed.clone(),
            now,
        });
        channel.apply(&agreed);
        let opening = Opening {
            client,
            number: session,
            attempt: *half_open.responder.first(),
            name: &offer.name,
            path,
            options: agreed,
        };
        let (nexus, resumed) = self.resume_or_open(opening, half_open.connection, now);
        if let Some(session) = self.sessions.get_mut(&nexus) {
            terms.keep_transfer_limit(session.transfer_limit_bytes);
            if let Some(unanswered) = &offer.unanswered {
                session.keep_only(unanswered);
            }
        }
        let Some(memory) = self.sessions.get(&nexus).map(|session| session.memory.clone()) else { return Ok(()) };
        let timers = (self.config.keep_alive, self.config.rekey_interval);
        let mut connection = Connection::new(channel, nexus, memory, terms, timers, now);
        // Before the acceptance: with that the client begins to send.
        if self.is_paused(client, nexus) {
            connection.channel.pause(true, now);
        }
        connection.admit(resumed, now);
        let at = connection.poll_timeout();
        self.deadlines.note(half_open.connection, &mut connection.alarm, at);
        self.connections.insert(half_open.connection, connection);
        self.tally.handshakes.established += 1;
        self.sharing.note(client);
        self.touch(half_open.connection);
        Ok(())
    }

    fn resume_or_open(&mut self, opening: Opening<'_>, connection: u32, now: Instant) -> (NexusId, bool) {
        let Opening { client, number, attempt, name, path, options } = opening;
        if let Some(&nexus) = self.by_client.get(&(client, number))
            && let Some(session) = self.sessions.get_mut(&nexus)
        {
            let old = session.connection.and_then(|old| self.connections.remove_entry(&old));
            if let Some((id, mut old)) = old {
                self.deadlines.forget(id, &mut old.alarm);
                self.tally.close(&old);
                session.note_transfers(old.terms.taken_transfer_bytes());
                self.events.extend(old.end());
            }
            session.connect(connection);
            session.host = path.peer.host();
            let host = session.counted_at.is_some().then_some(session.host);
            self.places.count(session, host);
            session.attempt = attempt;
            self.events.push_back(ServerEvent::SessionResumed { nexus, path, options: Box::new(options) });
            return (nexus, true);
        }
        // Before its older sessions are gone, which have a part of the same share.
        let memory = self.memory_of(client);
        self.end_predecessors(client, number, now);
        let nexus = NexusId(self.next_nexus);
        self.next_nexus += u64::from(self.config.shards.max(1));
        let mut session = Session::new((client, number), nexus, path.peer.host(), memory.clone(), now);
        session.connect(connection);
        session.attempt = attempt;
        self.take_in(session);
        let (run, name) = (succession::run(number), name.to_owned());
        self.events.push_back(ServerEvent::SessionOpened { nexus, client, run, name, path, options, memory });
        (nexus, false)
    }
}
