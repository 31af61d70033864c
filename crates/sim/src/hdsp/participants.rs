//! Who takes part: a server that lets its clients in and nobody else, and clients of one disk.

use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{ClientId, Instant, LinkId, MacAddress, Path, Peer};
use sanwire_hdsp::wire::DiskType;
use sanwire_hdsp::{Client, ClientConfig, Directory, Disk as ServedDisk, LinkLimits, Server, ServerConfig, Wanted};
use sanwire_security::keys::Identity;

use super::initiator::Initiator;
use super::plan::Plan;
use crate::random::Random;

pub(super) const SERVER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

const PSK: [u8; 32] = [9; 32];

pub(super) fn mac_of(client: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, client as u8])
}

pub(super) fn path(mac: MacAddress) -> Path {
    Path { link: LinkId(0), peer: Peer::Ethernet(mac) }
}

/// Who may connect: all clients of the world, and nobody else.
struct Door {
    clients: Vec<ClientId>,
    disk: ServedDisk,
}

impl Directory for Door {
    fn permits(&self, _: Peer, client: Option<ClientId>) -> bool {
        client.is_none_or(|client| self.clients.contains(&client))
    }

    fn disk(&self, _: ClientId, _: Peer, wanted: Wanted<'_>, _: DiskType) -> Option<ServedDisk> {
        (wanted == Wanted::Named("v") || wanted == Wanted::At(self.disk.address)).then_some(self.disk)
    }
}

fn identity(number: u8) -> Identity {
    Identity::from_private([number; 32]).expect("any bytes are a private key")
}

pub(super) fn server(plan: &Plan, memory: &Region, random: &mut Random) -> Server {
    let clients = (0..plan.clients).map(|client| identity(10 + client as u8).client_id()).collect();
    let disk = ServedDisk { address: 3, volume: [7; 16], disk_type: plan.disk_type, protection: plan.protection };
    let mut instance = [0; 16];
    instance.copy_from_slice(&random.seed()[..16]);
    Server::new(ServerConfig {
        name: "vault".to_owned(),
        identity: identity(1),
        psk: PSK,
        instance,
        links: vec![limits(plan, plan.window_packets)],
        group_packets: plan.group_packets,
        write_room_bytes: 256 << 10,
        transfer_max_bytes: 1 << 20,
        keep_alive: Duration::from_millis(500),
        linger: Duration::from_secs(600),
        sessions_max: 16,
        sessions_of_client_max: 4,
        batch_packets: random.choose(&[1, 8, 256]),
        shard: 0,
        shards: 1,
        nexus_base: 0,
        memory: memory.clone(),
        directory: Box::new(Door { clients, disk }),
        seed: random.seed(),
    })
}

fn limits(plan: &Plan, window_packets: u32) -> LinkLimits {
    LinkLimits { packet_max_bytes: plan.packet_max_bytes, window_packets }
}

pub(super) fn initiator(plan: &Plan, client: usize, random: &mut Random) -> Initiator {
    let config = ClientConfig {
        identity: identity(10 + client as u8),
        psk: PSK,
        server_name: if random.chance(500_000) { "vault".to_owned() } else { String::new() },
        server_key: random.chance(500_000).then(|| *identity(1).public()),
        volume: if random.chance(500_000) { "v".to_owned() } else { String::new() },
        disk_address: 3,
        disk_type: DiskType::Any,
        protection: sanwire_core::Protection::Checksum,
        links: vec![limits(plan, plan.client_window_packets)],
        places: vec![path(MacAddress::BROADCAST)],
        group_packets: plan.client_group_packets,
        patience: plan.patience,
        seed: random.seed(),
    };
    Initiator::new(Client::new(config, Instant::ZERO), plan, random.fork())
}
