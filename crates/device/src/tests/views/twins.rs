//! Two targets with one history: the unit of one of them meets each nexus when that comes, the other when that first uses it.
//! Flushes that fail, reservations and what is told of them are the same.

use sanwire_core::NexusId;
use sanwire_scsi::{Cdb, Extent, Status, build};
use sanwire_store::ErrorKind;

use super::Random;
use crate::testing::{Op, World, lun, ports};

struct Twins {
    worlds: [World; 2],
    random: Random,
    /// Those that are there, with their initiators, and whether they have used the unit.
    there: Vec<(NexusId, u64, bool)>,
    next: u64,
    /// Whether flushes fail: from the first one on, both units meet each nexus when it comes.
    has_failures: bool,
}

impl Twins {
    fn new(seed: u64) -> Twins {
        let worlds = [World::small(), World::small()];
        worlds[1].units.get(lun(0)).unwrap().become_watchful();
        Twins { worlds, random: Random(seed), there: Vec::new(), next: 1, has_failures: seed.is_multiple_of(2) }
    }

    fn run(&mut self, at: usize, cdb: impl Into<Cdb>, data: &[u8]) {
        let (cdb, (nexus, _, used)) = (cdb.into(), &mut self.there[at]);
        *used = true;
        let [one, other] = [0, 1].map(|twin| {
            let reply = self.worlds[twin].run(*nexus, cdb, data);
            (reply.status, reply.sense.to_vec(), reply.data_in.map(|data| data.to_vec()))
        });
        assert_eq!(one, other, "{cdb:02x?} of {nexus:?}");
    }

    fn reserve_out(&mut self, at: usize, action: u8, kind: u8, keys: [u64; 2]) {
        let list = [&keys[0].to_be_bytes()[..], &keys[1].to_be_bytes(), &[0; 8]].concat();
        self.run(at, [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list);
    }

    fn step(&mut self) {
        if self.there.is_empty() || self.there.len() < 6 && self.random.below(8) == 0 {
            let (nexus, initiator) = (NexusId(self.next), 1 + self.random.below(3) as u64);
            let ports = ports(initiator, 1 + self.random.below(2) as u16);
            self.worlds.iter().for_each(|world| world.units.nexus_established(nexus, ports.clone()));
            self.there.push((nexus, initiator, false));
            self.next += 1;
            return;
        }
        let at = self.random.below(self.there.len());
        let initiator = self.there[at].1;
        match self.random.below(16) {
            1 | 2 if !self.has_failures => self.run(at, build::test_unit_ready(), &[]),
            0 => {
                if !self.there[at].2 {
                    self.run(at, build::test_unit_ready(), &[]);
                }
                let (nexus, ..) = self.there.swap_remove(at);
                self.worlds.iter().for_each(|world| world.units.nexus_lost(nexus));
            }
            1 => self.worlds.iter().for_each(|world| world.units.get(lun(0)).unwrap().flush_failed()),
            2 => {
                self.worlds.iter().for_each(|world| world.store.fail(Op::Flush, ErrorKind::Unwritable));
                self.run(at, build::synchronize_cache_10(), &[]);
                self.worlds.iter().for_each(|world| world.store.heal());
            }
            3..=5 => self.run(at, build::synchronize_cache_10(), &[]),
            6 => self.run(at, build::write_16(Extent { lba: 0, blocks: 1 }, false), &[1; 512]),
            7 => self.reserve_out(at, 6, 0, [0, initiator]),
            8 => {
                let kind = self.random.of(&[1, 3, 5, 6, 7, 8]);
                self.reserve_out(at, 1, kind, [initiator, 0]);
            }
            9 => {
                let (action, victim) = (self.random.of(&[4, 5]), 1 + self.random.below(3) as u64);
                self.reserve_out(at, action, 5, [initiator, victim]);
            }
            10 => {
                let action = self.random.of(&[2, 3]);
                self.reserve_out(at, action, 5, [initiator, 0]);
            }
            11 => self.run(at, [0x5e, 3, 0, 0, 0, 0, 0, 4, 0, 0], &[]),
            12 => {
                let code = self.random.of(&[0x16, 0x17]);
                self.run(at, [code, 0, 0, 0, 0, 0], &[]);
            }
            _ => self.run(at, build::test_unit_ready(), &[]),
        }
    }
}

#[test]
fn it_makes_no_difference_when_a_unit_gets_to_know_a_nexus() {
    let mut served = 0;
    for seed in 0..300 {
        let mut twins = Twins::new(seed);
        (0..300).for_each(|_| twins.step());
        let is_good =
            |twins: &Twins, nexus| twins.worlds[0].run(nexus, build::test_unit_ready(), &[]).status == Status::Good;
        served += twins.there.iter().filter(|(nexus, ..)| is_good(&twins, *nexus)).count();
    }
    assert!(served > 100, "only {served} commands were not refused");
}

/// The initiator may go on with another path than the one by which it has written.
#[test]
fn a_path_that_was_idle_hears_of_the_flush_that_has_failed_of_another() {
    let world = World::small();
    let [used, idle] = [1, 2].map(NexusId);
    [used, idle].into_iter().for_each(|nexus| world.units.nexus_established(nexus, ports(1, nexus.0 as u16)));
    let flush = |nexus| world.run(nexus, build::synchronize_cache_10(), &[]).status;
    world.run(used, build::test_unit_ready(), &[]);
    world.run(used, build::write_16(Extent { lba: 0, blocks: 1 }, false), &[1; 512]);
    world.units.get(lun(0)).unwrap().flush_failed();
    world.units.nexus_lost(used);
    world.run(idle, build::test_unit_ready(), &[]);
    assert_eq!(flush(idle), Status::CheckCondition);
    assert_eq!(flush(idle), Status::Good);
}
