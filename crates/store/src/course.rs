//! A request under way: what was begun for it, and the layers that wait for the ends of that.

use std::fmt;

use crate::completion::{CompletionQueue, Pending};
use crate::request::{Completion, Delayed, KernelOp, Started};

/// What a layer does when all that it waited for has ended; the completions are in the order of the parts.
type Joined = Box<dyn FnOnce(Vec<Completion>, &CompletionQueue) -> Started + Send>;

/// Requests that a layer has started below it, and what it does when they have ended. Made by [`Started::then`] and
/// [`Started::join`].
pub struct Layered {
    parts: Vec<Started>,
    joined: Joined,
}

impl Started {
    /// Has a layer see how this ends, and say what becomes of the request it was asked for: a completion, or something more to do.
    #[must_use]
    pub fn then(
        self,
        completions: &CompletionQueue,
        next: impl FnOnce(Completion, &CompletionQueue) -> Started + Send + 'static,
    ) -> Started {
        if let Started::Done(completion) = self {
            return next(completion, completions);
        }
        let joined = move |mut ended: Vec<Completion>, completions: &CompletionQueue| match ended.pop() {
            Some(completion) => next(completion, completions),
            None => unreachable!("one part has one end"),
        };
        Started::Layered(Box::new(Layered { parts: vec![self], joined: Box::new(joined) }))
    }

    /// Has a layer wait for the ends of all of these, which go on side by side. What they come to is in their order.
    #[must_use]
    pub fn join(
        parts: Vec<Started>,
        completions: &CompletionQueue,
        joined: impl FnOnce(Vec<Completion>, &CompletionQueue) -> Started + Send + 'static,
    ) -> Started {
        if parts.iter().any(|part| !matches!(part, Started::Done(_))) {
            return Started::Layered(Box::new(Layered { parts, joined: Box::new(joined) }));
        }
        let ended = parts.into_iter().filter_map(|part| if let Started::Done(end) = part { Some(end) } else { None });
        joined(ended.collect(), completions)
    }
}

impl fmt::Debug for Layered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Layered").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// One thing that a driver has done for a request.
#[derive(Debug)]
pub enum Operation {
    /// By the kernel.
    Kernel(KernelOp),
    /// By the store itself, which completes it by its [`crate::Completer`].
    Pending(Pending),
    /// Nothing, for a while; then [`Delayed::resume`].
    Later(Delayed),
}

/// A request under way, for its driver. Operations have numbers, each its own as long as the course lives.
#[derive(Debug, Default)]
pub struct Course {
    root: Node,
    next: u32,
    under_way: u32,
}

#[derive(Debug, Default)]
enum Node {
    #[default]
    Nothing,
    UnderWay(u32),
    Over(Completion),
    Layer(Box<Layer>),
}

struct Layer {
    parts: Vec<Node>,
    joined: Joined,
}

