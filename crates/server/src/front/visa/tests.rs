//! The end of a shard without its sockets: connections of TCP that send, and take what is sent to them, or do not.

use std::net::SocketAddr;
use std::time::Duration;

use sanwire_buffer::Frame;
use sanwire_core::quota::VISA_NEWCOMERS;
use sanwire_core::{Lun, Peer, Protection};
use sanwire_device::LogicalUnits;
use sanwire_io::Waker;
use sanwire_visa::framing::Deframer;
use sanwire_visa::wire::Kind;
use sanwire_visa::wire::header::RawPacket;
use sanwire_visa::{
    Answer, Ask, Client, ClientConfig, ClientEvent, Identity, LinkLimits, Order, ServerConfig, discovery,
};

use super::greeting::Greeted;
use super::*;
use crate::allow::AllowList;
use crate::front::hyperscsi::clients::{ClientConfig as ListedClient, ClientsConfig, Secret};
use crate::management_queue::{Content, Letters, ManagementQueue, QueuedRequest};
use crate::messages::Mailbox;

const SECOND: Duration = Duration::from_secs(1);
const STREAM: LinkLimits = LinkLimits { packet_max_bytes: 60_000, window_packets: 64, is_stream: true };
const UDP: LinkLimits = LinkLimits { packet_max_bytes: 1472, window_packets: 64, is_stream: false };

pub(super) fn key(number: u8) -> Identity {
    Identity::from_private([number; 32]).unwrap()
}

/// Whom these rules allow.
pub(super) fn clients(rules: &[&str]) -> Arc<Clients> {
    with_listed(rules, Vec::new())
}

/// The same, and these clients are listed.
fn with_listed(rules: &[&str], clients: Vec<ListedClient>) -> Arc<Clients> {
    let allow = AllowList::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    let terms = ClientsConfig { allow, psk: Secret([9; 32]), compression: Default::default(), clients };
    Arc::new(Clients::open(terms, None, Arc::new(LogicalUnits::new())).unwrap())
}

/// With what it passes on to the thread that manages.
fn front(memory: Region, clients: Arc<Clients>) -> (Visa, Letters) {
    let ((inbox, letters), (home, _)) = (ManagementQueue::new(), Mailbox::new(Waker::new().unwrap()));
    let administration = Administration::new(&clients, &inbox, &home);
    let server = Server::new(ServerConfig {
        name: "box".into(),
        identity: key(1),
        psk: [9; 32],
        doorkeeper: Box::new(open::Door(Arc::clone(&clients))),
        levels: Box::new(|_| Protection::Hash),
        wishes: Wishes::default(),
        memory,
        links: vec![UDP, STREAM],
        shard: 0,
        shards: 1,
        instance: 1,
        nexus_base: 0,
        keep_alive: 5 * SECOND,
        session_idle_max: 60 * SECOND,
        commands_max: 64,
        transfer_max_bytes: 1 << 20,
        seed: [3; 32],
    });
    let (sessions, events) = Default::default();
    let (streams, now) = (Streams::new(LinkId(1)), Instant::ZERO);
    (Visa { front: 0, server, clients, administration, sessions, streams, events, now }, letters)
}

pub(super) fn peer(host: u8, port: u16) -> SocketAddr {
    ([10, 0, 0, host], port).into()
}

fn server() -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(peer(1, PORT)) }
}

/// The packets that a connection takes now.
fn taken(front: &mut Visa, stream: StreamId) -> Vec<Vec<u8>> {
    let (mut deframer, mut packets) = (Deframer::default(), Vec::new());
    while let Some(packet) = StreamEnd::poll_transmit(front, stream) {
        let bytes = packet.to_vec();
        deframer.space()[..bytes.len()].copy_from_slice(&bytes);
        deframer.filled(bytes.len());
        packets.extend(deframer.poll().unwrap().map(<[u8]>::to_vec));
    }
    packets
}

/// Bytes come on a connection, as far as it is read.
fn come(front: &mut Visa, stream: StreamId, mut bytes: &[u8], now: Instant) {
    while !bytes.is_empty() {
        let [space, _] = front.spaces(stream);
        let count = space.len().min(bytes.len());
        if count == 0 {
            return;
        }
        space[..count].copy_from_slice(&bytes[..count]);
        front.filled(stream, count, now);
        bytes = &bytes[count..];
    }
}

/// A shard's end, and one client.
struct World {
    front: Visa,
    client: Client,
    now: Instant,
    memory: Region,
    /// What the front end has told, but for commands.
    told: Vec<FrontEvent>,
    commands: Vec<CommandRef>,
    letters: Letters,
}

const CLIENT: StreamId = StreamId(7);

fn admission(number: u64) -> Admission {
    Admission { session: number as u16, nexus: NexusId(1 << 40 | number) }
}

