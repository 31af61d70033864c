//! One world of HDSP, from its beginning to the moment when all is answered and nothing is left.

mod faults;

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_buffer::{Frame, Packet, Region};
use sanwire_core::{Instant, MacAddress, NexusId, Path, Peer};
use sanwire_hdsp::{CommandHandle, Request, Server, ServerEvent};

use super::attacker::Attacker;
use super::disk::{Deed, Disk};
use super::initiator::Initiator;
use super::participants::{SERVER, initiator, mac_of, path, server};
use super::plan::{Fault, HEALED_AFTER, Plan};
use crate::model::{Model, Range};
use crate::random::Random;
use crate::world::Outcome;

const BLOCKS: u64 = 256;

/// All must be answered so long after everything is healed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A world in which so much happens stands still.
const STEPS_MAX: u64 = 3_000_000;

enum Event {
    /// A packet arrives at the server (nobody) or at a client.
    Arrives {
        at: Option<usize>,
        from: MacAddress,
        packet: Vec<u8>,
    },
    /// The disk has done a request of this run of the server.
    Done {
        run: u64,
        handle: CommandHandle,
    },
    Fault(Fault),
    Forge,
    ChangeFlow,
    /// The memory that somebody else had is free again.
    Relief,
    Healed,
    /// Nothing: deadlines are looked at.
    Wake,
}

struct Executing {
    nexus: NexusId,
    request: Request,
    deed: Deed,
    has_begun: bool,
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Commands that ended.
    pub ended: u64,
    /// Commands of which nobody knows the end.
    pub lost: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Connections that the last run of the server has accepted.
    pub accepted: u64,
    /// How often that had a client send less, for want of memory.
    pub shrunk: u64,
    /// When all was over.
    pub at: Instant,
}

/// The world.
pub struct World {
    plan: Plan,
    random: Random,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    steps: u64,
    server: Server,
    memory: Region,
    /// What somebody else has of it.
    taken: Vec<Frame>,
    run: u64,
    nexuses: Vec<NexusId>,
    executing: BTreeMap<CommandHandle, Executing>,
    disk: Disk,
    initiators: Vec<Initiator>,
    model: Model,
    operations: u64,
    attacker: Attacker,
    cut_until: Instant,
    is_healed: bool,
    packets: u64,
}

impl World {
    /// A world of this plan.
    ///
    /// # Panics
    /// When the machine has no memory.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let memory = Region::new(plan.memory_bytes).expect("memory");
        let initiators = (0..plan.clients).map(|client| initiator(&plan, client, &mut random)).collect();
        let mut world = World {
            server: server(&plan, &memory, &mut random),
            memory,
            taken: Vec::new(),
            now: Instant::ZERO,
            events: BTreeMap::new(),
            steps: 0,
            run: 0,
            nexuses: Vec::new(),
            executing: BTreeMap::new(),
            disk: Disk::new(BLOCKS),
            initiators,
            model: Model::new(BLOCKS),
            operations: 0,
            attacker: Attacker::default(),
            cut_until: Instant::ZERO,
            is_healed: false,
            packets: 0,
            random,
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for (at, fault) in self.plan.faults.clone() {
            self.at(at, Event::Fault(fault));
        }
        if self.plan.is_attacked {
            self.at(Duration::from_millis(1), Event::Forge);
        }
        if self.plan.changes_flow {
            self.at(Duration::from_millis(20), Event::ChangeFlow);
        }
        self.at(HEALED_AFTER, Event::Healed);
        self.at(Duration::ZERO, Event::Wake);
    }

    fn at(&mut self, delay: Duration, event: Event) {
        self.steps += 1;
        self.events.insert((self.now + delay, self.steps), event);
    }

    /// Lives until all commands have ended, and looks at what is left.
    ///
    /// # Errors
    /// Says what is not as it should be.
    pub fn live(mut self) -> Outcome<Seen> {
        let limit = Instant::ZERO + HEALED_AFTER + PATIENCE;
        while !self.is_over() {
            let next = self.next_at();
            if next > limit {
                return Err(format!("not all is answered after {:?}: {}", PATIENCE, self.state()));
            }
            self.step(next)?;
            if self.steps > STEPS_MAX {
                return Err(format!("the world stands still at {:?}: {}", self.now, self.state()));
            }
        }
        let all = Range { lba: 0, blocks: BLOCKS };
        let begun = self.model.tick();
        self.model.check_read(None, all, begun, self.disk.content())?;
        self.recover()?;
        self.leave()
    }

