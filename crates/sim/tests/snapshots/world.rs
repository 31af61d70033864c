//! One world: volumes of a family under I/O, an administrator, and losses of power.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_sim::random::Random;
use sanwire_sim::world::Outcome;
use sanwire_snapshot::{Base, LayerId, Origin, SnapshotError, SnapshotStore, Tree};
use sanwire_store::{
    Completion, CompletionQueue, Course, ErrorKind, KernelOp, Operation, Outcome as Ended, Pending, Request, Store,
};

use super::device::Device;
use super::disk::{Faults, Machine, SECTOR_BYTES, SectorDisk, SimShelf};
use super::model::{Frozen, Model, Moment, content, version_of};

pub(super) const SECTOR: u64 = SECTOR_BYTES as u64;

/// Blocks of a group of the map: what is written lies around their borders.
pub(super) const GROUP_BLOCKS: u64 = 16_384;

/// How a world goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Operations of stores, at the most, until the power goes.
    pub life_operations: u64,
    /// How often the power goes.
    pub lives: u32,
    /// What goes wrong beside that.
    pub faults: Faults,
    /// The logical block.
    pub block_bytes: u32,
    /// What is below the layers.
    pub below: Below,
}

/// What is below all layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Below {
    Nothing,
    /// A file, which is as long as the volume.
    File,
    /// A [`Device`], which may be longer.
    Device,
}

/// A request of a volume that is under way.
pub(super) struct Flight {
    volume: String,
    course: Course,
    operations: BTreeMap<Pending, u32>,
    what: What,
    /// Its sectors, and how many.
    range: (u64, u64),
    moment: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Read,
    Change,
    Flush,
}

/// What an administrator was doing when the power went: it is done, or not.
pub(super) enum Doubt {
    Snapshot((String, String), Frozen),
    Clone(String, Frozen),
    RollBack(String, Model),
    Forget((String, String)),
}

pub(super) struct World {
    pub(super) random: Random,
    pub(super) plan: Plan,
    pub(super) machine: Arc<Machine>,
    pub(super) shelf: Arc<SimShelf>,
    pub(super) base: Option<Arc<SectorDisk>>,
    pub(super) tree: Option<Tree>,
    pub(super) completions: CompletionQueue,
    pub(super) flights: Vec<Flight>,
    pub(super) models: BTreeMap<String, Model>,
    pub(super) snapshots: BTreeMap<(String, String), Frozen>,
    pub(super) doubt: Option<Doubt>,
    /// A change of the catalogue has failed: nothing else is changed before the power goes, which is soon.
    pub(super) is_doubtful: bool,
    pub(super) next: u64,
}

/// Runs the world of a seed.
///
/// # Errors
/// When a volume or a snapshot holds what it may not.
pub fn run(plan: Plan, seed: u64) -> Outcome<()> {
    let mut world = World::new(plan, Random::new(seed))?;
    for _ in 0..plan.lives {
        while !world.machine.is_off() {
            world.turn()?;
        }
        world.start_again()?;
    }
    world.check_all()
}

pub(super) fn kernel(op: KernelOp) -> Completion {
    panic!("no disk here leaves anything to the kernel: {op:?}")
}

impl World {
    fn new(plan: Plan, mut random: Random) -> Outcome<Self> {
        let block = u64::from(plan.block_bytes);
        let machine = Machine::new(random.fork());
        let shelf = SimShelf::new(&machine, plan.block_bytes);
        let blocks = GROUP_BLOCKS + 100;
        let base = (plan.below != Below::Nothing).then(|| SectorDisk::new(&machine, blocks * block, plan.block_bytes));
        let origin = match &base {
            Some(base) => Origin::Base(below(base, plan.below)),
            None => Origin::Empty { length_bytes: blocks * block, block_bytes: plan.block_bytes, layer: id(1) },
        };
        let mut world = World {
            tree: Some(Tree::create(Arc::clone(&shelf) as _, "a", origin, &mut kernel).map_err(text)?),
            completions: CompletionQueue::new(|| ()),
            flights: Vec::new(),
            models: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            doubt: None,
            is_doubtful: false,
            next: 2,
            random,
            plan,
            machine,
            shelf,
            base,
        };
        let mut model = Model::default();
        model.set(world.windows(blocks).into_iter().map(|sector| (sector, 0)));
        world.models.insert("a".to_owned(), model);
        world.reopen()?;
        world.live();
        Ok(world)
    }

