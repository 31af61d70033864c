//! A new array: labels onto volumes that hold nothing yet.

use std::sync::Arc;

use crate::drive::{Candidate, Drive, read};
use crate::error::ArrayError;
use crate::intent::{self, Intents};
use crate::label::{self, Label, MEMBERS_MAX, MemberRecord, NAME_MAX_BYTES, PLACE_MAX_BYTES, Standing, Table};
use crate::layout::Arrangement;
use crate::table_change::write_label;

/// What an array is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Its name: 1 to 63 bytes, without spaces, commas and slashes.
    pub name: String,
    /// How its groups make one volume.
    pub arrangement: Arrangement,
    /// So many members in a row hold the same; a divisor of their number.
    pub copies: usize,
    /// Volumes that hold something are taken, too: it is lost.
    pub force: bool,
}

impl Plan {
    fn check(&self, members: &[Candidate]) -> Result<(), ArrayError> {
        let shape = |text: String| Err(ArrayError::Shape(text));
        let is_odd =
            |character: char| character.is_whitespace() || character.is_control() || ",/\\".contains(character);
        if self.name.is_empty() || self.name.len() > NAME_MAX_BYTES || self.name.contains(is_odd) {
            return shape(format!(
                "{:?} is no name of an array: it has 1 to {NAME_MAX_BYTES} bytes, without spaces, commas and slashes",
                self.name
            ));
        }
        let count = members.len();
        if count == 0 || count > MEMBERS_MAX {
            return shape(format!("an array has 1 to {MEMBERS_MAX} members, not {count}"));
        }
        if self.copies == 0 || !count.is_multiple_of(self.copies) {
            return shape(format!(
                "{count} members cannot be {} copies of each part: their number is to be a multiple of it",
                self.copies
            ));
        }
        if let Arrangement::Stripe { chunk_bytes } = self.arrangement
            && (chunk_bytes == 0 || !chunk_bytes.is_multiple_of(4096) || !(1_u32 << 20).is_multiple_of(chunk_bytes))
        {
            return shape(format!("{chunk_bytes} bytes are no chunk: it is 4096 bytes to 1 MiB, a power of two"));
        }
        for (number, member) in members.iter().enumerate() {
            if member.place.len() > PLACE_MAX_BYTES {
                return Err(ArrayError::Member {
                    place: member.place.clone(),
                    reason: format!("that is longer than the {PLACE_MAX_BYTES} bytes that a label has for it"),
                });
            }
            if members.iter().take(number).any(|other| other.place == member.place) {
                return Err(ArrayError::Member { place: member.place.clone(), reason: "it is named twice".to_owned() });
            }
        }
        Ok(())
    }
}

/// Makes an array of these volumes: all that they hold is lost. `fresh` gives identities that nothing has had.
///
/// What they hold is taken as the same where they are to hold the same: copies are made the same when the array is first used.
///
/// # Errors
/// [`ArrayError`]: a volume is too small, read-only, holds something, or its blocks are not those of the others. Some may have a label
/// already then.
pub fn create(
    plan: &Plan,
    members: &[Candidate],
    mut fresh: impl FnMut() -> [u8; 16],
    drive: &mut Drive<'_>,
) -> Result<Table, ArrayError> {
    plan.check(members)?;
    let block_bytes = members[0].store.geometry().block_bytes;
    let mut records = Vec::new();
    for member in members {
        records.push(record(plan, member, block_bytes, fresh(), drive)?);
    }
    for group in records.chunks_mut(plan.copies) {
        let least = group.iter().map(|member| member.data_bytes).min().unwrap_or(0);
        group.iter_mut().for_each(|member| member.data_bytes = least);
    }
    let most = records.iter().map(|member| member.data_bytes).max().unwrap_or(0);
    let table = Table {
        array: fresh(),
        name: plan.name.clone(),
        generation: 1,
        run: 0,
        runs: Vec::new(),
        arrangement: plan.arrangement,
        copies: plan.copies,
        block_bytes,
        region_bytes: intent::region_bytes(most),
        members: records,
        former: Vec::new(),
    };
    for (own, member) in members.iter().enumerate() {
        write_regions(&table, own, member, drive)?;
    }
    for (own, member) in members.iter().enumerate() {
        let (store, label) = (Arc::clone(&member.store), Label { own, table: table.clone() });
        let writing = drive(Box::new(move |completions| write_label(&store, &label, completions)));
        writing.map_err(|error| member.failed(error))?;
    }
    Ok(table)
}

pub(crate) fn record(
    plan: &Plan,
    member: &Candidate,
    block_bytes: u32,
    id: [u8; 16],
    drive: &mut Drive<'_>,
) -> Result<MemberRecord, ArrayError> {
    let refuse = |reason: String| Err(ArrayError::Member { place: member.place.clone(), reason });
    if member.place.len() > PLACE_MAX_BYTES {
        return refuse(format!("that is longer than the {PLACE_MAX_BYTES} bytes that a label has for it"));
    }
    let geometry = member.store.geometry();
    if geometry.read_only {
        return refuse("it is read-only".to_owned());
    }
    if geometry.block_bytes != block_bytes {
        return refuse(format!("its blocks have {} bytes, those of the first one {block_bytes}", geometry.block_bytes));
    }
    let data_bytes = label::data_bytes(&member.place, geometry.length_bytes)?;
    let found = member.label(drive);
    if let Err(error @ ArrayError::Illegible { .. }) = found {
        return Err(error);
    }
    if !plan.force {
        if let Some(label) = found? {
            return refuse(format!(
                "it is a member of the array {} already; --force takes it all the same",
                label.table.name
            ));
        }
        let tail_at = geometry.length_bytes.saturating_sub(TAIL_BYTES as u64);
        for (at, length, place) in [(0, HEAD_BYTES, "at its beginning"), (tail_at, TAIL_BYTES, "at its end")] {
            let bytes = read(&member.store, at, length, drive).map_err(|error| member.failed(error))?;
            if bytes.iter().any(|byte| *byte != 0) {
                return refuse(format!(
                    "it holds something {place}, which would be lost; --force takes it all the same"
                ));
            }
        }
    }
    Ok(MemberRecord { id, standing: Standing::In, data_bytes, place: member.place.clone() })
}

/// What holds something has something here: partition tables, file systems, labels of others.
pub(crate) const HEAD_BYTES: usize = 128 << 10;

/// The same at the end: what other arrays, pools and the second copies of partition tables have there.
const TAIL_BYTES: usize = 1 << 20;

/// Copies may differ everywhere, what has no copy nowhere.
fn write_regions(table: &Table, own: usize, member: &Candidate, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
    let group_bytes = table.layout().group_bytes[table.group_of(own)];
    let mut dirty = fixedbitset::FixedBitSet::with_capacity(intent::regions(&(0..group_bytes), table.region_bytes).end);
    if table.copies > 1 {
        dirty.insert_range(..);
    }
    for block in Intents::new(dirty).all() {
        let (store, data) = (Arc::clone(&member.store), block.encode().into());
        let request = sanwire_store::Request::Write { offset_bytes: block.at(), data };
        drive(Box::new(move |completions| store.start(request, completions))).map_err(|error| member.failed(error))?;
    }
    Ok(())
}
