//! When each of many things is due, the earliest first.

use std::collections::BTreeSet;

use crate::Instant;

/// The deadlines of many things, each named by a key: who waits for the next one looks at one entry, and who handles those that are
/// due visits no others.
///
/// A deadline that is put off costs nothing: its entry stays, fires too early, and whoever handles it notes the deadline that holds
/// then. So a connection with traffic, whose deadline moves with each packet, is touched here about once in the time of its timeout.
#[derive(Clone, Debug)]
pub struct Deadlines<K>(BTreeSet<(Instant, K)>);

/// When the entry of one thing fires, if it has one. The thing keeps it beside what its deadline is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Alarm(Option<Instant>);

impl Alarm {
    /// Whether an entry of [`Deadlines::take_due`] is the one of this thing; it has none then. It is not when the thing has been given
    /// an earlier one since, or when its key was another's.
    #[must_use]
    pub fn rings(&mut self, at: Instant) -> bool {
        self.0.take_if(|own| *own == at).is_some()
    }
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Deadlines(BTreeSet::new())
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// The thing with this key is due at this moment. If its entry fires earlier, that stays as it is.
    pub fn note(&mut self, key: K, alarm: &mut Alarm, at: Instant) {
        if alarm.0.is_some_and(|own| own <= at) {
            return;
        }
        self.forget(key, alarm);
        alarm.0 = Some(at);
        self.0.insert((at, key));
    }

    /// The thing with this key is never due any more.
    pub fn forget(&mut self, key: K, alarm: &mut Alarm) {
        if let Some(at) = alarm.0.take() {
            self.0.remove(&(at, key));
        }
    }

    /// When the first entry fires: no thing is due earlier.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// The entries that have fired, the earliest first, and when: [`Alarm::rings`] says for which things. What is noted for them
    /// while they are handled is not among them.
    #[must_use]
    pub fn take_due(&mut self, now: Instant) -> Vec<(K, Instant)> {
        let mut due = Vec::new();
        while let Some(&(at, key)) = self.0.first()
            && at <= now
        {
            self.0.pop_first();
            due.push((key, at));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn what_is_put_off_keeps_its_entry_and_what_is_due_earlier_moves_it() {
        let (mut deadlines, mut alarm) = (Deadlines::default(), Alarm::default());
        deadlines.note(7, &mut alarm, at(10));
        deadlines.note(7, &mut alarm, at(30));
        assert_eq!((deadlines.next_at(), deadlines.0.len()), (Some(at(10)), 1));
        deadlines.note(7, &mut alarm, at(5));
        assert_eq!((deadlines.next_at(), deadlines.0.len()), (Some(at(5)), 1));
        assert!(deadlines.take_due(at(4)).is_empty());
        assert_eq!(deadlines.take_due(at(5)), [(7, at(5))]);
        assert!(alarm.rings(at(5)) && !alarm.rings(at(5)), "once");
        deadlines.note(7, &mut alarm, at(30));
        deadlines.forget(7, &mut alarm);
        assert!(deadlines.next_at().is_none() && !alarm.rings(at(30)));
    }

    #[test]
    fn only_those_that_are_due_are_visited_among_thousands() {
        let (mut deadlines, mut alarms) = (Deadlines::default(), vec![Alarm::default(); 10_000]);
        for (key, alarm) in alarms.iter_mut().enumerate() {
            deadlines.note(key, alarm, at(1000 + key as u64));
        }
        assert_eq!(deadlines.take_due(at(1002)), [(0, at(1000)), (1, at(1001)), (2, at(1002))]);
        // The key of one that is gone may be another's by then.
        alarms[3] = Alarm::default();
        let due = deadlines.take_due(at(1003));
        assert!(due == [(3, at(1003))] && !alarms[3].rings(at(1003)));
    }
}
