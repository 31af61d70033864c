//! Links that carry packets, with both ends of HyperSCSI and an attacker.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::{Instant, LinkId, Path, Peer, Principal};
use sanwire_hyperscsi::{Client, Psk};

use super::attacker::Attacker;
use super::host::Host;
use super::link::{Link, Queue};
use super::meter::Meters;
use super::participants::{client_peer, identity, server_peer};
use super::plan::{LinkFault, Medium, PacketPlan, Plan};
use super::processor::Processor;
use super::stats::Stats;
use super::steering::Steering;
use super::strangers::{Move, Strangers};
use super::terms::Wanted;
use crate::random::Random;
use crate::world::{self, Outcome, Wire};

/// A world of HyperSCSI.
pub type World = world::World<Packets>;

/// Timeouts of one machine at one moment: more mean that it does not move on.
const TIMEOUTS_AT_ONCE_MAX: u32 = 8;

/// Packets and events of one machine between two timeouts.
const DRAIN_MAX: usize = 20_000;

/// How long an idle world is watched, and the packets that it may send for each client and second.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_PACKETS_MAX: u64 = 4;

/// New keys take a request, an answer, and a sign that they are used, which is answered; some of it twice.
const REKEY_PACKETS_MAX: u64 = 6;

/// A server looks after a change of keys no more often than this.
const REKEY_MIN_MS: u64 = 200;

