//! A decoded function, and how it is written: operation by operation, with labels whose places are filled in at the end.

use super::operation::{Code, Frame, Operation, SLOTS};

/// Operations of a function, and entries of its jump tables: what has more is no small filter, and is left to the interpreter.
const OPERATIONS_MAX: usize = 4_096;

/// A function that can be run.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) operations: Vec<Operation>,
    /// The jump tables: see [`Code::Table`].
    pub(super) targets: Vec<u32>,
    /// The slots of its parameters come first, then those of its other local variables.
    pub(super) parameters: usize,
    pub(super) locals: usize,
    constants: Vec<u64>,
}

impl Function {
    /// A frame for its calls, in which its constants are.
    pub(super) fn frame(&self) -> Box<Frame> {
        let mut frame = Box::new([0; SLOTS]);
        for (slot, constant) in frame.iter_mut().rev().zip(&self.constants) {
            *slot = *constant;
        }
        frame
    }

    /// Whether it uses global variables.
    pub(super) fn uses_globals(&self) -> bool {
        self.operations.iter().any(|operation| matches!(operation.code, Code::GlobalGet | Code::GlobalSet))
    }
}

/// A function that is being written. Whatever does not fit gives `None`, and the function is not decoded.
#[derive(Debug, Default)]
pub(super) struct Writer {
    operations: Vec<Operation>,
    targets: Vec<u32>,
    constants: Vec<u64>,
    /// The places of the labels; `None` as long as they have none.
    labels: Vec<Option<u32>>,
    /// From the operation of this number on nothing is jumped to.
    run_from: usize,
}

impl Writer {
    pub(super) fn push(&mut self, operation: Operation) -> Option<()> {
        if self.operations.len() >= OPERATIONS_MAX {
            return None;
        }
        self.operations.push(operation);
        Some(())
    }

    /// Takes back the last operation if it sets this slot, is what is `wanted`, and is always run before what comes next.
    pub(super) fn take_back(&mut self, slot: u8, wanted: impl Fn(&Operation) -> bool) -> Option<Operation> {
        if self.operations.len() <= self.run_from {
            return None;
        }
        self.operations.pop_if(|last| last.sets(slot) && wanted(last))
    }

    /// Takes back a jump to where the next operation will be.
    pub(super) fn take_back_jump(&mut self, label: u32) {
        if self.operations.len() > self.run_from {
            self.operations.pop_if(|last| last.code == Code::Jump && last.more == label);
        }
    }

    /// The slot of a constant.
    pub(super) fn constant(&mut self, value: u64) -> Option<u8> {
        let number = self.constants.iter().position(|known| *known == value).unwrap_or_else(|| {
            self.constants.push(value);
            self.constants.len() - 1
        });
        u8::try_from((SLOTS - 1).checked_sub(number)?).ok()
    }

    /// The value of the constant in this slot.
    pub(super) fn value_of(&self, slot: u8) -> Option<u64> {
        self.constants.get(SLOTS - 1 - usize::from(slot)).copied()
    }

    /// Takes fuel from here on. Gives its place, where more can be added.
    pub(super) fn begin_charge(&mut self) -> Option<usize> {
        let at = self.operations.len();
        self.push(Operation::new(Code::Charge, 0, 0, 0).with(1))?;
        Some(at)
    }

    pub(super) fn charge(&mut self, at: usize, fuel: u32) -> Option<()> {
        let charge = self.operations.get_mut(at)?;
        charge.more = charge.more.checked_add(fuel)?;
        Some(())
    }

    pub(super) fn new_label(&mut self) -> Option<u32> {
        self.labels.push(None);
        u32::try_from(self.labels.len() - 1).ok()
    }

    /// A label is here.
    pub(super) fn place(&mut self, label: u32) -> Option<()> {
        self.run_from = self.operations.len();
        *self.labels.get_mut(label as usize)? = Some(u32::try_from(self.run_from).ok()?);
        Some(())
    }

    /// A jump by the number in this slot to these labels; to the last one for all numbers that have none.
    pub(super) fn table(&mut self, slot: u8, labels: &[u32]) -> Option<()> {
        let first = u32::try_from(self.targets.len()).ok()?;
        if self.targets.len() + labels.len() > OPERATIONS_MAX {
            return None;
        }
        self.targets.push(u32::try_from(labels.len().checked_sub(1)?).ok()?);
        for label in labels {
            self.targets.push(*label);
        }
        self.push(Operation::new(Code::Table, 0, slot, 0).with(first))
    }

    /// The function, of which so many of the lower slots are used.
    pub(super) fn finish(mut self, used_slots: usize, parameters: usize, locals: usize) -> Option<Function> {
        if used_slots + self.constants.len() > SLOTS {
            return None;
        }
        let place = |label: u32| self.labels.get(label as usize).copied().flatten();
        let mut at = 0;
        while let Some(count) = self.targets.get(at).map(|count| *count as usize) {
            for target in self.targets.get_mut(at + 1..at + 2 + count)? {
                *target = place(*target)?;
            }
            at += 2 + count;
        }
        for operation in self.operations.iter_mut().filter(|operation| operation.jumps()) {
            operation.more = place(operation.more)?;
        }
        let Writer { operations, targets, constants, .. } = self;
        Some(Function { operations, targets, parameters, locals, constants })
    }
}
