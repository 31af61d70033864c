//! A client against a target that does what a script says.

mod commands;
mod foreign;
mod hostile;
mod recovery;
mod search;
mod timeouts;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sanwire_buffer::{Frame, Slice};
use sanwire_scsi::{Cdb, CommandSet, Features, Status};

use super::*;
use crate::outbox::Outbox;
use crate::receiver::{Destination, Receiver, Step};
use crate::wire::{
    DataIn, DataOut, Header, LoginRequest, LoginResponse, Opcode, ReadyToTransfer, ScsiCommand, ScsiResponse, TAG_NONE,
};
use crate::{Digests, Isid};

/// Commands that the scripted target takes at a time.
const WINDOW: u32 = 32;

const START: Instant = Instant::from_nanos(1_000_000_000);

/// One connection, as the target sees it.
struct Wire {
    to: SocketAddr,
    receiver: Receiver,
    outbox: Outbox,
    inbox: Vec<(Header, Vec<u8>)>,
    status: u32,
}

/// A client, a target of puppets, and a clock.
struct World {
    client: Client,
    now: Instant,
    wires: BTreeMap<ConnectionId, Wire>,
    closed: Vec<ConnectionId>,
    events: Vec<ClientEvent>,
    /// The next command number that the target expects.
    expected_command: u32,
    /// What the target says in the operational stage.
    keys: String,
    /// Sizes of the pieces in which bytes reach the client.
    pieces: Vec<usize>,
}

fn portal(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 3260))
}

fn config() -> ClientConfig {
    ClientConfig {
        initiator: "iqn.2026-11.org.sanwire:client".parse().unwrap(),
        isid: Isid([0x80, 0, 0, 1, 0, 0]),
        target: Some("iqn.2026-11.org.sanwire:disk".parse().unwrap()),
        portals: vec![portal(1)],
        credential: None,
        target_credential: None,
        wishes: DesiredParameters { digests: false, error_recovery_level: 0, connections: 1 },
        commands_max: 16,
        connect_patience: Duration::from_secs(10),
        reconnect_patience: Some(Duration::from_secs(60)),
        command_patience: Some(Duration::from_secs(60)),
        seed: [7; 32],
    }
}

/// A client that asks for this recovery level and so many connections.
fn wishing(error_recovery_level: u8, connections: u16) -> ClientConfig {
    ClientConfig { wishes: DesiredParameters { digests: false, error_recovery_level, connections }, ..config() }
}

impl World {
    fn new(config: ClientConfig) -> Self {
        World::of(Client::new(config, START))
    }

    fn of(client: Client) -> Self {
        let mut world = World {
            client,
            now: START,
            wires: BTreeMap::new(),
            closed: Vec::new(),
            events: Vec::new(),
            expected_command: 1,
            keys: "InitialR2T=No\0ImmediateData=Yes\0MaxOutstandingR2T=2\0".into(),
            pieces: vec![usize::MAX],
        };
        world.drain();
        world
    }

    /// A world whose client has a session, on this connection.
    fn connected(config: ClientConfig) -> (Self, ConnectionId) {
        let wishes = config.wishes;
        let mut world = World::new(config);
        world.keys += &format!(
            "ErrorRecoveryLevel={}\0MaxConnections={}\0DefaultTime2Wait=0\0DefaultTime2Retain=20\0",
            wishes.error_recovery_level, wishes.connections
        );
        let connection = world.only();
        world.log_in(connection);
        assert!(matches!(world.events.remove(0), ClientEvent::Connected { resumed: false, .. }));
        assert!(world.events.is_empty());
        (world, connection)
    }

    /// The only connection there is.
    fn only(&self) -> ConnectionId {
        assert_eq!(self.wires.len(), 1);
        *self.wires.keys().next().unwrap()
    }

