//! Disks that may also answer at once, hold requests back, do them themselves, hang, and be full or gone for a while; and that tell what
//! they wrote.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanwire_store::{
    Completer, Completion, CompletionQueue, Delayed, ErrorKind, Geometry, KernelOp, Outcome, Request, Started, Store,
    StoreError,
};

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
    pending_per_million: u32,
    dropped_per_million: u32,
    split_per_million: u32,
    hanging_per_million: u32,
    /// What it does itself, and nobody has looked at yet.
    begun: Vec<AtStore>,
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
            pending_per_million: plan.pending_per_million,
            dropped_per_million: plan.dropped_per_million,
            split_per_million: plan.split_per_million,
            begun: Vec::new(),
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
        state.dropped_per_million = 0;
        let disk = crate::disk::DiskPlan { slow_per_million: 0, error_per_million: 0, ..plan.disk };
        self.medium.set_plan(disk);
    }

    /// What was written since the last look.
    pub fn take_journal(&self) -> Vec<Written> {
        std::mem::take(&mut self.lock().journal)
    }

    /// What it has begun to do itself since the last look.
    pub fn take_begun(&self) -> Vec<AtStore> {
        std::mem::take(&mut self.lock().begun)
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
            Request::Write { offset_bytes, data } => (Kind::Write, blocks_of(*offset_bytes, &data.contiguous())),
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

/// A request that such a disk does itself.
#[derive(Debug)]
pub struct AtStore {
    /// What it does.
    pub flight: MoodyFlight,
    /// It does this first: the same once more.
    pub twin: Option<MoodyFlight>,
    /// How long it takes until its end is told, after it is done.
    pub silence: Duration,
    completer: Completer,
    is_dropped: bool,
}

impl AtStore {
    /// What is done, and what its end is told by: nothing, when it is lost track of.
    pub fn land(self) -> (Option<Completer>, Completion) {
        let AtStore { flight, twin, completer, is_dropped, .. } = self;
        if let Some(twin) = twin {
            let _ = twin.land();
        }
        let completion = flight.land();
        if is_dropped {
            drop(completer);
            return (None, completion);
        }
        (Some(completer), completion)
    }
}

/// The same disk when it is asked by engines.
#[derive(Debug)]
pub struct DiskStore(pub Arc<MoodyDisk>);

/// The same when it has held a request back.
#[derive(Debug)]
struct Resumed(Arc<MoodyDisk>);

impl MoodyDisk {
    /// Does a request itself.
    fn pend(self: &Arc<Self>, request: Request, completions: &CompletionQueue) -> Started {
        let (is_doubled, is_dropped, silence) = {
            let state = &mut *self.lock();
            let is_dropped = state.random.chance(state.dropped_per_million);
            (state.random.chance(50_000), is_dropped, state.random.micros(0..=2_000))
        };
        let twin = match &request {
            Request::Write { offset_bytes, data } if is_doubled => {
                Some(self.take_off(Request::Write { offset_bytes: *offset_bytes, data: data.clone() }))
            }
            _ => None,
        };
        let flight = self.take_off(request);
        let (pending, completer) = completions.pend();
        self.lock().begun.push(AtStore { flight, twin, silence, completer, is_dropped });
        Started::Pending(pending)
    }
}

impl Store for Resumed {
    fn geometry(&self) -> Geometry {
        self.0.medium.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let (at_once, is_pending) = {
            let state = &mut *self.0.lock();
            (state.random.chance(state.at_once_per_million), state.random.chance(state.pending_per_million))
        };
        if at_once {
            return Started::Done(self.0.take_off(request).land());
        }
        if is_pending {
            return self.0.pend(request, completions);
        }
        Started::Kernel(KernelOp { file: Arc::clone(&self.0.file), is_block_device: false, request })
    }
}

impl Store for DiskStore {
    fn geometry(&self) -> Geometry {
        self.0.medium.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let is_split = {
            let state = &mut *self.0.lock();
            state.random.chance(state.split_per_million)
        };
        match request {
            Request::Write { offset_bytes, data } if is_split && data.len() > BLOCK_BYTES => {
                let cut = data.len() / BLOCK_BYTES / 2 * BLOCK_BYTES;
                let (first, second) = (data.slice(0..cut), data.slice(cut..data.len()));
                let parts = [(offset_bytes, first), (offset_bytes + cut as u64, second)];
                let begin = |(offset_bytes, data)| self.begin(Request::Write { offset_bytes, data }, completions);
                Started::join(parts.map(begin).into(), completions, |ends, _| {
                    let failed = ends.into_iter().find(Result::is_err);
                    Started::Done(failed.unwrap_or(Ok(Outcome::Done)))
                })
            }
            request => self.begin(request, completions),
        }
    }
}

impl DiskStore {
    fn begin(&self, request: Request, completions: &CompletionQueue) -> Started {
        let (is_later, delay) = {
            let state = &mut *self.0.lock();
            (state.random.chance(state.later_per_million), state.random.micros(1..=5_000))
        };
        let store = Resumed(Arc::clone(&self.0));
        if is_later {
            Started::Later(Delayed { delay, store: Arc::new(store), request })
        } else {
            store.start(request, completions)
        }
    }
}
