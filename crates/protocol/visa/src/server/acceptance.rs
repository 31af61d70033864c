//! From the third step of a handshake to a connection, and a session if its client has none.

use sanwire_core::{ClientId, Instant, NexusId, Path};
use sanwire_exchange::succession;
use sanwire_security::Who;
use sanwire_security::handshake::{Misread, Secrets};
use sanwire_security::keys::KeyError;

use super::connection::Connection;
use super::session::Session;
use super::{Offence, Server, ServerEvent};
use crate::channel::{Channel, Guard, Patience, Setup};
use crate::wire::Kind;
use crate::wire::header::RawPacket;
use crate::wire::offer::{Offer, Terms};
use crate::wire::setup::{Confirm, Refusal};

/// How many keep-alives without an answer mean that a client is gone.
const MISSED_MAX: u32 = 3;

/// A client that has proved who it is.
struct Proven {
    path: Path,
    connection: u32,
    client: ClientId,
    session: u64,
    first: [u8; 32],
    confirm: Vec<u8>,
    offer: Offer,
    secrets: Secrets,
}

impl Server {
    pub(super) fn handle_confirm(&mut self, path: Path, raw: &RawPacket<'_>, now: Instant) {
        let confirm = match Confirm::read(raw.payload) {
            Ok(confirm) if raw.is_whole() => confirm,
            _ => {
                self.counters.malformed += 1;
                return;
            }
        };
        let id = raw.header.connection;
        if let Some(connection) = self.connections.get_mut(&id) {
            self.counters.duplicates += 1;
            // The client has not heard that it is accepted. Once it has, whoever repeats its step is somebody else.
            if connection.channel.is_of(path, id)
                && connection.confirm == raw.payload
                && connection.channel.heard() == 0
            {
                let terms = connection.terms.write();
                connection.channel.control(Kind::Agree, terms);
                self.touch(id);
            }
            return;
        }
        let Some(half_open) = self.half_opens.get_mut(id, path, now) else {
            return self.unknown_connection(path, id, now);
        };
        let is_its = (half_open.client, half_open.attempt) == (confirm.client, confirm.attempt);
        if let Some(refused) = &half_open.refused {
            // Of another one anybody may be the sender: who was refused says the same again.
            self.counters.duplicates += 1;
            if let Some(reason) = half_open.said.filter(|_| *refused == raw.payload) {
                self.refuse_step(path, id, confirm.attempt, (reason, raw.payload), now);
            }
        } else if !is_its {
            self.counters.not_authentic += 1;
        } else if self.is_too_early(path, confirm.client, now) {
            // Handshakes that were begun before the wrong password are no way around the wait.
            self.note_too_early(confirm.attempt);
        } else if let Some(proven) = self.verify(path, id, &confirm, raw.payload, now) {
            self.admit(proven, confirm.attempt, now);
        }
    }

    /// Says that a third step is refused, with the proof that it was this server which was answered.
    fn refuse_step(&mut self, path: Path, id: u32, attempt: u64, (reason, step): (Refusal, &[u8]), now: Instant) {
        let half_open = self.half_opens.get_mut(id, path, now);
        let proof = half_open.map(|half_open| half_open.responder.refusal_key().prove(reason as u8, step));
        self.refuse(path, id, attempt, reason, proof);
    }

    /// Reads a third step. What does not verify anybody can have sent: it changes nothing, and has no answer.
    fn verify(&mut self, path: Path, id: u32, confirm: &Confirm<'_>, payload: &[u8], now: Instant) -> Option<Proven> {
        let half_open = self.half_opens.get_mut(id, path, now)?;
        let (client, session) = (half_open.client, half_open.session);
        match half_open.responder.read(client, confirm.noise) {
            Ok((said, secrets)) => {
                let first = *half_open.responder.first();
                let Ok(offer) = Offer::read(&said) else {
                    // Only the client can have written it, and each time that it comes costs as much as the first.
                    self.half_opens.take(id);
                    self.note_offence(Offence::Violation, client, path, now);
                    return None;
                };
                self.throttle.forgive(path.peer, client);
                let confirm = payload.to_vec();
                Some(Proven { path, connection: id, client, session, first, confirm, offer, secrets })
            }
            Err(Misread::Garbage) => {
                self.note_offence(Offence::Handshake, client, path, now);
                None
            }
            Err(Misread::Guess { by }) => {
                (half_open.refused, half_open.said) = (Some(payload.to_vec()), Some(Refusal::NotAuthentic));
                let who = self.guesser(path, client, by);
                if self.throttle.is_too_early(who, now) {
                    self.counters.not_authentic += 1;
                    self.note_too_early(confirm.attempt);
                    return None;
                }
                self.throttle.failed(who, now);
                self.handshakes.wrong_password += 1;
                self.note_offence(Offence::WrongPassword, by, path, now);
                self.refuse_step(path, id, confirm.attempt, (Refusal::NotAuthentic, payload), now);
                None
            }
        }
    }