impl World {
    /// With a connection of TCP, by which nothing was said yet.
    fn new(memory_bytes: usize, clients: Arc<Clients>) -> World {
        let (memory, now) = (Region::new(memory_bytes).unwrap(), Instant::ZERO + SECOND);
        let config = ClientConfig {
            identity: key(2),
            psk: [9; 32],
            server_key: None,
            places: vec![server()],
            server_name: String::new(),
            links: vec![STREAM],
            wishes: Wishes::default(),
            commands_max: 32,
            protection_min: Protection::Checksum,
            connect_patience: 60 * SECOND,
            reconnect_patience: None,
            seed: [4; 32],
        };
        let ((front, letters), client) = (front(memory.clone(), clients), Client::new(config, now));
        let mut world = World { front, client, now, memory, told: Vec::new(), commands: Vec::new(), letters };
        world.admit(CLIENT, peer(2, 4000));
        world
    }

    fn connected() -> World {
        World::of(clients(&["any"]))
    }

    /// Connected to a server that has these clients.
    fn of(clients: Arc<Clients>) -> World {
        let mut world = World::new(4 << 20, clients);
        world.run_for(SECOND);
        assert!(world.client.server().is_some());
        world
    }

    fn admit(&mut self, stream: StreamId, peer: SocketAddr) {
        let login = Box::new(Greeted { peer, bytes: Vec::new() });
        self.front.admit(stream, login, admission(stream.0), self.now);
    }

    fn events(&mut self) {
        while let Some(event) = self.front.poll_event(self.now) {
            match event {
                FrontEvent::Command { command, .. } => self.commands.push(command),
                other => self.told.push(other),
            }
        }
    }

    fn exchange(&mut self) {
        loop {
            let mut is_quiet = true;
            while let Some((_, packet)) = self.client.poll_transmit(self.now) {
                is_quiet = false;
                come(&mut self.front, CLIENT, &framed(packet).to_vec(), self.now);
            }
            self.events();
            while let Some(stream) = self.front.poll_ready() {
                for packet in taken(&mut self.front, stream) {
                    is_quiet = false;
                    self.client.handle_input(server(), &packet, self.now);
                }
            }
            self.events();
            if is_quiet {
                return;
            }
        }
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.exchange();
        while let Some(at) = [self.front.poll_timeout(), self.client.poll_timeout()].into_iter().flatten().min()
            && at <= end
        {
            self.now = self.now.max(at);
            self.front.handle_timeout(self.now);
            self.client.handle_timeout(self.now);
            self.exchange();
        }
        self.now = end;
    }

    /// Asks the server to be managed.
    fn administer(&mut self, json: &[u8]) {
        let (data_out, data_in) = (Some(Slice::from(json.to_vec())), Frame::zeroed(4096));
        let order = Order { lun: Lun::default(), ask: Ask::Administer, is_repeatable: false, data_out, data_in };
        self.client.order(order, self.now).unwrap();
        self.exchange();
    }

    /// What that was answered, if it was.
    fn administered(&mut self) -> Option<String> {
        std::iter::from_fn(|| self.client.poll_event()).find_map(|event| match event {
            ClientEvent::Completed { answer: Answer::Administered, data_in, data_in_bytes, .. } => {
                Some(String::from_utf8(data_in?[..data_in_bytes].to_vec()).unwrap())
            }
            _ => None,
        })
    }

    /// Which connections are to be closed: at once, or when all is sent.
    fn closed(&self) -> Vec<(StreamId, bool)> {
        let close = |event: &FrontEvent| match event {
            FrontEvent::CloseStream { stream, is_at_once } => Some((*stream, *is_at_once)),
            _ => None,
        };
        self.told.iter().filter_map(close).collect()
    }
}

#[test]
fn nothing_is_kept_for_a_connection_that_takes_no_answers() {
    let mut world = World::connected();
    let stranger = StreamId(8);
    world.admit(stranger, peer(3, 4000));
    let question = framed(discovery(key(5).client_id(), "", 5)).to_vec();
    for _ in 0..100_000 {
        come(&mut world.front, stranger, &question, world.now);
        while world.front.poll_ready().is_some() {}
    }
    let kept = taken(&mut world.front, stranger).len();
    assert!((1..=16).contains(&kept), "{kept}");
}

