//! One world: an array under I/O, its members on hosts of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_array::{Arrangement, Array, ArrayError, Begin, Candidate, Plan as ArrayPlan, Standing, assemble, create};
use sanwire_sim::random::Random;
use sanwire_sim::world::Outcome;
use sanwire_store::{
    Completion, CompletionQueue, Course, Operation, Outcome as Ended, Pending, Request, Started, Store,
};

use super::disk::{Network, SECTOR_BYTES};
use super::hosts::Former;
use super::model::{Model, Moment, content, version_of};

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Two MiB of data, and a bit.
const MEMBER_BYTES: u64 = (3 << 20) + (16 << 10) + 4096;

/// How a world goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub copies: usize,
    pub groups: usize,
    pub arrangement: Arrangement,
    /// How often the host of the array ends, and after how many turns.
    pub lives: u32,
    pub turns: u32,
    /// How many of a million turns a link goes or comes.
    pub cut_per_million: u32,
    /// How many of a million requests fail at a medium.
    pub hurt_per_million: u32,
    /// How often the end of the host is a loss of all power.
    pub power_per_million: u32,
    /// How often a member is not found at first.
    pub hidden_per_million: u32,
    /// How often the end of a life is that another host takes the array over.
    pub taken_per_million: u32,
    /// How many of a million turns the connection with a member is lost for good.
    pub ended_per_million: u32,
}

impl Plan {
    /// Whether requests may fail.
    fn goes_wrong(&self) -> bool {
        self.cut_per_million + self.hurt_per_million + self.ended_per_million > 0
    }
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            copies: 2,
            groups: 1,
            arrangement: Arrangement::Concat,
            lives: 1,
            turns: 1,
            cut_per_million: 0,
            hurt_per_million: 0,
            power_per_million: 0,
            hidden_per_million: 0,
            taken_per_million: 0,
            ended_per_million: 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Read,
    Change,
    Flush,
    Resync,
}

/// A request that is under way.
pub(super) struct Flight {
    pub(super) course: Course,
    pub(super) operations: BTreeMap<Pending, u32>,
    pub(super) what: What,
    pub(super) range: (u64, u64),
    pub(super) moment: Moment,
}

pub(super) struct World {
    pub(super) random: Random,
    pub(super) plan: Plan,
    pub(super) network: Arc<Network>,
    pub(super) array: Option<Array>,
    pub(super) completions: CompletionQueue,
    pub(super) flights: Vec<Flight>,
    pub(super) model: Model,
    next: u64,
    /// A host that had the array before, and does not know that another one has it.
    pub(super) former: Option<Former>,
    /// Something that was answered may be lost, and nobody was told.
    pub(super) untold: bool,
    /// Something was answered since a flush has ended well.
    pub(super) is_unflushed: bool,
    /// How many flushes have ended.
    pub(super) flushes: u64,
}

/// Runs the world of a seed.
///
/// # Errors
/// When the array holds what it may not.
pub fn run(plan: Plan, seed: u64) -> Outcome<()> {
    let mut world = World::new(plan, Random::new(seed))?;
    for _ in 0..plan.lives {
        world.assemble()?;
        for _ in 0..plan.turns {
            world.turn()?;
        }
        if world.random.chance(500_000) {
            world.quiesce()?;
        }
        if world.former.is_none() && world.random.chance(plan.taken_per_million) {
            world.hand_over();
        } else {
            world.die();
            world.see_former()?;
        }
    }
    world.check_all()
}

pub(super) fn note(operations: &mut BTreeMap<Pending, u32>) -> impl FnMut(u32, Operation) + '_ {
    |number, operation| match operation {
        Operation::Pending(pending) => _ = operations.insert(pending, number),
        other => panic!("no member here asks for {other:?}"),
    }
}

