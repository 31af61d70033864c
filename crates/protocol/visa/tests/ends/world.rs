//! Both ends on a network that loses nothing, unless somebody says so.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Region, Slice, Slices};
use sanwire_core::{ClientId, Instant, LinkId, Lun, Path, Peer, Protection};
use sanwire_scsi::{Cdb, Reply, Status, Task};
use sanwire_visa::{
    Ask, Client, ClientConfig, ClientEvent, CommandHandle, Doorkeeper, Identity, LinkLimits, Order, PORT, Server,
    ServerConfig, ServerEvent, Wishes,
};

pub const PSK: [u8; 32] = [9; 32];

/// What a world is like.
#[derive(Clone, Copy)]
pub struct Habits {
    pub protection: Protection,
    pub wishes: [Wishes; 2],
    pub is_stream: bool,
    pub client_psk: [u8; 32],
    pub server_key: Option<[u8; 32]>,
    pub is_allowed: bool,
    /// How long a packet is on its way.
    pub delay: Duration,
    /// Which shard of the server is there, of how many.
    pub shard: (u32, u32),
    /// The server's, for data.
    pub memory_bytes: usize,
}

impl Default for Habits {
    fn default() -> Self {
        Habits {
            protection: Protection::Hash,
            wishes: [Wishes { allows_classic: true, allows_unchecked: true, ..Wishes::default() }; 2],
            is_stream: false,
            client_psk: PSK,
            server_key: None,
            is_allowed: true,
            delay: Duration::ZERO,
            shard: (0, 1),
            memory_bytes: 4 << 20,
        }
    }
}

struct Door(bool);

impl Doorkeeper for Door {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        self.0
    }
}

pub fn identity(number: u8) -> Identity {
    Identity::from_private([number; 32]).unwrap()
}

pub fn path(host: u8) -> Path {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), PORT);
    Path { link: LinkId(0), peer: Peer::Udp(address) }
}

pub fn bytes(packet: &Packet) -> Vec<u8> {
    packet.to_vec()
}

pub struct World {
    pub server: Server,
    pub client: Client,
    pub now: Instant,
    pub memory: Region,
    pub disk: Vec<u8>,
    /// Whether TCP takes what the server has to send.
    pub takes: bool,
    /// What the server does not read over TCP for now.
    unread: Vec<(Path, Vec<u8>)>,
    /// Where the client is, and how many programs were started after the first.
    at: Path,
    runs: u8,
    /// Programs that were there before, and go on beside it.
    pub others: Vec<(Path, Client)>,
    /// All that was sent: whether by a client, and what.
    pub sent: Vec<(bool, Vec<u8>)>,
    /// What the server has told besides commands.
    pub told: Vec<ServerEvent>,
    pub events: VecDeque<ClientEvent>,
    pub executed: u32,
    /// Commands are not answered, and wait here.
    pub is_hung: bool,
    pub waiting: Vec<(CommandHandle, Task)>,
    /// Requests to manage the server: what is asked, and how much room there is for an answer.
    pub asked: Vec<(CommandHandle, Vec<u8>, u32)>,
    /// Packets for which this is true are lost.
    pub loses: fn(bool, &[u8]) -> bool,
    /// Those on their way, in the order in which they arrive: whether from a client, which is there, and what.
    on_way: VecDeque<(Instant, bool, Path, Vec<u8>)>,
    habits: Habits,
}

fn limits(habits: &Habits) -> Vec<LinkLimits> {
    let packet_max_bytes = if habits.is_stream { 60_000 } else { 1472 };
    vec![LinkLimits { packet_max_bytes, window_packets: 64, is_stream: habits.is_stream }]
}

pub fn server(habits: &Habits, memory: &Region, instance: u64) -> Server {
    let protection = habits.protection;
    Server::new(ServerConfig {
        name: "vault".to_owned(),
        identity: identity(1),
        psk: PSK,
        doorkeeper: Box::new(Door(habits.is_allowed)),
        levels: Box::new(move |lun| lun.map_or(Protection::Checksum, |_| protection)),
        wishes: habits.wishes[0],
        memory: memory.clone(),
        links: limits(habits),
        shard: habits.shard.0,
        shards: habits.shard.1,
        instance,
        nexus_base: 0,
        keep_alive: Duration::from_secs(1),
        session_idle_max: Duration::from_secs(30),
        commands_max: 8,
        transfer_max_bytes: 1 << 20,
        seed: [instance as u8; 32],
    })
}

