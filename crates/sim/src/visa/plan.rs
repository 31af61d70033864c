//! What a world of VISA is made of, and what goes wrong on its network.

use std::time::Duration;

use sanwire_core::Protection;
use sanwire_visa::Wishes;

use crate::hyperscsi::link::LinkPlan;
use crate::plan;
use crate::random::Random;

/// Everything about a world but its seed.
pub type Plan = plan::Plan<PacketPlan, LinkFault>;

/// What goes wrong at some moment.
pub type Fault = plan::Fault<LinkFault>;

/// What goes wrong with a client's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkFault {
    /// Nothing passes any more, one way or both. Over TCP connections are lost.
    Cut {
        /// Whose link.
        client: usize,
        /// To the server.
        there: bool,
        /// From it.
        back: bool,
    },
    /// All passes again.
    Mend(usize),
    /// Another program takes the place of this client.
    Replace(usize),
    /// The program of this client is killed and runs again. What it has sent last is that much longer on its way.
    Rerun(usize, Duration),
}

/// The network and its ends.
#[derive(Clone, Debug)]
pub struct PacketPlan {
    /// TCP carries the packets.
    pub is_stream: bool,
    /// What the server wants, and what its clients do.
    pub wishes: [Wishes; 2],
    /// Both directions.
    pub link: LinkPlan,
    /// The packet size that both ends claim for their links.
    pub claimed_bytes: u16,
    /// How many packets each end says that it can take at once.
    pub window_packets: u32,
    /// How the disk is guarded.
    pub protection: Protection,
    /// How clients guard their packets at the least.
    pub protection_min: Protection,
    /// How long a session without a connection is kept.
    pub session_idle_max: Duration,
    /// How many forged packets come in, until the world is healed.
    pub attacks: u64,
}

impl Plan {
    /// A world without faults, whose paths take packets of this size.
    #[must_use]
    pub fn clean(packet_max_bytes: u16) -> Self {
        let wire = PacketPlan {
            is_stream: false,
            wishes: [Wishes { allows_classic: true, allows_unchecked: true, ..Wishes::default() }; 2],
            // IP takes apart what is longer.
            link: LinkPlan::clean(1 << 16),
            claimed_bytes: packet_max_bytes,
            window_packets: 256,
            protection: Protection::Checksum,
            protection_min: Protection::Checksum,
            session_idle_max: Duration::from_secs(30),
            attacks: 0,
        };
        Plan::with_wire(wire, 16 << 20, 1024)
    }

    /// A world drawn by chance, without faults.
    #[must_use]
    pub fn any(random: &mut Random) -> Self {
        let mut plan = Plan::clean(random.choose(&[1472, 1472, 4096, 8972, 60_000]));
        plan.wire.link.delay_us = random.choose(&[5, 50, 500, 5000]);
        plan.wire.window_packets = random.choose(&[1, 3, 16, 64, 256, 4096]);
        plan.wire.protection = random.choose(&Protection::ALL);
        plan.wire.protection_min = random.choose(&[Protection::Checksum, Protection::Checksum, Protection::Hash]);
        plan.clients = random.choose(&[1, 1, 2, 3]);
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

    /// The same, in classic mode: one of the ends wants it.
    #[must_use]
    pub fn any_classic(random: &mut Random) -> Self {
        let mut plan = Plan::any(random);
        plan.wire.wishes[random.range(0..=1) as usize].classic = true;
        for wishes in &mut plan.wire.wishes {
            wishes.classic_payload_bytes = random.choose(&[0, 1024, 8192, 60 * 1024]);
        }
        plan
    }

    /// Either mode.
    #[must_use]
    pub fn any_mode(random: &mut Random) -> Self {
        if random.chance(500_000) { Plan::any(random) } else { Plan::any_classic(random) }
    }
}
