//! Which targets have a unit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::Tally;
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
    by_volume: Tally<(Box<str>, TargetId)>,
    by_designation: Tally<(Designation, TargetId)>,
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
        self.lock().by_volume.range(first..=last).map(|(_, target)| *target).collect()
    }

    /// Those that have a unit which is, perhaps, called so.
    pub(super) fn with_designated(&self, designator: &Designator) -> Vec<TargetId> {
        let Some(designation) = Designation::of(designator) else { return Vec::new() };
        let there = (designation, FIRST)..=(designation, LAST);
        self.lock().by_designation.range(there).map(|(_, target)| *target).collect()
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
        self.by_volume.add((unit.identity().name().into(), target));
        for designation in Designation::all_of(unit.identity()) {
            self.by_designation.add((designation, target));
        }
    }

    fn remove(&mut self, target: TargetId, unit: &LogicalUnit) {
        self.by_volume.take_off(&(unit.identity().name().into(), target));
        for designation in Designation::all_of(unit.identity()) {
            self.by_designation.take_off(&(designation, target));
        }
    }
}