impl World {
    fn new(plan: Plan, mut random: Random) -> Outcome<Self> {
        let network = Network::new(random.fork(), plan.copies * plan.groups, MEMBER_BYTES);
        let mut world = World {
            random,
            plan,
            network,
            array: None,
            completions: CompletionQueue::new(|| ()),
            flights: Vec::new(),
            model: Model::default(),
            next: 1,
            former: None,
            untold: false,
            is_unflushed: false,
            flushes: 0,
        };
        let members: Vec<_> = (0..plan.copies * plan.groups).map(|disk| world.candidate(disk)).collect();
        let wanted =
            ArrayPlan { name: "a".to_owned(), arrangement: plan.arrangement, copies: plan.copies, force: false };
        let mut ids = world.random.fork();
        let mut id = move || u128::from(ids.u64()).to_be_bytes();
        let table = create(&wanted, &members, &mut id, &mut |begin| world.drive(begin)).map_err(text)?;
        let sectors = table.layout().length_bytes() / SECTOR;
        // At the borders of regions, of chunks, of groups, and at the end.
        let parts = [0..20, 120..136, 2040..2056, sectors / 2 - 8..sectors / 2 + 8, sectors - 20..sectors];
        world.model = Model::new(parts.into_iter().flatten());
        Ok(world)
    }

    pub(super) fn candidate(&self, disk: usize) -> Candidate {
        Candidate { place: format!("disk{disk}"), store: self.network.connect(disk) }
    }

    /// Drives something to its end, while all else goes on.
    pub(super) fn drive(&mut self, begin: Begin) -> Completion {
        let queue = CompletionQueue::new(|| ());
        let (mut course, mut operations) = (Course::default(), BTreeMap::new());
        let mut end = course.begin(begin(&queue), &mut note(&mut operations));
        loop {
            if let Some(end) = end {
                return end;
            }
            for (pending, completion) in queue.take() {
                let Some(number) = operations.remove(&pending) else { continue };
                end = course.go_on(number, Started::Done(completion), &queue, &mut note(&mut operations));
            }
            if end.is_some() {
                continue;
            }
            let has_stepped = self.step();
            self.deliver().unwrap_or_else(|what| panic!("{what}"));
            let arrived = queue.take();
            let goes_on = has_stepped || !arrived.is_empty() || self.network.is_busy();
            assert!(goes_on, "nothing is under way that it waits for");
            for (pending, completion) in arrived {
                let Some(number) = operations.remove(&pending) else { continue };
                end = course.go_on(number, Started::Done(completion), &queue, &mut note(&mut operations));
            }
        }
    }

    fn assemble(&mut self) -> Outcome<()> {
        self.network.set(true, 0);
        let disks = self.plan.copies * self.plan.groups;
        let mut hidden: Vec<usize> = (0..disks)
            .filter(|disk| !self.network.is_up(*disk) || self.random.chance(self.plan.hidden_per_million))
            .collect();
        loop {
            let found: Vec<_> =
                (0..disks).filter(|disk| !hidden.contains(disk)).map(|disk| self.candidate(disk)).collect();
            let run = self.random.u64();
            match assemble("a", &found, false, run, &mut |begin| self.drive(begin)) {
                Ok(array) => self.array = Some(array),
                Err(ArrayError::NoQuorum { .. } | ArrayError::Incomplete { .. } | ArrayError::Unknown { .. })
                    if !hidden.is_empty() =>
                {
                    let which = self.random.range(0..=hidden.len() as u64 - 1) as usize;
                    self.network.mend(hidden.swap_remove(which));
                    continue;
                }
                Err(error) => return Err(text(error)),
            }
            break;
        }
        // What was not found is away.
        hidden.into_iter().for_each(|disk| self.network.cut(disk, false));
        self.model.lost_member();
        self.network.set(false, self.plan.hurt_per_million);
        Ok(())
    }

    /// Nothing goes wrong any more: all that is under way ends.
    fn quiesce(&mut self) -> Outcome<()> {
        (0..self.plan.copies * self.plan.groups).for_each(|disk| self.network.mend(disk));
        self.network.set(false, 0);
        self.deliver()?;
        while self.step() {
            self.deliver()?;
        }
        if self.flights.is_empty() { Ok(()) } else { Err(format!("{} requests never end", self.flights.len())) }
    }

    /// The host of the array ends.
    fn die(&mut self) {
        self.flights.clear();
        self.network.end_some(|_| true);
        self.forget();
        self.array = None;
        self.completions = CompletionQueue::new(|| ());
        self.model.lost_host();
        if self.random.chance(self.plan.power_per_million) {
            self.network.lose_power();
            self.model.lost_power();
        }
    }

