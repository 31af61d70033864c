//! A client of iSCSI and a target that keeps no rule: no panic, every command ends exactly once, every frame comes back,
//! no endless sending.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Region, Slice};
use sanwire_core::{Instant, Lun};
use sanwire_iscsi::wire::{HEADER_BYTES, Header, LoginRequest, LoginResponse, Opcode};
use sanwire_iscsi::{
    Client, ClientAction, ClientConfig, ClientEvent, ConnectionId, DesiredParameters, Failure, Isid, Order, Outbox,
};
use sanwire_scsi::Cdb;

/// What the callers' frames are made of.
const MEMORY_BYTES: usize = 1 << 20;

/// Longer than all times that the client takes together before it fails what was asked.
const SILENCE: Duration = Duration::from_secs(120);

/// Codes of the PDUs that a target sends, and some that it does not.
const CODES: [u8; 14] = [0x20, 0x21, 0x21, 0x22, 0x23, 0x24, 0x25, 0x25, 0x26, 0x31, 0x31, 0x32, 0x3f, 0x05];

struct World {
    client: Client,
    now: Instant,
    memory: Region,
    waiting: BTreeSet<u64>,
    given_up: bool,
    /// The target is away for too long: no command is taken before it is back.
    is_away: bool,
    /// Open connections, with the last header of the client on each.
    connections: BTreeMap<ConnectionId, Option<Header>>,
    opening: Vec<ConnectionId>,
    /// Headers that the client has sent: their tags are worth repeating.
    sent: Vec<Header>,
    status: u32,
}

