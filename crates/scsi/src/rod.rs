//! Representations of data: tokens that stand for blocks, by which an initiator has data copied without seeing it (SPC-4 5.17.6,
//! SBC-4 4.28). Windows calls it offloaded data transfer.

mod answer;
mod lists;
mod token;

pub use answer::{RodAnswer, RodState};
pub use lists::{BlockRun, PopulateToken, WriteUsingToken};
pub use token::{NewToken, PresentedToken, SECRET_BYTES, TOKEN_BYTES};

/// The most ranges of one command.
pub const RANGES_MAX: usize = 64;
/// The most bytes that one token stands for, and that one command writes.
pub const ROD_MAX_BYTES: u64 = 1 << 30;
/// What one command had best ask for: so much is copied in a second or two, for which initiators wait.
pub const ROD_OPTIMAL_BYTES: u64 = 64 << 20;
/// For so long a token is kept that nobody uses, unless its initiator says how long.
pub const INACTIVITY_DEFAULT_S: u32 = 30;
/// The most that an initiator may ask for.
pub const INACTIVITY_MAX_S: u32 = 3600;
/// For so long a token is kept at the most.
pub const LIFETIME_S: u32 = 3600;

/// ROD types (SPC-4 table 110).
pub(crate) mod rod_type {
    /// What was there when the token was made, however that is done.
    pub(crate) const POINT_IN_TIME: u32 = 0x0080_0000;
    /// The same, and it may end when the data changes.
    pub(crate) const CHANGE_VULNERABLE: u32 = 0x0080_0001;
    /// The same, or one that outlives changes.
    pub(crate) const ANY_POINT_IN_TIME: u32 = 0x0080_ffff;
    /// As many zeroes as are wanted (SBC-4 4.28.4).
    pub(crate) const ZEROES: u32 = 0xffff_0001;
}

/// A command about tokens, or about a copy with a list identifier of four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RodCommand {
    /// POPULATE TOKEN: make a token of some blocks.
    Populate {
        /// By which its result is asked for.
        list_id: u32,
        /// How long [`PopulateToken`] is.
        parameter_bytes: u32,
    },
    /// WRITE USING TOKEN: write what a token stands for.
    Write {
        /// By which its result is asked for.
        list_id: u32,
        /// How long [`WriteUsingToken`] is.
        parameter_bytes: u32,
    },
    /// COPY OPERATION ABORT: end a copy.
    Abort {
        /// Which one.
        list_id: u32,
    },
    /// RECEIVE COPY STATUS (LID4): how a copy stands.
    Status {
        /// Which one.
        list_id: u32,
        /// Room for the answer.
        allocation_bytes: u32,
    },
    /// RECEIVE ROD TOKEN INFORMATION: the same, with the token that was made.
    Information {
        /// Of which command.
        list_id: u32,
        /// Room for the answer.
        allocation_bytes: u32,
    },
}

impl RodCommand {
    /// How much data it takes from the initiator, in bytes.
    #[must_use]
    pub fn data_out_bytes(&self) -> u32 {
        match *self {
            RodCommand::Populate { parameter_bytes, .. } | RodCommand::Write { parameter_bytes, .. } => parameter_bytes,
            _ => 0,
        }
    }
}
