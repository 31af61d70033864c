//! An array that becomes longer while it is in use. What lies somewhere stays there, so nothing waits for it but the last step.
//!
//! What is new is made the same on all copies, and stable, before any label says that it is there: nothing is written there until then,
//! and from then on all members have all of it. So at each moment the array is as it was, or as it is to be. The labels change as for
//! members that come in: those that are new have theirs before the others, and a table that not all of its members have does not count.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use sanwire_buffer::{Frame, Slices};
use sanwire_store::{
    Capabilities, Completion, CompletionQueue, ErrorKind, Outcome, Request, ResizeError, Started, Store, StoreError,
    parts,
};

use super::{add, take_room};
use crate::array::Array;
use crate::assembly::whole;
use crate::drive::{Candidate, Drive};
use crate::error::ArrayError;
use crate::group::first_error;
use crate::intent::{self, Intents};
use crate::label::{DATA_AT, Label, Standing, Table};
use crate::locks::Guard;
use crate::state::{Member, Part, Shared, State, gone};
use crate::table_change::{claim_end, write_label};
use crate::unflushed::Unflushed;

/// So much of what is new is compared at once.
const STEP_BYTES: u64 = 1 << 20;

/// What becomes of an array.
struct Growth {
    before: Table,
    after: Table,
    /// What the members were before it began: only those have what is new.
    seen: Vec<Seen>,
    /// The stores of all members, those that are new last.
    stores: Vec<Arc<dyn Store>>,
}

/// How often a member was opened anew, and how often something failed there that was to be stable.
type Seen = (u64, u64);

impl Array {
    /// Takes all that the members have room for, and these `others` behind them, beside all other work. All members must be there and in.
    /// `fresh` gives identities that nothing has had.
    ///
    /// # Errors
    /// [`ArrayError`]: then it is as it was; only where labels could not be written to all members it may have grown when those are back.
    pub fn grow(
        &self,
        others: &[Candidate],
        mut fresh: impl FnMut() -> [u8; 16],
        drive: &mut Drive<'_>,
    ) -> Result<(), ArrayError> {
        let Ok(_alone) = self.shared().growing.try_lock() else {
            return Err(ArrayError::Shape(format!("{} is being made longer already", self.table().name)));
        };
        let shared = Arc::clone(self.shared());
        self.drive(drive, move |completions| shared.settle(completions))?;
        let (before, members, seen) = self.whole_members()?;
        for (own, member) in members.iter().enumerate() {
            // A store elsewhere learns by this, too, that it has become longer.
            let found = member.label(drive)?;
            let is_others = |label: &Label| label.table.array == before.array && label.table.run != before.run;
            if found.as_ref().is_some_and(is_others) {
                return Err(ArrayError::TakenOver { place: member.place.clone() });
            }
            if !(Label { own, table: before.clone() }).is_fit(member) {
                let reason = "it has become shorter, is read-only, or has other blocks".to_owned();
                return Err(ArrayError::Member { place: member.place.clone(), reason });
            }
        }
        let mut after = before.clone();
        add(&mut after, others, &mut fresh, drive)?;
        let all: Vec<&Candidate> = members.iter().chain(others).collect();
        take_room(&mut after, &before, &all)?;
        if after.region_bytes != before.region_bytes {
            return Err(ArrayError::Shape(format!(
                "{} would be too long for what its members note of writes: take it out of use, and let it grow by `sanwire array grow`",
                before.name
            )));
        }
        let stores = all.iter().map(|member| whole(&member.store)).collect();
        let growth = Growth { before, after, seen, stores };
        self.prepare(&growth, drive)?;
        let shared = Arc::clone(self.shared());
        self.drive(drive, move |completions| shared.grow(growth, completions))
    }

    /// The store of a member may be so long now, which it does not notice by itself: a file of this host.
    ///
    /// # Errors
    /// [`ResizeError`]: why it stays as long as it is.
    pub fn lengthen(&self, number: usize, length_bytes: u64) -> Result<(), ResizeError> {
        let store = self.shared().lock().members.get(number).and_then(|member| member.store.clone());
        let Some(store) = store else { return Ok(()) };
        let Capabilities { geometry, grows, .. } = store.capabilities();
        let length_bytes = length_bytes - length_bytes % u64::from(geometry.block_bytes);
        if !grows || length_bytes <= geometry.length_bytes {
            return Ok(());
        }
        let resized = store.resize(length_bytes);
        if matches!(resized, Err(ResizeError::Unstable(_))) {
            // As after a flush that has failed: the next one says so.
            self.shared().lock().members[number].failures.seen += 1;
        }
        resized
    }

