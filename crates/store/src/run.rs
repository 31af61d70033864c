//! The simplest driver: one request at a time.

use std::collections::{BTreeMap, VecDeque};
use std::thread;

use crate::completion::CompletionQueue;
use crate::course::{Course, Operation};
use crate::request::{Completion, KernelOp, Request, Started, Store};

/// Has a store do a request, and waits for its end, but for no [`crate::Delayed`]. What the kernel is to do `perform` does.
///
/// # Errors
/// The store's.
pub fn run(store: &dyn Store, request: Request, perform: impl FnMut(KernelOp) -> Completion) -> Completion {
    drive(|completions| store.start(request, completions), perform)
}

/// The same with something else that was begun.
///
/// # Errors
/// Whatever that comes to.
pub fn drive(
    begin: impl FnOnce(&CompletionQueue) -> Started,
    mut perform: impl FnMut(KernelOp) -> Completion,
) -> Completion {
    let thread = thread::current();
    let completions = CompletionQueue::new(move || thread.unpark());
    let (mut course, mut to_do, mut pending) = (Course::default(), VecDeque::new(), BTreeMap::new());
    let mut arrived = VecDeque::new();
    let started = begin(&completions);
    let mut end = course.begin(started, &mut |number, operation| to_do.push_back((number, operation)));
    loop {
        if let Some(completion) = end {
            return completion;
        }
        let (number, started) = match to_do.pop_front() {
            Some((number, Operation::Kernel(op))) => (number, Started::Done(perform(op))),
            Some((number, Operation::Later(delayed))) => (number, delayed.resume(&completions)),
            Some((number, Operation::Pending(of))) => {
                pending.insert(of, number);
                continue;
            }
            None => match arrived.pop_front() {
                Some((of, completion)) => {
                    let Some(number) = pending.remove(&of) else { continue };
                    (number, Started::Done(completion))
                }
                None => {
                    arrived.extend(completions.take());
                    if arrived.is_empty() {
                        thread::park();
                    }
                    continue;
                }
            },
        };
        end =
            course.go_on(number, started, &completions, &mut |number, operation| to_do.push_back((number, operation)));
    }
}

/// The same for a store that asks nothing of a kernel.
#[cfg(test)]
pub(crate) fn run_pure(store: &dyn Store, request: Request) -> Completion {
    run(store, request, |op| panic!("{op:?} is for the kernel"))
}
