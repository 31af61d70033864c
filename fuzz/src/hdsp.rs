//! Ends of HDSP that break the rules but know the keys.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sanwire_buffer::{Packet, Region};
use sanwire_core::{ClientId, Instant, LinkId, MacAddress, Path, Peer, Protection};
use sanwire_hdsp::wire::flow::{Ack, Flow};
use sanwire_hdsp::wire::live::Live;
use sanwire_hdsp::wire::pdu::{Fields, Flags, Scsi};
use sanwire_hdsp::wire::{Class, DiskType, Header, PacketType, Pcu, Pdu, Register};
use sanwire_hdsp::{Client, ClientConfig, Directory, Disk, LinkLimits, Server, ServerConfig, Wanted};
use sanwire_security::keys::Identity;
use sanwire_security::ring::KeyRing;

/// The password of both ends.
pub const PSK: [u8; 32] = [9; 32];

/// How packets with data are guarded.
pub const PROTECTION: Protection = Protection::Hash;

/// The station with this number.
#[must_use]
pub fn path(station: u8) -> Path {
    Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, station])) }
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

struct Door(DiskType);

impl Directory for Door {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn disk(&self, _: ClientId, _: Peer, _: Wanted<'_>, _: DiskType) -> Option<Disk> {
        Some(Disk { address: 3, volume: [7; 16], disk_type: self.0, protection: PROTECTION })
    }
}

fn links() -> Vec<LinkLimits> {
    vec![LinkLimits { packet_max_bytes: 1500, window_packets: 64 }]
}

/// A server with little memory.
#[must_use]
pub fn server(memory: Region, disk_type: DiskType) -> Server {
    Server::new(ServerConfig {
        name: "vault".into(),
        identity: identity(0),
        psk: PSK,
        instance: [1; 16],
        links: links(),
        group_packets: 8,
        write_room_bytes: 64 << 10,
        transfer_max_bytes: 64 << 10,
        keep_alive: Duration::from_secs(1),
        linger: Duration::from_secs(10),
        sessions_max: 4,
        sessions_of_client_max: 2,
        batch_packets: 8,
        shard: 0,
        shards: 1,
        nexus_base: 0,
        memory,
        directory: Box::new(Door(disk_type)),
        seed: [3; 32],
    })
}

/// A client of it.
#[must_use]
pub fn client(now: Instant) -> Client {
    let config = ClientConfig {
        identity: identity(1),
        psk: PSK,
        server_name: String::new(),
        server_key: None,
        volume: "v".into(),
        disk_address: 0,
        disk_type: DiskType::Any,
        protection: Protection::Checksum,
        links: links(),
        places: vec![path(0)],
        group_packets: 8,
        patience: Duration::from_secs(20),
        seed: [4; 32],
    };
    Client::new(config, now)
}

/// Who knows the keys of a connection.
pub struct Impostor {
    /// The keys.
    pub ring: KeyRing,
    /// Of all that he sends.
    pub header: Header,
    number: u32,
    group: u32,
    serial: u16,
}

impl Impostor {
    /// With these keys.
    #[must_use]
    pub fn new(ring: KeyRing, header: Header) -> Self {
        Impostor { ring, header, number: 0, group: 0, serial: 0 }
    }

    /// A sealed control packet.
    ///
    /// # Panics
    /// When the library refuses.
    pub fn control(&mut self, class: Class, operation: &[u8]) -> Vec<u8> {
        let header = Header { packet_type: PacketType::Pcu, ..self.header };
        let pcu = Pcu { header, class, is_sealed: true, number: self.number };
        self.number += 1;
        let (head, mut body, mut tag) = (pcu.write(operation.len()), operation.to_vec(), [0; 16]);
        self.ring.seal(Protection::STRONGEST, pcu.nonce(), &head, &mut body, &[], &mut tag).expect("sealed");
        [&head[..], &body, &tag].concat()
    }

    /// A control packet of any kind.
    ///
    /// # Errors
    /// When there is nothing left to draw from.
    pub fn any_control(&mut self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let place = |u: &mut Unstructured<'_>| Ok((u.int_in_range(0..=20)?, u.int_in_range(0..=255)?));
        let (class, operation) = match u.int_in_range(0..=6)? {
            0 | 1 => {
                let (next, newest) = (place(u)?, place(u)?);
                let ack = Ack { next, newest, delay_us: u.arbitrary()?, room_packets: u.arbitrary()? };
                (Class::Flow, Flow::Ack(ack).write())
            }
            2 => {
                let first = u.int_in_range(0..=255)?;
                let ranges = vec![(first, u.int_in_range(first..=255)?)];
                (Class::Flow, Flow::Nack { group: u.int_in_range(0..=20)?, ranges }.write())
            }
            3 => {
                let (window_packets, group_packets) = (u.int_in_range(1..=u32::MAX)?, u.int_in_range(1..=256)?);
                let rate_bytes_per_second = u.arbitrary()?;
                (Class::Flow, Flow::Change { window_packets, group_packets, rate_bytes_per_second }.write())
            }
            4 => {
                let query = Live::Query(place(u)?);
                (query.class(), query.write())
            }
            _ => {
                let class =
                    *u.choose(&[Class::Discovery, Class::Connection, Class::Flow, Class::Query, Class::KeepAlive])?;
                (class, [&[u.int_in_range(0..=9)?], u.bytes(u.len().min(20))?].concat())
            }
        };
        Ok(self.control(class, &operation))
    }

    /// A packet with data, mostly the next one.
    ///
    /// # Errors
    /// When there is nothing left to draw from.
    ///
    /// # Panics
    /// When the library refuses.
    pub fn any_data(&mut self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let [write, sync, first, last, group_end, ack_now] = u.arbitrary()?;
        let flags = Flags { write, sync, first, last, group_end, ack_now };
        let is_long = u.arbitrary()?;
        let lba = if u.ratio(7, 8)? { u.int_in_range(0..=64)? } else { u.int_in_range(0..=0xff_ffff)? };
        let fields = match self.header.disk_type {
            DiskType::Scsi => Fields::Scsi(Scsi {
                before_bytes: *u.choose(&[0, 6, 10, 255])?,
                status: u.arbitrary()?,
                length_bytes: *u.choose(&[0, 1, 512, 1024])?,
                offset_bytes: u.int_in_range(0..=4)? * 512,
            }),
            _ => Fields::Ata(Register {
                feature: u.int_in_range(0..=3)?,
                count: u.int_in_range(0..=2)?,
                code: *u.choose(&[0x35, 0xca, 0x25, 0xc8, 0xea, 0x50, 0x58, 0x48, 0x51])?,
                lba,
                is_long,
            }),
        };
        if u.ratio(1, 16)? {
            (self.group, self.serial) = (u.int_in_range(0..=100)?, u.int_in_range(0..=255)?);
        }
        let header = Header { packet_type: PacketType::Pdu, ..self.header };
        let command = u.int_in_range(0..=300)?;
        let pdu = Pdu { header, flags, fields, command, group: self.group, serial: self.serial };
        (self.group, self.serial) =
            if group_end || self.serial == 255 { (self.group + 1, 0) } else { (self.group, self.serial + 1) };
        let body = pdu.body();
        let mut packet = pdu.write().to_vec();
        packet.resize(packet.len() + body.before_bytes + body.data_bytes, 0x35);
        let tag = self.ring.hash(pdu.number(), &packet).expect("sealed");
        packet.extend_from_slice(&tag);
        Ok(packet)
    }
}
