use std::collections::VecDeque;

use sanwire_ata::{DEVICE_LBA, Registers, TaskFile, command_code};
use sanwire_buffer::{Frame, Region, Slice, Slices};
use sanwire_core::{ClientId, LinkId, MacAddress, Path, Peer, Protection};
use sanwire_security::keys::Identity;

use super::*;
use crate::wire::DiskType;
use crate::{
    Answer, Client, ClientConfig, ClientEvent, Command, CommandHandle, Directory, Disk, LinkLimits, Order, Outcome,
    Request, ServerConfig, ServerEvent, Wanted,
};

const NOW: Instant = Instant::from_nanos(1_000_000_000);

const WINDOW: u32 = 64;

fn flow(window_packets: u32) -> FlowControl {
    FlowControl::new(&Agreement {
        disk_type: DiskType::Sata,
        disk_address: 0,
        protection: Protection::Hash,
        window_packets,
        group_packets: 32,
        data_bytes: 1024,
        is_known: false,
        volume: [0; 16],
    })
}

fn at(millis: u64) -> Instant {
    NOW + Duration::from_millis(millis)
}

#[test]
fn w_n_and_rate_shrink_once_for_each_round_trip() {
    let mut flow = flow(256);
    flow.refused(None, || true, NOW);
    let half = Allowance { window_packets: 128, group_packets: 32, rate_bytes_per_second: 128 * 1024 * 1000 };
    assert_eq!((flow.poll(NOW), flow.poll(NOW)), (Some(half), None));
    flow.refused(None, || true, NOW + Duration::from_micros(999));
    assert_eq!(flow.poll(at(1)), None, "that was under way");
    flow.refused(None, || true, at(1));
    assert_eq!(flow.poll(at(1)).map(|allowance| allowance.window_packets), Some(64));
    let round_trip = Some(Duration::from_millis(50));
    flow.refused(round_trip, || true, at(50));
    assert_eq!(flow.poll(at(50)), None, "so was that");
    flow.refused(round_trip, || true, at(51));
    let less = Allowance { window_packets: 32, group_packets: 16, rate_bytes_per_second: 32 * 1024 * 20 };
    assert_eq!(flow.poll(at(51)), Some(less));
    (0..500).for_each(|millis| flow.refused(round_trip, || true, at(52 + millis)));
    let least = Allowance { window_packets: 4, group_packets: 2, rate_bytes_per_second: 4 * 1024 * 20 };
    assert_eq!(flow.poll(at(600)), Some(least));
}

/// What is under way may take much longer than a round trip did before there was so much of it.
#[test]
fn what_was_sent_before_its_client_has_heard_that_w_is_smaller_makes_it_no_smaller() {
    let mut flow = flow(256);
    flow.refused(None, || true, NOW);
    let patience = Duration::from_millis(50);
    assert!(flow.poll(NOW).is_some());
    let question = flow.poll_question(patience, NOW).unwrap();
    assert_eq!(flow.poll_question(patience, NOW), None);
    (1..30).for_each(|millis| flow.refused(None, || true, at(millis)));
    flow.answered(question + 1);
    flow.refused(None, || true, at(30));
    assert_eq!((flow.poll(at(30)), flow.poll_timeout()), (None, Some(at(130))), "it does not grow either");
    flow.answered(question);
    flow.refused(None, || true, at(31));
    assert_eq!(flow.poll(at(31)).map(|allowance| allowance.window_packets), Some(64));
    flow.poll_question(patience, at(31)).unwrap();
    flow.refused(None, || true, at(80));
    assert_eq!(flow.poll(at(80)), None);
    flow.refused(None, || true, at(81));
    assert!(flow.poll(at(81)).is_some(), "the answer is lost, perhaps");
}

#[test]
fn who_may_send_no_more_than_so_much_is_told_the_less_of_that_and_of_what_there_is_memory_for() {
    let mut flow = flow(256);
    let told = |window_packets, group_packets, rate_bytes_per_second| {
        Some(Allowance { window_packets, group_packets, rate_bytes_per_second })
    };
    flow.limit(16, 64, 1000);
    assert_eq!(flow.poll(NOW), told(16, 32, 1000));
    flow.refused(None, || true, NOW);
    assert_eq!(flow.poll(NOW), told(8, 4, 1000));
    flow.limit(u32::MAX, 8, 0);
    assert_eq!(flow.poll(NOW), told(8, 4, 8 * 1024 * 1000), "there is memory for no more");
    flow.handle_timeout(at(100));
    assert_eq!(flow.poll(at(100)), told(10, 5, 10 * 1024 * 1000));
    flow.limit(0, 0, 7);
    assert_eq!((flow.poll(at(100)), flow.poll_timeout()), (told(1, 1, 7), None));
    flow.limit(256, 32, 0);
    assert_eq!((flow.poll(at(100)), flow.poll_timeout()), (told(256, 32, 0), None));
}

