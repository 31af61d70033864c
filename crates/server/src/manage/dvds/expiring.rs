//! When derived volumes end, and who waits for that: the device refuses them from then on by itself, and here they are taken out of service.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::lasting::NEAR_MS;
use super::refusals::{LOOK, Told};
use crate::derived::unix_millis;
use crate::manage::Manager;
use crate::manage::handle::Desk;

/// How often the device is told what time it is, while that matters: clocks of hosts are set.
const TICK: Duration = Duration::from_secs(5);

/// How soon a volume is tried again that could not be taken out of service, because it is just being changed ...
const AGAIN: Duration = Duration::from_secs(1);

/// ... or because that cannot be kept: twice as long each time, up to this.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// How long after the start volumes are forgotten whose time was over before. The clock of a host that was just switched on may be wrong until
/// it is set.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// By how much the clock of a host is corrected without being set, in milliseconds.
const SLEW_MS: u64 = 1000;

/// When volumes end, and the way to who waits for that.
pub(in crate::manage) struct Expiry {
    /// In milliseconds since the beginning of 1970.
    ends: BTreeSet<(u64, String)>,
    by_name: BTreeMap<String, u64>,
    /// When those come that were near when they were given, whatever the clock of the host is set to meanwhile.
    deadlines: BTreeMap<String, Instant>,
    /// Volumes that are derived.
    derived: BTreeSet<String>,
    /// Those of them whose programs ask what time it is.
    timed: BTreeSet<String>,
    /// How long it takes until what could not be kept is tried again, and when that is.
    pause: Duration,
    try_at: Option<Instant>,
    /// Whom they have refused, as far as that was told.
    pub(super) told: Told,
    /// When volumes are forgotten that had ended before the server began, if there are such.
    pub(super) forget_at: Option<Instant>,
    wake: Sender<()>,
    waiting: Option<Receiver<()>>,
}

impl Default for Expiry {
    fn default() -> Self {
        let (wake, waiting) = mpsc::channel();
        let (ends, by_name, deadlines, derived, timed) = Default::default();
        let (try_at, forget_at, told, waiting) = (None, None, Told::default(), Some(waiting));
        Expiry { ends, by_name, deadlines, derived, timed, pause: AGAIN, try_at, told, forget_at, wake, waiting }
    }
}

impl Expiry {
    /// A derived volume is there that ends then, if it ends, and whether a program judges its commands.
    pub(in crate::manage) fn put(&mut self, name: &str, until_unix_ms: Option<u64>, has_program: bool) {
        let deadline = until_unix_ms.and_then(|until| self.deadline_of(name, until));
        self.clear(name);
        self.derived.insert(name.to_owned());
        self.deadlines.extend(deadline.map(|deadline| (name.to_owned(), deadline)));
        if let Some(until) = until_unix_ms {
            self.ends.insert((until, name.to_owned()));
            self.by_name.insert(name.to_owned(), until);
        }
        if has_program {
            self.timed.insert(name.to_owned());
        }
        // Nobody waits any more when the server ends.
        let _ = self.wake.send(());
    }

    /// When a near end comes. One that is put again is not put off by that.
    fn deadline_of(&self, name: &str, until_unix_ms: u64) -> Option<Instant> {
        if self.by_name.get(name) == Some(&until_unix_ms) {
            return self.deadlines.get(name).copied();
        }
        let left = until_unix_ms.saturating_sub(now_unix_ms());
        (1..=NEAR_MS).contains(&left).then(|| Instant::now() + Duration::from_millis(left))
    }

    /// A volume is gone.
    pub(in crate::manage) fn remove(&mut self, name: &str) {
        self.clear(name);
        self.told.remove(name);
    }

    fn clear(&mut self, name: &str) {
        if let Some(until) = self.by_name.remove(name) {
            self.ends.remove(&(until, name.to_owned()));
        }
        self.deadlines.remove(name);
        self.derived.remove(name);
        self.timed.remove(name);
    }

    /// Where who waits for the next end is woken when there is another one: there is one who waits.
    pub(in crate::manage) fn take_waiting(&mut self) -> Option<Receiver<()>> {
        self.waiting.take()
    }

