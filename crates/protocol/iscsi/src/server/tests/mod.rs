//! A scripted initiator: PDUs made by hand, and what the server makes of them.

mod basic;
mod data_timeout;
mod heap;
mod hoard;
mod hostile;
mod manage;
mod memory;
mod pieces;
mod places;
mod receipts;
mod recovery;
mod several;
mod text;
mod timeouts;
mod unexpected;
mod withheld;
mod write;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use sanwire_buffer::{Frame, Region, Slice, Slices};
use sanwire_core::{Instant, NexusId, SessionEnd};
use sanwire_scsi::{Reply, Task};

use super::*;
use crate::byte_stream::ByteStream;
use crate::digest::{Digests, digest, padding_bytes};
use crate::login::{Authentication, LoginRefusal, Portal, PortalCarrier, SessionKind, TargetEntry};
use crate::name::{IscsiName, Isid};
use crate::parameters::{ConnectionParameters, SessionParameters};
use crate::receiver::{Destination, Receiver, Step};
use crate::wire::{DataOut, Header, LoginRequest, LoginResponse, Opcode, ScsiCommand, TAG_NONE, TaskRequest};

/// So many targets this directory knows.
const TARGETS: usize = 3000;

struct Targets;

impl Directory for Targets {
    fn target(&self, _: &IscsiName, _: &IscsiName, _: IpAddr, _: &Portal) -> Result<TargetEntry, LoginRefusal> {
        Err(LoginRefusal::NotFound)
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), _: &str) -> bool {
        true
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> Result<Authentication, LoginRefusal> {
        Ok(Authentication::default())
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, portal: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        let port = match portal.carrier {
            PortalCarrier::Tcp => 3260,
            PortalCarrier::Iwarp => 3261,
            PortalCarrier::Adapter => return Vec::new(),
        };
        (0..TARGETS).map(|number| (target_name(number), vec![format!("192.0.2.1:{port},1")])).collect()
    }
}

fn target_name(number: usize) -> IscsiName {
    format!("iqn.2026-11.org.sanwire:disk{number}").parse().unwrap()
}

/// What sessions agree on unless a test sets other parameters.
fn parameters() -> SessionParameters {
    SessionParameters {
        initial_r2t: false,
        immediate_data: true,
        max_burst_bytes: 65536,
        first_burst_bytes: 16384,
        max_outstanding_r2t: 1,
        data_pdu_in_order: true,
        data_sequence_in_order: true,
        error_recovery_level: 0,
        max_connections: 4,
        time_to_wait_s: 2,
        time_to_retain_s: 20,
        protocol_level: 2,
        unexpected_max: 0,
    }
}

/// A login that has passed.
fn admitted(session: SessionParameters) -> Admitted {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 3260));
    Admitted {
        request: LoginRequest { current_stage: 1, command_number: 1, task_tag: 7, ..LoginRequest::default() },
        text: b"TargetPortalGroupTag=1\0".to_vec(),
        status_number: 100,
        initiator: "iqn.1993-08.org.debian:01:abc".parse().unwrap(),
        alias: String::new(),
        isid: Isid([0x40, 0, 0, 0, 0, 1]),
        user: None,
        peer: Ipv4Addr::LOCALHOST.into(),
        portal: Portal { address, group_tag: 1, carrier: PortalCarrier::Tcp },
        kind: SessionKind::Normal { target: TargetId(0), name: target_name(0) },
        connection: ConnectionParameters {
            digests: Digests::default(),
            send_data_max_bytes: 8192,
            receive_data_max_bytes: 65536,
        },
        session,
        datamover: Box::new(ByteStream::new(0)),
        leftover: Vec::new(),
    }
}

/// A server, and an initiator's end of its connections.
struct World {
    server: Server,
    memory: Region,
    now: Instant,
    /// The initiator's end of each connection.
    streams: Vec<(ConnectionId, Receiver, Digests)>,
    /// The next command number.
    command_number: u32,
}

/// A PDU that the server has sent.
type Sent = (Header, Vec<u8>);

impl World {
    fn new(memory_bytes: usize) -> Self {
        let memory = Region::new(memory_bytes).unwrap();
        let config = ServerConfig {
            memory: memory.clone(),
            directory: Arc::new(Targets),
            commands_max: 32,
            transfer_max_bytes: 1 << 20,
        };
        World { server: Server::new(config), memory, now: Instant::ZERO, streams: Vec::new(), command_number: 1 }
    }

