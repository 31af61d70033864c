//! What a channel is made of, and what it tells.

use std::time::Duration;

use sanwire_core::Path;

use super::Guard;
use crate::wire::Header;
use crate::wire::flow::Close;
use crate::wire::offer::Terms;

/// Why a packet was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rejected {
    Malformed,
    NotAuthentic,
    /// Guarded less than both ends have agreed to.
    Downgrade,
    Duplicate,
    OutOfOrder,
    /// It waits, or comes again.
    NoMemory,
    /// It cannot be kept, and TCP does not bring it again: the connection cannot go on.
    Overrun,
    /// The other end breaks the rules.
    Violation,
}

/// How lost packets are found, if any can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recovery {
    Classic,
    Modern,
    /// TCP carries the packets: none is lost.
    Stream,
}

/// What a control packet says to the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Nothing that the channel has not done already.
    Nothing,
    /// The other end has these messages whole.
    Delivered(Vec<u64>),
    Closed(Close),
    /// The server has accepted us.
    Terms(Terms),
    /// The client waits for the answers to these commands.
    Waits(Vec<u64>),
    /// A suspended connection goes on: its other end lives.
    Lives,
}

/// Takes a packet that is next in order: its header and its payload.
pub(crate) type Take<'a> = dyn FnMut(&Header, &[u8]) -> Result<(), Rejected> + 'a;

/// How long silence lasts before the other end is asked, and how long that may take to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patience {
    pub(crate) silence: Duration,
    pub(crate) answer: Duration,
}

/// What a channel begins with.
pub(crate) struct Setup {
    pub(crate) path: Path,
    pub(crate) connection: u32,
    /// This is the server's end.
    pub(crate) from_device: bool,
    pub(crate) guard: Guard,
    pub(crate) terms: Terms,
    /// TCP carries it.
    pub(crate) is_stream: bool,
    pub(crate) patience: Patience,
}