    pub(super) fn live(&mut self) {
        self.machine.set_life(self.random.range(0..=self.plan.life_operations), self.plan.faults);
    }

    /// The sectors that are written: some at the beginning of a volume, around its first map and at its end.
    pub(super) fn windows(&self, blocks: u64) -> Vec<u64> {
        let of = u64::from(self.plan.block_bytes) / SECTOR;
        let parts = [0..20, GROUP_BLOCKS - 10..GROUP_BLOCKS + 10, blocks - 20..blocks];
        parts.into_iter().flatten().flat_map(|block| block * of..(block + 1) * of).collect()
    }

    pub(super) fn disks(&self) -> Vec<Arc<SectorDisk>> {
        self.shelf.disks().into_iter().chain(self.base.clone()).collect()
    }

    pub(super) fn tree(&self) -> &Tree {
        self.tree.as_ref().expect("it is there while there is power")
    }

    pub(super) fn reopen(&mut self) -> Outcome<()> {
        let base = self.base.as_ref().map(|base| below(base, self.plan.below));
        let tree = Tree::open(Arc::clone(&self.shelf) as _, base).map_err(text)?;
        for volume in tree.volumes() {
            tree.volume(&volume, &mut kernel).map_err(text)?;
        }
        self.tree = Some(tree);
        Ok(())
    }

    /// The store of a volume; `None` when the power has gone.
    pub(super) fn store(&mut self, volume: &str) -> Outcome<Option<SnapshotStore>> {
        loop {
            self.machine.set_quick(true);
            let store = self.tree().volume(volume, &mut kernel);
            self.machine.set_quick(false);
            match store {
                Ok(store) => return Ok(Some(store)),
                // What fails for a moment is asked again.
                Err(error) => _ = self.judge(Err(error))?,
            }
            if self.machine.is_off() {
                return Ok(None);
            }
        }
    }

    pub(super) fn any_volume(&mut self) -> String {
        let which = self.random.range(0..=self.models.len() as u64 - 1) as usize;
        self.models.keys().nth(which).cloned().unwrap_or_default()
    }

    pub(super) fn turn(&mut self) -> Outcome<()> {
        self.machine.set_quick(false);
        match self.random.range(0..=99) {
            52..=67 if self.is_doubtful => Ok(()),
            0..=29 if self.flights.len() < 8 => self.begin(What::Change),
            30..=44 if self.flights.len() < 8 => self.begin(What::Read),
            45..=51 if self.flights.len() < 8 => self.begin(What::Flush),
            52..=54 => self.snapshot(),
            55 => self.clone_volume(),
            56 => self.roll_back(),
            57..=58 => self.forget(),
            59 => self.settle(),
            60..=65 => self.quick(|tree| tree.tidy(&mut kernel).map(drop)),
            66 => self.grow(),
            67 => self.check_a_snapshot(),
            68 => {
                self.machine.evict(&self.disks());
                Ok(())
            }
            _ => {
                self.machine.step();
                self.deliver()
            }
        }
    }

    pub(super) fn begin(&mut self, what: What) -> Outcome<()> {
        let volume = self.any_volume();
        let Some(store) = self.store(&volume)? else { return Ok(()) };
        let block = u64::from(self.plan.block_bytes) / SECTOR;
        let sectors: Vec<u64> = self.models[&volume].sectors().collect();
        let from = sectors[self.random.range(0..=sectors.len() as u64 - 1) as usize] / block * block;
        let longest =
            sectors.iter().skip_while(|sector| **sector < from).zip(from..).take_while(|(a, b)| *a == b).count();
        let count = self.random.range(1..=(longest as u64 / block).min(24)) * block;
        let overlaps = |flight: &Flight| {
            flight.volume == volume
                && flight.what == What::Change
                && from < flight.range.0 + flight.range.1
                && flight.range.0 < from + count
        };
        if what == What::Change && self.flights.iter().any(overlaps) {
            return Ok(());
        }
        let (version, offset_bytes, length_bytes) = (self.next, from * SECTOR, count * SECTOR);
        self.next += 1;
        let model = self.models.get_mut(&volume).expect("any volume has one");
        let (request, version) = match what {
            What::Read => (Request::Read { offset_bytes, buffer: vec![9; length_bytes as usize].into() }, None),
            What::Flush => (Request::Flush, None),
            What::Change => match self.random.range(0..=9) {
                0 if store.geometry().discards => (Request::Discard { offset_bytes, length_bytes }, Some(0)),
                0 | 1 => (Request::WriteZeroes { offset_bytes, length_bytes }, Some(0)),
                _ => {
                    let data: Vec<u8> = (from..from + count).flat_map(|sector| content(version, sector)).collect();
                    (Request::Write { offset_bytes, data: data.into() }, Some(version))
                }
            },
        };
        if let Some(version) = version {
            model.begin(from, count, version);
        }
        let moment = if what == What::Flush { model.now(0, u64::MAX) } else { model.now(from, count) };
        let mut flight = Flight {
            volume,
            course: Course::default(),
            operations: BTreeMap::new(),
            what,
            range: (from, count),
            moment,
        };
        let Flight { course, operations, .. } = &mut flight;
        let end = course.begin(store.start(request, &self.completions), &mut note(operations));
        match end {
            Some(end) => self.end(flight, end),
            None => {
                self.flights.push(flight);
                Ok(())
            }
        }
    }

