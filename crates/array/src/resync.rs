//! Members that lack something are brought up to date, and copies are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_buffer::{Frame, Slices};
use sanwire_store::{Completion, CompletionQueue, ErrorKind, Outcome, Request, Started, StoreError};

use crate::group::first_error;
use crate::label::DATA_AT;
use crate::layout::Piece;
use crate::state::{Part, Shared, gone};

/// So much is copied, or compared, at once; nothing else is written there meanwhile.
const COPY_BYTES: u64 = 256 << 10;

/// What is to be done next so that all members are the same.
enum Task {
    /// A region of a group is copied to these members, which have been marked so often.
    Copy { group: usize, region: usize, to: Vec<(Part, u64)> },
    /// A member has all, and is in when that is stable.
    Include(Part),
}

impl Shared {
    /// Does the next step of bringing members up to date; `None`: all are, or cannot be now.
    pub(crate) fn resync(self: &Arc<Self>, completions: &CompletionQueue) -> Option<Started> {
        let task = self.next_task()?;
        let shared = Arc::clone(self);
        Some(self.resync_turn.with(0..1, completions, move |turn, completions| {
            let place = if let Task::Copy { group, region, .. } = &task { Some((*group, *region)) } else { None };
            let doing = match task {
                Task::Copy { group, region, to } => {
                    let bytes = shared.group_bytes(group);
                    let from = region as u64 * shared.region_bytes;
                    let end = (from + shared.region_bytes).min(bytes);
                    Arc::clone(&shared).copy(Region { group, region, end }, from, to, completions)
                }
                Task::Include(part) => {
                    let shared = Arc::clone(&shared);
                    part.store.start(Request::Flush, completions).then(completions, move |end, completions| match end {
                        Ok(_) => shared.include(part, completions),
                        Err(error) => {
                            shared.fail(&part, &error);
                            Started::Done(Ok(Outcome::Done))
                        }
                    })
                }
            };
            doing.then(completions, move |end, _| {
                if let (Err(_), Some((group, region))) = (&end, place) {
                    // What cannot be copied now keeps nothing else from being copied.
                    let state = &mut *shared.lock();
                    (state.copied_from[group], state.copied_group) = (region + 1, group + 1);
                }
                drop(turn);
                Started::Done(end)
            })
        }))
    }

    fn next_task(&self) -> Option<Task> {
        let state = &mut *self.lock();
        let groups = self.group_count();
        for turn in 0..groups {
            let group = (state.copied_group + turn) % groups;
            let parts = state.written(group);
            let next = |from: usize| {
                let behind = |part: &Part| state.members[part.member].behind.ones().find(|region| *region >= from);
                parts.iter().filter_map(behind).min()
            };
            if let Some(region) = next(state.copied_from[group]).or_else(|| next(0)) {
                let is_behind = |part: &Part| state.members[part.member].behind[region];
                let to = parts.into_iter().filter(is_behind).map(|part| {
                    let marks = state.members[part.member].marks;
                    (part, marks)
                });
                return Some(Task::Copy { group, region, to: to.collect() });
            }
            if let Some(part) = parts.into_iter().find(|part| !part.is_in)
                && state.is_settled()
            {
                return Some(Task::Include(part));
            }
        }
        None
    }

    /// Copies a region from here on.
    fn copy(
        self: Arc<Self>,
        region: Region,
        from: u64,
        to: Vec<(Part, u64)>,
        completions: &CompletionQueue,
    ) -> Started {
        if from >= region.end {
            let state = &mut *self.lock();
            for (part, marks) in to {
                let member = &mut state.members[part.member];
                if member.marks == marks {
                    member.behind.set(region.region, false);
                }
            }
            return Started::Done(Ok(Outcome::Done));
        }
        let piece = Piece { group: region.group, offset_bytes: from, length_bytes: COPY_BYTES.min(region.end - from) };
        let locks = Arc::clone(&self.groups[region.group].data);
        locks.with(piece.range(), completions, move |guard, completions| {
            let members: Vec<_> = to.iter().map(|(part, _)| part.member).collect();
            let Some(buffer) = Frame::zeroed(piece.length_bytes as usize) else {
                return Started::Done(Err(gone()));
            };
            let reading = self.read_from(piece.clone(), buffer, members, completions);
            reading.then(completions, move |end, completions| {
                let data = match end {
                    Ok(Outcome::Read(frame)) => Slices::from(frame.freeze()),
                    Ok(_) => return Started::Done(Err(gone())),
                    Err(error) => return Started::Done(Err(error)),
                };
                let request = || Request::Write { offset_bytes: DATA_AT + from, data: data.clone() };
                let writes = to.iter().map(|(part, _)| part.store.start(request(), completions)).collect();
                Started::join(writes, completions, move |ends, completions| {
                    drop(guard);
                    let parts: Vec<_> = to.iter().map(|(part, _)| part.clone()).collect();
                    if !self.fail_those(&parts, &ends) {
                        return Started::Done(first_error(ends).map_or(Ok(Outcome::Done), Err));
                    }
                    self.copy(region, piece.range().end, to, completions)
                })
            })
        })
    }

