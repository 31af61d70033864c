//! Disks that may also answer at once, hold requests back, hang, and be full or gone for a while; and that tell what they wrote.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanwire_store::{Completion, Delayed, ErrorKind, Geometry, KernelOp, Request, Started, Store, StoreError};

use super::plan::Plan;
use crate::content::{BLOCK_BYTES, version_of};
use crate::disk::{Flight, SimDisk};
use crate::random::Random;

/// A block was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Of this disk.
    pub disk: usize,
    /// Which block.
    pub lba: u64,
    /// By which command.
    pub version: u64,
}

/// One disk of a world.
#[derive(Debug)]
pub struct MoodyDisk {
    number: usize,
    medium: Arc<SimDisk>,
    file: Arc<File>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    at_once_per_million: u32,
    later_per_million: u32,
    hanging_per_million: u32,
    stall: Option<ErrorKind>,
    journal: Vec<Written>,
    /// What each block holds.
    versions: BTreeMap<u64, u64>,
}

/// A request that the kernel has such a disk do.
#[derive(Debug)]
pub struct MoodyFlight {
    disk: Arc<MoodyDisk>,
    /// `None`: it takes until all is healed.
    pub delay: Option<Duration>,
    blocks: Vec<(u64, u64)>,
    kind: Kind,
    flight: Flight,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Write,
    Other,
}

impl MoodyDisk {
    /// A disk of such a world.
    ///
    /// # Panics
    /// When the kernel has no `/dev/null`.
    #[must_use]
    pub fn new(number: usize, plan: &Plan, random: &mut Random) -> Arc<Self> {
        let state = State {
            random: random.fork(),
            at_once_per_million: plan.at_once_per_million,
            later_per_million: plan.later_per_million,
            hanging_per_million: plan.hanging_per_million,
            stall: None,
            journal: Vec::new(),
            versions: BTreeMap::new(),
        };
        Arc::new(MoodyDisk {
            number,
            medium: SimDisk::new(plan.blocks, plan.disk, random.fork()),
            file: Arc::new(File::open("/dev/null").expect("every kernel has it")),
            state: Mutex::new(state),
        })
    }

    /// Whether work for the kernel is for this disk.
    #[must_use]
    pub fn is_for(&self, op: &KernelOp) -> bool {
        Arc::ptr_eq(&self.file, &op.file)
    }

    /// From now on it fails so, or not any more.
    pub fn stall(&self, kind: Option<ErrorKind>) {
        self.lock().stall = kind;
    }

    /// From now on nothing hangs or fails.
    pub fn heal(&self, plan: &Plan) {
        let mut state = self.lock();
        (state.hanging_per_million, state.stall) = (0, None);
        let disk = crate::disk::DiskPlan { slow_per_million: 0, error_per_million: 0, ..plan.disk };
        self.medium.set_plan(disk);
    }

    /// What was written since the last look.
    pub fn take_journal(&self) -> Vec<Written> {
        std::mem::take(&mut self.lock().journal)
    }

    /// Which version a block holds.
    #[must_use]
    pub fn version(&self, lba: u64) -> u64 {
        self.lock().versions.get(&lba).copied().unwrap_or(0)
    }

    /// Begins a request that was left to the kernel.
    #[must_use]
    pub fn take_off(self: &Arc<Self>, request: Request) -> MoodyFlight {
        let hangs = {
            let state = &mut *self.lock();
            state.random.chance(state.hanging_per_million)
        };
        let (kind, blocks) = match &request {
            Request::Write { offset_bytes, data } => (Kind::Write, blocks_of(*offset_bytes, data)),
            _ => (Kind::Other, Vec::new()),
        };
        let flight = self.medium.take_off(request);
        let delay = (!hangs).then_some(flight.delay);
        MoodyFlight { disk: Arc::clone(self), delay, blocks, kind, flight }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which blocks a write changes, and to which versions.
fn blocks_of(offset_bytes: u64, data: &[u8]) -> Vec<(u64, u64)> {
    let first = offset_bytes / BLOCK_BYTES as u64;
    let blocks = data.chunks(BLOCK_BYTES).zip(first..);
    // What no command has written anywhere shows as the content of nobody.
    blocks.map(|(block, lba)| (lba, version_of(block, lba).unwrap_or(u64::MAX))).collect()
}

impl MoodyFlight {
    /// The versions that it is to write.
    pub fn versions(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().map(|(_, version)| *version)
    }

    /// The disk does it now.
    pub fn land(self) -> Completion {
        let MoodyFlight { disk, mut blocks, kind, flight, .. } = self;
        if let Some(kind) = disk.lock().stall {
            return Err(StoreError::new(kind, 0));
        }
        let completion = flight.land();
        if completion.is_err() {
            // A write that fails may have done its first half.
            blocks.truncate(blocks.len() / 2);
        }
        if kind == Kind::Write {
            let state = &mut *disk.lock();
            for (lba, version) in blocks {
                state.journal.push(Written { disk: disk.number, lba, version });
                state.versions.insert(lba, version);
            }
        }
        completion
    }
}

/// The same disk when it does at once what it is asked, or leaves it to the kernel.
#[derive(Debug)]
pub struct DiskStore(pub Arc<MoodyDisk>);

/// The same when it has held a request back.
#[derive(Debug)]
struct Resumed(Arc<MoodyDisk>);

impl Store for Resumed {
    fn geometry(&self) -> Geometry {
        self.0.medium.geometry()
    }

    fn start(&self, request: Request) -> Started {
        let at_once = {
            let state = &mut *self.0.lock();
            state.random.chance(state.at_once_per_million)
        };
        if at_once {
            return Started::Done(self.0.take_off(request).land());
        }
        Started::Kernel(KernelOp { file: Arc::clone(&self.0.file), is_block_device: false, request })
    }
}

impl Store for DiskStore {
    fn geometry(&self) -> Geometry {
        self.0.medium.geometry()
    }

    fn start(&self, request: Request) -> Started {
        let (is_later, delay) = {
            let state = &mut *self.0.lock();
            (state.random.chance(state.later_per_million), state.random.micros(1..=5_000))
        };
        let store = Resumed(Arc::clone(&self.0));
        if is_later { Started::Later(Delayed { delay, store: Arc::new(store), request }) } else { store.start(request) }
    }
}
