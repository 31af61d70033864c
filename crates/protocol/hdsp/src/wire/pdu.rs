//! The header of a packet with a piece of a command or of an answer. Its data begins at byte 28.
//!
//! ```text
//! offset bytes
//!      0     8  common header
//!      8     1  DFlag: W (0x80), E (0x40), S (0x20), F (0x10), L (0x08), G (0x04), A (0x02), one reserved bit (0)
//!      9     9  ATA and SATA                            SCSI
//!      9     1    Feature; of answers Err                 bytes of the CDB (F), of answers of the sense data (L)
//!     10     1    Sector Count of this packet             0
//!     11     1    CMD; of answers Status                  0; of answers the status
//!     12     6    LBA0 to LBA5                            2 bytes length, 4 bytes offset of this packet's data
//!     18     2  command number
//!     20     4  Group ID
//!     24     4  Serial Number
//!     28        ATA: data, or with E and without data the upper bytes of Feature and Sector Count; SCSI: CDB or sense data, then data
//! ```
//!
//! A request carries data with W. An answer of an ATA disk carries data when its Status has DRQ. A request of a SCSI disk without W says
//! in its offset how many bytes of data its answer may have.

use sanwire_ata::status;

use super::header::{DiskType, HEADER_BYTES, Header, PacketType};
use super::{Malformed, Reader};

/// Bytes before the data.
pub const PDU_BYTES: usize = 28;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

/// The most packets that a group can have.
pub const GROUP_PACKETS_MAX: u16 = 256;

/// Groups are numbered below this: together with a serial number one is a nonce, whose first bit tells data from control.
pub const GROUPS_MAX: u32 = 1 << 31;

const W: u8 = 0x80;
const E: u8 = 0x40;
const S: u8 = 0x20;
const F: u8 = 0x10;
const L: u8 = 0x08;
const G: u8 = 0x04;
const A: u8 = 0x02;
const RESERVED: u8 = 0x01;

/// Above a 24-bit address.
const LBA_24_END: u64 = 1 << 24;

/// Above a 48-bit address.
const LBA_48_END: u64 = 1 << 48;

/// What DFlag says besides E.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// W: the command writes.
    pub write: bool,
    /// S: what was written so far goes to the disk; without it, more follows behind it.
    pub sync: bool,
    /// F: the first packet of a command or answer.
    pub first: bool,
    /// L: the last one.
    pub last: bool,
    /// G: the last packet of its group.
    pub group_end: bool,
    /// A: the sender waits for an acknowledgement.
    pub ack_now: bool,
}

/// Where the registers of an ATA disk are, and which place a packet has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register {
    /// Feature, of answers Err. Above 255 only with `is_long`, and in a packet without data.
    pub feature: u16,
    /// Sector Count: the sectors of this packet. Above 255 only with `is_long`, and in a packet without data.
    pub count: u16,
    /// CMD, of answers Status.
    pub code: u8,
    /// The first sector of this packet.
    pub lba: u64,
    /// E: the address has 48 bits, else 24.
    pub is_long: bool,
}

/// What is where the registers of an ATA disk are, for a SCSI disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scsi {
    /// Bytes of the CDB or of the sense data before the data.
    pub before_bytes: u8,
    /// Of answers: the status.
    pub status: u8,
    /// Bytes of data in this packet.
    pub length_bytes: u16,
    /// Where they belong. Of a request without W: the most data that its client takes.
    pub offset_bytes: u32,
}

/// By which commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fields {
    /// Of ATA and SATA.
    Ata(Register),
    /// Of SCSI.
    Scsi(Scsi),
}

/// All fields before the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pdu {
    /// The common header.
    pub header: Header,
    /// DFlag.
    pub flags: Flags,
    /// The fields of the disk's type.
    pub fields: Fields,
    /// Which command of the session.
    pub command: u16,
    /// Which group.
    pub group: u32,
    /// Which packet of the group.
    pub serial: u16,
}

/// How many bytes lie behind the header, before the packet's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Body {
    /// Upper bytes of registers, a CDB, or sense data.
    pub before_bytes: usize,
    /// Data.
    pub data_bytes: usize,
}

impl Register {
    fn carries_data(&self, from_server: bool, write: bool) -> bool {
        if from_server { self.code & status::DRQ != 0 } else { write }
    }

    fn read(bytes: [u8; 9], is_long: bool) -> Result<Register, Malformed> {
        let [feature, count, code, b0, b1, b2, b3, b4, b5] = bytes;
        let lba = match is_long {
            true => u64::from_le_bytes([b0, b1, b2, b3, b4, b5, 0, 0]),
            false if (b1, b3, b5) == (0, 0, 0) => u64::from_le_bytes([b0, b2, b4, 0, 0, 0, 0, 0]),
            // Who fills all six means an address of 48 bits, and would reach another sector.
            false => return Err(Malformed::Field("LBA")),
        };
        Ok(Register { feature: feature.into(), count: count.into(), code, lba, is_long })
    }

    fn write(&self) -> [u8; 9] {
        debug_assert!(self.lba < if self.is_long { LBA_48_END } else { LBA_24_END });
        let [l0, l1, l2, l3, l4, l5, ..] = self.lba.to_le_bytes();
        let [b0, b1, b2, b3, b4, b5] = if self.is_long { [l0, l1, l2, l3, l4, l5] } else { [l0, 0, l1, 0, l2, 0] };
        [self.feature as u8, self.count as u8, self.code, b0, b1, b2, b3, b4, b5]
    }

