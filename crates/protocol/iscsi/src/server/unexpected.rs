//! PDUs that an initiator over RDMA does not expect, and has receives for so many of (RFC 7145 6.7, 8.1): asynchronous messages, rejects and
//! NOP-Ins that ask.

use std::collections::VecDeque;

use crate::serial::Serial;

/// Whoever takes more than that has room enough for what a target says unasked; more of them are not counted.
const COUNTED_MAX: usize = 256;

/// Those under way on one connection.
#[derive(Default)]
pub(super) struct Unexpected {
    /// As many as it takes; `None`: it has not said so, or as many as one likes.
    max: Option<usize>,
    /// The numbers of those that have one and are not acknowledged.
    numbers: VecDeque<Serial>,
    /// NOP-Ins that are not answered.
    questions: usize,
}

impl Unexpected {
    /// Where the initiator has said this; 0: nothing.
    pub(super) fn new(said: u32) -> Self {
        let max = usize::try_from(said).unwrap_or(usize::MAX);
        Unexpected { max: (1..=COUNTED_MAX).contains(&max).then_some(max), ..Unexpected::default() }
    }

    /// Whether the initiator takes one more now.
    pub(super) fn has_room(&self) -> bool {
        self.max.is_none_or(|max| self.numbers.len() + self.questions < max)
    }

    /// One with this status number goes out.
    pub(super) fn tell(&mut self, status: Serial) {
        if self.max.is_some() {
            self.numbers.push_back(status);
        }
    }

    /// A NOP-In goes out that asks.
    pub(super) fn ask(&mut self) {
        self.questions += usize::from(self.max.is_some());
    }

    /// One is answered.
    pub(super) fn answered(&mut self) {
        self.questions = self.questions.saturating_sub(1);
    }

    /// The initiator says which status it expects next.
    pub(super) fn acknowledge(&mut self, expected: Serial) {
        while self.numbers.pop_front_if(|status| *status < expected).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_again_for_what_is_acknowledged_or_answered() {
        let mut unexpected = Unexpected::new(2);
        unexpected.tell(Serial(u32::MAX));
        assert!(unexpected.has_room());
        unexpected.ask();
        assert!(!unexpected.has_room());
        unexpected.acknowledge(Serial(u32::MAX));
        assert!(!unexpected.has_room(), "it is the next that is expected");
        unexpected.acknowledge(Serial(0));
        assert!(unexpected.has_room());
        unexpected.tell(Serial(0));
        unexpected.answered();
        assert!(unexpected.has_room());
    }

    #[test]
    fn nothing_is_kept_for_who_takes_as_many_as_one_likes() {
        for said in [0, COUNTED_MAX as u32 + 1, u32::MAX] {
            let mut unexpected = Unexpected::new(said);
            (0..1000).for_each(|number| unexpected.tell(Serial(number)));
            unexpected.ask();
            assert!(unexpected.has_room() && unexpected.numbers.is_empty() && unexpected.questions == 0, "{said}");
        }
        assert!(Unexpected::new(COUNTED_MAX as u32).max.is_some());
    }
}
