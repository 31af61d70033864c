//! Numbers that wrap around (RFC 7143 4.2.2.1 and RFC 1982): of commands, of statuses, of data.

use std::cmp::Ordering;

/// A sequence number of 32 bits. Two of them compare as long as they are less than 2^31 apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Serial(pub u32);

impl Serial {
    /// The number `count` further on.
    #[must_use]
    pub fn plus(self, count: u32) -> Serial {
        Serial(self.0.wrapping_add(count))
    }

    /// The next number.
    #[must_use]
    pub fn next(self) -> Serial {
        self.plus(1)
    }

    /// How far it is from `earlier` to here: negative if `earlier` is in fact later.
    #[must_use]
    pub fn since(self, earlier: Serial) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }
}

impl PartialOrd for Serial {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.since(*other).cmp(&0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_across_the_wrap() {
        let last = Serial(u32::MAX);
        assert!(last < last.next() && last.next() == Serial(0));
        assert!(Serial(5) > Serial(0xffff_fff0));
        assert_eq!(Serial(2).since(Serial(0xffff_ffff)), 3);
        assert_eq!(Serial(0xffff_ffff).since(Serial(2)), -3);
    }
}