    /// A world with one session on connection 1, of nexus 1; its login is answered.
    fn with_session(session: SessionParameters) -> Self {
        let mut world = World::new(4 << 20);
        world.admit(1, admitted(session), 1);
        assert_eq!(world.take(1).len(), 1);
        assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionOpened { nexus: NexusId(1), .. })));
        world
    }

    fn admit(&mut self, connection: u64, admitted: Admitted, identity: u16) {
        let id = ConnectionId(connection);
        let digests = admitted.connection.digests;
        self.streams.push((id, Receiver::new(4096), digests));
        let admission = Admission { tsih: identity, nexus: NexusId(identity.into()) };
        self.server.admit(id, admitted, admission, self.now);
    }

    /// Sends bytes as far as they are taken, and says how many were.
    fn send_bytes(&mut self, connection: u64, bytes: &[u8]) -> usize {
        let id = ConnectionId(connection);
        let mut sent = 0;
        while sent < bytes.len() {
            let mut count = 0;
            for space in self.server.spaces(id) {
                let part = space.len().min(bytes.len() - sent - count);
                space[..part].copy_from_slice(&bytes[sent + count..sent + count + part]);
                count += part;
            }
            if count == 0 {
                break;
            }
            self.server.filled(id, count, self.now);
            sent += count;
        }
        sent
    }

    fn send(&mut self, connection: u64, header: Header, data: &[u8]) {
        let digests = self.digests(connection);
        let bytes = pdu(header, data, digests);
        assert_eq!(self.send_bytes(connection, &bytes), bytes.len(), "the server takes it");
    }

    fn digests(&self, connection: u64) -> Digests {
        self.streams.iter().find(|stream| stream.0 == ConnectionId(connection)).unwrap().2
    }

    /// All that the server has sent on a connection.
    fn take(&mut self, connection: u64) -> Vec<Sent> {
        let id = ConnectionId(connection);
        let mut sent = Vec::new();
        let (_, receiver, digests) = self.streams.iter_mut().find(|stream| stream.0 == id).unwrap();
        while let Some(packet) = self.server.poll_transmit(id) {
            let payload = packet.payload.as_deref().unwrap_or(&[]);
            let bytes = [&packet.head[..], payload].concat();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let count = receiver.take(rest);
                rest = &rest[count..];
                drain(receiver, *digests, &mut sent);
            }
        }
        sent
    }

    /// The one PDU that the server has sent.
    fn take_one(&mut self, connection: u64) -> Sent {
        let mut sent = self.take(connection);
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    /// The next command number, used up.
    fn next_number(&mut self) -> u32 {
        self.command_number += 1;
        self.command_number - 1
    }

    /// A READ (10) of so many blocks of 512 bytes, with this tag; the handle under which it was passed up.
    fn read(&mut self, tag: u32, expected_bytes: u32) -> CommandHandle {
        let command_number = self.next_number();
        self.send(1, read_command(tag, expected_bytes, command_number).write(), &[]);
        self.command().0
    }

    /// The command that was passed up.
    fn command(&mut self) -> (CommandHandle, Task) {
        match self.server.poll_event() {
            Some(ServerEvent::Command { handle, task, .. }) => (handle, task),
            other => panic!("a command was expected, not {other:?}"),
        }
    }

    /// The request that was passed up.
    fn manage(&mut self) -> (ManageHandle, Function) {
        match self.server.poll_event() {
            Some(ServerEvent::Manage { handle, function, .. }) => (handle, function),
            other => panic!("a request was expected, not {other:?}"),
        }
    }

    /// A connection that joins the session of that identity.
    fn join(&mut self, connection: u64, cid: u16, session: SessionParameters, tsih: u16) {
        let mut login = admitted(session);
        (login.request.tsih, login.request.connection) = (tsih, cid);
        self.admit(connection, login, 99);
    }

    fn reply(&mut self, handle: CommandHandle, data: Option<Slice>) {
        self.server.reply(handle, Reply::good(data.map(Slices::from)), self.now);
    }

    /// Nothing is left behind.
    fn assert_home(&self) {
        assert_eq!(self.memory.free_bytes(), self.memory.length_bytes());
    }
}

fn drain(receiver: &mut Receiver, digests: Digests, sent: &mut Vec<Sent>) {
    loop {
        match receiver.poll() {
            Step::Starving => return,
            Step::Header(header) => {
                receiver.place(Destination::Frame(Frame::from(vec![0; header.data_bytes()]), 0));
            }
            Step::Pdu(pdu) => {
                assert!(pdu.is_intact);
                if pdu.header.opcode() == Some(Opcode::LoginResponse) {
                    receiver.set_digests(digests);
                }
                sent.push((pdu.header, pdu.data.map_or(Vec::new(), |data| data.to_vec())));
            }
            Step::Torn => panic!("a header digest is wrong"),
        }
    }
}

/// The bytes of a PDU.
fn pdu(mut header: Header, data: &[u8], digests: Digests) -> Vec<u8> {
    header.set_data_bytes(data.len());
    let mut bytes = header.as_bytes().to_vec();
    if digests.header {
        bytes.extend(digest(&[header.as_bytes()]));
    }
    let padded = [data, &[0; 3][..padding_bytes(data.len())]].concat();
    bytes.extend(&padded);
    if digests.data && !data.is_empty() {
        bytes.extend(digest(&[&padded]));
    }
    bytes
}

fn read_command(task_tag: u32, expected_bytes: u32, command_number: u32) -> ScsiCommand {
    ScsiCommand {
        is_final: true,
        is_read: true,
        attribute: 1,
        task_tag,
        expected_bytes,
        command_number,
        cdb: [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
        ..ScsiCommand::default()
    }
}

fn write_command(task_tag: u32, expected_bytes: u32, command_number: u32) -> ScsiCommand {
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
    ScsiCommand { is_read: false, is_write: true, cdb, ..read_command(task_tag, expected_bytes, command_number) }
}

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn data_out(tag: u32, transfer_tag: u32, number: u32, offset: u32, is_final: bool) -> DataOut {
    DataOut { is_final, task_tag: tag, transfer_tag, data_number: number, offset_bytes: offset, ..DataOut::default() }
}

fn task_request(function: u8, task_tag: u32, referenced: (u32, u32), command_number: u32) -> TaskRequest {
    TaskRequest {
        is_immediate: true,
        is_final: true,
        function,
        task_tag,
        referenced_task_tag: referenced.0,
        referenced_command_number: referenced.1,
        command_number,
        ..TaskRequest::default()
    }
}

/// The reason of a Reject.
fn rejection(sent: &Sent) -> u8 {
    assert_eq!(sent.0.opcode(), Some(Opcode::Reject), "{sent:?}");
    crate::wire::Reject::read(&sent.0).reason
}
