//! Hosts that have the array one after the other, of which one does not know that: nothing that it does counts any more.

use std::collections::BTreeMap;

use sanwire_array::{Array, Begin, Candidate, MemberStatus, Standing};
use sanwire_sim::world::Outcome;
use sanwire_store::{CompletionQueue, Course, Request, Started, Store};

use super::disk::SECTOR_BYTES;
use super::flights::{Flight, What, arrivals, note, queues};
use super::model::Moment;
use super::replacing::disk_of;
use super::world::World;

/// A host that had the array.
pub(super) struct Former {
    array: Array,
    flights: Vec<Flight>,
    completions: Vec<CompletionQueue>,
}

impl Former {
    /// It goes on, and nobody hears it. What it had under way may have been done before the array was taken from it.
    fn go_on(&mut self) {
        self.flights.iter_mut().for_each(|flight| flight.what = What::Resync);
        for (what, request) in [(What::Read, read()), (What::Change, write()), (What::Flush, Request::Flush)] {
            let (course, operations) = (Course::default(), BTreeMap::new());
            let mut flight = Flight {
                shard: 0,
                course,
                operations,
                what,
                range: (0, 1),
                moment: Moment::default(),
                is_unsure: false,
            };
            let started = self.array.start(request, &self.completions[0]);
            let end = flight.course.begin(started, &mut note(&mut flight.operations));
            assert!(end.is_none(), "nobody answers");
            self.flights.push(flight);
        }
    }
}

fn read() -> Request {
    Request::Read { offset_bytes: 0, buffer: vec![0; SECTOR_BYTES].into() }
}

fn write() -> Request {
    Request::Write { offset_bytes: 0, data: vec![1; SECTOR_BYTES].into() }
}

impl World {
    /// Another host takes the array over: what has it now is not heard for a while.
    pub(super) fn hand_over(&mut self) {
        self.forget();
        self.note_last();
        let completions = std::mem::replace(&mut self.completions, queues(self.plan.shards));
        let flights = std::mem::take(&mut self.flights);
        self.former = self.array.take().map(|array| Former { array, flights, completions });
        self.network.take_over();
        self.former.iter_mut().for_each(Former::go_on);
        (0..self.disks()).for_each(|disk| self.network.mend(disk));
        self.model.lost_host();
    }

    /// The host that had the array before is heard again.
    pub(super) fn thaw(&mut self) -> Outcome<()> {
        self.network.thaw();
        let Some(former) = &mut self.former else { return Ok(()) };
        loop {
            let arrived = arrivals(&former.completions);
            if arrived.is_empty() {
                return Ok(());
            }
            for (shard, pending, completion) in arrived {
                let is_its = |flight: &Flight| flight.shard == shard && flight.operations.contains_key(&pending);
                let Some(place) = former.flights.iter().position(is_its) else { continue };
                let Flight { course, operations, what, .. } = &mut former.flights[place];
                let number = operations.remove(&pending).expect("it was found");
                let started = Started::Done(completion);
                let end = course.go_on(number, started, &former.completions[shard], &mut note(operations));
                match end {
                    Some(Ok(_)) if *what != What::Resync => {
                        return Err("who has the array no more has answered something well".to_owned());
                    }
                    Some(_) => drop(former.flights.swap_remove(place)),
                    None => {}
                }
            }
        }
    }

    /// The host that has taken the array over has left it, and the one before finds that nobody has the members.
    pub(super) fn see_former(&mut self) -> Outcome<()> {
        self.thaw()?;
        let Some(Former { array, .. }) = self.former.take() else { return Ok(()) };
        self.network.set(true, 0);
        for (number, member) in array.members().into_iter().enumerate() {
            let disk = disk_of(&member);
            let candidate = Candidate { place: format!("disk{disk}"), store: self.network.claim(disk) };
            let put = if member.is_over { Array::reopen } else { Array::rejoin };
            array.let_go(number);
            if put(&array, number, &candidate, &mut |begin| self.drive(begin)).is_ok() {
                return Err(format!("member {number} is taken back by who has the array no more"));
            }
        }
        for request in [read(), write()] {
            let array = array.clone();
            let begin: Begin = Box::new(move |completions| array.start(request, completions));
            if self.drive(begin).is_ok() {
                return Err("who has the array no more reads or writes it".to_owned());
            }
        }
        Ok(())
    }

    /// What nobody has made stable may be gone with the host of the array, where a member has lost it.
    pub(super) fn forget(&mut self) {
        let Some(array) = &self.array else { return };
        // The labels could not say so before the end of the host, or who had asked was not told.
        let members = array.members();
        let is_in = |member: &MemberStatus| member.standing == Standing::In;
        let forgets = |member: &MemberStatus| self.network.forgets(disk_of(member));
        // Another one has what it has lost, and that may be known to no label yet.
        let is_behind = |member: &MemberStatus| member.behind_bytes > 0 || !member.is_present;
        let lacks = |member: &MemberStatus| is_behind(member) && self.has_lost.contains(&disk_of(member));
        if members.iter().any(|member| is_in(member) && (forgets(member) || lacks(member))) {
            self.model.lost_power();
        }
        self.has_lost.clear();
        (self.untold, self.is_unflushed) = (false, false);
    }

    /// A disk is about to be found again, which may have lost what was not flushed.
    pub(super) fn note_lost(&mut self, disk: usize) {
        if self.network.forgets(disk) {
            self.has_lost.push(disk);
        }
    }

    /// The connection with a member is lost for good.
    pub(super) fn end_session(&mut self) -> Outcome<()> {
        let disk = self.random.range(0..=self.disks() as u64 - 1) as usize;
        let loses_power = self.random.chance(500_000);
        self.model.lost_member();
        self.network.end_session(disk, loses_power);
        self.deliver()
    }

    /// A member that is kept, and whose connection is lost for good, is opened again.
    pub(super) fn reopen(&mut self, array: &Array, number: usize) -> Outcome<()> {
        let members = array.members();
        let group = number / self.plan.copies * self.plan.copies;
        let has_all = |other: usize| {
            let member = &members[other];
            let is_in = member.standing == Standing::In && member.is_present && member.behind_bytes == 0;
            let disk = disk_of(member);
            is_in && !member.is_over && self.network.is_up(disk) && !self.network.forgets(disk)
        };
        let is_only = !(group..group + self.plan.copies).any(|other| other != number && has_all(other));
        let disk = disk_of(&members[number]);
        let has_lost = self.network.forgets(disk) && members[number].standing == Standing::In;
        array.let_go(number);
        self.deliver()?;
        self.note_lost(disk);
        let candidate = self.candidate(disk);
        self.model.lost_member();
        let (is_unflushed, flushes) = (self.plan.groups == 1 && self.is_unflushed, self.flushes);
        // It may be gone again.
        let reopened = array.reopen(number, &candidate, &mut |begin| self.drive(begin));
        // A flush that has ended meanwhile may have said so already, or have begun long before.
        self.untold |= has_lost && is_only && is_unflushed && flushes == self.flushes && reopened.is_ok();
        // What was answered before it was, too, of which the word came late.
        if has_lost && is_only {
            self.model.lost_power();
            // Another group may have answered last.
            let has_others = self.plan.groups > 1;
            self.flights.iter_mut().for_each(|flight| flight.is_unsure |= has_others);
        }
        Ok(())
    }
}