#[test]
fn who_does_not_fill_the_memory_is_not_asked_to_send_less() {
    let mut flow = flow(256);
    flow.refused(None, || false, NOW);
    assert_eq!((flow.poll(NOW), flow.poll_timeout()), (None, None));
}

#[test]
fn w_comes_back_when_there_is_memory() {
    for agreed in [5, 64, 1024, 4096] {
        let mut flow = flow(agreed);
        (0..20).for_each(|step| flow.refused(None, || true, at(step * 10)));
        let mut last = flow.poll(at(190));
        assert_eq!(last.map(|allowance| allowance.window_packets), Some(4));
        let mut now = at(190);
        while let Some(due) = flow.poll_timeout() {
            now = due;
            flow.handle_timeout(now);
            last = flow.poll(now);
        }
        let all = Allowance { window_packets: agreed, group_packets: 32, rate_bytes_per_second: 0 };
        assert!(last == Some(all) && now < at(3_000), "{agreed}: {last:?} after {:?}", now - NOW);
    }
}

#[test]
fn a_window_that_is_as_small_as_can_be_does_not_change() {
    for agreed in 1..=4 {
        let mut flow = flow(agreed);
        flow.refused(None, || true, NOW);
        assert_eq!((flow.poll(NOW), flow.poll_timeout()), (None, None));
    }
}

/// Nobody acknowledges what a client is told, so it may be lost.
#[test]
fn a_client_that_is_heard_is_told_again() {
    let mut flow = flow(256);
    flow.heard(NOW);
    assert_eq!(flow.poll(NOW), None, "it was told nothing");
    flow.refused(None, || true, NOW);
    let told = flow.poll(NOW);
    flow.heard(at(499));
    assert_eq!(flow.poll(at(499)), None);
    flow.heard(at(500));
    assert!(told.is_some() && flow.poll(at(500)) == told);
}

#[test]
fn a_client_that_may_send_as_much_as_before_is_not_told_so_for_ever() {
    let mut flow = flow(5);
    let told_within = |flow: &mut FlowControl, millis: std::ops::Range<u64>| {
        let is_told = |millis: &u64| {
            flow.heard(at(*millis));
            flow.poll(at(*millis)).is_some()
        };
        millis.step_by(100).filter(is_told).collect::<Vec<u64>>()
    };
    flow.refused(None, || true, NOW);
    assert_eq!(told_within(&mut flow, 0..2_000), [0, 500, 1_000, 1_500], "as long as it is to send less");
    while let Some(due) = flow.poll_timeout() {
        flow.handle_timeout(due);
    }
    let seconds = [2_000, 2_500, 3_500, 5_500, 9_500, 17_500, 33_500, 65_500];
    assert_eq!(told_within(&mut flow, 2_000..600_000), seconds);
    flow.limit(3, 32, 0);
    assert_eq!(told_within(&mut flow, 600_000..601_000), [600_000, 600_500], "that is something else");
}

/// Windows of clients that find memory for so many packets, all of them together, in each of ten seconds.
fn settle(windows: &mut [FlowControl], room_packets: u32) -> (u64, Vec<Vec<u32>>) {
    let (mut shrunk, mut seen) = (0, vec![Vec::new(); windows.len()]);
    for millis in 0..10_000 {
        let sum: u32 = windows.iter().map(|flow| flow.window_packets).sum();
        for (flow, seen) in windows.iter_mut().zip(&mut seen) {
            let before = flow.window_packets;
            flow.handle_timeout(at(millis));
            if sum > room_packets {
                flow.refused(None, || true, at(millis));
            }
            flow.poll(at(millis));
            if let Some(question) = flow.poll_question(Duration::from_millis(50), at(millis)) {
                flow.answered(question);
            }
            shrunk += u64::from(flow.window_packets < before);
            seen.push(flow.window_packets);
        }
    }
    (shrunk, seen)
}

