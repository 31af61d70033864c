//! An array that becomes longer: its members have grown, or it gets others behind them. Here nobody uses it meanwhile.
//!
//! The order on the members is such that at each moment the array is either as it was or as it is to be: first all know that what is new
//! may differ, then new members get their labels, then the others. A table that not all of its members have does not count.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use sanwire_buffer::Frame;
use sanwire_store::{CompletionQueue, Request, Started};

use crate::assembly::find;
use crate::drive::{Candidate, Drive, read};
use crate::error::ArrayError;
use crate::intent::{self, BLOCK_BYTES, BLOCK_REGIONS, Intents, REGIONS_MAX};
use crate::label::{self, INTENT_AT, Label, Standing, Table};
use crate::layout::Arrangement;
use crate::making::{Plan, record};
use crate::table_change::{claim_end, write_label};

mod in_use;

/// Takes all that the members of an array have room for, and these `others` behind them. All members must be there and up to date, and
/// nobody may use them. `fresh` gives identities that nothing has had.
///
/// # Errors
/// [`ArrayError`]: then it is as it was; only where a label failed although it reached the medium, it may have grown.
pub fn grow(
    name: &str,
    members: &[Candidate],
    others: &[Candidate],
    mut fresh: impl FnMut() -> [u8; 16],
    drive: &mut Drive<'_>,
) -> Result<Table, ArrayError> {
    let mut labels = Vec::new();
    for member in members {
        labels.extend(member.label(drive)?.map(|label| (member.place.clone(), label)));
    }
    let found = find(name, &labels)?;
    let before = found.table;
    let stores = found.members.iter().map(|at| {
        let (place, _) = &labels[(*at)?];
        members.iter().find(|member| member.place == *place)
    });
    let Some(mut stores) = stores.collect::<Option<Vec<&Candidate>>>() else {
        return Err(ArrayError::Shape(format!("not all members of {name} are there: an array grows with all of them")));
    };
    for (number, member) in stores.iter().enumerate() {
        check(&before, number, member, drive)?;
    }
    let mut after = before.clone();
    // By that it is told from what a growth before that came to nothing has left on some store, and is known to who had the array before.
    after.begin_run(u128::from_be_bytes(fresh()) as u64, 0..before.members.len());
    after.generation += 1;
    add(&mut after, others, &mut fresh, drive)?;
    stores.extend(others);
    take_room(&mut after, &before, &stores)?;
    for (own, member) in stores.iter().take(before.members.len()).enumerate() {
        claim(member, Label { own, table: before.clone() }, drive)?;
    }
    for (number, member) in stores.iter().enumerate() {
        note_new(&before, &after, number, member, drive)?;
    }
    let (old, new) = (0..before.members.len(), before.members.len()..after.members.len());
    for own in new.chain(old) {
        let (store, label) = (Arc::clone(&stores[own].store), Label { own, table: after.clone() });
        let writing = drive(Box::new(move |completions| write_label(&store, &label, completions)));
        writing.map_err(|error| stores[own].failed(error))?;
    }
    Ok(after)
}

/// A member is as all others are.
fn check(table: &Table, number: usize, member: &Candidate, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
    let refuse = |reason: &str| Err(ArrayError::Member { place: member.place.clone(), reason: reason.to_owned() });
    if table.members[number].standing != Standing::In {
        return refuse("it lacks something: bring it up to date first, or replace it");
    }
    if !(Label { own: number, table: table.clone() }).is_fit(member) {
        return refuse("it has become shorter, is read-only, or has other blocks");
    }
    let group_bytes = table.layout().group_bytes[table.group_of(number)];
    let count = intent::regions(&(0..group_bytes), table.region_bytes).end;
    let length = count.div_ceil(BLOCK_REGIONS) * BLOCK_BYTES;
    let noted = read(&member.store, INTENT_AT, length, drive).map_err(|error| member.failed(error))?;
    if table.copies > 1 && !intent::decode(&noted, count).is_clear() {
        return refuse("copies may differ still: bring the array up to date first");
    }
    Ok(())
}

