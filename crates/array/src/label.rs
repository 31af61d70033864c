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

/// Runs before the last one that are known.
pub(crate) const RUNS_MAX: usize = 16;
/// Of a member's record, without its place.
const RECORD_BYTES: usize = 40;
/// Of the most and longest members.
const RECORDS_MAX_BYTES: usize = MEMBERS_MAX * (RECORD_BYTES + PLACE_MAX_BYTES);

pub(crate) mod encoding;

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

    /// Whether a label has room for all members. Their places are as long as they may be, but those that older versions have added.
    pub(crate) fn has_room(&self) -> bool {
        let bytes = |member: &MemberRecord| RECORD_BYTES + member.place.len();
        self.members.iter().map(bytes).sum::<usize>() <= RECORDS_MAX_BYTES
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
                && member.data_bytes.div_ceil(self.region_bytes) <= crate::intent::REGIONS_MAX as u64
        };
        is_whole
            && has_chunks
            && matches!(self.block_bytes, 512 | 4096)
            && self.region_bytes.is_power_of_two()
            && (DATA_UNIT_BYTES..=REGION_MAX_BYTES).contains(&self.region_bytes)
            && self.members.iter().all(is_possible)
            && self.has_room()
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
}

/// Where the copy of the label at the end begins in a store of this length; `None`: it is too short for a member.
pub(crate) fn last_at(length_bytes: u64) -> Option<u64> {
    let at = length_bytes.checked_sub(LABEL_BYTES as u64)?;
    let at = at - at % 4096;
    (at >= DATA_AT + DATA_UNIT_BYTES).then_some(at)
}

/// That a label has no room for the places of these members.
pub(crate) fn full(table: &Table) -> String {
    let places: usize = table.members.iter().map(|member| member.place.len()).sum();
    let most = RECORDS_MAX_BYTES - table.members.len() * RECORD_BYTES;
    format!(
        "with it the places of all members have {places} bytes, and a label has room for {most}: name it by a shorter path"
    )
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
    use super::*;

    #[test]
    fn a_member_has_room_for_two_labels_and_a_mebibyte() {
        assert!(data_bytes("a", (2 << 20) + LABEL_BYTES as u64 - 1).is_err());
        assert_eq!(data_bytes("a", (2 << 20) + LABEL_BYTES as u64).unwrap(), 1 << 20);
        assert_eq!(data_bytes("a", 1 << 30).unwrap(), 1022 << 20);
        assert_eq!(last_at((1 << 30) + 512), Some((1 << 30) - LABEL_BYTES as u64));
    }
}
