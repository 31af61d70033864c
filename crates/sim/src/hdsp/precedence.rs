//! Whether writes reach the disk in an order that their client can have meant.

use std::collections::BTreeMap;

/// Which writes there were, and which of them are on the disk. They are numbered in the order in which they were given, by all clients.
#[derive(Default)]
pub(super) struct Precedence {
    clients: BTreeMap<u64, usize>,
    /// The last one that had been given when a write ended, for its client.
    ended: BTreeMap<u64, u64>,
    blocks: BTreeMap<u64, Vec<u64>>,
}

impl Precedence {
    /// A client gives a write.
    pub(super) fn begun(&mut self, write: u64, client: usize) {
        self.clients.insert(write, client);
    }

    /// It has ended for its client, well or not; this one was the last that had been given.
    pub(super) fn ended(&mut self, write: u64, last: u64) {
        self.ended.insert(write, last);
    }

    /// It reaches a block.
    ///
    /// # Errors
    /// Says which write it comes after, though its client gave that one after the end of this.
    pub(super) fn reaches(&mut self, write: u64, block: u64) -> Result<(), String> {
        let before = self.blocks.entry(block).or_default();
        if let Some(last) = self.ended.get(&write) {
            let client = self.clients.get(&write);
            let is_newer = |other: &&u64| **other > *last && self.clients.get(other) == client;
            if let Some(newer) = before.iter().find(is_newer) {
                return Err(format!("write {write}, which is over, reaches block {block} after {newer}"));
            }
        }
        before.push(write);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_is_over_does_not_come_after_one_that_its_client_gave_later() {
        let mut precedence = Precedence::default();
        [(1, 0), (2, 0), (3, 1), (4, 0)].into_iter().for_each(|(write, client)| precedence.begun(write, client));
        assert!(precedence.reaches(2, 7).is_ok() && precedence.reaches(1, 7).is_ok(), "both were under way");
        precedence.ended(1, 3);
        assert!(precedence.reaches(3, 8).is_ok() && precedence.reaches(1, 8).is_ok(), "another client's");
        assert!(precedence.reaches(4, 9).is_ok() && precedence.reaches(1, 9).is_err());
    }
}
