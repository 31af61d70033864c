//! The stack of WebAssembly while a function is decoded: where each value will be when the function runs.

use super::function::Writer;
use super::operation::{Code, Operation, SLOTS};

/// A value on the stack.
#[derive(Clone, Copy, Debug)]
struct Value {
    place: Place,
    may_be_known: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In the slot that belongs to this place of the stack.
    Own,
    /// It is what a local variable is now.
    Local(u8),
    Constant(u8),
}

/// A value that was taken from the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) slot: u8,
    /// It is nowhere else, so that whoever made it may put it elsewhere at once.
    pub(super) is_own: bool,
    /// The interpreter may know its value when it compiles, and leave out what depends on it.
    pub(super) may_be_known: bool,
}

#[derive(Debug)]
pub(super) struct Values {
    stack: Vec<Value>,
    /// Slots below those of the stack: of local variables, and of who has called the function.
    locals: usize,
    /// The most values that there were.
    most: usize,
}

impl Values {
    pub(super) fn new(locals: usize) -> Values {
        Values { stack: vec![], locals, most: 0 }
    }

    /// Slots that are used in all.
    pub(super) fn used_slots(&self) -> usize {
        self.locals + self.most
    }

    pub(super) fn height(&self) -> usize {
        self.stack.len()
    }

    /// The slot that belongs to a place of the stack.
    pub(super) fn own_slot(&self, height: usize) -> Option<u8> {
        u8::try_from(self.locals + height).ok()
    }

    /// A value that is about to be made. Gives the slot for it.
    pub(super) fn push_own(&mut self, may_be_known: bool) -> Option<u8> {
        let slot = self.own_slot(self.stack.len())?;
        self.push(Place::Own, may_be_known)?;
        Some(slot)
    }

    pub(super) fn push_local(&mut self, local: u8, may_be_known: bool) -> Option<()> {
        self.push(Place::Local(local), may_be_known)
    }

    pub(super) fn push_constant(&mut self, slot: u8) -> Option<()> {
        self.push(Place::Constant(slot), true)
    }

    fn push(&mut self, place: Place, may_be_known: bool) -> Option<()> {
        self.stack.push(Value { place, may_be_known });
        self.most = self.most.max(self.stack.len());
        (self.used_slots() <= SLOTS).then_some(())
    }

    pub(super) fn pop(&mut self) -> Option<Operand> {
        let operand = self.top()?;
        self.stack.pop();
        Some(operand)
    }

    /// Puts back what was the last to be taken.
    pub(super) fn push_back(&mut self, operand: Operand) -> Option<()> {
        let place = match operand {
            Operand { is_own: true, .. } => Place::Own,
            Operand { slot, .. } if usize::from(slot) < self.locals => Place::Local(slot),
            Operand { slot, .. } => Place::Constant(slot),
        };
        self.push(place, operand.may_be_known)
    }

    pub(super) fn top(&self) -> Option<Operand> {
        let value = *self.stack.last()?;
        let (slot, is_own) = match value.place {
            Place::Own => (self.own_slot(self.stack.len() - 1)?, true),
            Place::Local(slot) | Place::Constant(slot) => (slot, false),
        };
        Some(Operand { slot, is_own, may_be_known: value.may_be_known })
    }

    pub(super) fn truncate(&mut self, height: usize) {
        self.stack.truncate(height);
    }

    /// Puts so many values, which a function is to take, into the slots of their own. Gives the first of these.
    pub(super) fn settle(&mut self, count: usize, code: &mut Writer) -> Option<usize> {
        let from = self.stack.len().checked_sub(count)?;
        for (height, value) in self.stack.iter_mut().enumerate().skip(from) {
            if let Place::Local(slot) | Place::Constant(slot) = value.place {
                code.push(Operation::new(Code::Copy, u8::try_from(self.locals + height).ok()?, slot, 0))?;
                value.place = Place::Own;
            }
        }
        Some(self.locals + from)
    }

    /// A local variable is about to change, or any could (`None`): values that are what it is now are put where they stay.
    pub(super) fn keep(&mut self, local: Option<u8>, code: &mut Writer) -> Option<()> {
        for (height, value) in self.stack.iter_mut().enumerate() {
            let Place::Local(slot) = value.place else { continue };
            if local.is_none_or(|local| local == slot) {
                code.push(Operation::new(Code::Copy, u8::try_from(self.locals + height).ok()?, slot, 0))?;
                value.place = Place::Own;
            }
        }
        Some(())
    }
}
