//! Which members make an array, as their labels say: never older ones where there may be newer ones.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use sanwire_store::layer::{Over, SplitLayer};
use sanwire_store::{ErrorKind, Store};

use crate::array::Array;
use crate::drive::{Candidate, Drive, read};
use crate::error::ArrayError;
use crate::intent::{self, BLOCK_BYTES, BLOCK_REGIONS, Intents};
use crate::label::{INTENT_AT, Label, Standing, Table};
use crate::state::{Member, Shared};

/// What was found of an array.
#[derive(Clone, Debug)]
pub struct Found {
    /// The newest table.
    pub table: Table,
    /// For each member, which of the candidates it is.
    pub members: Vec<Option<usize>>,
}

impl Found {
    /// Where those members were when they came in that are not among the candidates.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        let members = self.table.members.iter().zip(&self.members);
        members.filter(|(_, found)| found.is_none()).map(|(member, _)| member.place.as_str())
    }

    /// Whether the array can be assembled of these, without force.
    ///
    /// # Errors
    /// [`ArrayError::Incomplete`], [`ArrayError::NoQuorum`].
    pub fn check(&self) -> Result<(), ArrayError> {
        self.check_parts()?;
        for group in 0..self.table.members.len() / self.table.copies {
            let wanted = self.table.in_group(group).count();
            let missing: Vec<_> = self.table.in_group(group).filter(|member| self.members[*member].is_none()).collect();
            let present = wanted - missing.len();
            if present * 2 <= wanted {
                let missing = self.table.places(missing.into_iter());
                return Err(ArrayError::NoQuorum { present, wanted, missing });
            }
        }
        Ok(())
    }

    fn check_parts(&self) -> Result<(), ArrayError> {
        for group in 0..self.table.members.len() / self.table.copies {
            if !self.table.in_group(group).any(|member| self.members[member].is_some()) {
                return Err(ArrayError::Incomplete { missing: self.table.places(self.table.group(group)) });
            }
        }
        Ok(())
    }
}

/// Finds the members of an array among volumes, by their labels.
///
/// A table counts only where all members have it that are in by it, or what became of it, as far as they were found: another one was about
/// to be made when its host ended, and nothing was acknowledged by it. Of those that count the one that has a quorum is the array's.
///
/// # Errors
/// [`ArrayError::Unknown`], [`ArrayError::Ambiguous`], [`ArrayError::Twice`], [`ArrayError::Split`], [`ArrayError::Older`].
pub fn find(name: &str, labels: &[(String, Label)]) -> Result<Found, ArrayError> {
    let own: Vec<_> = labels.iter().enumerate().filter(|(_, (_, label))| label.table.name == name).collect();
    let Some((_, (_, first))) = own.first() else { return Err(ArrayError::Unknown { name: name.to_owned() }) };
    if let Some((_, (_, other))) = own.iter().find(|(_, (_, label))| label.table.array != first.table.array) {
        let hex = |label: &Label| data_encoding::HEXLOWER.encode(&label.table.array);
        return Err(ArrayError::Ambiguous { name: name.to_owned(), one: hex(first), other: hex(other) });
    }
    let counts: Vec<_> =
        own.iter().filter(|(_, (_, label))| own.iter().all(|(_, (_, other))| agrees(other, label))).collect();
    let newer = |label: &Label| {
        let became = |other: &Label| other.table.descends_from(&label.table) || other.table.rules_out(&label.table);
        counts.iter().any(|(_, (_, other))| other.table != label.table && became(other))
    };
    let newest: Vec<_> = counts.iter().filter(|(_, (_, label))| !newer(label)).collect();
    let mut found = Vec::<(Found, &str)>::new();
    for (_, (place, label)) in &newest {
        if !found.iter().any(|(known, _)| known.table == label.table) {
            found.push((members_of(&label.table, &own, labels)?, place));
        }
    }
    // One that has a quorum comes first, and of those that have none the one that was changed most.
    found.sort_by_key(|(found, _)| (found.check().is_err(), std::cmp::Reverse(found.table.generation)));
    if let [(one, place), (other, other_place), ..] = &found[..]
        && one.check().is_ok() == other.check().is_ok()
        && (0..one.table.members.len() / one.table.copies).any(|group| are_apart(&one.table, &other.table, group))
    {
        return Err(ArrayError::Split { one: (*place).to_owned(), other: (*other_place).to_owned() });
    }
    let (found, place) = found.into_iter().next().ok_or_else(|| ArrayError::Unknown { name: name.to_owned() })?;
    for (_, (place, label)) in own.iter().filter(|(_, (_, label))| label.table.descends_from(&found.table)) {
        if let Some((_, (older, _))) = own.iter().find(|(_, (_, other))| is_older_copy(other, &label.table)) {
            return Err(ArrayError::Older { older: older.clone(), newer: place.clone() });
        }
    }
    for (number, member) in found.members.iter().enumerate() {
        let Some((other, label)) = member.map(|candidate| &labels[candidate]) else { continue };
        if is_apart(&found.table, number, label) {
            return Err(ArrayError::Split { one: place.to_owned(), other: other.clone() });
        }
    }
    Ok(found)
}

