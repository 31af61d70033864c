//! An initiator at a whole target: logged in, with RDMA of its own by which it says and does whatever a test wants.

use sanwire_buffer::Frame;
use sanwire_core::Instant;
use sanwire_iscsi::ConnectionId;
use sanwire_iscsi::wire::{HEADER_BYTES, Header, LoginRequest, LoginResponse, ScsiCommand};
use sanwire_iser::wire::{HeaderForm, IserHeader, SetUp, Window};
use sanwire_iwarp::{Config, Connection, Event, Order, SendKind, Stag};

use super::host::{End, Host};
use super::world::name;

/// What Linux says when it connects.
pub const NORMAL: SetUp = SetUp { has_addresses: true, lacks_invalidation: false };

/// Its first connection.
pub const ID: ConnectionId = ConnectionId(1);

pub fn command(task_tag: u32, expected_bytes: u32, is_read: bool) -> ScsiCommand {
    ScsiCommand { is_final: true, is_read, is_write: !is_read, task_tag, expected_bytes, ..ScsiCommand::default() }
}

/// READ or WRITE of so many blocks, from the first one on.
pub fn of_blocks(number: u32, blocks: u8, is_read: bool) -> ScsiCommand {
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (if is_read { 0x28 } else { 0x2a }, blocks);
    ScsiCommand { command_number: number, cdb, ..command(number, u32::from(blocks) * 512, is_read) }
}

pub fn opened(read: Option<Window>, write: Option<Window>) -> IserHeader {
    IserHeader::Control { write, read }
}

pub fn window(stag: Stag) -> Window {
    Window { stag, offset: 0 }
}

/// A PDU as it stands in a message behind headers of this form.
pub fn message_as(form: HeaderForm, control: IserHeader, mut header: Header, data: &[u8]) -> Vec<u8> {
    header.set_data_bytes(data.len());
    let first = match form {
        HeaderForm::Rfc7145 => control.write().to_vec(),
        HeaderForm::Rfc5046 => control.write_short().to_vec(),
    };
    [&first[..], header.as_bytes(), data].concat()
}

/// One connection, at the initiator's end of it.
pub struct Line {
    pub id: ConnectionId,
    pub form: HeaderForm,
    pub rdma: Connection,
    pub told: Vec<Event>,
    /// The keys that the target has said when this end has logged in.
    pub said: Vec<String>,
}

impl Line {
    /// One that opens.
    pub fn open(id: ConnectionId, form: HeaderForm, config: Config, host: &mut Host, now: Instant) -> Line {
        let config = Config { seed: [id.0 as u8 + 3; 16], ..config };
        let mut rdma = Connection::initiator(config, &NORMAL.write()).unwrap();
        (0..500).for_each(|_| rdma.post_receive(vec![0; 9000].into()).unwrap());
        let mut line = Line { id, form, rdma, told: Vec::new(), said: Vec::new() };
        host.open(id, true, now);
        line.pass(host, now);
        line
    }

    /// Logs in: as a connection of the session of this number, or a new one. Gives the session's number.
    pub fn log_in(&mut self, tsih: u16, key: &str, host: &mut Host, now: Instant) -> u16 {
        let keys = format!(
            "InitiatorName=iqn.2026-11.org.raw:x\0TargetName={}\0SessionType=Normal\0RDMAExtensions=Yes\0{key}\0ImmediateData=Yes\0",
            name()
        );
        let login = LoginRequest {
            is_immediate: true,
            transits: true,
            current_stage: 1,
            next_stage: 3,
            isid: [0x80, 0, 0, 0, 0, 9],
            tsih,
            connection: self.id.0 as u16,
            command_number: 1,
            ..LoginRequest::default()
        };
        self.say(message_as(self.form, IserHeader::PLAIN, login.write(), keys.as_bytes()), host, now);
        let answer = self.answers().pop().expect("an answer");
        let text = String::from_utf8_lossy(&answer[self.form.length_bytes() + HEADER_BYTES..]);
        self.said = text.split_terminator('\0').map(str::to_owned).collect();
        let answer = LoginResponse::read(&self.header_of(&answer));
        assert!(answer.transits && answer.status_class == 0, "{answer:?}");
        assert!(matches!(host.ends[&self.id], End::Admitted));
        answer.tsih
    }

    /// What this end has to send arrives, as far as the target takes it.
    pub fn send(&mut self, host: &mut Host, now: Instant) -> bool {
        let bytes: Vec<u8> =
            std::iter::from_fn(|| self.rdma.poll_transmit()).flat_map(|packet| packet.to_vec()).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let taken = host.feed(self.id, rest, now);
            rest = &rest[taken..];
            if taken == 0 {
                break;
            }
        }
        !bytes.is_empty()
    }

    /// What the target has sent arrives.
    pub fn receive(&mut self, host: &mut Host) -> bool {
        let bytes: Vec<u8> = host.output.get_mut(&self.id).map(|output| output.drain(..).collect()).unwrap_or_default();
        self.rdma.take(&bytes);
        self.told.extend(std::iter::from_fn(|| self.rdma.poll_event()));
        !bytes.is_empty()
    }

    /// Until nothing moves any more.
    pub fn pass(&mut self, host: &mut Host, now: Instant) {
        while self.send(host, now) | self.receive(host) {}
    }

    pub fn order(&mut self, bytes: Vec<u8>) {
        let order = Order::Send { kind: SendKind::default(), head: bytes.into(), data: None };
        self.rdma.order(order, None).expect("room");
    }

    pub fn say(&mut self, bytes: Vec<u8>, host: &mut Host, now: Instant) {
        self.order(bytes);
        self.pass(host, now);
    }

    /// The messages that have come.
    pub fn answers(&mut self) -> Vec<Frame> {
        let messages = self.told.drain(..).filter_map(|event| match event {
            Event::Message(message) => Some(message.buffer),
            _ => None,
        });
        messages.collect()
    }

    /// The header of the PDU in a message.
    pub fn header_of(&self, message: &[u8]) -> Header {
        Header::from_bytes(*message[self.form.length_bytes()..].first_chunk().expect("a PDU"))
    }
}

/// An initiator with one connection.
pub struct Raw {
    pub host: Host,
    pub line: Line,
    pub now: Instant,
}

impl Raw {
    pub fn logged_in() -> Raw {
        Raw::logged_in_with("InitialR2T=Yes")
    }

    pub fn logged_in_with(key: &str) -> Raw {
        Raw::logged_in_as(HeaderForm::Rfc7145, Config::default(), key)
    }

    pub fn logged_in_as(form: HeaderForm, config: Config, key: &str) -> Raw {
        let (mut host, now) = (Host::new(), Instant::from_nanos(1));
        let mut line = Line::open(ID, form, config, &mut host, now);
        line.log_in(0, key, &mut host, now);
        Raw { host, line, now }
    }

    pub fn pass(&mut self) {
        self.line.pass(&mut self.host, self.now);
    }

    pub fn say(&mut self, bytes: Vec<u8>) {
        self.line.say(bytes, &mut self.host, self.now);
    }

    pub fn answers(&mut self) -> Vec<Frame> {
        self.line.answers()
    }

    pub fn write(&mut self, number: u32, window: Window) {
        let control = opened(None, Some(window));
        self.say(message_as(self.line.form, control, of_blocks(number, 16, false).write(), &[]));
    }
}
