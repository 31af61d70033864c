//! What was dropped, and why. Counted, never logged per packet.

/// Packets that an end did not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// No packet of ours at all, or one that this end does not take.
    pub malformed: u64,
    /// Made by somebody else than the other end, or damaged.
    pub not_authentic: u64,
    /// Came before.
    pub duplicates: u64,
    /// Of a connection that is not known here.
    pub unknown_connection: u64,
    /// From somebody who may not connect.
    pub not_permitted: u64,
    /// A handshake that came too soon after a wrong password.
    pub throttled: u64,
    /// A handshake that is to come again with a cookie.
    pub challenged: u64,
    /// A handshake for which there is no room now.
    pub crowded: u64,
    /// No memory was free; the packet comes again.
    pub no_memory: u64,
    /// The other end broke the rules, and has lost its connection.
    pub violations: u64,
}