    /// Whose wrong password it is that came in the name of a client. The key that was shown is the sender's own, whomever he names:
    /// a client waits for nobody who has only its name, and who names one that we know guesses no faster for that.
    fn guesser(&self, path: Path, client: ClientId, by: ClientId) -> Who {
        if by == client { self.who(path, client) } else { Who { peer: path.peer, client: by, is_known: false } }
    }

    /// Gives a client that has proved who it is a connection, or says why not.
    fn admit(&mut self, proven: Proven, attempt: u64, now: Instant) {
        let (path, id, client) = (proven.path, proven.connection, proven.client);
        // Rules may have changed since it began.
        if self.is_closed {
            return self.note_refused(path, id, (None, &proven.confirm), now);
        }
        if !self.config.doorkeeper.permits(path.peer, Some(client)) {
            self.note_refused(path, id, (None, &proven.confirm), now);
            return self.note_stranger(path, client, now);
        }
        let refusal = match () {
            () if self.is_outdated(client, proven.session) => Some(Refusal::Outdated),
            () if !self.make_place((client, proven.session), path.peer.host()) => Some(Refusal::Full),
            () => None,
        };
        if let Some(reason) = refusal {
            self.handshakes.refused += 1;
            self.note_refused(path, id, (Some(reason), &proven.confirm), now);
            return self.refuse_step(path, id, attempt, (reason, &proven.confirm), now);
        }
        self.half_opens.establish(id);
        match self.establish(proven, now) {
            Ok(()) => self.handshakes.accepted += 1,
            Err(_) => self.note_offence(Offence::Handshake, client, path, now),
        }
    }

    /// A third step is refused: when it comes again, as clients send it until they are answered, it is not read once more.
    fn note_refused(&mut self, path: Path, id: u32, (reason, step): (Option<Refusal>, &[u8]), now: Instant) {
        if let Some(half_open) = self.half_opens.get_mut(id, path, now) {
            (half_open.refused, half_open.said) = (Some(step.to_vec()), reason);
        }
    }

    /// Whether the client has begun a later session in the place of this one: there is no way back.
    fn is_outdated(&self, client: ClientId, session: u64) -> bool {
        let is_of_run = |other: &Session| succession::run(other.number) == succession::run(session);
        self.sessions_of(client).any(|other| is_of_run(other) && other.number > session)
    }

    fn establish(&mut self, proven: Proven, now: Instant) -> Result<(), KeyError> {
        let Proven { path, connection: id, client, session, first, confirm, offer, secrets } = proven;
        let ring = secrets.of_server()?;
        // A session of which its client has never heard is none that it could go on with.
        let known = self.by_client.get(&(client, session)).and_then(|nexus| self.sessions.get(nexus));
        let is_resumed = known.is_some_and(|session| session.is_heard);
        let terms = self.offer(path).agree(&offer, is_resumed);
        let (is_stream, keep_alive) = (self.link(path).is_stream, self.config.keep_alive);
        let patience = Patience { silence: keep_alive, answer: keep_alive * MISSED_MAX };
        let guard = Guard::new(ring, self.sealed.clone());
        let setup = Setup { path, connection: id, from_device: true, guard, terms, is_stream, patience };
        let mut channel = Channel::new(setup, now);
        channel.control(Kind::Agree, terms.write());
        let nexus = self.resume_or_open((client, session), (path, terms), now);
        self.connections.insert(id, Connection::new(channel, nexus, terms, (first, confirm)));
        if is_stream {
            self.streams.add(path, id);
        }
        if let Some(session) = self.sessions.get_mut(&nexus) {
            let old = session.connection;
            session.connect(id, path.peer.host());
            let host = session.counted_at.is_some().then_some(session.host);
            self.places.count(session, host);
            old.into_iter().for_each(|old| self.forget_connection(old));
        }
        self.touch(id);
        Ok(())
    }

    fn resume_or_open(&mut self, name: (ClientId, u64), (path, terms): (Path, Terms), now: Instant) -> NexusId {
        let (client, number) = name;
        if let Some(&nexus) = self.by_client.get(&name) {
            self.events.push_back(ServerEvent::SessionResumed { nexus, path, terms });
            return nexus;
        }
        // Before its older sessions are gone, which have a part of the same share.
        let memory = self.memory_of(client);
        self.end_predecessors(client, number);
        self.suspend_others(client, now);
        let nexus = NexusId(self.next_nexus);
        self.next_nexus += u64::from(self.config.shards.max(1));
        self.take_in(nexus, Session::new(name, path.peer.host(), memory.clone(), now));
        let run = succession::run(number);
        self.events.push_back(ServerEvent::SessionOpened { nexus, client, run, path, terms, memory });
        nexus
    }
}
