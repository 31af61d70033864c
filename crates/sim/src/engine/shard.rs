//! One shard of such a world: an engine, its memory, and the kernel that works for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_device::{LogicalUnits, Seat};
use sanwire_engine::{Engine, Meter, VolumeCounters, Work};
use sanwire_scsi::Reply;
use sanwire_store::CompletionQueue;

use super::disks::{MoodyDisk, MoodyFlight};
use super::initiator::task;
use super::oracle::{Asked, Command, Oracle};

/// A command whose store works for it keeps its blocks after this, whatever has become of its nexus.
pub const KEPT_WITHIN: Duration = Duration::from_secs(2);

/// What each nexus may have of the memory whatever others do.
const GUARANTEED_BYTES: usize = 4096;

/// Work that the kernel has begun.
pub struct Begun {
    /// For [`Shard::land`].
    pub token: u64,
    /// How long it takes; `None`: until all is healed.
    pub delay: Option<Duration>,
}

/// A shard.
pub struct Shard {
    /// The product's.
    pub engine: Engine<Command>,
    /// It is to look for what stores have completed, and for memory.
    woken: Arc<AtomicBool>,
    /// All its memory.
    pub memory: Region,
    counters: VolumeCounters,
    shares: BTreeMap<NexusId, Region>,
    flights: BTreeMap<u64, (u64, MoodyFlight)>,
    next_token: u64,
    depth: usize,
}

impl Shard {
    /// A shard with so much memory, whose kernel does so much at once.
    ///
    /// # Panics
    /// When the kernel has no memory.
    #[must_use]
    pub fn new(memory_bytes: usize, depth: usize) -> Self {
        let memory = Region::new(memory_bytes).expect("a small region");
        let woken = Arc::new(AtomicBool::new(false));
        let (flag, for_memory) = (Arc::clone(&woken), Arc::clone(&woken));
        memory.on_release(move || for_memory.store(true, Ordering::Relaxed));
        Shard {
            engine: Engine::new(memory.clone(), CompletionQueue::new(move || flag.store(true, Ordering::Relaxed))),
            woken,
            memory,
            counters: VolumeCounters::default(),
            shares: BTreeMap::new(),
            flights: BTreeMap::new(),
            next_token: 0,
            depth,
        }
    }

    /// Whether a store, or a release of memory, has woken it since that was asked last.
    pub fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::Relaxed)
    }

    /// A nexus comes.
    pub fn open(&mut self, nexus: NexusId) {
        self.shares.insert(nexus, self.memory.share(GUARANTEED_BYTES));
    }

    /// A nexus is gone.
    pub fn close(&mut self, nexus: NexusId) {
        self.engine.withhold(nexus, false);
        self.shares.remove(&nexus);
    }

    /// Gives a command; `false`: there is no memory for its data, and nothing has happened.
    pub fn give(&mut self, asked: &Asked, units: &Arc<LogicalUnits>, oracle: &mut Oracle, now: Instant) -> bool {
        let Some(share) = self.shares.get(&asked.command.nexus) else { return false };
        let Some(task) = task(asked, share) else { return false };
        oracle.ask(*asked, now);
        let meter = Meter::start(units, &task, now);
        self.engine.begin(asked.command, meter, Seat { units, memory: share, weight: 1 }, task, now);
        true
    }

    /// Gives the kernel what it is to do, as far as it has room.
    pub fn submit(&mut self, disks: &[Arc<MoodyDisk>], oracle: &mut Oracle, now: Instant) -> Vec<Begun> {
        let mut begun = Vec::new();
        while let Some(work) = self.engine.poll_work() {
            if self.flights.len() >= self.depth {
                self.engine.give_back(work);
                break;
            }
            let Work { id, op } = work;
            let Some(disk) = disks.iter().find(|disk| disk.is_for(&op)) else { continue };
            let flight = disk.take_off(op.request);
            oracle.begin_write(flight.versions(), now);
            let token = self.next_token;
            self.next_token += 1;
            begun.push(Begun { token, delay: flight.delay });
            self.flights.insert(token, (id, flight));
        }
        begun
    }

    /// The kernel has done its work: what it means to the disk happens now. [`Shard::complete`] tells the engine.
    pub fn land(&mut self, token: u64) -> Option<(u64, sanwire_store::Completion)> {
        let (id, flight) = self.flights.remove(&token)?;
        Some((id, flight.land()))
    }

    /// The next command that is over.
    pub fn poll_ended(&mut self, now: Instant) -> Option<(Command, Option<Reply>)> {
        let ended = self.engine.poll_ended()?;
        self.counters.note(&ended.meter, ended.reply.as_ref(), now);
        Some((ended.handle, ended.reply))
    }

    /// How many commands were counted.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.counters.volumes().iter().map(|(_, volume)| volume.commands()).sum()
    }

    /// What is left, in the end, of what should all be over.
    ///
    /// # Errors
    /// When something is.
    pub fn check_idle(&self) -> Result<(), String> {
        let is_home = self.memory.free_bytes() == self.memory.length_bytes();
        if !self.engine.is_idle() || !self.flights.is_empty() || !is_home {
            return Err(format!("{} at the disks, {:?}, {:?}", self.flights.len(), self.engine, self.memory));
        }
        Ok(())
    }
}
