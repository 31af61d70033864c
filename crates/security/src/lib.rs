//! What our protocols over packets have in common of security: a handshake that authenticates both ends, the keys of a connection, the
//! window that takes each packet once, and who may begin a handshake at a server.
//!
//! No protocol, and no I/O: how messages lie in packets is of each protocol, and bound into its handshakes by a prologue of its own.
#![forbid(unsafe_code)]

mod cookie;
mod cpace;
mod gate;
mod half_opens;
pub mod handshake;
mod header_key;
pub mod keys;
mod marks;
mod noise;
mod offences;
mod replay;
pub mod ring;
mod strangers;
mod throttle;

pub use cookie::{Asker, Cookie};
pub use gate::{Gate, Passage, Standing};
pub use half_opens::{HalfOpen, HalfOpens};
pub use header_key::HeaderKey;
pub use marks::Marks;
pub use offences::{Burst, OffenceKind, Offences};
pub use replay::ReplayWindow;
pub use strangers::Strangers;
pub use throttle::{Throttle, Who};

/// Bytes of the tag that a protected packet ends with.
pub const TAG_BYTES: usize = 16;
