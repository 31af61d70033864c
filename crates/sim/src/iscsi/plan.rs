//! What a world of iSCSI is made of, and what goes wrong in it.

use std::time::Duration;

use sanwire_iscsi::Wishes;

use crate::disk::DiskPlan;
use crate::plan::Work;
use crate::random::Random;

/// How the streams of a connection behave.
#[derive(Clone, Copy, Debug)]
pub struct StreamPlan {
    /// The shortest and longest way of a piece, in microseconds. Pieces of one stream stay in order; connections overtake
    /// each other.
    pub delay_us: (u64, u64),
    /// The most bytes that come at once.
    pub piece_max_bytes: u64,
    /// How many of a million PDUs are damaged, once digests protect them.
    pub damage_per_million: u32,
}

/// What goes wrong at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A connection is reset: some of what is on its way still comes, both ends learn it.
    Cut,
    /// A connection is lost, and only the client learns it.
    CutUnnoticedByServer,
    /// A connection is lost, and only the server learns it.
    CutUnnoticedByClient,
    /// Nothing passes on any connection of a client for so long; then everything comes.
    Stall(Duration),
    /// The server is killed.
    Kill,
    /// The server is killed and the disk loses its cache.
    LosePower,
    /// The server asks its initiators to leave, and is killed soon after.
    ShutDown,
    /// The server starts again.
    Start,
}

/// Everything about a world but its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many clients, each with a session.
    pub clients: usize,
    /// What they would like to agree on.
    pub wishes: Wishes,
    /// Both ends show who they are.
    pub has_chap: bool,
    /// All streams.
    pub stream: StreamPlan,
    /// The disk.
    pub disk: DiskPlan,
    /// Whether the disk says that it has a write cache.
    pub write_cache: bool,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Memory of the server, in bytes.
    pub server_memory_bytes: usize,
    /// Memory of each client, in bytes.
    pub client_memory_bytes: usize,
    /// Commands of a session that the server takes at once.
    pub commands_max: u32,
    /// How long a command may stand still.
    pub command_patience: Option<Duration>,
    /// What clients do.
    pub work: Work,
    /// Faults, and when they come.
    pub faults: Vec<(Duration, Fault)>,
    /// When everything is healed.
    pub healed_after: Duration,
}

impl Plan {
    /// A world without faults.
    #[must_use]
    pub fn clean(wishes: Wishes) -> Self {
        Plan {
            clients: 1,
            wishes,
            has_chap: false,
            stream: StreamPlan { delay_us: (10, 10), piece_max_bytes: 1 << 20, damage_per_million: 0 },
            disk: DiskPlan { delay_us: (20, 100), slow_per_million: 0, error_per_million: 0 },
            write_cache: true,
            blocks: 2048,
            server_memory_bytes: 4 << 20,
            client_memory_bytes: 4 << 20,
            commands_max: 16,
            command_patience: Some(Duration::from_secs(30)),
            work: Work {
                commands: 40,
                depth: 8,
                blocks_max: 64,
                budget_bytes: 1 << 20,
                abort_per_million: 0,
                reset_per_million: 0,
                count_per_million: 50_000,
                think_us: 500,
            },
            faults: Vec::new(),
            healed_after: Duration::from_secs(1),
        }
    }

    /// A world of any shape, without faults.
    pub fn any(random: &mut Random) -> Self {
        let wishes = Wishes {
            digests: random.chance(500_000),
            error_recovery_level: random.range(0..=2) as u8,
            connections: random.choose(&[1, 1, 2, 3, 4]),
        };
        let mut plan = Plan::clean(wishes);
        plan.clients = random.choose(&[1, 1, 2, 3]);
        plan.has_chap = random.chance(250_000);
        plan.stream.delay_us = random.choose(&[(10, 10), (10, 500), (100, 20_000)]);
        plan.stream.piece_max_bytes = random.choose(&[97, 1460, 20_000, 1 << 20]);
        plan.write_cache = random.chance(700_000);
        plan.blocks = random.choose(&[64, 600, 2048]);
        plan.commands_max = random.choose(&[1, 4, 32]);
        plan.work.commands = random.range(10..=60);
        plan.work.depth = random.range(1..=12) as usize;
        // Few bytes: a small piece is an event. The largest have more than one burst.
        plan.work.blocks_max = match plan.stream.piece_max_bytes {
            97 => 16,
            1460 => 64,
            _ => random.choose(&[8, 64, 600]),
        }
        .min(plan.blocks);
        plan.work.budget_bytes = if plan.stream.piece_max_bytes < 10_000 { 64 << 10 } else { 1 << 20 };
        plan.work.think_us = random.choose(&[0, 500, 20_000]);
        plan
    }
}
