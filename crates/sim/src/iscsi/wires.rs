//! Connections: how they open, what passes, how they end.

use std::collections::BTreeMap;

use sanwire_buffer::Packet;
use sanwire_core::Instant;
use sanwire_iscsi::{ClientAction, ConnectionId, LoginOutcome, Portal, PortalCarrier, ServerLogin};

use super::fixed_directory::{SERVER, portal};
use super::line::Line;
use super::stream::{Chunk, OPENING, Stream};
use super::wire::{Open, World};
use crate::world::Outcome;

/// A header without additional segments, and a digest.
const HEADER_BYTES: usize = 48;
const DIGEST_BYTES: usize = 4;

/// One connection, seen from outside.
pub struct Connection {
    pub(super) client: usize,
    /// Its number at the client.
    pub(super) number: ConnectionId,
    pub(super) there: Stream,
    pub(super) back: Stream,
    /// There are no streams: adapters carry it.
    pub(super) line: Option<Line>,
    pub(super) server: ServerEnd,
    /// The client has it.
    pub(super) is_clients: bool,
    /// Bytes that have passed to the server, and from it.
    pub(super) passed: [u64; 2],
    /// The server has answered the last login request: from here on there may be digests.
    pub(super) is_answered: bool,
    /// The server has something to send, which nobody reads before this moment.
    pub(super) unread_until: Option<Instant>,
}

/// The server's end of a connection.
pub(super) enum ServerEnd {
    Login(Box<ServerLogin>),
    Admitted,
    Gone,
}

/// What was sent, and what is to happen to it.
#[derive(Default)]
pub struct Traffic {
    /// PDUs by direction (to the server, or not) and operation code.
    pub pdus: BTreeMap<(bool, u8), u64>,
    /// Where PDUs end, in bytes of the first connection, to the server and from it.
    pub ends: [Vec<u64>; 2],
    /// The data of the next PDU of this direction and operation code that has some is damaged.
    pub damage_next: Option<(bool, u8)>,
    /// The first connection is cut when so many bytes have come at the server, or from it.
    pub cut_after: Option<(bool, u64)>,
}

impl Connection {
    /// When something is due.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let there = self.there.next_at().filter(|_| !matches!(self.server, ServerEnd::Gone));
        let back = self.back.next_at().filter(|_| self.is_clients);
        let login = match &self.server {
            ServerEnd::Login(login) => login.poll_timeout(),
            _ => None,
        };
        let line = self.line.as_ref().and_then(Line::next_at);
        there.into_iter().chain(back).chain(line).chain(login).chain(self.unread_until).min()
    }

    fn is_over(&self) -> bool {
        let is_parted = self.line.as_ref().is_none_or(|line| !line.is_parting);
        !self.is_clients && is_parted && matches!(self.server, ServerEnd::Gone)
    }
}

impl World {
    pub(super) fn open(&mut self, client: usize, connection: ConnectionId) -> Outcome<()> {
        if let Some(until) = self.wire.stalled.get(&client).copied().filter(|until| *until > self.now) {
            self.schedule(until, Open { client, connection });
            return Ok(());
        }
        if self.host.is_none() {
            self.workers[client].client.connection_lost(connection, self.now);
            return self.drain_machine(client);
        }
        if self.plan.wire.adapters.is_some() {
            return self.open_line(client, connection);
        }
        let seed = self.random.seed();
        let login = if self.plan.wire.is_iser {
            let portal = Portal { carrier: PortalCarrier::Iwarp, ..portal() };
            ServerLogin::over(sanwire_iser::target(seed), portal, SERVER, seed, self.now)
        } else {
            ServerLogin::new(portal(), SERVER, seed, self.now)
        };
        let wire = Connection {
            client,
            number: connection,
            there: Stream::default(),
            back: Stream::default(),
            line: None,
            server: ServerEnd::Login(Box::new(login)),
            is_clients: true,
            passed: [0; 2],
            is_answered: false,
            unread_until: None,
        };
        self.wire.next_connection += 1;
        self.wire.connections.insert(ConnectionId(self.wire.next_connection), wire);
        self.workers[client].client.connected(connection, self.now);
        self.drain_machine(client)
    }

