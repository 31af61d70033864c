//! What stands on each member beside the data: a label at both ends, and which regions are being written.
//!
//! ```text
//! | label, 16 KiB | the same, 16 KiB | regions, 64 KiB | ... | at 1 MiB: data | ... | label, the last 16 KiB |
//! ```
//!
//! A label has the whole table of the array, so one is enough to know all members. The two copies at the beginning are written one after the
//! other, the first one stable before the second, and the newer one that is whole last: one of them can always be read. The end moves when
//! the member becomes longer, also while its label is being written, and what stood there is not found any more. So the copy there is never
//! newer than those at the beginning; it is for who has lost these. All numbers are big-endian.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `SANWARRY` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | CRC32C of the 16 KiB with zeroes here |
//! | 16 | 16 | identity of the array |
//! | 32 | 8 | generation: how often the table was changed |
//! | 40 | 2 | which member this one is, from 0 on |
//! | 42 | 2 | members |
//! | 44 | 2 | copies: so many members in a row make a group |
//! | 46 | 1 | 1: groups one behind the other; 2: striped |
//! | 48 | 4 | bytes of a chunk; 0 where nothing is striped |
//! | 52 | 4 | bytes of a block, 512 or 4096 |
//! | 56 | 8 | bytes of a region |
//! | 64 | 1, 63 | length of the name, and the name in UTF-8 |
//! | 128 | 8 | the run: who assembled the array last |
//! | 136 | 2 | runs before that are known, at most 16 |
//! | 144 | 320 | those, the newest last: 8 the run, 8 the generation in which the next one found it, 4 the members that the next one had, member 0 in the lowest bit |
//! | 464 | | the members: 16 identity; 1 standing (1 in, 2 out); 1 flags (1: all of it is missing); 2 length of the place; 4 zero; 8 the generation since which it is out; 8 bytes of data; the place in UTF-8 |
//! | 14544 | 2 | members whose places others have taken, at most 32 |
//! | 14552 | | those, the newest last: 16 identity; 8 the generation in which another one has the place first; 1 the place, from 0 on; 7 zero |

use crc_fast::{CrcAlgorithm, checksum};
use sanwire_core::read::{ReadError, Reader};

use crate::drive::Candidate;
use crate::error::ArrayError;
use crate::former::Former;
use crate::layout::{Arrangement, Layout};

/// A label.
pub(crate) const LABEL_BYTES: usize = 16 << 10;
/// Where its second copy begins; the first one begins at the beginning.
pub(crate) const SECOND_AT: u64 = LABEL_BYTES as u64;
/// Where the regions begin.
pub(crate) const INTENT_AT: u64 = 32 << 10;
/// Where the data begins.
pub(crate) const DATA_AT: u64 = 1 << 20;
/// The length of data is a multiple of it.
pub(crate) const DATA_UNIT_BYTES: u64 = 1 << 20;
/// Data of a member, at the most: all of an array can be counted in 64 bits.
const DATA_MAX_BYTES: u64 = 1 << 56;
const REGION_MAX_BYTES: u64 = 1 << 40;
/// Members of an array, at the most.
pub const MEMBERS_MAX: usize = 32;
/// Bytes of the text that says where a member is, at the most.
pub const PLACE_MAX_BYTES: usize = 400;
/// Bytes of an array's name, at the most.
pub const NAME_MAX_BYTES: usize = 63;

const MAGIC: [u8; 8] = *b"SANWARRY";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 12;
const NAME_END: usize = 128;
const RUNS_AT: usize = 144;
const MEMBERS_AT: usize = RUNS_AT + 20 * RUNS_MAX;
/// Runs before the last one that are known.
pub(crate) const RUNS_MAX: usize = 16;
/// Behind the most and longest members.
const FORMER_AT: usize = MEMBERS_AT + MEMBERS_MAX * (40 + PLACE_MAX_BYTES);

/// What a member's label says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has what was written.
    In,
    /// It lacks something.
    Out {
        /// The generation of the table that said so first.
        since: u64,
        /// All that it has is worth nothing: it is new.
        is_whole: bool,
    },
}

