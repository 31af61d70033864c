//! One world: an array under I/O, its members on hosts of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_array::{Array, ArrayError, Begin, Candidate, Plan as ArrayPlan, Standing, assemble, create};
use sanwire_sim::random::Random;
use sanwire_sim::world::Outcome;
use sanwire_store::{Completion, CompletionQueue, Course, Request, Started, Store};

use super::disk::{Network, SECTOR_BYTES};
use super::flights::{Flight, What, note, queues};
use super::hosts::Former;
use super::model::{Model, Moment};
use super::plan::Plan;
use super::replacing::disk_of;

pub(super) const SECTOR: u64 = SECTOR_BYTES as u64;
/// Two MiB of data, and a bit.
const MEMBER_BYTES: u64 = (3 << 20) + (16 << 10) + 4096;

pub(super) struct World {
    pub(super) random: Random,
    pub(super) plan: Plan,
    pub(super) network: Arc<Network>,
    pub(super) array: Option<Array>,
    /// Of each shard.
    pub(super) completions: Vec<CompletionQueue>,
    pub(super) flights: Vec<Flight>,
    pub(super) model: Model,
    pub(super) next: u64,
    /// A host that had the array before, and does not know that another one has it.
    pub(super) former: Option<Former>,
    /// Something that was answered may be lost, and nobody was told.
    pub(super) untold: bool,
    /// Something was answered since a flush has ended well.
    pub(super) is_unflushed: bool,
    /// How many flushes have ended.
    pub(super) flushes: u64,
    /// Disks that were found again since the host has the array, and have lost what was not flushed.
    pub(super) has_lost: Vec<usize>,
    /// Disks that were cleared to take a place, and did not.
    pub(super) cleared: Vec<usize>,
    /// It was begun by force, and is not once more: who forces one part and then the other has two arrays.
    pub(super) is_forced: bool,
    /// For each group, the disks of its members that were in when the array was in use last.
    pub(super) last_in: Vec<Vec<usize>>,
    /// How long it is known to be.
    pub(super) sectors: u64,
    /// Its host ends now.
    pub(super) is_ended: bool,
}

/// Runs the world of a seed.
///
/// # Errors
/// When the array holds what it may not.
pub fn run(plan: Plan, seed: u64) -> Outcome<()> {
    let mut world = World::new(plan, Random::new(seed))?;
    for _ in 0..plan.lives {
        world.live()?;
    }
    world.check_all()
}

