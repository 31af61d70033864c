//! Changes of the table: who is out before a write is acknowledged that it does not have, and who is in again.

use std::sync::Arc;

use sanwire_buffer::{Frame, Slices};
use sanwire_store::{Completion, CompletionQueue, ErrorKind, Outcome, Request, Started, Store, StoreError, parts};

use crate::drive::Candidate;
use crate::label::{self, Label, MemberRecord, SECOND_AT, Standing, Table};
use crate::locks::Guard;
use crate::state::{Part, Shared, State, gone};

impl State {
    /// Whether what all members have that are in may be acknowledged, whichever labels count: all are there, and where the labels are about to
    /// change, it is only because the array becomes longer. By those of before the same members are in.
    fn is_sure(&self) -> bool {
        let is_same = |(was, is): (&MemberRecord, &MemberRecord)| (was.id, was.standing) == (is.id, is.standing);
        // Before the first labels of a run have been written, both tables are of one generation.
        let only_grows = |former: &Table| {
            former.generation < self.table.generation && former.members.iter().zip(&self.table.members).all(is_same)
        };
        self.lost().is_empty() && self.fallen().next().is_none() && self.former.as_ref().is_none_or(only_grows)
    }
}

impl Shared {
    /// Goes on when what all members have that are in may be acknowledged. Unlike [`Shared::settle`] it does not wait for the labels of an
    /// array that becomes longer, which may be slow at a member that has nothing to do with it.
    pub(crate) fn acknowledge(self: &Arc<Self>, completions: &CompletionQueue) -> Started {
        if self.lock().is_sure() {
            return Started::Done(Ok(Outcome::Done));
        }
        self.settle(completions)
    }

    /// Goes on when the labels of all members that are in say who is in, and none of those is away.
    pub(crate) fn settle(self: &Arc<Self>, completions: &CompletionQueue) -> Started {
        if self.lock().is_settled() {
            return Started::Done(Ok(Outcome::Done));
        }
        let shared = Arc::clone(self);
        self.table_turn.with(0..1, completions, move |turn, completions| shared.settle_in_turn(turn, completions))
    }

    /// The same by who has the turn, which is held as long as this lasts.
    pub(crate) fn settle_in_turn(self: Arc<Self>, turn: Guard, completions: &CompletionQueue) -> Started {
        let (table, stages) = {
            let state = &mut *self.lock();
            if state.is_settled() {
                return Started::Done(Ok(Outcome::Done));
            }
            let lost = state.lost();
            let Some(fallen) = state.to_be_out().filter(|_| state.goes_on_without(&lost)) else {
                return Started::Done(Err(gone()));
            };
            let table = state.next_table(&[&lost[..], &fallen].concat());
            // Who is to be out while it is there knows it before the others: with some that are away, it could be taken for the array
            // otherwise. So does who has a label that came to nothing: as long as the others have theirs, that one counts, and none would
            // if they had this one without it. Who comes in has the label before the others: where those have it, it does.
            let is_first = |part: &Part| fallen.contains(&part.member) || state.members[part.member].is_stray;
            let (first, rest): (Vec<_>, Vec<_>) = state.present().into_iter().partition(is_first);
            let was_in = |part: &Part| state.former.as_ref().is_none_or(|former| former.is_in(part.member));
            let (others, new): (Vec<_>, Vec<_>) = rest.into_iter().partition(was_in);
            (table, vec![first, new, others])
        };
        self.publish(turn, table, stages.into_iter(), completions)
    }

