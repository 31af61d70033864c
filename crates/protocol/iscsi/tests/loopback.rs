//! Both ends in one thread: the client against the login and the server of this crate, with a toy disk, over streams
//! that come in pieces and are cut.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sanwire_buffer::{Frame, Packet, Region, Slice};
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_iscsi::*;
use sanwire_scsi::{Cdb, Reply, Status, Task};

const BLOCK_BYTES: usize = 512;
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn portal() -> Portal {
    Portal { address: SocketAddr::new(HOST, ISCSI_PORT), group_tag: 1, carrier: PortalCarrier::Tcp }
}

fn name() -> IscsiName {
    "iqn.2026-11.org.sanwire:disk".parse().unwrap()
}

struct OneTarget;

impl Directory for OneTarget {
    fn target(&self, wanted: &IscsiName, _: &IscsiName, _: IpAddr, _: &Portal) -> Result<TargetEntry, LoginRefusal> {
        if *wanted != name() {
            return Err(LoginRefusal::NotFound);
        }
        Ok(TargetEntry {
            id: TargetId(1),
            alias: "toy".into(),
            authentication: Authentication::default(),
            requires_digests: false,
            redirect: None,
        })
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), _: &str) -> bool {
        true
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> Result<Authentication, LoginRefusal> {
        Ok(Authentication::default())
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, portal: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        match portal.carrier {
            PortalCarrier::Tcp => vec![(name(), vec!["10.0.0.1:3260,1".into()])],
            PortalCarrier::Iwarp => vec![(name(), vec!["10.0.0.1:3261,1".into()])],
            PortalCarrier::Adapter => Vec::new(),
        }
    }
}

enum End {
    Login(Box<ServerLogin>),
    Admitted,
}

struct Wire {
    end: End,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
}

struct World {
    client: Client,
    server: Server,
    wires: BTreeMap<ConnectionId, Wire>,
    disk: Vec<u8>,
    now: Instant,
    admissions: u64,
    events: Vec<ClientEvent>,
    /// Bytes at a time.
    piece: usize,
}

fn config(wishes: DesiredParameters, target: Option<IscsiName>) -> ClientConfig {
    ClientConfig {
        initiator: "iqn.2026-11.org.sanwire:client".parse().unwrap(),
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        target,
        portals: vec![portal().address],
        credential: None,
        target_credential: None,
        wishes,
        commands_max: 16,
        connect_patience: Duration::from_secs(10),
        reconnect_patience: Some(Duration::from_secs(60)),
        command_patience: Some(Duration::from_secs(60)),
        seed: [5; 32],
    }
}

impl World {
    fn new(config: ClientConfig, piece: usize) -> Self {
        let now = Instant::from_nanos(1);
        let server = Server::new(ServerConfig {
            memory: Region::new(8 << 20).unwrap(),
            directory: Arc::new(OneTarget),
            commands_max: 32,
            transfer_max_bytes: 1 << 20,
        });
        World {
            client: Client::new(config, now),
            server,
            wires: BTreeMap::new(),
            disk: vec![0; 256 * BLOCK_BYTES],
            now,
            admissions: 0,
            events: Vec::new(),
            piece,
        }
    }

