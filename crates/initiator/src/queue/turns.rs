//! Who waits for a scarce thing, in the order of coming.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// A first-come, first-served line of futures.
///
/// The thing itself has its own lock. Who gives some of it back calls [`Turns::wake_first`] after that lock; who
/// enters the line tries once more after entering: so one of the two always sees the other.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    line: Mutex<Line>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    waiting: VecDeque<(u64, Waker)>,
}

/// A place in the line, or none yet.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Option<u64>);

impl Turns {
    /// Tries to get the thing by `attempt`, in turn. `None` means that the waker of `context` will be called.
    pub(crate) fn poll<T>(
        &self,
        ticket: &mut Ticket,
        context: &mut Context<'_>,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if ticket.0.is_none()
            && self.is_empty()
            && let Some(got) = attempt()
        {
            return Some(got);
        }
        if !self.enter(ticket, context.waker()) {
            return None;
        }
        let got = attempt()?;
        self.leave(ticket);
        Some(got)
    }

    /// Gives the place up; the next in line may try.
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        let Some(number) = ticket.0.take() else { return };
        let mut line = self.lock();
        line.waiting.retain(|(waiting, _)| *waiting != number);
        self.waiting.store(line.waiting.len(), Ordering::SeqCst);
        drop(line);
        self.wake_first();
    }

    /// Some of the thing came free.
    pub(crate) fn wake_first(&self) {
        if self.is_empty() {
            return;
        }
        let first = self.lock().waiting.front().map(|(_, waker)| waker.clone());
        if let Some(waker) = first {
            waker.wake();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Takes or keeps a place; says whether it is the first.
    fn enter(&self, ticket: &mut Ticket, waker: &Waker) -> bool {
        let mut line = self.lock();
        match ticket.0.and_then(|number| line.waiting.iter_mut().find(|(waiting, _)| *waiting == number)) {
            Some((_, kept)) => kept.clone_from(waker),
            None => {
                let number = line.next_ticket;
                line.next_ticket += 1;
                line.waiting.push_back((number, waker.clone()));
                ticket.0 = Some(number);
            }
        }
        self.waiting.store(line.waiting.len(), Ordering::SeqCst);
        line.waiting.front().map(|(waiting, _)| *waiting) == ticket.0
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // Nothing panics between two writes to the line.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