    fn turn(&mut self) -> Outcome<()> {
        if self.random.chance(self.plan.cut_per_million) {
            return self.change_link();
        }
        if self.random.chance(self.plan.ended_per_million) {
            return self.end_session();
        }
        if self.former.is_some() && self.random.chance(20_000) {
            self.thaw()?;
        }
        match self.random.range(0..=99) {
            0..=24 if self.flights.len() < 8 => self.begin(What::Change),
            25..=39 if self.flights.len() < 8 => self.begin(What::Read),
            40..=45 if self.flights.len() < 8 => self.begin(What::Flush),
            46..=52 => self.resync(),
            53 => self.come_back(),
            54 => self.tidy(),
            _ => {
                self.step();
                self.deliver()
            }
        }
    }

    fn change_link(&mut self) -> Outcome<()> {
        let disk = self.random.range(0..=(self.plan.copies * self.plan.groups) as u64 - 1) as usize;
        if !self.network.is_up(disk) {
            self.network.mend(disk);
            return Ok(());
        }
        let loses_power = self.random.chance(300_000);
        self.model.lost_member();
        self.network.cut(disk, loses_power);
        self.deliver()
    }

    fn array(&self) -> Array {
        self.array.clone().expect("it is there while its host lives")
    }

    /// Members that are out and there are taken in again.
    fn come_back(&mut self) -> Outcome<()> {
        let array = self.array();
        for (number, member) in array.members().into_iter().enumerate() {
            if member.is_over && self.network.is_up(number) {
                self.reopen(&array, number)?;
                continue;
            }
            if member.is_present || !self.network.is_up(number) {
                continue;
            }
            let candidate = self.candidate(number);
            match array.rejoin(number, &candidate, &mut |begin| self.drive(begin)) {
                Err(error @ ArrayError::Split { .. }) => return Err(text(error)),
                // It is gone again, or others are.
                _ => self.model.lost_member(),
            }
        }
        Ok(())
    }

    fn tidy(&mut self) -> Outcome<()> {
        let array = self.array();
        match array.tidy(&self.completions) {
            Some(started) => self.fly(What::Resync, (0, 0), Moment::default(), started),
            None => Ok(()),
        }
    }

    fn resync(&mut self) -> Outcome<()> {
        if self.flights.iter().any(|flight| flight.what == What::Resync) {
            return Ok(());
        }
        let array = self.array();
        match array.resync(&self.completions) {
            Some(started) => self.fly(What::Resync, (0, 0), Moment::default(), started),
            None => Ok(()),
        }
    }

    fn begin(&mut self, what: What) -> Outcome<()> {
        let sectors: Vec<u64> = self.model.sectors().collect();
        let from = sectors[self.random.range(0..=sectors.len() as u64 - 1) as usize];
        let row = sectors.iter().skip_while(|sector| **sector < from).zip(from..).take_while(|(a, b)| *a == b);
        let count = self.random.range(1..=(row.count() as u64).min(24));
        let overlaps = |flight: &Flight| {
            flight.what == What::Change && from < flight.range.0 + flight.range.1 && flight.range.0 < from + count
        };
        if what == What::Change && self.flights.iter().any(overlaps) {
            return Ok(());
        }
        let (version, offset_bytes, length_bytes) = (self.next, from * SECTOR, count * SECTOR);
        self.next += 1;
        let moment = if what == What::Flush { self.model.now(0, u64::MAX) } else { self.model.now(from, count) };
        let request = match what {
            What::Read => Request::Read { offset_bytes, buffer: vec![9; length_bytes as usize].into() },
            What::Change => {
                let kind = self.random.range(0..=9);
                self.model.begin(from, count, if kind < 2 { 0 } else { version });
                match kind {
                    0 => Request::Discard { offset_bytes, length_bytes },
                    1 => Request::WriteZeroes { offset_bytes, length_bytes },
                    _ => {
                        let data: Vec<u8> = (from..from + count).flat_map(|sector| content(version, sector)).collect();
                        Request::Write { offset_bytes, data: data.into() }
                    }
                }
            }
            _ => Request::Flush,
        };
        let started = self.array().start(request, &self.completions);
        self.fly(what, (from, count), moment, started)
    }

    fn fly(&mut self, what: What, range: (u64, u64), moment: Moment, started: Started) -> Outcome<()> {
        let (course, operations) = (Course::default(), BTreeMap::new());
        let mut flight = Flight { course, operations, what, range, moment };
        let end = flight.course.begin(started, &mut note(&mut flight.operations));
        match end {
            Some(end) => self.end(flight, end),
            None => {
                self.flights.push(flight);
                Ok(())
            }
        }
    }

