//! Requests of one group: what is written goes to all of its members, what is read comes from one of them.

use std::sync::Arc;

use sanwire_buffer::{Frame, Slices};
use sanwire_store::{Completion, CompletionQueue, ErrorKind, Outcome, Request, Started, StoreError};

use crate::intent::{Block, Intents};
use crate::label::DATA_AT;
use crate::layout::Piece;
use crate::locks::Guard;
use crate::state::{Part, Shared, gone};

/// What is written.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// This.
    Data(Slices),
    /// Zeroes.
    Zeroes,
    /// Nothing: the space is given back.
    Discard,
}

impl Change {
    fn request(&self, piece: &Piece) -> Request {
        let (offset_bytes, length_bytes) = (DATA_AT + piece.offset_bytes, piece.length_bytes);
        match self {
            Change::Data(data) => Request::Write { offset_bytes, data: data.clone() },
            Change::Zeroes => Request::WriteZeroes { offset_bytes, length_bytes },
            Change::Discard => Request::Discard { offset_bytes, length_bytes },
        }
    }
}

impl Shared {
    /// Writes a piece on all members of its group. It is acknowledged when all have it that are in by then.
    pub(crate) fn change(self: &Arc<Self>, piece: Piece, change: Change, completions: &CompletionQueue) -> Started {
        let shared = Arc::clone(self);
        let locks = &self.groups[piece.group].data;
        locks.with(piece.range(), completions, move |guard, completions| shared.note(guard, piece, change, completions))
    }

    /// Notes that the regions of the piece are being written.
    fn note(self: Arc<Self>, guard: Guard, piece: Piece, change: Change, completions: &CompletionQueue) -> Started {
        let regions = self.regions(&piece.range());
        if self.lock().intents[piece.group].touch(regions.clone()) {
            return self.put(guard, piece, change, completions);
        }
        let turns = Arc::clone(&self.groups[piece.group].intents);
        turns.with(0..1, completions, move |turn, completions| {
            let blocks = {
                let intents = &mut self.lock().intents[piece.group];
                if intents.touch(regions.clone()) { Vec::new() } else { intents.prepare(regions.clone()) }
            };
            if blocks.is_empty() {
                drop(turn);
                return self.put(guard, piece, change, completions);
            }
            let writing = self.write_intents(piece.group, blocks, completions);
            writing.then(completions, move |end, completions| match end {
                Ok(_) => {
                    self.lock().intents[piece.group].touch(regions);
                    drop(turn);
                    self.put(guard, piece, change, completions)
                }
                Err(error) => Started::Done(Err(error)),
            })
        })
    }

    /// Makes these blocks stable on all members of a group. The caller has the turn.
    pub(crate) fn write_intents(
        self: &Arc<Self>,
        group: usize,
        blocks: Vec<Block>,
        completions: &CompletionQueue,
    ) -> Started {
        let parts = self.lock().written(group);
        let write = |part: &Part| {
            let store = Arc::clone(&part.store);
            let write = |block: &Block| {
                let data = block.encode().into();
                store.start(Request::Write { offset_bytes: block.at(), data }, completions)
            };
            let writes = blocks.iter().map(write).collect();
            Started::join(writes, completions, move |ends, completions| match first_error(ends) {
                None => store.start(Request::Flush, completions),
                Some(error) => Started::Done(Err(error)),
            })
        };
        let writes = parts.iter().map(|part| self.watch(part, write(part), completions)).collect();
        let shared = Arc::clone(self);
        Started::join(writes, completions, move |ends, completions| {
            if let Err(error) = shared.judge_watched(&parts, ends) {
                return Started::Done(Err(error));
            }
            shared.lock().intents[group].stored(&blocks);
            shared.acknowledge(completions)
        })
    }

    /// Has all members of a group have all blocks.
    pub(crate) fn note_all(self: &Arc<Self>, group: usize, completions: &CompletionQueue) -> Started {
        self.write_in_turn(group, |intents| intents.all(), completions)
    }

    /// Takes back what is noted and not written any more; `None`: nothing is.
    pub(crate) fn tidy(self: &Arc<Self>, group: usize, completions: &CompletionQueue) -> Option<Started> {
        let is_tidy = self.lock().intents[group].is_tidy();
        (!is_tidy).then(|| self.write_in_turn(group, Intents::tidy, completions))
    }

    fn write_in_turn(
        self: &Arc<Self>,
        group: usize,
        blocks: impl FnOnce(&mut Intents) -> Vec<Block> + Send + 'static,
        completions: &CompletionQueue,
    ) -> Started {
        let shared = Arc::clone(self);
        self.groups[group].intents.with(0..1, completions, move |turn, completions| {
            let blocks = blocks(&mut shared.lock().intents[group]);
            shared.write_intents(group, blocks, completions).then(completions, move |end, _| {
                drop(turn);
                Started::Done(end)
            })
        })
    }

