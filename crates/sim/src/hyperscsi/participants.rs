//! Who lives in a world: the server, the clients, their keys and addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::limits::HYPERSCSI_TRANSFER_MAX_BYTES;
use sanwire_core::{ClientId, LinkId, MacAddress, Path, Peer, Protection};
use sanwire_hyperscsi::wire::links::Address;
use sanwire_hyperscsi::{
    Admission, Client, ClientConfig, DesiredOptions, Identity, LinkLimits, Psk, ServerConfig, UDP_PORT,
};

use super::host::Host;
use super::plan::Medium;
use super::shard::{Clients, Shard};
use super::terms::Wanted;
use super::wire::World;
use crate::managers::Managers;
use crate::world::Outcome;

/// The server's, and that of its clients.
pub(super) const PASSWORD: Psk = [5; 32];

/// Who is let in, with their weights and their terms.
struct Door {
    allowed: BTreeMap<ClientId, u16>,
    /// Whether they are listed, and others are let in too.
    are_listed: bool,
    is_open: bool,
    wanted: Wanted,
}

impl Admission for Door {
    fn permits(&self, _: Peer, client: Option<ClientId>) -> bool {
        client.is_none_or(|client| self.is_open || self.allowed.contains_key(&client))
    }

    fn is_listed(&self, client: ClientId) -> bool {
        self.are_listed && self.allowed.contains_key(&client)
    }

    fn weight(&self, client: ClientId) -> u16 {
        self.allowed.get(&client).copied().unwrap_or(1)
    }

    fn wishes(&self, client: ClientId) -> DesiredOptions {
        self.wanted.of(client)
    }
}

impl World {
    pub(super) fn make_server(&mut self) -> Outcome<Host> {
        let units = self.make_units()?;
        let instance = self.random.u64();
        let numbers = (0..self.plan.clients).map(|client| Ok((identity(client)?.client_id(), client)));
        let numbers: BTreeMap<ClientId, usize> = numbers.collect::<Outcome<_>>()?;
        let managers = Managers { numbers, count: self.plan.work.managers };
        let mut shards = Vec::new();
        for shard in 0..self.plan.wire.shards {
            let wanted = self.wire.wanted.clone();
            let clients = Clients { wanted, managers: managers.clone() };
            let config = self.shard_config(shard as u32, instance)?;
            shards.push(Shard::new(config, Arc::clone(&units), Arc::clone(self.disk()), clients));
        }
        Ok(Host::new(shards, self.random.fork()))
    }

    fn door(&self) -> Outcome<Door> {
        let allowed = (0..self.plan.clients).filter(|client| !self.wire.strangers.contains(client)).map(|client| {
            let weight = self.plan.wire.weights.get(client).copied().unwrap_or(1);
            Ok((identity(client)?.client_id(), weight))
        });
        let (allowed, wanted) = (allowed.collect::<Outcome<_>>()?, self.wire.wanted.clone());
        let strangers = self.plan.wire.strangers.as_ref();
        let are_listed = strangers.is_some_and(|strangers| strangers.are_clients_listed);
        Ok(Door { allowed, are_listed, is_open: strangers.is_some(), wanted })
    }

    fn shard_config(&mut self, shard: u32, instance: u64) -> Outcome<ServerConfig> {
        let (levels, is_mixed) = (self.wire.wanted.clone(), self.plan.wire.is_mixed);
        Ok(ServerConfig {
            name: "sim".to_owned(),
            identity: Identity::from_private([99; 32]).map_err(|error| error.to_string())?,
            psk: PASSWORD,
            admission: Box::new(self.door()?),
            levels: Box::new(
                move |lun| if lun.is_none() && is_mixed { Protection::Checksum } else { levels.protection() },
            ),
            compressible: Box::new(|_| true),
            memory: Region::new(self.plan.server_memory_bytes).map_err(|error| error.to_string())?,
            links: vec![self.limits(); self.wire.media.len()],
            addresses: self.addresses(),
            shard,
            shards: self.plan.wire.shards as u32,
            instance,
            keep_alive: Duration::from_secs(1),
            rekey_interval: self.plan.wire.rekey_interval,
            session_idle_max: self.plan.wire.session_idle_max,
            commands_max: 16,
            transfer_max_bytes: HYPERSCSI_TRANSFER_MAX_BYTES as u32,
            recovery: self.plan.wire.recovery,
            seed: self.random.seed(),
        })
    }

    /// Where the server can be reached, by link, if in more than one place.
    fn addresses(&self) -> Vec<Address> {
        let media = &self.wire.media;
        let told = media.iter().enumerate().filter(|_| media.len() > 1).map(|(link, medium)| Address {
            peer: server_peer(*medium, link),
            packet_max_bytes: self.plan.wire.claimed_bytes,
            speed_mbit: 0,
        });
        told.collect()
    }

    fn limits(&self) -> LinkLimits {
        LinkLimits {
            packet_max_bytes: self.plan.wire.claimed_bytes,
            receive_capacity_packets: self.plan.wire.capacity_packets,
        }
    }

    pub(super) fn make_machine(&mut self, client: usize) -> Outcome<Client> {
        Ok(Client::new(self.client_config(client)?, self.now))
    }

    pub(super) fn client_config(&mut self, client: usize) -> Outcome<ClientConfig> {
        let server = match self.plan.wire.medium {
            Medium::Ethernet => Peer::Ethernet(MacAddress::BROADCAST),
            Medium::Udp => server_peer(Medium::Udp, 0),
        };
        let terms = self.plan.wire.terms_of(client);
        Ok(ClientConfig {
            name: format!("client {client}"),
            identity: identity(client)?,
            psk: self.wire.passwords.get(&client).copied().unwrap_or(PASSWORD),
            server_key: None,
            path: Path { link: LinkId(0), peer: server },
            server_name: if client == 0 { String::new() } else { "sim".to_owned() },
            link: self.limits(),
            commands_max: 32,
            transfer_max_bytes: HYPERSCSI_TRANSFER_MAX_BYTES as u32,
            protection_min: terms.protection_min,
            wishes: terms.client,
            recovery: self.plan.wire.recovery,
            connect_patience: Duration::from_secs(120),
            reconnect_patience: self.plan.work.patience,
            seed: self.random.seed(),
        })
    }
}

pub(super) fn identity(client: usize) -> Outcome<Identity> {
    Identity::from_private([10 + client as u8; 32]).map_err(|error| error.to_string())
}

pub(super) fn client_peer(medium: Medium, client: usize, link: usize) -> Peer {
    let (client, link) = (client as u8, link as u8);
    match medium {
        Medium::Ethernet => Peer::Ethernet(MacAddress([2, 0, 0, link, 1, client])),
        Medium::Udp => Peer::Udp(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, link, 1, client)), 40_000)),
    }
}

pub(super) fn server_peer(medium: Medium, link: usize) -> Peer {
    let link = link as u8;
    match medium {
        Medium::Ethernet => Peer::Ethernet(MacAddress([2, 0, 0, link, 0, 1])),
        Medium::Udp => Peer::Udp(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, link, 0, 1)), UDP_PORT)),
    }
}
