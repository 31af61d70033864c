//! Commands whose packets are coming. Each packet has its place already, so this only knows when all are there.

use sanwire_ata::{DEVICE_LBA, TaskFile};
use sanwire_buffer::{Arrival, Region, Slice};
use sanwire_core::Instant;

use super::pages::Pages;
use super::types::Request;
use crate::channel::Opened;
use crate::wire::Pdu;
use crate::wire::flow::Place;
use crate::wire::pdu::{Fields, Register, SECTOR_BYTES};

/// Sectors of one command, at the most.
const SECTORS_MAX: u64 = 65_536;

/// Data that is shorter is copied: it would keep much more memory than it has bytes.
pub(super) const KEPT_MIN_BYTES: usize = 1024;

/// Why a packet is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It comes again.
    NoMemory,
    /// The client breaks the rules.
    Violation,
}

/// A command that is whole.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) request: Request,
    /// S: what is held of writes goes to the disk.
    pub(super) sync: bool,
    /// In how many packets it came.
    pub(super) packets: u32,
    /// Of its data, what is still where it came; the rest was copied.
    pub(super) kept_bytes: u64,
    /// In so many packets.
    pub(super) kept: usize,
}

/// A packet with data.
pub(super) struct Came<'a> {
    pub(super) opened: Opened<'a>,
    /// As it came.
    pub(super) arrival: Arrival<'a>,
}

/// What has come of a command that writes.
#[derive(Debug)]
pub(super) struct Assembly {
    kind: Kind,
    /// In sectors, of SCSI in bytes.
    start: Option<u64>,
    end: Option<u64>,
    pages: Pages,
    have: u64,
    sync: bool,
    /// The first of its packets, as they were sent, of those that have come.
    pub(super) first: Place,
    /// When its first packet came, and when its last one so far.
    pub(super) begun_at: Instant,
    moved_at: Instant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Ata {
        code: u8,
        feature: u8,
        is_long: bool,
    },
    /// The CDB, once it is there.
    Scsi(Option<Vec<u8>>),
}

/// A request that came in one packet and writes nothing.
pub(super) fn single(pdu: &Pdu, opened: &Opened<'_>, transfer_max_bytes: u32) -> Result<Whole, Refused> {
    if !(pdu.flags.first && pdu.flags.last) {
        return Err(Refused::Violation);
    }
    let request = match &pdu.fields {
        Fields::Ata(register) => Request::Ata { task_file: task_file(register), data: Vec::new() },
        Fields::Scsi(scsi) if scsi.length_bytes == 0 && scsi.before_bytes > 0 => {
            let room_bytes = scsi.offset_bytes.min(transfer_max_bytes);
            Request::Scsi { cdb: opened.before.to_vec(), data: Vec::new(), room_bytes }
        }
        Fields::Scsi(_) => return Err(Refused::Violation),
    };
    Ok(Whole { request, sync: pdu.flags.sync, packets: 1, kept_bytes: 0, kept: 0 })
}

fn task_file(register: &Register) -> TaskFile {
    let &Register { feature, count, code, lba, is_long } = register;
    let [b0, b1, b2, b3, b4, b5, ..] = lba.to_le_bytes();
    match is_long {
        true => TaskFile::long(code, feature, count, [b0, b1, b2, b3, b4, b5], DEVICE_LBA),
        false => TaskFile::short(code, feature as u8, count as u8, [b0, b1, b2], DEVICE_LBA),
    }
}

impl Assembly {
    /// Of the command that this packet is of.
    pub(super) fn new(pdu: &Pdu, now: Instant) -> Self {
        let kind = match &pdu.fields {
            Fields::Ata(Register { code, feature, is_long, .. }) => {
                Kind::Ata { code: *code, feature: *feature as u8, is_long: *is_long }
            }
            Fields::Scsi(_) => Kind::Scsi(None),
        };
        let pages = Pages::default();
        let first = (pdu.group, pdu.serial);
        Assembly { kind, start: None, end: None, pages, have: 0, sync: false, first, begun_at: now, moved_at: now }
    }

    /// Whether it takes memory of its session: what has stayed where it came does not.
    pub(super) fn takes_memory(&self) -> bool {
        self.pages.takes_memory()
    }

    /// Packets whose data has stayed where it came.
    pub(super) fn kept_packets(&self) -> usize {
        self.pages.kept()
    }

    /// When its last packet came so far.
    pub(super) fn moved_at(&self) -> Instant {
        self.moved_at
    }

    /// Takes a packet, which is new. True: it was the last one that was missing.
    pub(super) fn take(
        &mut self,
        pdu: &Pdu,
        came: &Came<'_>,
        (memory, transfer_max_bytes): (&Region, u32),
        now: Instant,
    ) -> Result<bool, Refused> {
        self.first = self.first.min((pdu.group, pdu.serial));
        let (at, length, unit_bytes) = self.place(pdu)?;
        // Otherwise a command in pieces of a byte would take many times its length, and what lies in them could go to no disk as it is.
        let is_whole = pdu.flags.last || length.saturating_mul(unit_bytes).is_multiple_of(SECTOR_BYTES as u64);
        if !is_whole {
            return Err(Refused::Violation);
        }
        let have = self.have + length;
        let bytes = have.saturating_mul(unit_bytes);
        if length == 0 || bytes > transfer_max_bytes.into() || bytes.div_ceil(SECTOR_BYTES as u64) > SECTORS_MAX {
            return Err(Refused::Violation);
        }
        let Came { opened, arrival } = came;
        match self.kept(opened, *arrival) {
            Some(data) => self.pages.keep(at, data),
            None => self.pages.put(at, opened.data, memory).ok_or(Refused::NoMemory)?,
        }
        (self.have, self.moved_at) = (have, now);
        if pdu.flags.first && self.start.replace(at).is_some() {
            return Err(Refused::Violation);
        }
        if pdu.flags.last && self.end.replace(at + length).is_some() {
            return Err(Refused::Violation);
        }
        if let (Kind::Scsi(cdb), true) = (&mut self.kind, pdu.flags.first) {
            *cdb = Some(opened.before.to_vec());
        }
        self.sync |= pdu.flags.sync;
        let Some((start, end)) = self.start.zip(self.end) else { return Ok(false) };
        Ok(end.checked_sub(start).ok_or(Refused::Violation)? == self.have)
    }

