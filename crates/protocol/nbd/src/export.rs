//! What a server exports, and why it does not.

use crate::wire::*;

/// Without a word of the server: what the document tells a client to assume.
const PREFERRED_DEFAULT_BYTES: u32 = 4096;
/// The longest data of one request, whatever the server would take.
const PAYLOAD_MAX_BYTES: u32 = 32 << 20;
/// The largest unit of transfer that makes sense (doc/proto.md, "Block size constraints").
const MIN_LARGEST_BYTES: u32 = 64 << 10;

/// The constraints of a server on requests, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it; a power of two.
    pub min_bytes: u32,
    /// What it works with best; a power of two.
    pub preferred_bytes: u32,
    /// The longest data of one request; a multiple of `min_bytes`.
    pub payload_max_bytes: u32,
}

impl Default for BlockSizes {
    fn default() -> Self {
        BlockSizes { min_bytes: 1, preferred_bytes: PREFERRED_DEFAULT_BYTES, payload_max_bytes: PAYLOAD_MAX_BYTES }
    }
}

impl BlockSizes {
    /// What a server said, if it makes sense.
    pub(crate) fn new(min_bytes: u32, preferred_bytes: u32, max_bytes: u32) -> Option<Self> {
        let makes_sense = min_bytes.is_power_of_two()
            && min_bytes <= MIN_LARGEST_BYTES
            && preferred_bytes.is_power_of_two()
            && (min_bytes..=PAYLOAD_MAX_BYTES).contains(&preferred_bytes)
            && max_bytes >= preferred_bytes;
        let payload_max_bytes = max_bytes.min(PAYLOAD_MAX_BYTES) & !(min_bytes.wrapping_sub(1));
        makes_sense.then_some(BlockSizes { min_bytes, preferred_bytes, payload_max_bytes })
    }
}

/// What a server says of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its length.
    pub size_bytes: u64,
    /// Its flags, `TRANSMISSION_*`.
    pub flags: u16,
    /// What its requests must keep to.
    pub blocks: BlockSizes,
    /// Whether answers come in chunks.
    pub is_structured: bool,
    /// The number of `base:allocation`, when the server tells what is allocated.
    pub allocation_context: Option<u32>,
}

impl Export {
    /// Whether all these flags are set.
    #[must_use]
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.has(TRANSMISSION_READ_ONLY)
    }

    /// Whether acknowledged writes are lost with the server unless a flush came after them.
    #[must_use]
    pub fn flushes(&self) -> bool {
        self.has(TRANSMISSION_SEND_FLUSH)
    }

    /// Whether it writes zeroes without being sent any, and may give the space back.
    #[must_use]
    pub fn writes_zeroes(&self) -> bool {
        self.has(TRANSMISSION_SEND_WRITE_ZEROES)
    }

    /// Whether several connections to it see the same, and a flush on one covers all.
    #[must_use]
    pub fn takes_several_connections(&self) -> bool {
        self.has(TRANSMISSION_CAN_MULTI_CONN)
    }

    /// Why what is found at this place again cannot be the same export.
    pub(crate) fn difference(&self, now: &Export) -> Option<String> {
        if now.size_bytes != self.size_bytes {
            return Some(format!("the export has {} bytes now, not {}", now.size_bytes, self.size_bytes));
        }
        if now.is_read_only() && !self.is_read_only() {
            return Some("the export takes no writes any more".to_owned());
        }
        (now.blocks.min_bytes > self.blocks.min_bytes).then(|| {
            format!("the export's blocks have {} bytes now, not {}", now.blocks.min_bytes, self.blocks.min_bytes)
        })
    }
}

/// Why the negotiation with a server came to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandshakeError {
    /// Its first bytes are not NBD's.
    #[error("what answers there is no NBD server")]
    NotNbd,
    /// It speaks the protocol of before 2011, or of before 2014.
    #[error("the NBD server is too old: it does not know the fixed newstyle negotiation")]
    TooOld,
    /// There is no such export.
    #[error("the NBD server has no export '{name}': {}", known_text(known))]
    NoSuchExport {
        /// What was asked for.
        name: String,
        /// Some that it has, if it tells.
        known: Vec<String>,
    },
    /// It wants TLS.
    #[error("the NBD server speaks only TLS, which is not supported: use a unix socket or a trusted network")]
    NeedsTls,
    /// Its rules forbid it.
    #[error("the NBD server refuses the export{}", if text.is_empty() { String::new() } else { format!(": {text}") })]
    Refused {
        /// Its explanation.
        text: String,
    },
    /// It breaks the rules of the protocol.
    #[error("the NBD server breaks the protocol: {0}")]
    Violation(&'static str),
}

fn known_text(known: &[String]) -> String {
    match known {
        [] => "it names none".to_owned(),
        [only] if only.is_empty() => "it has the nameless one only".to_owned(),
        known => format!("it has {}", known.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")),
    }
}
