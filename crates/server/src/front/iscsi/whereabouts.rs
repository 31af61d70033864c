//! Which targets have a unit.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_device::LogicalUnit;
use sanwire_iscsi::TargetId;
use sanwire_scsi::vpd::{Designation, Designator};

use super::target_table::MovedUnits;

/// The targets by what their units are called, so that nobody looks for a unit in all of them. What is found here may just be going
/// away: the target itself is asked.
#[derive(Default, Debug)]
pub(super) struct Whereabouts(Mutex<Tables>);

/// How many units of the name each target has.
#[derive(Default, Debug)]
struct Tables {
    by_volume: BTreeMap<(Box<str>, TargetId), u32>,
    by_designation: BTreeMap<(Designation, TargetId), u32>,
}

impl Whereabouts {
    /// Units are elsewhere now.
    pub(super) fn note(&self, moved: &MovedUnits) {
        let mut tables = self.lock();
        moved.gone.iter().for_each(|(target, unit)| tables.remove(*target, unit));
        moved.new.iter().for_each(|(target, unit)| tables.insert(*target, unit));
    }

    /// Those that have a unit of this volume.
    pub(super) fn with_volume(&self, volume: &str) -> Vec<TargetId> {
        let (first, last) = ((volume.into(), FIRST), (volume.into(), LAST));
        self.lock().by_volume.range(first..=last).map(|((_, target), _)| *target).collect()
    }

    /// Those that have a unit which is, perhaps, called so.
    pub(super) fn with_designated(&self, designator: &Designator) -> Vec<TargetId> {
        let Some(designation) = Designation::of(designator) else { return Vec::new() };
        let there = (designation, FIRST)..=(designation, LAST);
        self.lock().by_designation.range(there).map(|((_, target), _)| *target).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Nothing panics between two writes to the tables.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FIRST: TargetId = TargetId(0);
const LAST: TargetId = TargetId(u32::MAX);

impl Tables {
    fn insert(&mut self, target: TargetId, unit: &LogicalUnit) {
        *self.by_volume.entry((unit.identity().name().into(), target)).or_default() += 1;
        for designation in Designation::all_of(unit.identity()) {
            *self.by_designation.entry((designation, target)).or_default() += 1;
        }
    }

    fn remove(&mut self, target: TargetId, unit: &LogicalUnit) {
        take_one(&mut self.by_volume, (unit.identity().name().into(), target));
        for designation in Designation::all_of(unit.identity()) {
            take_one(&mut self.by_designation, (designation, target));
        }
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u32>, of: K) {
    let left = counts.get_mut(&of).map(|count| {
        *count -= 1;
        *count
    });
    if left == Some(0) {
        counts.remove(&of);
    }
}
