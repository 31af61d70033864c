//! What a server copies of the data that goes through it.

use std::ops::AddAssign;

/// Bytes that writes have brought, or answers have carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Those of writes that went on from where they came, or of answers that went into packets from where they were given.
    pub in_place: u64,
    /// Those that were copied first: guarded by more than a checksum, or put together from several places.
    pub copied: u64,
}

impl Carried {
    /// So many more.
    pub fn add(&mut self, bytes: usize, is_copied: bool) {
        let count = if is_copied { &mut self.copied } else { &mut self.in_place };
        *count += bytes as u64;
    }
}

impl AddAssign for Carried {
    fn add_assign(&mut self, other: Self) {
        self.in_place += other.in_place;
        self.copied += other.copied;
    }
}
