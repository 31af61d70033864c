//! What a world is made of, whatever its wire.

use std::time::Duration;

use crate::derived::DerivedPlan;
use crate::disk::DiskPlan;
use crate::random::Random;

/// What goes wrong at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault<F> {
    /// Something of the wire.
    Wire(F),
    /// The server is killed.
    Kill,
    /// The server is killed and the disk loses its cache.
    LosePower,
    /// The server starts again.
    Start,
    /// The server tells its clients that it stops, and ends.
    ShutDown,
    /// The server makes stable what was written, if it remembers that, and is gone.
    End,
    /// What failed flushes of the disk have lost is not even shown any more.
    Evict,
}

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Commands of each client.
    pub commands: u64,
    /// In flight at once.
    pub depth: usize,
    /// The most blocks of a command.
    pub blocks_max: u64,
    /// Bytes that a client moves before it does small commands only.
    pub budget_bytes: u64,
    /// How many of a million commands are aborts.
    pub abort_per_million: u32,
    /// How many of a million commands are resets of the logical unit.
    pub reset_per_million: u32,
    /// How many of a million commands are the one that must not be executed twice.
    pub count_per_million: u32,
    /// How many of a million commands are requests to manage the server.
    pub manage_per_million: u32,
    /// How many of a million commands are flushes, besides those that there are anyway.
    pub flush_per_million: u32,
    /// So many clients may manage it: the first ones.
    pub managers: usize,
    /// The longest pause between two commands, in microseconds.
    pub think_us: u64,
    /// How long clients wait for a server that is away before what they have asked fails; `None`: as long as it takes.
    pub patience: Option<Duration>,
}

/// Everything about a world but its seed.
#[derive(Clone, Debug)]
pub struct Plan<P, F> {
    /// The wire.
    pub wire: P,
    /// How many clients.
    pub clients: usize,
    /// The disk.
    pub disk: DiskPlan,
    /// Whether the disk says that it has a write cache.
    pub write_cache: bool,
    /// The disk is not served, but a unit that is derived from it so; `None`: it is served itself.
    pub derived: Option<DerivedPlan>,
    /// Whether the server says what may have been lost of writes that were not flushed, and who alone has written.
    pub is_verified: bool,
    /// Whether others give the clients' commands and take what they tell.
    pub is_driven: bool,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Memory of the server, in bytes.
    pub server_memory_bytes: usize,
    /// Memory of each client, in bytes.
    pub client_memory_bytes: usize,
    /// What clients do.
    pub work: Work,
    /// Faults, and when they come.
    pub faults: Vec<(Duration, Fault<F>)>,
    /// When everything is healed.
    pub healed_after: Duration,
}

impl<P, F> Plan<P, F> {
    /// Has several clients, some of which may not use what is served, or only read there.
    pub fn derive_for_some(&mut self, random: &mut Random) {
        self.clients = random.range(2..=4) as usize;
        self.derived = Some(DerivedPlan::for_some(self.clients, random));
    }

    /// One client at a server that has so much memory, and no faults.
    #[must_use]
    pub fn with_wire(wire: P, memory_bytes: usize, blocks_max: u64) -> Self {
        Plan {
            wire,
            clients: 1,
            disk: DiskPlan {
                delay_us: (20, 100),
                flush_us: 0,
                slow_per_million: 0,
                error_per_million: 0,
                loss_per_million: 0,
                early_per_million: 0,
            },
            write_cache: true,
            derived: None,
            is_verified: false,
            is_driven: false,
            blocks: 2048,
            server_memory_bytes: memory_bytes,
            client_memory_bytes: memory_bytes,
            work: Work {
                commands: 40,
                depth: 8,
                blocks_max,
                budget_bytes: 1 << 20,
                abort_per_million: 0,
                reset_per_million: 0,
                count_per_million: 50_000,
                manage_per_million: 0,
                flush_per_million: 0,
                managers: 0,
                think_us: 500,
                patience: None,
            },
            faults: Vec::new(),
            healed_after: Duration::ZERO,
        }
    }
}
