//! Requests to the array while they are under way.

use std::collections::BTreeMap;

use sanwire_sim::world::Outcome;
use sanwire_store::{
    Completion, CompletionQueue, Course, Operation, Outcome as Ended, Pending, Request, Started, Store,
};

use super::disk::SECTOR_BYTES;
use super::model::{Moment, content, version_of};
use super::world::{SECTOR, World};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Read,
    Change,
    Flush,
    Resync,
}

/// A request that is under way.
pub(super) struct Flight {
    /// Where it has come from.
    pub(super) shard: usize,
    pub(super) course: Course,
    pub(super) operations: BTreeMap<Pending, u32>,
    pub(super) what: What,
    pub(super) range: (u64, u64),
    pub(super) moment: Moment,
    /// A part of it may be lost, which the next flush says.
    pub(super) is_unsure: bool,
}

pub(super) fn note(operations: &mut BTreeMap<Pending, u32>) -> impl FnMut(u32, Operation) + '_ {
    |number, operation| match operation {
        Operation::Pending(pending) => _ = operations.insert(pending, number),
        other => panic!("no member here asks for {other:?}"),
    }
}

/// A queue for each shard.
pub(super) fn queues(shards: usize) -> Vec<CompletionQueue> {
    (0..shards).map(|_| CompletionQueue::new(|| ())).collect()
}

/// What has arrived, and at which shard.
pub(super) fn arrivals(queues: &[CompletionQueue]) -> Vec<(usize, Pending, Completion)> {
    let taken = |(shard, queue): (usize, &CompletionQueue)| {
        queue.take().into_iter().map(move |(pending, completion)| (shard, pending, completion))
    };
    queues.iter().enumerate().flat_map(taken).collect()
}

impl World {
    pub(super) fn begin(&mut self, what: What) -> Outcome<()> {
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
        let shard = self.shard();
        let started = self.array().start(request, &self.completions[shard]);
        self.fly(shard, what, (from, count), moment, started)
    }

    /// From where the next request comes.
    pub(super) fn shard(&mut self) -> usize {
        self.random.range(0..=self.completions.len() as u64 - 1) as usize
    }

    pub(super) fn fly(
        &mut self,
        shard: usize,
        what: What,
        range: (u64, u64),
        moment: Moment,
        started: Started,
    ) -> Outcome<()> {
        let (course, operations) = (Course::default(), BTreeMap::new());
        let mut flight = Flight { shard, course, operations, what, range, moment, is_unsure: false };
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
            let arrived: Vec<_> = arrivals(&self.completions);
            if arrived.is_empty() {
                return Ok(());
            }
            for (shard, pending, completion) in arrived {
                let is_its = |flight: &Flight| flight.shard == shard && flight.operations.contains_key(&pending);
                let Some(place) = self.flights.iter().position(is_its) else { continue };
                let Flight { course, operations, .. } = &mut self.flights[place];
                let number = operations.remove(&pending).expect("it was found");
                let started = Started::Done(completion);
                let end = course.go_on(number, started, &self.completions[shard], &mut note(operations));
                if let Some(end) = end {
                    let flight = self.flights.swap_remove(place);
                    self.end(flight, end)?;
                }
            }
        }
    }

    fn end(&mut self, flight: Flight, end: Completion) -> Outcome<()> {
        let Flight { what, range: (from, count), moment, is_unsure, .. } = flight;
        if what == What::Change {
            self.model.end(from, count, end.is_ok() && !is_unsure);
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
}
