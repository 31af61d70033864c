//! How the quotas of what a session has are used.

use sanwire_core::quota::{
    Account, ISCSI_COMMANDS_OF_SESSION, ISCSI_CONNECTIONS_OF_SESSION, ISCSI_EARLY_BYTES, ISCSI_KEPT_BYTES,
    ISCSI_KEPT_HEAP_BYTES, ISCSI_LENT_BYTES, ISCSI_UNSENT_BYTES, ISCSI_UNSENT_HEAP_BYTES, Usage,
};

use super::Server;

/// The sum over some of those who have them.
#[derive(Clone)]
pub(super) struct Usages([Usage; 8]);

impl Default for Usages {
    fn default() -> Self {
        let quotas = [
            &ISCSI_COMMANDS_OF_SESSION,
            &ISCSI_CONNECTIONS_OF_SESSION,
            &ISCSI_EARLY_BYTES,
            &ISCSI_UNSENT_BYTES,
            &ISCSI_UNSENT_HEAP_BYTES,
            &ISCSI_KEPT_BYTES,
            &ISCSI_KEPT_HEAP_BYTES,
            &ISCSI_LENT_BYTES,
        ];
        Usages(quotas.map(|quota| Account::new(quota).usage()))
    }
}

impl Usages {
    /// What one more has used.
    pub(super) fn add(&mut self, usages: impl IntoIterator<Item = Usage>) {
        for usage in usages {
            self.0.iter_mut().filter(|sum| sum.quota == usage.quota).for_each(|sum| sum.add(&usage));
        }
    }
}

impl Server {
    /// How the quotas of sessions are used.
    #[must_use]
    pub fn quotas(&self) -> [Usage; 8] {
        let mut sums = self.shared.usages.clone();
        for session in self.sessions.values() {
            sums.add(session.usages().chain(session.connections.iter().flat_map(|connection| connection.usages())));
        }
        sums.0
    }
}
