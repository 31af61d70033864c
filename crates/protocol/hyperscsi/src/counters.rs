//! What was dropped, and why. Counted, never logged per packet.

/// Makes the counters, with the words for each that its owner reads.
macro_rules! counters {
    ($($(#[$document:meta])* $name:ident: $reason:literal,)*) => {
        /// Packets and messages that an end did not take.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$document])* pub $name: u64,)*
        }

        impl Counters {
            /// Every reason, in words, and how often it was one.
            pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$(($reason, self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// No packet of ours at all.
    malformed: "malformed",
    /// Checksum, seal or fragment fields do not hold, or a sequence beyond any window.
    rejected: "rejected",
    /// Came before.
    duplicates: "duplicates",
    /// Of a connection that is not known here.
    unknown_connection: "unknown connection",
    /// Steered to another shard than the one that its connection or its client belongs to.
    misdirected: "misdirected",
    /// From somebody who is not on the allow list.
    not_permitted: "not permitted",
    /// Guarded less than the connection or the logical unit demands.
    downgrades: "guarded too little",
    /// A handshake that did not verify.
    not_authentic: "not authentic",
    /// A handshake with an end that does not support what is enforced.
    conflicts: "conflict of options",
    /// A handshake that came too soon after a wrong password.
    throttled: "too soon after a wrong password",
    /// A handshake that is to come again with a cookie, because many begin.
    challenged: "asked for a cookie",
    /// A handshake with a cookie of an address, or a shard, that begins too many.
    crowded: "too many handshakes",
    /// Faster than the cap that was agreed on; the packet will come again.
    excess: "faster than its cap",
    /// No memory was free; the packet will come again.
    no_memory: "no memory",
    /// A connection was given up whose client took no answers, or whose requests did not go on coming, while others had no memory.
    hoarders: "memory kept from others",
    /// A connection was given up whose client did not say which answers had come.
    unheeded: "answers not taken",
    /// The peer broke the rules of the protocol.
    violations: "violations",
}