    /// Moves what is due on a connection.
    pub(super) fn attend_connection(&mut self, id: ConnectionId) -> Outcome<()> {
        let now = self.now;
        let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
        if wire.line.as_ref().and_then(Line::next_at).is_some_and(|at| at <= now) {
            self.attend_line(id)?;
            self.wire.connections.retain(|_, wire| !wire.is_over());
            return Ok(());
        }
        if wire.unread_until.take_if(|until| *until <= now).is_some()
            && let Some(host) = &mut self.host
        {
            let packets: Vec<Packet> = std::iter::from_fn(|| host.server.poll_transmit(id)).collect();
            packets.iter().for_each(|packet| self.transmit(id, false, packet));
            return self.drain_host();
        }
        let is_due = |stream: &Stream| stream.next_at().is_some_and(|at| at <= now);
        if !matches!(wire.server, ServerEnd::Gone) && is_due(&wire.there) {
            match self.take(id, true) {
                Some(Chunk::Bytes(bytes)) => self.feed_server(id, &bytes)?,
                Some(Chunk::End) => self.server_lost(id)?,
                None => {}
            }
        } else if wire.is_clients && is_due(&wire.back) {
            match self.take(id, false) {
                Some(Chunk::Bytes(bytes)) => self.feed_client(id, &bytes)?,
                Some(Chunk::End) => self.client_lost(id)?,
                None => {}
            }
        } else if let ServerEnd::Login(login) = &mut wire.server {
            login.handle_timeout(now);
            self.after_login_input(id)?;
        }
        self.wire.connections.retain(|_, wire| !wire.is_over());
        Ok(())
    }

    /// The next chunk; the connection is cut where that was wanted.
    fn take(&mut self, id: ConnectionId, is_there: bool) -> Option<Chunk> {
        let is_first = id.0 == 1;
        let wire = self.wire.connections.get_mut(&id)?;
        let stream = if is_there { &mut wire.there } else { &mut wire.back };
        let mut chunk = stream.take()?;
        let passed = &mut wire.passed[usize::from(!is_there)];
        if let Chunk::Bytes(bytes) = &mut chunk {
            let cut_after = self.wire.traffic.cut_after.filter(|(there, _)| is_first && *there == is_there);
            if let Some((_, at)) = cut_after.filter(|(_, at)| *passed + bytes.len() as u64 >= *at) {
                bytes.truncate((at - *passed) as usize);
                wire.there.cut(true, &mut self.random, self.now);
                wire.back.cut(true, &mut self.random, self.now);
                self.wire.traffic.cut_after = None;
            }
            *passed += bytes.len() as u64;
        }
        Some(chunk)
    }

    fn feed_server(&mut self, id: ConnectionId, mut bytes: &[u8]) -> Outcome<()> {
        let now = self.now;
        let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
        if let ServerEnd::Login(login) = &mut wire.server {
            login.handle_input(bytes, &*self.wire.desk, now);
            return self.after_login_input(id);
        }
        while !bytes.is_empty() {
            let Some(host) = &mut self.host else { return Ok(()) };
            let taken = fill(host.server.spaces(id), bytes);
            if taken > 0 {
                host.server.filled(id, taken, now);
                self.drain_host()?;
                bytes = &bytes[taken..];
                continue;
            }
            let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
            if matches!(wire.server, ServerEnd::Admitted) {
                wire.passed[0] -= bytes.len() as u64;
                wire.there.put_back(bytes, now);
                wire.there.is_blocked = true;
            }
            return Ok(());
        }
        Ok(())
    }

