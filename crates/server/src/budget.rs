//! What the descriptors are for that the process may have: those of sessions leave some for logins, and both for volumes.

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::quota::{DISCOVERIES_OF_STRANGERS, LOGINS, LOGINS_OF_STRANGERS, Quota, TCP_CONNECTIONS};
use sanwire_io::descriptors;

/// Descriptors that no session gets: volumes are opened and the server is managed also when all others are used up.
const SPARE: u64 = 32;

/// Descriptors of a connection that an RDMA adapter carries: the channels of its connection manager and of its completions, one over both,
/// and what its driver has of that.
const DESCRIPTORS_BY_ADAPTER: u64 = 4;

/// What a process may have that is to serve as many connections as the quotas say. Volumes in files take some besides.
pub const DESCRIPTORS_WANTED: u64 =
    TCP_CONNECTIONS.limit + LOGINS.limit + LOGINS_OF_STRANGERS.limit + SPARE + LUNS_MAX as u64;

/// As many as the quotas say of what takes descriptors, or fewer where the process may not have so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Connections with descriptors from this number on get no sessions.
    pub(crate) descriptors_max: u64,
    pub(crate) logins: u64,
    pub(crate) logins_of_strangers: u64,
    /// Connections that have passed their logins.
    pub(crate) connections: u64,
    pub(crate) discoveries_of_strangers: u64,
}

impl Budget {
    /// Of this process, which has portals of adapters or not.
    pub(crate) fn of_process(has_adapters: bool) -> Self {
        let each = if has_adapters { DESCRIPTORS_BY_ADAPTER } else { 1 };
        Budget::sharing(descriptors::limit().unwrap_or(u64::MAX), each)
    }

    /// Of a process that may have so many descriptors, and whose connections have one each.
    #[cfg(test)]
    pub(crate) fn new(limit: u64) -> Self {
        Budget::sharing(limit, 1)
    }

    /// The same where each connection may have so many: any of them may come by an adapter.
    fn sharing(limit: u64, each: u64) -> Self {
        let quarter = |of: u64, quota: &Quota| (of / 4).clamp(1, quota.limit);
        let descriptors_max = limit.saturating_sub(SPARE);
        let places = descriptors_max / each;
        let (logins, logins_of_strangers) = (quarter(places, &LOGINS), quarter(places, &LOGINS_OF_STRANGERS));
        let left = places.saturating_sub(logins + logins_of_strangers);
        let connections = left.clamp(1, TCP_CONNECTIONS.limit);
        let discoveries_of_strangers = quarter(connections, &DISCOVERIES_OF_STRANGERS);
        Budget { descriptors_max, logins, logins_of_strangers, connections, discoveries_of_strangers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_shared_and_many_give_what_the_quotas_say() {
        for limit in [0, 1, 64, 96, 1024, 4096, u64::MAX] {
            let budget = Budget::new(limit);
            let Budget { logins, logins_of_strangers, connections, discoveries_of_strangers, .. } = budget;
            let parts = [logins, logins_of_strangers, connections];
            assert!(parts.iter().all(|part| *part > 0) && discoveries_of_strangers <= connections, "{budget:?}");
            assert!(limit < 96 || parts.iter().sum::<u64>() + SPARE <= limit, "{limit}: {budget:?}");
        }
        let all = Budget::new(DESCRIPTORS_WANTED);
        assert_eq!((all.logins, all.connections), (LOGINS.limit, TCP_CONNECTIONS.limit));
        assert_eq!(all.discoveries_of_strangers, DISCOVERIES_OF_STRANGERS.limit);
    }

    /// As many connections as there are places for find their descriptors, and the spare ones stay.
    #[test]
    fn connections_by_adapters_take_several_descriptors_each() {
        for limit in [1024, 4096, 65_536, u64::MAX] {
            let budget = Budget::sharing(limit, DESCRIPTORS_BY_ADAPTER);
            let parts = [budget.logins, budget.logins_of_strangers, budget.connections];
            let taken = parts.iter().sum::<u64>() * DESCRIPTORS_BY_ADAPTER;
            assert!(parts.iter().all(|part| *part > 0) && taken + SPARE <= limit, "{limit}: {budget:?}");
        }
    }
}
