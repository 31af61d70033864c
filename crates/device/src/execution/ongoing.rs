//! What the execution of a command knows of a command of some device type.

use std::fmt::Debug;

use sanwire_buffer::Region;
use sanwire_scsi::Sense;
use sanwire_store::{Completion, Request};

use super::{Hold, Turn};
use crate::exclusion::Claim;
use crate::logical_unit::LogicalUnit;
use crate::range::Range;
use crate::reservation::AbortScope;
use crate::step::Step;

/// A command that has begun and takes more than one transfer: what it has done, and how it goes on when its store has done what it
/// asked for. Dropping it aborts the command.
///
/// Plain reads, writes and flushes are not worth an allocation: they are other variants of [`super::State`].
pub(crate) trait Ongoing: Debug + Send {
    /// Goes on, or ends: its store's work is done.
    fn next(self: Box<Self>, unit: &LogicalUnit, completion: Completion, memory: &Region) -> Result<Step, Sense>;

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

    /// Whether neither a reset nor an abort nor the loss of its nexus may end it.
    fn outlives_its_task(&self) -> bool {
        false
    }

    /// The unit whose store works for it now, if that is not its own.
    fn worker(&self) -> Option<&LogicalUnit> {
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

    /// See [`super::Execution::keep_blocks`], for what it holds of that unit.
    fn keep_blocks(&mut self) {}

    /// Whether what it does at other units is to be ended.
    fn is_covered_by(&self, _scope: &AbortScope) -> bool {
        false
    }
}
