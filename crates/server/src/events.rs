//! What has happened on a server, for those who watch it: the last so many events, by numbers that grow.
//!
//! Refusals, of which strangers can cause any number, have a ring of their own, so that they push nothing else out.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sanwire_core::Size;
use sanwire_core::text::shortened;
use serde::{Deserialize, Serialize};

use crate::revisions::Revisions;

/// Events that are kept, but for refusals.
const KEPT_MAX: usize = 4096;

/// Refusals that are kept.
const REFUSALS_MAX: usize = 512;

/// Events in one answer.
const ANSWER_MAX: usize = 128;

/// Of a text for people, so much is kept.
const TEXT_MAX_BYTES: usize = 384;

/// Of the lines that a reload has changed, so many are kept.
const LINES_MAX: usize = 16;

/// One thing that has happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Its number in this run of the server.
    pub number: u64,
    /// When, as in RFC 3339.
    pub time: String,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// What has happened. As JSON: `"event": "volume-added", "volume": "disk1"`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Happening {
    /// A volume is served.
    VolumeAdded {
        /// Its name.
        volume: String,
    },
    /// A volume is served no longer.
    VolumeRemoved {
        /// Its name.
        volume: String,
    },
    /// A volume is longer.
    VolumeResized {
        /// Its name.
        volume: String,
        /// What it has now.
        size_bytes: u64,
    },
    /// The store of a volume cannot do its work, and commands wait for it.
    StoreFailing {
        /// Of which volume.
        volume: String,
        /// Why, for people.
        why: String,
    },
    /// No command waits for the store of a volume any more.
    StoreWorking {
        /// Of which volume.
        volume: String,
        /// Commands that have failed meanwhile.
        failed: u32,
    },
    /// A session begins.
    SessionOpened {
        /// Its number, in hexadecimal digits.
        session: String,
        /// Who, and from where, for people.
        who: String,
        /// The iSCSI target that it uses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
    /// A session is over.
    SessionClosed {
        /// Its number.
        session: String,
        /// Whose it was.
        who: String,
    },
    /// Somebody was refused something: a login, a handshake, a packet.
    Refused {
        /// Who, as far as that is known.
        who: String,
        /// What, for people.
        what: String,
        /// How often within a second.
        count: u64,
    },
    /// A wire is away.
    LinkLost {
        /// Which.
        wire: String,
    },
    /// A wire is there again.
    LinkBack {
        /// Which.
        wire: String,
    },
    /// A change that takes long has begun.
    JobBegun {
        /// The number of the job.
        job: u64,
        /// What is done, for people.
        what: String,
    },
    /// It is over.
    JobEnded {
        /// The number of the job.
        job: u64,
        /// Why it was not done, if it was not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// The configuration was read again.
    Reloaded {
        /// What has changed, one line for each thing.
        changed: Vec<String>,
    },
}

impl Happening {
    /// As it is kept: what is long says how long it was.
    fn bounded(mut self) -> Happening {
        let shorten = |text: &mut String| *text = shortened(text, TEXT_MAX_BYTES).into_owned();
        match &mut self {
            Happening::StoreFailing { why: text, .. }
            | Happening::Refused { what: text, .. }
            | Happening::JobBegun { what: text, .. }
            | Happening::JobEnded { refused: Some(text), .. } => shorten(text),
            Happening::Reloaded { changed } => {
                let others = changed.len().saturating_sub(LINES_MAX);
                changed.truncate(LINES_MAX);
                changed.iter_mut().for_each(shorten);
                changed.extend((others > 0).then(|| format!("and {others} more")));
            }
            _ => {}
        }
        self
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::VolumeAdded { volume } => write!(f, "volume {volume} is served"),
            Happening::VolumeRemoved { volume } => write!(f, "volume {volume} is not served any more"),
            Happening::VolumeResized { volume, size_bytes } => {
                write!(f, "volume {volume} has {} now", Size(*size_bytes))
            }
            Happening::StoreFailing { why, .. } => f.write_str(why),
            Happening::StoreWorking { volume, failed } => {
                write!(f, "no command waits for the store of {volume} any more; {failed} failed meanwhile")
            }
            Happening::SessionOpened { session, who, target: None } => write!(f, "session {session} of {who} begins"),
            Happening::SessionOpened { session, who, target: Some(target) } => {
                write!(f, "session {session} of {who} with {target} begins")
            }
            Happening::SessionClosed { session, who } => write!(f, "session {session} of {who} is over"),
            Happening::Refused { who, what, count } => write!(f, "{who} is refused: {what} ({count} within a second)"),
            Happening::LinkLost { wire } => write!(f, "wire {wire} is gone"),
            Happening::LinkBack { wire } => write!(f, "wire {wire} is there again"),
            Happening::JobBegun { job, what } => write!(f, "job {job} begins: {what}"),
            Happening::JobEnded { job, refused: None } => write!(f, "job {job} is done"),
            Happening::JobEnded { job, refused: Some(reason) } => write!(f, "job {job} was not done: {reason}"),
            Happening::Reloaded { changed } if changed.is_empty() => {
                f.write_str("the configuration was reloaded: nothing differs")
            }
            Happening::Reloaded { changed } => write!(f, "the configuration was reloaded: {}", changed.join("; ")),
        }
    }
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
        EventLog(Arc::new(Shared { run, rings: Mutex::default(), news, revisions }))
    }

    /// Takes note of a session of this principal: it has begun, or is over.
    pub(crate) fn note_session(&self, principal: &str, has_begun: bool, what: Happening) {
        self.0.revisions.session_changed(principal, has_begun);
        self.note(what);
    }

    /// Takes note of something.
    pub(crate) fn note(&self, what: Happening) {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
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

    /// What has happened since the cursor, or all that is kept. When that is nothing, something is waited for, for so long.
    pub(crate) fn read(&self, since: Option<&str>, patience: Duration) -> Events {
        let cursor = since.and_then(|cursor| cursor.split_once(':'));
        let own = cursor.filter(|(run, _)| *run == self.0.run).and_then(|(_, number)| number.parse().ok());
        let after: u64 = own.unwrap_or_default();
        let give_up_at = Instant::now() + patience;
        let mut rings = self.lock();
        while rings.last <= after {
            let left = give_up_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            rings = self.0.news.wait_timeout(rings, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let events = rings.after(after);
        let last = events.last().map_or(after, |event| event.number);
        let gone = rings.gone().min(last);
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
            Happening::Refused { .. } => (&mut self.refusals, REFUSALS_MAX),
            _ => (&mut self.others, KEPT_MAX),
        };
        if ring.events.len() == max {
            ring.gone = ring.events.pop_front().map_or(ring.gone, |event| event.number);
        }
        ring.events.push_back(Event { number: self.last, time, what });
    }

    /// The first events after the one with this number.
    fn after(&self, number: u64) -> Vec<Event> {
        let of = |ring: &Ring| {
            let begin = ring.events.partition_point(|event| event.number <= number);
            ring.events.range(begin..).take(ANSWER_MAX).cloned().collect::<Vec<_>>()
        };
        let mut events = of(&self.others);
        events.extend(of(&self.refusals));
        events.sort_by_key(|event| event.number);
        events.truncate(ANSWER_MAX);
        events
    }

    /// The last event that is gone.
    fn gone(&self) -> u64 {
        self.others.gone.max(self.refusals.gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(number: usize) -> Happening {
        Happening::VolumeAdded { volume: format!("v{number}") }
    }

    fn refused() -> Happening {
        Happening::Refused { who: "10.0.0.1:1".into(), what: "no".into(), count: 1 }
    }

    fn numbers(events: &Events) -> Vec<u64> {
        events.events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn who_gives_the_cursor_back_is_told_each_event_once() {
        let log = EventLog::new(7, Revisions::new(0));
        let none = log.read(None, Duration::ZERO);
        assert_eq!((numbers(&none), none.gone, none.restarted), (vec![], None, false));
        (0..3).for_each(|number| log.note(added(number)));
        let first = log.read(Some(&none.cursor), Duration::ZERO);
        assert_eq!(numbers(&first), [1, 2, 3]);
        log.note(refused());
        let second = log.read(Some(&first.cursor), Duration::from_secs(60));
        assert_eq!((numbers(&second), second.gone), (vec![4], None));
        assert_eq!(numbers(&log.read(None, Duration::ZERO)), [1, 2, 3, 4]);
        let text = serde_json::to_string(&second).unwrap();
        assert!(text.contains("\"event\":\"refused\""), "{text}");
        assert_eq!(serde_json::from_str::<Events>(&text).unwrap(), second);
    }

    #[test]
    fn who_waits_is_told_of_the_next_event() {
        let log = EventLog::new(7, Revisions::new(0));
        let cursor = log.read(None, Duration::ZERO).cursor;
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| log.read(Some(&cursor), Duration::from_secs(60)));
            log.note(added(1));
            assert_eq!(numbers(&waits.join().unwrap()), [1]);
        });
    }

    #[test]
    fn a_gap_is_told_and_refusals_push_nothing_else_out() {
        let log = EventLog::new(7, Revisions::new(0));
        log.note(added(0));
        let cursor = log.read(None, Duration::ZERO).cursor;
        (0..KEPT_MAX).for_each(|_| log.note(refused()));
        let told = log.read(Some(&cursor), Duration::ZERO);
        let last_gone = (KEPT_MAX - REFUSALS_MAX + 1) as u64;
        assert_eq!((told.events[0].number, told.gone), (last_gone + 1, Some((2, last_gone))));
        assert_eq!(log.read(None, Duration::ZERO).events[0].what, added(0), "it is still there");
        let (mut cursor, mut seen) = (told.cursor, told.events.len());
        loop {
            let more = log.read(Some(&cursor), Duration::ZERO);
            assert_eq!(more.gone, None);
            if more.events.is_empty() {
                break;
            }
            (cursor, seen) = (more.cursor, seen + more.events.len());
        }
        assert_eq!(seen, REFUSALS_MAX, "an answer has some of them, and the next one goes on there");
    }

    #[test]
    fn what_is_kept_of_an_event_is_bounded() {
        let log = EventLog::new(7, Revisions::new(0));
        log.note(Happening::Reloaded { changed: vec!["x".repeat(1 << 20); 1000] });
        log.note(Happening::JobEnded { job: 1, refused: Some("y".repeat(1 << 20)) });
        let told = log.read(None, Duration::ZERO);
        let Happening::Reloaded { changed } = &told.events[0].what else { panic!("{told:?}") };
        assert_eq!((changed.len(), &*changed[LINES_MAX]), (LINES_MAX + 1, "and 984 more"));
        assert!(serde_json::to_vec(&told).unwrap().len() < 16 << 10);
    }

    #[test]
    fn a_cursor_of_an_earlier_run_begins_anew() {
        let (earlier, log) = (EventLog::new(6, Revisions::new(0)), EventLog::new(7, Revisions::new(0)));
        earlier.note(added(1));
        log.note(added(2));
        for cursor in [&earlier.read(None, Duration::ZERO).cursor, "nonsense"] {
            let told = log.read(Some(cursor), Duration::ZERO);
            assert_eq!((numbers(&told), told.restarted), (vec![1], true));
        }
    }
}
