//! Two honest ends and a network between them that the fuzzer rules: it drops, doubles, holds back and damages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sanwire_buffer::{Frame, Packet, Region, Slices};
use sanwire_core::{ClientId, Instant, LinkId, Lun, MacAddress, Path, Peer, Protection};
use sanwire_hyperscsi::wire::command::{Answer, Ask};
use sanwire_hyperscsi::{
    Admission, Client, ClientConfig, ClientEvent, CommandHandle, DesiredOptions, LinkLimits, Order, Recovery, Server,
    ServerConfig, ServerEvent,
};
use sanwire_scsi::{Cdb, Reply, Status};

use crate::impostor::{PSK, client_identity, server_identity, wishes};
use crate::steps::CANARY;

/// The link of both ends.
pub const LINK: LinkLimits = LinkLimits { packet_max_bytes: 9000, receive_capacity_packets: 64 };

/// What the server's memory holds.
const MEMORY_BYTES: usize = 1 << 20;
const READ_10: u8 = 0x28;

/// Where an end is.
pub fn path(ethernet: bool, host: u8) -> Path {
    let peer = if ethernet {
        Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, host]))
    } else {
        Peer::Udp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 5674)))
    };
    Path { link: LinkId(0), peer }
}

/// Memory in which every byte that nobody has written since is [`CANARY`].
pub fn marked_region(bytes: usize) -> Region {
    let region = Region::new(bytes).unwrap();
    region.frame(bytes).unwrap().fill(CANARY);
    region
}

/// How an honest end goes about its connections.
#[derive(Clone, Copy)]
pub struct Habits {
    /// How it recovers what is lost.
    pub recovery: Recovery,
    /// Whether it is for compressing data.
    pub compresses: bool,
}

impl Habits {
    /// As the fuzzer says.
    pub fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let bits: u8 = u.arbitrary()?;
        let recovery = if bits & 1 == 1 { Recovery::Selective } else { Recovery::WholeWindow };
        Ok(Habits { recovery, compresses: bits & 2 == 2 })
    }
}

/// Everybody may connect.
struct Open(Habits);

impl Admission for Open {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn wishes(&self, _: ClientId) -> DesiredOptions {
        wishes(self.0.compresses)
    }
}

/// A server that takes every client.
pub fn server(memory: Region, habits: Habits, seed: u8) -> Server {
    Server::new(ServerConfig {
        name: "store".into(),
        identity: server_identity(),
        psk: PSK,
        admission: Box::new(Open(habits)),
        levels: Box::new(|_| Protection::Checksum),
        compressible: Box::new(|_| true),
        memory,
        links: vec![LINK],
        addresses: Vec::new(),
        shard: 0,
        shards: 1,
        instance: u64::from(seed),
        keep_alive: Duration::from_secs(5),
        rekey_interval: Duration::from_secs(1),
        session_idle_max: Duration::from_secs(60),
        commands_max: 16,
        transfer_max_bytes: 64 << 10,
        recovery: habits.recovery,
        seed: [seed; 32],
    })
}

/// A client that never gives up after its first connection.
pub fn client(path: Path, habits: Habits, seed: u8) -> Client {
    let config = ClientConfig {
        name: "client".into(),
        identity: client_identity(),
        psk: PSK,
        server_key: None,
        path,
        server_name: String::new(),
        link: LINK,
        commands_max: 16,
        transfer_max_bytes: 64 << 10,
        protection_min: Protection::Checksum,
        wishes: wishes(habits.compresses),
        recovery: habits.recovery,
        connect_patience: Duration::from_secs(3600),
        reconnect_patience: None,
        seed: [seed; 32],
    };
    Client::new(config, Instant::ZERO)
}

/// All bytes of a packet.
pub fn bytes(packet: &Packet) -> Vec<u8> {
    packet.to_vec()
}

struct Flying {
    at: Instant,
    to_server: bool,
    bytes: Vec<u8>,
}