    /// Writes labels to these members, to some after the others. Those that fail are given up.
    pub(crate) fn publish(
        self: Arc<Self>,
        turn: Guard,
        table: Table,
        mut stages: std::vec::IntoIter<Vec<Part>>,
        completions: &CompletionQueue,
    ) -> Started {
        let Some(parts) = stages.next() else {
            {
                let state = &mut *self.lock();
                state.published(table);
                // What has come behind the rest is written from now on: all that are to know of it do.
                self.show(state.table.layout());
            }
            return self.settle_in_turn(turn, completions);
        };
        let write = |part: &Part| {
            let label = Label { own: part.member, table: table.clone() };
            self.watch(part, renew_label(&part.store, &label, completions), completions)
        };
        let writes = parts.iter().map(write).collect();
        Started::join(writes, completions, move |ends, completions| {
            let failed: Vec<_> = ends.iter().map(Result::is_err).collect();
            let is_everywhere = self.fail_those(&parts, &ends);
            self.judged(&parts, &failed);
            if is_everywhere {
                return self.publish(turn, table, stages, completions);
            }
            // One that has failed and is kept is the last one of its group.
            let is_stuck = parts.iter().all(|part| self.lock().members[part.member].store.is_some());
            if is_stuck { Started::Done(Err(gone())) } else { self.settle_in_turn(turn, completions) }
        })
    }

    /// A member has all that was written, and it is stable there: it is in.
    pub(crate) fn include(self: &Arc<Self>, part: Part, completions: &CompletionQueue) -> Started {
        let shared = Arc::clone(self);
        self.table_turn.with(0..1, completions, move |turn, completions| {
            {
                let state = &mut *shared.lock();
                let member = &state.members[part.member];
                let is_there = member.store.as_ref().is_some_and(|store| Arc::ptr_eq(store, &part.store));
                if !is_there || !member.behind.is_clear() || !state.is_settled() {
                    return Started::Done(Ok(Outcome::Done));
                }
                // From now on no write is acknowledged that it does not have; and until all labels say so, none that the others do not.
                state.former = Some(state.table.clone());
                state.table.members[part.member].standing = Standing::In;
            }
            shared.settle_in_turn(turn, completions)
        })
    }

    /// Another volume has the place of a member that is away, and lacks all; the labels of all say so.
    pub(crate) fn replace(
        self: &Arc<Self>,
        number: usize,
        new: Candidate,
        id: [u8; 16],
        completions: &CompletionQueue,
    ) -> Started {
        let shared = Arc::clone(self);
        self.table_turn.with(0..1, completions, move |turn, completions| {
            let label = {
                let state = &mut *shared.lock();
                if state.members[number].store.is_some() || state.table.is_in(number) {
                    return Started::Done(Err(came_back(number)));
                }
                if !state.is_settled() {
                    // Some may have one label and some the other: a third one is for later.
                    return Started::Done(Err(gone()));
                }
                let mut table = state.next_table(&[]);
                table.put_new(number, id, new.place);
                Label { own: number, table }
            };
            // It has its label before the others know it: without it they do not take it.
            write_label(&new.store, &label, completions).then(completions, move |end, completions| {
                if let Err(error) = end {
                    return Started::Done(Err(error));
                }
                {
                    let state = &mut *shared.lock();
                    // Once more: the label was written meanwhile.
                    if state.members[number].store.is_some() || state.table.is_in(number) {
                        return Started::Done(Err(came_back(number)));
                    }
                    state.former = Some(std::mem::replace(&mut state.table, label.table));
                }
                shared.settle_in_turn(turn, completions)
            })
        })
    }

    /// Gives up the members whose requests have failed; `true`: none has.
    pub(crate) fn fail_those(&self, parts: &[Part], ends: &[Completion]) -> bool {
        let failed = parts.iter().zip(ends).filter_map(|(part, end)| Some((part, end.as_ref().err()?)));
        failed.map(|(part, error)| _ = self.fail(part, error)).count() == 0
    }
}

fn came_back(number: usize) -> StoreError {
    let what = format!("member {} came back meanwhile, so it is not replaced", number + 1);
    StoreError { source: Some(std::io::Error::other(what)), ..StoreError::new(ErrorKind::Other, 0) }
}

/// Writes all copies of a label. Of the two at the beginning, the newer one that is whole is written when the other one is stable: so it
/// stands there until that is whole. The one at the end may not stand where anybody finds it by then. Those of another array do not count.
pub(crate) fn write_label(store: &Arc<dyn Store>, label: &Label, completions: &CompletionQueue) -> Started {
    write_copies(store, label, |_| false, completions)
}

/// The same of a member that has all copies already: it may have become longer by what there is no space for.
pub(crate) fn renew_label(store: &Arc<dyn Store>, label: &Label, completions: &CompletionQueue) -> Started {
    write_copies(store, label, |error| error.kind == ErrorKind::Full, completions)
}

