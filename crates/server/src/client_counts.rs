//! What is counted of each client beside what all have, where the configuration asks for it (`[metrics] clients = true`).

use std::time::Duration;

use crate::counting::Uses;

/// What a session has read and written of a volume, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// That of each volume that it has read or written, by the volumes' slots.
#[derive(Clone, Default, Debug)]
pub(crate) struct MovedByVolume(Vec<(u16, Moved)>);

impl MovedByVolume {
    pub(crate) fn note(&mut self, slot: u16, moved: Moved) {
        if moved == Moved::default() {
            return;
        }
        let at = self.0.binary_search_by_key(&slot, |(slot, _)| *slot).unwrap_or_else(|at| {
            self.0.insert(at, (slot, Moved::default()));
            at
        });
        let sum = &mut self.0[at].1;
        sum.read_bytes += moved.read_bytes;
        sum.written_bytes += moved.written_bytes;
    }

    /// Other volumes have these slots now.
    pub(crate) fn forget(&mut self, slots: &Uses) {
        self.0.retain(|(slot, _)| !slots.has(*slot));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, Moved)> {
        self.0.iter().copied()
    }
}

/// A link of a client's connection as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClientLink {
    pub(crate) client: String,
    pub(crate) wire: String,
    /// The client's address there.
    pub(crate) peer: String,
    pub(crate) is_up: bool,
    /// Once it was measured.
    pub(crate) round_trip: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_added_up_by_volumes_until_others_have_their_slots() {
        let mut sums = MovedByVolume::default();
        let moved = |read_bytes, written_bytes| Moved { read_bytes, written_bytes };
        for (slot, bytes) in [(7, moved(1, 0)), (2, moved(0, 4)), (7, moved(2, 3)), (1, moved(0, 0))] {
            sums.note(slot, bytes);
        }
        assert_eq!(sums.iter().collect::<Vec<_>>(), [(2, moved(0, 4)), (7, moved(3, 3))]);
        let mut gone = Uses::default();
        gone.set(2);
        sums.forget(&gone);
        assert_eq!(sums.iter().collect::<Vec<_>>(), [(7, moved(3, 3))]);
    }
}
