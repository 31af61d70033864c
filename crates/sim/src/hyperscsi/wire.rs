//! Links that carry packets, with both ends of HyperSCSI and an attacker.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, LinkId, Path};
use sanwire_hyperscsi::wire::command::{Answer, Ask, Function};
use sanwire_hyperscsi::{Client, ClientEvent, CommandId, Failure, LinkLimits, Order, Psk};
use sanwire_scsi::Status;

use super::attacker::Attacker;
use super::cast::{client_peer, identity, server_peer};
use super::host::Host;
use super::link::{Link, Queue};
use super::plan::{LinkFault, Medium, PacketPlan, Plan};
use super::stats::Stats;
use crate::random::Random;
use crate::workload::{Given, Initiator, Told};
use crate::world::{self, Outcome, Wire};

/// A world of HyperSCSI.
pub type World = world::World<Packets>;

/// Timeouts of one machine at one moment: more mean that it does not move on.
const TIMEOUTS_AT_ONCE_MAX: u32 = 8;

/// Packets and events of one machine between two timeouts.
const DRAIN_MAX: u32 = 20_000;

/// What a client's further links take at once.
const CAPACITY_PACKETS: u32 = 256;

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
}

/// The links of a world.
pub struct Packets {
    /// What was counted.
    pub stats: Stats,
    /// Passwords of the clients, where they differ from the server's.
    pub passwords: BTreeMap<usize, Psk>,
    /// Clients that are not on the server's allow list.
    pub strangers: Vec<usize>,
    /// By client, then by link.
    there: Vec<Vec<Link>>,
    back: Vec<Vec<Link>>,
    /// The bottlenecks to the server and from it.
    queues: [Option<Queue>; 2],
    attacker: Attacker,
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

impl Initiator for Client {
    type Id = CommandId;
    type Failure = Failure;

    fn give(&mut self, given: Given<CommandId>, now: Instant) -> Option<CommandId> {
        let manage = |function, task| (Ask::Manage { function, task }, None, None);
        let (ask, data_out, data_in) = match given {
            Given::Command(cdb, data_out, data_in) => (Ask::Command(cdb), data_out, data_in),
            Given::Abort(task) => manage(Function::AbortTask, task.number()),
            Given::Reset => manage(Function::LogicalUnitReset, 0),
        };
        self.order(Order { lun: sanwire_core::Lun::default(), ask, data_out, data_in }, now).ok()
    }