    /// The table, and all members, if they are there and in.
    fn whole_members(&self) -> Result<(Table, Vec<Candidate>, Vec<Seen>), ArrayError> {
        let state = &*self.shared().lock();
        let (mut members, mut seen) = (Vec::new(), Vec::new());
        for (record, member) in state.table.members.iter().zip(&state.members) {
            let place = record.place.clone();
            let Some(store) = member.store.clone().filter(|_| record.standing == Standing::In) else {
                let reason = "it is away, or lacks something: an array grows with all of its members".to_owned();
                return Err(ArrayError::Member { place, reason });
            };
            members.push(Candidate { place, store });
            seen.push(seen_of(member));
        }
        Ok((state.table.clone(), members, seen))
    }

    /// Has all members have the same in what is new, and those that are there say that nothing is written there.
    fn prepare(&self, growth: &Growth, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
        let Growth { before, after, .. } = growth;
        let (was, now) = (before.layout().group_bytes, after.layout().group_bytes);
        for (group, end) in now.iter().copied().enumerate() {
            let mut from = was.get(group).copied().unwrap_or(0);
            if from >= end {
                continue;
            }
            while from < end && after.copies > 1 {
                let (copies, length) = (growth.parts(group), STEP_BYTES.min(end - from) as usize);
                let shared = Arc::clone(self.shared());
                self.drive(drive, move |completions| shared.make_same(copies, DATA_AT + from, length, completions))?;
                from += length as u64;
            }
            if group < was.len() {
                self.shared().lock().intents[group].grow(intent::regions(&(0..end), after.region_bytes).end);
                // That makes stable what was copied, too.
                self.note(group, drive)?;
            }
        }
        Ok(())
    }
}

fn seen_of(member: &Member) -> Seen {
    (member.incarnation, member.failures.seen)
}

/// A member that is new gets its label, and then says that nothing is written there: by its label it is known if it comes to nothing.
fn begin_member(store: &Arc<dyn Store>, label: &Label, completions: &CompletionQueue) -> Started {
    let bytes = label.table.layout().group_bytes[label.table.group_of(label.own)];
    let regions = intent::regions(&(0..bytes), label.table.region_bytes).end;
    let store = Arc::clone(store);
    write_label(&store, label, completions).then(completions, move |end, completions| {
        if let Err(error) = end {
            return Started::Done(Err(error));
        }
        let blocks = Intents::new(FixedBitSet::with_capacity(regions)).all();
        let writes = blocks.iter().map(|block| {
            let request = Request::Write { offset_bytes: block.at(), data: block.encode().into() };
            store.start(request, completions)
        });
        parts::all(writes.collect(), completions).then(completions, move |end, completions| match end {
            Ok(_) => store.start(Request::Flush, completions),
            Err(error) => Started::Done(Err(error)),
        })
    })
}

impl Shared {
    /// Writes what the first of these has to those that have something else. What is equal is not written: it may take no space there.
    fn make_same(
        self: Arc<Self>,
        copies: Vec<Part>,
        offset_bytes: u64,
        length: usize,
        completions: &CompletionQueue,
    ) -> Started {
        let read = |part: &Part| match Frame::zeroed(length) {
            Some(buffer) => part.store.start(Request::Read { offset_bytes, buffer }, completions),
            None => Started::Done(Err(gone())),
        };
        let reads = copies.iter().map(read).collect();
        Started::join(reads, completions, move |ends, completions| {
            let mut found = Vec::new();
            for end in ends {
                match end {
                    Ok(Outcome::Read(frame)) => found.push(frame.freeze()),
                    Ok(_) => return Started::Done(Err(gone())),
                    Err(error) => return Started::Done(Err(error)),
                }
            }
            let Some(first) = found.first() else { return Started::Done(Ok(Outcome::Done)) };
            let data = Slices::from(first.clone());
            let others = copies.into_iter().zip(&found).filter(|(_, copy)| copy[..] != first[..]);
            let others: Vec<Part> = others.map(|(part, _)| part).collect();
            let write = |part: &Part| {
                let request = Request::Write { offset_bytes, data: data.clone() };
                part.store.start(request, completions)
            };
            let writes = others.iter().map(write).collect();
            Started::join(writes, completions, move |ends, _| self.all_done(&others, ends))
        })
    }

    /// Whether all of these have done what was asked. A member that does not answer is given up: it may do it later, when something else
    /// was written there.
    fn all_done(&self, parts: &[Part], ends: Vec<Completion>) -> Started {
        for (part, end) in parts.iter().zip(&ends).filter(|(part, _)| part.is_in) {
            if let Err(error) = end
                && matches!(error.kind, ErrorKind::Gone | ErrorKind::Other)
            {
                self.fail(part, error);
            }
        }
        Started::Done(first_error(ends).map_or(Ok(Outcome::Done), Err))
    }

    /// Has all members have all copies of their labels where they are to stand now, before anything else changes: where there is no space for
    /// one at the end, there is none for what is to be written before it, either.
    fn claim_ends(self: &Arc<Self>, completions: &CompletionQueue) -> Started {
        let (table, parts) = {
            let state = self.lock();
            (state.table.clone(), state.present())
        };
        let claim = |part: &Part| {
            let (shared, part) = (Arc::clone(self), part.clone());
            let label = Label { own: part.member, table: table.clone() };
            claim_end(&part.store, &label, completions).then(completions, move |end, completions| match end {
                Ok(_) => shared.watch(&part, part.store.start(Request::Flush, completions), completions),
                Err(error) => Started::Done(Err(error)),
            })
        };
        let claims = parts.iter().map(claim).collect();
        let shared = Arc::clone(self);
        Started::join(claims, completions, move |ends, _| shared.all_done(&parts, ends))
    }