    pub(super) fn after_login_input(&mut self, id: ConnectionId) -> Outcome<()> {
        let now = self.now;
        let Some(Connection { server: ServerEnd::Login(login), .. }) = self.wire.connections.get_mut(&id) else {
            return Ok(());
        };
        let packets: Vec<Packet> = std::iter::from_fn(|| login.poll_transmit()).collect();
        let outcome = login.poll_outcome();
        packets.iter().for_each(|packet| self.transmit(id, false, packet));
        let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
        match outcome {
            None => return Ok(()),
            Some(LoginOutcome::Refused(_) | LoginOutcome::Redirected(_) | LoginOutcome::Lost) => match &mut wire.line {
                Some(line) => line.is_closing = true,
                None => {
                    wire.server = ServerEnd::Gone;
                    wire.back.finish(now);
                }
            },
            Some(LoginOutcome::Admitted(admitted)) => {
                wire.server = ServerEnd::Admitted;
                if let Some(host) = &mut self.host {
                    host.admit(id, *admitted, now);
                }
            }
        }
        self.drain_host()
    }

    fn server_lost(&mut self, id: ConnectionId) -> Outcome<()> {
        let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
        let was = std::mem::replace(&mut wire.server, ServerEnd::Gone);
        if let (ServerEnd::Admitted, Some(host)) = (was, &mut self.host) {
            host.server.connection_lost(id, self.now);
        }
        self.drain_host()
    }

    fn feed_client(&mut self, id: ConnectionId, mut bytes: &[u8]) -> Outcome<()> {
        while let Some(wire) = self.wire.connections.get(&id).filter(|wire| wire.is_clients && !bytes.is_empty()) {
            let (client, number) = (wire.client, wire.number);
            let machine = &mut self.workers[client].client;
            let taken = fill(machine.spaces(number), bytes);
            if taken == 0 {
                return Err(format!("client {client} takes no bytes of a connection that it did not close"));
            }
            machine.filled(number, taken, self.now);
            bytes = &bytes[taken..];
            self.drain_machine(client)?;
        }
        Ok(())
    }

    fn client_lost(&mut self, id: ConnectionId) -> Outcome<()> {
        let Some(wire) = self.wire.connections.get_mut(&id) else { return Ok(()) };
        wire.is_clients = false;
        let (client, number) = (wire.client, wire.number);
        self.workers[client].client.connection_lost(number, self.now);
        self.drain_machine(client)
    }

    pub(super) fn drain_host(&mut self) -> Outcome<()> {
        let now = self.now;
        let mut is_moving = true;
        while is_moving {
            let Some(host) = &mut self.host else { return Ok(()) };
            host.drain_events(&mut self.counts, now)?;
            let scheduled = host.executor.take_scheduled();
            let mut closing = std::mem::take(&mut host.closing);
            let connections = &mut self.wire.connections;
            closing.retain(|id| match connections.get_mut(id).and_then(|wire| wire.line.as_mut()) {
                Some(line) => {
                    line.is_closing = true;
                    false
                }
                None => true,
            });
            let mut packets = Vec::new();
            is_moving = !closing.is_empty();
            while let Some(id) = host.server.poll_ready() {
                is_moving = true;
                if let Some(wire) = self.wire.connections.get_mut(&id) {
                    wire.there.is_blocked = false;
                    let deaf = self.wire.deaf.get(&wire.client).copied().filter(|until| *until > now);
                    if deaf.is_some() && matches!(wire.server, ServerEnd::Admitted) {
                        wire.unread_until = deaf;
                        continue;
                    }
                }
                packets.extend(std::iter::from_fn(|| host.server.poll_transmit(id)).map(|packet| (id, packet)));
            }
            for &id in &closing {
                host.server.connection_lost(id, now);
            }
            self.expect_disk(scheduled);
            packets.iter().for_each(|(id, packet)| self.transmit(*id, false, packet));
            for id in closing {
                if let Some(wire) = self.wire.connections.get_mut(&id) {
                    wire.server = ServerEnd::Gone;
                    wire.back.finish(now);
                }
            }
        }
        Ok(())
    }

