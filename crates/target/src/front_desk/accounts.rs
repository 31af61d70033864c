//! How many logins may be under way, and how these quotas are used: kept to by the front desk, read by whoever manages.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::quota::{Account, LOGINS, LOGINS_OF_NETWORK, LOGINS_OF_STRANGERS, Usage};

use crate::budget::Budget;

/// Shared by both.
#[derive(Debug)]
pub(crate) struct LoginAccounts(Mutex<Accounts>);

#[derive(Debug)]
struct Accounts {
    strangers: Account,
    network: Account,
    known: Account,
}

impl LoginAccounts {
    pub(crate) fn new(budget: &Budget) -> Self {
        LoginAccounts(Mutex::new(Accounts {
            strangers: Account::within(&LOGINS_OF_STRANGERS, budget.logins_of_strangers),
            network: Account::within(&LOGINS_OF_NETWORK, budget.logins),
            known: Account::within(&LOGINS, budget.logins),
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

    /// How the quotas are used.
    pub(crate) fn usages(&self) -> [Usage; 3] {
        let accounts = self.lock();
        [&accounts.strangers, &accounts.network, &accounts.known].map(Account::usage)
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        // Nothing panics between two writes to the accounts.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