    /// Reads a piece from a member that has it, but from none of these; from another one where it cannot be read there.
    fn read_from(
        self: &Arc<Self>,
        piece: Piece,
        buffer: Frame,
        mut not: Vec<usize>,
        completions: &CompletionQueue,
    ) -> Started {
        let regions = self.regions(&piece.range());
        let source = {
            let state = &mut *self.lock();
            let source = state.reader(piece.group, regions.clone(), true, &not);
            if source.is_none() {
                // All that are there are behind: one of them becomes the source, and the next step copies from it.
                let _ = state.reader(piece.group, regions, true, &[]);
            }
            source
        };
        let Some(source) = source else { return Started::Done(Err(gone())) };
        let request = Request::Read { offset_bytes: DATA_AT + piece.offset_bytes, buffer };
        let shared = Arc::clone(self);
        source.store.start(request, completions).then(completions, move |end, completions| {
            let Err(error) = end else { return Started::Done(end) };
            shared.fail_unless_hurt(&source, &error);
            not.push(source.member);
            let has_other = shared.lock().reader(piece.group, shared.regions(&piece.range()), true, &not).is_some();
            match Frame::zeroed(piece.length_bytes as usize).filter(|_| has_other) {
                Some(buffer) => shared.read_from(piece, buffer, not, completions),
                None => Started::Done(Err(error)),
            }
        })
    }

    fn fail_unless_hurt(&self, part: &Part, error: &StoreError) {
        if error.kind != ErrorKind::Unreadable {
            self.fail(part, error);
        }
    }

    /// Compares all copies of a piece of a group, and has the regions copied again in which one differs from the one that is read first.
    pub(crate) fn compare(
        self: &Arc<Self>,
        group: usize,
        from: u64,
        different: &Arc<AtomicU64>,
        completions: &CompletionQueue,
    ) -> Started {
        let shared = Arc::clone(self);
        let length_bytes = COPY_BYTES.min(self.group_bytes(group).saturating_sub(from));
        let piece = Piece { group, offset_bytes: from, length_bytes };
        let locks = Arc::clone(&self.groups[group].data);
        let different = Arc::clone(different);
        locks.with(piece.range(), completions, move |guard, completions| {
            let regions = shared.regions(&piece.range());
            let parts = {
                let state = shared.lock();
                let is_up = |part: &Part| {
                    part.is_in && !state.members[part.member].behind.contains_any_in_range(regions.clone())
                };
                state.written(group).into_iter().filter(is_up).collect::<Vec<_>>()
            };
            let read = |part: &Part| match Frame::zeroed(length_bytes as usize) {
                Some(buffer) => part.store.start(Request::Read { offset_bytes: DATA_AT + from, buffer }, completions),
                None => Started::Done(Err(gone())),
            };
            let reads = parts.iter().map(read).collect();
            Started::join(reads, completions, move |ends, _| {
                let marked = shared.mark_different(&parts, &ends, regions, &different);
                drop(guard);
                Started::Done(first_error(ends).map_or(marked, Err))
            })
        })
    }

    /// Has those copied that differ from the first one that was read.
    ///
    /// # Errors
    /// One of both has gone meanwhile, or lacks something by now: then the other one may be the only one that has all that was written, and
    /// nobody knows which is right.
    fn mark_different(
        &self,
        parts: &[Part],
        ends: &[Completion],
        regions: std::ops::Range<usize>,
        different: &AtomicU64,
    ) -> Completion {
        let mut copies = parts.iter().zip(ends).filter_map(|(part, end)| match end {
            Ok(Outcome::Read(frame)) => Some((part, &frame[..])),
            _ => None,
        });
        let Some((source, first)) = copies.next() else { return Ok(Outcome::Done) };
        for (part, _) in copies.filter(|(_, copy)| *copy != first) {
            let state = &mut *self.lock();
            let has_all = |part: &Part| {
                let member = &state.members[part.member];
                let is_same = member.store.is_some() && member.incarnation == part.incarnation;
                is_same && !member.behind.contains_any_in_range(regions.clone())
            };
            if !(has_all(source) && has_all(part)) {
                let source = std::io::Error::other("a member went away while its copies were compared: do it again");
                return Err(StoreError { source: Some(source), ..StoreError::new(ErrorKind::Gone, 0) });
            }
            different.fetch_add(1, Ordering::Relaxed);
            state.members[part.member].mark(regions.clone());
        }
        Ok(Outcome::Done)
    }
}

/// A region of a group, and where its bytes end.
#[derive(Clone, Copy)]
struct Region {
    group: usize,
    region: usize,
    end: u64,
}

/// Where the next comparison begins, in bytes of the group.
pub(crate) fn next_piece(from: u64) -> u64 {
    from + COPY_BYTES
}