impl World {
    fn drain(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Completed { id, data_in, data_in_bytes, .. } => {
                    assert!(self.waiting.remove(&id.number()), "{id:?} ends twice");
                    assert!(data_in_bytes <= data_in.map_or(0, |frame| frame.len()));
                }
                ClientEvent::Failed { id, .. } => assert!(self.waiting.remove(&id.number()), "{id:?} ends twice"),
                ClientEvent::GivenUp(_) => self.given_up = true,
                ClientEvent::OutOfPatience(_) => self.is_away = true,
                ClientEvent::Connected { .. } => self.is_away = false,
                _ => {}
            }
        }
        while let Some(action) = self.client.poll_action() {
            match action {
                ClientAction::Connect { connection, .. } => self.opening.push(connection),
                ClientAction::Close { connection } => {
                    self.connections.remove(&connection);
                    self.opening.retain(|&known| known != connection);
                }
            }
        }
        let mut packets = 0;
        while let Some(connection) = self.client.poll_ready() {
            while let Some(packet) = self.client.poll_transmit(connection) {
                packets += 1;
                assert!(packets < 20_000, "the client never stops sending");
                // Padding and digest of the one before stand in front; without digests a header is always the end.
                if let Some(bytes) = packet.head.last_chunk::<HEADER_BYTES>() {
                    let header = Header::from_bytes(*bytes);
                    self.connections.entry(connection).and_modify(|last| *last = Some(header));
                    self.sent.push(header);
                }
            }
        }
        let surplus = self.sent.len().saturating_sub(64);
        self.sent.drain(..surplus);
    }

    fn bytes(&mut self, connection: ConnectionId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut taken = 0;
            for space in self.client.spaces(connection) {
                let count = space.len().min(bytes.len() - taken);
                space[..count].copy_from_slice(&bytes[taken..taken + count]);
                taken += count;
            }
            if taken == 0 {
                return;
            }
            self.client.filled(connection, taken, self.now);
            bytes = &bytes[taken..];
        }
        self.drain();
    }

    fn pdu(&mut self, connection: ConnectionId, header: Header, data: Vec<u8>) {
        let mut outbox = Outbox::default();
        outbox.push(header, Some(data.into()));
        while let Some(packet) = outbox.pop() {
            let payload = packet.payload.map_or(Vec::new(), |payload| payload.to_vec());
            self.bytes(connection, &[&packet.head[..], &payload].concat());
        }
    }

    fn some_connection(&self, u: &mut Unstructured<'_>) -> Result<Option<ConnectionId>> {
        let known: Vec<ConnectionId> = self.connections.keys().copied().collect();
        if known.is_empty() { Ok(None) } else { u.choose(&known).copied().map(Some) }
    }

    /// Answers a login as an honest target would, mostly.
    fn log_in(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(connection) = self.some_connection(u)? else { return Ok(()) };
        for _ in 0..6 {
            let Some(Some(last)) = self.connections.get_mut(&connection).map(Option::take) else { return Ok(()) };
            if last.opcode() != Some(Opcode::LoginRequest) {
                return Ok(());
            }
            let request = LoginRequest::read(&last);
            let is_odd = u.ratio(1, 16)?;
            let response = LoginResponse {
                transits: request.transits,
                continues: is_odd && u.arbitrary()?,
                current_stage: request.current_stage,
                next_stage: request.next_stage,
                isid: request.isid,
                tsih: request.tsih.max(1),
                task_tag: request.task_tag,
                status_number: self.status,
                expected_command_number: request.command_number,
                max_command_number: request.command_number.wrapping_add(u.int_in_range(0..=20)?),
                status_class: if is_odd { u.int_in_range(0..=4)? } else { 0 },
                status_detail: if is_odd { u.int_in_range(0..=12)? } else { 0 },
                ..LoginResponse::default()
            };
            let text = match (is_odd, request.current_stage) {
                (true, _) => u.bytes(u.len().min(64))?.to_vec(),
                (false, 0) => b"AuthMethod=None\0".to_vec(),
                (false, _) => b"ErrorRecoveryLevel=2\0MaxConnections=3\0InitialR2T=No\0DefaultTime2Wait=0\0".to_vec(),
            };
            self.status = self.status.wrapping_add(1);
            self.pdu(connection, response.write(), text);
        }
        Ok(())
    }

    /// A PDU of a target whose fields mean something, mostly.
    fn plausible(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(connection) = self.some_connection(u)? else { return Ok(()) };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = *u.choose(&CODES)?;
        bytes[1] = u.arbitrary()?;
        if u.ratio(1, 4)? {
            u.fill_buffer(&mut bytes[2..4])?;
        }
        let tag = if self.sent.is_empty() || u.ratio(1, 8)? {
            *u.choose(&[u32::MAX, 0, 0x8000_0000, 1])?
        } else {
            u.choose(&self.sent)?.task_tag()
        };
        bytes[16..20].copy_from_slice(&tag.to_be_bytes());
        let transfer_tag = if u.arbitrary()? { u32::MAX } else { u.arbitrary()? };
        bytes[20..24].copy_from_slice(&transfer_tag.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.status.to_be_bytes());
        self.status = self.status.wrapping_add(u32::from(u.ratio(7, 8)?));
        bytes[28..32].copy_from_slice(&u32::from(u.arbitrary::<u8>()?).to_be_bytes());
        bytes[32..36].copy_from_slice(&u32::from(u.arbitrary::<u8>()?).to_be_bytes());
        for at in [36, 40, 44] {
            let number = match u.int_in_range(0..=3u8)? {
                0 => 0,
                1 | 2 => u32::from(u.arbitrary::<u16>()? % 5000),
                _ => u.arbitrary()?,
            };
            bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        let data = match u.int_in_range(0..=3u8)? {
            0 | 1 => Vec::new(),
            2 => vec![u.arbitrary()?; usize::from(u.arbitrary::<u16>()? % 6000)],
            _ if self.sent.is_empty() => vec![0; 48],
            _ => u.choose(&self.sent)?.as_bytes().to_vec(),
        };
        self.pdu(connection, Header::from_bytes(bytes), data);
        Ok(())
    }

    fn order(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let data_in = if u.arbitrary()? { self.memory.frame(1 + usize::from(u.arbitrary::<u16>()?)) } else { None };
        let data_out = u.arbitrary::<bool>()?.then(|| Slice::from(vec![7; 3000]));
        let data_out = if u.ratio(1, 8)? { Some(Slice::from(vec![8; 200_000])) } else { data_out };
        let cdb = if u.arbitrary()? { Cdb::from([0x28; 10]) } else { Cdb::from([0x89; 32]) };
        let lun = Lun::new(u.int_in_range(0..=1)?).unwrap_or_default();
        let order = Order { lun, cdb, is_repeatable: u.arbitrary()?, data_out, data_in };
        if let Ok(id) = self.client.order(order, self.now) {
            assert!(!self.given_up && !self.is_away && self.waiting.insert(id.number()));
        }
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=15u8)? {
            0 => {
                if let Some(connection) = self.some_connection(u)? {
                    let length = u.int_in_range(0..=100usize)?;
                    let bytes = u.bytes(length.min(u.len()))?;
                    self.bytes(connection, bytes);
                }
            }
            1 => {
                self.now += Duration::from_micros(100 << u.int_in_range(0..=16u32)?);
                self.client.handle_timeout(self.now);
            }
            2 => {
                if let Some(connection) = self.some_connection(u)? {
                    self.connections.remove(&connection);
                    self.client.connection_lost(connection, self.now);
                }
            }
            3 => match u.int_in_range(0..=3u8)? {
                0 => self.client.hold_after_restart(),
                1 => self.client.release(),
                2 => self.client.abandon(Lun::default(), Failure::InDoubt),
                _ => self.client.discover(self.now),
            },
            4 | 5 => self.order(u)?,
            6..=8 => {
                while let Some(connection) = self.opening.pop() {
                    self.connections.insert(connection, None);
                    self.client.connected(connection, self.now);
                    self.drain();
                }
                self.log_in(u)?;
            }
            _ => self.plausible(u)?,
        }
        self.drain();
        Ok(())
    }

    /// The target falls silent, or the client leaves: either ends all that was asked. A silent target is sought until the client leaves.
    fn end(&mut self, leaves: bool) {
        if !leaves {
            let until = self.now + SILENCE;
            self.pass_time(until);
            assert!(self.waiting.is_empty(), "never ended: {:?}", self.waiting);
        }
        self.client.disconnect(self.now);
        let until = self.now + SILENCE;
        self.pass_time(until);
        assert!(self.client.poll_timeout().is_none(), "it never ends");
        assert!(self.waiting.is_empty(), "never ended: {:?}", self.waiting);
        assert_eq!(self.memory.free_bytes(), self.memory.length_bytes(), "a frame is lost");
        assert_eq!(self.client.in_transit(), 0);
    }
}

