//! Connections whose login has passed, over real sockets: what the stream carrier does with them.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use sanwire_io::Poller;
use sanwire_io::tcp::Listener;
use sanwire_iscsi::wire::LoginRequest;
use sanwire_iscsi::{
    Admission, Admitted, Authentication, ByteStream, ConnectionParameters, Digests, LoginRefusal, Portal,
    PortalCarrier, SessionKind, SessionParameters, TargetEntry,
};

use super::directory::TargetNodes;
use super::{
    BTreeMap, ConnectionId, Directory, IpAddr, Iscsi, IscsiName, Isid, NexusId, Region, Server, ServerConfig,
    ServerEvent, StreamEnd, TargetId, VecDeque,
};
use crate::announce::Announced;
use crate::front::{FrontEnd, StreamEnds, StreamId};
use crate::registry::Seat;
use crate::streams::Streams;
use sanwire_core::Instant;
use std::sync::Arc;

struct NoTargets;

impl Directory for NoTargets {
    fn target(&self, _: &IscsiName, _: &IscsiName, _: IpAddr, _: &Portal) -> Result<TargetEntry, LoginRefusal> {
        Err(LoginRefusal::NotFound)
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), _: &str) -> bool {
        true
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> Result<Authentication, LoginRefusal> {
        Ok(Authentication::default())
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, _: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        Vec::new()
    }
}

fn admitted(initiator: &IscsiName) -> Admitted {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 3260));
    Admitted {
        request: LoginRequest { current_stage: 1, command_number: 1, task_tag: 7, ..LoginRequest::default() },
        text: Vec::new(),
        status_number: 100,
        initiator: initiator.clone(),
        alias: String::new(),
        isid: Isid([0x40, 0, 0, 0, 0, 1]),
        user: None,
        peer: Ipv4Addr::LOCALHOST.into(),
        portal: Portal { address, group_tag: 1, carrier: PortalCarrier::Tcp },
        kind: SessionKind::Normal { target: TargetId(0), name: initiator.clone() },
        connection: ConnectionParameters {
            digests: Digests::default(),
            send_data_max_bytes: 8192,
            receive_data_max_bytes: 65536,
        },
        session: SessionParameters {
            initial_r2t: false,
            immediate_data: true,
            max_burst_bytes: 65536,
            first_burst_bytes: 16384,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 2,
            max_connections: 1,
            time_to_wait_s: 2,
            time_to_retain_s: 20,
            protocol_level: 2,
            unexpected_max: 0,
        },
        datamover: Box::new(ByteStream::new(0)),
        leftover: Vec::new(),
    }
}

impl StreamEnds for Server {
    fn count(&self) -> u8 {
        1
    }

    fn end(&mut self, _: u8) -> Option<&mut dyn StreamEnd> {
        Some(self)
    }
}

/// A session over a stream, whose login is answered.
struct World {
    server: Server,
    streams: Streams,
    poller: Poller,
    id: StreamId,
    initiator: TcpStream,
}

impl World {
    fn new(name: &IscsiName) -> Self {
        World::with(name, Region::new(1 << 20).unwrap())
    }

    fn with(name: &IscsiName, memory: Region) -> Self {
        let config =
            ServerConfig { memory, directory: Arc::new(NoTargets), commands_max: 32, transfer_max_bytes: 1 << 16 };
        let (mut server, mut streams, mut poller) = (Server::new(config), Streams::default(), Poller::new());
        let listener = Listener::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let initiator = TcpStream::connect(listener.local_address().unwrap()).unwrap();
        let accepted = std::iter::repeat_with(|| listener.accept().unwrap()).find_map(|accepted| accepted);
        let (stream, _) = accepted.unwrap();
        let now = Instant::ZERO;
        let id = streams
            .add(stream.into(), (0, NexusId(1)), Seat::for_test(), &mut poller, now)
            .map_err(|(_, error)| error)
            .unwrap();
        server.admit(ConnectionId(id.0), admitted(name), Admission { tsih: 1, nexus: NexusId(1) }, now);
        streams.transmit(&mut server, &mut poller, now);
        World { server, streams, poller, id, initiator }
    }

    /// Something to be sent that takes more room than the kernel has.
    fn leave_unread(&mut self) {
        self.streams.leave_unread(self.id);
    }

