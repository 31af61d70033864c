//! Labels as they stand on members, in the format that the head of `label.rs` shows.

use crc_fast::{CrcAlgorithm, checksum};
use sanwire_core::read::{ReadError, Reader};

use super::{
    LABEL_BYTES, Label, MEMBERS_MAX, MemberRecord, NAME_MAX_BYTES, RECORDS_MAX_BYTES, RUNS_MAX, Run, Standing, Table,
};
use crate::former::Former;
use crate::layout::Arrangement;

const MAGIC: [u8; 8] = *b"SANWARRY";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 12;
const NAME_END: usize = 128;
const RUNS_AT: usize = 144;
const MEMBERS_AT: usize = RUNS_AT + 20 * RUNS_MAX;
/// Behind the most and longest members.
const FORMER_AT: usize = MEMBERS_AT + RECORDS_MAX_BYTES;

impl Label {
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
    ///
    /// # Errors
    /// [`Illegible`].
    pub fn decode(bytes: &[u8]) -> Result<Option<Label>, Illegible> {
        let Some(bytes) = bytes.get(..LABEL_BYTES).filter(|bytes| bytes.starts_with(&MAGIC)) else { return Ok(None) };
        let mut bytes = bytes.to_vec();
        let sum = bytes[CHECKSUM_AT..CHECKSUM_AT + 4].to_vec();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        if crc(&bytes).to_be_bytes() != *sum {
            return Ok(None);
        }
        let mut label = read(&mut Reader::new(&bytes)).map_err(|_| Illegible)?;
        label.table.former = Former::read(&mut Reader::new(&bytes[FORMER_AT..])).map_err(|_| Illegible)?;
        let is_sound = label.table.is_sound() && label.own < label.table.members.len();
        if is_sound { Ok(Some(label)) } else { Err(Illegible) }
    }

    /// Of the copies on a member, in their order, the one that counts; `None`: there is none. Of the two at the beginning that is the newer
    /// one, and of two arrays the first. The one at the end counts where the beginning is lost: where a volume has become longer, there may
    /// stand what somebody else had there before, and where it could not be written, what this member had there long ago.
    ///
    /// # Errors
    /// [`Illegible`]: and there is none that is understood. Where there is one, that one counts as long as not all copies are written.
    pub fn newest([first, second, last]: [Result<Option<Label>, Illegible>; 3]) -> Result<Option<Label>, Illegible> {
        let newer = |one: Label, other: Label| {
            let is_newer = other.table.array == one.table.array && other.table.generation > one.table.generation;
            if is_newer { other } else { one }
        };
        match (first, second) {
            (Ok(None), Ok(None)) => last,
            (Err(Illegible), Err(Illegible) | Ok(None)) | (Ok(None), Err(Illegible)) => Err(Illegible),
            (first, second) => Ok([first, second].into_iter().filter_map(|copy| copy.ok().flatten()).reduce(newer)),
        }
    }
}

/// A label that is whole, and says what this version does not understand: another one has written it, and may go on with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegible;

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
    // All of them have room in a label.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::former::FORMER_MAX;
    use crate::label::PLACE_MAX_BYTES;

    fn label() -> Label {
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

    fn sign(bytes: &mut [u8]) {
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        let sum = crc(bytes).to_be_bytes();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum);
    }

    #[test]
    fn a_label_is_read_as_it_was_written() {
        let bytes = label().encode();
        assert_eq!(bytes.len(), LABEL_BYTES);
        assert_eq!(Label::decode(&bytes), Ok(Some(label())));
        assert_eq!(label().table.layout().group_bytes, [1 << 20, 3 << 20]);
    }

    #[test]
    fn the_newer_copy_at_the_beginning_counts_and_the_one_at_the_end_where_there_is_none() {
        let newer = || Some(Label { table: Table { generation: 8, ..label().table }, ..label() });
        let other = || Some(Label { table: Table { array: [8; 16], generation: 50, ..label().table }, ..label() });
        let own = || Some(label());
        let newest = |copies: [Option<Label>; 3]| Label::newest(copies.map(Ok)).unwrap();
        for copies in [[newer(), own(), own()], [own(), newer(), own()], [own(), newer(), None], [None, newer(), own()]]
        {
            assert_eq!(newest(copies), newer());
        }
        // At the end may stand what could not be written there any more, or what somebody else had there.
        assert_eq!(newest([own(), own(), newer()]), own());
        assert_eq!(newest([None, own(), newer()]), own());
        assert_eq!(newest([own(), newer(), other()]), newer());
        assert_eq!(newest([own(), other(), newer()]), own());
        assert_eq!(newest([None, own(), other()]), own());
        assert_eq!(newest([None, None, other()]), other());
        assert_eq!((newest([own(), None, None]), newest([None, None, None])), (own(), None));
    }

    #[test]
    fn a_copy_that_is_not_understood_counts_where_no_other_one_does() {
        let (own, none) = (|| Ok(Some(label())), || Ok(None));
        let illegible = || Err(Illegible);
        for copies in [
            [illegible(), illegible(), own()],
            [illegible(), none(), own()],
            [none(), illegible(), own()],
            [none(), none(), illegible()],
        ] {
            assert_eq!(Label::newest(copies), Err(Illegible));
        }
        for copies in [[own(), illegible(), none()], [illegible(), own(), none()], [own(), none(), illegible()]] {
            assert_eq!(Label::newest(copies), own());
        }
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
        assert_eq!(Label::decode(&label.encode()), Ok(Some(label)));
    }

    /// Older versions have added stores with such places.
    #[test]
    fn a_place_that_is_longer_than_one_may_be_now_is_read_where_there_is_room_for_it() {
        let mut label = label();
        label.table.members[3].place = "p".repeat(4096);
        assert_eq!(Label::decode(&label.encode()), Ok(Some(label.clone())));
        let all = RECORDS_MAX_BYTES - label.table.members.iter().map(|member| 40 + member.place.len()).sum::<usize>();
        label.table.members[1].place += &"p".repeat(all);
        assert_eq!(Label::decode(&label.encode()), Ok(Some(label.clone())));
        label.table.members[1].place.push('p');
        assert_eq!(Label::decode(&label.encode()), Err(Illegible), "it is cut");
    }

    #[test]
    fn what_makes_no_array_is_not_understood_and_is_a_label_all_the_same() {
        let spoil: [fn(&mut Label); 8] = [
            |label| label.table.members[1].place = "p".repeat(60_000),
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
            assert_eq!(Label::decode(&label.encode()), Err(Illegible), "{label:?}");
        }
    }

    #[test]
    fn a_label_of_a_later_version_is_not_understood() {
        let mut bytes = label().encode();
        bytes[8..12].copy_from_slice(&2_u32.to_be_bytes());
        assert_eq!(Label::decode(&bytes), Ok(None), "it is damaged");
        sign(&mut bytes);
        assert_eq!(Label::decode(&bytes), Err(Illegible));
    }

    proptest! {
        #[test]
        fn a_damaged_label_is_none(at in 0..LABEL_BYTES, bit in 0_u8..8) {
            let mut bytes = label().encode();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(Label::decode(&bytes), Ok(None));
        }

        #[test]
        fn no_bytes_hurt(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut whole = label().encode();
            whole[16..16 + bytes.len()].copy_from_slice(&bytes);
            sign(&mut whole);
            let _ = Label::decode(&whole);
        }
    }
}