impl World {
    /// Nothing comes from the target until then.
    fn pass_time(&mut self, until: Instant) {
        self.drain();
        for _ in 0..1000 {
            let Some(at) = self.client.poll_timeout().filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.drain();
        }
    }
}

fn run(input: &[u8]) -> Result<()> {
    let mut u = Unstructured::new(input);
    let wishes = DesiredParameters {
        digests: false,
        error_recovery_level: u.int_in_range(0..=2)?,
        connections: u.int_in_range(1..=3)?,
    };
    let name = |name: &str| name.parse().expect("a name");
    let config = ClientConfig {
        initiator: name("iqn.2026-11.org.sanwire:fuzz"),
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        target: if u.ratio(7, 8)? { Some(name("iqn.2026-11.org.sanwire:disk")) } else { None },
        portals: (1..=2).map(|host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 3260))).collect(),
        credential: None,
        target_credential: None,
        wishes,
        commands_max: 8,
        connect_patience: Duration::from_secs(10),
        reconnect_patience: Some(Duration::from_secs(10)),
        command_patience: Some(Duration::from_secs(10)),
        seed: [3; 32],
    };
    let mut world = World {
        client: Client::new(config, Instant::ZERO),
        now: Instant::ZERO,
        memory: Region::new(MEMORY_BYTES).expect("memory"),
        waiting: BTreeSet::new(),
        given_up: false,
        is_away: false,
        connections: BTreeMap::new(),
        opening: Vec::new(),
        sent: Vec::new(),
        status: 1,
    };
    world.drain();
    let leaves = u.arbitrary()?;
    for _ in 0..300 {
        if u.is_empty() {
            break;
        }
        if world.step(&mut u).is_err() {
            break;
        }
    }
    world.end(leaves);
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
