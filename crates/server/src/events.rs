//! What has happened on a server, for those who watch it: the last so many events, by numbers that grow.
//!
//! Refusals, of which strangers can cause any number, have a ring of their own, so that they push nothing else out.

mod filter;
mod happening;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::filter::{EventFilter, EventResult, EventTopic};
pub use self::happening::{Happening, PoolBound};
use crate::revisions::Revisions;
use crate::wall_time::written_millis;

/// Events that are kept, but for refusals.
const KEPT_MAX: usize = 4096;

/// Refusals that are kept.
const REFUSALS_MAX: usize = 512;

/// Events in one answer.
const ANSWER_MAX: usize = 128;

/// One thing that has happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number in this run of the server.
    pub number: u64,
    /// When, as in RFC 3339.
    pub time: String,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// Events in their order, and where to go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Events {
    /// None when nothing has happened since.
    pub events: Vec<Event>,
    /// Give this to be told what happens after these.
    pub cursor: String,
    /// Some of the events with these numbers are gone: there were too many since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<(u64, u64)>,
    /// The cursor was that of an earlier run of the server, of which nothing is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
}

/// The events of one run of a server, shared by its threads. None is noted on the way of data.
#[derive(Clone, Debug)]
pub(crate) struct EventLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Which run this is, in hexadecimal digits.
    run: String,
    rings: Mutex<Rings>,
    news: Condvar,
    /// Those who wait for news.
    waiting: AtomicU64,
    revisions: Revisions,
}

#[derive(Default, Debug)]
struct Rings {
    others: Ring,
    refusals: Ring,
    /// The number of the last event.
    last: u64,
}

#[derive(Default, Debug)]
struct Ring {
    events: VecDeque<Event>,
    /// The last one that is gone.
    gone: u64,
}

impl EventLog {
    /// Those of this run; sessions and jobs that begin or end give theirs another revision.
    pub(crate) fn new(run: u64, revisions: Revisions) -> Self {
        let (run, news) = (format!("{run:016x}"), Condvar::new());
        EventLog(Arc::new(Shared { run, rings: Mutex::default(), news, waiting: AtomicU64::new(0), revisions }))
    }

    /// Takes note of a session of this principal: it has begun, or is over.
    pub(crate) fn note_session(&self, principal: &str, has_begun: bool, what: Happening) {
        self.0.revisions.session_changed(principal, has_begun);
        self.note(what);
    }

    /// Takes note of something.
    pub(crate) fn note(&self, what: Happening) {
        let time = written_millis(SystemTime::now());
        let what = what.bounded();
        match &what {
            Happening::JobBegun { .. } | Happening::JobEnded { .. } => self.0.revisions.jobs_changed(),
            _ => {}
        }
        self.lock().put(time, what);
        self.0.news.notify_all();
    }

    /// How much has happened.
    pub(crate) fn count(&self) -> u64 {
        self.lock().last
    }

    /// How many wait for the next event.
    pub(crate) fn waiting(&self) -> u64 {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// What has happened since the cursor, or all that is kept, of what the filter admits. When that is nothing, something is waited
    /// for, for so long.
    pub(crate) fn read(&self, since: Option<&str>, filter: &EventFilter, patience: Duration) -> Events {
        let cursor = since.and_then(|cursor| cursor.split_once(':'));
        let own = cursor.filter(|(run, _)| *run == self.0.run).and_then(|(_, number)| number.parse().ok());
        let after: u64 = own.unwrap_or_default();
        let give_up_at = Instant::now() + patience;
        let mut rings = self.lock();
        let mut seen = after;
        let events = loop {
            let (events, last) = rings.after(seen, filter);
            seen = last;
            if !events.is_empty() {
                break events;
            }
            if rings.last > seen {
                continue;
            }
            let left = give_up_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break events;
            }
            self.0.waiting.fetch_add(1, Ordering::Relaxed);
            rings = self.0.news.wait_timeout(rings, left).unwrap_or_else(PoisonError::into_inner).0;
            self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        };
        let (last, gone) = (seen, rings.gone().min(seen));
        Events {
            cursor: format!("{}:{last}", self.0.run),
            events,
            gone: (since.is_some() && own.is_some() && gone > after).then_some((after + 1, gone)),
            restarted: since.is_some() && own.is_none(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rings> {
        // It is whole between any two changes.
        self.0.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rings {
    fn put(&mut self, time: String, what: Happening) {
        self.last += 1;
        let (ring, max) = match what {
            Happening::Refused { .. } | Happening::DvdRefused { .. } | Happening::DvdUseRefused { .. } => {
                (&mut self.refusals, REFUSALS_MAX)
            }
            _ => (&mut self.others, KEPT_MAX),
        };
        if ring.events.len() == max {
            ring.gone = ring.events.pop_front().map_or(ring.gone, |event| event.number);
        }
        ring.events.push_back(Event { number: self.last, time, what });
    }

    /// The first events after the one with this number that the filter admits, and up to which one all were looked at.
    fn after(&self, number: u64, filter: &EventFilter) -> (Vec<Event>, u64) {
        let of = |ring: &Ring| {
            let begin = ring.events.partition_point(|event| event.number <= number);
            let admitted = ring.events.range(begin..).filter(|event| filter.admits(&event.what));
            admitted.take(ANSWER_MAX).cloned().collect::<Vec<_>>()
        };
        let mut events = of(&self.others);
        events.extend(of(&self.refusals));
        events.sort_by_key(|event| event.number);
        let is_all = events.len() < ANSWER_MAX;
        events.truncate(ANSWER_MAX);
        let last = if is_all { Some(self.last) } else { events.last().map(|event| event.number) };
        (events, last.unwrap_or(number).max(number))
    }

    /// The last event that is gone.
    fn gone(&self) -> u64 {
        self.others.gone.max(self.refusals.gone)
    }
}

#[cfg(test)]
mod tests;
