//! What all initiators of a unit are told of, and must look at before they go on (a reset, a change of mode pages): SAM-5 lets every
//! initiator of the unit do it. How often, and which, is bounded, so that the others get their turn.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::Instant;
use sanwire_core::quota::{DISTURBANCES, DISTURBANCES_OF_CLIENT, Limiter, Pace, Usage};
use sanwire_scsi::reservation::TransportId;

/// Those of one unit.
#[derive(Debug)]
pub(crate) struct Disturbances(Mutex<Done>);

#[derive(Debug)]
struct Done {
    of_all: Limiter,
    /// The clients that have done some lately: no more than all together may in that time.
    clients: Vec<(TransportId, Pace)>,
    /// How often a client was refused more.
    refused: u64,
}

impl Default for Disturbances {
    fn default() -> Self {
        Disturbances(Mutex::new(Done { of_all: Limiter::new(&DISTURBANCES), clients: Vec::new(), refused: 0 }))
    }
}

impl Disturbances {
    /// How the quotas are used.
    pub(crate) fn usages(&self) -> [Usage; 2] {
        let done = self.lock();
        [done.of_all.usage(), Usage::refused(&DISTURBANCES_OF_CLIENT, done.refused)]
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        // Whatever stands in it are paces.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Done {
    /// Whether this initiator may do something now. Nothing is counted as done yet.
    fn admits(&mut self, by: Option<&TransportId>, now: Instant) -> bool {
        self.clients.retain(|(_, pace)| !pace.is_full(now));
        let is_worn = by.and_then(|by| self.pace_of(by)).is_some_and(|pace| pace.left(now) == 0);
        self.refused += u64::from(is_worn);
        !is_worn && self.of_all.has_left(now)
    }

    fn take(&mut self, by: Option<&TransportId>, now: Instant) {
        self.of_all.take(now);
        let Some(by) = by else { return };
        if let Some(pace) = self.pace_of(by) {
            pace.take(now);
        } else {
            let mut pace = Pace::new(&DISTURBANCES_OF_CLIENT);
            pace.take(now);
            self.clients.push((by.clone(), pace));
        }
    }

    /// An initiator is one with all its ports.
    fn pace_of(&mut self, by: &TransportId) -> Option<&mut Pace> {
        self.clients.iter_mut().find(|(client, _)| client.is_of_device_of(by)).map(|(_, pace)| pace)
    }
}

/// Whether an initiator may do something now of which all others of some units are told: to all of them, or to none, and then it
/// counts for none.
pub(crate) fn may_disturb<'a>(
    units: impl Iterator<Item = &'a Disturbances>,
    by: Option<&TransportId>,
    now: Instant,
) -> bool {
    // In one order, so that no two wait for each other; targets have the same units under other numbers.
    let mut ordered: Vec<&Disturbances> = units.collect();
    ordered.sort_by_key(|unit| std::ptr::from_ref(*unit).addr());
    ordered.dedup_by(|one, other| std::ptr::eq(*one, *other));
    let mut all: Vec<_> = ordered.into_iter().map(Disturbances::lock).collect();
    let is_admitted = all.iter_mut().all(|done| done.admits(by, now));
    if is_admitted {
        all.iter_mut().for_each(|done| done.take(by, now));
    }
    is_admitted
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use sanwire_core::{Lun, NexusId, Principal};
    use sanwire_scsi::{SenseKey, Status, build};

    use super::*;
    use crate::testing::{NEXUS, OTHER, SMALL, TestStore, World, disk, lun, ports, sense, task};
    use crate::{LogicalUnits, NexusPorts};

    /// Sessions of one iSCSI initiator and of another.
    const MANY: std::ops::Range<u64> = 100..200;
    const HONEST: NexusId = NexusId(300);

    fn world() -> World {
        let world = World::small();
        world.units.add(lun(1), disk("b", TestStore::new(SMALL), true)).unwrap();
        for number in MANY {
            let port = TransportId::iscsi_port("iqn.2026-11.org.example:greedy", [0, 0, 0, 0, 0, number as u8]);
            let greedy = NexusPorts {
                initiator: port.unwrap(),
                target: ports(1, 1).target.clone(),
                principal: Principal::default(),
            };
            world.units.nexus_established(NexusId(number), Arc::new(greedy));
        }
        [NEXUS, OTHER, HONEST].into_iter().for_each(|nexus| world.establish(nexus));
        world
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// The caching page with the write cache switched on or off.
    fn caching(is_on: bool) -> Vec<u8> {
        let mut list = vec![0; 24];
        (list[4], list[5], list[6]) = (8, 0x12, u8::from(is_on) << 2);
        list
    }

    fn resets(units: &LogicalUnits, nexus: NexusId, lun: Lun, now: Instant) -> usize {
        (0..1000).take_while(|_| units.may_reset(nexus, lun, now).is_some()).count()
    }

    #[test]
    fn one_client_leaves_resets_and_changes_to_others_in_however_many_sessions() {
        let world = world();
        let mut done = 0;
        for ms in 0..20_000u64 {
            let nexus = NexusId(MANY.start + ms % 100);
            done += usize::from(world.units.may_reset(nexus, lun(0), at(ms)).is_some());
            if ms % 1000 == 999 {
                assert!(world.units.may_reset(HONEST, lun(0), at(ms)).is_some(), "after {ms} ms");
            }
        }
        assert!((16 + 38..=16 + 41).contains(&done), "{done} in 20 s");
        let [_, of_client] = world.units.get(lun(0)).unwrap().disturbances.usages();
        assert_eq!(of_client.refused as usize, 20_000 - done);
        assert_eq!(world.units.get(lun(0)).unwrap().disturbances.lock().clients.len(), 2);
    }

    #[test]
    fn clients_together_do_no_more_to_a_unit_than_all_may() {
        let world = World::small();
        (0..1000).for_each(|number| world.establish(NexusId(number)));
        let done = (0..1000).filter(|number| world.units.may_reset(NexusId(*number), lun(0), at(1)).is_some());
        assert_eq!(done.count(), 32);
        let disk = world.units.get(lun(0)).unwrap();
        assert_eq!(disk.disturbances.lock().clients.len(), 32, "who may do nothing is not remembered");
    }

    #[test]
    fn a_reset_of_all_units_that_one_of_them_refuses_counts_for_none() {
        let world = world();
        assert_eq!(resets(&world.units, NEXUS, lun(1), at(1)), 16);
        for _ in 0..100 {
            assert!(world.units.may_reset_all(NEXUS, at(1)).is_none());
        }
        assert_eq!(resets(&world.units, NEXUS, lun(0), at(1)), 16, "the first has all that it had");
        assert_eq!(world.units.may_reset_all(OTHER, at(1)).map(|units| units.len()), Some(2));
        assert_eq!(resets(&world.units, OTHER, lun(0), at(1)), 15);
    }

    #[test]
    fn only_mode_selects_that_change_something_count() {
        let world = world();
        let select = |nexus, list: &[u8], now| {
            let change = task(build::mode_select_6(list.len() as u8), list);
            world.finish(world.units.begin(nexus, change, &world.memory, now))
        };
        // What each must be told of first.
        (0..3).for_each(|_| drop((world.run(NEXUS, [0; 6], &[]), world.run(OTHER, [0; 6], &[]))));
        let mut wrong = caching(false);
        wrong[5] = 1;
        for _ in 0..100 {
            assert_eq!(select(NEXUS, &caching(true), at(1)).status, Status::Good, "as it was");
            assert_eq!(select(NEXUS, &wrong, at(1)).status, Status::CheckCondition);
        }
        let is_changed = |turn: &u32| select(NEXUS, &caching(turn % 2 == 1), at(1)).status == Status::Good;
        assert_eq!((0..100).take_while(is_changed).count(), 16);
        assert_eq!(select(NEXUS, &caching(false), at(1)).status, Status::Busy);
        assert!(world.units.get(lun(0)).unwrap().settings().write_cache, "it is as it was");
        assert_eq!(sense(&select(OTHER, &caching(false), at(1))).key, SenseKey::UnitAttention);
        assert_eq!(select(OTHER, &caching(false), at(1)).status, Status::Good, "another one may");
    }
}
