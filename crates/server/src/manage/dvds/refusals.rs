//! What derived volumes refuse those who use them: counted by the device, looked at now and then, and told with how often and whom.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::Principal;
use sanwire_device::{Derived, DerivedStatistics, PrincipalUsage};

use crate::events::Happening;
use crate::manage::{Asker, Manager};

/// How often it is looked.
pub(super) const LOOK: Duration = Duration::from_secs(60);

/// Volumes that are looked at each time; the others the next times.
const LOOKED_MAX: usize = 1024;

/// Lines that are told each time: the others the next times, with what comes meanwhile.
const LINES_MAX: usize = 16;

/// Principals that are named in one line.
const NAMED_MAX: usize = 3;

/// Why a command was refused: its word, what was counted so, and that in words.
type Why = (&'static str, fn(&PrincipalUsage) -> u64, &'static str);

/// What a volume refuses its principals. That its time is over, or that it was revoked, is told by events of its own.
const WHYS: [Why; 3] = [
    ("operation", |usage| usage.refused_operation, "an operation that is not allowed"),
    ("region", |usage| usage.refused_region, "blocks that it does not have"),
    ("program", |usage| usage.refused_program, "what its program does not let through"),
];

/// What was told of derived volumes.
#[derive(Default)]
pub(in crate::manage) struct Told {
    volumes: BTreeMap<String, OfVolume>,
    /// The volume that was looked at last.
    last: String,
}

#[derive(Clone, Default)]
struct OfVolume {
    not_admitted: u64,
    /// By reasons, then by principals: the last for all those who have no count of their own.
    refused: [BTreeMap<usize, u64>; WHYS.len()],
}

/// What is to be told.
#[derive(PartialEq, Debug)]
struct Line {
    why: &'static str,
    words: &'static str,
    /// Those who were refused, most often first, and how many there are.
    who: Vec<Principal>,
    others: usize,
    count: u64,
}

impl Told {
    /// A volume is gone: one of its name that comes later counts from zero.
    pub(super) fn remove(&mut self, name: &str) {
        self.volumes.remove(name);
    }

    /// What was not told yet of a volume; `room`: for so many lines.
    fn news(&mut self, name: &str, counted: &DerivedStatistics, room: usize) -> Vec<Line> {
        let told = self.volumes.entry(name.to_owned()).or_default();
        let mut lines = Vec::new();
        if room > 0 && counted.not_admitted > told.not_admitted {
            let count = counted.not_admitted - told.not_admitted;
            told.not_admitted = counted.not_admitted;
            let words = "it is no principal of it, or of that from which it is derived";
            lines.push(Line { why: "not-admitted", words, who: Vec::new(), others: 0, count });
        }
        for ((why, count_of, words), told) in WHYS.into_iter().zip(&mut told.refused) {
            if lines.len() == room {
                break;
            }
            let usages = counted.principals.iter().map(|one| &one.usage).chain([&counted.others]);
            let mut news: Vec<(usize, u64)> = Vec::new();
            for (at, count) in usages.map(count_of).enumerate().filter(|(_, count)| *count > 0) {
                let before = told.insert(at, count).unwrap_or_default();
                // One that was derived anew counts from zero.
                let more = if count >= before { count - before } else { count };
                news.extend((more > 0).then_some((at, more)));
            }
            if news.is_empty() {
                continue;
            }
            news.sort_by_key(|(at, more)| (std::cmp::Reverse(*more), *at));
            let who = news.iter().filter_map(|(at, _)| Some(counted.principals.get(*at)?.principal.clone()));
            let who: Vec<Principal> = who.take(NAMED_MAX).collect();
            let others = news.len() - who.len();
            lines.push(Line { why, words, who, others, count: news.iter().map(|(_, more)| more).sum() });
        }
        lines
    }
}

impl Line {
    fn who(&self) -> String {
        let named: Vec<String> = self.who.iter().map(ToString::to_string).collect();
        match (named.is_empty(), self.others) {
            (true, _) => "somebody".to_owned(),
            (false, 0) => named.join(", "),
            (false, others) => format!("{}, and {others} more", named.join(", ")),
        }
    }
}

/// Whether anything may be new; as long as nobody is refused that is all that is looked at.
fn has_refused(unit: &Derived) -> bool {
    let (sum, not_admitted) = unit.sum();
    not_admitted > 0 || WHYS.iter().any(|(_, count_of, _)| count_of(&sum) > 0)
}

impl Manager {
    /// Tells what derived volumes have refused since that was told last.
    pub(in crate::manage) fn look_for_refusals(&mut self) {
        let mut room = LINES_MAX;
        for name in self.expiry.next_derived(&self.expiry.told.last, LOOKED_MAX) {
            if room == 0 {
                return;
            }
            self.expiry.told.last.clone_from(&name);
            let Some((_, unit)) = self.find(&name) else { continue };
            let Some(derived) = unit.derived().filter(|derived| has_refused(derived)) else { continue };
            for line in self.expiry.told.news(&name, &derived.statistics(), room) {
                room -= 1;
                self.tell_refused(&name, &line);
            }
        }
    }

    fn tell_refused(&self, volume: &str, line: &Line) {
        let (volume, why, count) = (volume.to_owned(), line.why.to_owned(), line.count);
        let what = format!("commands for volume {volume}: {}", line.words);
        self.target.events().note(Happening::DvdUseRefused { volume, who: line.who(), why, count });
        let by = Asker::Principal { principal: line.who() };
        // Nobody waits for an answer.
        drop(self.audit.as_ref().map(|audit| audit.note_offence(&by, &what, !line.who.is_empty(), count)));
    }
}

#[cfg(test)]
mod tests {
    use sanwire_device::PrincipalStatistics;

    use super::*;

    fn counted(operations: &[u64], not_admitted: u64) -> DerivedStatistics {
        let usage = |count: &u64| PrincipalUsage { refused_operation: *count, ..PrincipalUsage::default() };
        let of = |(number, count): (u32, &u64)| PrincipalStatistics {
            principal: Principal { initiator_name: Some(format!("iqn.x:{number}").into()), ..Principal::default() },
            number,
            usage: usage(count),
        };
        let principals = (0..).zip(operations).map(of).collect();
        DerivedStatistics { principals, others: usage(&0), not_admitted }
    }

    #[test]
    fn only_what_is_new_is_told_and_who_was_refused_most() {
        let mut told = Told::default();
        let mut news = |counted: &DerivedStatistics, room: usize| {
            let lines = told.news("cam", counted, room);
            lines.iter().map(|line| (line.why, line.who(), line.count)).collect::<Vec<_>>()
        };
        assert_eq!(news(&counted(&[0, 0], 0), 9), []);
        let first = counted(&[1, 7, 2, 3, 0], 5);
        let who = "initiator iqn.x:1, initiator iqn.x:3, initiator iqn.x:2, and 1 more".to_owned();
        let all = [("not-admitted", "somebody".to_owned(), 5), ("operation", who, 13)];
        assert_eq!(news(&first, 1), all[..1]);
        assert_eq!(news(&first, 1), all[1..], "what had no room comes next");
        assert_eq!(news(&first, 9), []);
        assert_eq!(news(&counted(&[2, 7], 5), 9), [("operation", "initiator iqn.x:0".to_owned(), 1)]);
        assert_eq!(news(&counted(&[1], 5), 9), [("operation", "initiator iqn.x:0".to_owned(), 1)], "derived anew");
    }
}