    fn execute(&mut self, task: &Task) -> Reply {
        let cdb = &task.cdb;
        let at = usize::from(u16::from_be_bytes([cdb[4], cdb[5]])) * BLOCK_BYTES;
        match cdb.operation_code() {
            0x28 => {
                let end = at + usize::from(u16::from_be_bytes([cdb[7], cdb[8]])) * BLOCK_BYTES;
                Reply::good(Some(self.disk[at..end].to_vec().into()))
            }
            0x2a => {
                if let Some(data) = &task.data_out {
                    data.copy_to(&mut self.disk[at..at + data.len()]);
                }
                Reply::good(None)
            }
            _ => Reply::good(None),
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task, .. } => {
                    let reply = self.execute(&task);
                    self.server.reply(handle, reply, self.now);
                }
                ServerEvent::Manage { handle, .. } => {
                    self.server.managed(handle, ManageOutcome::Complete, self.now);
                }
                ServerEvent::Broken { why, .. } => panic!("a stream of bytes tells nothing: {why}"),
                ServerEvent::Close { connection } | ServerEvent::Cut { connection } => self.cut(connection),
                ServerEvent::SessionOpened { .. } | ServerEvent::SessionClosed { .. } => {}
            }
        }
        while let Some(event) = self.client.poll_event() {
            self.events.push(event);
        }
        while let Some(action) = self.client.poll_action() {
            match action {
                ClientAction::Connect { connection, .. } => {
                    let seed = [connection.0 as u8; 32];
                    let end = End::Login(Box::new(ServerLogin::new(portal(), HOST, seed, self.now)));
                    let (to_server, to_client) = (VecDeque::new(), VecDeque::new());
                    self.wires.insert(connection, Wire { end, to_server, to_client });
                    self.client.connected(connection, self.now);
                }
                ClientAction::Close { connection } => {
                    self.wires.remove(&connection);
                    self.server.connection_lost(connection, self.now);
                }
            }
        }
        while let Some(connection) = self.client.poll_ready() {
            while let Some(packet) = self.client.poll_transmit(connection) {
                if let Some(wire) = self.wires.get_mut(&connection) {
                    put(&mut wire.to_server, &packet);
                }
            }
        }
        while let Some(connection) = self.server.poll_ready() {
            while let Some(packet) = self.server.poll_transmit(connection) {
                if let Some(wire) = self.wires.get_mut(&connection) {
                    put(&mut wire.to_client, &packet);
                }
            }
        }
    }

    /// Moves a piece each way on every connection; whether anything moved.
    fn step(&mut self) -> bool {
        self.drain();
        let mut moved = false;
        for connection in self.wires.keys().copied().collect::<Vec<_>>() {
            moved |= self.feed_server(connection);
            self.drain();
            moved |= self.feed_client(connection);
            self.drain();
        }
        moved
    }

    fn feed_server(&mut self, connection: ConnectionId) -> bool {
        let Some(wire) = self.wires.get_mut(&connection) else { return false };
        let count = self.piece.min(wire.to_server.len());
        if count == 0 {
            return false;
        }
        if let End::Login(login) = &mut wire.end {
            let bytes: Vec<u8> = wire.to_server.drain(..count).collect();
            login.handle_input(&bytes, &OneTarget, self.now);
            while let Some(packet) = login.poll_transmit() {
                put(&mut wire.to_client, &packet);
            }
            if let Some(LoginOutcome::Admitted(admitted)) = login.poll_outcome() {
                wire.end = End::Admitted;
                self.admissions += 1;
                let admission = Admission { tsih: self.admissions as u16, nexus: NexusId(self.admissions) };
                self.server.admit(connection, *admitted, admission, self.now);
            }
            return true;
        }
        let taken = fill(self.server.spaces(connection), &mut wire.to_server, count);
        if taken > 0 {
            self.server.filled(connection, taken, self.now);
        }
        taken > 0
    }

    fn feed_client(&mut self, connection: ConnectionId) -> bool {
        let Some(wire) = self.wires.get_mut(&connection) else { return false };
        let count = self.piece.min(wire.to_client.len());
        if count == 0 {
            return false;
        }
        let taken = fill(self.client.spaces(connection), &mut wire.to_client, count);
        self.client.filled(connection, taken, self.now);
        taken > 0
    }

    fn cut(&mut self, connection: ConnectionId) {
        if self.wires.remove(&connection).is_some() {
            self.client.connection_lost(connection, self.now);
            self.server.connection_lost(connection, self.now);
        }
    }

    /// Runs until nothing moves, or for so many steps.
    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.step() {
                return;
            }
        }
    }

    /// Lets time pass until all commands are answered.
    fn settle(&mut self) {
        for _ in 0..2000 {
            self.run(usize::MAX);
            if self.client.in_transit() == 0 {
                return;
            }
            let next = [self.client.poll_timeout(), self.server.poll_timeout()].into_iter().flatten().min();
            self.now = next.expect("something is due").max(self.now);
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
        }
        panic!("commands that never end: {}", self.client.in_transit());
    }

    fn order(&mut self, code: u8, block: u16, data_out: Option<Vec<u8>>, data_in: usize) -> CommandId {
        let [high, low] = block.to_be_bytes();
        let [more, less] = ((data_in / BLOCK_BYTES) as u16).to_be_bytes();
        let cdb = Cdb::from([code, 0, 0, 0, high, low, 0, more, less, 0]);
        let data_in = (data_in > 0).then(|| Frame::from(vec![0; data_in]));
        let order =
            Order { lun: Lun::default(), cdb, is_repeatable: true, data_out: data_out.map(Slice::from), data_in };
        self.client.order(order, self.now).expect("room")
    }
}