    fn state(&self) -> String {
        let clients: Vec<_> =
            self.initiators.iter().map(|one| (one.client.is_connected(), one.ended, one.client.counters())).collect();
        format!("{clients:?}, server {:?}, executing {}", self.server.counters(), self.executing.len())
    }

    fn is_over(&self) -> bool {
        self.initiators.iter().all(Initiator::is_done) && self.executing.is_empty()
    }

    /// All clients go, and nothing stays behind.
    fn leave(mut self) -> Outcome<Seen> {
        for initiator in &mut self.initiators {
            initiator.client.close();
        }
        let until = self.now + Duration::from_secs(700);
        while self.server.sessions() > 0 {
            let next = self.next_at();
            if next > until {
                return Err(format!("{} sessions stay", self.server.sessions()));
            }
            self.step(next)?;
        }
        let violations = self.server.counters().violations
            + self.initiators.iter().map(|one| one.client.counters().violations).sum::<u64>();
        if violations > 0 {
            return Err(format!("somebody breaks the rules: {}", self.state()));
        }
        self.taken.clear();
        if self.memory.free_bytes() != self.memory.length_bytes() {
            return Err(format!("{} bytes of memory are left", self.memory.free_bytes()));
        }
        let (ended, lost) = self.initiators.iter().fold((0, 0), |sum, one| (sum.0 + one.ended, sum.1 + one.lost));
        let (accepted, shrunk) = (self.server.handshakes().accepted, self.server.window_changes().shrunk);
        Ok(Seen { ended, lost, packets: self.packets, accepted, shrunk, at: self.now })
    }

    fn next_at(&self) -> Instant {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let clients = self.initiators.iter().filter_map(|one| one.client.poll_timeout());
        let deadlines = event.into_iter().chain(clients).chain(self.server.poll_timeout());
        deadlines.min().unwrap_or(Instant::from_nanos(u64::MAX)).max(self.now)
    }

    fn step(&mut self, at: Instant) -> Outcome<()> {
        self.now = at;
        self.steps += 1;
        let due = self.events.first_key_value().map(|(key, _)| *key).filter(|(due, _)| *due <= at);
        if let Some(event) = due.and_then(|key| self.events.remove(&key)) {
            self.handle(event)?;
        }
        if self.server.poll_timeout().is_some_and(|due| due <= at) {
            self.server.handle_timeout(at);
        }
        for one in &mut self.initiators {
            if one.client.poll_timeout().is_some_and(|due| due <= at) {
                one.client.handle_timeout(at);
            }
        }
        self.drain()
    }

    fn handle(&mut self, event: Event) -> Outcome<()> {
        let now = self.now;
        match event {
            Event::Arrives { at: None, from, packet } => self.server.handle_input(path(from), &packet, now),
            Event::Arrives { at: Some(client), from, packet } => {
                self.initiators[client].client.handle_input(path(from), &packet, now);
            }
            Event::Done { run, handle } if run == self.run => {
                if let Some(Executing { request, .. }) = self.executing.remove(&handle) {
                    let fails = !self.is_healed && self.random.chance(self.plan.error_per_million);
                    let (answer, may_repeat) = self.disk.execute(&request, fails)?;
                    drop(request);
                    self.server.reply(handle, &answer, may_repeat, now);
                }
                self.begin_requests();
            }
            Event::Done { .. } | Event::Wake => {}
            Event::Fault(Fault::Cut { micros }) => self.cut_until = now + Duration::from_micros(micros),
            Event::Fault(Fault::Restart { loses_power }) => self.restart(loses_power)?,
            Event::Fault(Fault::Shortage { micros, left_bytes }) => self.take_memory(micros, left_bytes),
            Event::Relief => self.taken.clear(),
            Event::Forge => {
                if let Some((path, packet)) = self.attacker.forge(&mut self.random) {
                    self.deliver(path, packet, Duration::from_micros(5));
                }
                if !self.is_healed {
                    let delay = self.random.micros(10..=3_000);
                    self.at(delay, Event::Forge);
                }
            }
            Event::ChangeFlow => self.change_flow(),
            Event::Healed => {
                self.taken.clear();
                self.is_healed = true;
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Outcome<()> {
        let now = self.now;
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, nexus, request, .. } => {
                    let deed = Deed::of(&request);
                    self.executing.insert(handle, Executing { nexus, request, deed, has_begun: false });
                }
                ServerEvent::SessionOpened { nexus, .. } => self.nexuses.push(nexus),
                ServerEvent::SessionClosed { nexus, .. } => self.nexuses.retain(|other| *other != nexus),
                ServerEvent::SessionResumed { .. }
                | ServerEvent::Disconnected { .. }
                | ServerEvent::NotAllowed { .. }
                | ServerEvent::WrongPassword { .. }
                | ServerEvent::Violation { .. } => {}
            }
        }
        self.begin_requests();
        for one in &mut self.initiators {
            one.hear(&mut self.model, now)?;
        }
        self.note_news();
        for one in &mut self.initiators {
            one.work(&self.plan, BLOCKS, &mut self.model, &mut self.operations, now)?;
        }
        self.note_news();
        while let Some((to, packet)) = self.server.poll_transmit(now) {
            self.send(SERVER, to, &packet)?;
        }
        for client in 0..self.initiators.len() {
            while let Some((to, packet)) = self.initiators[client].client.poll_transmit(now) {
                self.send(mac_of(client), to, &packet)?;
            }
        }
        Ok(())
    }

