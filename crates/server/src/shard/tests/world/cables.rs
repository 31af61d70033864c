//! Connections: a client's protocol at one end, a socket of the server at the other, and between them bytes that come in pieces of any
//! size, at any time, and end anywhere.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt::set_socket_send_buffer_size;
use sanwire_buffer::Packet;
use sanwire_core::Instant;
use sanwire_iscsi::{Client, ClientAction, ConnectionId};
use sanwire_sim::iscsi::stream::{Chunk, OPENING, Stream};

use super::wire::{Event, World, drain, run_host};
use super::{Outcome, told};

/// One connection, seen from outside.
#[derive(Debug)]
pub(super) struct Cable {
    client: usize,
    /// Its number at the client.
    number: ConnectionId,
    there: Stream,
    back: Stream,
    /// The other end of the server's socket, while there is one.
    socket: Option<UnixStream>,
    /// The client has it.
    is_clients: bool,
}

impl Cable {
    /// When something is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let there = self.there.next_at().filter(|_| self.socket.is_some());
        let back = self.back.next_at().filter(|_| self.is_clients);
        there.into_iter().chain(back).min()
    }

    fn is_over(&self) -> bool {
        !self.is_clients && self.socket.is_none()
    }
}

pub(super) fn open(world: &mut World, client: usize, connection: ConnectionId) -> Outcome<()> {
    let now = world.now;
    if let Some(until) = world.wire.stalled.get(&client).copied().filter(|until| *until > now) {
        world.schedule(until, Event::Open { client, connection });
        return Ok(());
    }
    let Some(host) = &mut world.host else {
        with(world, client, |machine| machine.connection_lost(connection, now));
        return drain(world, client);
    };
    let (socket, servers) = UnixStream::pair().map_err(told)?;
    for socket in [&socket, &servers] {
        socket.set_nonblocking(true).map_err(told)?;
        set_socket_send_buffer_size(socket, world.plan.wire.socket_bytes).map_err(told)?;
    }
    host.accept(OwnedFd::from(servers).into(), client, now)?;
    let (there, back) = Default::default();
    let cable = Cable { client, number: connection, there, back, socket: Some(socket), is_clients: true };
    world.wire.next_cable += 1;
    world.wire.cables.insert(world.wire.next_cable, cable);
    with(world, client, |machine| machine.connected(connection, now));
    drain(world, client)?;
    run_host(world)
}

/// Moves what is due on a connection; false when there is nothing.
pub(super) fn attend(world: &mut World) -> Outcome<bool> {
    let now = world.now;
    let is_due = |stream: &Stream| stream.next_at().is_some_and(|at| at <= now);
    let due = world.wire.cables.iter_mut().find(|(_, cable)| cable.next_at().is_some_and(|at| at <= now));
    let Some((&id, cable)) = due else { return Ok(false) };
    if cable.socket.is_some() && is_due(&cable.there) {
        if push(cable, now)? {
            run_host(world)?;
        }
    } else {
        match cable.back.take() {
            Some(Chunk::Bytes(bytes)) => feed_client(world, id, &bytes)?,
            Some(Chunk::End) => {
                cable.is_clients = false;
                let (client, number) = (cable.client, cable.number);
                with(world, client, |machine| machine.connection_lost(number, now));
                drain(world, client)?;
            }
            None => {}
        }
    }
    world.wire.cables.retain(|_, cable| !cable.is_over());
    Ok(true)
}

/// Gives the server's socket what has come; whether there was something.
fn push(cable: &mut Cable, now: Instant) -> Outcome<bool> {
    let (Some(socket), Some(chunk)) = (&mut cable.socket, cable.there.take()) else { return Ok(false) };
    let Chunk::Bytes(bytes) = chunk else {
        cable.socket = None;
        return Ok(true);
    };
    match socket.write(&bytes) {
        Ok(count) => {
            cable.there.put_back(&bytes[count..], now);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            cable.there.put_back(&bytes, now);
            cable.there.is_blocked = true;
            Ok(false)
        }
        // The server has closed it. What it has sent before is read yet.
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(false),
        Err(error) => Err(told(error)),
    }
}

/// Takes what the server has sent on all connections, and tries those again whose sockets were full; whether there was something.
pub(super) fn pull_all(world: &mut World) -> bool {
    let ids: Vec<u64> = world.wire.cables.keys().copied().collect();
    let pulled = ids.into_iter().filter(|id| pull(world, *id)).count();
    world.wire.cables.retain(|_, cable| !cable.is_over());
    pulled > 0
}

fn pull(world: &mut World, id: u64) -> bool {
    let now = world.now;
    let Some(cable) = world.wire.cables.get_mut(&id) else { return false };
    cable.there.is_blocked = false;
    let is_deaf = world.wire.deaf.get(&cable.client).is_some_and(|until| *until > now);
    let Some(socket) = cable.socket.as_mut().filter(|_| !is_deaf) else { return false };
    let (mut bytes, mut space) = (Vec::new(), [0; 16 << 10]);
    let is_over = loop {
        match socket.read(&mut space) {
            Ok(0) => break true,
            Ok(count) => bytes.extend_from_slice(&space[..count]),
            Err(error) => break error.kind() != ErrorKind::WouldBlock,
        }
    };
    if !bytes.is_empty() {
        world.note(bytes.len() as u64 ^ u64::from(bytes[bytes.len() - 1]) << 32);
    }
    let Some(cable) = world.wire.cables.get_mut(&id) else { return false };
    cable.back.send(&bytes, &world.plan.wire.streams.pieces, &mut world.random, now);
    if let Some(until) = world.wire.stalled.get(&cable.client).filter(|until| **until > now) {
        cable.back.stall(*until);
    }
    if is_over {
        cable.socket = None;
        cable.back.finish(now);
    }
    !bytes.is_empty()
}

