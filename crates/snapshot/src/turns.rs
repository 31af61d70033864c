//! Flushes of a layer that is written: first its data, then what says that it is there.
//!
//! One flush at a time is under way, from its first request to the end of its last one: so none can have the error of another one's, and
//! no earlier map comes after a later one. Those that come meanwhile wait, and are then done together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_store::{Completer, Completion, CompletionQueue, ErrorKind, Outcome, Request, Started, StoreError};

use crate::format::Bits;
use crate::layer::Top;
use crate::losses::lost;

/// Maps of so many groups are told between two flushes of the store: 2 KiB of memory each, twice.
const BATCH_GROUPS: usize = 1024;

/// So many of them are written side by side.
const WAVE_GROUPS: usize = 32;

/// Whose turn it is to flush.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_led: bool,
    tickets: u64,
    waiting: Vec<(u64, Completer)>,
    /// Who leads next, and has not begun; with those that go along.
    called: Option<(u64, Vec<Completer>)>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A flush is over: the first of those that have waited leads the others, which began after its data was written.
    fn pass_on(&self) {
        let called = {
            let mut state = self.lock();
            let mut waiting = std::mem::take(&mut state.waiting).into_iter();
            match waiting.next() {
                Some((ticket, completer)) => {
                    state.called = Some((ticket, waiting.map(|(_, completer)| completer).collect()));
                    Some(completer)
                }
                None => {
                    state.is_led = false;
                    None
                }
            }
        };
        if let Some(completer) = called {
            completer.complete(Ok(Outcome::Done));
        }
    }
}

/// A flush that waits for its turn.
struct Ticket {
    top: Arc<Top>,
    number: u64,
}

impl Ticket {
    /// Whether it is to lead: those that it leads.
    fn lead(&self) -> Option<Lead> {
        let mut state = self.top.turns.lock();
        let (_, followers) = state.called.take_if(|(called, _)| *called == self.number)?;
        drop(state);
        let mut lead = Lead::new(&self.top);
        lead.followers = followers;
        Some(lead)
    }
}

impl Drop for Ticket {
    /// Nobody waits for it any more: who is led by it must not wait for ever.
    fn drop(&mut self) {
        self.top.turns.lock().waiting.retain(|(number, _)| *number != self.number);
        drop(self.lead());
    }
}

/// One flush, for itself and those that go along.
struct Lead {
    top: Arc<Top>,
    followers: Vec<Completer>,
    /// Groups of which the store is to be told still.
    goal: Vec<u32>,
    /// Those of which it is being told.
    batch: Vec<(u32, Bits)>,
    /// Those of which it is told next: their data is becoming stable.
    next: Vec<(u32, Bits)>,
    /// How often the layer had lost something when that was looked at.
    losses: u64,
    is_over: bool,
}

impl Top {
    /// Makes stable what was written.
    pub(crate) fn flush(self: &Arc<Self>, completions: &CompletionQueue) -> Started {
        let mut state = self.turns.lock();
        if state.is_led {
            state.tickets += 1;
            let ticket = Ticket { top: Arc::clone(self), number: state.tickets };
            let (pending, completer) = completions.pend();
            state.waiting.push((ticket.number, completer));
            drop(state);
            return Started::Pending(pending).then(completions, move |end, completions| match ticket.lead() {
                Some(lead) => lead.begin(completions),
                None => Started::Done(end),
            });
        }
        state.is_led = true;
        drop(state);
        Lead::new(self).begin(completions)
    }
}

impl Lead {
    fn new(top: &Arc<Top>) -> Self {
        Lead {
            top: Arc::clone(top),
            followers: Vec::new(),
            goal: Vec::new(),
            batch: Vec::new(),
            next: Vec::new(),
            losses: 0,
            is_over: false,
        }
    }

    fn begin(mut self, completions: &CompletionQueue) -> Started {
        self.goal = self.top.map.as_ref().map(|map| map.take_dirty()).unwrap_or_default();
        self.goal.reverse();
        self.flush(completions)
    }

    /// Makes stable what the store has been told, and the data of what it is told next.
    fn flush(mut self, completions: &CompletionQueue) -> Started {
        self.losses = self.top.losses.count();
        if let Some(map) = &self.top.map {
            let rest = self.goal.len().saturating_sub(BATCH_GROUPS);
            self.next = self.goal.drain(rest..).rev().map(|group| (group, map.image(group))).collect();
        }
        let flush = self.top.source.store.start(Request::Flush, completions);
        flush.then(completions, move |end, completions| {
            let top = Arc::clone(&self.top);
            if end.is_err() {
                top.lose();
                return self.end(end);
            }
            let Some(map) = &top.map else { return self.end(end) };
            for (group, image) in std::mem::take(&mut self.batch) {
                map.told(group, image);
            }
            if top.losses.count() != self.losses {
                // One of another layer of the volume has failed: what is to be told now may be lost.
                return self.end(Err(lost(0)));
            }
            self.batch = std::mem::take(&mut self.next);
            if self.batch.is_empty() { self.end(end) } else { self.tell(0, completions) }
        })
    }

    /// Tells the store of the batch, from this one of it on.
    fn tell(self, from: usize, completions: &CompletionQueue) -> Started {
        let (mut next, mut parts) = (from, Vec::new());
        while let Some((group, bits)) = self.batch.get(next).filter(|_| parts.len() < WAVE_GROUPS) {
            next += 1;
            match self.top.write_map(*group, bits, completions) {
                // What is done at once is not collected: it could be much.
                Started::Done(Ok(_)) => {}
                // Those that have begun are waited for.
                Started::Done(end) => {
                    parts.push(Started::Done(end));
                    break;
                }
                part => parts.push(part),
            }
        }
        if parts.is_empty() {
            return self.flush(completions);
        }
        Started::join(parts, completions, move |ends, completions| match ends.into_iter().find(Result::is_err) {
            Some(end) => self.end(end),
            None => self.tell(next, completions),
        })
    }

    /// It is over, for those that went along, too.
    fn end(mut self, end: Completion) -> Started {
        self.is_over = true;
        for completer in std::mem::take(&mut self.followers) {
            completer.complete(match &end {
                Ok(_) => Ok(Outcome::Done),
                Err(error) => Err(same(error)),
            });
        }
        Started::Done(end)
    }
}

impl Drop for Lead {
    /// What it has not told is told by the next one.
    fn drop(&mut self) {
        if let Some(map) = &self.top.map {
            let (batch, next) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.next));
            map.give_back(batch.into_iter().chain(next).map(|(group, _)| group));
            map.give_back(self.goal.drain(..));
        }
        if !self.is_over {
            // Those that went along cannot know either.
            let lost = || Err(StoreError::new(ErrorKind::Gone, 0));
            self.followers.drain(..).for_each(|completer| completer.complete(lost()));
        }
        self.top.turns.pass_on();
    }
}

/// The same error, for another one.
fn same(error: &StoreError) -> StoreError {
    let source = error.source.as_ref().map(|source| match source.raw_os_error() {
        Some(number) => std::io::Error::from_raw_os_error(number),
        None => std::io::Error::new(source.kind(), source.to_string()),
    });
    StoreError { kind: error.kind, offset_bytes: error.offset_bytes, source }
}
