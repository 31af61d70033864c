//! PDUs that an initiator over RDMA does not expect, and has receives for so many of (RFC 7145 6.7, 8.1): asynchronous messages, rejects and
//! NOP-Ins that ask.

use std::collections::VecDeque;

use sanwire_buffer::Slices;

use crate::serial::Serial;
use crate::wire::Header;

/// Whoever takes more than that has room enough for what a target says unasked; more of them are not counted.
const COUNTED_MAX: usize = 256;

/// So many wait at the most, of two hundred bytes each. Who provokes more and acknowledges none is not told of them.
const WAITING_MAX: usize = 64;

/// Those of one connection.
#[derive(Default)]
pub(super) struct Unexpected {
    /// As many as it takes; `None`: it has not said so, or as many as one likes.
    max: Option<usize>,
    /// The numbers of those under way that have one and are not acknowledged.
    numbers: VecDeque<Serial>,
    /// A NOP-In that asks is not answered.
    has_asked: bool,
    /// One has gone out since the last question, whose answer cannot have acknowledged it.
    is_unasked: bool,
    /// Those that it does not take yet.
    waiting: VecDeque<(Header, Option<Slices>)>,
}

impl Unexpected {
    /// Where the initiator has said this; 0: nothing.
    pub(super) fn new(said: u32) -> Self {
        let max = usize::try_from(said).unwrap_or(usize::MAX);
        Unexpected { max: (1..=COUNTED_MAX).contains(&max).then_some(max), ..Unexpected::default() }
    }

    /// One that takes a status number is to go out, after those that wait already.
    pub(super) fn wait(&mut self, header: Header, data: Option<Slices>) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((header, data));
        }
    }

    /// The next of them that the initiator takes: it goes out with this number. One place is always left for a NOP-In; an initiator that
    /// takes any at all takes two.
    pub(super) fn next(&mut self, number: Serial) -> Option<(Header, Option<Slices>)> {
        if self.max.is_some_and(|max| self.numbers.len() + 1 >= max) {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.is_unasked = true;
        if self.max.is_some() {
            self.numbers.push_back(number);
        }
        Some(next)
    }

    /// Whether any wait, and the answer to a question may make room for them: who acknowledges nothing is not asked again and again.
    pub(super) fn wants_answer(&self) -> bool {
        !self.waiting.is_empty() && self.is_unasked
    }

    /// Whether the initiator takes one more, which is the last before its connection is closed: it has the place of a NOP-In.
    pub(super) fn takes_last(&self) -> bool {
        self.max.is_none_or(|max| self.numbers.len() + usize::from(self.has_asked) < max)
    }

    /// Whether a NOP-In that asks may go out, which it then does.
    pub(super) fn ask(&mut self) -> bool {
        let may_ask = self.max.is_none() || !self.has_asked;
        self.has_asked = true;
        self.is_unasked &= !may_ask;
        may_ask
    }

    /// That is answered.
    pub(super) fn answered(&mut self) {
        self.has_asked = false;
    }

    /// The initiator says which status it expects next.
    pub(super) fn acknowledge(&mut self, expected: Serial) {
        while self.numbers.pop_front_if(|number| *number < expected).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Reject;

    fn wait(unexpected: &mut Unexpected, count: usize) {
        (0..count).for_each(|_| unexpected.wait(Reject::default().write(), None));
    }

    #[test]
    fn what_waits_goes_out_as_others_are_acknowledged() {
        let mut unexpected = Unexpected::new(3);
        wait(&mut unexpected, 4);
        let last = Serial(u32::MAX);
        assert!([last, last.next()].map(|number| unexpected.next(number).is_some()) == [true; 2]);
        let third = last.plus(2);
        assert!(unexpected.next(third).is_none(), "one place is left");
        unexpected.acknowledge(last);
        assert!(unexpected.next(third).is_none(), "it is the next that is expected");
        unexpected.acknowledge(last.next());
        assert!(unexpected.next(third).is_some() && unexpected.next(third.next()).is_none());
        unexpected.acknowledge(third.next());
        assert!(unexpected.next(third.next()).is_some());
        assert!(unexpected.next(third.plus(2)).is_none(), "nothing waits");
    }

    #[test]
    fn one_question_is_open_at_a_time() {
        let mut unexpected = Unexpected::new(2);
        assert!(unexpected.ask() && !unexpected.ask());
        unexpected.answered();
        assert!(unexpected.ask());
        let mut unexpected = Unexpected::new(0);
        assert!(unexpected.ask() && unexpected.ask());
    }

    #[test]
    fn the_last_one_has_the_place_of_a_question() {
        let mut unexpected = Unexpected::new(2);
        wait(&mut unexpected, 2);
        assert!(unexpected.next(Serial(1)).is_some() && unexpected.next(Serial(2)).is_none());
        assert!(unexpected.wants_answer() && unexpected.takes_last());
        assert!(unexpected.ask() && !unexpected.takes_last());
        unexpected.acknowledge(Serial(2));
        assert!(unexpected.takes_last());
    }

    #[test]
    fn nothing_is_counted_for_who_takes_as_many_as_one_likes() {
        for said in [0, COUNTED_MAX as u32 + 1, u32::MAX] {
            let mut unexpected = Unexpected::new(said);
            for number in 0..1000 {
                wait(&mut unexpected, 1);
                assert!(unexpected.next(Serial(number)).is_some(), "{said}");
            }
            assert!(unexpected.numbers.is_empty());
        }
        assert!(Unexpected::new(COUNTED_MAX as u32).max.is_some());
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let mut unexpected = Unexpected::new(2);
        wait(&mut unexpected, 1000);
        assert_eq!(unexpected.waiting.len(), WAITING_MAX);
    }
}
