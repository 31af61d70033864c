//! Both ends for tests that look into one of them.

use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Path, Protection};

use crate::{Client, ClientConfig, Doorkeeper, Identity, LinkLimits, Server, ServerConfig, Wishes};

pub(crate) const LINK: LinkLimits = LinkLimits { packet_max_bytes: 1472, window_packets: 64, is_stream: false };

fn key(number: u8) -> Identity {
    Identity::from_private([number; 32]).unwrap()
}

pub(crate) fn server(link: LinkLimits, doorkeeper: impl Doorkeeper + 'static) -> Server {
    Server::new(ServerConfig {
        name: "vault".to_owned(),
        identity: key(1),
        psk: [9; 32],
        doorkeeper: Box::new(doorkeeper),
        levels: Box::new(|_| Protection::Checksum),
        wishes: Wishes::default(),
        memory: Region::new(1 << 20).unwrap(),
        links: vec![link],
        shard: 0,
        shards: 1,
        instance: 1,
        nexus_base: 0,
        keep_alive: Duration::from_secs(1),
        session_idle_max: Duration::from_secs(30),
        commands_max: 8,
        transfer_max_bytes: 1 << 16,
        seed: [1; 32],
    })
}

/// A client of the server that is there.
pub(crate) fn client(link: LinkLimits, there: Path, now: Instant) -> Client {
    let config = ClientConfig {
        identity: key(2),
        psk: [9; 32],
        server_key: None,
        places: vec![there],
        server_name: String::new(),
        links: vec![link],
        wishes: Wishes::default(),
        commands_max: 8,
        protection_min: Protection::Checksum,
        connect_patience: Duration::from_secs(1),
        reconnect_patience: None,
        seed: [2; 32],
    };
    Client::new(config, now)
}

/// All that both ends have to say to each other now; each is at the same place for the other one.
pub(crate) fn exchange(client: &mut Client, server: &mut Server, path: Path, now: Instant) {
    loop {
        let to_server: Vec<_> = std::iter::from_fn(|| client.poll_transmit(now)).collect();
        to_server.iter().for_each(|(_, packet)| server.handle_input(path, &packet.to_vec(), now));
        let mut to_client: Vec<_> =
            std::iter::from_fn(|| server.poll_transmit(now)).map(|(_, packet)| packet).collect();
        while let Some(ready) = server.poll_stream(now) {
            to_client.extend(std::iter::from_fn(|| server.poll_transmit_on(ready, now)));
        }
        to_client.iter().for_each(|packet| client.handle_input(path, &packet.to_vec(), now));
        if to_server.is_empty() && to_client.is_empty() {
            return;
        }
    }
}