#[test]
fn answers_are_made_when_a_connection_takes_them() {
    let mut world = World::connected();
    let cdb = sanwire_scsi::Cdb::from([0x28, 0, 0, 0, 0, 0, 0, 8, 0, 0]);
    for _ in 0..4 {
        let (ask, data_in) = (Ask::Command(cdb), Frame::zeroed(1 << 20));
        let order = Order { lun: Lun::default(), ask, is_repeatable: true, data_out: None, data_in };
        world.client.order(order, world.now).unwrap();
    }
    world.exchange();
    for command in std::mem::take(&mut world.commands) {
        let data = world.memory.frame(512 << 10).unwrap().freeze();
        let reply = Reply { is_bulk_read: true, ..Reply::good(Some(data.into())) };
        world.front.reply(command, Some(reply), world.now);
    }
    let held_bytes = || world.memory.length_bytes() - world.memory.free_bytes();
    assert_eq!(held_bytes(), 2 << 20);
    while world.front.poll_ready().is_some() {}
    assert_eq!(held_bytes(), 2 << 20);
    // What is taken and sent keeps nothing, though nobody has acknowledged it.
    assert!(taken(&mut world.front, CLIENT).len() > 32);
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

#[test]
fn who_may_not_manage_is_told_so_and_written_down() {
    let mut world = World::connected();
    world.administer(br#"{"do":"status"}"#);
    assert!(world.administered().is_some_and(|answer| answer.contains("not-permitted")));
    let QueuedRequest { client, content, .. } = world.letters.next().unwrap();
    assert_eq!(client, Some(key(2).client_id()));
    assert!(matches!(content, Content::Attempt));
    // Programs ask by themselves whether they may have copies made.
    world.administer(br#"{"do":"copy-terms"}"#);
    assert!(world.administered().is_some());
    assert!(world.front.dropped().contains(&("management without permission", 1)));
    assert!(world.client.server().is_some(), "its connection goes on");
}

#[test]
fn what_managers_and_owners_ask_is_passed_on_and_answered() {
    let id = key(2).client_id();
    let of_manager = with_listed(&[], vec![ListedClient { manage: true, ..ListedClient::new(id) }]);
    let of_owner = clients(&["any"]);
    of_owner.owners.set(vec![format!("key:{id}").parse().unwrap()]);
    for (clients, is_owner) in [(of_manager, false), (of_owner, true)] {
        let mut world = World::of(clients);
        world.administer(b"a request");
        assert_eq!(world.administered(), None);
        let QueuedRequest { client, content, .. } = world.letters.next().unwrap();
        let Content::Request { json, room_bytes, request, as_owner, .. } = content else { panic!("it is refused") };
        assert_eq!((&json[..], room_bytes, client), (&b"a request"[..], 4096, Some(id)));
        assert_eq!(as_owner.map(|principal| principal.client), is_owner.then_some(Some(id)));
        world.front.administered(request, b"an answer".to_vec(), world.now);
        world.exchange();
        assert_eq!(world.administered().as_deref(), Some("an answer"));
    }
}

#[test]
fn who_is_dropped_hears_so_before_its_connection_is_closed() {
    let mut world = World::connected();
    let client = key(2).client_id().to_string();
    world.front.drop_nexuses(&NexusSelection::Of(client), world.now);
    world.events();
    assert_eq!(world.closed(), [(CLIENT, false)]);
    // The shard sends what there is now, and closes it.
    let last = taken(&mut world.front, CLIENT).pop().unwrap();
    assert_eq!(RawPacket::read(&last).unwrap().header.kind, Kind::Close);
}

#[test]
fn a_connection_from_where_another_one_is_already_is_closed() {
    let mut world = World::connected();
    let second = StreamId(8);
    world.admit(second, peer(2, 4000));
    world.events();
    assert_eq!(world.closed(), [(second, true)]);
    let is_free = |event: &FrontEvent| matches!(event, FrontEvent::NexusClosed { session: Some(8), .. });
    assert!(world.told.iter().any(is_free));
    world.run_for(60 * SECOND);
    assert!(world.client.server().is_some(), "the first one goes on");
}

#[test]
fn a_connection_without_a_session_is_closed_after_a_while() {
    let mut world = World::connected();
    let silent = StreamId(8);
    world.admit(silent, peer(3, 4000));
    // Who asks again and again has no session either.
    let question = framed(discovery(key(5).client_id(), "", 5)).to_vec();
    for _ in 0..9 {
        world.run_for(SECOND);
        come(&mut world.front, silent, &question, world.now);
    }
    assert_eq!(world.closed(), []);
    world.run_for(2 * SECOND);
    assert_eq!(world.closed(), [(silent, true)]);
    assert!(world.client.server().is_some(), "who has one stays");
}

#[test]
fn those_without_a_session_leave_room_to_those_who_come_from_elsewhere() {
    let mut world = World::connected();
    for number in 0..300 {
        world.admit(StreamId(100 + number), peer(3, 1000 + number as u16));
    }
    let elsewhere = StreamId(8);
    world.admit(elsewhere, peer(4, 1000));
    world.events();
    let oldest: Vec<_> = (0..=300 - VISA_NEWCOMERS.limit).map(|number| (StreamId(100 + number), true)).collect();
    assert_eq!(world.closed(), oldest);
    let usage = world.front.quotas().into_iter().find(|usage| *usage.quota == VISA_NEWCOMERS).unwrap();
    assert_eq!((usage.most, usage.refused), (Some(VISA_NEWCOMERS.limit), oldest.len() as u64));
    assert!(world.client.server().is_some());
}

#[test]
fn a_server_that_ends_waits_for_nobody_who_has_no_session() {
    let mut world = World::connected();
    let silent = StreamId(8);
    world.admit(silent, peer(3, 4000));
    world.front.shut_down(world.now);
    world.events();
    assert_eq!(world.closed(), [(silent, true)]);
}
