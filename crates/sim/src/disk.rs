//! A disk with a volatile cache, that is slow, fails now and then, and loses its cache when the power goes. A flush of it may fail, and
//! then has lost what it was to make stable.

mod medium;

use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_store::{Completion, CompletionQueue, Geometry, KernelOp, Request, Started, Store};
use sanwire_store_file::blocking;

use self::medium::{Broken, Early, Losing, Medium, lock};
use crate::content::BLOCK_BYTES;
use crate::random::Random;

/// How a disk behaves.
#[derive(Clone, Copy, Debug)]
pub struct DiskPlan {
    /// The shortest and longest time that a request takes, in microseconds.
    pub delay_us: (u64, u64),
    /// What a flush takes besides, at the most, in microseconds.
    pub flush_us: u64,
    /// How many of a million requests take a hundred times as long.
    pub slow_per_million: u32,
    /// How many of a million requests fail.
    pub error_per_million: u32,
    /// How many of a million flushes fail and lose some of what they were to make stable. As Linux does it: reads show that still, until
    /// it is evicted or the power goes; one flush is told, perhaps another one that is under way; and the next one succeeds.
    pub loss_per_million: u32,
    /// How many of a million writes are done as soon as they are asked, long before their end is seen.
    pub early_per_million: u32,
}

impl DiskPlan {
    /// From now on nothing goes wrong.
    #[must_use]
    pub const fn healed(self) -> Self {
        DiskPlan { slow_per_million: 0, error_per_million: 0, loss_per_million: 0, ..self }
    }
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
    pub fn land(self) -> Completion {
        blocking::run(&*self.store, self.request)
    }
}

impl SimDisk {
    /// An empty disk of `blocks`.
    ///
    /// # Panics
    /// When the kernel has no `/dev/null`.
    #[must_use]
    pub fn new(blocks: u64, plan: DiskPlan, random: Random) -> Arc<Self> {
        let medium = Arc::new(Medium::new(blocks * BLOCK_BYTES as u64));
        let broken = Arc::new(Broken::new(&medium));
        let file = File::open("/dev/null").expect("every kernel has it");
        Arc::new(SimDisk { plan: Mutex::new((plan, random)), medium, broken, file: Arc::new(file) })
    }

    /// Begins a request that [`Store::start`] has left to the kernel.
    #[must_use]
    pub fn take_off(&self, request: Request) -> Flight {
        let mut plan = lock(&self.plan);
        let (plan, random) = &mut *plan;
        let DiskPlan { delay_us, flush_us, slow_per_million, error_per_million, loss_per_million, early_per_million } =
            plan;
        let mut delay = random.micros(delay_us.0..=delay_us.1);
        if random.chance(*slow_per_million) {
            delay = delay * 100 + Duration::from_millis(1);
        }
        let mut store: Arc<dyn Store> =
            if random.chance(*error_per_million) { self.broken.clone() } else { self.medium.clone() };
        if matches!(request, Request::Flush) && *flush_us > 0 {
            delay += random.micros(0..=*flush_us);
        }
        if matches!(request, Request::Flush) && random.chance(*loss_per_million) {
            let mut own = random.fork();
            // What is lost before the end may be told to another one that ends first.
            match random.chance(500_000) {
                true => lock(&self.medium.state).lose(&mut own),
                false => store = Arc::new(Losing::new(&self.medium, own)),
            }
        }
        if let Request::Write { offset_bytes, data } = &request
            && random.chance(*early_per_million)
        {
            store = Arc::new(Early::new(&*store, Request::Write { offset_bytes: *offset_bytes, data: data.clone() }));
        }
        Flight { delay, store, request }
    }

    /// From now on it behaves so.
    pub fn set_plan(&self, plan: DiskPlan) {
        lock(&self.plan).0 = plan;
    }

    /// How many flushes have failed, whether they lost something or not.
    #[must_use]
    pub fn failed_flushes(&self) -> u64 {
        lock(&self.medium.state).failed_flushes
    }

    /// A server that stops makes all stable that was written; `false`: the disk has lost some of it.
    pub fn sync(&self) -> bool {
        let flush = {
            let (DiskPlan { loss_per_million, .. }, random) = &mut *lock(&self.plan);
            random.chance(*loss_per_million).then(|| random.fork())
        };
        if let Some(mut random) = flush {
            lock(&self.medium.state).lose(&mut random);
        }
        blocking::run(&*self.medium, Request::Flush).is_ok()
    }

    /// Whether anybody hears of it when a flush fails. What nobody hears the next one is told: of a process that was killed in its flush
    /// nobody knows what it was told.
    pub fn set_heard(&self, is_heard: bool) {
        lock(&self.medium.state).is_heard = is_heard;
    }

    /// Whether a flush was told of a loss since that was asked last.
    pub fn was_told(&self) -> bool {
        std::mem::take(&mut lock(&self.medium.state).was_told)
    }

    /// What failed flushes have lost is not even shown any more, if one was told of it; whether there was something.
    pub fn evict(&self) -> bool {
        lock(&self.medium.state).evict()
    }

    /// The power goes: each block written since the last flush keeps any of the contents that it had since then.
    pub fn lose_power(&self, random: &mut Random) {
        lock(&self.medium.state).lose_power(random);
    }
}

impl Store for SimDisk {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        Started::Kernel(KernelOp { file: Arc::clone(&self.file), is_block_device: false, request })
    }
}