    /// Goes on with what has ended below.
    pub(super) fn deliver(&mut self) -> Outcome<()> {
        loop {
            let arrived = self.completions.take();
            if arrived.is_empty() {
                return Ok(());
            }
            for (pending, completion) in arrived {
                let found = self.flights.iter().position(|flight| flight.operations.contains_key(&pending));
                let Some(place) = found else { continue };
                let Flight { course, operations, .. } = &mut self.flights[place];
                let number = operations.remove(&pending).expect("it was found");
                let started = sanwire_store::Started::Done(completion);
                let end = course.go_on(number, started, &self.completions, &mut note(operations));
                if let Some(end) = end {
                    let flight = self.flights.swap_remove(place);
                    self.end(flight, end)?;
                }
            }
        }
    }

    pub(super) fn end(&mut self, flight: Flight, end: Completion) -> Outcome<()> {
        let Flight { volume, what, range: (from, count), moment, .. } = flight;
        let Some(model) = self.models.get_mut(&volume) else { return Ok(()) };
        match (what, end) {
            (What::Read, Ok(Ended::Read(frame))) => {
                for (sector, bytes) in (from..from + count).zip(frame.chunks(SECTOR_BYTES)) {
                    let version =
                        version_of(bytes, sector).ok_or_else(|| format!("sector {sector} of {volume} is torn"))?;
                    model.may_show(&moment, sector, version).map_err(|what| format!("{volume}: {what}"))?;
                }
            }
            (What::Change, Ok(_)) => model.end(from, count),
            (What::Flush, Ok(_)) => model.flushed(&moment),
            // What one volume's flush has lost may be others' with which it shares a disk.
            // Where there is no space nothing is lost: the next flush is told the rest.
            (_, Err(error)) if error.kind == ErrorKind::Full => {}
            (What::Flush, Err(_)) => self.models.values_mut().for_each(Model::lost),
            // A flush that fails meanwhile may have lost it.
            (What::Change, Err(error)) if error.kind == ErrorKind::Unwritable => {}
            (_, Err(error)) if !self.machine.is_off() => return Err(format!("{volume}: {error}")),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn any_snapshot(&mut self) -> Option<((String, String), Frozen)> {
        let which = self.random.range(0..=self.snapshots.len().max(1) as u64 - 1) as usize;
        self.snapshots.iter().nth(which).map(|(key, frozen)| (key.clone(), frozen.clone()))
    }

    /// Has all end that is under way.
    pub(super) fn drain(&mut self) -> Outcome<()> {
        while self.machine.step() {
            self.deliver()?;
        }
        self.deliver()
    }

    pub(super) fn fresh(&mut self) -> LayerId {
        self.next += 1;
        id(self.next)
    }
}

fn below(base: &Arc<SectorDisk>, kind: Below) -> Base {
    let store: Arc<dyn Store> = match kind {
        Below::Device => Arc::new(Device(Arc::clone(base))),
        Below::Nothing | Below::File => Arc::clone(base) as _,
    };
    Base { store, identity: "base".to_owned(), may_be_longer: kind == Below::Device }
}

pub(super) fn id(number: u64) -> LayerId {
    LayerId(u128::from(number).to_be_bytes())
}

pub(super) fn text(error: SnapshotError) -> String {
    error.to_string()
}

pub(super) fn note(operations: &mut BTreeMap<Pending, u32>) -> impl FnMut(u32, Operation) + '_ {
    |number, operation| match operation {
        Operation::Pending(pending) => _ = operations.insert(pending, number),
        other => panic!("no disk here asks for {other:?}"),
    }
}
