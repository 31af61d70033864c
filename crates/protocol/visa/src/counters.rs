//! What was dropped, and why, and what went through connections. Counted, never logged per packet.

use std::time::Duration;

/// Packets that an end did not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// No packet of ours at all, or one that this end does not take.
    pub malformed: u64,
    /// Made by somebody else than the other end, or damaged.
    pub not_authentic: u64,
    /// Came before.
    pub duplicates: u64,
    /// Came before one that is missing, and is not kept.
    pub out_of_order: u64,
    /// Of a connection that belongs to another shard.
    pub misdirected: u64,
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
    /// Guarded less than what is asked for demands.
    pub downgrades: u64,
    /// The other end broke the rules.
    pub violations: u64,
    /// Connections that kept memory from others and did nothing.
    pub hoarders: u64,
    /// Connections on which nothing came of what was begun, for very long.
    pub standstills: u64,
}

impl Counters {
    /// Each, with what it is called.
    #[must_use]
    pub fn reasons(&self) -> [(&'static str, u64); 15] {
        [
            ("malformed", self.malformed),
            ("not authentic", self.not_authentic),
            ("duplicate", self.duplicates),
            ("out of order", self.out_of_order),
            ("misdirected", self.misdirected),
            ("unknown connection", self.unknown_connection),
            ("not permitted", self.not_permitted),
            ("too soon after a wrong password", self.throttled),
            ("to come again with a cookie", self.challenged),
            ("too many at once", self.crowded),
            ("no memory", self.no_memory),
            ("guarded too little", self.downgrades),
            ("violation", self.violations),
            ("keeps memory from others", self.hoarders),
            ("stands still", self.standstills),
        ]
    }
}

/// How handshakes that have come to their end have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handshakes {
    /// The client has a connection.
    pub accepted: u64,
    /// It did not know the password, or was not who it said it was.
    pub wrong_password: u64,
    /// It knew the password, and is refused all the same: there is no room.
    pub refused: u64,
}

/// What went through a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Packets that were sent, with data or without.
    pub sent_packets: u64,
    /// Authentic packets that came.
    pub received_packets: u64,
    /// Of those that were sent, how many were sent again.
    pub resent_packets: u64,
    /// How often nothing was acknowledged in time.
    pub timeouts: u64,
    /// Packets that may be under way to the other end.
    pub window_packets: u32,
    /// The round trip, once it was measured.
    pub round_trip: Option<Duration>,
}
