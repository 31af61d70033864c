//! Members that come back, are opened anew, or are replaced, while the array is in use.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::array::Array;
use crate::assembly::{is_of_others, is_taken_over, whole};
use crate::drive::{Candidate, Drive, read};
use crate::error::ArrayError;
use crate::label::{self, Label, Standing};
use crate::making::HEAD_BYTES;
use crate::state::State;
use crate::table_change::renew_label;

impl Array {
    /// A member is back that was out: what it lacks is copied to it from now on.
    ///
    /// # Errors
    /// [`ArrayError::Split`]: it was used apart from the others. [`ArrayError::TakenOver`]: another host has had the array since.
    /// [`ArrayError::Member`]: it is another volume, or in use.
    pub fn rejoin(&self, number: usize, candidate: &Candidate, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
        // It is out before it comes in: what was written meanwhile is known then.
        let shared = Arc::clone(self.shared());
        let settled = self.drive(drive, move |completions| shared.settle(completions));
        let found = candidate.label(drive)?;
        let (label, table) = {
            let state = &*self.shared().lock();
            if let Err(error) = settled {
                // Its label tells all the same whether another host has had it.
                return own_label(state, number, candidate, found).and(Err(error));
            }
            can_rejoin(state, number, candidate)?;
            let label = own_label(state, number, candidate, found)?;
            if is_of_others(&state.table, number, &label) {
                return Err(ArrayError::Split { one: state.table.name.clone(), other: candidate.place.clone() });
            }
            if state.table.is_before_out(number, &label.table) {
                return refuse(
                    candidate,
                    "it is older than the member was when it went out, so it is a copy, or was rolled back: bring the member itself back, or \
                     let this one take its place anew by replacing it",
                );
            }
            if !state.is_settled() {
                return refuse(candidate, "another member comes or goes just now");
            }
            (label, state.table.clone())
        };
        let id = table.members[number].id;
        if label.table.run != table.run || label.table.is_in(label.own) {
            // From now on it is a mixture of old and new: by no label it may be taken for what it was, nor by a host that had it before.
            let (store, label) = (Arc::clone(&candidate.store), Label { own: number, table });
            drive(Box::new(move |completions| renew_label(&store, &label, completions)))
                .map_err(|error| candidate.failed(error))?;
        }
        let group = {
            let state = &mut *self.shared().lock();
            // Once more: the label was written meanwhile.
            let is_whole = can_rejoin(state, number, candidate)?;
            if state.table.members[number].id != id {
                return refuse(candidate, "another volume has taken its place meanwhile");
            }
            let group = state.table.group_of(number);
            let mut behind = FixedBitSet::with_capacity(self.shared().region_count(group));
            if is_whole {
                behind.insert_range(..);
            } else {
                behind.union_with(state.intents[group].dirty());
            }
            state.put_back(number, whole(&candidate.store), behind);
            self.shared().look_at_discards(state);
            group
        };
        let noted = self.note(group, drive);
        if noted.is_err() {
            // What it has noted is not what the others have.
            let store = self.shared().lock().members[number].store.take();
            store.into_iter().for_each(|store| store.abandon());
        }
        noted
    }

    /// Ends the store of a member that is kept and over ([`crate::MemberStatus::is_over`]), so that its place can be opened again. `false`:
    /// it is not such a one.
    pub fn let_go(&self, number: usize) -> bool {
        let store = self.shared().lock().members[number].store.clone().filter(|store| store.is_over());
        store.inspect(|store| store.abandon()).is_some()
    }

    /// A member that is kept, because the array does not go on without it, has this store in place of one that is over.
    ///
    /// What was answered and not flushed may have been lost with that: where no other member has it, the next flush says so.
    ///
    /// # Errors
    /// [`ArrayError::TakenOver`]: another host has had the array since. [`ArrayError::Member`]: it is another volume, or one that works.
    pub fn reopen(&self, number: usize, candidate: &Candidate, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
        let found = candidate.label(drive)?;
        let group = {
            let state = &mut *self.shared().lock();
            let is_over = state.members[number].store.as_ref().is_some_and(|store| store.is_over());
            if !is_over || !state.table.is_in(number) {
                return refuse(candidate, "it is not waited for");
            }
            let label = own_label(state, number, candidate, found)?;
            if label.table.run != state.table.run {
                return refuse(candidate, "it is older than it was, so it is a copy, or was rolled back");
            }
            state.reopened(number, whole(&candidate.store));
            self.shared().look_at_discards(state);
            state.table.group_of(number)
        };
        self.note(group, drive)
    }