/// Whether a member does not contradict that the label of another one counts.
fn agrees(member: &Label, label: &Label) -> bool {
    let id = member.table.members[member.own].id;
    let number = label.table.members.iter().position(|record| record.id == id);
    number.is_none_or(|number| !label.table.is_in(number)) || member.table.descends_from(&label.table)
}

/// Which candidates are the members of a table.
fn members_of(
    table: &Table,
    own: &[(usize, &(String, Label))],
    labels: &[(String, Label)],
) -> Result<Found, ArrayError> {
    let mut members = vec![None; table.members.len()];
    for (candidate, (place, label)) in own {
        let id = label.table.members[label.own].id;
        // Another volume took the place of what is no member any more.
        let Some(number) = table.members.iter().position(|member| member.id == id) else { continue };
        if let Some(other) = members[number].replace(*candidate) {
            let (one, other) = (labels[other].0.clone(), place.clone());
            return Err(ArrayError::Twice { one, other, number: number + 1 });
        }
    }
    Ok(Found { table: table.clone(), members })
}

/// Whether what bears the label of a member is not what that member is: by the newer table the last run but one has found it, so that its
/// own label is of that run or of the one after. An older one came back by a snapshot, say, and what was written since is not there.
fn is_older_copy(label: &Label, newer: &Table) -> bool {
    let id = label.table.members[label.own].id;
    let Some(number) = newer.members.iter().position(|member| member.id == id) else { return false };
    let Some(last) = newer.runs.last() else { return false };
    newer.is_in(number)
        && last.taken_over & (1 << number) != 0
        && newer.descends_from(&label.table)
        && ![newer.run, last.number].contains(&label.table.run)
}

/// Whether no member of a group is in by both tables: then each may have been written without the other.
fn are_apart(one: &Table, other: &Table, group: usize) -> bool {
    let is_in = |id: &[u8; 16]| other.members.iter().any(|member| member.id == *id && member.standing == Standing::In);
    !one.in_group(group).any(|member| is_in(&one.members[member].id))
}

/// Whether a member that is out may have been written without those that are in.
pub(crate) fn is_apart(table: &Table, number: usize, label: &Label) -> bool {
    label.table.is_in(label.own) && is_of_others(table, number, label)
}

/// The same, also if it is out by its own label: it may have been on its way in there, and was written then.
pub(crate) fn is_of_others(table: &Table, number: usize, label: &Label) -> bool {
    !table.is_in(number)
        && !table.descends_from(&label.table)
        && !table.rules_out(&label.table)
        && are_apart(table, &label.table, table.group_of(number))
}

/// Whether somebody else has had the array after the host whose table this is.
pub(crate) fn is_taken_over(table: &Table, label: &Label) -> bool {
    label.table.runs.iter().any(|run| run.number == table.run)
}