/// A member, as the table has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRecord {
    /// Its own identity: of one volume that took its place another.
    pub id: [u8; 16],
    /// Whether it has what was written.
    pub standing: Standing,
    /// The data of the array that it has room for, in bytes.
    pub data_bytes: u64,
    /// Where it was when it came in: how its store is written.
    pub place: String,
}

/// All that the members of an array know of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// The identity of the array.
    pub array: [u8; 16],
    /// Its name.
    pub name: String,
    /// How often this was changed.
    pub generation: u64,
    /// Who assembled the array last: a number that nobody has had.
    pub run: u64,
    /// Who did before, the newest last.
    pub runs: Vec<Run>,
    /// How its groups make one volume.
    pub arrangement: Arrangement,
    /// So many members in a row make a group; at least 1, and a divisor of their number.
    pub copies: usize,
    /// The logical block: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// How much is noted as being written by one bit, in bytes: a power of two.
    pub region_bytes: u64,
    /// The members, group by group.
    pub members: Vec<MemberRecord>,
    /// Those whose places others have taken, the newest last: who has said something of the array is not who has his place now.
    pub former: Vec<Former>,
}

/// A time in which one host had an array, and which is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its number: nobody else has had it.
    pub number: u64,
    /// The generation in which the next one found the table.
    pub last_generation: u64,
    /// The members that the next one began with, member 0 in the lowest bit.
    pub taken_over: u32,
}

/// A table, and whose label it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// Which member, from 0 on.
    pub own: usize,
    /// What all labels say.
    pub table: Table,
}

impl Table {
    /// Where the bytes of the volume lie.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let least = |group: &[MemberRecord]| group.iter().map(|member| member.data_bytes).min().unwrap_or(0);
        let group_bytes = self.members.chunks(self.copies).map(least).collect();
        Layout { arrangement: self.arrangement, group_bytes }
    }

    /// The group of a member.
    pub(crate) fn group_of(&self, member: usize) -> usize {
        member / self.copies
    }

    /// The members of a group.
    pub(crate) fn group(&self, group: usize) -> std::ops::Range<usize> {
        group * self.copies..(group + 1) * self.copies
    }

    pub(crate) fn is_in(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| member.standing == Standing::In)
    }

    /// The members of a group that have what was written.
    pub(crate) fn in_group(&self, group: usize) -> impl Iterator<Item = usize> {
        self.group(group).filter(|member| self.is_in(*member))
    }

    /// Where these members are, for people.
    pub(crate) fn places(&self, members: impl Iterator<Item = usize>) -> String {
        let places: Vec<_> = members.map(|member| self.members[member].place.as_str()).collect();
        places.join(", ")
    }

    fn is_sound(&self) -> bool {
        let count = self.members.len();
        let is_whole = (1..=MEMBERS_MAX).contains(&count) && self.copies > 0 && count.is_multiple_of(self.copies);
        let has_chunks = match self.arrangement {
            Arrangement::Concat => true,
            Arrangement::Stripe { chunk_bytes } => chunk_bytes > 0 && chunk_bytes.is_multiple_of(4096),
        };
        let is_possible = |member: &MemberRecord| {
            member.data_bytes > 0
                && member.data_bytes.is_multiple_of(DATA_UNIT_BYTES)
                && member.data_bytes <= DATA_MAX_BYTES
                && member.place.len() <= PLACE_MAX_BYTES
                && member.data_bytes.div_ceil(self.region_bytes) <= crate::intent::REGIONS_MAX as u64
        };
        is_whole
            && has_chunks
            && matches!(self.block_bytes, 512 | 4096)
            && self.region_bytes.is_power_of_two()
            && (DATA_UNIT_BYTES..=REGION_MAX_BYTES).contains(&self.region_bytes)
            && self.members.iter().all(is_possible)
            && self.former.iter().all(|former| former.place < count)
    }
}

impl Label {
    /// Whether the volume has room for what the member had, and can be written.
    pub(crate) fn is_fit(&self, candidate: &Candidate) -> bool {
        let geometry = candidate.store.geometry();
        let room = data_bytes(&candidate.place, geometry.length_bytes).unwrap_or(0);
        let is_same = geometry.block_bytes == self.table.block_bytes && !geometry.read_only;
        is_same && room >= self.table.members[self.own].data_bytes
    }