    fn next_told(&mut self) -> Option<Told<CommandId, Failure>> {
        Some(match self.poll_event()? {
            ClientEvent::Connected { .. } => Told::Connected,
            ClientEvent::Lost { .. } => Told::Other,
            ClientEvent::Addresses(addresses) => {
                for (link, address) in addresses.into_iter().enumerate() {
                    let path = Path { link: LinkId(link as u8), peer: address.peer };
                    // As soon as can be.
                    let packet_max_bytes = address.packet_max_bytes;
                    let own = LinkLimits { packet_max_bytes, receive_capacity_packets: CAPACITY_PACKETS };
                    self.join(path, own, Instant::ZERO);
                }
                Told::Other
            }
            ClientEvent::OutOfPatience(failure) | ClientEvent::GivenUp(failure) => Told::GivenUp(failure),
            ClientEvent::Completed { id, answer, data_in, data_in_bytes } => {
                let (is_good, is_management) = match answer {
                    Answer::Command { status, .. } => (status == Status::Good, false),
                    Answer::Managed { done } => (done, true),
                    // Nobody here administers.
                    Answer::Administered => (false, true),
                };
                Told::Answered { id, is_good, is_management, data_in: data_in.map(|frame| (frame, data_in_bytes)) }
            }
            ClientEvent::Failed { id, failure, .. } => Told::Failed { id, is_in_doubt: failure == Failure::InDoubt },
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Client::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        Client::handle_timeout(self, now);
    }

    fn disconnect(&mut self, now: Instant) {
        Client::disconnect(self, now);
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
        let own = || [plan.wire.link].into_iter().chain(plan.wire.more_links.iter().map(|(_, link)| *link));
        let links = || (0..plan.clients).map(|_| own().map(Link::new).collect()).collect();
        Packets {
            stats: Stats::default(),
            passwords: BTreeMap::new(),
            strangers: Vec::new(),
            there: links(),
            back: links(),
            queues: [(); 2].map(|()| plan.wire.bottleneck.map(Queue::new)),
            attacker: Attacker::new(random.fork()),
            timeouts: (Instant::ZERO, BTreeMap::new()),
        }
    }

    fn prepare(world: &mut World) {
        for _ in 0..world.plan.wire.attacks {
            let after = world.random.micros(0..=world.plan.healed_after.as_micros() as u64);
            world.schedule(world.now + after, Event::Attack);
        }
    }

    fn make_host(world: &mut World) -> Outcome<Host> {
        world.make_server()
    }

    fn make_client(world: &mut World, client: usize) -> Outcome<Client> {
        world.make_machine(client)
    }

    fn handle(world: &mut World, event: Event) -> Outcome<()> {
        match event {
            Event::ToServer { from, link, bytes } => {
                let path = Path { link: LinkId(link as u8), peer: client_peer(world.medium(link), from, link) };
                let Some(host) = &mut world.host else { return Ok(()) };
                host.server.handle_input(path, &bytes, world.now);
                Self::drain_server(world)
            }
            Event::ToClient { client, link, bytes } => {
                let path = Path { link: LinkId(link as u8), peer: server_peer(world.medium(link), link) };
                world.workers[client].client.handle_input(path, &bytes, world.now);
                Self::drain_client(world, client)
            }
            Event::Attack => {
                if let Some((client, to_server, bytes)) = world.wire.attacker.strike() {
                    world.arrive(world.now, (client, 0), to_server, bytes);
                }
                Ok(())
            }
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
            LinkFault::CutLink { client, link } => world.wire.cut_link(client, link, true),
            LinkFault::MendLink { client, link } => world.wire.cut_link(client, link, false),
            LinkFault::Pause(client) => return world.pause(client, true),
            LinkFault::Resume(client) => return world.pause(client, false),
            LinkFault::PauseServer(client) => return world.pause_server(client, true),
            LinkFault::ResumeServer(client) => return world.pause_server(client, false),
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

    fn heal(world: &mut World) -> Outcome<()> {
        world.wire.links(|link| {
            link.is_cut = false;
            link.plan = link.plan.healed();
        });
        (0..world.plan.clients).try_for_each(|client| {
            world.pause_server(client, false)?;
            world.pause(client, false)
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
        let mut packets = Vec::new();
        while let Some(packet) = host.server.poll_transmit(world.now) {
            packets.push(packet);
            if packets.len() > DRAIN_MAX as usize {
                return Err("the server transmits without end".to_owned());
            }
        }
        // Frames may have come home: answers were acknowledged.
        host.feed_starved(world.now)?;
        host.drain_events(&mut world.counts, world.now)?;
        while let Some(packet) = host.server.poll_transmit(world.now) {
            packets.push(packet);
        }
        let scheduled = std::mem::take(&mut host.runner.scheduled);
        let notes = std::mem::take(&mut host.notes);
        notes.into_iter().for_each(|note| world.note(note));
        world.expect_disk(scheduled);
        for (path, packet) in packets {
            let link = usize::from(path.link.0);
            let medium = world.medium(link);
            let Some(client) = (0..world.plan.clients).find(|c| client_peer(medium, *c, link) == path.peer) else {
                return Err(format!("the server sends to {path}"));
            };
            world.transmit((client, link), false, &packet);
        }
        Ok(())
    }

    fn drain_client(world: &mut World, client: usize) -> Outcome<()> {
        world.drain_told(client)?;
        let (now, mut packets) = (world.now, Vec::new());
        while let Some((path, packet)) = world.workers[client].client.poll_transmit(now) {
            packets.push((usize::from(path.link.0), packet));
            if packets.len() > DRAIN_MAX as usize {
                return Err(format!("client {client} transmits without end"));
            }
        }
        packets.iter().for_each(|(link, packet)| world.transmit((client, *link), true, packet));
        Ok(())
    }

    fn idle(world: &mut World) -> Outcome<()> {
        world.run_for(Duration::from_secs(5))?;
        let before = world.wire.stats.clone();
        world.run_for(IDLE)?;
        let packets = world.wire.stats.packets - before.packets;
        let timeouts = world.wire.stats.timeouts - before.timeouts;
        let clients = world.plan.clients as u64;
        let rekeys = IDLE.as_millis() as u64 / (world.plan.wire.rekey_interval.as_millis() as u64).max(REKEY_MIN_MS);
        let links = world.plan.wire.media().len() as u64;
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

impl World {
    fn pause(&mut self, client: usize, is_paused: bool) -> Outcome<()> {
        let id = identity(client)?.client_id();
        let Some(host) = &mut self.host else { return Ok(()) };
        host.server.pause(id, is_paused, self.now);
        Packets::drain_server(self)
    }

    fn pause_server(&mut self, client: usize, is_paused: bool) -> Outcome<()> {
        self.workers[client].client.pause(is_paused, self.now);
        Packets::drain_client(self, client)
    }

    fn medium(&self, link: usize) -> Medium {
        self.plan.wire.media()[link]
    }

    fn transmit(&mut self, (client, on): (usize, usize), to_server: bool, packet: &Packet) {
        let mut bytes = packet.head.to_vec();
        bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
        self.note(bytes.len() as u64 ^ u64::from(bytes[bytes.len() - 1]) << 32);
        let wire = &mut self.wire;
        wire.stats.note(client, to_server, &bytes);
        if self.plan.wire.attacks > 0 {
            wire.attacker.overhear(client, to_server, &bytes);
        }
        let passed_at = match &mut wire.queues[usize::from(to_server)] {
            Some(queue) => queue.pass(bytes.len(), self.now),
            None => Some(self.now),
        };
        let Some(passed_at) = passed_at else { return };
        let link = if to_server { &mut wire.there[client][on] } else { &mut wire.back[client][on] };
        for (at, bytes) in link.pass(&bytes, &mut self.random, passed_at) {
            self.arrive(at, (client, on), to_server, bytes);
        }
    }

    fn arrive(&mut self, at: Instant, (client, link): (usize, usize), to_server: bool, bytes: Vec<u8>) {
        let event = match to_server {
            true => Event::ToServer { from: client, link, bytes },
            false => Event::ToClient { client, link, bytes },
        };
        self.schedule(at, event);
    }
}
