//! The world: stations with clients, an Ethernet, a server that can die.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use sanwire_aoe::{Address, Client, ClientConfig, ClientEvent, Order, Shelves, Target, TargetConfig, TargetEvent};
use sanwire_buffer::{Packet, Region};
use sanwire_core::{Instant, LinkId, Lun, MacAddress, NexusId, Path, Peer, Principal};
use sanwire_device::{LogicalUnits, NexusPorts};
use sanwire_engine::Handle;
use sanwire_scsi::Status;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_sim::derived::{DerivedPlan, Standing};
use sanwire_sim::disk::{DiskPlan, SimDisk};
use sanwire_sim::executor::{Counts, Executor, derived_units, logical_units};
use sanwire_sim::hearing::Hearing;
use sanwire_sim::model::{Model, Range};
use sanwire_sim::random::Random;
use sanwire_sim::task::{Account, Asked, Kind, Shared, command};
use sanwire_sim::world::Outcome;

use crate::attacker::Attacker;

const ADDRESS: Address = Address { shelf: 7, slot: 3 };
const SERVER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
/// The number of the station that is not admitted: it is no client's.
const ATTACKER: usize = 99;
/// So many of a million frames give the attacker a thought.
const ATTACKS_PER_MILLION: u32 = 500_000;

/// Steps of a life at the most.
const STEPS_MAX: u64 = 400_000;

/// How long everything may take.
const TIME_MAX: Duration = Duration::from_secs(900);

/// What a world is made of.
pub struct Plan {
    pub blocks: u64,
    /// What is served is derived from the disk so; `None`: it is the disk itself.
    pub derived: Option<DerivedPlan>,
    pub clients: usize,
    /// Of each client.
    pub operations: usize,
    /// Under way at once.
    pub depth: usize,
    pub packet_max_bytes: usize,
    pub buffers: u16,
    pub loss_per_million: u32,
    pub duplicate_per_million: u32,
    pub jitter_us: u64,
    pub disk: DiskPlan,
    pub faults: Vec<(Duration, Fault)>,
    /// Somebody who is not admitted does what he can: to the server, or only to what is derived, whose one outsider he is.
    pub is_attacked: bool,
}

