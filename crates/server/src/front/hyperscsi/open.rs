//! What HyperSCSI's end of a shard is made of.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::limits::{COMMANDS_IN_TRANSIT_MAX, HYPERSCSI_TRANSFER_MAX_BYTES};
use sanwire_hyperscsi::{LinkLimits, Server, ServerConfig};
use sanwire_io::interface;

use super::{HyperScsi, fastest, packet_max_bytes};
use crate::error::StartError;
use crate::front::administration::Administration;
use crate::front::hyperscsi::clients::Gate;
use crate::front::{FrontBuilder, FrontParts};
use crate::link::{self, PortTerms};
use crate::server::random;

const KEEP_ALIVE: Duration = Duration::from_secs(5);
const SESSION_IDLE_MAX: Duration = Duration::from_secs(600);

/// Prepares the end of a shard.
pub(crate) fn open(parts: &FrontParts<'_>) -> Result<FrontBuilder, StartError> {
    let FrontParts { config, shard, memory, clients, levels, instance, inbox, home, .. } = parts;
    let shards = config.shards.max(1);
    let (of_volumes, others) = (Arc::clone(levels), Arc::clone(levels));
    let known = interface::watch().known();
    let addresses = known.map_or_else(Vec::new, |known| {
        config.announced.of_links(&link::addresses(parts.ports.iter().copied(), &known), &known)
    });
    let config = ServerConfig {
        name: config.name.clone(),
        identity: config.identity.clone(),
        psk: config.psk,
        admission: Box::new(Gate(Arc::clone(clients))),
        levels: Box::new(move |lun| of_volumes.of(lun)),
        compressible: Box::new(move |lun| others.is_compressible(lun)),
        memory: memory.clone(),
        links: parts.ports.iter().map(|port| link_limits(port, shards)).collect(),
        addresses: fastest(&addresses),
        shard: *shard,
        shards,
        instance: *instance,
        keep_alive: KEEP_ALIVE,
        rekey_interval: config.rekey_interval,
        session_idle_max: SESSION_IDLE_MAX,
        commands_max: COMMANDS_IN_TRANSIT_MAX as u16,
        transfer_max_bytes: HYPERSCSI_TRANSFER_MAX_BYTES as u32,
        recovery: config.recovery,
        seed: random()?,
    };
    let (clients, administration) = (Arc::clone(clients), Administration::new(clients, inbox, home));
    Ok(Box::new(move |front| {
        Box::new(HyperScsi {
            front,
            server: Server::new(config),
            clients,
            administration,
            sessions: BTreeMap::new(),
            events: VecDeque::new(),
        })
    }))
}

/// The limits of a port, as the protocol negotiates them.
fn link_limits(port: &PortTerms, shards: u32) -> LinkLimits {
    let packet_max_bytes = packet_max_bytes(port.packet_max_bytes);
    LinkLimits { packet_max_bytes, receive_capacity_packets: (port.receive_capacity_packets / shards.max(1)).max(1) }
}