/// The world.
pub struct World {
    now: Instant,
    ethernet: bool,
    habits: Habits,
    server: Server,
    client: Client,
    restarts: u8,
    flying: VecDeque<Flying>,
    working: Vec<(CommandHandle, u8, u32)>,
    /// What the server executed since it was started.
    executed: BTreeSet<(u64, u64)>,
    /// Commands that wait for their answer: what they are.
    waiting: BTreeMap<u64, (u8, usize)>,
    next_fill: u8,
}

impl World {
    /// Both ends, not yet connected.
    pub fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let ethernet = u.arbitrary()?;
        let habits = Habits::new(u)?;
        Ok(World {
            now: Instant::ZERO,
            ethernet,
            habits,
            server: server(marked_region(MEMORY_BYTES), habits, 1),
            client: client(path(ethernet, 2), habits, 2),
            restarts: 0,
            flying: VecDeque::new(),
            working: Vec::new(),
            executed: BTreeSet::new(),
            waiting: BTreeMap::new(),
            next_fill: 0,
        })
    }

    /// One thing happens, as the fuzzer says.
    pub fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=15u8)? {
            0..=3 => self.order(u)?,
            4..=6 => self.answer_one(u.arbitrary::<u8>()? as usize),
            7 if u.ratio(1, 8)? => self.restart(),
            _ => {
                let fate = u.arbitrary::<u8>()?;
                self.run(Some((fate, u.arbitrary()?)));
            }
        }
        Ok(())
    }

    fn order(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let write = u.arbitrary()?;
        let length = *u.choose(&[0usize, 1, 512, 4096, 20_000, 65_536])?;
        self.next_fill = self.next_fill.wrapping_add(1) & 0x7f;
        let fill = self.next_fill;
        let mut cdb = [0; 10];
        (cdb[0], cdb[1]) = (if write { 0x2a } else { READ_10 }, fill);
        cdb[2..6].copy_from_slice(&(length as u32).to_be_bytes());
        let (data_out, data_in) = if write {
            ((length > 0).then(|| vec![fill; length].into()), None)
        } else {
            (None, (length > 0).then(|| Frame::from(vec![0; length])))
        };
        let order =
            Order { lun: Lun::default(), ask: Ask::Command(Cdb::from(cdb)), is_repeatable: true, data_out, data_in };
        if let Ok(id) = self.client.order(order, self.now) {
            self.waiting.insert(id.number(), (fill, if write { 0 } else { length }));
        }
        Ok(())
    }

    fn answer_one(&mut self, index: usize) {
        if self.working.is_empty() {
            return;
        }
        let (handle, fill, length) = self.working.swap_remove(index % self.working.len());
        let data_in = (length > 0).then(|| vec![fill; length as usize].into());
        // What has data is a READ.
        self.server.reply(handle, Reply { is_bulk_read: true, ..Reply::good(data_in) }, self.now);
    }

    fn restart(&mut self) {
        self.restarts = self.restarts.wrapping_add(1);
        self.server = server(marked_region(MEMORY_BYTES), self.habits, 10u8.wrapping_add(self.restarts));
        self.working.clear();
        self.executed.clear();
    }

    /// Lets things happen until time would have to pass, then lets it pass to the next deadline.
    fn run(&mut self, fate: Option<(u8, u8)>) {
        self.drain(fate);
        let flying = self.flying.iter().map(|flying| flying.at).min();
        let next = [flying, self.client.poll_timeout(), self.server.poll_timeout()].into_iter().flatten().min();
        self.now = self.now.max(next.unwrap_or(self.now)).max(self.now + Duration::from_micros(10));
        while let Some(index) = self.flying.iter().position(|flying| flying.at <= self.now) {
            let Some(flying) = self.flying.remove(index) else { break };
            if flying.to_server {
                self.server.handle_input(path(self.ethernet, 1), &flying.bytes, self.now);
            } else {
                self.client.handle_input(path(self.ethernet, 2), &flying.bytes, self.now);
            }
            self.drain(fate);
        }
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        self.drain(fate);
    }

    fn drain(&mut self, fate: Option<(u8, u8)>) {
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Command { handle, task } = event {
                // The data of a READ is not kept for a client that has lost its connection: it is read again.
                let is_first = self.executed.insert((handle.nexus().0, handle.number()));
                assert!(is_first || task.cdb.operation_code() == READ_10, "{handle:?} runs twice");
                let fill = task.cdb[1];
                let data = task.data_out.as_ref().map(Slices::to_vec).unwrap_or_default();
                assert!(data.iter().all(|byte| *byte == fill), "the data of {handle:?} was changed");
                let wanted = if task.cdb.operation_code() == 0x2a { 0 } else { task.data_in_max_bytes };
                self.working.push((handle, fill, wanted));
            }
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Completed { id, answer, data_in, data_in_bytes } => {
                    let (fill, length) = self.waiting.remove(&id.number()).expect("answered once");
                    // A server that was restarted may have refused for lack of room.
                    if matches!(answer, Answer::Command { status: Status::Good, .. }) {
                        assert_eq!(data_in_bytes, length);
                        let data = data_in.as_deref().unwrap_or(&[]);
                        assert!(data[..length].iter().all(|byte| *byte == fill), "the answer's data was changed");
                    }
                }
                ClientEvent::Failed { id, .. } => drop(self.waiting.remove(&id.number()).expect("failed once")),
                ClientEvent::OutOfPatience(failure) | ClientEvent::GivenUp(failure) => panic!("gave up: {failure}"),
                ClientEvent::Connected { .. } | ClientEvent::Lost { .. } | ClientEvent::Addresses(_) => {}
                ClientEvent::Options(_) | ClientEvent::WishRefused(_) => {}
            }
        }
        for turn in 0.. {
            assert!(turn < 100_000, "an end never stops sending");
            let sent = if let Some((_, packet)) = self.client.poll_transmit(self.now) {
                (true, bytes(&packet))
            } else if let Some((_, packet)) = self.server.poll_transmit(self.now) {
                (false, bytes(&packet))
            } else {
                break;
            };
            self.transmit(sent.0, sent.1, fate, turn);
        }
    }

    fn transmit(&mut self, to_server: bool, mut bytes: Vec<u8>, fate: Option<(u8, u8)>, turn: u32) {
        assert!(bytes.len() <= LINK.packet_max_bytes as usize, "{} bytes", bytes.len());
        let mut at = self.now + Duration::from_micros(50);
        if let Some((what, how)) = fate {
            let chosen = what.rotate_left(turn % 8) & 0x0f;
            match chosen {
                1 => return,
                2 => at += Duration::from_millis(u64::from(how)),
                3 => self.flying.push_back(Flying {
                    at: at + Duration::from_millis(u64::from(how) / 4),
                    to_server,
                    bytes: bytes.clone(),
                }),
                4 => {
                    let place = usize::from(how) * 37 % bytes.len();
                    bytes[place] ^= 1 << (how % 8);
                }
                5 => bytes.truncate(usize::from(how) * 37 % bytes.len()),
                _ => {}
            }
        }
        // No queue of the network is longer than this.
        if self.flying.len() < 1000 {
            self.flying.push_back(Flying { at, to_server, bytes });
        }
    }

    /// The network behaves again: every command must come to its end, soon.
    pub fn settle(&mut self) {
        let deadline = self.now + Duration::from_secs(120);
        for turn in 0u32.. {
            while !self.working.is_empty() {
                self.answer_one(0);
            }
            if self.waiting.is_empty() {
                return;
            }
            assert!(self.now < deadline && turn < 200_000, "never answered: {:?}", self.waiting);
            self.run(None);
        }
    }
}