/// A program of the host with this number; `run` tells it from others there.
pub fn client(habits: &Habits, number: u8, run: u8, now: Instant) -> Client {
    let config = ClientConfig {
        identity: identity(number),
        psk: habits.client_psk,
        server_key: habits.server_key,
        places: vec![path(1)],
        server_name: String::new(),
        links: limits(habits),
        wishes: habits.wishes[1],
        commands_max: 32,
        protection_min: Protection::Checksum,
        connect_patience: Duration::from_secs(5),
        reconnect_patience: Some(Duration::from_secs(20)),
        seed: [number ^ run << 4; 32],
    };
    Client::new(config, now)
}

impl World {
    pub fn new(habits: Habits) -> World {
        let (now, memory) = (Instant::from_nanos(1_000_000_000), Region::new(habits.memory_bytes).unwrap());
        World {
            server: server(&habits, &memory, 1),
            client: client(&habits, 2, 0, now),
            now,
            memory,
            disk: vec![0; 1 << 20],
            takes: true,
            unread: Vec::new(),
            at: path(2),
            runs: 0,
            others: Vec::new(),
            sent: Vec::new(),
            told: Vec::new(),
            events: VecDeque::new(),
            executed: 0,
            is_hung: false,
            waiting: Vec::new(),
            asked: Vec::new(),
            loses: |_, _| false,
            on_way: VecDeque::new(),
            habits,
        }
    }

    pub fn restart(&mut self) {
        self.waiting.clear();
        self.server = server(&self.habits, &self.memory, 2);
    }

    /// Another program takes the client's place.
    pub fn replace_client(&mut self, number: u8) {
        self.client = client(&self.habits, number, 0, self.now);
    }

    /// The same program is started once more, at another port. The one that is there goes on beside it, or was killed.
    pub fn start_again(&mut self, is_killed: bool) {
        self.runs += 1;
        let new = client(&self.habits, 2, self.runs, self.now);
        let (before, at) = (std::mem::replace(&mut self.client, new), self.at);
        self.at = path(100 + self.runs);
        if !is_killed {
            self.others.push((at, before));
        }
    }

    /// The client seeks the server anew as if it had not heard that it was accepted.
    pub fn replace_connection(&mut self) {
        self.loses = |from_client, _| !from_client;
        self.run_for(Duration::from_secs(4));
        self.loses = |_, _| false;
        self.run_for(Duration::from_secs(3));
    }

