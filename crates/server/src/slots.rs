//! The places of volumes among what is counted of them: shards count by these numbers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sanwire_core::limits::LUNS_MAX;
use sanwire_device::{LogicalUnit, UnitState};

/// Which places are free. A volume that is served no longer keeps its place until its last command has ended, so that no other
/// volume is counted for it.
pub(crate) struct Slots(Mutex<Table>);

struct Table {
    /// Below `next`.
    free: BTreeSet<u16>,
    /// From here on all are.
    next: u16,
    /// Of volumes that are served no longer, the one that went first before the others.
    ending: Vec<(u16, Weak<UnitState>)>,
}

impl Slots {
    /// These are taken, by the volumes that are there. Those that are missing will have others.
    pub(crate) fn taken(taken: Vec<u16>) -> Self {
        let slots = Slots::after(0);
        slots.take(&taken);
        slots
    }

    /// The first so many are taken.
    fn after(count: usize) -> Self {
        let next = count.min(LUNS_MAX) as u16;
        Slots(Mutex::new(Table { free: BTreeSet::new(), next, ending: Vec::new() }))
    }

    /// So many places that no volume has, and that are not `is_reserved`, the lowest first; each place is looked at once. There are as
    /// many as volumes at the most: only where commands of volumes that were removed never end, some are theirs.
    pub(crate) fn lowest_free(&self, count: usize, is_reserved: impl Fn(u16) -> bool) -> Vec<u16> {
        let mut table = self.lock();
        table.end();
        let free = table.free.iter().copied().chain(table.next..LUNS_MAX as u16);
        let ending = table.ending.iter().map(|(slot, _)| *slot);
        let mut slots: Vec<u16> = free.chain(ending).filter(|slot| !is_reserved(*slot)).take(count).collect();
        slots.resize(count, 0);
        slots
    }

    /// Volumes have these places now.
    pub(crate) fn take(&self, slots: &[u16]) {
        let mut table = self.lock();
        for slot in slots {
            table.free.remove(slot);
            if *slot >= table.next {
                let between = table.next..*slot;
                table.free.extend(between);
                table.next = slot + 1;
            }
        }
        let slots: BTreeSet<&u16> = slots.iter().collect();
        table.ending.retain(|(slot, _)| !slots.contains(slot));
    }

    /// A volume is served no longer: its place is free when nobody has it any more.
    pub(crate) fn give_back(&self, unit: &Arc<LogicalUnit>) {
        self.lock().ending.push((unit.slot(), Arc::downgrade(unit.state())));
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // It is whole between any two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Frees the places of those that have ended.
    fn end(&mut self) {
        let Table { free, ending, .. } = self;
        ending.retain(|(slot, unit)| {
            let is_there = unit.strong_count() > 0;
            if !is_there {
                free.insert(*slot);
            }
            is_there
        });
    }
}

#[cfg(test)]
mod tests {
    use sanwire_device::UnitOptions;
    use sanwire_scsi::Identity;
    use sanwire_store::RamStore;

    use super::*;

    fn unit(slot: u16) -> Arc<LogicalUnit> {
        let (identity, store) = (Identity::new("a", [1; 16]).unwrap(), Arc::new(RamStore::new(1 << 20, 512)));
        Arc::new(LogicalUnit::new(identity, store, UnitOptions { slot, ..UnitOptions::default() }).unwrap())
    }

    #[test]
    fn the_lowest_place_is_given_that_nobody_has() {
        let slots = Slots::after(2);
        assert_eq!([0, 2].map(|reserved| slots.lowest_free(1, |slot| slot == reserved)), [[2], [3]]);
        slots.take(&[4, 2]);
        assert_eq!(slots.lowest_free(3, |slot| slot == 5), [3, 6, 7]);
        slots.take(&[3]);
        assert_eq!(slots.lowest_free(1, |_| false), [5]);
        slots.give_back(&unit(1));
        assert_eq!(slots.lowest_free(2, |_| false), [1, 5], "its volume is gone");
    }

    #[test]
    fn a_place_is_free_when_the_last_command_of_its_volume_has_ended() {
        let slots = Slots::after(2);
        let command = unit(0);
        slots.give_back(&command);
        assert_eq!(slots.lowest_free(1, |_| false), [2]);
        drop(command);
        assert_eq!(slots.lowest_free(1, |_| false), [0]);
    }

    #[test]
    fn when_all_are_taken_one_is_given_whose_volume_does_not_end() {
        let slots = Slots::after(LUNS_MAX);
        let command = unit(7);
        slots.give_back(&command);
        assert_eq!(slots.lowest_free(1, |_| false), [7]);
        slots.take(&[7]);
        drop(command);
        slots.give_back(&unit(9));
        assert_eq!(slots.lowest_free(1, |_| false), [9], "and that one is not free when the former volume ends");
    }

    #[test]
    fn the_place_of_a_volume_that_was_missing_at_the_start_is_free() {
        // One of them could not be opened.
        let slots = Slots::taken((0..LUNS_MAX as u16).filter(|slot| *slot != 7).collect());
        assert_eq!(slots.lowest_free(1, |_| false), [7]);
        assert_ne!(slots.lowest_free(1, |_| false), [0], "the first volume has that");
    }
}
