//! What a device server gives back for a command: what is to be done next, and the state in which the command goes on then.

use std::fmt::Debug;

use sanwire_buffer::Region;
use sanwire_scsi::Sense;
use sanwire_store::{Completion, Request};

use crate::abort_scope::AbortScope;
use crate::copies::CopyEnd;
use crate::exclusion::Claim;
use crate::fault;
use crate::hold::{Hold, Turn};
use crate::range::Range;
use crate::reservation::Reserving;
use crate::unit_state::UnitState;

/// The next thing in the life of a command that is well so far.
#[derive(Debug)]
pub(crate) enum Step {
    /// GOOD, without data.
    Good,
    /// GOOD, with an answer; it is cut to what the initiator has room for.
    Answer(Vec<u8>),
    /// GOOD, with data.
    Data(sanwire_buffer::Slices),
    /// The store's turn.
    Store(CommandState, Request),
    /// GOOD at once; the store's turn nevertheless, and no nexus hears what becomes of it.
    Detached(CommandState, Request),
    /// The store's turn, but not before commands that wait had theirs.
    Later(CommandState, Request),
    /// CONDITION MET.
    ConditionMet,
    /// GOOD, after the commands of others have been ended.
    Abort(AbortScope),
    /// Nothing, until a record of reservations is kept.
    Reserve(Box<Reserving>),
    /// GOOD, when that copy is over.
    AwaitCopy(CopyEnd),
}

/// Where a command stands while the store works for it.
#[derive(Debug)]
pub(crate) enum CommandState {
    /// Reading from this medium; the initiator has room for so much.
    Read { room_bytes: u32, medium: u32 },
    /// Writing; then flushing, if this write must be stable before it is answered.
    Write { flush: bool },
    /// Flushing, the last thing to do.
    Flush,
    /// Waiting for what the store does not do: a record is being kept, or the commands of others ended.
    Record,
    /// Reading ahead of other commands (PRE-FETCH); all of it, or only the beginning.
    PreFetch { is_all: bool },
    /// In a command of the unit's device type, which knows itself how it goes on.
    Ongoing(Box<dyn Ongoing>),
}

/// A command that has begun and takes more than one transfer: what it has done, and how it goes on when its store has done what it
/// asked for. Dropping it aborts the command.
///
/// Plain reads, writes and flushes are not worth an allocation: they are other variants of [`CommandState`].
pub(crate) trait Ongoing: Debug + Send {
    /// Goes on, or ends: its store's work is done.
    fn next(self: Box<Self>, unit: &UnitState, completion: Completion, memory: &Region) -> Result<Step, Sense>;

    /// The blocks that the command looks at or changes, seen from its first request; from each, when it goes by pieces.
    fn claim(&self, first: &Request) -> Option<Claim> {
        Claim::of(first)
    }

    /// Whether each of its requests is for itself: other commands may come between, also those that want blocks undisturbed.
    fn is_by_pieces(&self) -> bool {
        false
    }

    /// The blocks from those that its store works on to the last that it changes, of a command that goes by pieces.
    fn ahead(&self) -> Option<Range> {
        None
    }

    /// Whether it goes on to other blocks, which others may have written meanwhile, when its store has done what it is doing.
    fn goes_from_blocks_to_blocks(&self) -> bool {
        self.is_by_pieces()
    }

    /// Whether it flushes what it writes before it is answered.
    fn is_stable(&self) -> bool {
        false
    }

    /// The medium that it reads, where media can be changed.
    fn medium(&self) -> Option<u32> {
        None
    }

    /// Whether neither a reset nor an abort nor the loss of its nexus may end it.
    fn outlives_its_task(&self) -> bool {
        false
    }

    /// The unit whose store works for it now, if that is not its own.
    fn worker(&self) -> Option<&UnitState> {
        None
    }

    /// What it holds of that unit.
    fn worker_hold(&mut self) -> Option<&mut Hold> {
        None
    }

    /// Whether no command of that unit is in its way.
    fn may_go(&mut self) -> Turn {
        Turn::Now
    }

    /// See [`crate::Execution::keep_blocks`], for what it holds of that unit.
    fn keep_blocks(&mut self) {}

    /// Whether what it does at other units is to be ended.
    fn is_covered_by(&self, _scope: &AbortScope) -> bool {
        false
    }
}

impl CommandState {
    /// Whether the medium that it reads is the one that is in the unit.
    pub(crate) fn is_of_medium_of(&self, unit: &UnitState) -> bool {
        let medium = match self {
            CommandState::Read { medium, .. } => Some(*medium),
            CommandState::Ongoing(ongoing) => ongoing.medium(),
            _ => None,
        };
        medium.is_none_or(|medium| medium == unit.medium())
    }

    /// Whether each of its requests is for itself: other commands may come between, also those that want blocks undisturbed.
    pub(crate) fn is_by_pieces(&self) -> bool {
        matches!(self, CommandState::Ongoing(ongoing) if ongoing.is_by_pieces())
    }

    /// Whether it flushes what it writes before it is answered.
    pub(crate) fn is_stable(&self) -> bool {
        match self {
            CommandState::Write { flush } => *flush,
            CommandState::Ongoing(ongoing) => ongoing.is_stable(),
            _ => false,
        }
    }

    /// The blocks that the command looks at or changes, seen from its first request; from each, when it goes by pieces.
    pub(crate) fn claim(&self, first: &Request) -> Option<Claim> {
        match self {
            CommandState::Ongoing(ongoing) => ongoing.claim(first),
            _ => Claim::of(first),
        }
    }
}

/// The end of a command that wrote: at once, or after a flush.
pub(crate) fn finish(flush: bool) -> Step {
    if flush { Step::Store(CommandState::Flush, Request::Flush) } else { Step::Good }
}

/// The end of a flush, or of what ends like one.
pub(crate) fn flushed(completion: Completion) -> Result<Step, Sense> {
    completion.map(|_| Step::Good).map_err(|error| fault::sense(&error, None))
}
