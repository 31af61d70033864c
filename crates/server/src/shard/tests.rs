//! A wire that is in no table, a line for each command, is served by the login listener and a shard as all others are.

mod world;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sanwire_buffer::{Head, Packet};
use sanwire_core::{ClientId, Lun, NexusId, Principal, SessionEnd};
use sanwire_device::{LogicalUnit, LogicalUnits, NexusPorts, UnitOptions};
use sanwire_io::tcp::Listener;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Cdb, Identity, Reply, Task};
use sanwire_store::{RamStore, Store};

use super::*;
use crate::announce::Announced;
use crate::budget::Budget;
use crate::client_counts::Moved;
use crate::counting::Counted;
use crate::front::{
    Admission, Caller, ConnectionStatus, FrontEnd, FrontEvent, LoginOutcome, LoginPhase, LoginService, ManageOutcome,
    NewNexus, Newcomer, NexusSelection, NexusView, PassedLogin, SessionPort, StreamEnd, StreamId, TallyFamily,
};
use crate::login_listener::{self, FrontDeskParts, LoginAccounts, Portal};
use crate::streams::ByteCount;

const BLOCK_BYTES: usize = 512;

/// A line protocol: `read LBA` is answered with a block, `write LBA BYTE` with the status.
struct Lines {
    front: u8,
    units: Arc<LogicalUnits>,
    memory: Region,
    connections: BTreeMap<StreamId, Connection>,
    events: Vec<FrontEvent>,
}

struct Connection {
    name: String,
    admission: Admission,
    space: [u8; 64],
    line: Vec<u8>,
    answers: Vec<Packet>,
    given: u64,
}

/// The only line of a login, and what has come behind it.
struct Greeted {
    name: String,
    rest: Vec<u8>,
}

impl PassedLogin for Greeted {
    fn out_of_resources(self: Box<Self>) -> Vec<Packet> {
        Vec::new()
    }
}

impl FrontEnd for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn poll_event(&mut self, _: Instant) -> Option<FrontEvent> {
        (!self.events.is_empty()).then(|| self.events.remove(0))
    }

    fn events_waiting(&self) -> usize {
        self.events.len()
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn streams(&mut self) -> Option<&mut dyn StreamEnd> {
        Some(self)
    }

    fn reply(&mut self, command: CommandRef, reply: Option<Reply>, _: Instant) {
        let of_nexus = |connection: &&mut Connection| connection.admission.nexus == command.nexus;
        let Some(connection) = self.connections.values_mut().find(of_nexus) else { return };
        let reply = reply.expect("nobody aborts anything");
        let status = || format!("{:?}\n", reply.status).into_bytes().into();
        let pieces = reply.data_in.as_ref().map_or_else(|| vec![status()], |data| data.pieces().to_vec());
        let packets = pieces.into_iter().map(|piece| Packet::new(Head::new(), Some(piece)));
        connection.answers.extend(packets);
    }

    fn managed(&mut self, _: CommandRef, _: ManageOutcome, _: Instant) {}

    fn hold_back(&mut self, _: &[CommandRef], _: Instant) {}

    fn is_starved(&self) -> bool {
        false
    }

    fn starving(&self) -> Box<dyn Iterator<Item = (NexusId, &Region)> + '_> {
        Box::new(std::iter::empty())
    }

    fn relieve(&mut self, _: &Shortage, _: Instant) {}

    fn admit(&mut self, stream: StreamId, login: Box<dyn PassedLogin>, admission: Admission, _: Instant) {
        let Greeted { name, rest } = *(login as Box<dyn std::any::Any>).downcast::<Greeted>().unwrap();
        let target = TargetPort { relative_id: 9, group: 9, port_name: None, device_name: None };
        let initiator = TransportId::hyperscsi(ClientId([9; 16]));
        self.events.push(FrontEvent::NexusOpened(Box::new(NewNexus {
            nexus: admission.nexus,
            ports: Arc::new(NexusPorts { initiator, target, principal: Principal::default() }),
            writer: [9; 16],
            port: name.clone(),
            target: None,
            memory: self.memory.clone(),
            view: NexusView {
                units: Arc::clone(&self.units),
                who: name.clone(),
                principal: Principal::default(),
                address: "here".into(),
                is_read_only: false,
                weight: 1,
                locks_media: false,
            },
            ends_own: false,
            line: format!("{name} is there"),
        })));
        let connection =
            Connection { name, admission, space: [0; 64], line: Vec::new(), answers: Vec::new(), given: 0 };
        self.connections.insert(stream, connection);
        self.hear(stream, &rest);
    }

    fn drop_nexuses(&mut self, selection: &NexusSelection, _: Instant) {
        for (stream, connection) in &self.connections {
            if *selection == NexusSelection::Of(connection.name.clone()) {
                self.events.push(FrontEvent::CloseStream { stream: *stream, is_at_once: false });
            }
        }
    }

    fn shut_down(&mut self, _: Instant) {
        let close = |stream: &StreamId| FrontEvent::CloseStream { stream: *stream, is_at_once: false };
        self.events.extend(self.connections.keys().map(close));
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        let count = |connection: &Connection| ConnectionStatus {
            nexus: connection.admission.nexus,
            links: 1,
            security: "none".into(),
            login: None,
            packets: None,
            movement: None,
        };
        self.connections.values().map(count).collect()
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn quotas(&self) -> Vec<sanwire_core::quota::Usage> {
        Vec::new()
    }
}