    /// The upper bytes of FEATURE and COUNT.
    #[must_use]
    pub fn upper(&self) -> [u8; 2] {
        [(self.feature >> 8) as u8, (self.count >> 8) as u8]
    }

    /// Whether an address needs the long form.
    #[must_use]
    pub fn needs_long(lba: u64) -> bool {
        lba >= LBA_24_END
    }
}

impl Scsi {
    fn read(bytes: [u8; 9]) -> Result<Scsi, Malformed> {
        let [before_bytes, reserved, status, n0, n1, o0, o1, o2, o3] = bytes;
        if reserved != 0 {
            return Err(Malformed::Field("reserved"));
        }
        let (length_bytes, offset_bytes) = (u16::from_be_bytes([n0, n1]), u32::from_be_bytes([o0, o1, o2, o3]));
        Ok(Scsi { before_bytes, status, length_bytes, offset_bytes })
    }

    fn write(&self) -> [u8; 9] {
        let [n0, n1] = self.length_bytes.to_be_bytes();
        let [o0, o1, o2, o3] = self.offset_bytes.to_be_bytes();
        [self.before_bytes, 0, self.status, n0, n1, o0, o1, o2, o3]
    }
}

impl Pdu {
    /// Reads the first bytes of a packet that is a PDU. The upper bytes of registers are not among them.
    ///
    /// # Errors
    /// [`Malformed`] when they are none.
    pub fn read(packet: &[u8]) -> Result<Pdu, Malformed> {
        let header = Header::read(packet)?;
        if header.packet_type != PacketType::Pdu || header.error.is_some() {
            return Err(Malformed::Field("PType"));
        }
        let mut reader = Reader::new(packet);
        reader.bytes(HEADER_BYTES)?;
        let flags = reader.u8()?;
        if flags & RESERVED != 0 {
            return Err(Malformed::Field("DFlag"));
        }
        let fields = match (header.disk_type, flags & E != 0) {
            (DiskType::Ata | DiskType::Sata, is_long) => Fields::Ata(Register::read(reader.array()?, is_long)?),
            (DiskType::Scsi, false) => Fields::Scsi(Scsi::read(reader.array()?)?),
            (DiskType::Any | DiskType::Scsi, _) => return Err(Malformed::Field("DType")),
        };
        let (command, group, serial) = (reader.u16()?, reader.u32()?, reader.u32()?);
        if group >= GROUPS_MAX || serial >= GROUP_PACKETS_MAX.into() {
            return Err(Malformed::Field("Serial Number"));
        }
        let is = |bit: u8| flags & bit != 0;
        let flags = Flags { write: is(W), sync: is(S), first: is(F), last: is(L), group_end: is(G), ack_now: is(A) };
        Ok(Pdu { header, flags, fields, command, group, serial: serial as u16 })
    }

    /// The bytes before the data, without the upper bytes of registers.
    #[must_use]
    pub fn write(&self) -> [u8; PDU_BYTES] {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let Flags { write, sync, first, last, group_end, ack_now } = self.flags;
        let is_long = matches!(self.fields, Fields::Ata(Register { is_long: true, .. }));
        let fields = match &self.fields {
            Fields::Ata(register) => register.write(),
            Fields::Scsi(scsi) => scsi.write(),
        };
        let mut out = [0; PDU_BYTES];
        out[..8].copy_from_slice(&self.header.write());
        out[8] = bit(write, W) | bit(is_long, E) | bit(sync, S) | bit(first, F) | bit(last, L);
        out[8] |= bit(group_end, G) | bit(ack_now, A);
        out[9..18].copy_from_slice(&fields);
        out[18..20].copy_from_slice(&self.command.to_be_bytes());
        out[20..24].copy_from_slice(&self.group.to_be_bytes());
        out[24..28].copy_from_slice(&u32::from(self.serial).to_be_bytes());
        out
    }

    /// What lies behind the header.
    #[must_use]
    pub fn body(&self) -> Body {
        match &self.fields {
            Fields::Scsi(scsi) => Body { before_bytes: scsi.before_bytes.into(), data_bytes: scsi.length_bytes.into() },
            Fields::Ata(register) if register.carries_data(self.header.from_server, self.flags.write) => {
                Body { before_bytes: 0, data_bytes: usize::from(register.count as u8) * SECTOR_BYTES }
            }
            Fields::Ata(register) => Body { before_bytes: if register.is_long { 2 } else { 0 }, data_bytes: 0 },
        }
    }

    /// Puts the upper bytes of registers to the lower ones.
    pub fn widen(&mut self, upper: [u8; 2]) {
        if let Fields::Ata(register) = &mut self.fields {
            register.feature |= u16::from(upper[0]) << 8;
            register.count |= u16::from(upper[1]) << 8;
        }
    }

    /// The number of the packet among those of its direction, by which it is sealed.
    #[must_use]
    pub fn number(&self) -> u64 {
        u64::from(self.group) << 32 | u64::from(self.serial)
    }
}

#[cfg(test)]
mod tests;
