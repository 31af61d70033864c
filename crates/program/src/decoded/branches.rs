//! How blocks, loops and branches are decoded.
//!
//! A block begins with all values on the stack in places where they stay. So wherever a jump to its end comes from, they are where they
//! were, and its result is in the slot above them.

use wasmparser::{BlockType, BrTable};

use super::control::{Frame, Kind, Test};
use super::decoder::Decoder;
use super::operation::{Code, Operation};

impl Decoder<'_> {
    pub(super) fn begin_block(&mut self, of: BlockType) -> Option<()> {
        let fuel_at = self.control.fuel_at()?;
        self.begin(Kind::Block, of, |_| Some(fuel_at))
    }

    pub(super) fn begin_loop(&mut self, of: BlockType) -> Option<()> {
        self.begin(Kind::Loop, of, |decoder| {
            let label = decoder.control.target(0)??.label;
            decoder.code.place(label)?;
            decoder.code.begin_charge()
        })
    }

    pub(super) fn begin_if(&mut self, of: BlockType) -> Option<()> {
        if !self.control.is_live {
            return self.begin(Kind::Dead, of, |_| None);
        }
        let test = self.test()?;
        let otherwise = self.code.new_label()?;
        self.begin(Kind::If { otherwise }, of, |decoder| {
            decoder.jump_unless(test, otherwise)?;
            decoder.code.begin_charge()
        })
    }

    /// Begins a block. `fuel_at` writes what comes first in it, and gives where its fuel is taken.
    fn begin(&mut self, kind: Kind, of: BlockType, fuel_at: impl FnOnce(&mut Self) -> Option<usize>) -> Option<()> {
        let has_result = match of {
            BlockType::Empty => false,
            BlockType::Type(_) => true,
            BlockType::FuncType(_) => return None,
        };
        let height = self.values.height();
        let outer = self.control.fuel_at()?;
        let frame = Frame { kind, height, has_result, is_branched_to: false, label: u32::MAX, fuel_at: outer };
        if !self.control.is_live {
            return self.control.push(Frame { kind: Kind::Dead, ..frame });
        }
        self.values.keep(None, &mut self.code)?;
        let label = self.code.new_label()?;
        self.control.push(Frame { label, ..frame })?;
        let inner = fuel_at(self)?;
        self.control.target(0)??.fuel_at = inner;
        Some(())
    }

    pub(super) fn begin_else(&mut self) -> Option<()> {
        let mut frame = self.control.pop()?;
        let Kind::If { otherwise } = frame.kind else {
            return self.control.push(frame);
        };
        if self.control.is_live {
            if frame.has_result {
                self.settle(frame.height)?;
            }
            frame.is_branched_to = true;
            self.jump(frame.label)?;
        }
        self.values.truncate(frame.height);
        self.code.place(otherwise)?;
        self.control.is_live = true;
        let fuel_at = self.code.begin_charge()?;
        self.control.push(Frame { kind: Kind::Else, fuel_at, ..frame })
    }

    pub(super) fn end(&mut self) -> Option<()> {
        let frame = self.control.pop()?;
        let was_live = self.control.is_live;
        match frame.kind {
            Kind::Dead => return Some(()),
            Kind::Loop => {
                if !was_live {
                    self.values.truncate(frame.height);
                }
                return Some(());
            }
            // Without an `else` it has no result.
            Kind::If { .. } if frame.has_result => return None,
            _ => {}
        }
        if was_live && frame.is_branched_to && frame.has_result {
            self.settle(frame.height)?;
        }
        if let Kind::If { otherwise } = frame.kind {
            self.code.place(otherwise)?;
            self.control.is_live = true;
        }
        if frame.is_branched_to {
            self.code.place(frame.label)?;
            self.control.is_live = true;
        }
        if !was_live || frame.is_branched_to {
            self.values.truncate(frame.height);
            if frame.has_result && self.control.is_live {
                self.values.push_own(false)?;
            }
        }
        if self.control.is_over() && self.control.is_live { self.give_back() } else { Some(()) }
    }

    pub(super) fn branch(&mut self, depth: u32) -> Option<()> {
        self.go(depth)?;
        self.control.is_live = false;
        Some(())
    }

    pub(super) fn branch_if(&mut self, depth: u32) -> Option<()> {
        let test = self.test()?;
        if let Some(frame) = self.control.target(depth)? {
            let (takes_value, label, height) = (frame.takes_value(), frame.label, frame.height);
            // Else the value has to be put there on the way.
            if !takes_value || self.values.top()?.slot == self.values.own_slot(height)? {
                self.control.target(depth)??.is_branched_to = true;
                return self.jump_if(test, label);
            }
        }
        let stay = self.code.new_label()?;
        self.jump_unless(test, stay)?;
        self.go(depth)?;
        self.code.place(stay)
    }

    pub(super) fn branch_by_table(&mut self, table: &BrTable<'_>) -> Option<()> {
        // Of a number that it knows, wasmi would make a plain branch.
        let number = self.values.pop().filter(|number| !number.may_be_known)?;
        let mut labels = vec![];
        for depth in table.targets().chain([Ok(table.default())]) {
            let frame = self.control.target(depth.ok()?)??;
            if frame.takes_value() {
                return None;
            }
            frame.is_branched_to = true;
            labels.push(frame.label);
        }
        self.code.table(number.slot, &labels)?;
        self.control.is_live = false;
        Some(())
    }

    /// Leaves the function.
    pub(super) fn give_back(&mut self) -> Option<()> {
        self.control.is_live = false;
        self.leave()
    }

    pub(super) fn trap(&mut self) -> Option<()> {
        self.control.is_live = false;
        self.code.push(Operation::new(Code::Unreachable, 0, 0, 0))
    }

    /// Goes to a block's end with the value on the stack, which stays there for who does not come this way.
    fn go(&mut self, depth: u32) -> Option<()> {
        let value = self.values.top();
        let Some(frame) = self.control.target(depth)? else {
            return self.leave();
        };
        frame.is_branched_to = true;
        let (takes_value, label, height) = (frame.takes_value(), frame.label, frame.height);
        if takes_value {
            let (from, to) = (value?.slot, self.values.own_slot(height)?);
            if from != to {
                self.code.push(Operation::new(Code::Copy, to, from, 0))?;
            }
        }
        self.jump(label)
    }

    /// Puts the value on the stack where the result of a block is that begins at this height.
    fn settle(&mut self, height: usize) -> Option<()> {
        let (value, to) = (self.values.pop()?, self.values.own_slot(height)?);
        if value.slot != to {
            self.code.push(Operation::new(Code::Copy, to, value.slot, 0))?;
        }
        Some(())
    }

    /// Takes what a branch depends on. What wasmi knows would not be compiled to a branch.
    fn test(&mut self) -> Option<Test> {
        let value = self.values.pop().filter(|value| !value.may_be_known)?;
        let compared =
            if value.is_own { self.code.take_back(value.slot, |made| made.opposite().is_some()) } else { None };
        Some(compared.map_or(Test::NotZero(value.slot), Test::Compared))
    }

    pub(super) fn jump(&mut self, label: u32) -> Option<()> {
        self.code.push(Operation::new(Code::Jump, 0, 0, 0).with(label))
    }

    fn jump_if(&mut self, test: Test, label: u32) -> Option<()> {
        let jump = match test {
            Test::Compared(compared) => compared.jump_to(label)?,
            Test::NotZero(slot) => Operation::new(Code::JumpIf, 0, slot, 0).with(label),
        };
        self.code.push(jump)
    }

    fn jump_unless(&mut self, test: Test, label: u32) -> Option<()> {
        let jump = match test {
            Test::Compared(compared) => compared.opposite()?.jump_to(label)?,
            Test::NotZero(slot) => Operation::new(Code::JumpUnless, 0, slot, 0).with(label),
        };
        self.code.push(jump)
    }
}
