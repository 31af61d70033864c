//! A server with a disk and a client, and a link on which nothing is lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_ata::{DEVICE_LBA, Registers, TaskFile, command_code};
use sanwire_buffer::{Arrival, Frame, Region, Slice, Slices};
use sanwire_core::{ClientId, Instant, LinkId, MacAddress, NexusId, Path, Peer, Protection};
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::{Class, DiskType};
use sanwire_hdsp::{
    Answer, Client, ClientConfig, ClientEvent, Command, CommandHandle, Directory, Disk, LinkLimits, Order, Outcome,
    Request, Server, ServerConfig, ServerEvent, Wanted,
};
use sanwire_security::keys::Identity;

/// What is unusual in a world.
#[derive(Clone, Copy)]
pub struct Habits {
    pub protection: Protection,
    pub disk_type: DiskType,
    pub wanted: DiskType,
    pub client_psk: [u8; 32],
    /// Whom the client expects.
    pub server_key: Option<[u8; 32]>,
    pub volume: &'static str,
    /// The client is.
    pub is_listed: bool,
    /// Everybody may connect.
    pub is_open: bool,
    /// What the server has for received data.
    pub memory_bytes: usize,
    /// W and N that the server offers.
    pub server_terms: (u32, u16),
    /// W and N that the client offers.
    pub client_terms: (u32, u16),
}

impl Default for Habits {
    fn default() -> Self {
        Habits {
            protection: Protection::Hash,
            disk_type: DiskType::Sata,
            wanted: DiskType::Any,
            client_psk: [9; 32],
            server_key: None,
            volume: "v",
            is_listed: true,
            is_open: false,
            memory_bytes: 8 << 20,
            server_terms: (64, 32),
            client_terms: (64, 32),
        }
    }
}

/// What the server offers, which may change at any time.
#[derive(Clone)]
pub struct Door {
    client: Option<ClientId>,
    is_open: bool,
    /// W and N.
    terms: (u32, u16),
    pub disk: Arc<Mutex<Option<Disk>>>,
}

impl Directory for Door {
    fn permits(&self, _: Peer, client: Option<ClientId>) -> bool {
        self.is_open || client.is_none() || client == self.client
    }

    fn disk(&self, _: ClientId, _: Peer, wanted: Wanted<'_>, _: DiskType) -> Option<Disk> {
        self.disk.lock().unwrap().filter(|_| wanted == Wanted::Named("v"))
    }
}

/// Who has sent a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    Client,
    Server,
}

/// Whether a packet is lost: who has sent it, and its bytes.
pub type Loses = Box<dyn FnMut(Sender, &[u8]) -> bool>;

/// The server's end, of this run of it.
pub fn server(door: &Door, run: u8, memory: &Region) -> Server {
    shard_of_server(door, run, memory, (0, 1))
}

/// The end of one of so many shards.
pub fn shard_of_server(door: &Door, run: u8, memory: &Region, shard: (u32, u32)) -> Server {
    Server::new(config(door, run, memory, shard))
}

/// Another server of the same name, which has this private key.
pub fn namesake(door: &Door, private: [u8; 32], memory: &Region) -> Server {
    let identity = Identity::from_private(private).unwrap();
    Server::new(ServerConfig { identity, ..config(door, 100, memory, (0, 1)) })
}

fn config(door: &Door, run: u8, memory: &Region, (shard, shards): (u32, u32)) -> ServerConfig {
    ServerConfig {
        name: "vault".into(),
        identity: Identity::from_private([2; 32]).unwrap(),
        psk: [9; 32],
        instance: [run; 16],
        links: limits(door.terms.0),
        group_packets: door.terms.1,
        write_room_bytes: 1 << 20,
        transfer_max_bytes: 1 << 20,
        keep_alive: Duration::from_secs(1),
        linger: Duration::from_secs(60),
        sessions_max: 8,
        sessions_of_client_max: 4,
        batch_packets: 256,
        shard,
        shards,
        nexus_base: 300,
        memory: memory.clone(),
        directory: Box::new(door.clone()),
        seed: [run + 2; 32],
    }
}

fn limits(window_packets: u32) -> Vec<LinkLimits> {
    vec![LinkLimits { packet_max_bytes: 1500, window_packets }]
}

/// A client that differs from others by its run.
pub fn client(habits: Habits, run: u8, places: Vec<Path>, now: Instant) -> Client {
    let config = ClientConfig {
        identity: Identity::from_private([1; 32]).unwrap(),
        psk: habits.client_psk,
        server_name: "vault".into(),
        server_key: habits.server_key,
        volume: habits.volume.into(),
        disk_address: 0,
        disk_type: habits.wanted,
        protection: Protection::Checksum,
        links: limits(habits.client_terms.0),
        places,
        group_packets: habits.client_terms.1,
        patience: Duration::from_secs(30),
        seed: [run + 3; 32],
    };
    Client::new(config, now)
}

