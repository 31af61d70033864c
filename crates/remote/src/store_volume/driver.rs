//! The thread that drives a store for the handles of a volume.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sanwire_buffer::Frame;
use sanwire_core::Outages;
use sanwire_initiator::{Completer, InfoCell, OpQueue};
use sanwire_store::{Completion, CompletionQueue, Course, Delayed, ErrorKind, Operation, Pending, Started, Store};

use super::Bell;
use super::job::{Job, answer};
use super::workers::{Number, Workers};

/// Between two tries to reach a store that is gone.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often is looked whether a store that is used has grown; one that is not is looked at by who asks for that.
const SIZE_INTERVAL: Duration = Duration::from_millis(500);
/// How long the thread sleeps where nothing is to come.
const IDLE: Duration = Duration::from_secs(3600);

/// The store, and all that was asked of it.
pub(super) struct Driver {
    store: Arc<dyn Store>,
    queue: OpQueue,
    completions: CompletionQueue,
    bell: Arc<Bell>,
    info: InfoCell,
    outages: Arc<Outages>,
    patience: Option<Duration>,
    workers: Workers,
    flights: BTreeMap<u64, Flight>,
    next: u64,
    pending: BTreeMap<Pending, Number>,
    /// What goes on later: an operation of a flight, or all of one again.
    later: Vec<(Instant, Number, Option<Delayed>)>,
    /// When its size was looked at last.
    sized: Instant,
}

/// One operation of the volume.
struct Flight {
    job: Job,
    course: Course,
    completer: Completer,
    since: Instant,
}

impl Driver {
    pub(super) fn new(
        store: Arc<dyn Store>,
        (queue, completions, bell): (OpQueue, CompletionQueue, Arc<Bell>),
        (info, outages): (InfoCell, Arc<Outages>),
        patience: Option<Duration>,
    ) -> io::Result<Driver> {
        let workers = Workers::start(&bell)?;
        Ok(Driver {
            store,
            queue,
            completions,
            bell,
            info,
            outages,
            patience,
            workers,
            flights: BTreeMap::new(),
            next: 0,
            pending: BTreeMap::new(),
            later: Vec::new(),
            sized: Instant::now(),
        })
    }

    /// Until nobody has the volume any more, and all is done.
    pub(super) fn run(mut self) {
        loop {
            self.take_orders();
            self.take_ends();
            let now = Instant::now();
            if now.duration_since(self.sized) >= SIZE_INTERVAL {
                self.look_at_size();
                self.sized = now;
            }
            let is_due = |(at, ..): &(Instant, Number, Option<Delayed>)| *at <= now;
            let (due, later) = std::mem::take(&mut self.later).into_iter().partition(is_due);
            self.later = later;
            Vec::into_iter(due).for_each(|(_, number, delayed)| self.resume(number, delayed));
            if self.queue.is_abandoned() && self.queue.is_empty() && self.flights.is_empty() {
                return;
            }
            let next = self.later.iter().map(|(at, ..)| *at).min();
            if self.queue.prepare_to_sleep() {
                self.bell.wait(next.map_or(IDLE, |at| at.saturating_duration_since(Instant::now())));
                self.queue.awake();
            }
        }
    }

    fn take_orders(&mut self) {
        while let Some(op) = self.queue.pop() {
            match Job::new(op.kind) {
                Ok((job, buffer)) => {
                    let flight =
                        Flight { job, course: Course::default(), completer: op.completer, since: Instant::now() };
                    self.next += 1;
                    self.flights.insert(self.next, flight);
                    self.begin(self.next, buffer);
                }
                Err(end) => {
                    self.look_at_size();
                    op.completer.complete(end);
                }
            }
        }
    }

    fn take_ends(&mut self) {
        for (pending, end) in self.completions.take() {
            if let Some(number) = self.pending.remove(&pending) {
                self.go_on(number, Started::Done(end));
            }
        }
        let ended: Vec<_> = self.workers.ended().collect();
        ended.into_iter().for_each(|(number, end)| self.go_on(number, Started::Done(end)));
    }

    fn resume(&mut self, number: Number, delayed: Option<Delayed>) {
        match delayed {
            Some(delayed) => {
                let started = delayed.resume(&self.completions);
                self.go_on(number, started);
            }
            None => self.begin(number.0, None),
        }
    }

    /// A store may grow while it is used.
    fn look_at_size(&self) {
        let (size_bytes, mut info) = (self.store.geometry().length_bytes, self.info.get());
        if info.size_bytes != size_bytes {
            info.size_bytes = size_bytes;
            self.info.set(info);
        }
    }

    fn begin(&mut self, flight: u64, buffer: Option<Frame>) {
        let Some(own) = self.flights.get_mut(&flight) else { return };
        let started = own.job.start(buffer, &self.store, &self.completions);
        let mut begun = Vec::new();
        let end = own.course.begin(started, &mut |number, operation| begun.push((number, operation)));
        self.follow(flight, begun, end);
    }

    fn go_on(&mut self, (flight, number): Number, started: Started) {
        let Some(own) = self.flights.get_mut(&flight) else { return };
        let mut begun = Vec::new();
        let begin = &mut |number, operation| begun.push((number, operation));
        let end = own.course.go_on(number, started, &self.completions, begin);
        self.follow(flight, begun, end);
    }

    fn follow(&mut self, flight: u64, begun: Vec<(u32, Operation)>, end: Option<Completion>) {
        for (number, operation) in begun {
            let number = (flight, number);
            match operation {
                Operation::Kernel(op) => self.workers.order(number, op),
                Operation::Pending(pending) => _ = self.pending.insert(pending, number),
                Operation::Later(delayed) => self.later.push((Instant::now() + delayed.delay, number, Some(delayed))),
            }
        }
        if let Some(end) = end {
            self.end(flight, end);
        }
    }

    fn end(&mut self, flight: u64, end: Completion) {
        let is_gone = matches!(&end, Err(error) if error.kind == ErrorKind::Gone);
        if is_gone {
            self.outages.begin();
        } else {
            self.outages.end();
        }
        let since = self.flights.get(&flight).map_or_else(Instant::now, |flight| flight.since);
        let waits = self.patience.is_none_or(|patience| since.elapsed() < patience);
        // Nobody waits for what an abandoned volume was asked.
        if is_gone && waits && !self.queue.is_abandoned() {
            return self.later.push((Instant::now() + RETRY_INTERVAL, (flight, 0), None));
        }
        if let Some(Flight { completer, since, .. }) = self.flights.remove(&flight) {
            completer.complete(answer(end, &self.info.get().server, since));
        }
    }
}