    /// As it stands on a member.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Table { array, name, generation, run, runs, arrangement, copies, .. } = &self.table;
        let Table { block_bytes, region_bytes, members, former, .. } = &self.table;
        let (kind, chunk_bytes) = match arrangement {
            Arrangement::Concat => (1_u8, 0),
            Arrangement::Stripe { chunk_bytes } => (2, *chunk_bytes),
        };
        let mut out = Vec::with_capacity(LABEL_BYTES);
        out.extend(MAGIC);
        out.extend(VERSION.to_be_bytes());
        out.extend([0; 4]);
        out.extend(array);
        out.extend(generation.to_be_bytes());
        // All three are at most MEMBERS_MAX.
        [self.own, members.len(), *copies].iter().for_each(|number| out.extend((*number as u16).to_be_bytes()));
        out.extend([kind, 0]);
        out.extend(chunk_bytes.to_be_bytes());
        out.extend(block_bytes.to_be_bytes());
        out.extend(region_bytes.to_be_bytes());
        out.push(name.len() as u8);
        out.extend(name.as_bytes());
        out.resize(NAME_END, 0);
        out.extend(run.to_be_bytes());
        out.extend((runs.len() as u16).to_be_bytes());
        out.resize(RUNS_AT, 0);
        for Run { number, last_generation, taken_over } in runs {
            out.extend(number.to_be_bytes());
            out.extend(last_generation.to_be_bytes());
            out.extend(taken_over.to_be_bytes());
        }
        out.resize(MEMBERS_AT, 0);
        members.iter().for_each(|member| put(member, &mut out));
        out.resize(FORMER_AT, 0);
        Former::put(former, &mut out);
        out.resize(LABEL_BYTES, 0);
        let sum = crc(&out);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        out
    }

    /// Reads what stands on a member; `None`: it is no label, or damaged.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Label> {
        let mut bytes = bytes.get(..LABEL_BYTES)?.to_vec();
        let sum = bytes[CHECKSUM_AT..CHECKSUM_AT + 4].to_vec();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        if crc(&bytes).to_be_bytes() != *sum {
            return None;
        }
        let mut label = read(&mut Reader::new(&bytes)).ok()?;
        label.table.former = Former::read(&mut Reader::new(&bytes[FORMER_AT..])).ok()?;
        (label.table.is_sound() && label.own < label.table.members.len()).then_some(label)
    }

    /// Of the copies on a member, in their order, the newest one; `None`: there is none. Where a volume has become longer, at its end may
    /// stand what somebody else had there before: of two arrays the first copy counts.
    #[must_use]
    pub fn newest(copies: [Option<Label>; 3]) -> Option<Label> {
        let newest = |one: Label, other: Label| {
            let is_newer = other.table.array == one.table.array && other.table.generation > one.table.generation;
            if is_newer { other } else { one }
        };
        copies.into_iter().flatten().reduce(newest)
    }
}

fn crc(bytes: &[u8]) -> u32 {
    // CRC32C has 32 bits.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn put(member: &MemberRecord, out: &mut Vec<u8>) {
    let (standing, is_whole, since) = match member.standing {
        Standing::In => (1, false, 0),
        Standing::Out { since, is_whole } => (2, is_whole, since),
    };
    out.extend(member.id);
    out.extend([standing, u8::from(is_whole)]);
    // It is at most PLACE_MAX_BYTES.
    out.extend((member.place.len() as u16).to_be_bytes());
    out.extend([0; 4]);
    out.extend(since.to_be_bytes());
    out.extend(member.data_bytes.to_be_bytes());
    out.extend(member.place.as_bytes());
}