fn put(queue: &mut VecDeque<u8>, packet: &Packet) {
    queue.extend(&packet.head[..]);
    queue.extend(packet.payload.iter().flat_map(|payload| payload.iter()));
}

fn fill(spaces: [&mut [u8]; 2], from: &mut VecDeque<u8>, count: usize) -> usize {
    let mut taken = 0;
    for space in spaces {
        let part = space.len().min(count - taken);
        space[..part].iter_mut().zip(from.drain(..part)).for_each(|(to, byte)| *to = byte);
        taken += part;
    }
    taken
}

#[test]
fn a_discovery_session_finds_the_target() {
    let wishes = DesiredParameters { digests: true, error_recovery_level: 2, connections: 4 };
    let mut world = World::new(config(wishes, None), 7);
    world.client.discover(world.now);
    world.run(usize::MAX);
    let targets = world.events.iter().find_map(|event| match event {
        ClientEvent::Targets(targets) => Some(targets.clone()),
        _ => None,
    });
    let other = OtherPortal { carrier: PortalCarrier::Iwarp, address: "10.0.0.1:3261".into(), group_tag: 1 };
    let addresses = vec![("10.0.0.1:3260".into(), 1)];
    let expected = DiscoveredTarget { name: name(), addresses, others: Some(vec![other]) };
    assert_eq!(targets, Some(vec![expected]));
    world.client.disconnect(world.now);
    world.run(usize::MAX);
    assert!(world.wires.is_empty() && world.client.poll_timeout().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the ends agree on, and however often connections are cut: what was written is read.
    #[test]
    fn what_was_written_is_read(
        error_recovery_level in 0..=2u8,
        connections in 1..=3u16,
        digests: bool,
        piece in prop_oneof![Just(1_000_000usize), 50..3000usize],
        cuts in prop::collection::vec((0..60usize, 0..3usize), 0..6),
        lengths in prop::collection::vec(1..200usize, 1..10),
    ) {
        let wishes = DesiredParameters { digests, error_recovery_level, connections };
        let mut world = World::new(config(wishes, Some(name())), piece);
        let mut expected = world.disk.clone();
        let mut cuts = cuts.into_iter();
        for (round, length) in lengths.into_iter().enumerate() {
            let (block, length) = ((round * 5) as u16, length * BLOCK_BYTES);
            let data: Vec<u8> = (0..length).map(|at| (at * 7 + round * 13) as u8).collect();
            expected[usize::from(block) * BLOCK_BYTES..][..length].copy_from_slice(&data);
            world.order(0x2a, block, Some(data.clone()), 0);
            if let Some((steps, which)) = cuts.next() {
                world.run(steps);
                if let Some(&connection) = world.wires.keys().nth(which) {
                    world.cut(connection);
                }
            }
            world.settle();
            let id = world.order(0x28, block, None, length);
            world.order(0x35, 0, None, 0);
            world.settle();
            let found = world.events.drain(..).find_map(|event| match event {
                ClientEvent::Completed { id: known, status: Status::Good, data_in, data_in_bytes, .. } if known == id => {
                    data_in.map(|frame| frame[..data_in_bytes].to_vec())
                }
                ClientEvent::Failed { failure, .. } | ClientEvent::GivenUp(failure) => panic!("{failure}"),
                _ => None,
            });
            prop_assert!(found == Some(data), "round {}", round);
        }
        prop_assert!(world.disk == expected);
    }
}
