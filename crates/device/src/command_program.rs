//! A program of its owner that a unit asks about commands before it executes them.

use std::fmt::Debug;

use sanwire_core::Principal;
use sanwire_scsi::{Cdb, OperationClasses, Sense};

use crate::bell::RecordListener;

/// The most of the data of a command that a program is shown, in bytes.
pub const DATA_HEAD_MAX_BYTES: usize = 4096;

/// Judges the commands of a derived unit. It is asked by all threads that execute commands, and must not block: what it wants kept
/// becomes so later, while the command waits.
pub trait CommandProgram: Debug + Send + Sync {
    /// What is to become of a command that is about to be executed. Each is asked about once; one that was deferred, when its time has
    /// come.
    fn judge(&self, command: &JudgedCommand<'_>) -> Judgement;

    /// Of which commands it wants to be asked: those that need one of these. All others are allowed. Asked when a unit is derived.
    fn classes(&self) -> OperationClasses {
        OperationClasses::ALL
    }

    /// How much of the beginning of what the initiator sends it wants to see, in bytes; not more than [`DATA_HEAD_MAX_BYTES`] are shown.
    /// Asked when a unit is derived.
    fn data_head_bytes(&self) -> usize {
        0
    }

    /// From now on this is told, too, whenever a wish has become durable, or cannot. Called for each unit that is derived with it, or from
    /// one that is.
    fn listen(&self, _listener: RecordListener) {}

    /// What has become of a wish: see [`Judgement::keep`].
    fn keeping(&self, _wish: u64) -> Keeping {
        Keeping::Kept
    }

    /// A command with this [`Judgement::end`] is over, and was answered with GOOD or not; also one that was aborted, or did not begin after
    /// all. Called once for each, before the answer is given, by any thread. The answer waits until the wish is durable that this gives.
    fn ended(&self, _token: u64, _is_good: bool) -> Option<u64> {
        None
    }
}

/// What has become of a wish of a program to keep something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeping {
    /// It is durable.
    Kept,
    /// It is about to be made so.
    Pending,
    /// It cannot be. What waits for it fails, as where an administrator has to help.
    Failed,
}

/// What a program says of a command.
#[derive(Clone, Copy, Debug)]
pub struct Judgement {
    /// What is to become of it.
    pub verdict: Verdict,
    /// A wish that must be durable before the command's store begins.
    pub keep: Option<u64>,
    /// The program wants to hear how the command ends, under this number of its own.
    pub end: Option<u64>,
    /// What the program has taken of a processor since it told that last, in units of about an instruction: it is asked no more often than the
    /// quota [`PROGRAM_FUEL`](sanwire_core::quota::PROGRAM_FUEL) allows. What is little beside that may be told by a later judgement.
    pub fuel: u64,
}

impl From<Verdict> for Judgement {
    fn from(verdict: Verdict) -> Self {
        Judgement { verdict, keep: None, end: None, fuel: 0 }
    }
}

/// What is to become of a command.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// It is executed.
    Allow,
    /// CHECK CONDITION with this.
    Refuse(Sense),
    /// It is executed for as many blocks from this one on.
    Redirect {
        /// The first block, by the numbers of the unit.
        lba: u64,
    },
    /// This is executed in its place, if it is allowed itself.
    Rewrite(Cdb),
    /// It waits for so long, and is asked about again.
    Defer {
        /// How long.
        milliseconds: u32,
    },
}

/// A run of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockRange {
    /// The first one.
    pub lba: u64,
    /// How many.
    pub blocks: u64,
}

/// A command as a program sees it.
#[derive(Clone, Copy, Debug)]
pub struct JudgedCommand<'a> {
    /// The command.
    pub cdb: &'a Cdb,
    /// What it does: all of it is allowed.
    pub classes: OperationClasses,
    /// The blocks that it is about, by the numbers of the unit and within it. None for a command that is about no blocks, several for UNMAP.
    pub ranges: &'a [BlockRange],
    /// Blocks of the unit.
    pub capacity_blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Who has given it.
    pub principal: &'a Principal,
    /// A number for who has given it: the same as long as the unit is there, and another one for everybody else up to 255.
    /// Those for whom there was no number left share 256.
    pub principal_number: u32,
    /// The time of day, in milliseconds after the beginning of 1970.
    pub unix_ms: u64,
    /// For how long it was deferred so far, in milliseconds.
    pub waited_ms: u32,
    /// The beginning of what its initiator sends, as far as the program wants to see it and it is there.
    pub data_out: &'a [u8],
}