impl fmt::Debug for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Layer").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Course {
    /// A request was started. `begin` is told each operation that is to be done now, with its number. Gives the request's completion
    /// when it is over already.
    pub fn begin(&mut self, started: Started, begin: &mut dyn FnMut(u32, Operation)) -> Option<Completion> {
        self.root = self.plant(started, begin);
        self.end()
    }

    /// The operation of this number has ended ([`Started::Done`]), or goes on with something else. Gives the
    /// request's completion when that was the last one. A number that is not under way means nothing.
    pub fn go_on(
        &mut self,
        number: u32,
        started: Started,
        completions: &CompletionQueue,
        begin: &mut dyn FnMut(u32, Operation),
    ) -> Option<Completion> {
        let root = std::mem::take(&mut self.root);
        self.root = self.settle(root, number, &mut Some(started), completions, begin);
        self.end()
    }

    /// How many operations are under way.
    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    fn end(&mut self) -> Option<Completion> {
        match std::mem::take(&mut self.root) {
            Node::Over(completion) => Some(completion),
            root => {
                self.root = root;
                None
            }
        }
    }

    fn plant(&mut self, started: Started, begin: &mut dyn FnMut(u32, Operation)) -> Node {
        let operation = match started {
            Started::Done(completion) => return Node::Over(completion),
            Started::Layered(layered) => {
                let Layered { parts, joined } = *layered;
                let parts = parts.into_iter().map(|part| self.plant(part, begin)).collect();
                return Node::Layer(Box::new(Layer { parts, joined }));
            }
            Started::Kernel(op) => Operation::Kernel(op),
            Started::Pending(pending) => Operation::Pending(pending),
            Started::Later(delayed) => Operation::Later(delayed),
        };
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.under_way += 1;
        begin(number, operation);
        Node::UnderWay(number)
    }

    fn settle(
        &mut self,
        node: Node,
        number: u32,
        started: &mut Option<Started>,
        completions: &CompletionQueue,
        begin: &mut dyn FnMut(u32, Operation),
    ) -> Node {
        match node {
            Node::UnderWay(own) if own == number => match started.take() {
                Some(started) => {
                    self.under_way -= 1;
                    self.plant(started, begin)
                }
                None => node,
            },
            Node::Layer(mut layer) => {
                for part in &mut layer.parts {
                    *part = self.settle(std::mem::take(part), number, started, completions, begin);
                }
                if layer.parts.iter().any(|part| !matches!(part, Node::Over(_))) {
                    return Node::Layer(layer);
                }
                let Layer { parts, joined } = *layer;
                let ends =
                    parts.into_iter().filter_map(|part| if let Node::Over(end) = part { Some(end) } else { None });
                self.plant(joined(ends.collect(), completions), begin)
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, StoreError};
    use crate::request::Outcome;

    /// Drives a request whose operations are all pending, and ends them in an order of its own.
    struct Driver {
        course: Course,
        completions: CompletionQueue,
        begun: Vec<u32>,
    }

    impl Driver {
        fn begin(completions: CompletionQueue, started: Started) -> Self {
            let mut driver = Driver { course: Course::default(), completions, begun: Vec::new() };
            let begun = &mut driver.begun;
            assert!(driver.course.begin(started, &mut |number, _| begun.push(number)).is_none());
            driver
        }

        fn end(&mut self, number: u32, completion: Completion) -> Option<Completion> {
            let begun = &mut self.begun;
            let begin = &mut |number, _| begun.push(number);
            self.course.go_on(number, Started::Done(completion), &self.completions, begin)
        }
    }

    fn pending(completions: &CompletionQueue) -> Started {
        let (pending, completer) = completions.pend();
        drop(completer);
        Started::Pending(pending)
    }

    fn fails(offset_bytes: u64) -> Completion {
        Err(StoreError::new(ErrorKind::Unreadable, offset_bytes))
    }

    #[test]
    fn a_layer_hears_how_each_of_its_parts_has_ended_when_all_have() {
        let queue = CompletionQueue::new(|| ());
        let parts = vec![pending(&queue), Started::Done(fails(1)), pending(&queue)];
        let joined = |ends: Vec<Completion>, _: &CompletionQueue| {
            let offsets: Vec<_> = ends.into_iter().map(|end| end.err().map(|error| error.offset_bytes)).collect();
            assert_eq!(offsets, [Some(0), Some(1), Some(2)]);
            Started::Done(Ok(Outcome::Done))
        };
        let started = Started::join(parts, &queue, joined);
        let mut driver = Driver::begin(queue, started);
        assert_eq!((driver.begun.clone(), driver.course.under_way()), (vec![0, 1], 2));
        assert!(driver.end(1, fails(2)).is_none() && driver.end(1, fails(9)).is_none(), "a second end is nobody's");
        assert!(matches!(driver.end(0, fails(0)), Some(Ok(Outcome::Done))));
        assert_eq!(driver.course.under_way(), 0);
    }

    #[test]
    fn a_layer_goes_on_elsewhere_with_what_has_failed_and_those_above_hear_of_the_last_end() {
        let queue = CompletionQueue::new(|| ());
        let again = |_, queue: &CompletionQueue| pending(queue);
        let started = pending(&queue).then(&queue, again).then(&queue, again);
        let mut driver = Driver::begin(queue, started);
        assert!(driver.end(0, fails(0)).is_none() && driver.end(1, fails(0)).is_none());
        assert_eq!(driver.begun, [0, 1, 2]);
        assert!(matches!(driver.end(2, fails(7)), Some(Err(error)) if error.offset_bytes == 7));
    }

    #[test]
    fn what_is_over_at_once_takes_no_course() {
        let queue = CompletionQueue::new(|| ());
        let next = |end: Completion, _: &CompletionQueue| Started::Done(end.or(Ok(Outcome::Done)));
        assert!(matches!(Started::Done(fails(0)).then(&queue, next), Started::Done(Ok(Outcome::Done))));
        let parts = vec![Started::Done(fails(3)), Started::Done(Ok(Outcome::Done))];
        let first = |ends: Vec<Completion>, _: &CompletionQueue| Started::Done(ends.into_iter().next().unwrap());
        assert!(matches!(Started::join(parts, &queue, first), Started::Done(Err(error)) if error.offset_bytes == 3));
    }
}
