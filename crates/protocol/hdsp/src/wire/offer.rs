//! What the ends say in the sealed parts of a handshake: the negotiation of W, N, and the size of packets.
//!
//! ```text
//! server's offer   2 bytes largest packet of its link, 4 bytes W (packets that it can take), 2 bytes N,
//!                  4 bytes data of writes that it holds for a session, 4 bytes largest transfer,
//!                  4 bytes keep-alive in milliseconds, 16 bytes instance, text name
//! client's offer   2 bytes largest packet of its link, 4 bytes W, 2 bytes N, 1 byte least protection, 1 byte disk type (0: any),
//!                  1 byte disk address, text volume (empty: the disk with this address), 2 bytes number of the oldest command that
//!                  is not answered, 2 bytes number of the next command, 32 bytes: of those between a bit each, set for those that are
//!                  not answered, the oldest first and in the highest bit
//! agreement        1 byte operation code (4), 1 byte disk type, 1 byte disk address, 1 byte protection, 4 bytes W, 2 bytes N,
//!                  2 bytes data of each packet, 1 byte: 1 if the server knows the session, 16 bytes: which volume the disk is
//! ```

use sanwire_core::Protection;

use super::connection::ACCEPTED;
use super::discovery::Instance;
use super::{DiskType, Malformed, NAME_MAX_BYTES, Reader, put_text};

/// Commands of a session that may be without answer: from the oldest such one on, so many numbers are in use.
pub const COMMANDS_MAX: u16 = 256;

/// A bit for each of them.
const BITMAP_BYTES: usize = COMMANDS_MAX as usize / 8;

/// Which volume a disk is: no two have the same, whatever their addresses.
pub type VolumeId = [u8; 16];

/// What an end can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The largest packet of its link, in bytes.
    pub packet_max_bytes: u16,
    /// W: packets that it takes before it has acknowledged any.
    pub window_packets: u32,
    /// N: packets of a group, at the most.
    pub group_packets: u16,
}

/// What a server says in its challenge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOffer {
    /// What it can take.
    pub terms: Terms,
    /// Data of writes that are not answered, at the most, in bytes.
    pub write_room_bytes: u32,
    /// Data of a command, at the most, in bytes.
    pub transfer_max_bytes: u32,
    /// Who is silent for so long is asked whether it is there.
    pub keep_alive_ms: u32,
    /// Which run of the server.
    pub instance: Instance,
    /// Its name.
    pub name: String,
}

/// Which commands a client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// The oldest.
    pub oldest: u16,
    /// The next one that it is going to give.
    pub next: u16,
    bitmap: [u8; BITMAP_BYTES],
}

/// What a client says in its proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientOffer {
    /// What it can take.
    pub terms: Terms,
    /// How its packets are to be guarded at least.
    pub protection: Protection,
    /// Which commands it is going to give.
    pub disk_type: DiskType,
    /// The disk, where `volume` is empty.
    pub disk_address: u8,
    /// The disk by its name.
    pub volume: String,
    /// What it waits for.
    pub waiting: Waiting,
}

/// What a server answers when it has accepted a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// Which commands the disk takes.
    pub disk_type: DiskType,
    /// By which it is named in packets.
    pub disk_address: u8,
    /// How packets with data are guarded.
    pub protection: Protection,
    /// W: packets under way, at the most, either way.
    pub window_packets: u32,
    /// N to begin with.
    pub group_packets: u16,
    /// Data of a packet, at the most: a multiple of a sector, and of 4 KiB where that fits.
    pub data_bytes: u16,
    /// Whether the server remembers what it has answered this session.
    pub is_known: bool,
    /// Which volume the disk is.
    pub volume: VolumeId,
}

impl Waiting {
    /// For these commands, of which none is older than `oldest`, and the next number.
    #[must_use]
    pub fn new(oldest: u16, next: u16, commands: impl Iterator<Item = u16>) -> Self {
        let mut bitmap = [0; BITMAP_BYTES];
        for place in commands.map(|command| usize::from(command.wrapping_sub(oldest))) {
            if let Some(byte) = bitmap.get_mut(place / 8) {
                *byte |= 0x80 >> (place % 8);
            }
        }
        Waiting { oldest, next, bitmap }
    }