#[test]
fn a_window_stays_near_to_what_there_is_memory_for() {
    for room in [8, 20, 100, 500] {
        let (shrunk, seen) = settle(&mut [flow(1024)], room);
        let settled = &seen[0][300..];
        let (least, most) = (settled.iter().min().unwrap(), settled.iter().max().unwrap());
        assert!(*least >= room / 2 - 1 && *most <= room + room.isqrt() + 1, "{least} to {most} of {room}");
        assert!(shrunk <= 110, "{shrunk} times in ten seconds, of {room}");
    }
}

#[test]
fn two_clients_come_to_equal_windows_whatever_they_begin_with() {
    let mut windows = [flow(1024), flow(1024)];
    windows[1].window_packets = 4;
    windows[1].grow_at = Some(NOW);
    let (_, seen) = settle(&mut windows, 400);
    let late = |client: usize| seen[client][5_000..].iter().map(|window| u64::from(*window)).sum::<u64>();
    let (one, other) = (late(0), late(1));
    assert!(one * 4 < other * 5 && other * 4 < one * 5, "{one} and {other}");
}

struct Door;

impl Directory for Door {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn disk(&self, _: ClientId, _: Peer, _: Wanted<'_>, _: DiskType) -> Option<Disk> {
        Some(Disk { address: 1, volume: [1; 16], disk_type: DiskType::Sata, protection: Protection::Hash })
    }
}

/// A server with little memory and a slow disk, and two clients that write as much as they can.
struct World {
    server: Server,
    memory: Region,
    clients: Vec<Client>,
    /// The first client does not heed what it is told.
    lies: bool,
    now: Instant,
    waiting: VecDeque<(CommandHandle, Request)>,
    done_at: Option<Instant>,
    under_way: [u64; 2],
    ended: [u64; 2],
    gives: bool,
    /// The smallest window that a client was told.
    least: u32,
}

const DISK: Duration = Duration::from_millis(1);
const WRITE_BYTES: usize = 16 << 10;
const DEPTH: u64 = 8;

fn path(station: usize) -> Path {
    Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, station as u8])) }
}

fn identity(number: usize) -> Identity {
    Identity::from_private([number as u8; 32]).unwrap()
}

fn links() -> Vec<LinkLimits> {
    vec![LinkLimits { packet_max_bytes: 1500, window_packets: WINDOW }]
}

impl World {
    fn new(memory_bytes: usize) -> Self {
        let memory = Region::new(memory_bytes).unwrap();
        let server = Server::new(ServerConfig {
            name: "vault".into(),
            identity: identity(9),
            psk: [9; 32],
            instance: [1; 16],
            links: links(),
            group_packets: 16,
            write_room_bytes: 1 << 18,
            transfer_max_bytes: 1 << 16,
            keep_alive: Duration::from_secs(20),
            linger: Duration::from_secs(60),
            sessions_max: 4,
            sessions_of_client_max: 4,
            batch_packets: 1,
            shard: 0,
            shards: 1,
            nexus_base: 0,
            memory: memory.clone(),
            directory: Box::new(Door),
            seed: [3; 32],
        });
        let client = |number: usize| {
            let config = ClientConfig {
                identity: identity(number),
                psk: [9; 32],
                server_name: String::new(),
                server_key: None,
                volume: String::new(),
                disk_address: 1,
                disk_type: DiskType::Any,
                protection: Protection::Checksum,
                links: links(),
                places: vec![path(9)],
                group_packets: 16,
                patience: Duration::from_secs(30),
                seed: [number as u8 + 20; 32],
            };
            Client::new(config, NOW)
        };
        World {
            server,
            memory,
            clients: vec![client(1), client(2)],
            lies: false,
            now: NOW,
            waiting: VecDeque::new(),
            done_at: None,
            under_way: [0; 2],
            ended: [0; 2],
            gives: true,
            least: WINDOW,
        }
    }

    fn give(&mut self, client: usize) {
        while self.gives && self.under_way[client] < DEPTH {
            self.under_way[client] += 1;
            let number = (self.ended[client] + self.under_way[client]) % DEPTH;
            let lba = ((client as u64 * DEPTH + number) * 32).to_le_bytes();
            let place = [lba[0], lba[1], lba[2], 0, 0, 0];
            let task_file = TaskFile::long(command_code::WRITE_DMA_EXT, 0, 32, place, DEVICE_LBA);
            let data = Some(Slices::from(Slice::from(vec![7; WRITE_BYTES])));
            let command = Command::Ata(task_file);
            let order = Order { command, data, room: None, more: false, may_repeat: true, is_probe: false };
            self.clients[client].order(order, self.now).unwrap();
        }
    }