    fn put(self: Arc<Self>, guard: Guard, piece: Piece, change: Change, completions: &CompletionQueue) -> Started {
        let parts = self.lock().written(piece.group);
        if !parts.iter().any(|part| part.is_in) {
            return Started::Done(Err(gone()));
        }
        let writes = parts.iter().map(|part| part.store.start(change.request(&piece), completions)).collect();
        Started::join(writes, completions, move |ends, completions| {
            if let Err(error) = self.judge(&parts, ends) {
                // Some may have it and others not: one of them is the truth until they are the same again.
                let state = &mut *self.lock();
                let regions = self.regions(&piece.range());
                let source = state.reader(piece.group, regions.clone(), true, &[]).map(|part| part.member);
                for part in state.written(piece.group).iter().filter(|part| Some(part.member) != source) {
                    state.members[part.member].mark(regions.clone());
                }
                return Started::Done(Err(error));
            }
            let shared = Arc::clone(&self);
            self.acknowledge(completions).then(completions, move |end, _| {
                let is_unsure = {
                    let state = &mut *shared.lock();
                    state.unflushed[piece.group].written();
                    state.has_reopened(&parts)
                };
                drop(guard);
                Started::Done(if is_unsure { Err(gone()) } else { end })
            })
        })
    }

    /// Whether what was asked of these members was done by all that are in still: those that have failed are given up, where another one
    /// has all that was written. When it was done by none, only those are given up that do not answer: the others may not be able to.
    ///
    /// # Errors
    /// The first member's.
    fn judge(&self, parts: &[Part], ends: Vec<Completion>) -> Result<(), StoreError> {
        let is_done = parts.iter().zip(&ends).any(|(part, end)| part.is_in && end.is_ok());
        let mut is_kept = false;
        for (part, end) in parts.iter().zip(&ends) {
            if let Err(error) = end
                && (is_done || matches!(error.kind, ErrorKind::Gone | ErrorKind::Other))
            {
                is_kept |= !self.fail(part, error) && part.is_in;
            }
        }
        if is_done && !is_kept && !self.lock().has_reopened(parts) {
            return Ok(());
        }
        let first = parts.iter().zip(ends).filter(|(part, _)| part.is_in).find_map(|(_, end)| end.err());
        Err(first.unwrap_or_else(gone))
    }

    /// Has it be known at once when something fails that is to be stable at a member.
    pub(crate) fn watch(self: &Arc<Self>, part: &Part, started: Started, completions: &CompletionQueue) -> Started {
        let (shared, part) = (Arc::clone(self), part.clone());
        started.then(completions, move |end, _| {
            let member = &mut shared.lock().members[part.member];
            member.failures.seen += u64::from(end.is_err() && member.incarnation == part.incarnation);
            Started::Done(end)
        })
    }

    /// What follows from the failures of these members that were seen was done.
    pub(crate) fn judged(&self, parts: &[Part], failed: &[bool]) {
        let state = &mut *self.lock();
        for (part, _) in parts.iter().zip(failed).filter(|(_, failed)| **failed) {
            let failures = &mut state.members[part.member].failures;
            failures.judged = failures.seen;
        }
    }

    fn judge_watched(&self, parts: &[Part], ends: Vec<Completion>) -> Result<(), StoreError> {
        let failed: Vec<_> = ends.iter().map(Result::is_err).collect();
        let judged = self.judge(parts, ends);
        self.judged(parts, &failed);
        judged
    }

    /// A flush of a member has failed, and others that were under way then, or begin before that is judged, mean nothing there.
    fn distrust(&self, parts: &[Part], trusted: &[u64], ends: Vec<Completion>) -> Vec<Completion> {
        let state = self.lock();
        let is_doubtful = |part: &Part, trusted: u64| {
            let member = &state.members[part.member];
            member.incarnation == part.incarnation && member.failures.seen != trusted
        };
        let ends = parts.iter().zip(trusted).zip(ends);
        let end = ends.map(|((part, trusted), end)| match end {
            Ok(_) if is_doubtful(part, *trusted) => Err(StoreError::new(ErrorKind::Unwritable, 0)),
            end => end,
        });
        end.collect()
    }

