//! What a world is made of, and what goes wrong in it.

use std::time::Duration;

use sanwire_core::Protection;
use sanwire_hyperscsi::Recovery;

use crate::disk::DiskPlan;
use crate::link::{Bottleneck, LinkPlan};
use crate::random::Random;

/// Which kind of wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// Raw Ethernet; the server is found by broadcast.
    Ethernet,
    /// UDP; the server's address is known.
    Udp,
}

/// What goes wrong at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing passes between a client and the server, one way or both.
    Cut {
        /// Which client.
        client: usize,
        /// To the server.
        there: bool,
        /// From the server.
        back: bool,
    },
    /// The cut is mended.
    Mend(usize),
    /// The server is killed.
    Kill,
    /// The server is killed and the disk loses its cache.
    LosePower,
    /// The server starts again.
    Start,
    /// The path takes only shorter packets from now on.
    Narrow(usize),
    /// The way becomes longer, in microseconds.
    Lengthen(u64),
    /// A client closes, and a new one with its identity begins.
    Replace(usize),
    /// The server lets a client send nothing.
    Pause(usize),
    /// It lets it go on.
    Resume(usize),
    /// The server tells its clients that it stops, then is killed.
    ShutDown,
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
    /// The longest pause between two commands, in microseconds.
    pub think_us: u64,
}

/// Everything about a world but its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The wire.
    pub wire: Wire,
    /// How many clients.
    pub clients: usize,
    /// Both directions.
    pub link: LinkPlan,
    /// What all clients share on the way, if there is such a thing.
    pub bottleneck: Option<Bottleneck>,
    /// The packet size that both ends claim for their links.
    pub claimed_bytes: u32,
    /// How many packets each end says that it can take at once.
    pub capacity_packets: u32,
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// How the disk is guarded.
    pub protection: Protection,
    /// Whether other disks of the server may be guarded less.
    pub is_mixed: bool,
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
    /// How long a session without a connection is kept.
    pub session_idle_max: Duration,
    /// How long a connection's keys are used.
    pub rekey_interval: Duration,
    /// What clients do.
    pub work: Work,
    /// Faults, and when they come. Afterwards the link is healed.
    pub faults: Vec<(Duration, Fault)>,
    /// When links and disk are healed.
    pub healed_after: Duration,
    /// How many forged packets come in, until the world is healed.
    pub attacks: u64,
}

impl Plan {
    /// A world without faults on a path that takes packets of this size.
    #[must_use]
    pub fn clean(wire: Wire, packet_max_bytes: usize) -> Self {
        Plan {
            wire,
            clients: 1,
            link: LinkPlan::clean(packet_max_bytes),
            bottleneck: None,
            claimed_bytes: packet_max_bytes as u32,
            capacity_packets: 1024,
            recovery: Recovery::Selective,
            protection: Protection::Checksum,
            is_mixed: true,
            disk: DiskPlan { delay_us: (20, 100), slow_per_million: 0, error_per_million: 0 },
            write_cache: true,
            blocks: 2048,
            server_memory_bytes: 16 << 20,
            client_memory_bytes: 16 << 20,
            session_idle_max: Duration::from_secs(30),
            rekey_interval: Duration::from_secs(3600),
            work: Work {
                commands: 40,
                depth: 8,
                blocks_max: 1024,
                budget_bytes: 1 << 20,
                abort_per_million: 0,
                reset_per_million: 0,
                count_per_million: 50_000,
                think_us: 500,
            },
            faults: Vec::new(),
            healed_after: Duration::ZERO,
            attacks: 0,
        }
    }

    /// A world drawn by chance, without faults: sizes, windows, recovery, one client or two.
    #[must_use]
    pub fn any(random: &mut Random) -> Self {
        let wire = random.choose(&[Wire::Ethernet, Wire::Udp]);
        let claimed: u64 = random.choose(&[1500, 1500, 4096, 9000]);
        let mut plan = Plan::clean(wire, claimed as usize);
        // What the links claim is not always what the path takes.
        if random.chance(300_000) {
            plan.link.packet_max_bytes = random.range(1500..=claimed) as usize;
        }
        plan.link.delay_us = random.choose(&[5, 50, 500, 5000]);
        plan.clients = random.choose(&[1, 1, 2]);
        plan.capacity_packets = random.choose(&[1, 3, 16, 64, 256, 1024, 5000]);
        plan.recovery = random.choose(&[Recovery::Selective, Recovery::Selective, Recovery::WholeWindow]);
        plan.protection = random.choose(&Protection::ALL);
        plan.is_mixed = random.chance(500_000);
        plan.rekey_interval = Duration::from_millis(random.choose(&[20, 300, 3_600_000]));
        plan.write_cache = random.chance(800_000);
        plan.work.commands = random.range(10..=50);
        plan.work.depth = random.range(1..=16) as usize;
        plan.work.blocks_max = random.choose(&[1, 8, 64, 256, 1024]);
        plan.work.budget_bytes = 512 << 10;
        plan.work.abort_per_million = random.choose(&[0, 50_000]);
        plan.work.reset_per_million = random.choose(&[0, 0, 20_000]);
        plan.work.think_us = random.choose(&[0, 100, 5_000, 100_000]);
        plan.healed_after = random.micros(500_000..=4_000_000);
        plan
    }
}
