//! What such a world is made of.

use std::time::Duration;

use crate::disk::DiskPlan;
use crate::random::Random;

/// What an initiator does besides reading and writing, each so many times in a million.
#[derive(Clone, Copy, Default, Debug)]
pub struct Deeds {
    /// ABORT TASK, of one of its commands.
    pub abort_task: u32,
    /// One of its commands is given up, because the connection that it came by is lost: its blocks are kept.
    pub abandon_task: u32,
    /// ABORT TASK SET.
    pub abort_task_set: u32,
    /// LOGICAL UNIT RESET, or CLEAR TASK SET.
    pub reset_unit: u32,
    /// TARGET RESET.
    pub reset_target: u32,
    /// PREEMPT AND ABORT of another one's key.
    pub preempt: u32,
    /// Its nexus is lost, and it has another one, perhaps with another shard.
    pub lose_nexus: u32,
    /// It has another nexus with the same shard, and the first one is lost later.
    pub restart: u32,
}

/// Everything about a world but its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Shards.
    pub shards: usize,
    /// Initiators.
    pub initiators: usize,
    /// Disks, as logical units from 0 on.
    pub disks: usize,
    /// Blocks of each: few, so that commands meet.
    pub blocks: u64,
    /// The most blocks of a command.
    pub blocks_max: u64,
    /// Commands of each initiator.
    pub commands: u64,
    /// In flight at once, of each initiator.
    pub depth: usize,
    /// The longest pause between two deeds of an initiator, in microseconds.
    pub think_us: u64,
    /// Memory of each shard.
    pub memory_bytes: usize,
    /// How the disks behave.
    pub disk: DiskPlan,
    /// How many of a million requests are done at once, and how many are held back first.
    pub at_once_per_million: u32,
    /// See there.
    pub later_per_million: u32,
    /// How many of a million requests their stores do themselves, and complete from another thread.
    pub pending_per_million: u32,
    /// How many of a million such are given up when they are done: their stores do not say how they ended.
    pub dropped_per_million: u32,
    /// How many of a million writes are done in two parts, side by side.
    pub split_per_million: u32,
    /// How many of a million requests take until the world is healed.
    pub hanging_per_million: u32,
    /// How long commands wait for a store that is full or gone.
    pub patience: Option<Duration>,
    /// How often a disk is full or gone for a while.
    pub stalls: u64,
    /// Operations that the kernel does at once, for each shard.
    pub kernel_depth: usize,
    /// How long mail between shards takes at the most.
    pub mail_max: Duration,
    /// What initiators do.
    pub deeds: Deeds,
    /// When all that goes wrong is over.
    pub healed_after: Duration,
}

impl Plan {
    /// Any plan without deeds of which others hear.
    #[must_use]
    pub fn any(random: &mut Random) -> Self {
        let longest_us = random.choose(&[50, 2_000, 300_000]);
        Plan {
            shards: random.range(1..=4) as usize,
            initiators: random.range(2..=5) as usize,
            disks: random.range(1..=2) as usize,
            blocks: random.choose(&[4, 16, 64]),
            blocks_max: random.choose(&[1, 4, 8]),
            commands: random.range(20..=60),
            depth: random.range(1..=6) as usize,
            think_us: random.choose(&[20, 1_000, 100_000]),
            memory_bytes: random.choose(&[64 << 10, 1 << 20]),
            disk: DiskPlan {
                delay_us: (1, longest_us),
                slow_per_million: random.choose(&[0, 20_000]),
                error_per_million: random.choose(&[0, 0, 20_000]),
                flush_us: 0,
                loss_per_million: 0,
                early_per_million: 0,
            },
            at_once_per_million: random.choose(&[0, 100_000]),
            later_per_million: random.choose(&[0, 100_000]),
            pending_per_million: random.choose(&[0, 300_000, 1_000_000]),
            dropped_per_million: random.choose(&[0, 20_000]),
            split_per_million: random.choose(&[0, 200_000]),
            hanging_per_million: 0,
            patience: None,
            stalls: 0,
            kernel_depth: random.choose(&[1, 4, 64]),
            mail_max: Duration::from_micros(random.choose(&[1, 100, 20_000])),
            deeds: Deeds::default(),
            healed_after: Duration::from_secs(2),
        }
    }
}