    /// Whether the client has the answer to this command, which it gave.
    #[must_use]
    pub fn is_settled(&self, command: u16) -> bool {
        let is_before = |number: u16| (command.wrapping_sub(number) as i16) < 0;
        let place = usize::from(command.wrapping_sub(self.oldest));
        is_before(self.oldest)
            || is_before(self.next) && self.bitmap.get(place / 8).is_some_and(|byte| byte & 0x80 >> (place % 8) == 0)
    }
}

/// The least that an end may take in one packet: whatever the disk, a sector fits into that, with all that may stand before it.
pub const PACKET_MIN_BYTES: u16 = 1024;

impl Terms {
    fn read(reader: &mut Reader<'_>) -> Result<Terms, Malformed> {
        let terms =
            Terms { packet_max_bytes: reader.u16()?, window_packets: reader.u32()?, group_packets: reader.u16()? };
        let is_possible =
            terms.window_packets > 0 && (1..=super::pdu::GROUP_PACKETS_MAX).contains(&terms.group_packets);
        if !is_possible {
            return Err(Malformed::Field("W or N"));
        }
        if terms.packet_max_bytes < PACKET_MIN_BYTES {
            return Err(Malformed::Field("packet size"));
        }
        Ok(terms)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.packet_max_bytes.to_be_bytes());
        out.extend_from_slice(&self.window_packets.to_be_bytes());
        out.extend_from_slice(&self.group_packets.to_be_bytes());
    }
}

impl ServerOffer {
    /// Reads it.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let offer = ServerOffer {
            terms: Terms::read(&mut reader)?,
            write_room_bytes: reader.u32()?,
            transfer_max_bytes: reader.u32()?,
            keep_alive_ms: reader.u32()?,
            instance: reader.array()?,
            name: reader.text("name", NAME_MAX_BYTES)?.to_owned(),
        };
        reader.end().map(|()| offer).map_err(Into::into)
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.terms.put(&mut out);
        for number in [self.write_room_bytes, self.transfer_max_bytes, self.keep_alive_ms] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.instance);
        put_text(&mut out, &self.name, NAME_MAX_BYTES);
        out
    }
}

impl ClientOffer {
    /// Reads it.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let offer = ClientOffer {
            terms: Terms::read(&mut reader)?,
            protection: protection(&mut reader)?,
            disk_type: DiskType::from_code(reader.u8()?).ok_or(Malformed::Field("disk type"))?,
            disk_address: reader.u8()?,
            volume: reader.text("volume", NAME_MAX_BYTES)?.to_owned(),
            waiting: Waiting { oldest: reader.u16()?, next: reader.u16()?, bitmap: reader.array()? },
        };
        reader.end().map(|()| offer).map_err(Into::into)
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.terms.put(&mut out);
        out.extend_from_slice(&[self.protection as u8, self.disk_type as u8, self.disk_address]);
        put_text(&mut out, &self.volume, NAME_MAX_BYTES);
        out.extend_from_slice(&self.waiting.oldest.to_be_bytes());
        out.extend_from_slice(&self.waiting.next.to_be_bytes());
        out.extend_from_slice(&self.waiting.bitmap);
        out
    }
}

impl Agreement {
    /// Reads it, with its operation code.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(operation: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(operation);
        if reader.u8()? != ACCEPTED {
            return Err(Malformed::Field("Operation Code"));
        }
        let agreement = Agreement {
            disk_type: DiskType::from_code(reader.u8()?).ok_or(Malformed::Field("disk type"))?,
            disk_address: reader.u8()?,
            protection: protection(&mut reader)?,
            window_packets: reader.u32()?,
            group_packets: reader.u16()?,
            data_bytes: reader.u16()?,
            is_known: match reader.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed::Field("session")),
            },
            volume: reader.array()?,
        };
        reader.end()?;
        let is_possible = agreement.disk_type != DiskType::Any
            && agreement.window_packets > 0
            && (1..=super::pdu::GROUP_PACKETS_MAX).contains(&agreement.group_packets)
            && agreement.data_bytes > 0
            && usize::from(agreement.data_bytes) % super::pdu::SECTOR_BYTES == 0;
        if is_possible { Ok(agreement) } else { Err(Malformed::Field("agreement")) }
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = vec![ACCEPTED, self.disk_type as u8, self.disk_address, self.protection as u8];
        out.extend_from_slice(&self.window_packets.to_be_bytes());
        out.extend_from_slice(&self.group_packets.to_be_bytes());
        out.extend_from_slice(&self.data_bytes.to_be_bytes());
        out.push(self.is_known.into());
        out.extend_from_slice(&self.volume);
        out
    }
}