    /// Makes stable what was written to a group.
    pub(crate) fn flush(self: &Arc<Self>, group: usize, completions: &CompletionQueue) -> Started {
        let (parts, begun, marks, written, trusted) = {
            let state = &mut *self.lock();
            // Under this lock: who has a range then has noted it, or will after this.
            let busy = self.groups[group].data.held();
            let begun = state.intents[group].begin_flush(busy.iter().map(|range| self.regions(range)));
            let marks = state.is_whole(group).then(|| state.marks(group));
            let parts = state.written(group);
            let trusted: Vec<_> = parts.iter().map(|part| state.members[part.member].failures.judged).collect();
            (parts, begun, marks, state.unflushed[group].begin_flush(), trusted)
        };
        let flush = |part: &Part| self.watch(part, part.store.start(Request::Flush, completions), completions);
        let flushes = parts.iter().map(flush).collect();
        let shared = Arc::clone(self);
        Started::join(flushes, completions, move |ends, completions| {
            if let Err(error) = shared.judge_watched(&parts, shared.distrust(&parts, &trusted, ends)) {
                return Started::Done(Err(error));
            }
            shared.settle(completions).then(completions, move |end, _| {
                let state = &mut *shared.lock();
                // Nothing was copied to a member meanwhile.
                if end.is_ok() && state.is_whole(group) && Some(state.marks(group)) == marks {
                    state.intents[group].flushed(begun);
                }
                Started::Done(end.and_then(|outcome| state.unflushed[group].flushed(written).map(|()| outcome)))
            })
        })
    }

    /// Reads a piece of one member that has it.
    pub(crate) fn read(self: &Arc<Self>, piece: Piece, buffer: Frame, completions: &CompletionQueue) -> Started {
        self.read_untried(piece, buffer, Vec::new(), true, completions)
    }

    fn read_untried(
        self: &Arc<Self>,
        piece: Piece,
        buffer: Frame,
        mut tried: Vec<usize>,
        repairs: bool,
        completions: &CompletionQueue,
    ) -> Started {
        // While it is being written, some may have it and others not yet: it is not to change back and forth.
        let is_written = self.groups[piece.group].data.has(&piece.range());
        let part = {
            let state = &mut *self.lock();
            let part = state.reader(piece.group, self.regions(&piece.range()), is_written, &tried);
            part.inspect(|part| state.begin_read(part))
        };
        let Some(part) = part else { return Started::Done(Err(gone())) };
        let request = Request::Read { offset_bytes: DATA_AT + piece.offset_bytes, buffer };
        let shared = Arc::clone(self);
        part.store.start(request, completions).then(completions, move |end, completions| {
            shared.lock().end_read(&part);
            let Err(error) = end else { return Started::Done(end) };
            tried.push(part.member);
            let is_hurt = error.kind == ErrorKind::Unreadable;
            if !is_hurt {
                shared.fail(&part, &error);
            }
            let others = shared.lock().reader(piece.group, shared.regions(&piece.range()), true, &tried).is_some();
            let Some(buffer) = Frame::zeroed(piece.length_bytes as usize).filter(|_| others) else {
                return Started::Done(Err(error));
            };
            let again = shared.read_untried(piece.clone(), buffer, tried, repairs, completions);
            if is_hurt && repairs {
                again.then(completions, move |end, c| shared.repair(part, piece, end, c))
            } else {
                again
            }
        })
    }

    /// Writes what another member has where this one could not be read, and answers with it.
    fn repair(self: Arc<Self>, part: Part, piece: Piece, end: Completion, completions: &CompletionQueue) -> Started {
        let Ok(Outcome::Read(found)) = end else { return Started::Done(end) };
        let locks = Arc::clone(&self.groups[piece.group].data);
        locks.with(piece.range(), completions, move |guard, completions| {
            // What was read may have been written since.
            let Some(buffer) = Frame::zeroed(piece.length_bytes as usize) else {
                return Started::Done(Ok(Outcome::Read(found)));
            };
            // Another repair would wait for this one.
            let reading = self.read_untried(piece.clone(), buffer, vec![part.member], false, completions);
            reading.then(completions, move |end, completions| {
                let Ok(Outcome::Read(now)) = end else { return Started::Done(Ok(Outcome::Read(found))) };
                let request = Change::Data(now.freeze().into()).request(&piece);
                part.store.start(request, completions).then(completions, move |end, _| {
                    drop(guard);
                    if let Err(error) = end {
                        // Where it is kept, it cannot be read there still.
                        let _ = self.fail(&part, &error);
                    }
                    Started::Done(Ok(Outcome::Read(found)))
                })
            })
        })
    }
}

pub(crate) fn first_error(ends: Vec<Completion>) -> Option<StoreError> {
    ends.into_iter().find_map(Result::err)
}
