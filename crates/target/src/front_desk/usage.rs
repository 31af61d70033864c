//! How the places of the front desk are used, for who asks another thread.

use std::sync::{Mutex, PoisonError};

use sanwire_core::quota::{Account, LOGINS, LOGINS_OF_NETWORK, LOGINS_OF_STRANGERS, Usage};

/// Kept by the front desk, read by whoever manages.
#[derive(Debug)]
pub(crate) struct LoginUsage(Mutex<Accounts>);

#[derive(Debug)]
struct Accounts {
    strangers: Account,
    address: Account,
    known: Account,
}

impl Default for LoginUsage {
    fn default() -> Self {
        LoginUsage(Mutex::new(Accounts {
            strangers: Account::new(&LOGINS_OF_STRANGERS),
            address: Account::new(&LOGINS_OF_NETWORK),
            known: Account::new(&LOGINS),
        }))
    }
}

impl LoginUsage {
    /// A login begins beside so many of its class, and of its address.
    pub(super) fn note(&self, is_stranger: bool, of_class: usize, of_address: usize) {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Accounts { strangers, address, known } = &mut *accounts;
        let class = if is_stranger { strangers } else { known };
        class.admits(of_class as u64, 1);
        address.admits(of_address as u64, 1);
    }

    /// How the quotas are used.
    pub(crate) fn usages(&self) -> [Usage; 3] {
        let accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        [&accounts.strangers, &accounts.address, &accounts.known].map(Account::usage)
    }
}
