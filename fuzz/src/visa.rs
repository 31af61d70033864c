//! Ends of VISA that break the rules but know the keys.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sanwire_buffer::{Packet, Region};
use sanwire_core::{ClientId, Instant, LinkId, Lun, Path, Peer, Protection};
use sanwire_exchange::{Answer, Ask, Function, ReplyHead, RequestHead, UnitTerms};
use sanwire_scsi::{Cdb, Status};
use sanwire_security::ring::KeyRing;
use sanwire_visa::wire::flow::{Ack, Ping, write_nak, write_waiting};
use sanwire_visa::wire::message::Prologue;
use sanwire_visa::wire::{Guarding, Header, Kind};
use sanwire_visa::{Client, ClientConfig, Doorkeeper, Identity, LinkLimits, Server, ServerConfig, Wishes};

/// The password of both ends.
pub const PSK: [u8; 32] = [9; 32];

/// How packets with data are guarded.
pub const PROTECTION: Protection = Protection::Hash;

/// The host with this number.
#[must_use]
pub fn path(host: u8) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(([10, 0, 0, host], 5675).into()) }
}

/// The key of a client, or of the server with number 0.
///
/// # Panics
/// Never: any bytes are a key.
#[must_use]
pub fn identity(number: u8) -> Identity {
    Identity::from_private([number + 1; 32]).expect("a key")
}

/// The bytes of a packet.
#[must_use]
pub fn bytes(packet: &Packet) -> Vec<u8> {
    packet.to_vec()
}

struct Door;

impl Doorkeeper for Door {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }
}

fn links() -> Vec<LinkLimits> {
    vec![LinkLimits { packet_max_bytes: 1472, window_packets: 64, is_stream: false }]
}

fn wishes(classic: bool) -> Wishes {
    Wishes { classic, allows_classic: true, allows_unchecked: true, ..Wishes::default() }
}

/// A server with little memory.
#[must_use]
pub fn server(memory: Region, classic: bool) -> Server {
    Server::new(ServerConfig {
        name: "vault".into(),
        identity: identity(0),
        psk: PSK,
        doorkeeper: Box::new(Door),
        levels: Box::new(|lun| lun.map_or(Protection::Checksum, |_| PROTECTION)),
        wishes: wishes(classic),
        memory,
        links: links(),
        shard: 0,
        shards: 1,
        instance: 1,
        nexus_base: 0,
        keep_alive: Duration::from_secs(1),
        session_idle_max: Duration::from_secs(10),
        commands_max: 8,
        transfer_max_bytes: 64 << 10,
        seed: [3; 32],
    })
}

/// A client of it.
#[must_use]
pub fn client(now: Instant) -> Client {
    let config = ClientConfig {
        identity: identity(1),
        psk: PSK,
        server_key: None,
        places: vec![path(0)],
        server_name: String::new(),
        links: links(),
        wishes: wishes(false),
        commands_max: 32,
        protection_min: Protection::Checksum,
        connect_patience: Duration::from_secs(20),
        reconnect_patience: Some(Duration::from_secs(20)),
        seed: [4; 32],
    };
    Client::new(config, now)
}

/// Who knows the keys of a connection.
pub struct Impostor {
    /// The keys.
    pub ring: KeyRing,
    connection: u32,
    from_device: bool,
    control: u32,
    sequence: u32,
    /// Where the message goes on that was begun.
    offset: u32,
}

impl Impostor {
    /// With these keys.
    #[must_use]
    pub fn new(ring: KeyRing, connection: u32, from_device: bool) -> Self {
        Impostor { ring, connection, from_device, control: 0, sequence: 0, offset: 0 }
    }

    /// A sealed packet that is no data.
    ///
    /// # Panics
    /// When the library refuses.
    pub fn control(&mut self, kind: Kind, body: &[u8]) -> Vec<u8> {
        let single = Header::single(kind, self.from_device, self.connection);
        let header = Header { sequence: self.control, payload_bytes: body.len() as u16, ..single }.write(0);
        let number = 1 << 63 | u64::from(self.control);
        self.control += 1;
        let (mut body, mut tag) = (body.to_vec(), [0; 16]);
        self.ring.seal(Protection::STRONGEST, number, &header, &mut body, &[], &mut tag).expect("sealed");
        [&header[..], &body, &tag].concat()
    }