    /// Volumes are to be forgotten that had ended before the server began, unless it finds that they have not.
    pub(super) fn await_forgetting(&mut self) {
        self.forget_at = Some(Instant::now() + FORGET_AFTER);
        let _ = self.wake.send(());
    }

    /// So many of the derived volumes, from the one after this on, and from the first one on after the last.
    pub(super) fn next_derived(&self, after: &str, count: usize) -> Vec<String> {
        let after = (Bound::Excluded(after), Bound::Unbounded);
        let rest = self.derived.range::<str, _>(after);
        rest.chain(&self.derived).take(count.min(self.derived.len())).cloned().collect()
    }

    /// Those whose time is over, with when that was.
    pub(super) fn over(&self, now_unix_ms: u64) -> Vec<(u64, String)> {
        self.ends.iter().take_while(|(until, _)| *until <= now_unix_ms).cloned().collect()
    }

    /// Those whose time is over, though the clock of the host does not say so: it was set back.
    pub(super) fn overdue(&self, now_unix_ms: u64, now: Instant) -> Vec<String> {
        let is_ahead = |name: &String| self.by_name.get(name).is_some_and(|until| *until > now_unix_ms + SLEW_MS);
        let past = self.deadlines.iter().filter(|(_, deadline)| **deadline <= now).map(|(name, _)| name);
        past.filter(|name| is_ahead(name)).cloned().collect()
    }

    /// Notes whether what was over could be taken out of service.
    pub(super) fn note_kept(&mut self, is_kept: bool, now: Instant) {
        self.pause = if is_kept { AGAIN } else { AGAIN_MAX.min(2 * self.pause) };
        self.try_at = (!is_kept).then(|| now + self.pause);
    }

    /// How long nothing is to be done; `None`: until there is something.
    fn patience(&self, now_unix_ms: u64, now: Instant) -> Option<Duration> {
        let next = self.ends.first().map(|(until, _)| match until.saturating_sub(now_unix_ms) {
            // It was tried just now.
            0 => self.try_at.map_or(AGAIN, |at| at.saturating_duration_since(now)),
            left => TICK.min(Duration::from_millis(left)),
        });
        let deadline = self.deadlines.values().filter(|deadline| **deadline > now).min();
        let deadline = deadline.map(|deadline| deadline.saturating_duration_since(now));
        let forgets = self.forget_at.map(|at| at.saturating_duration_since(now));
        let ticks = (!self.timed.is_empty()).then_some(TICK);
        let looks = (!self.derived.is_empty()).then_some(LOOK);
        [next, deadline, forgets, ticks, looks].into_iter().flatten().min()
    }

    /// Whether any are to be taken out of service now.
    fn is_due(&self, now_unix_ms: u64, now: Instant) -> bool {
        let is_over = self.ends.first().is_some_and(|(until, _)| *until <= now_unix_ms);
        is_over && self.try_at.is_none_or(|at| at <= now)
    }
}

