//! What a view of volumes shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_core::Lun;
use sanwire_device::{LogicalUnit, LogicalUnits};

/// Units by their numbers in a view.
pub(crate) type Inventory = BTreeMap<Lun, Arc<LogicalUnit>>;

/// Brings the units of a view to what they should be; those that stay are not touched.
pub(crate) fn change_units(units: &LogicalUnits, mut disks: Inventory) {
    for (lun, old) in units.iter() {
        match disks.get(&lun) {
            Some(disk) if Arc::ptr_eq(disk, &old) => drop(disks.remove(&lun)),
            _ => drop(units.remove(lun)),
        }
    }
    for (lun, disk) in disks {
        let added = units.add_shared(lun, disk);
        debug_assert!(added.is_ok(), "a view has no more units than there are volumes, and the number is free");
    }
}
