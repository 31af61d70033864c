//! The system of a simulated shard: a clock that the world sets, and a disk that does what the kernel is asked.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_sim::disk::{Flight, SimDisk};
use sanwire_sim::random::Random;
use sanwire_store::{Completion, KernelOp};

use super::port::SimPort;
use crate::shard::system::System;

/// Operations at once: few, so that some have to wait.
const DEPTH: usize = 16;

pub(super) struct SimKernel {
    clock: Rc<Cell<Instant>>,
    disk: Arc<SimDisk>,
    flights: BTreeMap<u64, (u64, Flight)>,
    next_token: u64,
    ended: VecDeque<(u64, Completion)>,
    /// When what was begun since the last look ends.
    scheduled: Vec<(Instant, u64)>,
}

impl SimKernel {
    pub(super) fn new(clock: Rc<Cell<Instant>>, disk: Arc<SimDisk>) -> Self {
        let (flights, ended, scheduled) = Default::default();
        SimKernel { clock, disk, flights, next_token: 0, ended, scheduled }
    }

    /// The disk has done something.
    pub(super) fn land(&mut self, token: u64) {
        if let Some((id, flight)) = self.flights.remove(&token) {
            self.ended.push_back((id, flight.land()));
        }
    }

    /// Whether there is a completion to reap, for which a shard is woken.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    pub(super) fn take_scheduled(&mut self) -> Vec<(Instant, u64)> {
        std::mem::take(&mut self.scheduled)
    }

    /// The process is killed: what the disk was asked may be done or not.
    pub(super) fn kill(&mut self, random: &mut Random) {
        for (_, flight) in std::mem::take(&mut self.flights).into_values() {
            if random.chance(500_000) {
                drop(flight.land());
            }
        }
    }
}

impl System for SimKernel {
    type Port = SimPort;

    fn now(&self) -> Instant {
        self.clock.get()
    }

    fn busy(&self) -> Duration {
        Duration::ZERO
    }

    fn submit(&mut self, id: u64, op: KernelOp) -> Result<(), KernelOp> {
        if self.in_flight() >= DEPTH {
            return Err(op);
        }
        let flight = self.disk.take_off(op.request);
        self.scheduled.push((self.now() + flight.delay, self.next_token));
        self.flights.insert(self.next_token, (id, flight));
        self.next_token += 1;
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.ended.len()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(u64, Completion)) {
        self.ended.drain(..).for_each(|(id, completion)| done(id, completion));
    }
}
