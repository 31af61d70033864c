//! What a world of HDSP is like.

use std::time::Duration;

use sanwire_core::Protection;
use sanwire_hdsp::wire::DiskType;

use crate::random::Random;

/// How a link treats packets, until it is healed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkPlan {
    /// How many of a million are lost.
    pub loss_per_million: u32,
    /// How many come twice.
    pub duplicate_per_million: u32,
    /// How many are damaged.
    pub damage_per_million: u32,
    /// How much longer than others one may take, in microseconds.
    pub jitter_us: u64,
}

/// A fault at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// Nothing passes for so long.
    Cut {
        /// How long, in microseconds.
        micros: u64,
    },
    /// The server dies and starts again.
    Restart {
        /// The disk loses what was not flushed.
        loses_power: bool,
    },
    /// Somebody else takes the memory for received data.
    Shortage {
        /// For how long, in microseconds.
        micros: u64,
        /// What is left, in bytes.
        left_bytes: usize,
    },
}

/// A world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of all chance.
    pub seed: u64,
    /// Clients.
    pub clients: usize,
    /// Commands of each.
    pub commands: u32,
    /// Commands of a client at once.
    pub depth: usize,
    /// Blocks of a command, at the most.
    pub blocks_max: u64,
    /// Which commands the disk takes.
    pub disk_type: DiskType,
    /// How packets are guarded.
    pub protection: Protection,
    /// The largest packet.
    pub packet_max_bytes: u16,
    /// W that the server offers.
    pub window_packets: u32,
    /// N that the server offers.
    pub group_packets: u16,
    /// W that the clients offer.
    pub client_window_packets: u32,
    /// N that the clients offer.
    pub client_group_packets: u16,
    /// The link.
    pub link: LinkPlan,
    /// What happens, and when.
    pub faults: Vec<(Duration, Fault)>,
    /// Whether somebody forges and replays.
    pub is_attacked: bool,
    /// How long a request of the disk takes, in microseconds, at the most.
    pub disk_us: u64,
    /// How many of a million requests take up to ten seconds.
    pub hang_per_million: u32,
    /// How many of a million requests fail.
    pub error_per_million: u32,
    /// The server changes W, N and the rate now and then.
    pub changes_flow: bool,
    /// How long clients wait for a server that is gone.
    pub patience: Duration,
    /// What the server has for received data.
    pub memory_bytes: usize,
}

/// From then on nothing goes wrong.
pub const HEALED_AFTER: Duration = Duration::from_secs(3);

impl Plan {
    /// A world in which nothing goes wrong; which terms hold is drawn.
    #[must_use]
    pub fn calm(seed: u64, random: &mut Random) -> Plan {
        Plan {
            seed,
            clients: random.range(1..=3) as usize,
            commands: random.range(10..=60) as u32,
            depth: random.range(1..=12) as usize,
            blocks_max: random.choose(&[1, 8, 40]),
            disk_type: random.choose(&[DiskType::Ata, DiskType::Sata, DiskType::Scsi]),
            protection: random.choose(&Protection::ALL),
            packet_max_bytes: random.choose(&[1500, 9000, 4000]),
            window_packets: random.choose(&[1, 3, 64, 512]),
            group_packets: random.choose(&[1, 2, 32, 256]),
            link: LinkPlan::default(),
            faults: Vec::new(),
            is_attacked: false,
            disk_us: random.choose(&[0, 100, 5_000]),
            hang_per_million: 0,
            error_per_million: 0,
            changes_flow: random.chance(300_000),
            patience: Duration::from_secs(60),
            memory_bytes: 16 << 20,
            client_window_packets: random.choose(&[1, 10, 64, 512, 65_535, u32::MAX]),
            client_group_packets: random.choose(&[1, 2, 32, 256]),
        }
    }

    /// W that both ends agree on.
    #[must_use]
    pub fn agreed_window_packets(&self) -> u32 {
        self.window_packets.min(self.client_window_packets)
    }
}