/// Whether a packet says that a client is accepted, or releases its connection.
pub fn is_acceptance(packet: &[u8]) -> bool {
    RawPcu::read(packet).is_ok_and(|raw| raw.pcu.is_sealed && raw.pcu.class == Class::Connection)
}

/// The station with this number.
pub fn path(station: u8) -> Path {
    Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, station])) }
}

pub struct World {
    pub server: Server,
    pub client: Client,
    /// Another client, of the station with number 2, and what it tells.
    pub other: Option<Client>,
    pub other_events: Vec<ClientEvent>,
    pub memory: Region,
    pub door: Door,
    pub loses: Loses,
    /// Sessions that have begun, and those that are over.
    pub opened: Vec<NexusId>,
    pub closed: Vec<NexusId>,
    pub now: Instant,
    /// All packets that were sent.
    pub sent: Vec<Vec<u8>>,
    /// What the server was to execute.
    pub asked: Vec<(CommandHandle, Request)>,
    /// Whether it is executed.
    pub executes: bool,
    /// What was executed keeps no memory.
    pub forgets: bool,
    /// What comes may stay where it came.
    pub keeps: bool,
    done: usize,
    content: Vec<u8>,
}

/// Where the data of a packet begins in its page, and in itself.
const DATA_AT_BYTES: usize = 512;
const PDU_BYTES: usize = 28;

/// A page with a packet, whose data is aligned as disks want it.
fn page(packet: &[u8]) -> Slice {
    let mut page = Region::new(4096).unwrap().frame(4096).unwrap();
    let start = DATA_AT_BYTES - PDU_BYTES;
    page[start..start + packet.len()].copy_from_slice(packet);
    page.freeze()
}

impl World {
    pub fn new(habits: Habits) -> Self {
        let disk = Disk { address: 3, volume: [7; 16], disk_type: habits.disk_type, protection: habits.protection };
        let listed = habits.is_listed.then(|| Identity::from_private([1; 32]).unwrap().client_id());
        let (is_open, terms) = (habits.is_open, habits.server_terms);
        let door = Door { client: listed, is_open, terms, disk: Arc::new(Mutex::new(Some(disk))) };
        let now = Instant::ZERO + Duration::from_secs(1);
        let memory = Region::new(habits.memory_bytes).unwrap();
        World {
            server: server(&door, 1, &memory),
            memory,
            other: None,
            other_events: Vec::new(),
            client: client(habits, 1, vec![path(0)], now),
            door,
            loses: Box::new(|_, _| false),
            opened: Vec::new(),
            closed: Vec::new(),
            now,
            sent: Vec::new(),
            asked: Vec::new(),
            executes: true,
            forgets: false,
            keeps: false,
            done: 0,
            content: vec![0; 1 << 20],
        }
    }

    /// The server dies, and another run of it begins, which says that it is this one.
    pub fn restart(&mut self, run: u8) {
        self.server = server(&self.door, run, &self.memory);
        self.done = self.asked.len();
    }

    /// The disk is another one, or none.
    pub fn change_disk(&mut self, change: impl Fn(&mut Option<Disk>)) {
        change(&mut self.door.disk.lock().unwrap());
    }

    /// Executes what was asked so far, in order.
    pub fn execute_all(&mut self) {
        while self.done < self.asked.len() {
            self.execute_next();
        }
    }

    /// What was asked so far is not executed.
    pub fn skip(&mut self) {
        self.done = self.asked.len();
    }

    fn execute_next(&mut self) {
        let (handle, request) = self.asked[self.done].clone();
        self.done += 1;
        let (answer, may_repeat) = self.execute(&request);
        if let (Request::Ata { data, .. } | Request::Scsi { data, .. }, true) =
            (&mut self.asked[self.done - 1].1, self.forgets)
        {
            data.clear();
        }
        drop(request);
        self.server.reply(handle, &answer, may_repeat, self.now);
    }

    /// Lets time pass, and gives what the client tells.
    pub fn wait(&mut self, time: Duration) -> Vec<ClientEvent> {
        let (until, mut events) = (self.now + time, Vec::new());
        loop {
            while self.exchange() {}
            events.extend(std::iter::from_fn(|| self.client.poll_event()));
            let other = self.other.as_ref().and_then(Client::poll_timeout);
            let next = self.client.poll_timeout().into_iter().chain(self.server.poll_timeout()).chain(other).min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.other.iter_mut().for_each(|other| other.handle_timeout(self.now));
            self.server.handle_timeout(self.now);
        }
        self.now = until;
        events
    }

