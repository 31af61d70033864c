//! Receipts: which replies a client had when it gave a command, on the wire.
//!
//! Few replies have a receipt: those of which the server must know that they have arrived. They are numbered, in 16 bits, and each
//! request says up to which number its client had all of them when it was first given, also when it is sent again.

use std::collections::BTreeSet;

/// What a client that has received some remembers of those that others overtook: more than servers have on their way at a time. Of a
/// further one, which a server sends that counts otherwise, it is not told that it has arrived.
const EARLY_MAX: usize = 128;

/// So many numbers there are on the wire; 0 is none.
const NUMBERS: u64 = 0xffff;

/// A number as it goes on the wire.
pub(crate) fn on_wire(number: u64) -> u16 {
    if number == 0 { 0 } else { ((number - 1) % NUMBERS + 1) as u16 }
}

/// The number that a client means, of so many that were issued.
pub(crate) fn meant(told: u16, issued: u64) -> u64 {
    let back = (u64::from(on_wire(issued)) + NUMBERS - u64::from(told)) % NUMBERS;
    if told == 0 { 0 } else { issued.saturating_sub(back) }
}

/// The receipts that a client has.
#[derive(Debug, Default)]
pub(crate) struct Received {
    up_to: u16,
    early: BTreeSet<u16>,
}

impl Received {
    /// A reply with this receipt was received; 0: it has none.
    pub(crate) fn note(&mut self, receipt: u16) {
        if receipt == 0 || receipt == self.up_to {
            return;
        }
        if receipt == next(self.up_to) {
            self.up_to = receipt;
        } else if self.early.len() < EARLY_MAX {
            self.early.insert(receipt);
        }
        while self.early.remove(&next(self.up_to)) {
            self.up_to = next(self.up_to);
        }
    }

    /// Up to which number it has all.
    pub(crate) fn up_to(&self) -> u16 {
        self.up_to
    }
}

fn next(number: u16) -> u16 {
    number.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_known_again_after_they_wrap() {
        for number in [1, 2, 65_534, 65_535, 65_536, 65_537, 1 << 40] {
            for ahead in [0, 1, 63, 65_533] {
                assert_eq!(meant(on_wire(number), number + ahead), number, "{number} {ahead}");
            }
        }
        assert_eq!((meant(0, 70_000), meant(5, 3), meant(5, 0)), (0, 0, 0), "nothing, or of another session");
    }

    #[test]
    fn a_receipt_that_overtakes_counts_when_those_before_it_have_come() {
        let mut received = Received::default();
        [0, 2, 3, 0].into_iter().for_each(|receipt| received.note(receipt));
        assert_eq!(received.up_to(), 0);
        received.note(1);
        assert_eq!(received.up_to(), 3);
        (4..=u16::MAX).chain([1]).for_each(|receipt| received.note(receipt));
        assert_eq!(received.up_to(), 1);
    }

    #[test]
    fn the_one_that_is_missing_counts_however_many_have_overtaken_it() {
        let mut received = Received::default();
        (2..=1000).for_each(|receipt| received.note(receipt));
        assert_eq!((received.up_to(), received.early.len()), (0, EARLY_MAX));
        received.note(1);
        assert_eq!((received.up_to(), received.early.len()), (1 + EARLY_MAX as u16, 0));
    }
}