    /// The data where it came, if it may stay there: if it is worth the page that it keeps, and lies as disks take it.
    fn kept(&self, opened: &Opened<'_>, arrival: Arrival<'_>) -> Option<Slice> {
        let is_aligned = opened.data.as_ptr().addr().is_multiple_of(SECTOR_BYTES);
        let is_kept = is_aligned && opened.data.len() >= KEPT_MIN_BYTES;
        is_kept.then(|| arrival.keep(opened.data)).flatten()
    }

    /// Where the packet's data belongs, and in what that is counted.
    fn place(&self, pdu: &Pdu) -> Result<(u64, u64, u64), Refused> {
        match (&pdu.fields, &self.kind) {
            (Fields::Ata(register), Kind::Ata { code, feature, is_long }) => {
                let is_same = (register.code, register.feature as u8, register.is_long) == (*code, *feature, *is_long);
                let place = (register.lba, register.count.into(), SECTOR_BYTES as u64);
                if is_same { Ok(place) } else { Err(Refused::Violation) }
            }
            (Fields::Scsi(scsi), Kind::Scsi(_)) if pdu.flags.first == (scsi.before_bytes > 0) => {
                Ok((scsi.offset_bytes.into(), scsi.length_bytes.into(), 1))
            }
            _ => Err(Refused::Violation),
        }
    }

    /// The command, which is whole.
    pub(super) fn finish(self) -> Result<Whole, Refused> {
        let start = self.start.ok_or(Refused::Violation)?;
        let unit_bytes = if matches!(self.kind, Kind::Ata { .. }) { SECTOR_BYTES } else { 1 };
        let (packets, kept_bytes, kept) = (self.pages.packets(), self.pages.kept_bytes(), self.pages.kept());
        // One lies over another, and some place has none.
        let data = self.pages.finish(start, unit_bytes).ok_or(Refused::Violation)?;
        let request = match self.kind {
            Kind::Scsi(cdb) if start == 0 => Request::Scsi { cdb: cdb.ok_or(Refused::Violation)?, data, room_bytes: 0 },
            Kind::Scsi(_) => return Err(Refused::Violation),
            Kind::Ata { code, feature, is_long } => {
                if !is_long && self.have > 256 {
                    return Err(Refused::Violation);
                }
                let (feature, count) = (feature.into(), self.have as u16 & if is_long { u16::MAX } else { 0xff });
                let register = Register { feature, count, code, lba: start, is_long };
                Request::Ata { task_file: task_file(&register), data }
            }
        };
        Ok(Whole { request, sync: self.sync, packets, kept_bytes, kept })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pdu::{Flags, Scsi};
    use crate::wire::{DiskType, Header, PacketType};

    /// A packet of a SCSI write with so many bytes there.
    fn take(assembly: &mut Assembly, offset_bytes: u32, length: usize, last: bool) -> Result<bool, Refused> {
        let header = Header {
            from_server: false,
            error: None,
            packet_type: PacketType::Pdu,
            disk_type: DiskType::Scsi,
            disk_address: 0,
            server_port: 1,
            client_port: 1,
        };
        let before: &[u8] = if offset_bytes == 0 { &[0x2a; 10] } else { &[] };
        let length_bytes = length as u16;
        let fields = Fields::Scsi(Scsi { before_bytes: before.len() as u8, status: 0, length_bytes, offset_bytes });
        let flags = Flags { write: true, first: offset_bytes == 0, last, ..Flags::default() };
        let pdu = Pdu { header, flags, fields, command: 1, group: 0, serial: 0 };
        let data = vec![7; length];
        let came = Came { opened: Opened { before, data: &data, in_place_bytes: 0 }, arrival: data[..].into() };
        let region = Region::new(1 << 20).unwrap();
        assembly.take(&pdu, &came, (&region, 1 << 20), Instant::ZERO)
    }

    fn empty() -> Assembly {
        let (kind, pages) = (Kind::Scsi(None), Pages::default());
        let (first, now) = ((0, 0), Instant::ZERO);
        Assembly { kind, start: None, end: None, pages, have: 0, sync: false, first, begun_at: now, moved_at: now }
    }

    #[test]
    fn only_the_last_part_of_a_write_is_no_whole_number_of_sectors() {
        for length in [1, 511, 513, 700] {
            assert_eq!(take(&mut empty(), 0, length, false), Err(Refused::Violation), "{length} bytes first");
            assert_eq!(take(&mut empty(), 512, length, false), Err(Refused::Violation), "{length} bytes between");
        }
        let mut assembly = empty();
        assert_eq!(take(&mut assembly, 0, 1024, false), Ok(false));
        assert_eq!(take(&mut assembly, 1024, 24, true), Ok(true), "a list of parameters, say");
        assert_eq!(take(&mut empty(), 0, 24, true), Ok(true));
    }
}