    fn exchange(&mut self) -> bool {
        let mut is_any = false;
        while let Some((to, packet)) = self.client.poll_transmit(self.now) {
            let bytes = packet.to_vec();
            assert!(to == path(0) && bytes.len() <= 1500);
            if !(self.loses)(Sender::Client, &bytes) {
                match self.keeps {
                    true => {
                        let page = page(&bytes);
                        let range = DATA_AT_BYTES - PDU_BYTES..DATA_AT_BYTES - PDU_BYTES + bytes.len();
                        self.server.handle_arrival(path(1), Arrival::in_frame(&page, range), self.now);
                    }
                    false => self.server.handle_input(path(1), &bytes, self.now),
                }
            }
            self.sent.push(bytes);
            is_any = true;
        }
        if let Some(other) = &mut self.other {
            while let Some((_, packet)) = other.poll_transmit(self.now) {
                let bytes = packet.to_vec();
                self.server.handle_input(path(2), &bytes, self.now);
                is_any = true;
            }
            self.other_events.extend(std::iter::from_fn(|| other.poll_event()));
        }
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, request, .. } => self.asked.push((handle, request)),
                ServerEvent::SessionOpened { nexus, .. } => self.opened.push(nexus),
                ServerEvent::SessionClosed { nexus, .. } => self.closed.push(nexus),
                ServerEvent::SessionResumed { .. }
                | ServerEvent::Disconnected { .. }
                | ServerEvent::NotAllowed { .. }
                | ServerEvent::WrongPassword { .. }
                | ServerEvent::Violation { .. } => {}
            }
        }
        while self.executes && self.done < self.asked.len() {
            is_any = true;
            self.execute_next();
        }
        while let Some((to, packet)) = self.server.poll_transmit(self.now) {
            let bytes = packet.to_vec();
            if to == path(1) {
                if !(self.loses)(Sender::Server, &bytes) {
                    self.client.handle_input(path(0), &bytes, self.now);
                }
                self.sent.push(bytes);
            } else if let Some(other) = self.other.as_mut().filter(|_| to == path(2)) {
                other.handle_input(path(0), &bytes, self.now);
            }
            is_any = true;
        }
        is_any
    }

    fn execute(&mut self, request: &Request) -> (Answer, bool) {
        let (lba, blocks, data) = match request {
            Request::Ata { task_file, data } => (task_file.lba, u64::from(task_file.count), data),
            Request::Scsi { cdb, data, .. } => (u64::from(cdb[1]), u64::from(cdb[2]), data),
        };
        let place = &mut self.content[lba as usize * 512..(lba + blocks) as usize * 512];
        let written: Vec<u8> = data.iter().flat_map(|piece| piece.to_vec()).collect();
        let read = written.is_empty().then(|| Slices::from(Slice::from(place.to_vec())));
        if read.is_none() {
            place.copy_from_slice(&written);
        }
        let may_repeat = read.is_some();
        let answer = match request {
            Request::Ata { task_file, .. } => Answer::Ata { registers: Registers::success(task_file), data: read },
            Request::Scsi { .. } => Answer::Scsi { status: 0, sense: Vec::new(), data: read },
        };
        (answer, may_repeat)
    }

    /// What comes of a command, and what it reads.
    pub fn ends(&mut self, order: Order) -> (Outcome, Option<Vec<u8>>) {
        self.client.order(order, self.now).unwrap();
        let events = self.wait(Duration::from_secs(1));
        let ended = events.into_iter().find_map(|event| match event {
            ClientEvent::Ended { outcome, data, data_bytes, .. } => {
                Some((outcome, data.map(|data| data[..data_bytes].to_vec())))
            }
            _ => None,
        });
        ended.expect("it ends")
    }
}

pub fn order(command: Command, data: Option<Vec<u8>>, room: Option<usize>) -> Order {
    let data = data.map(|data| Slices::from(Slice::from(data)));
    let room = room.and_then(Frame::zeroed);
    Order { command, data, room, more: false, may_repeat: true, is_probe: false }
}

fn command(disk_type: DiskType, code: u8, lba: u64, blocks: u64) -> Command {
    match disk_type {
        DiskType::Scsi => Command::Scsi(vec![code, lba as u8, blocks as u8, 0, 0, 0]),
        _ => Command::Ata(TaskFile::long(code, 0, blocks as u16, [lba as u8, 0, 0, 0, 0, 0], DEVICE_LBA)),
    }
}

pub fn write(disk_type: DiskType, lba: u64, data: &[u8]) -> Order {
    let command = command(disk_type, command_code::WRITE_DMA_EXT, lba, data.len() as u64 / 512);
    order(command, Some(data.to_vec()), None)
}

pub fn read(disk_type: DiskType, lba: u64, blocks: u64) -> Order {
    order(command(disk_type, command_code::READ_DMA_EXT, lba, blocks), None, Some(blocks as usize * 512))
}
