//! Packets: a client's protocol at one end, the ports of a server's shards at the other, and between them links that lose, double,
//! delay and damage.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use sanwire_core::limits::HYPERSCSI_TRANSFER_MAX_BYTES;
use sanwire_core::{LinkId, Path, Peer, Protection};
use sanwire_hyperscsi::{Client, ClientConfig, DesiredOptions, Identity, LinkLimits, Recovery, UDP_PORT};
use sanwire_sim::hyperscsi::link::{Link, LinkPlan};
use sanwire_sim::iscsi::fixed_directory::SERVER;
use sanwire_sim::random::Random;

use super::port::PACKET_MAX_BYTES;
use super::wire::{Event, World, run_host};
use super::{Outcome, told};

/// Packets that a client sends at one moment, at the most.
const SENT_MAX: usize = 20_000;

/// The links of one client.
pub(super) struct Air {
    pub(super) there: Link,
    pub(super) back: Link,
}

impl Air {
    pub(super) fn new(plan: LinkPlan) -> Self {
        Air { there: Link::new(plan), back: Link::new(plan) }
    }
}

/// The server's address.
pub(super) fn server() -> SocketAddr {
    SocketAddr::new(SERVER, UDP_PORT)
}

pub(super) fn peer(client: usize) -> Peer {
    Peer::Udp(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 2, client as u8)), 40_000))
}

pub(super) fn identity(client: usize) -> Outcome<Identity> {
    Identity::from_private([10 + client as u8; 32]).map_err(told)
}

/// A client's end.
pub(super) fn machine(client: usize, world: &mut World) -> Outcome<Client> {
    let config = ClientConfig {
        name: format!("client {client}"),
        identity: identity(client)?,
        psk: [0; 32],
        server_key: None,
        path: Path { link: LinkId(0), peer: Peer::Udp(server()) },
        server_name: String::new(),
        link: LinkLimits { packet_max_bytes: PACKET_MAX_BYTES as u32, receive_capacity_packets: 512 },
        commands_max: 32,
        transfer_max_bytes: HYPERSCSI_TRANSFER_MAX_BYTES as u32,
        protection_min: Protection::default(),
        wishes: DesiredOptions::default(),
        recovery: Recovery::default(),
        connect_patience: Duration::from_secs(120),
        reconnect_patience: None,
        seed: world.random.seed(),
    };
    Ok(Client::new(config, world.now))
}

/// Sends what a client has to say.
pub(super) fn drain_machine(world: &mut World, client: usize) -> Outcome<()> {
    let now = world.now;
    for _ in 0..SENT_MAX {
        let Some(machine) = world.workers[client].client.as_packets() else { return Ok(()) };
        let Some((_, packet)) = machine.poll_transmit(now) else { return Ok(()) };
        let bytes = packet.to_vec();
        note(world, &bytes);
        let Some(air) = world.wire.airs.get_mut(&client) else { return Ok(()) };
        for (at, bytes) in air.there.pass(&bytes, &mut world.random, now) {
            world.schedule(at, Event::ToServer { client, bytes });
        }
    }
    Err(format!("client {client} transmits without end"))
}

/// Takes what the shards have sent.
pub(super) fn pull_all(world: &mut World) {
    let now = world.now;
    let sent = world.host.as_ref().map(super::host::Host::take_sent).unwrap_or_default();
    for (to, bytes) in sent {
        note(world, &bytes);
        let Some(client) = (0..world.plan.clients).find(|client| peer(*client) == to) else { continue };
        let Some(air) = world.wire.airs.get_mut(&client) else { continue };
        for (at, bytes) in air.back.pass(&bytes, &mut world.random, now) {
            world.schedule(at, Event::ToClient { client, bytes });
        }
    }
}

/// A packet comes to the server.
pub(super) fn arrive(world: &mut World, client: usize, bytes: Vec<u8>) -> Outcome<()> {
    let Some(host) = &mut world.host else { return Ok(()) };
    host.receive(peer(client), bytes, &mut world.random);
    run_host(world)
}

/// A packet comes to a client.
pub(super) fn hear(world: &mut World, client: usize, bytes: &[u8]) -> Outcome<()> {
    let (now, path) = (world.now, Path { link: LinkId(0), peer: Peer::Udp(server()) });
    if let Some(machine) = world.workers[client].client.as_packets() {
        machine.handle_input(path, bytes, now);
    }
    super::wire::drain(world, client)
}

/// Nothing passes, or it does again.
pub(super) fn cut(world: &mut World, client: usize, is_cut: bool) {
    if let Some(air) = world.wire.airs.get_mut(&client) {
        (air.there.is_cut, air.back.is_cut) = (is_cut, is_cut);
    }
}

fn note(world: &mut World, bytes: &[u8]) {
    world.note(bytes.len() as u64 ^ u64::from(bytes.last().copied().unwrap_or(0)) << 32);
}

/// A link of any kind.
pub(super) fn any_link(random: &mut Random) -> LinkPlan {
    let rates: &[u32] = &[0, 0, 2_000, 50_000];
    LinkPlan {
        delay_us: random.choose(&[10, 200, 5_000]),
        jitter_us: random.choose(&[0, 50, 2_000]),
        loss_per_million: random.choose(rates),
        duplicate_per_million: random.choose(rates),
        damage_per_million: random.choose(rates),
        ..LinkPlan::clean(PACKET_MAX_BYTES)
    }
}
