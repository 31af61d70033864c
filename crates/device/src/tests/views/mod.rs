//! What nexuses are told by units that know only those which have used them, beside a model in which each unit knows all.

mod model;
mod twins;

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_scsi::{AdditionalSense, Identity, Reply, Sense, SenseKey, Status, Task, build, report};

use self::model::Model;
use crate::testing::{SMALL, TestStore, lun, ports, task};
use crate::unit_attention::UnitAttention;
use crate::{LogicalUnit, LogicalUnits, Progress, UnitOptions};

/// Units that there are, not all of which are seen.
const UNITS: usize = 8;
/// Numbers that they have; the last on another page of the list.
const NUMBERS: [u16; 7] = [0, 1, 2, 3, 255, 256, 300];
/// The nexuses: two of them share a bit of what commands look at.
const NEXUSES: [NexusId; 6] = [NexusId(1), NexusId(2), NexusId(3), NexusId(65), NexusId(66), NexusId(1 << 48)];
/// The whole of a target, a part that shows all, one that shows some; and a target of its own.
const WHOLE: usize = 0;
const ALL: usize = 1;
const SOME: usize = 2;
const OTHER: usize = 3;
const PARTS: usize = 3;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn maybe(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn unit(number: usize) -> Arc<LogicalUnit> {
    let identity = Identity::new(&format!("u{number}"), [number as u8; 16]).unwrap();
    let options = UnitOptions { removable: true, slot: number as u16, ..UnitOptions::default() };
    Arc::new(LogicalUnit::new(identity, TestStore::new(SMALL), options).unwrap())
}

/// Brings the units of a target to these, by one change.
fn become_these(target: &LogicalUnits, units: &BTreeMap<Lun, Arc<LogicalUnit>>) {
    let before = target.iter();
    let stays = |lun: Lun, unit: &Arc<LogicalUnit>| units.get(&lun).is_some_and(|other| Arc::ptr_eq(other, unit));
    let removed: Vec<Lun> = before.iter().filter(|(lun, unit)| !stays(*lun, unit)).map(|(lun, _)| *lun).collect();
    let is_new = |lun: &Lun| removed.contains(lun) || !before.iter().any(|(other, _)| other == lun);
    let added = units.iter().filter(|(lun, _)| is_new(lun)).map(|(lun, unit)| (*lun, Arc::clone(unit)));
    target.change(&removed, added.collect()).unwrap();
}

struct World {
    random: Random,
    units: Vec<Arc<LogicalUnit>>,
    views: Vec<LogicalUnits>,
    /// The whole of the parts, which owns them.
    whole: Arc<LogicalUnits>,
    model: Model,
    memory: Region,
}

impl World {
    fn new(seed: u64) -> World {
        let whole = Arc::new(LogicalUnits::new());
        let part = || LogicalUnits::part_of(Arc::clone(&whole));
        World {
            random: Random(seed),
            units: (0..UNITS).map(unit).collect(),
            views: vec![part(), part(), LogicalUnits::new()],
            model: Model::new(UNITS, PARTS + 1, PARTS),
            memory: Region::new(1 << 20).unwrap(),
            whole,
        }
    }

    fn view(&self, view: usize) -> &LogicalUnits {
        if view == WHOLE { &self.whole } else { &self.views[view - 1] }
    }

    fn run(&self, view: usize, nexus: NexusId, task: Task) -> Reply {
        match self.view(view).begin(nexus, task, &self.memory, Instant::ZERO) {
            Progress::Done(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Where the nexus is, if it is anywhere.
    fn place(&self, nexus: NexusId) -> Option<usize> {
        self.model.views.iter().position(|view| view.members.contains_key(&nexus))
    }

    fn step(&mut self) {
        let (nexus, number) = (self.random.of(&NEXUSES), self.random.of(&NUMBERS));
        let Some(view) = self.place(nexus) else {
            let view = self.random.below(PARTS + 1);
            self.view(view).nexus_established(nexus, ports(nexus.0, 1));
            return self.model.join(view, nexus);
        };
        let unit = self.random.below(UNITS);
        match self.random.below(24) {
            0 => {
                self.view(view).nexus_lost(nexus);
                self.model.leave(view, nexus);
            }
            1 => {
                let to = self.random.below(PARTS);
                if view < PARTS && to != view {
                    self.view(view).hand_over(self.view(to), nexus);
                    self.model.hand_over(view, to, nexus);
                }
            }
            2 | 3 => self.change(),
            4 => {
                self.units[unit].reset();
                self.model.reset(unit);
            }
            5 => {
                self.units[unit].capacity_changed();
                self.model.raise(unit, UnitAttention::CapacityChanged, None);
            }
            6 => {
                self.units[unit].nexuses.raise(UnitAttention::ModeChanged, Some(nexus));
                self.model.raise(unit, UnitAttention::ModeChanged, Some(nexus));
            }
            7 => {
                let except = self.random.maybe().then_some(nexus);
                self.view(view).raise_access_changed(except);
                self.model.change_access(view, except);
            }
            8 => {
                let is_locked = self.random.maybe();
                self.view(view).lock_media(nexus, is_locked);
                self.model.lock_media(view, nexus, is_locked);
            }
            9 => assert_eq!(self.units[unit].is_removal_prevented(), self.model.is_removal_prevented(unit)),
            10 | 11 => self.read_list(view, nexus, number),
            12 | 13 => {
                let page = build::inquiry(Some(0x83), 255);
                let is_there = self.run(view, nexus, Task { lun: Some(lun(number)), ..task(page, &[]) });
                assert_eq!(is_there.status == Status::Good, self.model.views[view].luns.contains_key(&number));
                self.model.see(view, nexus, number);
            }
            14 => {
                let is_prevented = self.random.maybe();
                if self.ask(view, nexus, number, [0x1e, 0, 0, 0, u8::from(is_prevented), 0].into()).is_none() {
                    let unit = self.model.views[view].luns[&number];
                    self.model.prevent(unit, nexus, is_prevented);
                }
            }
            _ => drop(self.ask(view, nexus, number, build::test_unit_ready())),
        }
    }

    /// Gives a command that ends unit attentions; what it is told is what the model says.
    fn ask(&mut self, view: usize, nexus: NexusId, number: u16, cdb: sanwire_scsi::Cdb) -> Option<Sense> {
        let reply = self.run(view, nexus, Task { lun: Some(lun(number)), ..task(cdb, &[]) });
        let told = (reply.status != Status::Good).then(|| Sense::parse(&reply.sense).unwrap());
        assert_eq!(told, self.model.told(view, nexus, number), "nexus {nexus:?} at unit {number} of view {view}");
        told
    }

    fn read_list(&mut self, view: usize, nexus: NexusId, number: u16) {
        let number = if self.random.maybe() { 0 } else { number };
        let is_there = self.model.views[view].luns.contains_key(&number);
        if !is_there && number != 0 {
            return;
        }
        let reply = self.run(view, nexus, Task { lun: Some(lun(number)), ..task(build::report_luns(256), &[]) });
        let list = report::parse_luns(&reply.data_in.unwrap().to_vec()).unwrap();
        let list: Vec<u16> = list.into_iter().map(Lun::number).collect();
        assert_eq!(list, self.model.read_list(view, nexus));
    }

    /// The units of a target change, by one change, and with it what its parts show.
    fn change(&mut self) {
        let view = self.random.of(&[WHOLE, WHOLE, OTHER]);
        let mut after = self.model.views[view].luns.clone();
        for _ in 0..=self.random.below(3) {
            let (number, unit) = (self.random.of(&NUMBERS), self.random.below(UNITS));
            // A target has a unit once; sometimes it gets another number.
            if self.random.maybe() {
                after.retain(|_, other| *other != unit);
                after.insert(number, unit);
            } else {
                after.remove(&number);
            }
        }
        let before = self.model.views[view].luns.clone();
        let units: BTreeMap<_, _> = after.iter().map(|(at, unit)| (lun(*at), Arc::clone(&self.units[*unit]))).collect();
        become_these(self.view(view), &units);
        self.model.change(view, after.clone());
        if view != WHOLE {
            return;
        }
        let changed: Vec<_> = NUMBERS.into_iter().filter(|at| before.get(at) != after.get(at)).map(lun).collect();
        self.views[ALL - 1].show_all();
        self.model.change(ALL, after.clone());
        let changed = self.random.maybe().then_some(&changed[..]);
        self.views[SOME - 1].show(changed, |unit| unit.slot() % 2 == 0);
        self.model.change(SOME, after.into_iter().filter(|(_, unit)| unit % 2 == 0).collect());
    }

    /// Nobody is left, and nothing of anybody.
    fn end(&mut self) {
        for unit in 0..UNITS {
            let known = self.units[unit].nexuses.count();
            assert!(known <= self.model.count(unit), "unit {unit} knows {known} nexuses");
        }
        for nexus in NEXUSES {
            if let Some(view) = self.place(nexus) {
                self.view(view).nexus_lost(nexus);
                self.model.leave(view, nexus);
            }
        }
        for (number, unit) in self.units.iter().enumerate() {
            assert_eq!(unit.nexuses.count(), 0, "unit {number} still knows somebody");
            assert!(!unit.is_removal_prevented());
        }
    }
}

#[test]
fn each_nexus_is_told_what_it_would_be_if_units_knew_all_from_the_start() {
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
        }
        world.end();
    }
}

/// Nexuses that come and go, and their commands, while the list changes: nothing stays behind.
#[test]
fn units_know_nobody_any_more_when_all_have_left_whatever_went_on_at_once() {
    let world = World::new(0);
    let memory = &world.memory;
    let give = |view: &LogicalUnits, nexus: NexusId, number: u16| {
        let task = Task { lun: Some(lun(number)), ..task(build::test_unit_ready(), &[]) };
        assert!(matches!(view.begin(nexus, task, memory, Instant::ZERO), Progress::Done(_)));
    };
    let world = &world;
    std::thread::scope(|scope| {
        for nexus in [NEXUSES[0], NEXUSES[1], NEXUSES[3]] {
            scope.spawn(move || {
                for turn in 0..1500 {
                    let view = world.view([WHOLE, ALL][turn % 2]);
                    view.nexus_established(nexus, ports(nexus.0, 1));
                    (0..8).for_each(|at| give(view, nexus, NUMBERS[at % 3]));
                    view.nexus_lost(nexus);
                }
            });
        }
        scope.spawn(|| {
            for turn in 0..3000 {
                let shown = |at: usize| (lun(NUMBERS[at % 3]), Arc::clone(&world.units[at % UNITS]));
                let (one, other) = (shown(turn), shown(turn + 1));
                become_these(&world.whole, &[one, other].into());
                world.views[ALL - 1].show_all();
                world.units[turn % UNITS].capacity_changed();
                if turn % 64 == 0 {
                    world.units[turn % UNITS].flush_failed();
                }
            }
        });
    });
    assert!(world.units.iter().all(|unit| unit.nexuses.count() == 0), "somebody is known who has left");
}

/// It has seen the unit that had the number before, and may have sent commands to it.
#[test]
fn who_comes_to_a_part_that_has_not_heard_of_a_change_yet_finds_no_other_unit_under_a_number() {
    let world = World::new(0);
    let (whole, part, nexus) = (world.view(WHOLE), world.view(ALL), NEXUSES[0]);
    let shown = |unit: usize| [(lun(0), Arc::clone(&world.units[unit]))].into();
    become_these(whole, &shown(1));
    part.show_all();
    part.nexus_established(NEXUSES[1], ports(2, 1));
    become_these(whole, &shown(2));
    part.nexus_established(nexus, ports(1, 1));
    part.show_all();
    let ready = || Sense::parse(&world.run(ALL, nexus, task(build::test_unit_ready(), &[])).sense);
    let nobody = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    assert_eq!([ready(), ready()], [Some(nobody); 2]);
    world.run(ALL, nexus, task(build::inquiry(Some(0x83), 255), &[]));
    let power_on = Sense::new(SenseKey::UnitAttention, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
    assert_eq!([ready(), ready()], [Some(power_on), None]);
}