/// `is_bearable` says of an error whether the copy at the end can be done without.
fn write_copies(
    store: &Arc<dyn Store>,
    label: &Label,
    is_bearable: fn(&StoreError) -> bool,
    completions: &CompletionQueue,
) -> Started {
    let (data, array) = (Slices::from(label.encode()), label.table.array);
    let store = Arc::clone(store);
    // What was written last may not be stable yet, or whole, where that has failed.
    store.start(Request::Flush, completions).then(completions, move |end, completions| {
        if let Err(error) = end {
            return Started::Done(Err(error));
        }
        let read = |offset_bytes| match Frame::zeroed(label::LABEL_BYTES) {
            Some(buffer) => store.start(Request::Read { offset_bytes, buffer }, completions),
            None => Started::Done(Err(gone())),
        };
        let reads = vec![read(0), read(SECOND_AT)];
        Started::join(reads, completions, move |ends, completions| {
            let generations = ends.into_iter().map(|end| generation(end, array)).collect::<Result<Vec<_>, _>>();
            let generations = match generations {
                Ok(generations) => generations,
                Err(error) => return Started::Done(Err(error)),
            };
            let (one, other) = if generations[1] > generations[0] { (0, SECOND_AT) } else { (SECOND_AT, 0) };
            let write = move |offset_bytes| Request::Write { offset_bytes, data: data.clone() };
            let first = stable(Arc::clone(&store), store.start(write(one), completions), completions);
            first.then(completions, move |end, completions| {
                if let Err(error) = end {
                    return Started::Done(Err(error));
                }
                let Some(last_at) = label::last_at(store.geometry().length_bytes) else {
                    return Started::Done(Err(gone()));
                };
                let last = store.start(write(last_at), completions).then(completions, move |end, _| match end {
                    Err(error) if is_bearable(&error) => Started::Done(Ok(Outcome::Done)),
                    end => Started::Done(end),
                });
                let rest = parts::all(vec![store.start(write(other), completions), last], completions);
                stable(store, rest, completions)
            })
        })
    })
}

/// The last copy of the label of a member that has become longer is to stand elsewhere, where there may be no space for it. This label, which
/// the member has at its beginning, goes there, unless one of its array is there.
pub(crate) fn claim_end(store: &Arc<dyn Store>, label: &Label, completions: &CompletionQueue) -> Started {
    let at = label::last_at(store.geometry().length_bytes);
    let (Some(offset_bytes), Some(buffer)) = (at, Frame::zeroed(label::LABEL_BYTES)) else {
        return Started::Done(Err(gone()));
    };
    let (store, label) = (Arc::clone(store), label.clone());
    store.start(Request::Read { offset_bytes, buffer }, completions).then(completions, move |end, completions| {
        let found = match end {
            Ok(Outcome::Read(found)) => Label::decode(&found).ok().flatten(),
            Ok(_) => None,
            Err(error) if error.kind == ErrorKind::Unreadable => None,
            Err(error) => return Started::Done(Err(error)),
        };
        if found.is_some_and(|found| found.table.array == label.table.array) {
            return Started::Done(Ok(Outcome::Done));
        }
        store.start(Request::Write { offset_bytes, data: label.encode().into() }, completions)
    })
}

/// What was written there is made stable, if that has ended well.
fn stable(store: Arc<dyn Store>, written: Started, completions: &CompletionQueue) -> Started {
    written.then(completions, move |end, completions| match end {
        Ok(_) => store.start(Request::Flush, completions),
        Err(error) => Started::Done(Err(error)),
    })
}

/// The generation of a copy of a label of this array; `None`: there is none that is whole.
fn generation(found: Completion, array: [u8; 16]) -> Result<Option<u64>, StoreError> {
    match found {
        Ok(Outcome::Read(found)) => {
            // What is not understood is overwritten first.
            let own = Label::decode(&found).ok().flatten().filter(|label| label.table.array == array);
            Ok(own.map(|label| label.table.generation))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind == ErrorKind::Unreadable => Ok(None),
        Err(error) => Err(error),
    }
}