    /// Looks at the label of a member whether another host has begun to use the array since: for members that nothing keeps from that.
    ///
    /// # Errors
    /// [`ArrayError::TakenOver`], or [`ArrayError::Illegible`], which this host has not written. What cannot be read now says nothing.
    pub fn check_owned(&self, number: usize, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
        let candidate = {
            let state = &*self.shared().lock();
            // The label of one that is coming in is not written yet.
            let store = state.members[number].store.clone().filter(|_| state.is_settled() && state.table.is_in(number));
            let Some(store) = store else { return Ok(()) };
            Candidate { place: state.table.members[number].place.clone(), store }
        };
        let found = match candidate.label(drive) {
            Err(error @ ArrayError::Illegible { .. }) => return Err(error),
            found => found.ok().flatten(),
        };
        let state = &*self.shared().lock();
        let table = &state.table;
        let is_others = |label: &Label| label.table.array == table.array && label.table.run != table.run;
        match found.filter(is_others) {
            Some(_) => Err(ArrayError::TakenOver { place: candidate.place }),
            None => Ok(()),
        }
    }

    pub(crate) fn note(&self, group: usize, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
        let shared = Arc::clone(self.shared());
        self.drive(drive, move |completions| shared.note_all(group, completions))
    }

    /// Another volume takes the place of a member that is away: all is copied to it.
    ///
    /// # Errors
    /// [`ArrayError::Member`]: the member is there, or the volume is not fit for its place, or holds something.
    pub fn replace(
        &self,
        number: usize,
        candidate: &Candidate,
        id: [u8; 16],
        drive: &mut Drive<'_>,
    ) -> Result<(), ArrayError> {
        let shared = Arc::clone(self.shared());
        self.drive(drive, move |completions| shared.settle(completions))?;
        let refuse = |reason: String| Err(ArrayError::Member { place: candidate.place.clone(), reason });
        if candidate.place.len() > label::PLACE_MAX_BYTES {
            return refuse(format!("that is longer than the {} bytes that a label has for it", label::PLACE_MAX_BYTES));
        }
        let old = candidate.label(drive)?;
        let head = read(&candidate.store, 0, HEAD_BYTES, drive).map_err(|error| candidate.failed(error))?;
        {
            let state = &*self.shared().lock();
            if state.members[number].store.is_some() || state.table.is_in(number) {
                return refuse(format!("member {} is there: only one that is away is replaced", number + 1));
            }
            // What was this member may be it again.
            let was = |label: &Label| label.table.members[label.own].id == state.table.members[number].id;
            if head.iter().any(|byte| *byte != 0) && !old.as_ref().is_some_and(was) {
                return refuse(
                    "it holds something, which would be lost: clear its first 128 KiB if that is meant".to_owned(),
                );
            }
            let mut table = state.table.clone();
            table.members[number].place.clone_from(&candidate.place);
            if !table.has_room() {
                return refuse(label::full(&table));
            }
            if !(Label { own: number, table }).is_fit(candidate) {
                return refuse("it is smaller than the member, read-only, or has other blocks".to_owned());
            }
        }
        let (shared, new) = (Arc::clone(self.shared()), candidate.clone());
        self.drive(drive, move |completions| shared.replace(number, new, id, completions))?;
        self.rejoin(number, candidate, drive)
    }
}

/// Whether a member is out and away, so that it can come back: then, whether it lacks all.
fn can_rejoin(state: &State, number: usize, candidate: &Candidate) -> Result<bool, ArrayError> {
    let Standing::Out { is_whole, .. } = state.table.members[number].standing else {
        return refuse(candidate, "it is in already");
    };
    if state.members[number].store.is_some() {
        return refuse(candidate, "it is being brought up to date already");
    }
    Ok(is_whole)
}

fn refuse<T>(candidate: &Candidate, reason: &str) -> Result<T, ArrayError> {
    Err(ArrayError::Member { place: candidate.place.clone(), reason: reason.to_owned() })
}

/// The label on a volume, if it is that of this member, and nobody else has had it since.
fn own_label(state: &State, number: usize, candidate: &Candidate, found: Option<Label>) -> Result<Label, ArrayError> {
    let is_own = |label: &Label| {
        label.table.array == state.table.array && label.table.members[label.own].id == state.table.members[number].id
    };
    match found.filter(is_own) {
        None => refuse(candidate, "it has not the label of this member"),
        Some(label) if is_taken_over(&state.table, &label) => {
            Err(ArrayError::TakenOver { place: candidate.place.clone() })
        }
        // It may have been shorter when it went away than it is to be now.
        Some(label)
            if !label.is_fit(candidate) || !Label { own: number, table: state.table.clone() }.is_fit(candidate) =>
        {
            refuse(candidate, "it has become shorter, is read-only, or has other blocks")
        }
        Some(label) => Ok(label),
    }
}