/// Others come behind the members.
fn add(
    table: &mut Table,
    others: &[Candidate],
    fresh: &mut dyn FnMut() -> [u8; 16],
    drive: &mut Drive<'_>,
) -> Result<(), ArrayError> {
    if others.is_empty() {
        return Ok(());
    }
    if table.arrangement != Arrangement::Concat {
        return Err(ArrayError::Shape(
            "a striped array gets no members behind the others: its members can grow".to_owned(),
        ));
    }
    let count = table.members.len() + others.len();
    if count > label::MEMBERS_MAX || !others.len().is_multiple_of(table.copies) {
        return Err(ArrayError::Shape(format!(
            "{} members cannot be added: an array has up to {}, and of this one each {} hold the same",
            others.len(),
            label::MEMBERS_MAX,
            table.copies
        )));
    }
    for other in others {
        if table.members.iter().any(|member| member.place == other.place) {
            return Err(ArrayError::Member { place: other.place.clone(), reason: "it is a member already".to_owned() });
        }
        // It may have its label already, from a growth that came to no end.
        let is_known = |label: &Label| {
            let own = label.table.members.get(label.own).map(|member| member.id);
            // A member itself, by another way, is none that comes behind the others.
            label.table.array == table.array && !table.members.iter().any(|member| Some(member.id) == own)
        };
        let force = other.label(drive)?.as_ref().is_some_and(is_known);
        let plan = Plan { name: table.name.clone(), arrangement: table.arrangement, copies: table.copies, force };
        let record = record(&plan, other, table.block_bytes, fresh(), drive)?;
        table.members.push(record);
        if !table.has_room() {
            return Err(ArrayError::Member { place: other.place.clone(), reason: label::full(table) });
        }
    }
    Ok(())
}

/// What lies where must not move: of groups that stand one behind the other only those at the end become longer.
fn take_room(after: &mut Table, before: &Table, stores: &[&Candidate]) -> Result<(), ArrayError> {
    let groups = after.members.len() / after.copies;
    let (was, last) = (before.layout().group_bytes, before.members.len() / before.copies - 1);
    let mut room = Vec::new();
    for group in 0..groups {
        let mut least = u64::MAX;
        for number in after.group(group) {
            let member = stores[number];
            least = least.min(label::data_bytes(&member.place, member.store.geometry().length_bytes)?);
        }
        room.push(least);
    }
    let most_even = room.iter().copied().min().unwrap_or(0);
    for (group, least) in room.into_iter().enumerate() {
        let bytes = match after.arrangement {
            Arrangement::Concat if group < last => was[group],
            Arrangement::Concat => least,
            Arrangement::Stripe { .. } => most_even.max(was[group]),
        };
        for number in after.group(group) {
            after.members[number].data_bytes = bytes;
        }
    }
    let most = after.members.iter().map(|member| member.data_bytes).max().unwrap_or(0);
    if most.div_ceil(after.region_bytes) > REGIONS_MAX as u64 {
        after.region_bytes = intent::region_bytes(most);
    }
    if after.members.len() == before.members.len() && after.layout().length_bytes() == before.layout().length_bytes() {
        return Err(ArrayError::Shape(
            "its members have no more room than it takes: of members that stand one behind the other only the last ones grow, of copies and stripes all"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Has a member have all copies of its label where they are to stand now, before anything else changes: where there is no space for that, the
/// array stays as it is.
fn claim(member: &Candidate, label: Label, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
    let store = Arc::clone(&member.store);
    let claiming = move |completions: &CompletionQueue| {
        claim_end(&store, &label, completions).then(completions, move |end, completions| match end {
            Ok(_) => store.start(Request::Flush, completions),
            Err(error) => Started::Done(Err(error)),
        })
    };
    drive(Box::new(claiming)).map(drop).map_err(|error| member.failed(error))
}

/// In what is new the copies may differ.
fn note_new(
    before: &Table,
    after: &Table,
    number: usize,
    member: &Candidate,
    drive: &mut Drive<'_>,
) -> Result<(), ArrayError> {
    let group = after.group_of(number);
    let now = after.layout().group_bytes[group];
    let was = if number < before.members.len() { before.layout().group_bytes[group] } else { 0 };
    let regions = intent::regions(&(was..now), after.region_bytes);
    let mut dirty = FixedBitSet::with_capacity(intent::regions(&(0..now), after.region_bytes).end);
    if after.copies > 1 && now > was {
        dirty.insert_range(regions);
    }
    for block in Intents::new(dirty).all() {
        let (store, data) = (Arc::clone(&member.store), Frame::from(block.encode()).freeze());
        let request = Request::Write { offset_bytes: block.at(), data: data.into() };
        drive(Box::new(move |completions| store.start(request, completions))).map_err(|error| member.failed(error))?;
    }
    let store = Arc::clone(&member.store);
    let flush = drive(Box::new(move |completions| store.start(Request::Flush, completions)));
    flush.map(drop).map_err(|error| member.failed(error))
}

#[cfg(test)]
mod tests;