fn feed_client(world: &mut World, id: u64, mut bytes: &[u8]) -> Outcome<()> {
    while let Some(cable) = world.wire.cables.get(&id).filter(|cable| cable.is_clients && !bytes.is_empty()) {
        let (client, number) = (cable.client, cable.number);
        let now = world.now;
        let Some(machine) = world.workers[client].client.as_stream() else { return Ok(()) };
        let mut taken = 0;
        for space in machine.spaces(number) {
            let part = space.len().min(bytes.len() - taken);
            space[..part].copy_from_slice(&bytes[taken..taken + part]);
            taken += part;
        }
        if taken == 0 {
            return Err(format!("client {client} takes no bytes of a connection that it did not close"));
        }
        machine.filled(number, taken, now);
        bytes = &bytes[taken..];
        drain(world, client)?;
    }
    Ok(())
}

fn with(world: &mut World, client: usize, tell: impl FnOnce(&mut Client)) {
    if let Some(machine) = world.workers[client].client.as_stream() {
        tell(machine);
    }
}

/// Does what a client wants, and sends what it has to say.
pub(super) fn drain_machine(world: &mut World, client: usize) {
    while let Some(action) = world.workers[client].client.as_stream().and_then(Client::poll_action) {
        match action {
            ClientAction::Connect { connection, .. } => {
                let delay_max_us = world.plan.wire.streams.pieces.delay_us.1;
                let at = world.now + OPENING + world.random.micros(0..=delay_max_us);
                world.schedule(at, Event::Open { client, connection });
            }
            ClientAction::Close { connection } => close(world, client, connection),
        }
    }
    while let Some(machine) = world.workers[client].client.as_stream()
        && let Some(number) = machine.poll_ready()
    {
        let packets: Vec<Packet> = std::iter::from_fn(|| machine.poll_transmit(number)).collect();
        if let Some(id) = find(world, client, number) {
            packets.iter().for_each(|packet| transmit(world, id, packet));
        }
    }
}

fn find(world: &World, client: usize, number: ConnectionId) -> Option<u64> {
    let is_meant = |cable: &Cable| cable.is_clients && cable.client == client && cable.number == number;
    world.wire.cables.iter().find(|(_, cable)| is_meant(cable)).map(|(id, _)| *id)
}

fn transmit(world: &mut World, id: u64, packet: &Packet) {
    let bytes = packet.to_vec();
    world.note(bytes.len() as u64 ^ u64::from(bytes[bytes.len() - 1]) << 32);
    let now = world.now;
    let Some(cable) = world.wire.cables.get_mut(&id) else { return };
    cable.there.send(&bytes, &world.plan.wire.streams.pieces, &mut world.random, now);
    if let Some(until) = world.wire.stalled.get(&cable.client).filter(|until| **until > now) {
        cable.there.stall(*until);
    }
}

/// A client closes: what it has sent comes, or some of it.
fn close(world: &mut World, client: usize, number: ConnectionId) {
    let Some(cable) = find(world, client, number).and_then(|id| world.wire.cables.get_mut(&id)) else { return };
    cable.is_clients = false;
    if world.random.chance(500_000) {
        cable.there.finish(world.now);
    } else {
        cable.there.cut(true, &mut world.random, world.now);
    }
}

/// Cuts one connection; who does not notice it sends into the void.
pub(super) fn cut_one(world: &mut World, is_noticed_by_server: bool, is_noticed_by_client: bool) {
    let open: Vec<u64> = world.wire.cables.iter().filter(|(_, cable)| cable.is_clients).map(|(id, _)| *id).collect();
    if open.is_empty() {
        return;
    }
    let Some(cable) = world.wire.cables.get_mut(&world.random.choose(&open)) else { return };
    cable.there.cut(is_noticed_by_server, &mut world.random, world.now);
    cable.back.cut(is_noticed_by_client, &mut world.random, world.now);
}

/// The server is gone, and its ends of all connections with it.
pub(super) fn sever_all(world: &mut World) {
    for cable in world.wire.cables.values_mut() {
        cable.socket = None;
        cable.back.cut(true, &mut world.random, world.now);
    }
}

/// Nothing passes for a client until then.
pub(super) fn stall(world: &mut World, client: usize, until: Instant) {
    world.wire.stalled.insert(client, until);
    for cable in world.wire.cables.values_mut().filter(|cable| cable.client == client) {
        cable.there.stall(until);
        cable.back.stall(until);
    }
}

/// A client reads nothing for so long.
pub(super) fn deafen(world: &mut World, client: usize, duration: Duration) {
    let until = world.now + duration;
    world.wire.deaf.insert(client, until);
    world.schedule(until, Event::Hear);
}
