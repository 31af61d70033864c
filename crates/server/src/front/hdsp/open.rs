//! What HDSP's end of a shard is made of.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_core::quota::{SESSIONS, SESSIONS_OF_CLIENT};
use sanwire_hdsp::{LinkLimits, Server, ServerConfig};

use super::directory::Doorkeeper;
use super::{Hdsp, packet_max_bytes};
use crate::error::StartError;
use crate::front::{FrontBuilder, FrontParts};
use crate::link::PortTerms;
use crate::server::random;

const KEEP_ALIVE: Duration = Duration::from_secs(5);
const LINGER: Duration = Duration::from_secs(600);

/// N: packets of a group, to begin with.
const GROUP_PACKETS: u16 = 32;

/// M: packets of writes that are held before they are written.
const BATCH_PACKETS: u32 = 256;

/// Data of writes, and of answers, that a session may have under way.
const ROOM_BYTES: u32 = 2 << 20;

/// Nexuses of this wire are numbered from here on, far above those of HyperSCSI and below those of the others.
const NEXUS_BASE: u64 = 1 << 62;

/// Prepares the end of a shard.
pub(crate) fn open(parts: &FrontParts<'_>) -> Result<FrontBuilder, StartError> {
    let FrontParts { config, shard, memory, clients, levels, disks, instance, .. } = parts;
    let (run, shards) = (*instance, config.shards.max(1));
    let doorkeeper =
        Doorkeeper { clients: Arc::clone(clients), levels: Arc::clone(levels), disks: Arc::clone(disks), run };
    let mut instance = [0; 16];
    instance[8..].copy_from_slice(&run.to_be_bytes());
    let config = ServerConfig {
        name: config.name.clone(),
        identity: config.identity.clone(),
        psk: config.psk,
        instance,
        links: parts.ports.iter().map(|port| link_limits(port, shards)).collect(),
        group_packets: GROUP_PACKETS,
        write_room_bytes: ROOM_BYTES,
        transfer_max_bytes: TRANSFER_MAX_BYTES as u32,
        keep_alive: KEEP_ALIVE,
        linger: LINGER,
        sessions_max: SESSIONS.limit as usize,
        sessions_of_client_max: SESSIONS_OF_CLIENT.limit as usize,
        batch_packets: BATCH_PACKETS,
        shard: *shard,
        shards,
        nexus_base: NEXUS_BASE,
        memory: memory.clone(),
        directory: Box::new(doorkeeper),
        seed: random()?,
    };
    let (clients, levels, disks) = (Arc::clone(clients), Arc::clone(levels), Arc::clone(disks));
    Ok(Box::new(move |front| {
        Box::new(Hdsp {
            front,
            server: Server::new(config),
            clients,
            levels,
            disks,
            sessions: BTreeMap::new(),
            commands: BTreeMap::new(),
            later: BTreeMap::new(),
            events: VecDeque::new(),
            links: Vec::new(),
            is_ending: false,
        })
    }))
}

/// The limits of a port, as the protocol negotiates them.
fn link_limits(port: &PortTerms, shards: u32) -> LinkLimits {
    let window_packets = (port.receive_capacity_packets / shards).max(1);
    LinkLimits { packet_max_bytes: packet_max_bytes(port.packet_max_bytes), window_packets }
}