    /// Has the labels of all members say what the array is now. What is written meanwhile does not wait for that: by the labels of before the
    /// same members are in. A flush does, so that labels which could not be written are tried again.
    fn grow(self: &Arc<Self>, growth: Growth, completions: &CompletionQueue) -> Started {
        let table = {
            let state = &mut *self.lock();
            if let Err(error) = growth.check(state) {
                return Started::Done(Err(error));
            }
            Table { generation: state.next_table(&[]).generation, ..growth.after.clone() }
        };
        // Those that are new have their labels before the others know them: where that fails, nothing has changed. They may be slow, so
        // others may change the table meanwhile, which a write waits for if a member fails: then what they have came to nothing.
        let (first, new) = (growth.before.members.len(), growth.stores.iter().enumerate());
        let writes = new.skip(first).map(|(own, store)| {
            let label = Label { own, table: table.clone() };
            begin_member(store, &label, completions)
        });
        let shared = Arc::clone(self);
        Started::join(writes.collect(), completions, move |ends, completions| {
            if let Some(error) = first_error(ends) {
                return Started::Done(Err(error));
            }
            let table_turn = Arc::clone(&shared.table_turn);
            table_turn.with(0..1, completions, move |turn, completions| {
                if let Err(error) = growth.check(&shared.lock()) {
                    return Started::Done(Err(error));
                }
                shared.claim_ends(completions).then(completions, move |end, completions| match end {
                    Ok(_) => shared.grow_in_turn(turn, &growth, table, completions),
                    Err(error) => Started::Done(Err(error)),
                })
            })
        })
    }

    /// The same by who has the turn, when all members have all copies of their labels, and those that are new have this table.
    fn grow_in_turn(
        self: Arc<Self>,
        turn: Guard,
        growth: &Growth,
        table: Table,
        completions: &CompletionQueue,
    ) -> Started {
        let others: Option<Vec<Part>> = {
            let state = &mut *self.lock();
            // Once more: labels were written meanwhile.
            if let Err(error) = growth.check(state) {
                return Started::Done(Err(error));
            }
            growth.begin(state, table.clone());
            self.look_at_discards(state);
            let is_newest = state.newest_generation == table.generation;
            let first = growth.before.members.len();
            is_newest.then(|| state.present().into_iter().filter(|part| part.member < first).collect())
        };
        match others {
            // They get the same label as those that are new: what becomes of these from now on keeps nobody from that.
            Some(others) => self.publish(turn, table, vec![others].into_iter(), completions),
            None => self.settle_in_turn(turn, completions),
        }
    }
}

impl Growth {
    /// What a group consists of then.
    fn parts(&self, group: usize) -> Vec<Part> {
        let part = |member: usize| {
            let seen = self.seen.get(member);
            let (store, incarnation) =
                (Arc::clone(&self.stores[member]), seen.map_or(0, |(incarnation, _)| *incarnation));
            Part { member, store, incarnation, is_in: seen.is_some() }
        };
        self.after.group(group).map(part).collect()
    }

    /// Whether the members are what they were when it began, so that they have what was done there for it.
    fn check(&self, state: &State) -> Result<(), StoreError> {
        let is_same = |(seen, member): (&Seen, &Member)| member.store.is_some() && *seen == seen_of(member);
        let are_same = self.before.members == state.table.members && self.seen.iter().zip(&state.members).all(is_same);
        if are_same && state.is_settled() {
            return Ok(());
        }
        let what = "a member went away, or failed, or was replaced meanwhile: do it again when all are there";
        Err(StoreError { source: Some(std::io::Error::other(what)), ..StoreError::new(ErrorKind::Other, 0) })
    }

    /// From now on it is so, if the labels of all members can say it.
    fn begin(&self, state: &mut State, table: Table) {
        let layout = table.layout();
        let regions = layout.group_bytes.iter().map(|bytes| intent::regions(&(0..*bytes), table.region_bytes).end);
        for (group, count) in regions.enumerate() {
            if group == state.intents.len() {
                state.intents.push(Intents::new(FixedBitSet::with_capacity(count)));
                state.unflushed.push(Unflushed::default());
                state.copied_from.push(0);
            }
            state.intents[group].grow(count);
            for number in table.group(group) {
                if number == state.members.len() {
                    let store = Arc::clone(&self.stores[number]);
                    state.members.push(Member::new(Some(store), FixedBitSet::new()));
                }
                state.members[number].behind.grow(count);
            }
        }
        state.former = Some(std::mem::replace(&mut state.table, table));
    }
}
