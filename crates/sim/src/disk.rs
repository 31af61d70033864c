//! A disk with a volatile cache, that is slow, fails now and then, and loses its cache when the power goes.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanwire_store::{
    Allocation, Completion, ErrorKind, Geometry, KernelOp, Outcome, Request, Started, Store, StoreError,
};

use crate::content::BLOCK_BYTES;
use crate::random::Random;

/// How a disk behaves.
#[derive(Clone, Copy, Debug)]
pub struct DiskPlan {
    /// The shortest and longest time that a request takes, in microseconds.
    pub delay_us: (u64, u64),
    /// How many of a million requests take a hundred times as long.
    pub slow_per_million: u32,
    /// How many of a million requests fail.
    pub error_per_million: u32,
}

/// The disk. It outlives the servers that use it.
#[derive(Debug)]
pub struct SimDisk {
    plan: Mutex<(DiskPlan, Random)>,
    medium: Arc<Medium>,
    broken: Arc<Broken>,
    /// What a kernel would open: nothing of it is used.
    file: Arc<File>,
}

/// A request that the kernel has the disk do.
#[derive(Debug)]
pub struct Flight {
    /// How long it takes.
    pub delay: Duration,
    store: Arc<dyn Store>,
    request: Request,
}

impl Flight {
    /// It has taken that long: the disk does it now.
    ///
    /// # Panics
    /// When it does not.
    pub fn land(self) -> Completion {
        match self.store.start(self.request) {
            Started::Done(completion) => completion,
            Started::Kernel(_) | Started::Later(_) => unreachable!("the medium answers at once"),
        }
    }
}

impl SimDisk {
    /// An empty disk of `blocks`.
    ///
    /// # Panics
    /// When the kernel has no `/dev/null`.
    #[must_use]
    pub fn new(blocks: u64, plan: DiskPlan, random: Random) -> Arc<Self> {
        let length_bytes = blocks * BLOCK_BYTES as u64;
        let bytes = vec![0; length_bytes as usize];
        let medium = Arc::new(Medium { length_bytes, state: Mutex::new(State { bytes, unflushed: BTreeMap::new() }) });
        let broken = Arc::new(Broken { medium: Arc::clone(&medium), failed_flushes: AtomicU64::new(0) });
        let file = File::open("/dev/null").expect("every kernel has it");
        Arc::new(SimDisk { plan: Mutex::new((plan, random)), medium, broken, file: Arc::new(file) })
    }

    /// Begins a request that [`Store::start`] has left to the kernel.
    #[must_use]
    pub fn take_off(&self, request: Request) -> Flight {
        let mut plan = lock(&self.plan);
        let (DiskPlan { delay_us, slow_per_million, error_per_million }, random) = &mut *plan;
        let mut delay = random.micros(delay_us.0..=delay_us.1);
        if random.chance(*slow_per_million) {
            delay = delay * 100 + Duration::from_millis(1);
        }
        let fails = random.chance(*error_per_million);
        let store: Arc<dyn Store> = if fails { self.broken.clone() } else { self.medium.clone() };
        Flight { delay, store, request }
    }

    /// From now on it behaves so.
    pub fn set_plan(&self, plan: DiskPlan) {
        lock(&self.plan).0 = plan;
    }

    /// How many flushes have failed.
    #[must_use]
    pub fn failed_flushes(&self) -> u64 {
        self.broken.failed_flushes.load(Ordering::Relaxed)
    }

    /// All that was written is stable.
    pub fn sync(&self) {
        lock(&self.medium.state).unflushed.clear();
    }

    /// The power goes: each block written since the last flush keeps any of the contents that it had since then.
    pub fn lose_power(&self, random: &mut Random) {
        let mut state = lock(&self.medium.state);
        for (block, earlier) in std::mem::take(&mut state.unflushed) {
            let choice = random.range(0..=earlier.len() as u64) as usize;
            if let Some(content) = earlier.get(choice) {
                state.block(block).copy_from_slice(content);
            }
        }
    }
}

impl Store for SimDisk {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn start(&self, request: Request) -> Started {
        Started::Kernel(KernelOp { file: Arc::clone(&self.file), is_block_device: false, request })
    }
}

/// What the disk holds; it does at once what it is asked.
#[derive(Debug)]
struct Medium {
    length_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// What the blocks written since the last flush held before each write, the stable content first.
    unflushed: BTreeMap<usize, Vec<Box<[u8]>>>,
}

impl State {
    fn block(&mut self, block: usize) -> &mut [u8] {
        &mut self.bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES]
    }

    fn put(&mut self, offset_bytes: u64, length_bytes: usize, content: impl Fn(usize) -> [u8; BLOCK_BYTES]) {
        let first = offset_bytes as usize / BLOCK_BYTES;
        for index in 0..length_bytes / BLOCK_BYTES {
            let before: Box<[u8]> = (&*self.block(first + index)).into();
            self.unflushed.entry(first + index).or_default().push(before);
            self.block(first + index).copy_from_slice(&content(index));
        }
    }
}

impl Medium {
    fn execute(&self, request: Request) -> Completion {
        self.geometry().check(&request)?;
        let mut state = lock(&self.state);
        match request {
            Request::Read { offset_bytes, mut buffer } => {
                let start = offset_bytes as usize;
                let end = start + buffer.len();
                buffer.copy_from_slice(&state.bytes[start..end]);
                return Ok(Outcome::Read(buffer));
            }
            Request::Write { offset_bytes, data } => {
                let blocks = data.as_chunks::<BLOCK_BYTES>().0;
                state.put(offset_bytes, data.len(), |index| blocks[index]);
            }
            Request::Discard { offset_bytes, length_bytes } | Request::WriteZeroes { offset_bytes, length_bytes } => {
                state.put(offset_bytes, length_bytes as usize, |_| [0; BLOCK_BYTES]);
            }
            Request::Flush => state.unflushed.clear(),
            Request::Allocation { length_bytes, .. } => {
                return Ok(Outcome::Allocated(Allocation { is_mapped: true, length_bytes }));
            }
        }
        Ok(Outcome::Done)
    }
}

impl Store for Medium {
    fn geometry(&self) -> Geometry {
        Geometry {
            length_bytes: self.length_bytes,
            block_bytes: BLOCK_BYTES as u32,
            physical_block_bytes: 4096,
            read_only: false,
            discards: true,
            atomic_write_bytes: 0,
        }
    }

    fn start(&self, request: Request) -> Started {
        Started::Done(self.execute(request))
    }
}

/// The same medium when it fails: a write may have done its first half.
#[derive(Debug)]
struct Broken {
    medium: Arc<Medium>,
    failed_flushes: AtomicU64,
}

impl Store for Broken {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn start(&self, request: Request) -> Started {
        let (offset_bytes, _) = request.range_bytes();
        if matches!(request, Request::Flush) {
            self.failed_flushes.fetch_add(1, Ordering::Relaxed);
        }
        let kind = if request.is_write() { ErrorKind::Unwritable } else { ErrorKind::Unreadable };
        if let Request::Write { offset_bytes, data } = request {
            let half = data.len() / BLOCK_BYTES / 2 * BLOCK_BYTES;
            if half > 0 {
                let written = self.medium.execute(Request::Write { offset_bytes, data: data.slice(0..half) });
                debug_assert!(written.is_ok());
            }
        }
        Started::Done(Err(StoreError::new(kind, offset_bytes)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
