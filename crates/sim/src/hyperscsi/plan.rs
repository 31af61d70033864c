//! What a world of HyperSCSI is made of, and what goes wrong on its links.

use std::time::Duration;

use sanwire_core::Protection;
use sanwire_hyperscsi::Recovery;

use super::link::{Bottleneck, LinkPlan};
use super::strangers::StrangersPlan;
use super::terms::{Change, Terms};
use crate::plan;
use crate::random::Random;

/// Everything about a world but its seed.
pub type Plan = plan::Plan<PacketPlan, LinkFault>;

/// What goes wrong at some moment.
pub type Fault = plan::Fault<LinkFault>;

/// Which kind of wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Raw Ethernet; the server is found by broadcast.
    Ethernet,
    /// UDP; the server's address is known.
    Udp,
}

/// What goes wrong on links, and with clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkFault {
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
    /// Nothing passes on one link of a client, in neither direction.
    CutLink {
        /// Which client.
        client: usize,
        /// Which of its links.
        link: usize,
    },
    /// The link works again.
    MendLink {
        /// Which client.
        client: usize,
        /// Which of its links.
        link: usize,
    },
    /// The path takes only shorter packets from now on.
    Narrow(usize),
    /// The way becomes longer, in microseconds.
    Lengthen(u64),
    /// The port of a shard is away on a link: the packets for it go to others, what it sends is lost.
    LosePort {
        /// Which link.
        link: usize,
        /// Which shard.
        shard: usize,
    },
    /// The port is there again.
    OpenPort {
        /// Which link.
        link: usize,
        /// Which shard.
        shard: usize,
    },
    /// A client closes, and a new one with its identity begins.
    Replace(usize),
    /// The server lets a client send nothing.
    Pause(usize),
    /// It lets it go on.
    Resume(usize),
    /// A client lets the server send it no answers.
    PauseServer(usize),
    /// It lets it go on.
    ResumeServer(usize),
    /// A client wants something else from now on.
    Wish {
        /// Which client.
        client: usize,
        /// What.
        change: Change,
    },
    /// The server wants something else of a client from now on.
    Change {
        /// Which client.
        client: usize,
        /// What.
        change: Change,
    },
}

/// The links and their ends.
#[derive(Clone, Debug)]
pub struct PacketPlan {
    /// How many shards the server has, all of them behind the same addresses.
    pub shards: usize,
    /// How many of a million packets come to any shard, until the world is healed.
    pub misdirected_per_million: u32,
    /// What carries the packets.
    pub medium: Medium,
    /// Both directions.
    pub link: LinkPlan,
    /// The links of the clients; of those that are not in it, [`PacketPlan::link`].
    pub links: Vec<LinkPlan>,
    /// Further links between each client and the server.
    pub more_links: Vec<(Medium, LinkPlan)>,
    /// What all clients share on the way, if there is such a thing.
    pub bottleneck: Option<Bottleneck>,
    /// The packet size that both ends claim for their links.
    pub claimed_bytes: u32,
    /// How many packets each end says that it can take at once.
    pub capacity_packets: u32,
    /// The weights of the clients; of those that are not in it, 1.
    pub weights: Vec<u16>,
    /// The terms of the clients; of those that are not in it, both ends want nothing.
    pub terms: Vec<Terms>,
    /// How lost packets are recovered.
    pub recovery: Recovery,
    /// How the disk is guarded.
    pub protection: Protection,
    /// Whether other disks of the server may be guarded less.
    pub is_mixed: bool,
    /// How long a session without a connection is kept.
    pub session_idle_max: Duration,
    /// How long a connection's keys are used.
    pub rekey_interval: Duration,
    /// How many forged packets come in, until the world is healed.
    pub attacks: u64,
    /// Who stands at the door, until the world is healed.
    pub strangers: Option<StrangersPlan>,
}

impl PacketPlan {
    /// What carries the packets of each link.
    #[must_use]
    pub fn media(&self) -> Vec<Medium> {
        [self.medium].into_iter().chain(self.more_links.iter().map(|(medium, _)| *medium)).collect()
    }
}

impl Plan {
    /// A world without faults on a path that takes packets of this size.
    #[must_use]
    pub fn clean(medium: Medium, packet_max_bytes: usize) -> Self {
        let wire = PacketPlan {
            shards: 1,
            misdirected_per_million: 0,
            medium,
            link: LinkPlan::clean(packet_max_bytes),
            links: Vec::new(),
            more_links: Vec::new(),
            bottleneck: None,
            claimed_bytes: packet_max_bytes as u32,
            capacity_packets: 1024,
            weights: Vec::new(),
            terms: Vec::new(),
            recovery: Recovery::Selective,
            protection: Protection::Checksum,
            is_mixed: true,
            session_idle_max: Duration::from_secs(30),
            rekey_interval: Duration::from_secs(3600),
            attacks: 0,
            strangers: None,
        };
        Plan::with_wire(wire, 16 << 20, 1024)
    }

    /// A world drawn by chance, without faults: sizes, windows, recovery, shards, one client or two, and what they
    /// agree on.
    #[must_use]
    pub fn any(random: &mut Random) -> Self {
        let medium = random.choose(&[Medium::Ethernet, Medium::Udp]);
        let claimed: u64 = random.choose(&[1500, 1500, 4096, 9000]);
        let mut plan = Plan::clean(medium, claimed as usize);
        // What the links claim is not always what the path takes.
        if random.chance(300_000) {
            plan.wire.link.packet_max_bytes = random.range(1500..=claimed) as usize;
        }
        plan.wire.link.delay_us = random.choose(&[5, 50, 500, 5000]);
        plan.clients = random.choose(&[1, 1, 2]);
        plan.wire.capacity_packets = random.choose(&[1, 3, 16, 64, 256, 1024, 5000]);
        plan.wire.recovery = random.choose(&[Recovery::Selective, Recovery::Selective, Recovery::WholeWindow]);
        plan.wire.protection = random.choose(&Protection::ALL);
        plan.wire.is_mixed = random.chance(500_000);
        plan.wire.rekey_interval = Duration::from_millis(random.choose(&[20, 300, 3_600_000]));
        plan.write_cache = random.chance(800_000);
        plan.work.commands = random.range(10..=50);
        plan.work.depth = random.range(1..=16) as usize;
        plan.work.blocks_max = random.choose(&[1, 8, 64, 256, 1024]);
        plan.work.budget_bytes = 512 << 10;
        plan.work.abort_per_million = random.choose(&[0, 50_000]);
        plan.work.reset_per_million = random.choose(&[0, 0, 20_000]);
        plan.work.think_us = random.choose(&[0, 100, 5_000, 100_000]);
        plan.healed_after = random.micros(500_000..=4_000_000);
        if random.chance(200_000) {
            plan.agree((0..plan.clients).map(|_| Terms::any(random)).collect());
        }
        plan.work.manage_per_million = random.choose(&[0, 0, 50_000]);
        plan.work.managers = random.range(0..=plan.clients as u64) as usize;
        plan.wire.shards = random.choose(&[1, 1, 2, 4]);
        plan
    }

    /// The clients are on these terms, and ask for nothing that is longer than they allow.
    pub fn agree(&mut self, terms: Vec<Terms>) {
        let transfer_max_bytes = terms.iter().map(Terms::transfer_max_bytes).min().unwrap_or(u32::MAX);
        self.work.blocks_max = self.work.blocks_max.min(u64::from(transfer_max_bytes) / 512);
        self.wire.terms = terms;
    }
}