fn read(reader: &mut Reader<'_>) -> Result<Label, ReadError> {
    if reader.array()? != MAGIC || reader.u32()? != VERSION {
        return Err(ReadError::Field("magic"));
    }
    reader.u32()?;
    let (array, generation, own) = (reader.array()?, reader.u64()?, reader.u16()?);
    let (count, copies, kind, _) = (reader.u16()?, reader.u16()?, reader.u8()?, reader.u8()?);
    let (chunk_bytes, block_bytes, region_bytes) = (reader.u32()?, reader.u32()?, reader.u64()?);
    let arrangement = match (kind, chunk_bytes) {
        (1, 0) => Arrangement::Concat,
        (2, _) => Arrangement::Stripe { chunk_bytes },
        _ => return Err(ReadError::Field("arrangement")),
    };
    let length = usize::from(reader.u8()?);
    let name = reader.bytes(NAME_MAX_BYTES)?.get(..length).ok_or(ReadError::Field("name"))?;
    let name = text(name)?;
    let (run, known) = (reader.u64()?, usize::from(reader.u16()?));
    reader.bytes(RUNS_AT - NAME_END - 10)?;
    let mut next = || {
        let (number, last_generation, taken_over) = (reader.u64()?, reader.u64()?, reader.u32()?);
        Ok(Run { number, last_generation, taken_over })
    };
    let runs = (0..RUNS_MAX).map(|_| next()).collect::<Result<Vec<_>, _>>()?;
    let runs = runs.get(..known).ok_or(ReadError::Field("runs"))?.to_vec();
    let count = usize::from(count);
    if count > MEMBERS_MAX {
        return Err(ReadError::Field("members"));
    }
    let members = (0..count).map(|_| member(reader)).collect::<Result<_, _>>()?;
    let copies = usize::from(copies);
    let (former, own) = (Vec::new(), usize::from(own));
    let table =
        Table { array, name, generation, run, runs, arrangement, copies, block_bytes, region_bytes, members, former };
    Ok(Label { own, table })
}

fn member(reader: &mut Reader<'_>) -> Result<MemberRecord, ReadError> {
    let (id, standing, flags, length) = (reader.array()?, reader.u8()?, reader.u8()?, reader.u16()?);
    reader.u32()?;
    let (since, data_bytes) = (reader.u64()?, reader.u64()?);
    let standing = match standing {
        1 => Standing::In,
        2 => Standing::Out { since, is_whole: flags & 1 != 0 },
        _ => return Err(ReadError::Field("standing")),
    };
    let place = text(reader.bytes(usize::from(length))?)?;
    Ok(MemberRecord { id, standing, data_bytes, place })
}

fn text(bytes: &[u8]) -> Result<String, ReadError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ReadError::Field("text"))
}

/// Where the copy of the label at the end begins in a store of this length; `None`: it is too short for a member.
pub(crate) fn last_at(length_bytes: u64) -> Option<u64> {
    let at = length_bytes.checked_sub(LABEL_BYTES as u64)?;
    let at = at - at % 4096;
    (at >= DATA_AT + DATA_UNIT_BYTES).then_some(at)
}