    /// All that can be done at this moment.
    pub fn drain(&mut self) {
        loop {
            while let Some(event) = self.server.poll_event() {
                match event {
                    ServerEvent::Command { handle, task } => self.waiting.push((handle, task)),
                    ServerEvent::Administer { handle, request, room_bytes } => {
                        self.asked.push((handle, request.map_or_else(Vec::new, |json| json.to_vec()), room_bytes));
                    }
                    other => self.told.push(other),
                }
            }
            if !self.is_hung {
                self.execute();
            }
            while let Some(event) = self.client.poll_event() {
                self.events.push_back(event);
            }
            let mut is_quiet = true;
            while let Some((_, packet)) = self.client.poll_transmit(self.now) {
                is_quiet = false;
                self.pass(true, self.at, bytes(&packet));
            }
            for index in 0..self.others.len() {
                while let Some((_, packet)) = self.others[index].1.poll_transmit(self.now) {
                    is_quiet = false;
                    self.pass(true, self.others[index].0, bytes(&packet));
                }
            }
            while let Some((at, packet)) = self.server.poll_transmit(self.now) {
                is_quiet = false;
                self.pass(false, at, bytes(&packet));
            }
            while let Some(at) = self.server.poll_stream(self.now) {
                while let Some(packet) = self.takes.then(|| self.server.poll_transmit_on(at, self.now)).flatten() {
                    is_quiet = false;
                    self.pass(false, at, bytes(&packet));
                }
            }
            for (at, packet) in std::mem::take(&mut self.unread) {
                self.arrive(true, at, &packet);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn pass(&mut self, from_client: bool, at: Path, packet: Vec<u8>) {
        self.sent.push((from_client, packet.clone()));
        if (self.loses)(from_client, &packet) {
            return;
        }
        match self.habits.delay {
            Duration::ZERO => self.arrive(from_client, at, &packet),
            delay => self.on_way.push_back((self.now + delay, from_client, at, packet)),
        }
    }

    fn arrive(&mut self, from_client: bool, at: Path, packet: &[u8]) {
        if from_client && (self.server.is_starved_at(at) || self.unread.iter().any(|(there, _)| *there == at)) {
            self.unread.push((at, packet.to_vec()));
        } else if from_client {
            self.server.handle_input(at, packet, self.now);
        } else if at == self.at {
            self.client.handle_input(path(1), packet, self.now);
        } else if let Some((_, other)) = self.others.iter_mut().find(|(there, _)| *there == at) {
            other.handle_input(path(1), packet, self.now);
        }
    }

    /// Executes what waits.
    pub fn execute(&mut self) {
        for (handle, task) in std::mem::take(&mut self.waiting) {
            self.executed += 1;
            let lba = u32::from_be_bytes(task.cdb[2..6].try_into().unwrap()) as usize * 512;
            let reply = match (task.cdb.operation_code(), task.data_out) {
                (0x2a, Some(data)) => {
                    let data = data.bytes(0..data.len()).into_owned();
                    self.disk[lba..lba + data.len()].copy_from_slice(&data);
                    Reply::bare(Status::Good)
                }
                (0x28, None) => {
                    let data = self.disk[lba..lba + task.data_in_max_bytes as usize].to_vec();
                    Reply { is_bulk_read: true, ..Reply::good(Some(Slices::from(Slice::from(data)))) }
                }
                _ => Reply::bare(Status::CheckCondition),
            };
            self.server.reply(handle, reply, self.now);
        }
    }

    /// Lets time pass, until something is due no more.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.drain();
        loop {
            let arrives_at = self.on_way.front().map(|(at, ..)| *at);
            let others = self.others.iter().map(|(_, other)| other.poll_timeout());
            let due = [self.server.poll_timeout(), self.client.poll_timeout(), arrives_at].into_iter().chain(others);
            let Some(at) = due.flatten().min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            while let Some((_, from_client, at, packet)) = self.on_way.pop_front_if(|(at, ..)| *at <= self.now) {
                self.arrive(from_client, at, &packet);
            }
            self.server.handle_timeout(self.now);
            self.client.handle_timeout(self.now);
            self.others.iter_mut().for_each(|(_, other)| other.handle_timeout(self.now));
            self.drain();
        }
        self.now = end;
    }

    pub fn write(&mut self, lba: u32, data: &[u8]) {
        self.client.order(write(lba, data), self.now).unwrap();
        self.drain();
    }

    /// The same by the program that was there before.
    pub fn write_beside(&mut self, lba: u32, data: &[u8]) {
        self.others[0].1.order(write(lba, data), self.now).unwrap();
        self.drain();
    }

    pub fn read(&mut self, lba: u32, bytes: usize) {
        let order = order(cdb(0x28, lba, bytes), None, Frame::zeroed(bytes));
        self.client.order(order, self.now).unwrap();
        self.drain();
    }

    /// Asks the server to be managed.
    pub fn administer(&mut self, json: &[u8]) {
        let (data_out, data_in) = (Some(Slice::from(json.to_vec())), Frame::zeroed(1 << 16));
        let order = Order { lun: Lun::default(), ask: Ask::Administer, is_repeatable: false, data_out, data_in };
        self.client.order(order, self.now).unwrap();
        self.drain();
    }

    /// The data of the next answer that has come.
    pub fn answered(&mut self) -> Option<Vec<u8>> {
        while let Some(event) = self.events.pop_front() {
            if let ClientEvent::Completed { data_in, data_in_bytes, .. } = event {
                return Some(data_in.map_or_else(Vec::new, |frame| frame[..data_in_bytes].to_vec()));
            }
        }
        None
    }
}

fn write(lba: u32, data: &[u8]) -> Order {
    order(cdb(0x2a, lba, data.len()), Some(Slice::from(data.to_vec())), None)
}

fn order(cdb: Cdb, data_out: Option<Slice>, data_in: Option<Frame>) -> Order {
    Order { lun: Lun::default(), ask: Ask::Command(cdb), is_repeatable: true, data_out, data_in }
}

fn cdb(code: u8, lba: u32, bytes: usize) -> Cdb {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = ((bytes / 512) as u16).to_be_bytes();
    Cdb::new(&[code, 0, a, b, c, d, 0, high, low, 0]).unwrap()
}
