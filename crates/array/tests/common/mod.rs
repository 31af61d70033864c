//! What tests of arrays have in common that are used and then looked at.

use sanwire_array::{Array, Begin};
use sanwire_store::{Completion, CompletionQueue, KernelOp, Outcome, Request, Started};

/// No store of these tests needs one.
pub(crate) fn kernel(op: KernelOp) -> Completion {
    panic!("{op:?} is for the kernel")
}

pub(crate) fn drive(begin: Begin) -> Completion {
    sanwire_store::drive(begin, kernel)
}

/// Has all copies of an array be the same, and known to be.
pub(crate) fn settle(array: &Array) {
    for _ in 0..2 {
        let mut has_begun = true;
        while has_begun {
            let step = |queue: &CompletionQueue| {
                let started = array.resync(queue).or_else(|| array.tidy(queue));
                has_begun = started.is_some();
                started.unwrap_or(Started::Done(Ok(Outcome::Done)))
            };
            sanwire_store::drive(step, kernel).unwrap();
        }
        sanwire_store::run(array, Request::Flush, kernel).unwrap();
    }
}