    fn drain(&mut self) {
        loop {
            let mut is_done = true;
            while let Some(event) = self.client.poll_event() {
                self.events.push(event);
            }
            while let Some(action) = self.client.poll_action() {
                is_done = false;
                match action {
                    ClientAction::Connect { connection, to } => {
                        let (receiver, outbox) = (Receiver::new(1 << 16), Outbox::default());
                        self.wires.insert(connection, Wire { to, receiver, outbox, inbox: Vec::new(), status: 1 });
                    }
                    ClientAction::Close { connection } => {
                        self.wires.remove(&connection);
                        self.closed.push(connection);
                    }
                }
            }
            while let Some(connection) = self.client.poll_ready() {
                is_done = false;
                while let Some(packet) = self.client.poll_transmit(connection) {
                    let Some(wire) = self.wires.get_mut(&connection) else { continue };
                    wire.take(&packet.head);
                    wire.take(packet.payload.as_deref().unwrap_or(&[]));
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.client.poll_timeout().filter(|&at| at <= end) {
            assert!(at >= self.now || self.client.poll_timeout() == Some(at));
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.drain();
            assert_ne!(self.client.poll_timeout(), Some(at), "the same moment is due for ever");
        }
        self.now = end;
    }

    /// The connection opens, and the target lets it in.
    fn log_in(&mut self, connection: ConnectionId) {
        self.open(connection);
        self.answer_login(connection, 0, 0, "");
    }

    fn open(&mut self, connection: ConnectionId) {
        self.client.connected(connection, self.now);
        self.drain();
    }

    /// Answers login requests until the last one, or with a status (class and detail) and a text.
    fn answer_login(&mut self, connection: ConnectionId, class: u8, detail: u8, text: &str) {
        let is_login = |wire: &Wire| wire.inbox.first().is_some_and(|pdu| pdu.0.opcode() == Some(Opcode::LoginRequest));
        while self.wires.get(&connection).is_some_and(is_login) {
            let (header, _) = self.take(connection).unwrap();
            let request = LoginRequest::read(&header);
            let response = LoginResponse {
                transits: class == 0 && request.transits,
                current_stage: request.current_stage,
                next_stage: request.next_stage,
                isid: request.isid,
                tsih: if request.tsih == 0 { 77 } else { request.tsih },
                task_tag: request.task_tag,
                status_class: class,
                status_detail: detail,
                ..LoginResponse::default()
            };
            let keys = self.keys.clone();
            let keys = if request.tsih == 0 { keys } else { String::new() };
            let text = match (class, request.current_stage) {
                (0, 0) => "AuthMethod=None\0".to_owned(),
                (0, _) if request.transits => format!("TargetPortalGroupTag=1\0{keys}"),
                _ => text.to_owned(),
            };
            self.send(connection, response.write(), text.into_bytes());
            if class != 0 {
                return;
            }
        }
    }

    /// The next PDU of the client.
    fn take(&mut self, connection: ConnectionId) -> Option<(Header, Vec<u8>)> {
        let inbox = &mut self.wires.get_mut(&connection)?.inbox;
        (!inbox.is_empty()).then(|| inbox.remove(0))
    }

    fn take_command(&mut self, connection: ConnectionId) -> (ScsiCommand, Vec<u8>) {
        let (header, data) = self.take(connection).expect("a command");
        assert_eq!(header.opcode(), Some(Opcode::ScsiCommand));
        let command = ScsiCommand::read(&header);
        self.expected_command = self.expected_command.max(command.command_number.wrapping_add(1));
        (command, data)
    }

    fn take_data(&mut self, connection: ConnectionId) -> (DataOut, Vec<u8>) {
        let (header, data) = self.take(connection).expect("data");
        assert_eq!(header.opcode(), Some(Opcode::DataOut));
        (DataOut::read(&header), data)
    }

    /// Sends a PDU of the target; its numbers are filled in.
    fn send(&mut self, connection: ConnectionId, header: Header, data: Vec<u8>) {
        let expected = self.expected_command;
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let mut bytes = *header.as_bytes();
        let has_status = match header.opcode() {
            Some(Opcode::DataIn) => DataIn::read(&header).has_status,
            Some(Opcode::ReadyToTransfer) => false,
            Some(Opcode::NopIn) => header.task_tag() != TAG_NONE,
            _ => true,
        };
        bytes[24..28].copy_from_slice(&wire.status.to_be_bytes());
        wire.status += u32::from(has_status);
        bytes[28..32].copy_from_slice(&expected.to_be_bytes());
        bytes[32..36].copy_from_slice(&(expected + WINDOW - 1).to_be_bytes());
        self.send_raw(connection, Header::from_bytes(bytes), data);
    }

    /// Sends a PDU as it is.
    fn send_raw(&mut self, connection: ConnectionId, header: Header, data: Vec<u8>) {
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        wire.outbox.push(header, Some(data.into()));
        let mut bytes = Vec::new();
        while let Some(packet) = wire.outbox.pop() {
            bytes.extend_from_slice(&packet.head);
            bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
        }
        self.send_bytes(connection, &bytes);
    }

    fn send_bytes(&mut self, connection: ConnectionId, mut bytes: &[u8]) {
        let mut pieces = self.pieces.clone().into_iter().cycle();
        while !bytes.is_empty() {
            let piece = pieces.next().unwrap_or(1).clamp(1, bytes.len());
            let mut taken = 0;
            for space in self.client.spaces(connection) {
                let count = space.len().min(piece - taken);
                space[..count].copy_from_slice(&bytes[taken..taken + count]);
                taken += count;
            }
            if taken == 0 {
                break;
            }
            bytes = &bytes[taken..];
            self.client.filled(connection, taken, self.now);
        }
        self.drain();
    }

    fn order(&mut self, order: Order) -> CommandId {
        let id = self.client.order(order, self.now).expect("room for a command");
        self.drain();
        id
    }

    fn read(&mut self, length: usize) -> CommandId {
        let frame = Frame::from(vec![0xee; length]);
        self.order(Order { data_in: Some(frame), ..order([0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]) })
    }

    fn write(&mut self, data: &[u8]) -> CommandId {
        self.order(Order { data_out: Some(Slice::from(data.to_vec())), ..order([0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]) })
    }

    fn data(&mut self, connection: ConnectionId, task_tag: u32, number: u32, offset: usize, data: &[u8]) {
        let header = DataIn {
            is_final: true,
            task_tag,
            transfer_tag: TAG_NONE,
            data_number: number,
            offset_bytes: offset as u32,
            ..DataIn::default()
        };
        self.send(connection, header.write(), data.to_vec());
    }

    fn status(&mut self, connection: ConnectionId, task_tag: u32, status: Status, data_count: u32) {
        let response = ScsiResponse {
            is_final: true,
            status: status as u8,
            task_tag,
            expected_data_number: data_count,
            ..ScsiResponse::default()
        };
        self.send(connection, response.write(), Vec::new());
    }

    fn ready(&mut self, connection: ConnectionId, task_tag: u32, number: u32, offset: u32, length: u32) {
        let ready = ReadyToTransfer {
            is_final: true,
            task_tag,
            transfer_tag: 100 + number,
            number,
            offset_bytes: offset,
            desired_bytes: length,
            ..ReadyToTransfer::default()
        };
        self.send(connection, ready.write(), Vec::new());
    }

    fn event(&mut self) -> ClientEvent {
        assert!(!self.events.is_empty(), "no event");
        self.events.remove(0)
    }

    /// The command has ended well, with this data.
    fn expect_data(&mut self, expected: CommandId) -> Vec<u8> {
        let event = self.event();
        let ClientEvent::Completed { id, status: Status::Good, data_in, data_in_bytes, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(id, expected);
        data_in.map_or(Vec::new(), |frame| frame[..data_in_bytes].to_vec())
    }
}

impl Wire {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.receiver.take(bytes);
            bytes = &bytes[taken..];
            loop {
                match self.receiver.poll() {
                    Step::Starving => break,
                    Step::Torn => panic!("the client sends a damaged stream"),
                    Step::Header(header) => {
                        self.receiver.place(Destination::Frame(Frame::from(vec![0; header.data_bytes()]), 0));
                    }
                    Step::Pdu(pdu) => {
                        assert!(pdu.is_intact);
                        let data = [&pdu.additional[..], pdu.data.as_deref().unwrap_or(&[])].concat();
                        self.inbox.push((pdu.header, data));
                    }
                }
            }
        }
    }

    fn set_digests(&mut self, digests: Digests) {
        self.receiver.set_digests(digests);
        self.outbox.set_digests(digests);
    }
}

fn order<const N: usize>(cdb: [u8; N]) -> Order {
    let cdb = Cdb::from(cdb);
    let is_repeatable = CommandSet::disk(Features::default()).is_repeatable(&cdb);
    Order { lun: Lun::new(3).unwrap(), cdb, is_repeatable, data_out: None, data_in: None }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}