/// The data that a store of this length has room for as a member.
///
/// # Errors
/// [`ArrayError::Member`]: none.
pub(crate) fn data_bytes(place: &str, length_bytes: u64) -> Result<u64, ArrayError> {
    let room = last_at(length_bytes).map(|end| end - DATA_AT);
    room.map(|room| room - room % DATA_UNIT_BYTES).ok_or_else(|| ArrayError::Member {
        place: place.to_owned(),
        reason: "it is too small for a member of an array: 3 MiB is the least".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::former::FORMER_MAX;

    pub(crate) fn label() -> Label {
        let member = |number: u8, standing| MemberRecord {
            id: [number; 16],
            standing,
            data_bytes: u64::from(number) << 20,
            place: format!("hs+ip://host{number}/disk"),
        };
        let table = Table {
            array: [9; 16],
            name: "größe".to_owned(),
            generation: 7,
            run: 70,
            runs: [(50, 3), (60, 6)]
                .map(|(number, last_generation)| Run { number, last_generation, taken_over: 15 })
                .to_vec(),
            arrangement: Arrangement::Stripe { chunk_bytes: 64 << 10 },
            copies: 2,
            block_bytes: 4096,
            region_bytes: 1 << 20,
            members: vec![
                member(1, Standing::In),
                member(2, Standing::Out { since: 5, is_whole: false }),
                member(3, Standing::In),
                member(4, Standing::Out { since: 7, is_whole: true }),
            ],
            former: vec![Former { place: 3, id: [5; 16], until: 4 }, Former { place: 3, id: [6; 16], until: 7 }],
        };
        Label { own: 2, table }
    }

    #[test]
    fn a_label_is_read_as_it_was_written() {
        let bytes = label().encode();
        assert_eq!(bytes.len(), LABEL_BYTES);
        assert_eq!(Label::decode(&bytes), Some(label()));
        assert_eq!(label().table.layout().group_bytes, [1 << 20, 3 << 20]);
    }

    #[test]
    fn the_newest_copy_counts_but_none_of_another_array() {
        let newer = || Some(Label { table: Table { generation: 8, ..label().table }, ..label() });
        let other = || Some(Label { table: Table { array: [8; 16], generation: 50, ..label().table }, ..label() });
        let own = || Some(label());
        for copies in
            [[newer(), own(), own()], [own(), newer(), own()], [own(), own(), newer()], [None, own(), newer()]]
        {
            assert_eq!(Label::newest(copies), newer());
        }
        assert_eq!(Label::newest([own(), newer(), other()]), newer());
        assert_eq!(Label::newest([own(), other(), newer()]), newer());
        assert_eq!(Label::newest([None, own(), other()]), own());
        assert_eq!(Label::newest([None, None, other()]), other());
        assert_eq!((Label::newest([own(), None, None]), Label::newest([None, None, None])), (own(), None));
    }

    #[test]
    fn a_table_of_the_most_and_longest_members_fits() {
        let mut label = label();
        let place = "p".repeat(PLACE_MAX_BYTES);
        let member = MemberRecord { place, ..label.table.members[0].clone() };
        label.table.members = vec![member; MEMBERS_MAX];
        label.table.name = "n".repeat(NAME_MAX_BYTES);
        (0..30).for_each(|run| label.table.begin_run(run, 0..MEMBERS_MAX));
        (0..40).for_each(|number| label.table.put_new(MEMBERS_MAX - 1, [number; 16], "p".repeat(PLACE_MAX_BYTES)));
        assert_eq!((label.table.runs.len(), label.table.former.len()), (RUNS_MAX, FORMER_MAX));
        assert_eq!(Label::decode(&label.encode()), Some(label));
    }

    #[test]
    fn what_makes_no_array_is_no_label() {
        let spoil: [fn(&mut Label); 8] = [
            |label| label.table.members[1].place = "p".repeat(PLACE_MAX_BYTES + 1),
            |label| label.table.former[0].place = 4,
            |label| label.own = 4,
            |label| label.table.copies = 3,
            |label| label.table.block_bytes = 1024,
            |label| label.table.region_bytes = 3 << 20,
            |label| label.table.members[0].data_bytes = 1 << 60,
            |label| label.table.arrangement = Arrangement::Stripe { chunk_bytes: 512 },
        ];
        for spoil in spoil {
            let mut label = label();
            spoil(&mut label);
            assert_eq!(Label::decode(&label.encode()), None, "{label:?}");
        }
    }

    #[test]
    fn a_member_has_room_for_two_labels_and_a_mebibyte() {
        assert!(data_bytes("a", (2 << 20) + LABEL_BYTES as u64 - 1).is_err());
        assert_eq!(data_bytes("a", (2 << 20) + LABEL_BYTES as u64).unwrap(), 1 << 20);
        assert_eq!(data_bytes("a", 1 << 30).unwrap(), 1022 << 20);
        assert_eq!(last_at((1 << 30) + 512), Some((1 << 30) - LABEL_BYTES as u64));
    }

    proptest! {
        #[test]
        fn a_damaged_label_is_none(at in 0..LABEL_BYTES, bit in 0_u8..8) {
            let mut bytes = label().encode();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(Label::decode(&bytes), None);
        }

        #[test]
        fn no_bytes_hurt(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut whole = label().encode();
            let sum = CHECKSUM_AT..CHECKSUM_AT + 4;
            whole[16..16 + bytes.len()].copy_from_slice(&bytes);
            whole[sum.clone()].fill(0);
            let crc = crc(&whole).to_be_bytes();
            whole[sum].copy_from_slice(&crc);
            let _ = Label::decode(&whole);
        }
    }
}
