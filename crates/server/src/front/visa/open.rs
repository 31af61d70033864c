//! What VISA's end of a shard is made of.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::limits::{COMMANDS_IN_TRANSIT_MAX, TRANSFER_MAX_BYTES};
use sanwire_core::{ClientId, Instant, LinkId, Peer};
use sanwire_visa::framing::PACKET_MAX_BYTES;
use sanwire_visa::{Doorkeeper, LinkLimits, Psk, Server, ServerConfig};

use super::streams::Streams;
use super::{Visa, packet_max_bytes};
use crate::error::StartError;
use crate::front::administration::Administration;
use crate::front::hyperscsi::clients::Clients;
use crate::front::{FrontBuilder, FrontParts};
use crate::link::PortTerms;
use crate::server::random;

const KEEP_ALIVE: Duration = Duration::from_secs(5);
const SESSION_IDLE_MAX: Duration = Duration::from_secs(600);

/// Packets under way on a connection of TCP. Nobody counts them there, but an offer says something.
const STREAM_WINDOW_PACKETS: u32 = 64;

/// Packets under way to a server over UDP, at the most: what comes early is kept.
const WINDOW_PACKETS_MAX: u32 = 1024;

/// Nexuses of this wire are numbered from here on, above those of HyperSCSI and below those of the others.
const NEXUS_BASE: u64 = 1 << 61;

/// What the protocol asks, of the clients as they are at that moment.
pub(super) struct Door(pub(super) Arc<Clients>);

impl Doorkeeper for Door {
    fn permits(&self, peer: Peer, client: Option<ClientId>) -> bool {
        self.0.permits(peer, client)
    }

    fn is_listed(&self, client: ClientId) -> bool {
        self.0.is_listed(client)
    }

    fn psk(&self, client: ClientId) -> Option<Psk> {
        Some(self.0.psk(client))
    }
}

/// Prepares the end of a shard.
pub(crate) fn open(parts: &FrontParts<'_>) -> Result<FrontBuilder, StartError> {
    let FrontParts { config, shard, memory, clients, levels, instance, inbox, home, .. } = parts;
    let shards = config.shards.max(1);
    let of_volumes = Arc::clone(levels);
    let mut links: Vec<LinkLimits> = parts.ports.iter().map(|port| link_limits(port, shards)).collect();
    let of_streams = LinkId(links.len() as u8);
    links.push(LinkLimits {
        packet_max_bytes: PACKET_MAX_BYTES as u16,
        window_packets: STREAM_WINDOW_PACKETS,
        is_stream: true,
    });
    let config = ServerConfig {
        name: config.name.clone(),
        identity: config.identity.clone(),
        psk: config.psk,
        doorkeeper: Box::new(Door(Arc::clone(clients))),
        levels: Box::new(move |lun| of_volumes.of(lun)),
        wishes: config.visa,
        memory: memory.clone(),
        links,
        shard: *shard,
        shards,
        instance: *instance,
        nexus_base: NEXUS_BASE,
        keep_alive: KEEP_ALIVE,
        session_idle_max: SESSION_IDLE_MAX,
        commands_max: COMMANDS_IN_TRANSIT_MAX as u16,
        transfer_max_bytes: TRANSFER_MAX_BYTES as u32,
        seed: random()?,
    };
    let (clients, administration) = (Arc::clone(clients), Administration::new(clients, inbox, home));
    Ok(Box::new(move |front| {
        Box::new(Visa {
            front,
            server: Server::new(config),
            clients,
            administration,
            sessions: BTreeMap::new(),
            streams: Streams::new(of_streams),
            events: VecDeque::new(),
            now: Instant::ZERO,
        })
    }))
}

/// The limits of a port, as the protocol negotiates them.
fn link_limits(port: &PortTerms, shards: u32) -> LinkLimits {
    let window_packets = (port.receive_capacity_packets / shards).clamp(1, WINDOW_PACKETS_MAX);
    LinkLimits { packet_max_bytes: packet_max_bytes(port.packet_max_bytes), window_packets, is_stream: false }
}