    /// One of any kind.
    ///
    /// # Errors
    /// When there is nothing left to draw from.
    pub fn any_control(&mut self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let (kind, body) = match u.int_in_range(0..=7)? {
            0 | 1 => {
                let (next, newest) = (u.int_in_range(0..=30)?, u.int_in_range(0..=30)?);
                let map_bytes = u.int_in_range(0..=4)?.min(u.len());
                let map = u.bytes(map_bytes)?.to_vec();
                (Kind::Ack, Ack { next, newest, delay_us: u.arbitrary()?, room_packets: u.arbitrary()?, map }.write())
            }
            2 => (Kind::Nak, write_nak(u.int_in_range(0..=30)?)),
            3 => (Kind::Ping, Ping { is_answer: u.arbitrary()?, nonce: u.arbitrary()? }.write()),
            4 => (Kind::Close, vec![u.int_in_range(0..=2)?]),
            5 => (Kind::Agree, write_waiting(&[u.int_in_range(0..=9)?, u.int_in_range(5..=20)?])),
            _ => {
                let kind = *u.choose(&[Kind::Ack, Kind::Nak, Kind::Ping, Kind::Close, Kind::Agree])?;
                (kind, u.bytes(u.len().min(20))?.to_vec())
            }
        };
        Ok(self.control(kind, &body))
    }

    fn request(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let number = u.int_in_range(0..=40)?;
        let cdb = [*u.choose(&[0x28, 0x2a, 0x35])?, 0, 0, 0, 0, u.int_in_range(0..=20)?, 0, 0, 1, 0];
        let ask = match u.int_in_range(0..=7)? {
            0 => Ask::Manage { function: Function::AbortTask, task: u.int_in_range(0..=40)? },
            1 => Ask::Manage { function: Function::LogicalUnitReset, task: 0 },
            2 => Ask::Administer,
            _ => Ask::Command(Cdb::new(&cdb).ok_or(arbitrary::Error::IncorrectFormat)?),
        };
        let settled_below = u.int_in_range(0..=number)?;
        let (receipts, lun) = (u.int_in_range(0..=9)?, Lun::default().to_wire());
        let data_in_max_bytes = u.int_in_range(0..=100_000)?;
        Ok(RequestHead { number, settled_below, receipts, lun, data_in_max_bytes, ask }.write().to_vec())
    }

    fn reply(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let answer = match u.int_in_range(0..=5)? {
            0 => None,
            1 => Some(Answer::Managed { done: u.arbitrary()? }),
            2 => Some(Answer::Administered),
            _ => Some(Answer::Command { status: Status::Good, sense: vec![0x70; u.int_in_range(0..=20)?] }),
        };
        let protection = *u.choose(&Protection::ALL)?;
        let unit = UnitTerms { protection, is_compressible: u.arbitrary()? };
        let (number, receipt) = (u.int_in_range(0..=20)?, u.int_in_range(0..=9)?);
        Ok(ReplyHead { number, unit, receipt, answer }.write().to_vec())
    }

    /// A packet with data, mostly the next one.
    ///
    /// # Errors
    /// When there is nothing left to draw from.
    ///
    /// # Panics
    /// When the library refuses.
    pub fn any_data(&mut self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let [mut first, last, ack_now] = u.arbitrary()?;
        first |= self.offset == 0 && u.ratio(7, 8)?;
        let data_bytes: u32 = *u.choose(&[0, 1, 512, 1024, 3000])?;
        let mut payload = Vec::new();
        if first {
            let head = if self.from_device { Self::reply(u)? } else { Self::request(u)? };
            payload.extend_from_slice(&Prologue { head_bytes: head.len() as u16, data_bytes }.write());
            payload.extend_from_slice(&head);
        }
        let here = if last && u.ratio(7, 8)? { data_bytes } else { u.int_in_range(0..=1000)? };
        payload.resize(payload.len() + (here as usize).min(1400), 0x35);
        let offset = if first { 0 } else { self.offset };
        if u.ratio(1, 16)? {
            self.sequence = u.int_in_range(0..=100)?;
        }
        let header = Header {
            first,
            last,
            ack_now,
            guarding: Guarding::By(PROTECTION),
            tag: u.int_in_range(0..=70)?,
            payload_bytes: payload.len() as u16,
            sequence: self.sequence,
            offset,
            ..Header::single(Kind::Data, self.from_device, self.connection)
        };
        self.offset = if last { 0 } else { offset + payload.len() as u32 };
        self.sequence += 1;
        let mut packet = [&header.write(0)[..], &payload].concat();
        let tag = self.ring.hash(header.sequence.into(), &packet).expect("sealed");
        packet.extend_from_slice(&tag);
        Ok(packet)
    }
}