fn protection(reader: &mut Reader<'_>) -> Result<Protection, Malformed> {
    Protection::from_code(reader.u8()?).ok_or(Malformed::Field("protection"))
}

#[cfg(test)]
mod tests {
    use sanwire_security::handshake::NOISE_MAX_BYTES;

    use super::*;

    const TERMS: Terms = Terms { packet_max_bytes: 9000, window_packets: 512, group_packets: 32 };

    fn server_offer(terms: Terms) -> ServerOffer {
        ServerOffer {
            terms,
            write_room_bytes: 1 << 20,
            transfer_max_bytes: 1 << 20,
            keep_alive_ms: 1000,
            instance: [7; 16],
            name: "n".repeat(64),
        }
    }

    fn client_offer(terms: Terms) -> ClientOffer {
        ClientOffer {
            terms,
            protection: Protection::Aes128Gcm,
            disk_type: DiskType::Sata,
            disk_address: 3,
            volume: "v".repeat(64),
            waiting: Waiting::new(65_530, 9, [65_530, 2].into_iter()),
        }
    }

    #[test]
    fn offers_without_a_window_or_of_groups_that_cannot_be_are_refused() {
        let (no_window, no_group, least, most) = ((0, 32), (512, 0), (1, 1), (u32::MAX, 256));
        for (offered, is_taken) in [
            (no_window, false),
            (no_group, false),
            ((512, 257), false),
            ((u32::MAX, u16::MAX), false),
            (least, true),
            ((65_535, 256), true),
            (most, true),
        ] {
            let terms = Terms { window_packets: offered.0, group_packets: offered.1, ..TERMS };
            let (server, client) = (server_offer(terms), client_offer(terms));
            let refused = Malformed::Field("W or N");
            assert_eq!(ServerOffer::read(&server.write()), if is_taken { Ok(server) } else { Err(refused) });
            assert_eq!(ClientOffer::read(&client.write()), if is_taken { Ok(client) } else { Err(refused) });
        }
    }

    #[test]
    fn all_are_read_as_written() {
        let (server, client) = (server_offer(TERMS), client_offer(TERMS));
        assert_eq!(ServerOffer::read(&server.write()), Ok(server.clone()));
        assert_eq!(ClientOffer::read(&client.write()), Ok(client.clone()));
        let agreement = Agreement {
            disk_type: DiskType::Scsi,
            disk_address: 3,
            protection: Protection::Hash,
            window_packets: 512,
            group_packets: 32,
            data_bytes: 8192,
            is_known: true,
            volume: [5; 16],
        };
        assert_eq!(Agreement::read(&agreement.write()), Ok(agreement));
        assert!(Agreement::read(&Agreement { data_bytes: 100, ..agreement }.write()).is_err());
        assert!(Agreement::read(&Agreement { window_packets: 0, ..agreement }.write()).is_err());
        let longest = server.write().len().max(client.write().len());
        // The static key, the share of CPace and three tags are there as well.
        assert!(longest + 32 * 3 + 16 * 3 <= NOISE_MAX_BYTES.min(super::super::discovery::REQUEST_BYTES - 27));
    }

    #[test]
    fn a_command_is_settled_when_it_was_given_and_is_not_waited_for() {
        let waiting = Waiting::new(65_530, 9, [65_530, 2].into_iter());
        for settled in [65_000, 65_529, 65_531, 0, 1, 3, 8] {
            assert!(waiting.is_settled(settled), "{settled}");
        }
        for open in [65_530, 2, 9, 10, 1000] {
            assert!(!waiting.is_settled(open), "{open}");
        }
    }
}