    /// The initiator reads what the kernel has.
    fn read_some(&mut self) {
        let mut room = vec![0; 1 << 20];
        self.initiator.set_nonblocking(true).unwrap();
        loop {
            match self.initiator.read(&mut room) {
                Ok(count) => assert!(count > 0),
                Err(error) => return assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    /// Waits until a connection is looked at.
    fn wait(&mut self) {
        let at = self.streams.poll_timeout().unwrap();
        self.streams.handle_timeout(&mut self.server, &mut self.poller, at);
    }

    /// Closes what the protocol says is to be closed.
    fn close(&mut self) {
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Close { connection } = event {
                self.streams.close(StreamId(connection.0), &mut self.server, &mut self.poller, Instant::ZERO);
            }
        }
    }
}

/// Bytes arrive.
fn take(server: &mut Server, stream: StreamId, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let mut filled = 0;
        for space in StreamEnd::spaces(server, stream) {
            let (now, rest) = bytes.split_at(space.len().min(bytes.len()));
            space[..now.len()].copy_from_slice(now);
            (bytes, filled) = (rest, filled + now.len());
        }
        assert!(filled > 0, "there is no room");
        StreamEnd::filled(server, stream, filled, Instant::ZERO);
    }
}

#[test]
fn memory_that_comes_free_is_for_who_waits_for_it_in_the_next_turn() {
    let (name, memory): (IscsiName, _) =
        ("iqn.2026-11.org.sanwire:test".parse().unwrap(), Region::new(32 << 10).unwrap());
    let World { server, id, .. } = World::with(&name, memory.clone());
    let targets = TargetNodes::new(Authentication::default(), Vec::new(), Announced::default());
    let mut front = Iscsi { front: 0, server, targets, cold_resets: BTreeMap::new(), events: VecDeque::new() };
    let has_command = |front: &mut Iscsi| {
        std::iter::from_fn(|| front.server.poll_event()).any(|event| matches!(event, ServerEvent::Command { .. }))
    };
    assert!(!has_command(&mut front));
    let held = memory.frame(32 << 10).expect("all of it");
    // WRITE (10) of a page with all its data.
    let mut pdu = [0; 48];
    (pdu[0], pdu[1], pdu[6], pdu[19], pdu[22], pdu[27]) = (1, 0xA0, 0x10, 1, 0x10, 1);
    (pdu[32], pdu[40]) = (0x2A, 8);
    take(&mut front.server, id, &pdu);
    assert!(!has_command(&mut front) && front.server.starving().count() == 1);
    FrontEnd::handle_timeout(&mut front, Instant::ZERO);
    assert!(FrontEnd::poll_timeout(&front).is_none_or(|at| at > Instant::ZERO), "it does not ask again and again");
    drop(held);
    FrontEnd::handle_timeout(&mut front, Instant::ZERO);
    take(&mut front.server, id, &[7; 4096]);
    assert!(has_command(&mut front), "it has its place");
}

#[test]
fn a_connection_whose_end_does_not_read_what_is_left_is_closed_all_the_same() {
    let name: IscsiName = "iqn.2026-11.org.sanwire:test".parse().unwrap();
    let mut world = World::new(&name);
    world.leave_unread();
    world.server.drop_initiator(&name);
    world.close();
    assert!(!world.streams.is_empty(), "it may still read");
    let at = world.streams.poll_timeout().unwrap();
    assert!(at > Instant::ZERO && at <= Instant::ZERO + Duration::from_secs(10));
    world.streams.handle_timeout(&mut world.server, &mut world.poller, Instant::ZERO + Duration::from_secs(5));
    assert!(!world.streams.is_empty());
    world.streams.handle_timeout(&mut world.server, &mut world.poller, at);
    assert!(world.streams.is_empty() && world.streams.poll_timeout().is_none());
    assert_eq!(world.server.connections_closing(), 0);
}

/// A connection that is to be closed, of which the other end reads slowly what is left.
fn slow_world() -> World {
    let name: IscsiName = "iqn.2026-11.org.sanwire:test".parse().unwrap();
    let mut world = World::new(&name);
    world.leave_unread();
    world.server.drop_initiator(&name);
    world.close();
    world
}

#[test]
fn a_connection_whose_end_reads_what_is_left_is_not_closed_before_it_has_all() {
    let mut world = slow_world();
    for _ in 0..3 {
        world.read_some();
        world.wait();
        assert!(!world.streams.is_empty(), "it reads");
    }
    world.wait();
    assert!(world.streams.is_empty(), "it reads no more");
    assert_eq!(world.server.connections_closing(), 0);
}

#[test]
fn a_connection_whose_end_reads_for_ever_what_is_left_is_closed_all_the_same() {
    let mut world = slow_world();
    let looks = (1..100).find(|_| {
        world.leave_unread();
        world.read_some();
        world.wait();
        world.streams.is_empty()
    });
    assert_eq!(looks, Some(30));
}

#[test]
fn a_connection_that_is_closed_when_all_is_sent_leaves_nothing_behind() {
    let name: IscsiName = "iqn.2026-11.org.sanwire:test".parse().unwrap();
    let mut world = World::new(&name);
    world.server.drop_initiator(&name);
    assert_eq!(world.server.connections_closing(), 1);
    world.close();
    assert!(world.streams.is_empty());
    assert_eq!(world.server.connections_closing(), 0);
}