/// What happens to the server, or to the Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// The program ends; what the system has of its writes is kept.
    Kill,
    /// The host has no power: what was not flushed may be lost.
    LosePower,
    /// What failed flushes of the disk have lost is not even shown any more.
    Evict,
    Start,
    /// Nothing passes for so many microseconds.
    Cut(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key(NexusId, u64);

impl Handle for Key {
    fn nexus(&self) -> NexusId {
        self.0
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ToServer { client: usize, bytes: Vec<u8> },
    ToClient { client: usize, bytes: Vec<u8> },
    DiskDone { life: u64, token: u64 },
    Fault(Fault),
}

struct Server {
    target: Target,
    executor: Executor<Key>,
}

/// What a client has asked.
#[derive(Debug)]
struct Given {
    asked: Asked,
    /// How many flushes of the disk had failed before.
    failed_before: u64,
    /// Whether the server had lost its power before, and the client had not heard of it.
    was_unaware: bool,
}

struct Station {
    client: Client,
    asked: BTreeMap<u64, Given>,
    /// What it was told of flushes that have failed.
    hearing: Hearing,
    /// Its writes that no flush has made stable.
    account: Account,
    left: usize,
    /// Each client has blocks of its own: which of two clients' writes came last only they know.
    own: Range,
    /// The server has lost its power, and the client does not know that it was away.
    is_unaware: bool,
}

/// One simulated world.
pub struct World {
    plan: Plan,
    now: Instant,
    random: Random,
    queue: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    next: u64,
    stations: Vec<Station>,
    server: Option<Server>,
    life: u64,
    disk: Arc<SimDisk>,
    counts: Counts,
    model: Model,
    next_operation: u64,
    /// The clients' memory.
    memory: Region,
    /// Commands may fail.
    can_fail: bool,
    /// Until when nothing passes.
    cut_until: Instant,
    attacker: Attacker,
    /// The server has told of the attacker.
    is_told: bool,
    trace: u64,
}

impl World {
    /// Takes a world through its life, and compares all that is read with what may be read.
    pub fn live(plan: Plan, seed: u64) -> Outcome<()> {
        World::new(plan, seed).run().map(drop)
    }

    /// A number that differs when anything went differently.
    pub fn trace(plan: Plan, seed: u64) -> Outcome<u64> {
        World::new(plan, seed).run()
    }

    fn new(plan: Plan, seed: u64) -> World {
        let mut random = Random::new(seed);
        let now = Instant::from_nanos(1_000_000);
        let disk = SimDisk::new(plan.blocks, plan.disk, random.fork());
        let share = plan.blocks / plan.clients as u64;
        let station = |number: usize| Station {
            client: Client::new(
                ClientConfig {
                    address: ADDRESS,
                    links: vec![(LinkId(0), plan.packet_max_bytes)],
                    connect_patience: TIME_MAX,
                    reconnect_patience: None,
                    first_tag: number as u32 * 1_000_000,
                },
                now,
            ),
            asked: BTreeMap::new(),
            hearing: Hearing::default(),
            account: Account::default(),
            left: plan.operations,
            own: Range { lba: number as u64 * share, blocks: share },
            is_unaware: false,
        };
        let stations = (0..plan.clients).map(station).collect();
        let model = Model::new(plan.blocks);
        let mut world = World {
            now,
            queue: BinaryHeap::new(),
            next: 0,
            stations,
            server: None,
            life: 0,
            disk,
            counts: Counts::new(),
            model,
            next_operation: 1,
            memory: Region::new(8 << 20).expect("memory"),
            can_fail: plan.disk.error_per_million > 0 || plan.disk.loss_per_million > 0,
            cut_until: now,
            attacker: Attacker::default(),
            is_told: false,
            trace: seed,
            plan,
            random,
        };
        for (after, fault) in std::mem::take(&mut world.plan.faults) {
            world.schedule(now + after, Event::Fault(fault));
        }
        world
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.next += 1;
        self.queue.push(Reverse((at, self.next, event)));
    }

    fn run(mut self) -> Outcome<u64> {
        self.start()?;
        if self.plan.is_attacked {
            self.attack();
        }
        let end = self.now + TIME_MAX;
        for _ in 0..STEPS_MAX {
            self.drain()?;
            if self.is_worked_off() {
                self.check_all()?;
                let is_missed = self.plan.is_attacked && !self.has_outsider() && !self.is_told;
                return if is_missed { Err("nobody told of the attacker".into()) } else { Ok(self.trace) };
            }
            let Some(next) = self.next_at() else { return Err("nothing happens any more".into()) };
            self.now = self.now.max(next);
            if self.now > end {
                return Err(format!("not done after {} s: {:?}", TIME_MAX.as_secs(), self.describe()));
            }
            self.step()?;
        }
        Err(format!("too many steps, at {:?}: {:?}", self.now, self.describe()))
    }

    fn describe(&self) -> Vec<(usize, usize)> {
        self.stations.iter().map(|station| (station.left, station.asked.len())).collect()
    }

    fn is_worked_off(&self) -> bool {
        self.stations.iter().all(|station| station.left == 0 && station.asked.is_empty())
    }

    fn next_at(&self) -> Option<Instant> {
        let queued = self.queue.peek().map(|Reverse((at, ..))| *at);
        let clients = self.stations.iter().filter_map(|station| station.client.poll_timeout());
        let server =
            self.server.iter().flat_map(|server| [server.target.poll_timeout(), server.executor.poll_timeout()]);
        clients.chain(server.flatten()).chain(queued).min()
    }

    /// What is due at this moment.
    fn step(&mut self) -> Outcome<()> {
        let now = self.now;
        for station in &mut self.stations {
            if station.client.poll_timeout().is_some_and(|at| at <= now) {
                station.client.handle_timeout(now);
            }
        }
        if let Some(server) = &mut self.server {
            server.target.handle_timeout(now);
            if server.executor.poll_timeout().is_some_and(|at| at <= now) {
                server.executor.handle_timeout(now);
            }
        }
        while let Some(Reverse((at, ..))) = self.queue.peek()
            && *at <= now
        {
            let Some(Reverse((.., event))) = self.queue.pop() else { break };
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Outcome<()> {
        let now = self.now;
        self.trace = self.trace.wrapping_mul(31).wrapping_add(now.as_nanos()).rotate_left(7);
        match event {
            Event::ToServer { client, bytes } => {
                if let Some(server) = &mut self.server {
                    server.target.handle_input(path_of(client), &bytes, now);
                }
            }
            Event::ToClient { client, bytes } => {
                let path = Path { link: LinkId(0), peer: Peer::Ethernet(SERVER) };
                self.stations[client].client.handle_input(path, &bytes, now);
            }
            Event::DiskDone { life, token } => {
                if let Some(server) = self.server.as_mut().filter(|_| life == self.life) {
                    server.executor.disk_done(token, now);
                }
            }
            Event::Fault(Fault::Start) => self.start()?,
            Event::Fault(Fault::Evict) => {
                if self.disk.evict() {
                    self.model.lose();
                }
            }
            Event::Fault(Fault::Cut(micros)) => self.cut_until = now + Duration::from_micros(micros),
            Event::Fault(fault) => self.die(fault),
        }
        Ok(())
    }

    fn start(&mut self) -> Outcome<()> {
        if self.server.is_some() {
            return Ok(());
        }
        self.life += 1;
        let memory = Region::new(4 << 20).map_err(|error| error.to_string())?;
        let units = self.units()?;
        let shelves = Arc::new(Shelves::default());
        shelves.put(ADDRESS, Lun::default());
        // As a server has it.
        let admitting = Arc::clone(&units);
        shelves.admit_by(Box::new(move |station, lun| {
            admitting.get(lun).is_none_or(|unit| unit.admits(&principal_at(station)))
        }));
        let is_open = self.has_outsider();
        let target = Target::new(TargetConfig {
            shelves,
            admission: Box::new(move |station| is_open || path_of(ATTACKER).peer != Peer::Ethernet(station)),
            memory: memory.clone(),
            links: vec![self.plan.packet_max_bytes],
            buffers: self.plan.buffers,
            nexuses: (self.life * 1000, 1),
            run: self.life,
            announces: true,
        });
        let executor = Executor::new(memory, units, Arc::clone(&self.disk));
        self.server = Some(Server { target, executor });
        Ok(())
    }

    /// Whether the attacker is one who may not use what is derived.
    fn has_outsider(&self) -> bool {
        self.plan.derived.is_some_and(|plan| plan.outsiders > 0)
    }

    /// All who are there by name.
    fn numbers(&self) -> impl Iterator<Item = usize> {
        (0..self.plan.clients).chain(self.has_outsider().then_some(ATTACKER))
    }

    fn units(&self) -> Outcome<Arc<LogicalUnits>> {
        let disk = Arc::clone(&self.disk);
        let Some(plan) = self.plan.derived else { return logical_units(disk, true, None) };
        let principals: Vec<Principal> = self.numbers().map(|number| principal_at(mac_of(number))).collect();
        derived_units(disk, true, (plan, &principals))
    }

    fn standing(&self, client: usize) -> Standing {
        let all = self.numbers().count();
        self.plan.derived.map(|plan| plan.standing(client, all)).unwrap_or_default()
    }

    fn die(&mut self, fault: Fault) {
        let Some(server) = self.server.take() else { return };
        server.executor.kill(&mut self.random);
        if fault == Fault::LosePower {
            self.disk.lose_power(&mut self.random);
            self.model.lose();
            self.stations.iter_mut().for_each(|station| station.is_unaware = true);
        }
    }

    /// Lets both ends do all that they can at this moment.
    fn drain(&mut self) -> Outcome<()> {
        loop {
            let mut is_quiet = true;
            for client in 0..self.stations.len() {
                is_quiet &= !self.drain_client(client)?;
            }
            is_quiet &= !self.drain_server()?;
            if is_quiet {
                return Ok(());
            }
        }
    }

    fn drain_client(&mut self, client: usize) -> Outcome<bool> {
        let mut has_done = false;
        while let Some(event) = self.stations[client].client.poll_event() {
            has_done = true;
            self.heed(client, event)?;
        }
        has_done |= self.ask(client);
        while let Some((path, packet)) = self.stations[client].client.poll_transmit(self.now) {
            has_done = true;
            if path.peer == Peer::Ethernet(MacAddress::BROADCAST) || path.peer == Peer::Ethernet(SERVER) {
                self.carry(packet, |bytes| Event::ToServer { client, bytes });
            }
        }
        Ok(has_done)
    }

    fn drain_server(&mut self) -> Outcome<bool> {
        let (now, life) = (self.now, self.life);
        let Some(server) = &mut self.server else { return Ok(false) };
        let mut has_done = false;
        while let Some(event) = server.target.poll_event() {
            has_done = true;
            match event {
                TargetEvent::NotAllowed { path } if path == path_of(ATTACKER) => self.is_told = true,
                TargetEvent::Opened { nexus, path, memory, .. } if path != path_of(ATTACKER) => {
                    server.executor.open(nexus, Arc::new(ports(path)), memory);
                }
                TargetEvent::Closed { nexus } => server.executor.close(nexus),
                // One number stands for all the tasks of an ATA command: each is told apart by the world.
                TargetEvent::Command { nexus, number, task } => {
                    self.next += 1;
                    let key = Key(nexus, number << 32 | self.next & 0xffff_ffff);
                    server.executor.begin(key, task, &mut self.counts, now)?;
                }
                other => return Err(format!("{other:?}")),
            }
        }
        for (Key(nexus, number), reply) in server.executor.take_ended(now)? {
            has_done = true;
            server.target.reply(nexus, number >> 32, reply, now);
        }
        let scheduled = server.executor.take_scheduled();
        let mut out = Vec::new();
        while let Some((path, packet)) = server.target.poll_transmit() {
            out.push((path, packet));
        }
        has_done |= !out.is_empty();
        for (at, token) in scheduled {
            self.schedule(at, Event::DiskDone { life, token });
        }
        if out.iter().any(|(path, _)| *path == path_of(ATTACKER)) {
            return Err("who is not admitted was answered".into());
        }
        for (path, packet) in out {
            let meant: BTreeSet<usize> = (0..self.stations.len())
                .filter(|client| path.peer == Peer::Ethernet(MacAddress::BROADCAST) || path == path_of(*client))
                .collect();
            for client in meant {
                self.carry(packet.clone(), |bytes| Event::ToClient { client, bytes });
            }
        }
        Ok(has_done)
    }

    /// Frames are lost, doubled, late and out of order. Damaged ones the network card throws away: they are lost, too.
    fn carry(&mut self, packet: Packet, event: impl Fn(Vec<u8>) -> Event) {
        let bytes = packet.to_vec();
        let copies = 1 + usize::from(self.random.chance(self.plan.duplicate_per_million));
        if self.plan.is_attacked {
            self.attacker.hear(&bytes, &mut self.random);
            if self.random.chance(ATTACKS_PER_MILLION) {
                self.attack();
            }
        }
        for _ in 0..copies {
            if !self.random.chance(self.plan.loss_per_million) && self.cut_until <= self.now {
                let at = self.now + Duration::from_micros(5) + self.random.micros(0..=self.plan.jitter_us);
                self.schedule(at, event(bytes.clone()));
            }
        }
    }

    /// The attacker sends something to the server.
    fn attack(&mut self) {
        let Peer::Ethernet(own) = path_of(ATTACKER).peer else { return };
        let bytes = self.attacker.forge(own, ADDRESS, &mut self.random);
        let at = self.now + self.random.micros(1..=1_000);
        self.schedule(at, Event::ToServer { client: ATTACKER, bytes });
    }

    /// Gives a client something to do, as long as it has room.
    fn ask(&mut self, client: usize) -> bool {
        let mut has_asked = false;
        while self.stations[client].left > 0 && self.stations[client].asked.len() < self.plan.depth {
            let own = self.stations[client].own;
            let blocks = self.random.range(1..=own.blocks.min(24));
            let range = Range { lba: own.lba + self.random.range(0..=own.blocks - blocks), blocks };
            let kind = match self.random.range(0..=9) {
                0..=4 => Kind::Write { is_stable: self.random.chance(100_000) },
                5..=8 => Kind::Read,
                _ => Kind::Flush,
            };
            self.stations[client].left -= 1;
            has_asked |= self.give(client, kind, range);
        }
        has_asked
    }

    fn heed(&mut self, client: usize, event: ClientEvent) -> Outcome<()> {
        let (number, status, data_in, bytes) = match event {
            ClientEvent::Completed { number, status, data_in, data_in_bytes, .. } => {
                (number, status, data_in, data_in_bytes)
            }
            ClientEvent::Connected(_) | ClientEvent::Lost => {
                self.stations[client].is_unaware = false;
                return Ok(());
            }
            other => return Err(format!("{other:?}")),
        };
        let given = self.stations[client].asked.remove(&number).ok_or("an order was answered twice")?;
        let data = data_in.as_ref().map(|frame| &frame[..bytes]);
        self.settle(client, &given, status == Status::Good, data).map_err(|what| format!("{given:?}: {what}"))
    }

    /// Gives a client something to do, if it takes it.
    fn give(&mut self, client: usize, kind: Kind, range: Range) -> bool {
        let operation = self.next_operation;
        self.next_operation += 1;
        let Some((cdb, data_out, data_in)) = command(kind, range, operation, &self.memory) else { return false };
        let is_barred = self.standing(client).bars(kind);
        let station = &mut self.stations[client];
        let Ok(number) = station.client.order(Order { cdb, data_out, data_in }) else { return false };
        let asked = match is_barred {
            true => Asked::in_vain(operation, kind, range, &mut self.model),
            false => Asked::begin(operation, kind, range, None, &mut self.model),
        };
        let (failed_before, was_unaware) = (self.disk.failed_flushes(), station.is_unaware);
        station.asked.insert(number, Given { asked, failed_before, was_unaware });
        true
    }

    /// A client was answered: that has to be what the model allows, and what the client has to be told.
    fn settle(&mut self, client: usize, given: &Given, is_good: bool, data: Option<&[u8]>) -> Outcome<()> {
        let (asked, station) = (given.asked, &mut self.stations[client]);
        if !is_good && !self.can_fail && !asked.is_barred() {
            return Err("it failed".into());
        }
        if is_good && asked.kind == Kind::Flush && given.was_unaware && station.is_unaware {
            return Err("a flush succeeded after a loss of power that nobody was told of".into());
        }
        let failed_flushes = self.disk.failed_flushes();
        station.hearing.answered(&asked, is_good, self.model.tick(), given.failed_before, failed_flushes)?;
        let is_lossy = self.plan.disk.loss_per_million > 0;
        // A copy of a write that has failed may land all the same: it stays one that may be there.
        if is_good || asked.is_barred() || !matches!(asked.kind, Kind::Write { .. }) {
            let mut shared = Shared {
                model: &mut self.model,
                counts: &self.counts,
                blocks: self.plan.blocks,
                next_operation: &mut self.next_operation,
                failed_flushes,
                is_lossy,
                is_forsaken_for_good: false,
            };
            asked.settle(is_good, data, None, &mut shared)?;
        }
        if is_lossy {
            station.account.note(asked, is_good, &mut self.model);
        }
        Ok(())
    }

    /// When all is over, and whatever was late has come, all is read once more.
    fn check_all(&mut self) -> Outcome<()> {
        (self.plan.loss_per_million, self.plan.duplicate_per_million, self.can_fail) = (0, 0, false);
        self.disk.set_plan(self.plan.disk.healed());
        self.now += Duration::from_secs(20);
        self.start()?;
        self.step()?;
        for client in 0..self.stations.len() {
            let own = self.stations[client].own;
            for lba in (own.lba..own.lba + own.blocks).step_by(8) {
                let range = Range { lba, blocks: (own.lba + own.blocks - lba).min(8) };
                if !self.give(client, Kind::Read, range) {
                    return Err("no room for a last read".into());
                }
            }
        }
        let end = self.now + Duration::from_secs(60);
        while !self.is_worked_off() {
            self.drain()?;
            if self.is_worked_off() {
                break;
            }
            let Some(next) = self.next_at().filter(|next| *next < end) else { return Err("no last read".into()) };
            self.now = self.now.max(next);
            self.step()?;
        }
        Ok(())
    }
}

fn mac_of(client: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, client as u8])
}

fn path_of(client: usize) -> Path {
    Path { link: LinkId(0), peer: Peer::Ethernet(mac_of(client)) }
}

/// Who is there, to a unit.
fn principal_at(station: MacAddress) -> Principal {
    Principal { address: Some(station.into()), ..Principal::default() }
}

fn ports(path: Path) -> NexusPorts {
    let mac = match path.peer {
        Peer::Ethernet(mac) => mac,
        Peer::Udp(_) => MacAddress::BROADCAST,
    };
    NexusPorts { initiator: TransportId::station(mac), target: TargetPort::default(), principal: principal_at(mac) }
}