/// Takes volumes out of service when their time is over, and looks whom they refuse, until the server ends.
pub(in crate::manage) fn watch(desk: &Weak<Desk>, wake: &Receiver<()>) {
    let mut looked = Instant::now();
    loop {
        let patience =
            desk.upgrade().and_then(|desk| desk.peek(|manager| manager.expiry.patience(now_unix_ms(), Instant::now())));
        let Some(patience) = patience else { return };
        let woken = match patience {
            Some(patience) => wake.recv_timeout(patience),
            None => wake.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if woken == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // One who is told of many volumes at once does not look at all for each.
        wake.try_iter().for_each(drop);
        let Some(desk) = desk.upgrade() else { return };
        let is_time_to_look = looked.elapsed() >= LOOK;
        if is_time_to_look {
            looked = Instant::now();
        }
        if work(&desk, is_time_to_look).is_none() {
            return;
        }
    }
}

/// What is to be done just now; `None` when the server ends.
fn work(desk: &Desk, is_time_to_look: bool) -> Option<()> {
    let (latest, ends, overdue, is_over, forgets) = desk.peek(|manager| {
        manager.target.set_clock();
        if is_time_to_look {
            manager.look_for_refusals();
        }
        let expiry = &manager.expiry;
        let forgets = expiry.forget_at.is_some_and(|at| at <= Instant::now());
        (
            Arc::clone(manager.target.latest_time()),
            !expiry.ends.is_empty(),
            expiry.overdue(now_unix_ms(), Instant::now()),
            expiry.is_due(now_unix_ms(), Instant::now()),
            forgets,
        )
    })?;
    if !overdue.is_empty() {
        // That wakes who takes them out of service.
        desk.with(|manager| manager.end_overdue(&overdue))?;
    }
    if is_over {
        // Before it is out of service: what has ended by this clock does not begin again by another one.
        latest.keep(SystemTime::now());
        desk.with(Manager::expire)?;
    } else if ends {
        latest.note(SystemTime::now());
    }
    if forgets {
        desk.with(Manager::forget_over)?;
    }
    Some(())
}

pub(super) fn now_unix_ms() -> u64 {
    unix_millis(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_end_is_awaited_and_the_clock_looked_at_in_between() {
        let (mut expiry, now) = (Expiry::default(), Instant::now());
        assert_eq!(expiry.patience(0, now), None, "nobody is woken for nothing");
        expiry.put("later", Some(20_000), false);
        expiry.put("soon", Some(12_000), false);
        assert_eq!(expiry.patience(0, now), Some(TICK));
        assert_eq!(expiry.patience(11_000, now), Some(Duration::from_secs(1)));
        assert_eq!(expiry.over(11_999), []);
        assert_eq!(expiry.over(12_000), [(12_000, "soon".to_owned())]);
        assert_eq!(expiry.patience(12_000, now), Some(AGAIN));
        expiry.remove("soon");
        expiry.put("later", None, false);
        assert_eq!(expiry.patience(0, now), Some(LOOK), "whom it refuses");
        expiry.put("later", None, true);
        assert_eq!(expiry.patience(0, now), Some(TICK), "a program asks for the time");
        expiry.remove("later");
        assert_eq!(expiry.patience(0, now), None);
        expiry.await_forgetting();
        assert!(expiry.patience(0, now).is_some_and(|patience| patience >= FORGET_AFTER));
        assert_eq!(expiry.take_waiting().unwrap().try_iter().count(), 5);
    }

    #[test]
    fn a_near_end_comes_in_its_time_whatever_the_clock_is_set_to() {
        let (mut expiry, now, unix_ms) = (Expiry::default(), Instant::now(), now_unix_ms());
        let back = unix_ms - 3_600_000;
        let at = |seconds| now + Duration::from_secs(seconds);
        expiry.put("cam", Some(unix_ms + 30_000), false);
        expiry.put("far", Some(unix_ms + 2 * NEAR_MS), false);
        assert!(expiry.patience(back, at(28)).is_some_and(|patience| patience <= Duration::from_secs(3)));
        assert_eq!(expiry.overdue(back, at(28)), [""; 0]);
        assert_eq!(expiry.overdue(back, at(31)), ["cam"]);
        assert_eq!(expiry.overdue(unix_ms + 31_000, at(31)), [""; 0], "the clock says so, too");
        assert_eq!(expiry.patience(back, at(31)), Some(TICK), "nobody is woken for it again and again");
        expiry.put("cam", Some(unix_ms + 30_000), true);
        assert_eq!(expiry.overdue(back, at(31)), ["cam"], "it is the same end");
        expiry.put("cam", Some(unix_ms + 60_000), true);
        assert_eq!(expiry.overdue(back, at(31)), [""; 0], "it was renewed");
        assert_eq!(expiry.overdue(back, at(61)), ["cam"]);
        expiry.remove("cam");
        assert_eq!(expiry.overdue(back, at(4 * 3600)), [""; 0]);
    }

    #[test]
    fn what_cannot_be_kept_is_tried_less_and_less() {
        let (mut expiry, now) = (Expiry::default(), Instant::now());
        expiry.put("cam", Some(1), false);
        assert!(expiry.is_due(1, now));
        let mut failed = || {
            expiry.note_kept(false, now);
            expiry.patience(1, now).unwrap().as_secs()
        };
        let pauses: Vec<u64> = (0..7).map(|_| failed()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        assert!(!expiry.is_due(1, now + AGAIN_MAX / 2) && expiry.is_due(1, now + AGAIN_MAX), "whoever wakes it");
        expiry.note_kept(true, now);
        assert_eq!((expiry.patience(1, now), expiry.is_due(1, now)), (Some(AGAIN), true));
    }
}
