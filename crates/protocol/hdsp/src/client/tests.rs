//! A client and a server, where what is in the client is looked at or changed.

use std::time::Duration;

use sanwire_ata::{DEVICE_LBA, Registers, TaskFile};
use sanwire_buffer::{Region, Slice, Slices};
use sanwire_core::{ClientId, LinkId, MacAddress, Peer, Protection};
use sanwire_security::keys::Identity;

use super::orders::SAID_SPAN;
use super::*;
use crate::wire::pdu::GROUPS_MAX;
use crate::wire::{DiskType, ErrorCode};
use crate::{Answer, Directory, Disk, LinkLimits, Request, Server, ServerConfig, ServerEvent, Wanted};

struct Door;

impl Directory for Door {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn disk(&self, _: ClientId, _: Peer, _: Wanted<'_>, _: DiskType) -> Option<Disk> {
        Some(Disk { address: 1, volume: [1; 16], disk_type: DiskType::Sata, protection: Protection::Checksum })
    }
}

struct World {
    client: Client,
    server: Server,
    now: Instant,
    /// Nothing that is sealed comes to the client.
    is_deaf: bool,
    executed: u32,
}

fn path() -> Path {
    Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2; 6])) }
}

impl World {
    /// Both ends, connected.
    fn new() -> Self {
        let [identity, own] = [[1; 32], [2; 32]].map(|key| Identity::from_private(key).unwrap());
        let links = vec![LinkLimits { packet_max_bytes: 1500, window_packets: 64 }];
        let server = Server::new(ServerConfig {
            name: "vault".into(),
            identity: own,
            psk: [9; 32],
            instance: [1; 16],
            links: links.clone(),
            group_packets: 8,
            write_room_bytes: 1 << 16,
            transfer_max_bytes: 1 << 16,
            keep_alive: Duration::from_secs(20),
            linger: Duration::from_secs(60),
            sessions_max: 4,
            sessions_of_client_max: 4,
            batch_packets: 8,
            shard: 0,
            shards: 1,
            nexus_base: 0,
            memory: Region::new(1 << 20).unwrap(),
            directory: Box::new(Door),
            seed: [3; 32],
        });
        let config = ClientConfig {
            identity,
            psk: [9; 32],
            server_name: String::new(),
            server_key: None,
            volume: String::new(),
            disk_address: 1,
            disk_type: DiskType::Any,
            protection: Protection::Checksum,
            links,
            places: vec![path()],
            group_packets: 8,
            patience: Duration::from_secs(30),
            seed: [4; 32],
        };
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut world = World { client: Client::new(config, now), server, now, is_deaf: false, executed: 0 };
        assert!(matches!(world.wait(100)[..], [ClientEvent::Connected(_)]));
        world
    }

    fn exchange(&mut self) -> bool {
        let bytes = |packet: Packet| packet.to_vec();
        let mut is_any = false;
        while let Some((_, packet)) = self.client.poll_transmit(self.now) {
            is_any = true;
            self.server.handle_input(path(), &bytes(packet), self.now);
        }
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Command { handle, request: Request::Ata { task_file, .. }, .. } = event {
                self.executed += 1;
                let answer = Answer::Ata { registers: Registers::success(&task_file), data: None };
                self.server.reply(handle, &answer, false, self.now);
            }
        }
        while let Some((_, packet)) = self.server.poll_transmit(self.now) {
            is_any = true;
            let packet = bytes(packet);
            if !(self.is_deaf && RawPcu::read(&packet).is_ok_and(|raw| raw.pcu.is_sealed)) {
                self.client.handle_input(path(), &packet, self.now);
            }
        }
        is_any
    }

    fn wait(&mut self, millis: u64) -> Vec<ClientEvent> {
        let (until, mut events) = (self.now + Duration::from_millis(millis), Vec::new());
        loop {
            while self.exchange() {}
            events.extend(std::iter::from_fn(|| self.client.poll_event()));
            let next = self.client.poll_timeout().into_iter().chain(self.server.poll_timeout()).min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
        }
        self.now = until;
        events
    }

    fn flush(&mut self) {
        let command = Command::Ata(TaskFile::short(0xe7, 0, 0, [0; 3], DEVICE_LBA));
        let order = Order { command, data: None, room: None, more: false, may_repeat: false, is_probe: false };
        self.client.order(order, self.now).unwrap();
    }
}

#[test]
fn a_connection_whose_groups_are_half_used_up_gives_way_to_another_one() {
    let mut world = World::new();
    world.client.live.as_mut().unwrap().channel.skip_groups(GROUPS_MAX / 2);
    let events = world.wait(30_000);
    assert!(matches!(events[..], [ClientEvent::Connected(_)]), "{events:?}");
    world.flush();
    assert!(matches!(world.wait(100)[..], [ClientEvent::Ended { .. }]));
    assert!(!world.client.live.as_ref().unwrap().channel.is_worn() && world.executed == 1);
}

#[test]
fn numbers_do_not_come_near_to_those_that_a_proof_on_its_way_has_told_of() {
    let mut world = World::new();
    world.client.begin_seek(world.now);
    world.is_deaf = true;
    world.wait(10);
    assert!(world.client.seek.as_ref().is_some_and(|seek| !seek.candidates.is_empty()), "its proof is on the way");
    world.client.seek = None;
    world.client.orders.skip(SAID_SPAN - 3);
    (0..10).for_each(|_| world.flush());
    let given = |world: &World| world.client.orders.waiting().next;
    assert_eq!(given(&world), SAID_SPAN, "three");
    world.wait(4_900);
    assert_eq!(given(&world), SAID_SPAN);
    world.wait(200);
    assert_eq!(given(&world), SAID_SPAN + 7);
}

#[test]
fn a_client_that_is_told_that_its_session_is_over_begins_another_one_at_once() {
    let mut world = World::new();
    world.client.session.epoch = 7;
    world.client.begin_seek(world.now);
    assert!(matches!(world.wait(100)[..], [ClientEvent::Connected(_), ClientEvent::Forgotten]));
    world.client.session.epoch = 4;
    world.client.begin_seek(world.now);
    world.flush();
    let events = world.wait(100);
    let refused = |event: &&ClientEvent| matches!(event, ClientEvent::Refused(ErrorCode::UnknownConnection));
    assert_eq!(events.iter().filter(refused).count(), 3, "{events:?}");
    assert!(events.iter().any(|event| matches!(event, ClientEvent::Disconnected)));
    assert!(matches!(events.last(), Some(ClientEvent::Connected(_))) && world.client.session.epoch == 7);
}

#[test]
fn a_probe_with_data_goes_also_while_held_writes_have_all_the_room() {
    let mut world = World::new();
    let order = |data: Vec<u8>, is_probe| Order {
        command: Command::Scsi(vec![0x5f; 10]),
        data: Some(Slices::from(Slice::from(data))),
        room: None,
        more: false,
        may_repeat: true,
        is_probe,
    };
    let room = 4096;
    world.client.orders.order(order(vec![0; room], false)).unwrap();
    assert!(world.client.orders.give(room as u32, 512, None).is_some());
    world.client.orders.order(order(vec![0; 24], false)).unwrap();
    assert!(world.client.orders.give(room as u32, 512, None).is_none(), "there is no room for more");
    world.client.orders.again(true, 512);
    world.client.orders.order(order(vec![0; 24], true)).unwrap();
    assert!(world.client.orders.give(room as u32, 512, None).is_some(), "the server has forgotten what is held");
    assert!(world.client.orders.give(room as u32, 512, None).is_none(), "what is no probe waits");
}
