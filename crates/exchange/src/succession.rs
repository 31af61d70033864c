//! Numbers of sessions: that of one which takes the place of an abandoned one says so.

use std::ops::Range;

/// Bits that count the sessions that a client has abandoned; those above are drawn when it starts.
const COUNT_BITS: u32 = 24;

/// The number of a client's first session.
#[must_use]
pub fn first(drawn: u64) -> u64 {
    drawn >> COUNT_BITS << COUNT_BITS
}

/// What all sessions of a client have in common as long as it runs.
#[must_use]
pub fn run(session: u64) -> u64 {
    session >> COUNT_BITS
}

/// The number of the session that takes the place of this one.
#[must_use]
pub fn successor(session: u64) -> u64 {
    session.wrapping_add(1)
}

/// The numbers of the sessions that the client has abandoned before this one.
#[must_use]
pub fn predecessors(session: u64) -> Range<u64> {
    first(session)..session
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_comes_after_those_that_its_client_has_abandoned_and_no_others() {
        let session = first(0x1234_5678_9abc_def0);
        assert!(predecessors(session).is_empty());
        let third = successor(successor(session));
        assert_eq!(predecessors(third).collect::<Vec<u64>>(), [session, session + 1]);
        assert!(!predecessors(third).contains(&first(0x4321_5678_9abc_def0)));
        assert_eq!(predecessors(u64::MAX).end, u64::MAX);
    }
}
