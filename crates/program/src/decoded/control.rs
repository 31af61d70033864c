//! Blocks, loops and branches while a function is decoded, and from where to where fuel is taken at once: as wasmi does it, at the
//! beginning of the function, of each turn of a loop, and of each side of an `if`.

use super::operation::Operation;
use super::values::Values;

/// Blocks within blocks. Filters have few, and what has more is left to the interpreter.
const DEPTH_MAX: usize = 256;

/// The blocks around the operator that is decoded now.
#[derive(Debug)]
pub(super) struct Control {
    frames: Vec<Frame>,
    /// Whether the operator can be reached.
    pub(super) is_live: bool,
}

/// A block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// Of the stack, at its beginning.
    pub(super) height: usize,
    pub(super) has_result: bool,
    /// Something jumps to its end.
    pub(super) is_branched_to: bool,
    /// Its end, or the beginning of a loop.
    pub(super) label: u32,
    /// Where its fuel is taken.
    pub(super) fuel_at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Also the function as a whole.
    Block,
    Loop,
    If {
        otherwise: u32,
    },
    Else,
    /// It begins where nothing comes.
    Dead,
}

/// What a jump depends on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    /// What was compared for it alone.
    Compared(Operation),
    /// The slot is not 0.
    NotZero(u8),
}

/// Where a function goes on that has called another one.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) values: Values,
    pub(super) control: Control,
    pub(super) first_local: usize,
    /// The slot for what is given back to it, if anything is.
    pub(super) result: Option<u8>,
    /// Where it goes on.
    pub(super) label: u32,
}

impl Frame {
    /// That of a function. Nothing jumps to its label, since leaving it is an operation of its own.
    pub(super) fn function(fuel_at: usize, has_result: bool) -> Frame {
        Frame { kind: Kind::Block, height: 0, has_result, is_branched_to: false, label: u32::MAX, fuel_at }
    }
}

impl Control {
    pub(super) fn new(function: Frame) -> Control {
        Control { frames: vec![function], is_live: true }
    }

    pub(super) fn push(&mut self, frame: Frame) -> Option<()> {
        self.frames.push(frame);
        (self.frames.len() <= DEPTH_MAX).then_some(())
    }

    pub(super) fn pop(&mut self) -> Option<Frame> {
        self.frames.pop()
    }

    /// Whether the function has ended.
    pub(super) fn is_over(&self) -> bool {
        self.frames.is_empty()
    }

    /// Where the fuel of the operator is taken.
    pub(super) fn fuel_at(&self) -> Option<usize> {
        self.frames.last().map(|frame| frame.fuel_at)
    }

    /// The block that a branch to this depth leaves, or the loop that it begins again; none for the function itself.
    pub(super) fn target(&mut self, depth: u32) -> Option<Option<&mut Frame>> {
        let number = self.frames.len().checked_sub(1 + usize::try_from(depth).ok()?)?;
        Some(if number == 0 { None } else { self.frames.get_mut(number) })
    }
}

impl Frame {
    /// Whether a branch to it takes a value with it.
    pub(super) fn takes_value(&self) -> bool {
        self.has_result && self.kind != Kind::Loop
    }
}
