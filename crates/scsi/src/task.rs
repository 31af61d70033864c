//! What a protocol hands to a device, and what it gets back.

use std::fmt;
use std::ops::Deref;

use sanwire_buffer::Slices;
use sanwire_core::Lun;

use crate::Receipt;

/// A command descriptor block of up to 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cdb {
    bytes: [u8; Cdb::MAX_BYTES],
    length: u8,
}

impl Cdb {
    /// The longest block carried, in bytes (variable-length commands of SPC-5 4.2.3 that SBC-4 defines have 32).
    pub const MAX_BYTES: usize = 32;

    /// The block with these bytes; `None` when empty or longer than [`Cdb::MAX_BYTES`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > Self::MAX_BYTES {
            return None;
        }
        let mut cdb = Cdb { bytes: [0; Self::MAX_BYTES], length: bytes.len() as u8 };
        cdb.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(cdb)
    }

    /// The block and the zeroes behind it.
    #[must_use]
    pub fn padded(&self) -> [u8; Cdb::MAX_BYTES] {
        self.bytes
    }

    /// The block and the zeroes behind it as two numbers, the first byte highest.
    pub(crate) fn as_numbers(&self) -> (u128, u128) {
        let number = u128::from_be_bytes;
        let (first, second) = self.bytes.split_at(16);
        (first.try_into().map_or(0, number), second.try_into().map_or(0, number))
    }

    /// Its bytes, of which there are as many as before.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.length)]
    }

    /// The operation code: byte 0.
    #[must_use]
    pub fn operation_code(&self) -> u8 {
        self.bytes[0]
    }
}

impl<const N: usize> From<[u8; N]> for Cdb {
    fn from(block: [u8; N]) -> Self {
        const { assert!(0 < N && N <= Cdb::MAX_BYTES) };
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..N].copy_from_slice(&block);
        Cdb { bytes, length: N as u8 }
    }
}

impl Deref for Cdb {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cdb(")?;
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// One command for a device, wherever it came from.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which logical unit; `None` when the wire's eight bytes name none that could exist.
    pub lun: Option<Lun>,
    /// What to do.
    pub cdb: Cdb,
    /// The data that came with it, in the pieces in which it came.
    pub data_out: Option<Slices>,
    /// Whether the initiator learns how much of a write was done when less data came than its CDB says; else such a write is
    /// refused.
    pub tells_residual: bool,
    /// How many bytes of answer the initiator has room for.
    pub data_in_max_bytes: u32,
    /// Whether the answer may be a share of what a store keeps in memory. It lives until the initiator has it; one that has much of
    /// that under way gets copies, for which there is a share of the memory for data.
    pub may_share: bool,
    /// Which piece of the command this is, over a wire that can carry a long transfer in pieces.
    pub piece: Option<Piece>,
    /// Of the answers of its nexus with a [`Receipt`], the initiator had all up to this number when it gave the command.
    pub receipts: u64,
}

impl Task {
    /// How much data its initiator sends in all, in bytes: with this piece of it, before and after.
    #[must_use]
    pub fn data_out_bytes(&self) -> u64 {
        let here = || self.data_out.as_ref().map_or(0, |data| data.len() as u64);
        self.piece.map_or_else(here, |piece| piece.data_out_bytes.into())
    }

    /// Whether its command has been checked and begun, and this is a further piece of it.
    #[must_use]
    pub fn is_further_piece(&self) -> bool {
        self.piece.is_some_and(|piece| piece.from_bytes > 0)
    }
}

/// One piece of a command whose data goes in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it begins in the data of the command: what is before is done. Zero for a command that begins.
    pub from_bytes: u32,
    /// The medium that the pieces before were of: their [`Rest::medium`].
    pub medium: u32,
    /// How much data the initiator sends with all pieces together.
    pub data_out_bytes: u32,
}

/// What is left of a command of which a piece is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// Where the next piece begins: [`Piece::from_bytes`].
    pub from_bytes: u32,
    /// Where the last one ends.
    pub end_bytes: u32,
    /// Which medium of the unit the command works on: [`Piece::medium`].
    pub medium: u32,
}

/// What became of a [`Task`].
#[derive(Clone, Debug)]
pub struct Reply {
    /// The SAM-5 status.
    pub status: Status,
    /// Fixed or descriptor format sense data, empty unless the status is [`Status::CheckCondition`].
    pub sense: Vec<u8>,
    /// The answer's data, never longer than the task had room for.
    pub data_in: Option<Slices>,
    /// How much data the command takes, in bytes, if that is known and is not what came with it.
    pub data_out_bytes: Option<u64>,
    /// The command is well so far, but not over: this is left of it. Never for a task without a [`Piece`].
    pub rest: Option<Rest>,
    /// Must be known to have arrived.
    pub receipt: Option<Receipt>,
    /// The command changes nothing: an initiator that has lost the data may give it again, so it need not be kept.
    pub is_bulk_read: bool,
}

impl Reply {
    /// A status and nothing else.
    #[must_use]
    pub fn bare(status: Status) -> Self {
        Reply {
            status,
            sense: Vec::new(),
            data_in: None,
            data_out_bytes: None,
            rest: None,
            receipt: None,
            is_bulk_read: false,
        }
    }

    /// Success, with data or without.
    #[must_use]
    pub fn good(data_in: Option<Slices>) -> Self {
        Reply { data_in, ..Reply::bare(Status::Good) }
    }
}

/// Status codes (SAM-5 5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Good = 0x00,
    /// The sense data says what is the matter.
    CheckCondition = 0x02,
    /// A comparison held (PRE-FETCH).
    ConditionMet = 0x04,
    /// Later, please.
    Busy = 0x08,
    /// Another initiator holds a reservation.
    ReservationConflict = 0x18,
    /// No room for another command.
    TaskSetFull = 0x28,
    /// Aborted by another initiator.
    TaskAborted = 0x40,
}

impl Status {
    /// The status with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [
            Status::Good,
            Status::CheckCondition,
            Status::ConditionMet,
            Status::Busy,
            Status::ReservationConflict,
            Status::TaskSetFull,
            Status::TaskAborted,
        ]
        .into_iter()
        .find(|status| *status as u8 == code)
    }
}
