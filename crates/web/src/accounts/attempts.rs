//! How often log-ins may be tried.

use std::collections::BTreeMap;

use sanwire_core::Instant;
use sanwire_core::quota::{Pace, Quota};

use crate::limits::{CODES_OF_NETWORK, LOGINS_OF_ACCOUNT, LOGINS_OF_NETWORK, NOTED_TOKENS, PASSWORDS_OF_USER};

/// Accounts, and networks, that are remembered for a log-in.
const REMEMBERED_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Attempts {
    of_accounts: BTreeMap<String, Pace>,
    of_networks: BTreeMap<String, Pace>,
    codes: BTreeMap<String, Pace>,
    passwords: BTreeMap<String, Pace>,
    /// Tokens that do not hold and are written down.
    noted: BTreeMap<String, Pace>,
}

impl Attempts {
    /// Takes one attempt for this account from this network, if there is one left for both.
    pub(super) fn take(&mut self, account: &str, network: &str, now: Instant) -> bool {
        // Who guesses from one network leaves the account to others.
        take(&mut self.of_networks, network, &LOGINS_OF_NETWORK, now)
            && take(&mut self.of_accounts, account, &LOGINS_OF_ACCOUNT, now)
    }

    /// Takes one line about a token that does not hold, if there is one left for this network.
    pub(super) fn take_note(&mut self, network: &str, now: Instant) -> bool {
        take(&mut self.noted, network, &NOTED_TOKENS, now)
    }
}

impl Attempts {
    /// Takes one attempt with a code from this network.
    pub(super) fn take_code(&mut self, network: &str, now: Instant) -> bool {
        take(&mut self.codes, network, &CODES_OF_NETWORK, now)
    }

    /// Takes one change of a user's own password.
    pub(super) fn take_password(&mut self, user: &str, now: Instant) -> bool {
        take(&mut self.passwords, user, &PASSWORDS_OF_USER, now)
    }
}

fn take(paces: &mut BTreeMap<String, Pace>, key: &str, quota: &'static Quota, now: Instant) -> bool {
    if !paces.contains_key(key) && paces.len() >= REMEMBERED_MAX {
        paces.retain(|_, pace| !pace.is_full(now));
        // Who has rested the longest is forgotten.
        let rested = paces.iter().max_by_key(|(_, pace)| pace.left(now)).map(|(key, _)| key.clone());
        rested.filter(|_| paces.len() >= REMEMBERED_MAX).map(|key| paces.remove(&key));
    }
    paces.entry(key.to_owned()).or_insert_with(|| Pace::new(quota)).take(now)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_storm_of_log_ins_is_slowed_for_its_network_and_its_account() {
        let (mut attempts, now) = (Attempts::default(), Instant::ZERO);
        let of_one = (0..100).filter(|_| attempts.take("a", "10.0.0.1", now)).count();
        assert!(of_one <= 10, "{of_one}");
        assert!(attempts.take("a", "10.0.0.2", now), "the account is left to others");
        let of_all = (0..1000).filter(|number| attempts.take("a", &format!("10.0.1.{number}"), now)).count();
        assert!(of_all <= 30, "{of_all}");
        assert!(attempts.take("b", "10.0.0.2", now), "and so are other accounts");
        assert!(attempts.take("a", "10.0.0.1", now + Duration::from_secs(60)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut attempts = Attempts::default();
        (0..5000).for_each(|number| _ = attempts.take(&format!("u{number}"), &format!("n{number}"), Instant::ZERO));
        assert_eq!((attempts.of_accounts.len(), attempts.of_networks.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }
}
