//! What stations may cost a target. Nobody shows who he is, and a MAC address is a word: so what a new one costs is limited for all
//! together.

use std::collections::BTreeMap;

use sanwire_core::quota::{
    AOE_BEGINNINGS, AOE_COMMANDS, AOE_QUESTIONS, AOE_QUESTIONS_OF_ADDRESS, AOE_STATIONS, AOE_VERIFIES, Account,
    Limiter, Pace, Usage,
};
use sanwire_core::{Instant, MacAddress};

/// The limits, with how they are used.
pub(super) struct Limits {
    stations: Account,
    beginnings: Limiter,
    commands: Account,
    verifies: Account,
    questions: Limiter,
    /// Who has asked all targets lately.
    askers: BTreeMap<MacAddress, Pace>,
    asked_too_often: u64,
}

impl Limits {
    pub(super) fn new() -> Limits {
        Limits {
            stations: Account::new(&AOE_STATIONS),
            beginnings: Limiter::new(&AOE_BEGINNINGS),
            commands: Account::new(&AOE_COMMANDS),
            verifies: Account::new(&AOE_VERIFIES),
            questions: Limiter::new(&AOE_QUESTIONS),
            askers: BTreeMap::new(),
            asked_too_often: 0,
        }
    }

    /// Whether a station may begin to use a target now.
    pub(super) fn may_begin(&mut self, now: Instant) -> bool {
        self.beginnings.take(now)
    }

    /// Whether there is room for one more where so many are.
    pub(super) fn has_place(&mut self, stations: usize) -> bool {
        self.stations.admits(stations as u64, 1)
    }

    /// Whether a station that has so many commands under way may have another one, within what the target announces.
    pub(super) fn may_command(&mut self, commands: usize, buffers: u16) -> bool {
        self.commands.admits_up_to(buffers.into(), commands as u64, 1)
    }

    /// Whether a VERIFY is executed beside so many of its station. It has to be read, and nothing comes back that would take time.
    pub(super) fn may_verify(&mut self, verifies: usize) -> bool {
        self.verifies.admits(verifies as u64, 1)
    }

    /// Whether a question to all targets is answered by all of them: one frame makes as many as there are targets.
    pub(super) fn may_ask_all(&mut self, station: MacAddress, now: Instant) -> bool {
        let mut pace = self.askers.get(&station).copied().unwrap_or(Pace::new(&AOE_QUESTIONS_OF_ADDRESS));
        if !pace.take(now) {
            self.asked_too_often += 1;
            return false;
        }
        if !self.questions.take(now) {
            return false;
        }
        // As many are left as may ask within the time for which it counts.
        self.askers.retain(|_, pace| !pace.is_full(now));
        self.askers.insert(station, pace);
        true
    }

    /// How the quotas are used.
    pub(super) fn usages(&self) -> [Usage; 6] {
        [
            self.stations.usage(),
            self.beginnings.usage(),
            self.commands.usage(),
            self.verifies.usage(),
            self.questions.usage(),
            Usage::refused(&AOE_QUESTIONS_OF_ADDRESS, self.asked_too_often),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn station(number: u32) -> MacAddress {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddress([2, 0, a, b, c, d])
    }

    #[test]
    fn who_asks_all_targets_again_and_again_and_who_does_it_under_many_names_is_not_answered() {
        let mut limits = Limits::new();
        let at = |millis| Instant::ZERO + Duration::from_secs(9) + Duration::from_millis(millis);
        let answered = (0..100).filter(|_| limits.may_ask_all(station(1), at(0))).count();
        assert_eq!(answered, 4);
        assert!(limits.may_ask_all(station(1), at(100)), "one that asks every 100 ms is answered");
        let answered = (2..10_000).filter(|number| limits.may_ask_all(station(*number), at(100))).count();
        assert!((50..=64).contains(&answered), "{answered}");
        assert!(limits.askers.len() <= 80, "{}", limits.askers.len());
        assert!(limits.may_ask_all(station(1), at(300)), "others leave something to it");
        let refused = |limits: &Limits| limits.usages().map(|usage| usage.refused);
        assert!(refused(&limits)[4] > 9000 && refused(&limits)[5] == 96, "{:?}", refused(&limits));
    }
}
