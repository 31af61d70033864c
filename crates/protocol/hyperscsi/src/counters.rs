//! What was dropped, and why. Counted, never logged per packet.

/// Packets and messages that an end did not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// No packet of ours at all.
    pub malformed: u64,
    /// Checksum, seal or fragment fields do not hold, or a sequence beyond any window.
    pub rejected: u64,
    /// Came before.
    pub duplicates: u64,
    /// Of a connection that is not known here.
    pub unknown_connection: u64,
    /// From somebody who is not on the allow list.
    pub not_permitted: u64,
    /// Guarded less than the connection or the logical unit demands.
    pub downgrades: u64,
    /// A handshake that did not verify.
    pub not_authentic: u64,
    /// A handshake with an end that does not support what is enforced.
    pub conflicts: u64,
    /// A handshake that came too soon after a wrong password.
    pub throttled: u64,
    /// No memory was free; the packet will come again.
    pub no_memory: u64,
    /// The peer broke the rules of the protocol.
    pub violations: u64,
}
