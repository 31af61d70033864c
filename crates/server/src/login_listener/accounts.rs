//! How many logins may be under way, and be logged, how these quotas are used, and where nobody can log in: kept by the login listener,
//! read by whoever manages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::Instant;
use sanwire_core::quota::{Account, LOGINS, LOGINS_OF_NETWORK, LOGINS_OF_STRANGERS, Usage};

use crate::budget::Budget;
use crate::front::TallyFamily;
use crate::logging::{LogLines, Unlogged};

/// Shared by both.
#[derive(Debug)]
pub(crate) struct LoginAccounts(Mutex<Accounts>);

#[derive(Debug)]
struct Accounts {
    strangers: Account,
    network: Account,
    known: Account,
    lines: LogLines,
    /// Of each service that has a portal.
    results: BTreeMap<&'static TallyFamily, LoginResults>,
    /// Portals at which nothing listens now.
    closed_portals: BTreeSet<SocketAddr>,
}

/// How logins have ended.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct LoginResults {
    pub(crate) passed: u64,
    /// Sent to another address.
    pub(crate) redirected: u64,
    pub(crate) refused: u64,
    /// Their connections ended before them.
    pub(crate) lost: u64,
}

impl LoginAccounts {
    pub(crate) fn new(budget: &Budget) -> Self {
        LoginAccounts(Mutex::new(Accounts {
            strangers: Account::within(&LOGINS_OF_STRANGERS, budget.logins_of_strangers),
            network: Account::within(&LOGINS_OF_NETWORK, budget.logins),
            known: Account::within(&LOGINS, budget.logins),
            lines: LogLines::of_logins(),
            results: BTreeMap::new(),
            closed_portals: BTreeSet::new(),
        }))
    }

    /// Whether there is room for a login beside so many of its class.
    pub(super) fn admits(&self, is_stranger: bool, held: u64) -> bool {
        let mut accounts = self.lock();
        let Accounts { strangers, known, .. } = &mut *accounts;
        if is_stranger { strangers } else { known }.admits(held, 1)
    }

    /// Whether there is room for one beside so many of its network.
    pub(super) fn admits_of_network(&self, held: u64) -> bool {
        self.lock().network.admits(held, 1)
    }

    /// Nothing listens at a portal from now on, or something does again.
    pub(crate) fn note_portal(&self, portal: SocketAddr, is_open: bool) {
        let closed = &mut self.lock().closed_portals;
        if is_open {
            closed.remove(&portal);
        } else {
            closed.insert(portal);
        }
    }

    /// Whether nothing listens at a portal now.
    pub(crate) fn is_closed(&self, portal: SocketAddr) -> bool {
        self.lock().closed_portals.contains(&portal)
    }

    /// A login of this service has ended.
    pub(super) fn note_result(&self, service: &'static TallyFamily, note: impl FnOnce(&mut LoginResults)) {
        note(self.lock().results.entry(service).or_default());
    }

    /// There may be logins of this service.
    pub(crate) fn expect(&self, service: &'static TallyFamily) {
        self.lock().results.entry(service).or_default();
    }

    /// How logins have ended, of each service that has a portal.
    pub(crate) fn results(&self) -> BTreeMap<&'static TallyFamily, LoginResults> {
        self.lock().results.clone()
    }

    /// How the quotas are used.
    pub(crate) fn usages(&self) -> [Usage; 4] {
        let accounts = self.lock();
        let Accounts { strangers, network, known, lines, .. } = &*accounts;
        [strangers.usage(), network.usage(), known.usage(), lines.usage()]
    }

    /// Whether a line may be logged now: see [`LogLines::next`].
    pub(super) fn next_line(&self, now: Instant) -> Option<Unlogged> {
        self.lock().lines.next(now)
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        // Nothing panics between two writes to the accounts.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
