//! Several shards behind one address: all sessions of a client are with one of them, whatever port it comes from.

use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::Instant;
use sanwire_hdsp::wire::connection::{Home, Step};
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::{DiskType, Header, PacketType};
use sanwire_hdsp::{Client, Server, ServerEvent};
use sanwire_security::keys::Identity;

use crate::world::{Habits, World, client, path, read, shard_of_server};

const SHARDS: u32 = 3;

/// The servers behind an address, and one client.
struct Shards {
    servers: Vec<Server>,
    client: Client,
    now: Instant,
    opened: Vec<(usize, u64)>,
    /// Headers of what the client has sent.
    sent: Vec<Header>,
}

impl Shards {
    fn new(run: u8) -> Shards {
        let world = World::new(Habits::default());
        let memory = Region::new(8 << 20).unwrap();
        let servers = (0..SHARDS).map(|shard| shard_of_server(&world.door, 1, &memory, (shard, SHARDS))).collect();
        let client = client(Habits::default(), run, vec![path(0)], world.now);
        Shards { servers, client, now: world.now, opened: Vec::new(), sent: Vec::new() }
    }

    fn exchange(&mut self) -> bool {
        let mut is_any = false;
        while let Some((_, packet)) = self.client.poll_transmit(self.now) {
            let bytes = packet.to_vec();
            let header = Header::read(&bytes).unwrap();
            let shard = (header.connection() % SHARDS) as usize;
            self.servers[shard].handle_input(path(1), &bytes, self.now);
            self.sent.push(header);
            is_any = true;
        }
        for (shard, server) in self.servers.iter_mut().enumerate() {
            while let Some(event) = server.poll_event() {
                if let ServerEvent::SessionOpened { nexus, .. } = event {
                    self.opened.push((shard, nexus.0));
                }
            }
            while let Some((_, packet)) = server.poll_transmit(self.now) {
                self.client.handle_input(path(0), &packet.to_vec(), self.now);
                is_any = true;
            }
        }
        is_any
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            while self.exchange() {}
            let servers = self.servers.iter().filter_map(Server::poll_timeout);
            let Some(at) = servers.chain(self.client.poll_timeout()).min().filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.servers.iter_mut().for_each(|server| server.handle_timeout(self.now));
        }
        self.now = until;
    }
}

fn home() -> Home {
    Home::of(Identity::from_private([1; 32]).unwrap().client_id(), SHARDS)
}

#[test]
fn all_programs_of_a_client_come_to_one_shard_and_stay_there() {
    let home = usize::from(home().shard);
    let mut moved = 0;
    for run in 1..9 {
        let mut shards = Shards::new(run);
        shards.wait(Duration::from_secs(1));
        assert!(shards.client.is_connected());
        let nexus = 300 + home as u64;
        assert_eq!(shards.opened, [(home, nexus)], "no other shard gives this number");
        moved += u32::from(shards.sent[0].client_port != shards.sent.last().unwrap().client_port);
        shards.client.order(read(DiskType::Sata, 8, 4), shards.now).unwrap();
        let before = shards.sent.len();
        shards.wait(Duration::from_secs(1));
        let is_home = |header: &Header| header.connection() % SHARDS == home as u32;
        assert!(shards.sent.len() > before && shards.sent[before..].iter().all(is_home));
    }
    assert!((1..8).contains(&moved), "{moved} of 8 have come from another port first");
}

#[test]
fn who_says_that_a_client_is_elsewhere_does_not_end_its_connection_and_is_not_followed_for_ever() {
    let mut shards = Shards::new(1);
    shards.wait(Duration::from_secs(1));
    let header = Header { from_server: true, packet_type: PacketType::Pcu, ..*shards.sent.last().unwrap() };
    let say = |shards: &mut Shards, attempt: u64| {
        for shard in 0..7 {
            let step = Step::Elsewhere { attempt, home: Home { shards: 7, shard } }.write();
            let packet = sanwire_hdsp::wire::Pcu {
                header: Header { server_port: 0, client_port: shards.sent.last().unwrap().client_port, ..header },
                class: sanwire_hdsp::wire::Class::Connection,
                is_sealed: false,
                number: 0,
            };
            let packet = packet.open_packet(&step);
            shards.client.handle_input(path(0), &packet, shards.now);
            while shards.exchange() {}
        }
    };
    say(&mut shards, 1);
    let before = shards.sent.len();
    shards.client.order(read(DiskType::Sata, 8, 4), shards.now).unwrap();
    shards.wait(Duration::from_secs(1));
    assert!(shards.client.is_connected() && shards.sent.len() > before && shards.opened.len() == 1);
    // While it seeks, whoever hears its attempt can send it elsewhere some times, and it finds its server all the same.
    let mut shards = Shards::new(2);
    for round in 0..20 {
        let Some((_, packet)) = shards.client.poll_transmit(shards.now) else { break };
        let bytes = packet.to_vec();
        shards.sent.push(Header::read(&bytes).unwrap());
        let raw = RawPcu::read(&bytes).unwrap();
        let Ok(Step::Request(request)) = Step::read(raw.operation) else { panic!("a request") };
        let step = Step::Elsewhere { attempt: request.attempt, home: Home { shards: 64, shard: round } }.write();
        let header = Header { from_server: true, ..raw.pcu.header };
        let pcu = sanwire_hdsp::wire::Pcu { header, class: raw.pcu.class, is_sealed: false, number: 0 };
        shards.client.handle_input(path(0), &pcu.open_packet(&step), shards.now);
    }
    assert!(shards.sent.len() <= 5, "{}", shards.sent.len());
    shards.wait(Duration::from_secs(5));
    assert!(shards.client.is_connected());
}