impl World {
    pub(super) fn new(plan: Plan, mut random: Random) -> Outcome<Self> {
        let network = Network::new(random.fork(), plan.copies * plan.groups + plan.spares, MEMBER_BYTES);
        network.set_lagging(plan.lags_per_million);
        let mut world = World {
            random,
            plan,
            network,
            array: None,
            completions: queues(plan.shards),
            flights: Vec::new(),
            model: Model::default(),
            next: 1,
            former: None,
            untold: false,
            is_unflushed: false,
            flushes: 0,
            has_lost: Vec::new(),
            cleared: Vec::new(),
            is_forced: false,
            last_in: Vec::new(),
            sectors: 0,
            is_ended: false,
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
        world.sectors = sectors;
        Ok(world)
    }

    /// A host has the array for a while.
    pub(super) fn live(&mut self) -> Outcome<()> {
        self.assemble()?;
        self.use_it()?;
        let is_ended = std::mem::take(&mut self.is_ended);
        if self.random.chance(500_000) && !is_ended {
            self.quiesce()?;
        }
        if self.former.is_none() && self.random.chance(self.plan.taken_per_million) {
            self.hand_over();
            return Ok(());
        }
        self.die();
        self.see_former()
    }

    /// All turns of a life, or as many as there are until its host ends.
    pub(super) fn use_it(&mut self) -> Outcome<()> {
        for _ in 0..self.plan.turns {
            self.turn()?;
            if self.is_ended {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn candidate(&self, disk: usize) -> Candidate {
        Candidate { place: format!("disk{disk}"), store: self.network.connect(disk) }
    }

    /// Drives something to its end, while all else goes on.
    pub(super) fn drive(&mut self, begin: Begin) -> Completion {
        self.drive_while(begin, |_| true).expect("it goes on until it has ended")
    }

    /// The same as long as somebody says before each step that it goes on; `None`: it has ended in the midst.
    pub(super) fn drive_while(
        &mut self,
        begin: Begin,
        mut goes_on: impl FnMut(&mut World) -> bool,
    ) -> Option<Completion> {
        let queue = CompletionQueue::new(|| ());
        let (mut course, mut operations) = (Course::default(), BTreeMap::new());
        let mut end = course.begin(begin(&queue), &mut note(&mut operations));
        loop {
            if end.is_some() {
                return end;
            }
            for (pending, completion) in queue.take() {
                let Some(number) = operations.remove(&pending) else { continue };
                end = course.go_on(number, Started::Done(completion), &queue, &mut note(&mut operations));
            }
            if end.is_some() {
                continue;
            }
            if !goes_on(self) {
                return None;
            }
            let has_stepped = self.step();
            self.deliver().unwrap_or_else(|what| panic!("{what}"));
            let arrived = queue.take();
            let is_under_way = has_stepped || !arrived.is_empty() || self.network.is_busy();
            assert!(is_under_way, "nothing is under way that it waits for");
            for (pending, completion) in arrived {
                let Some(number) = operations.remove(&pending) else { continue };
                end = course.go_on(number, Started::Done(completion), &queue, &mut note(&mut operations));
            }
        }
    }

    pub(super) fn assemble(&mut self) -> Outcome<()> {
        self.network.set(true, 0);
        let disks = self.disks();
        let mut hidden: Vec<usize> = (0..disks)
            .filter(|disk| !self.network.is_up(*disk) || self.random.chance(self.plan.hidden_per_million))
            .collect();
        self.show_forced(&mut hidden);
        loop {
            let found: Vec<_> =
                (0..disks).filter(|disk| !hidden.contains(disk)).map(|disk| self.candidate(disk)).collect();
            let run = self.random.u64();
            match assemble("a", &found, false, run, &mut |begin| self.drive(begin)) {
                Ok(array) => self.array = Some(array),
                Err(ArrayError::NoQuorum { .. } | ArrayError::Incomplete { .. } | ArrayError::Unknown { .. })
                    if !hidden.is_empty() =>
                {
                    let is_forced = !self.is_forced && self.random.chance(self.plan.forced_per_million);
                    if is_forced && self.force(&hidden)? {
                        break;
                    }
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
        self.see_length()
    }

    /// Nothing goes wrong any more: all that is under way ends.
    pub(super) fn quiesce(&mut self) -> Outcome<()> {
        (0..self.disks()).for_each(|disk| self.network.mend(disk));
        self.network.set(false, 0);
        self.deliver()?;
        while self.step() {
            self.deliver()?;
        }
        if self.flights.is_empty() { Ok(()) } else { Err(format!("{} requests never end", self.flights.len())) }
    }

    /// The host of the array ends.
    pub(super) fn die(&mut self) {
        self.flights.clear();
        self.network.end_some(|_| true);
        self.forget();
        self.note_last();
        self.array = None;
        self.completions = queues(self.plan.shards);
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
        if self.random.chance(self.plan.replaced_per_million) {
            return self.replace();
        }
        if self.random.chance(self.plan.grown_per_million) {
            return self.grow();
        }
        if self.plan.scrubbed_per_million > 0 && self.random.chance(self.plan.scrubbed_per_million) {
            return self.scrub();
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

    pub(super) fn change_link(&mut self) -> Outcome<()> {
        let disk = self.random.range(0..=self.disks() as u64 - 1) as usize;
        if !self.network.is_up(disk) {
            self.network.mend(disk);
            return Ok(());
        }
        let loses_power = self.random.chance(300_000);
        self.model.lost_member();
        self.network.cut(disk, loses_power);
        self.deliver()
    }

    pub(super) fn array(&self) -> Array {
        self.array.clone().expect("it is there while its host lives")
    }

    /// Members that are out and there are taken in again.
    fn come_back(&mut self) -> Outcome<()> {
        let array = self.array();
        for (number, member) in array.members().into_iter().enumerate() {
            let disk = disk_of(&member);
            if member.is_over && self.network.is_up(disk) {
                self.reopen(&array, number)?;
                continue;
            }
            if member.is_present || !self.network.is_up(disk) {
                continue;
            }
            self.note_lost(disk);
            let candidate = self.candidate(disk);
            match array.rejoin(number, &candidate, &mut |begin| self.drive(begin)) {
                Err(error @ ArrayError::Split { .. }) => return Err(text(error)),
                // Its label says that it is out.
                Ok(()) => self.has_lost.retain(|other| *other != disk),
                // It is gone again, or others are.
                Err(_) => {}
            }
            self.model.lost_member();
        }
        Ok(())
    }

    fn tidy(&mut self) -> Outcome<()> {
        let array = self.array();
        let shard = self.shard();
        match array.tidy(&self.completions[shard]) {
            Some(started) => self.fly(shard, What::Resync, (0, 0), Moment::default(), started),
            None => Ok(()),
        }
    }

    pub(super) fn resync(&mut self) -> Outcome<()> {
        if self.flights.iter().any(|flight| flight.what == What::Resync) {
            return Ok(());
        }
        let array = self.array();
        let shard = self.shard();
        match array.resync(&self.completions[shard]) {
            Some(started) => self.fly(shard, What::Resync, (0, 0), Moment::default(), started),
            None => Ok(()),
        }
    }

    /// Does something of what is under way at the members. A flush may fail where others have all that it was to make stable.
    fn step(&mut self) -> bool {
        if self.plan.hurt_per_million > 0
            && let Some(array) = &self.array
        {
            let members = array.members();
            let is_whole = |number: &usize| {
                let group = number / self.plan.copies * self.plan.copies;
                members[group..group + self.plan.copies].iter().all(|member| {
                    let is_in = member.standing == Standing::In && member.is_present && member.behind_bytes == 0;
                    is_in && self.network.is_up(disk_of(member))
                })
            };
            // One of each group, or all may lose the same.
            let first = (0..members.len()).step_by(self.plan.copies).filter(|_| self.plan.copies > 1);
            self.network.set_weak(first.filter(is_whole).map(|number| disk_of(&members[number])).collect());
        }
        self.network.step()
    }

    /// All members are there, and become the same; then each of them has what may be read.
    pub(super) fn check_all(&mut self) -> Outcome<()> {
        (0..self.disks()).for_each(|disk| self.network.mend(disk));
        (self.plan.hidden_per_million, self.plan.hurt_per_million) = (0, 0);
        self.assemble()?;
        self.network.set(true, 0);
        let array = self.array();
        self.restore_cleared()?;
        self.become_same()?;
        if let Some(member) = array.members().into_iter().find(|member| member.standing != Standing::In) {
            return Err(format!("a member is not in: {member:?}"));
        }
        let different = array.scrub(&mut |begin| self.drive(begin)).map_err(text)?;
        if different > 0 {
            return Err(format!("{different} pieces differ among the members"));
        }
        self.read_all()
    }

    /// All members that are there become the same.
    pub(super) fn become_same(&mut self) -> Outcome<()> {
        let array = self.array();
        let mut steps = 0;
        while let Some(started) = array.resync(&self.completions[0]) {
            self.fly(0, What::Resync, (0, 0), Moment::default(), started)?;
            steps += 1;
            if steps > 1000 {
                return Err(format!("it never ends to bring members up to date: {:?}", array.members()));
            }
        }
        Ok(())
    }

    /// Each sector shows what it may.
    pub(super) fn read_all(&mut self) -> Outcome<()> {
        let array = self.array();
        for sector in self.model.sectors().collect::<Vec<_>>() {
            let moment = self.model.now(sector, 1);
            let request = Request::Read { offset_bytes: sector * SECTOR, buffer: vec![9; SECTOR_BYTES].into() };
            let started = array.start(request, &self.completions[0]);
            self.fly(0, What::Read, (sector, 1), moment, started)?;
        }
        Ok(())
    }
}

pub(super) fn text(error: ArrayError) -> String {
    error.to_string()
}