/// Assembles an array of these candidates. `force` takes what is there, though others may be newer; `run` is a number that nobody has had.
///
/// # Errors
/// [`ArrayError`].
pub fn assemble(
    name: &str,
    candidates: &[Candidate],
    force: bool,
    run: u64,
    drive: &mut Drive<'_>,
) -> Result<Array, ArrayError> {
    let (labels, labelled) = labelled(candidates, drive);
    let found = find(name, &labels)?;
    if force {
        found.check_parts()?
    } else {
        found.check()?
    }
    let Found { mut table, members } = found;
    let is_stray = |found: &Option<usize>| found.is_some_and(|candidate| labels[candidate].1.table != table);
    let stray: Vec<_> = members.iter().map(is_stray).collect();
    let there: Vec<_> =
        (0..members.len()).filter(|number| table.is_in(*number) && members[*number].is_some()).collect();
    table.begin_run(run, there.into_iter());
    if force {
        // What was thought to be missing is out from now on, and whoever finds it later sees that.
        let since = table.generation + 1;
        let missing = table.members.iter_mut().zip(&members).filter(|(_, found)| found.is_none());
        missing.filter(|(member, _)| member.standing == Standing::In).for_each(|(member, _)| {
            member.standing = Standing::Out { since, is_whole: false };
        });
        table.generation = since;
    }
    let (mut intents, mut runtime) = (Vec::new(), Vec::<Member>::new());
    for group in 0..table.members.len() / table.copies {
        let stores = members[table.group(group)].iter().map(|found| found.map(|candidate| labelled[candidate]));
        let (of_group, dirty) = open_group(&table, group, &stores.collect::<Vec<_>>(), drive)?;
        runtime.extend(of_group);
        intents.push(Intents::new(dirty));
    }
    runtime.iter_mut().zip(stray).for_each(|(member, is_stray)| member.is_stray = is_stray);
    let array = Array::new(Shared::new(table, runtime, intents));
    array.open(drive)?;
    for (number, candidate) in members.iter().enumerate().filter_map(|(number, found)| Some((number, (*found)?))) {
        if !array.is_in(number)
            && let Err(error) = array.rejoin(number, labelled[candidate], drive)
        {
            // It stays out.
            array.tell_error(number, &error);
        }
    }
    Ok(array)
}

/// The labels of those candidates that have one, and these candidates. One that cannot be read, or is not what it was, is not there.
pub(crate) fn labelled<'a>(
    candidates: &'a [Candidate],
    drive: &mut Drive<'_>,
) -> (Vec<(String, Label)>, Vec<&'a Candidate>) {
    let label = |candidate: &'a Candidate| {
        let label = candidate.label(drive).ok().flatten().filter(|label| label.is_fit(candidate))?;
        Some(((candidate.place.clone(), label), candidate))
    };
    candidates.iter().filter_map(label).unzip()
}

/// The members of a group that are in, and the regions in which they may differ: the first of them is the truth.
fn open_group(
    table: &Table,
    group: usize,
    found: &[Option<&Candidate>],
    drive: &mut Drive<'_>,
) -> Result<(Vec<Member>, FixedBitSet), ArrayError> {
    let count = intent::regions(&(0..table.layout().group_bytes[group]), table.region_bytes).end;
    let mut dirty = FixedBitSet::with_capacity(count);
    let mut members = Vec::new();
    for (number, candidate) in table.group(group).zip(found) {
        let store = match candidate.filter(|_| table.is_in(number)) {
            Some(candidate) => {
                let length = count.div_ceil(BLOCK_REGIONS) * BLOCK_BYTES;
                let bytes = match read(&candidate.store, INTENT_AT, length, drive) {
                    Ok(frame) => frame.to_vec(),
                    // All may differ.
                    Err(error) if error.kind == ErrorKind::Unreadable => Vec::new(),
                    Err(error) => return Err(candidate.failed(error)),
                };
                dirty.union_with(&intent::decode(&bytes, count));
                Some(whole(&candidate.store))
            }
            None => None,
        };
        members.push(Member::new(store, FixedBitSet::with_capacity(count)));
    }
    let there = members.iter_mut().filter(|member| member.store.is_some());
    there.skip(1).for_each(|member| member.behind.union_with(&dirty));
    Ok((members, dirty))
}

/// The store with ranges of any length.
pub(crate) fn whole(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    match store.capabilities().range_max_bytes {
        Some(_) => Arc::new(Over::new(SplitLayer, Arc::clone(store))),
        None => Arc::clone(store),
    }
}

#[cfg(test)]
mod tests;