    pub(super) fn drain_machine(&mut self, client: usize) -> Outcome<()> {
        self.drain_told(client)?;
        while let Some(action) = self.workers[client].client.poll_action() {
            match action {
                ClientAction::Connect { connection, .. } => {
                    let at = self.now + OPENING + self.random.micros(0..=self.plan.wire.pieces.delay_us.1);
                    self.schedule(at, Open { client, connection });
                }
                ClientAction::Close { connection } => self.close(client, connection),
            }
        }
        while let Some(number) = self.workers[client].client.poll_ready() {
            let machine = &mut self.workers[client].client;
            let packets: Vec<Packet> = std::iter::from_fn(|| machine.poll_transmit(number)).collect();
            if let Some(id) = self.wire_of(client, number) {
                packets.iter().for_each(|packet| self.transmit(id, true, packet));
            }
        }
        Ok(())
    }

    fn wire_of(&self, client: usize, number: ConnectionId) -> Option<ConnectionId> {
        self.wire.connections.iter().find(|(_, wire)| wire.client == client && wire.number == number).map(|(id, _)| *id)
    }

    /// A client closes: what it has sent comes, or some of it.
    fn close(&mut self, client: usize, number: ConnectionId) {
        let Some(wire) = self.wire_of(client, number).and_then(|id| self.wire.connections.get_mut(&id)) else { return };
        wire.is_clients = false;
        if let Some(line) = &mut wire.line {
            line.is_parting = true;
            return;
        }
        if self.random.chance(500_000) {
            wire.there.finish(self.now);
        } else {
            wire.there.cut(true, &mut self.random, self.now);
        }
    }

    fn transmit(&mut self, id: ConnectionId, is_there: bool, packet: &Packet) {
        let is_iser = self.plan.wire.is_iser;
        // The CRCs of iWARP are always there.
        let has_digests = self.plan.wire.wishes.digests || is_iser;
        let Some(wire) = self.wire.connections.get_mut(&id) else { return };
        let is_protected = has_digests && wire.is_answered;
        if !is_there && matches!(wire.server, ServerEnd::Admitted) {
            wire.is_answered = true;
        }
        let mut bytes = packet.head.to_vec();
        let header_bytes = HEADER_BYTES + if is_protected { DIGEST_BYTES } else { 0 };
        let at = bytes.len().checked_sub(header_bytes).filter(|_| !is_iser);
        let code = at.map(|at| bytes[at] & 0x3f);
        let data_at = bytes.len();
        bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
        bytes.extend_from_slice(&packet.tail);
        code.into_iter().for_each(|code| *self.wire.traffic.pdus.entry((is_there, code)).or_default() += 1);
        if id.0 == 1 {
            let ends = &mut self.wire.traffic.ends[usize::from(!is_there)];
            ends.push(ends.last().unwrap_or(&0) + bytes.len() as u64);
        }
        if is_protected
            && bytes.len() > data_at
            && self.wire.traffic.damage_next.map(Some) == Some(code.map(|c| (is_there, c)))
        {
            self.wire.traffic.damage_next = None;
            bytes[data_at] ^= 1;
        }
        if is_protected && self.random.chance(self.plan.wire.pieces.damage_per_million) {
            let at = self.random.range(0..=bytes.len() as u64 - 1) as usize;
            bytes[at] ^= 1 << self.random.range(0..=7);
        }
        self.note(bytes.len() as u64 ^ u64::from(bytes[bytes.len() - 1]) << 32);
        let Some(wire) = self.wire.connections.get_mut(&id) else { return };
        let stream = if is_there { &mut wire.there } else { &mut wire.back };
        stream.send(&bytes, &self.plan.wire.pieces, &mut self.random, self.now);
        if let Some(until) = self.wire.stalled.get(&wire.client).filter(|until| **until > self.now) {
            stream.stall(*until);
        }
    }
}

fn fill(spaces: [&mut [u8]; 2], from: &[u8]) -> usize {
    let mut taken = 0;
    for space in spaces {
        let part = space.len().min(from.len() - taken);
        space[..part].copy_from_slice(&from[taken..taken + part]);
        taken += part;
    }
    taken
}