impl StreamEnd for Lines {
    fn spaces(&mut self, stream: StreamId) -> [&mut [u8]; 2] {
        self.connections.get_mut(&stream).map_or([&mut [], &mut []], |connection| [&mut connection.space, &mut []])
    }

    fn filled(&mut self, stream: StreamId, count: usize, _: Instant) {
        let space = self.connections.get(&stream).map_or([0; 64], |connection| connection.space);
        self.hear(stream, &space[..count]);
    }

    fn lost(&mut self, stream: StreamId, _: Instant) {
        let Some(Connection { admission, .. }) = self.connections.remove(&stream) else { return };
        let Admission { session, nexus } = admission;
        self.events.push(FrontEvent::NexusClosed {
            nexus,
            session: Some(session),
            is_for_good: true,
            end: SessionEnd::Closed,
        });
    }

    fn poll_ready(&mut self) -> Option<StreamId> {
        let ready = self.connections.iter().find(|(_, connection)| !connection.answers.is_empty());
        ready.map(|(stream, _)| *stream)
    }

    fn poll_transmit(&mut self, stream: StreamId) -> Option<Packet> {
        let answers = &mut self.connections.get_mut(&stream)?.answers;
        (!answers.is_empty()).then(|| answers.remove(0))
    }

    fn note_unsent(&mut self, _: StreamId, _: usize) {}
}

impl Lines {
    fn hear(&mut self, stream: StreamId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&stream) else { return };
        for byte in bytes {
            connection.line.push(*byte);
            if *byte != b'\n' {
                continue;
            }
            connection.given += 1;
            let line = String::from_utf8(std::mem::take(&mut connection.line)).unwrap();
            let (nexus, number) = (connection.admission.nexus, connection.given);
            let command = CommandRef { front: self.front, nexus, number };
            self.events.push(FrontEvent::Command { command, task: task(&line) });
        }
    }
}

fn task(line: &str) -> Task {
    let words: Vec<&str> = line.split_whitespace().collect();
    let lba: u8 = words[1].parse().unwrap();
    let byte = words.get(2).map(|byte| byte.parse::<u8>().unwrap());
    let code = if byte.is_some() { 0x2a } else { 0x28 };
    Task {
        lun: Some(Lun::default()),
        cdb: Cdb::from([code, 0, 0, 0, 0, lba, 0, 0, 1, 0]),
        data_out: byte.map(|byte| vec![byte; BLOCK_BYTES].into()),
        tells_residual: false,
        piece: None,
        receipts: 0,
        data_in_max_bytes: if byte.is_some() { 0 } else { BLOCK_BYTES as u32 },
        may_share: true,
    }
}

static RESULTS: TallyFamily = TallyFamily { name: "greetings", help: "How they have ended", label: "result" };

/// Logins of one line: the name of who it is.
struct Greetings;

impl LoginService for Greetings {
    fn name(&self) -> &'static str {
        "a greeting"
    }

    fn results(&self) -> &'static TallyFamily {
        &RESULTS
    }

    fn may_permit(&self, _: IpAddr, _: bool) -> bool {
        true
    }

    fn begin(&self, caller: Caller, _: [u8; 32], _: Instant) -> Box<dyn LoginPhase> {
        Box::new(Greeting { peer: caller.peer.ip(), said: Vec::new() })
    }
}

struct Greeting {
    peer: IpAddr,
    said: Vec<u8>,
}