    fn note_news(&mut self) {
        for (client, one) in self.initiators.iter_mut().enumerate() {
            let (begun, ended) = std::mem::take(&mut one.news);
            begun.into_iter().for_each(|write| self.disk.precedence.begun(write, client));
            ended.into_iter().for_each(|write| self.disk.precedence.ended(write, self.operations));
        }
    }

    /// Requests that touch others of their session that came before wait for them. What sessions have to do with each other the disk
    /// does not know.
    fn begin_requests(&mut self) {
        let mut before: Vec<(NexusId, Deed)> = Vec::new();
        let mut begun = Vec::new();
        for (handle, executing) in &mut self.executing {
            let waits_for = |(nexus, deed): &(NexusId, Deed)| *nexus == executing.nexus && deed.touches(executing.deed);
            if !executing.has_begun && !before.iter().any(waits_for) {
                executing.has_begun = true;
                begun.push(*handle);
            }
            before.push((executing.nexus, executing.deed));
        }
        for handle in begun {
            let hangs = !self.is_healed && self.random.chance(self.plan.hang_per_million);
            let delay = self.random.micros(0..=if hangs { 10_000_000 } else { self.plan.disk_us });
            let run = self.run;
            self.at(delay, Event::Done { run, handle });
        }
    }

    fn send(&mut self, from: MacAddress, to: Path, packet: &Packet) -> Outcome<()> {
        let bytes = packet.to_vec();
        if bytes.len() > self.plan.packet_max_bytes.into() {
            return Err(format!("a packet of {} bytes", bytes.len()));
        }
        self.packets += 1;
        let Peer::Ethernet(to) = to.peer else { return Err("not Ethernet".to_owned()) };
        if self.plan.is_attacked {
            let heard = if from == SERVER { path(to) } else { path(from) };
            self.attacker.hear(heard, &bytes, &mut self.random);
        }
        if self.cut_until > self.now {
            return Ok(());
        }
        let link = if self.is_healed { super::plan::LinkPlan::default() } else { self.plan.link };
        let copies = 1 + u32::from(self.random.chance(link.duplicate_per_million));
        for _ in 0..copies {
            if self.random.chance(link.loss_per_million) {
                continue;
            }
            let mut bytes = bytes.clone();
            if self.random.chance(link.damage_per_million) {
                let bit = self.random.range(0..=bytes.len() as u64 * 8 - 1) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            // Ethernet pads short frames.
            bytes.resize(bytes.len().max(46), 0);
            let delay = Duration::from_micros(20) + self.random.micros(0..=link.jitter_us);
            let towards = if from == SERVER { path(to) } else { path(from) };
            self.deliver(towards, bytes, delay);
        }
        Ok(())
    }

    /// A packet on the path between the server and a client: to whom it is for by its R bit, or by chance.
    fn deliver(&mut self, between: Path, packet: Vec<u8>, delay: Duration) {
        let Peer::Ethernet(mac) = between.peer else { return };
        let client = usize::from(mac.0[5]);
        let is_from_server = packet.first().is_some_and(|first| first & 0x8 != 0);
        let event = match is_from_server {
            true if client < self.initiators.len() => Event::Arrives { at: Some(client), from: SERVER, packet },
            _ => Event::Arrives { at: None, from: mac, packet },
        };
        self.at(delay, event);
    }
}
