//! What a world of iSCSI is made of, and what goes wrong with its connections.

use std::time::Duration;

use sanwire_iscsi::DesiredParameters;

use crate::plan;
use crate::random::Random;
use crate::rdma::AdapterPlan;

/// Everything about a world but its seed.
pub type Plan = plan::Plan<StreamPlan, StreamFault>;

/// What goes wrong at some moment.
pub type Fault = plan::Fault<StreamFault>;

/// How the streams of a connection behave.
#[derive(Clone, Copy, Debug)]
pub struct PiecePlan {
    /// The shortest and longest way of a piece, in microseconds. Pieces of one stream stay in order; connections overtake
    /// each other.
    pub delay_us: (u64, u64),
    /// The most bytes that come at once.
    pub piece_max_bytes: u64,
    /// How many of a million PDUs are damaged, once digests protect them.
    pub damage_per_million: u32,
}

/// What goes wrong with connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamFault {
    /// A connection is reset: some of what is on its way still comes, both ends learn it.
    Cut,
    /// A connection is lost, and only the client learns it.
    CutUnnoticedByServer,
    /// A connection is lost, and only the server learns it.
    CutUnnoticedByClient,
    /// Nothing passes on any connection of a client for so long; then everything comes.
    Stall(Duration),
    /// This client goes on sending for so long and reads nothing: what the server has for it waits there, or in its adapter.
    Deafen(usize, Duration),
}

/// The connections and their ends.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// RDMA carries it: iSER.
    pub is_iser: bool,
    /// RDMA is that of adapters: of those of clients, and of the server's.
    pub adapters: Option<[AdapterPlan; 2]>,
    /// What clients would like to agree on.
    pub wishes: DesiredParameters,
    /// Both ends show who they are.
    pub has_chap: bool,
    /// All streams.
    pub pieces: PiecePlan,
    /// Commands of a session that the server takes at once.
    pub commands_max: u32,
    /// How long a command may stand still.
    pub command_patience: Option<Duration>,
}

impl Plan {
    /// A world without faults.
    #[must_use]
    pub fn clean(wishes: DesiredParameters) -> Self {
        let wire = StreamPlan {
            is_iser: false,
            adapters: None,
            wishes,
            has_chap: false,
            pieces: PiecePlan { delay_us: (10, 10), piece_max_bytes: 1 << 20, damage_per_million: 0 },
            commands_max: 16,
            command_patience: Some(Duration::from_secs(30)),
        };
        Plan { healed_after: Duration::from_secs(1), ..Plan::with_wire(wire, 4 << 20, 64) }
    }

    /// A world of any shape, without faults.
    pub fn any(random: &mut Random) -> Self {
        let wishes = DesiredParameters {
            digests: random.chance(500_000),
            error_recovery_level: random.range(0..=2) as u8,
            connections: random.choose(&[1, 1, 2, 3, 4]),
        };
        let mut plan = Plan::clean(wishes);
        plan.clients = random.choose(&[1, 1, 2, 3]);
        plan.wire.has_chap = random.chance(250_000);
        plan.wire.pieces.delay_us = random.choose(&[(10, 10), (10, 500), (100, 20_000)]);
        plan.wire.pieces.piece_max_bytes = random.choose(&[97, 1460, 20_000, 1 << 20]);
        plan.write_cache = random.chance(700_000);
        plan.blocks = random.choose(&[64, 600, 2048]);
        plan.wire.commands_max = random.choose(&[1, 4, 32]);
        plan.work.commands = random.range(10..=60);
        plan.work.depth = random.range(1..=12) as usize;
        // Few bytes: a small piece is an event. The largest have more than one burst.
        plan.work.blocks_max = match plan.wire.pieces.piece_max_bytes {
            97 => 16,
            1460 => 64,
            _ => random.choose(&[8, 64, 600]),
        }
        .min(plan.blocks);
        plan.work.budget_bytes = if plan.wire.pieces.piece_max_bytes < 10_000 { 64 << 10 } else { 1 << 20 };
        plan.work.think_us = random.choose(&[0, 500, 20_000]);
        plan
    }
}