impl LoginPhase for Greeting {
    fn handle_input(&mut self, bytes: &[u8], _: Instant) {
        self.said.extend_from_slice(bytes);
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn has_spoken(&self) -> bool {
        self.said.contains(&b'\n')
    }

    fn poll_transmit(&mut self) -> Option<Packet> {
        None
    }

    fn poll_outcome(&mut self) -> Option<LoginOutcome> {
        if !self.has_spoken() {
            return None;
        }
        let said = std::mem::take(&mut self.said);
        let end = said.iter().position(|byte| *byte == b'\n')?;
        let (name, rest) = (String::from_utf8(said[..end].to_vec()).unwrap(), said[end + 1..].to_vec());
        if name == "nobody" {
            return Some(LoginOutcome::Refused("nobody is not served".into()));
        }
        let port = SessionPort { front: 0, initiator: name.clone(), id: "1".into(), target: Some("lines".into()) };
        let login = Box::new(Greeted { name, rest });
        let newcomer =
            Newcomer { port, peer: self.peer, group_tag: 1, joined: 0, shard: None, is_stranger: false, login };
        Some(LoginOutcome::Passed(newcomer))
    }
}

/// One shard with one front end, and the login listener.
struct World {
    address: SocketAddr,
    shards: Arc<[Mailbox]>,
    listener: Waker,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl World {
    fn new() -> World {
        let (units, memory) = (Arc::new(LogicalUnits::new()), Region::new(1 << 20).unwrap());
        let store: Arc<dyn Store> = Arc::new(RamStore::new(1 << 20, BLOCK_BYTES as u32));
        let disk = LogicalUnit::new(Identity::new("a", [7; 16]).unwrap(), store, UnitOptions::default()).unwrap();
        units.add(Lun::default(), disk).unwrap();
        let (waker, listener_waker) = (Waker::new().unwrap(), Waker::new().unwrap());
        let (mailbox, mail) = Mailbox::new(waker.clone());
        let (inbox, _) = ManagementQueue::new();
        let (stop, budget) = (Arc::new(AtomicBool::new(false)), Budget::new(1 << 20));
        let registry = Arc::new(Registry::new(1, &budget));
        let (shards, of_lines): (Arc<[Mailbox]>, _) = (vec![mailbox].into(), memory.clone());
        let build: FrontBuilder = Box::new(move |front| {
            Box::new(Lines { front, units, memory: of_lines, connections: BTreeMap::new(), events: Vec::new() })
        });
        let parts = ShardParts {
            ports: Vec::new(),
            openers: Vec::new(),
            fronts: vec![build],
            memory,
            inbox: inbox.clone(),
            registry: Arc::clone(&registry),
            events: crate::events::EventLog::new(1, crate::revisions::Revisions::new(0)),
            past_uses: Arc::new(PastUses::open(None).unwrap()),
            engine: EngineKind::Threads,
            counts_clients: true,
            announced: Announced::default(),
            waker,
            mail,
            shards: Arc::clone(&shards),
            index: 0,
            stop: Arc::clone(&stop),
        };
        let listener = Listener::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_address().unwrap();
        let desk = FrontDeskParts {
            portals: vec![Portal { listener: Some(listener.into()), group_tag: 1, logins: Arc::new(Greetings) }],
            registry,
            inbox,
            budget,
            accounts: Arc::new(LoginAccounts::new(&budget)),
            shards: Arc::clone(&shards),
            waker: listener_waker.clone(),
            stop: Arc::clone(&stop),
        };
        let threads = vec![
            thread::spawn(move || run(parts, |started| started.unwrap())),
            thread::spawn(move || login_listener::run(desk)),
        ];
        World { address, shards, listener: listener_waker, stop, threads }
    }

    fn login(&self, name: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        writeln!(stream, "{name}").unwrap();
        BufReader::new(stream)
    }

    fn count(&self) -> Counted {
        let (sender, counted) = mpsc::channel();
        self.shards[0].send(ShardMessage::Count(sender));
        counted.recv().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.listener.wake();
        self.shards[0].wake();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn write(client: &mut BufReader<TcpStream>, lba: u8, byte: u8) -> String {
    writeln!(client.get_mut(), "write {lba} {byte}").unwrap();
    let mut status = String::new();
    client.read_line(&mut status).unwrap();
    status.trim().to_owned()
}

fn read(client: &mut BufReader<TcpStream>, lba: u8) -> u8 {
    writeln!(client.get_mut(), "read {lba}").unwrap();
    let mut block = [0; BLOCK_BYTES];
    client.read_exact(&mut block).unwrap();
    assert!(block.iter().all(|byte| *byte == block[0]));
    block[0]
}

/// Writes until the unit has told its attentions.
fn settle(client: &mut BufReader<TcpStream>) {
    assert!((0..4).any(|_| write(client, 0, 0) == "Good"));
}

#[test]
fn a_wire_that_is_new_logs_in_reads_and_writes() {
    let world = World::new();
    let [mut one, mut other] = ["one", "other"].map(|name| world.login(name));
    [&mut one, &mut other].into_iter().for_each(settle);
    assert_eq!(write(&mut one, 3, 0xab), "Good");
    assert_eq!((read(&mut other, 3), read(&mut other, 4)), (0xab, 0));
    let counted = world.count();
    let names: Vec<&str> = counted.sessions.iter().map(|session| session.host.owner()).collect();
    assert_eq!(names, ["one", "other"]);
    assert!(counted.sessions.iter().all(|session| session.wire == "lines" && session.connections == 1));
    assert_eq!(counted.sessions[0].uses.slots().count(), 1, "it has used the volume");
    let of = |name: &str| counted.connections.iter().find(|it| it.principal == name).unwrap().commands;
    assert_eq!((of("other").read_bytes, of("other").errors), (2 * BLOCK_BYTES as u64, 0));
    assert_eq!(of("one").read_bytes, 0);
    let moved: Vec<_> = counted.sessions[1].moved.iter().collect();
    let sanwire_engine::NexusCount { read_bytes, written_bytes, .. } = of("other");
    assert_eq!(moved, [(counted.volumes[0].0, Moved { read_bytes, written_bytes })], "all of it is of that volume");
    assert!(of("one").written_bytes >= BLOCK_BYTES as u64 && of("one").commands >= 2);
    assert_eq!(counted.users.iter().map(|user| &*user.host.who).collect::<Vec<_>>(), ["one", "other"]);
}

#[test]
fn the_bytes_of_connections_are_counted_for_their_sessions_and_portals_and_for_these_also_when_they_are_closed() {
    let world = World::new();
    let mut one = world.login("one");
    settle(&mut one);
    let counts = || {
        let counted = world.count();
        assert_eq!(counted.portals.len(), 1);
        let session = counted.connections.first().map(|connection| connection.bytes).unwrap_or_default();
        (session, counted.portals[0].1)
    };
    let (session, portal) = counts();
    assert_eq!((portal.connections, portal.bytes), (1, session), "with the login");
    assert_eq!(write(&mut one, 3, 171), "Good");
    let (now, _) = counts();
    let passed = [now.received - session.received, now.sent - session.sent];
    assert_eq!(passed, ["write 3 171\n".len() as u64, "Good\n".len() as u64]);
    world.shards[0].send(ShardMessage::Drop(NexusSelection::Of("one".into())));
    assert_eq!(one.read(&mut [0]).unwrap(), 0, "it is dropped");
    let (none, portal) = counts();
    assert_eq!((none, portal.connections, portal.bytes), (ByteCount::default(), 0, now));
}

/// Pausing is the shard's, so that it is the same over a wire that knows nothing of it.
#[test]
fn a_paused_principal_of_a_new_wire_waits_also_when_it_is_dropped_and_comes_again() {
    let world = World::new();
    let [mut one, mut other] = ["one", "other"].map(|name| world.login(name));
    [&mut one, &mut other].into_iter().for_each(settle);
    world.shards[0].send(ShardMessage::Pause("one".into(), true));
    writeln!(one.get_mut(), "write 5 1").unwrap();
    assert_eq!((write(&mut other, 6, 2), read(&mut other, 5)), ("Good".into(), 0));
    let commands = |name: &str| {
        let counted = world.count();
        counted.connections.iter().find(|it| it.principal == name).map(|it| it.commands.commands)
    };
    let before = commands("one");
    world.shards[0].send(ShardMessage::Drop(NexusSelection::Of("one".into())));
    assert_eq!(one.read(&mut [0]).unwrap(), 0, "it is dropped");
    let mut again = world.login("one");
    (0..4).for_each(|byte| writeln!(again.get_mut(), "write 7 {}", byte + 10).unwrap());
    while commands("one").is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((write(&mut other, 6, 3), read(&mut other, 7)), ("Good".into(), 0));
    assert!(before.is_some() && commands("one") == Some(0), "none was begun");
    world.shards[0].send(ShardMessage::Pause("one".into(), false));
    let mut statuses = String::new();
    (0..4).for_each(|_| _ = again.read_line(&mut statuses).unwrap());
    assert!(statuses.contains("Good"), "{statuses}");
    assert_eq!((read(&mut other, 7), read(&mut other, 5)), (13, 0), "in their order; what was dropped was not done");
}

#[test]
fn principals_of_a_new_wire_are_dropped_and_strangers_refused() {
    let world = World::new();
    let [mut one, mut other] = ["one", "other"].map(|name| world.login(name));
    [&mut one, &mut other].into_iter().for_each(settle);
    world.shards[0].send(ShardMessage::Drop(NexusSelection::Of("one".into())));
    assert_eq!(one.read(&mut [0]).unwrap(), 0, "its connection is closed");
    assert_eq!(write(&mut other, 1, 1), "Good");
    assert_eq!(world.login("nobody").read(&mut [0]).unwrap(), 0);
    assert_eq!(world.count().sessions.len(), 1);
}