    fn exchange(&mut self) -> bool {
        let (now, mut is_any) = (self.now, false);
        for number in 0..self.clients.len() {
            self.give(number);
            while let Some(event) = self.clients[number].poll_event() {
                if let ClientEvent::Ended { outcome, .. } = event {
                    assert!(matches!(outcome, Outcome::Ata(registers) if registers.is_success()));
                    self.under_way[number] -= 1;
                    self.ended[number] += 1;
                    is_any = true;
                }
            }
            if self.lies && number == 0 {
                self.clients[number].ignore_room(now);
            }
            while let Some((_, packet)) = self.clients[number].poll_transmit(now) {
                is_any = true;
                self.server.handle_input(path(number), &packet.to_vec(), now);
            }
        }
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Command { handle, request, .. } = event {
                self.waiting.push_back((handle, request));
                self.done_at.get_or_insert(now + DISK);
            }
        }
        while let Some((to, packet)) = self.server.poll_transmit(now) {
            is_any = true;
            let number = usize::from(to == path(1));
            self.clients[number].handle_input(path(9), &packet.to_vec(), now);
        }
        let told = self.server.connections().map(|connection| connection.window_packets).min();
        self.least = self.least.min(told.unwrap_or(WINDOW));
        is_any
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            while self.exchange() {}
            let clients = self.clients.iter().filter_map(Client::poll_timeout);
            let next = clients.chain(self.server.poll_timeout()).chain(self.done_at).min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            if self.done_at.take_if(|at| *at <= self.now).is_some() {
                self.execute();
            }
            self.clients.iter_mut().for_each(|client| client.handle_timeout(self.now));
            self.server.handle_timeout(self.now);
        }
        self.now = until;
    }

    /// The disk has done what came first.
    fn execute(&mut self) {
        let Some((handle, Request::Ata { task_file, data })) = self.waiting.pop_front() else { panic!("of ATA") };
        drop(data);
        let answer = Answer::Ata { registers: Registers::success(&task_file), data: None };
        self.server.reply(handle, &answer, false, self.now);
        self.done_at = (!self.waiting.is_empty()).then(|| self.now + DISK);
    }

    /// All that was given comes to its end, and all windows are as large as they were.
    fn recover(&mut self) {
        self.gives = false;
        self.wait(Duration::from_secs(15));
        assert_eq!(self.under_way, [0, 0]);
        let windows: Vec<u32> = self.server.connections().map(|connection| connection.window_packets).collect();
        assert_eq!(windows, [WINDOW, WINDOW], "{:?}", self.server.window_changes());
        assert_eq!(self.memory.free_bytes(), self.memory.length_bytes());
    }
}

#[test]
fn clients_send_less_while_memory_is_short_and_as_much_as_before_afterwards() {
    let mut world = World::new(1 << 20);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.server.window_changes(), crate::WindowChanges::default(), "there is enough");
    world.gives = false;
    world.wait(Duration::from_secs(1));
    let length = world.memory.free_bytes() - (64 << 10);
    let taken: Vec<Frame> = (0..length / (4 << 10)).map_while(|_| world.memory.frame(4 << 10)).collect();
    world.gives = true;
    world.wait(Duration::from_secs(5));
    let changes = world.server.window_changes();
    assert!(changes.shrunk > 0 && world.least < WINDOW, "{changes:?}, {}", world.least);
    assert!(changes.shrunk <= 250, "they swing: {changes:?}");
    drop(taken);
    world.recover();
    assert!(world.server.window_changes().grown > 0);
}

#[test]
fn two_clients_have_equal_parts_of_a_server_that_is_short_of_memory() {
    let mut world = World::new(64 << 10);
    world.wait(Duration::from_secs(5));
    let [one, other] = world.ended;
    assert!(one > 50 && other > 50 && one < 3 * other && other < 3 * one, "{one} and {other}");
    world.recover();
}

#[test]
fn a_client_that_ignores_what_it_is_told_does_not_keep_another_one_from_its_part() {
    let mut world = World::new(64 << 10);
    world.lies = true;
    world.wait(Duration::from_secs(5));
    let [liar, honest] = world.ended;
    assert!(honest > 50 && liar < 4 * honest, "{liar} and {honest}");
    world.lies = false;
    world.recover();
}