    /// Goes on with what has ended below.
    pub(super) fn deliver(&mut self) -> Outcome<()> {
        loop {
            let arrived = self.completions.take();
            if arrived.is_empty() {
                return Ok(());
            }
            for (pending, completion) in arrived {
                let found = self.flights.iter().position(|flight| flight.operations.contains_key(&pending));
                let Some(place) = found else { continue };
                let Flight { course, operations, .. } = &mut self.flights[place];
                let number = operations.remove(&pending).expect("it was found");
                let started = Started::Done(completion);
                let end = course.go_on(number, started, &self.completions, &mut note(operations));
                if let Some(end) = end {
                    let flight = self.flights.swap_remove(place);
                    self.end(flight, end)?;
                }
            }
        }
    }

    fn end(&mut self, flight: Flight, end: Completion) -> Outcome<()> {
        let Flight { what, range: (from, count), moment, .. } = flight;
        if what == What::Change {
            self.model.end(from, count, end.is_ok());
            self.is_unflushed |= end.is_ok();
        }
        self.flushes += u64::from(what == What::Flush);
        match (what, end) {
            (What::Read, Ok(Ended::Read(frame))) => {
                for (sector, bytes) in (from..from + count).zip(frame.chunks(SECTOR_BYTES)) {
                    let version = version_of(bytes, sector).ok_or_else(|| format!("sector {sector} is torn"))?;
                    self.model.found(&moment, sector, version)?;
                }
            }
            (What::Flush, Ok(_)) if self.untold => {
                return Err("a flush ends well, and something before it is lost".to_owned());
            }
            (What::Flush, Ok(_)) => {
                self.is_unflushed = false;
                self.model.flushed(&moment);
            }
            // Members may be lost by it, and what was not flushed there.
            (what, Err(_)) if self.plan.goes_wrong() => {
                self.untold &= what != What::Flush;
                self.model.lost_member();
            }
            (_, Err(error)) => return Err(format!("it fails: {error}")),
            _ => {}
        }
        Ok(())
    }

    /// Does something of what is under way at the members. A flush may fail where others have all that it was to make stable.
    fn step(&mut self) -> bool {
        if self.plan.hurt_per_million > 0
            && let Some(array) = &self.array
        {
            let members = array.members();
            let is_whole = |number: &usize| {
                let group = number / self.plan.copies * self.plan.copies;
                members[group..group + self.plan.copies].iter().zip(group..).all(|(member, disk)| {
                    let is_in = member.standing == Standing::In && member.is_present && member.behind_bytes == 0;
                    is_in && self.network.is_up(disk)
                })
            };
            // One of each group, or all may lose the same.
            let first = (0..members.len()).step_by(self.plan.copies).filter(|_| self.plan.copies > 1);
            self.network.set_weak(first.filter(is_whole).collect());
        }
        self.network.step()
    }

    /// All members are there, and become the same; then each of them has what may be read.
    fn check_all(&mut self) -> Outcome<()> {
        let disks = self.plan.copies * self.plan.groups;
        (0..disks).for_each(|disk| self.network.mend(disk));
        (self.plan.hidden_per_million, self.plan.hurt_per_million) = (0, 0);
        self.assemble()?;
        self.network.set(true, 0);
        let array = self.array();
        let mut steps = 0;
        while let Some(started) = array.resync(&self.completions) {
            self.fly(What::Resync, (0, 0), Moment::default(), started)?;
            steps += 1;
            if steps > 1000 {
                return Err(format!("it never ends to bring members up to date: {:?}", array.members()));
            }
        }
        if let Some(member) = array.members().into_iter().find(|member| member.standing != Standing::In) {
            return Err(format!("a member is not in: {member:?}"));
        }
        let different = array.scrub(&mut |begin| self.drive(begin)).map_err(text)?;
        if different > 0 {
            return Err(format!("{different} pieces differ among the members"));
        }
        for sector in self.model.sectors().collect::<Vec<_>>() {
            let moment = self.model.now(sector, 1);
            let request = Request::Read { offset_bytes: sector * SECTOR, buffer: vec![9; SECTOR_BYTES].into() };
            let started = array.start(request, &self.completions);
            self.fly(What::Read, (sector, 1), moment, started)?;
        }
        Ok(())
    }
}

fn text(error: ArrayError) -> String {
    error.to_string()
}