/// A packet that arrives, or a chance for the attacker.
#[derive(Debug)]
pub enum Event {
    /// At the server.
    ToServer {
        /// From this client.
        from: usize,
        /// By this link.
        link: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// At a client.
    ToClient {
        /// Which.
        client: usize,
        /// By this link.
        link: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// A forged packet.
    Attack,
    /// A stranger does something.
    Stranger(Move),
    /// A packet of a stranger arrives at the server.
    FromStranger {
        /// Under this address.
        from: Peer,
        /// What.
        bytes: Vec<u8>,
    },
    /// A packet for a stranger arrives.
    ToStranger {
        /// At this address.
        to: Peer,
        /// What.
        bytes: Vec<u8>,
    },
    /// A shard has time for the next packet.
    Work(usize),
}

/// The links of a world.
pub struct Packets {
    /// What was counted.
    pub stats: Stats,
    /// Passwords of the clients, where they differ from the server's.
    pub passwords: BTreeMap<usize, Psk>,
    /// Clients that are not on the server's allow list.
    pub strangers: Vec<usize>,
    /// Which shard of the server gets what.
    pub steering: Steering,
    /// What carries the packets of each link.
    pub(super) media: Vec<Medium>,
    /// By client, then by link.
    pub(super) there: Vec<Vec<Link>>,
    pub(super) back: Vec<Vec<Link>>,
    /// The bottlenecks to the server and from it.
    pub(super) queues: [Option<Queue>; 2],
    pub(super) attacker: Attacker,
    /// What the server wants of the clients.
    pub(super) wanted: Wanted,
    /// Which clients may only read, and since which of so many changes.
    pub(super) read_only: BTreeMap<usize, u64>,
    pub(super) changes: u64,
    pub(super) meters: Meters,
    pub(super) healed_at: Option<Instant>,
    /// Who stands at the door, and what that costs the server.
    pub(super) strangers_at_door: Option<Strangers>,
    pub(super) processor: Processor,
    timeouts: (Instant, BTreeMap<Option<usize>, u32>),
}

impl Packets {
    fn links(&mut self, change: impl Fn(&mut Link)) {
        self.there.iter_mut().chain(&mut self.back).flatten().for_each(change);
    }

    fn cut_link(&mut self, client: usize, link: usize, is_cut: bool) {
        self.there[client][link].is_cut = is_cut;
        self.back[client][link].is_cut = is_cut;
    }
}

impl Wire for Packets {
    type Plan = PacketPlan;
    type Fault = LinkFault;
    type Event = Event;
    type Client = Client;
    type Host = Host;

    const RECOVERY_MAX: Duration = Duration::from_secs(60);
    const STOPPING_MAX_US: u64 = 0;

    fn new(plan: &Plan, random: &mut Random) -> Self {
        let first = |client| plan.wire.links.get(client).copied().unwrap_or(plan.wire.link);
        let further = || plan.wire.more_links.iter().map(|(_, link)| *link);
        let own = |client| [first(client)].into_iter().chain(further()).map(Link::new).collect();
        let links = || (0..plan.clients).map(own).collect();
        Packets {
            stats: Stats::default(),
            passwords: BTreeMap::new(),
            strangers: Vec::new(),
            steering: Steering::new(plan.wire.shards, plan.wire.misdirected_per_million),
            media: plan.wire.media(),
            there: links(),
            back: links(),
            queues: [(); 2].map(|()| plan.wire.bottleneck.map(Queue::new)),
            attacker: Attacker::new(random.fork(), plan.wire.more_links.len() + 1),
            wanted: Wanted::new(plan),
            read_only: (0..plan.clients)
                .filter(|client| plan.wire.terms_of(*client).is_read_only())
                .map(|c| (c, 0))
                .collect(),
            changes: 0,
            meters: Meters::default(),
            healed_at: None,
            strangers_at_door: plan.wire.strangers.clone().map(|plan| Strangers::new(plan, random.fork())),
            processor: Processor::new(plan.wire.shards),
            timeouts: (Instant::ZERO, BTreeMap::new()),
        }
    }

    fn prepare(world: &mut World) {
        for _ in 0..world.plan.wire.attacks {
            let after = world.random.micros(0..=world.plan.healed_after.as_micros() as u64);
            world.schedule(world.now + after, Event::Attack);
        }
        world.prepare_strangers();
    }

    fn make_host(world: &mut World) -> Outcome<Host> {
        world.note_terms()?;
        world.arm_strangers()?;
        world.make_server()
    }

    fn make_client(world: &mut World, client: usize) -> Outcome<Client> {
        world.make_machine(client)
    }

    fn handle(world: &mut World, event: Event) -> Outcome<()> {
        match event {
            Event::ToServer { from, link, bytes } => {
                let path = Path { link: LinkId(link as u8), peer: client_peer(world.wire.media[link], from, link) };
                world.arrive(path, bytes)
            }
            Event::ToClient { client, link, bytes } => {
                let path = Path { link: LinkId(link as u8), peer: server_peer(world.wire.media[link], link) };
                world.workers[client].client.handle_input(path, &bytes, world.now);
                Self::drain_client(world, client)
            }
            Event::Attack => world.suffer(),
            Event::Stranger(step) => world.intrude(step),
            Event::FromStranger { from, bytes } => world.arrive(Path { link: LinkId(0), peer: from }, bytes),
            Event::ToStranger { to, bytes } => world.be_heard(to, &bytes),
            Event::Work(shard) => world.work(shard),
        }
    }

    fn fault(world: &mut World, fault: LinkFault) -> Outcome<()> {
        match fault {
            LinkFault::Cut { client, there, back } => {
                world.wire.there[client].iter_mut().for_each(|link| link.is_cut |= there);
                world.wire.back[client].iter_mut().for_each(|link| link.is_cut |= back);
            }
            LinkFault::Mend(client) => {
                let links = world.wire.there[client].iter_mut().chain(&mut world.wire.back[client]);
                links.for_each(|link| link.is_cut = false);
            }
            LinkFault::LosePort { link, shard } => world.wire.steering.set_there(link, shard, false),
            LinkFault::OpenPort { link, shard } => world.wire.steering.set_there(link, shard, true),
            LinkFault::CutLink { client, link } => world.wire.cut_link(client, link, true),
            LinkFault::MendLink { client, link } => world.wire.cut_link(client, link, false),
            LinkFault::Pause(client) => return world.pause(client, true),
            LinkFault::Resume(client) => return world.pause(client, false),
            LinkFault::PauseServer(client) => return world.pause_server(client, true),
            LinkFault::ResumeServer(client) => return world.pause_server(client, false),
            LinkFault::Change { client, change } => return world.change(client, change),
            LinkFault::Wish { client, change } => return world.wish(client, change),
            LinkFault::Narrow(bytes) => world.wire.links(|link| link.plan.packet_max_bytes = bytes),
            LinkFault::Lengthen(us) => world.wire.links(|link| link.plan.delay_us = us),
            LinkFault::Replace(client) => {
                let now = world.now;
                world.workers[client].close(now);
                Self::drain_client(world, client)?;
                world.replace_client(client)?;
            }
        }
        Ok(())
    }

    fn principal(_world: &World, client: usize) -> Outcome<Principal> {
        Ok(Principal { client: Some(identity(client)?.client_id()), ..Principal::default() })
    }

    fn read_only_since(&self, client: usize) -> Option<u64> {
        self.read_only.get(&client).copied()
    }

    fn heal(world: &mut World) -> Outcome<()> {
        world.wire.healed_at = Some(world.now);
        world.wire.attacker.rest();
        world.wire.steering.heal();
        world.wire.links(|link| {
            link.is_cut = false;
            link.plan = link.plan.healed();
        });
        (0..world.plan.clients).try_for_each(|client| {
            world.pause_server(client, false)?;
            world.pause(client, false)?;
            world.wish_again(client)
        })
    }

    fn killed(world: &mut World) {
        world.wire.stats.kills += 1;
    }

    /// A machine whose timeout comes again and again at one moment would take all of a processor.
    fn woken(world: &mut World, client: Option<usize>) -> Outcome<()> {
        let wire = &mut world.wire;
        if wire.timeouts.0 != world.now {
            wire.timeouts = (world.now, BTreeMap::new());
        }
        let count = wire.timeouts.1.entry(client).or_default();
        *count += 1;
        wire.stats.timeouts += 1;
        if *count > TIMEOUTS_AT_ONCE_MAX {
            return Err(format!("machine {client:?} does not move on at {:?}", world.now));
        }
        Ok(())
    }

    fn drain_server(world: &mut World) -> Outcome<()> {
        let Some(host) = &mut world.host else { return Ok(()) };
        host.drain_events(&mut world.counts, world.now)?;
        let mut packets = host.transmits(world.now, DRAIN_MAX)?;
        // Frames may have been given back: answers were acknowledged.
        host.feed_starved(world.now)?;
        host.drain_events(&mut world.counts, world.now)?;
        packets.extend(host.transmits(world.now, DRAIN_MAX)?);
        let (scheduled, notes) = (host.take_scheduled(), host.take_notes());
        notes.into_iter().for_each(|note| world.note(note));
        world.expect_disk(scheduled);
        for (shard, path, packet) in packets {
            let link = usize::from(path.link.0);
            if !world.wire.steering.is_there(link, shard) {
                continue;
            }
            let medium = world.wire.media[link];
            world.note_sent(shard, path.peer, &packet);
            let Some(client) = (0..world.plan.clients).find(|c| client_peer(medium, *c, link) == path.peer) else {
                if world.wire.strangers_at_door.as_ref().is_some_and(|strangers| strangers.has(path.peer)) {
                    world.answer_stranger(path.peer, packet.head.to_vec());
                    continue;
                }
                return Err(format!("the server sends to {path}"));
            };
            world.transmit((client, link), false, &packet)?;
        }
        Ok(())
    }

    fn drain_client(world: &mut World, client: usize) -> Outcome<()> {
        world.drain_told(client)?;
        let (now, mut packets) = (world.now, Vec::new());
        while let Some((path, packet)) = world.workers[client].client.poll_transmit(now) {
            packets.push((usize::from(path.link.0), packet));
            if packets.len() > DRAIN_MAX {
                return Err(format!("client {client} transmits without end"));
            }
        }
        packets.iter().try_for_each(|(link, packet)| world.transmit((client, *link), true, packet))
    }

    fn idle(world: &mut World) -> Outcome<()> {
        world.run_for(Duration::from_secs(5))?;
        world.check_terms()?;
        let before = world.wire.stats.clone();
        world.run_for(IDLE)?;
        let packets = world.wire.stats.packets - before.packets;
        let timeouts = world.wire.stats.timeouts - before.timeouts;
        let clients = world.plan.clients as u64;
        let rekeys = IDLE.as_millis() as u64 / (world.plan.wire.rekey_interval.as_millis() as u64).max(REKEY_MIN_MS);
        let links = world.wire.media.len() as u64;
        if packets > clients * (IDLE.as_secs() * IDLE_PACKETS_MAX * links + rekeys * REKEY_PACKETS_MAX) {
            return Err(format!("{packets} packets in {IDLE:?} of idleness: {}", world.describe()));
        }
        if timeouts > 3 * packets + 20 {
            return Err(format!("woken {timeouts} times in {IDLE:?} of idleness: {}", world.describe()));
        }
        Ok(())
    }

    fn forgotten_after(plan: &PacketPlan) -> Duration {
        plan.session_idle_max + Duration::from_secs(10)
    }

    fn describe_client(client: &Client) -> String {
        format!("connected {}, {:?}", client.server().is_some(), client.counters())
    }

    fn describe(&self) -> String {
        format!("{:?}", self.stats)
    }
}
