//! From WebAssembly to operations: a function is read once, from its beginning to its end.
//!
//! It has been validated before. What cannot be decoded gives `None`, and so does all that wasmi may compile to something else
//! because it knows a value: then the fuel of the two could differ.

use wasmparser::{FunctionBody, Operator, ValType};

use super::control::{Control, Frame};
use super::function::{Function, Writer};
use super::operation::{Code, Operation, SLOTS};
use super::operators::{self, Access, Kind};
use super::outline::Outline;
use super::values::{Operand, Values};

/// A function that is being decoded.
#[derive(Debug)]
pub(super) struct Decoder<'m> {
    outline: &'m Outline<'m>,
    pub(super) code: Writer,
    pub(super) values: Values,
    pub(super) control: Control,
}

/// Decodes a function with so many parameters and one result.
pub(super) fn decode(body: &FunctionBody<'_>, parameters: usize, outline: &Outline<'_>) -> Option<Function> {
    let mut locals = parameters;
    for group in body.get_locals_reader().ok()? {
        let (count, of) = group.ok()?;
        locals += usize::try_from(count).ok().filter(|_| matches!(of, ValType::I32 | ValType::I64))?;
    }
    if locals > SLOTS {
        return None;
    }
    let mut code = Writer::default();
    let control = Control::new(Frame::function(code.begin_charge()?));
    let mut decoder = Decoder { outline, code, values: Values::new(locals), control };
    let mut operators = body.get_operators_reader().ok()?;
    while !operators.eof() {
        decoder.operator(&operators.read().ok()?)?;
    }
    let used_slots = decoder.values.used_slots();
    decoder.control.is_over().then_some(())?;
    decoder.code.finish(used_slots, parameters, locals)
}

impl Decoder<'_> {
    fn operator(&mut self, operator: &Operator<'_>) -> Option<()> {
        // Also for what is never reached, as long as nothing begins there that would take its own.
        self.code.charge(self.control.fuel_at()?, operators::fuel(operator))?;
        match operator {
            Operator::Block { blockty } => self.begin_block(*blockty),
            Operator::Loop { blockty } => self.begin_loop(*blockty),
            Operator::If { blockty } => self.begin_if(*blockty),
            Operator::Else => self.begin_else(),
            Operator::End => self.end(),
            _ if !self.control.is_live => is_known(operator).then_some(()),
            Operator::Br { relative_depth } => self.branch(*relative_depth),
            Operator::BrIf { relative_depth } => self.branch_if(*relative_depth),
            Operator::BrTable { targets } => self.branch_by_table(targets),
            Operator::Return => self.give_back(),
            Operator::Unreachable => self.trap(),
            Operator::Nop => Some(()),
            Operator::Drop => self.values.pop().map(drop),
            Operator::Select => self.select(),
            Operator::LocalGet { local_index } => self.values.push_local(u8::try_from(*local_index).ok()?, false),
            Operator::LocalSet { local_index } => self.set_local(*local_index).map(drop),
            Operator::LocalTee { local_index } => {
                let value = self.set_local(*local_index)?;
                self.values.push_back(value)
            }
            Operator::GlobalGet { global_index } => self.get_global(*global_index),
            Operator::GlobalSet { global_index } => self.set_global(*global_index),
            Operator::I32Const { value } => self.constant(value.cast_unsigned().into()),
            Operator::I64Const { value } => self.constant(value.cast_unsigned()),
            Operator::MemorySize { mem: 0 } => {
                let to = self.values.push_own(false)?;
                self.code.push(Operation::new(Code::MemorySize, to, 0, 0))
            }
            _ => self.compute(operators::kind(operator)?),
        }
    }

    fn constant(&mut self, value: u64) -> Option<()> {
        let slot = self.code.constant(value)?;
        self.values.push_constant(slot)
    }

    /// Gives where the value is now.
    fn set_local(&mut self, local: u32) -> Option<Operand> {
        let local = u8::try_from(local).ok()?;
        let value = self.values.pop()?;
        if !value.is_own && value.slot == local {
            return Some(value);
        }
        let made = if value.is_own { self.code.take_back(value.slot, |_| true) } else { None };
        self.values.keep(Some(local), &mut self.code)?;
        match made {
            Some(made) => {
                self.code.push(Operation { to: local, ..made })?;
                Some(Operand { slot: local, is_own: false, ..value })
            }
            None => {
                self.code.push(Operation::new(Code::Copy, local, value.slot, 0))?;
                Some(value)
            }
        }
    }

    fn get_global(&mut self, global: u32) -> Option<()> {
        let known = self.outline.global(global)?;
        if !known.is_mutable {
            return self.constant(known.value);
        }
        let to = self.values.push_own(false)?;
        self.code.push(Operation::new(Code::GlobalGet, to, 0, 0).with(global))
    }

    fn set_global(&mut self, global: u32) -> Option<()> {
        let value = self.values.pop()?;
        self.code.push(Operation::new(Code::GlobalSet, 0, value.slot, 0).with(global))
    }

    fn select(&mut self) -> Option<()> {
        let condition = self.values.pop()?;
        let (if_zero, if_not) = (self.values.pop()?, self.values.pop()?);
        let to = self.values.push_own(if_zero.may_be_known && if_not.may_be_known)?;
        self.code.push(Operation::new(Code::Select, to, if_not.slot, if_zero.slot).with(condition.slot.into()))
    }

    fn compute(&mut self, kind: Kind) -> Option<()> {
        match kind {
            Kind::Same => Some(()),
            Kind::Unary(code) => {
                let value = self.values.pop()?;
                let to = self.values.push_own(value.may_be_known)?;
                self.code.push(Operation::new(code, to, value.slot, 0))
            }
            Kind::IsZero => self.compare_with_zero(),
            Kind::Binary(code) => self.binary(code, false),
            Kind::Turned(code) => self.binary(code, true),
            Kind::Division(code) => self.divide(code),
            Kind::Load(code, access) => {
                let address = self.values.pop().filter(|address| self.is_reached(*address, access))?;
                let to = self.values.push_own(false)?;
                self.code.push(Operation::new(code, to, address.slot, 0).with(access.offset))
            }
            Kind::Store(code, access) => {
                let value = self.values.pop()?;
                let address = self.values.pop().filter(|address| self.is_reached(*address, access))?;
                self.code.push(Operation::new(code, 0, address.slot, value.slot).with(access.offset))
            }
        }
    }

    fn binary(&mut self, code: Code, is_turned: bool) -> Option<()> {
        let (second, first) = (self.values.pop()?, self.values.pop()?);
        let to = self.values.push_own(first.may_be_known && second.may_be_known)?;
        let (a, b) = if is_turned { (second.slot, first.slot) } else { (first.slot, second.slot) };
        self.code.push(Operation::new(code, to, a, b))
    }

    fn compare_with_zero(&mut self) -> Option<()> {
        let value = self.values.pop()?;
        let to = self.values.push_own(value.may_be_known)?;
        let compared =
            if value.is_own { self.code.take_back(value.slot, |made| made.opposite().is_some()) } else { None };
        match compared.and_then(Operation::opposite) {
            Some(opposite) => self.code.push(Operation { to, ..opposite }),
            None => {
                let zero = self.code.constant(0)?;
                self.code.push(Operation::new(Code::Eq, to, value.slot, zero))
            }
        }
    }

    /// A divisor that wasmi knows must be none by which nothing can be divided: of that it would make a trap.
    fn divide(&mut self, code: Code) -> Option<()> {
        let (divisor, dividend) = (self.values.pop()?, self.values.pop()?);
        if divisor.may_be_known {
            let is_known = !divisor.is_own && self.code.value_of(divisor.slot).is_some_and(|value| value != 0);
            (is_known && !dividend.may_be_known).then_some(())?;
        }
        let to = self.values.push_own(false)?;
        self.code.push(Operation::new(code, to, dividend.slot, divisor.slot))
    }

    /// Of an access that is outside the memory, however much that grows, wasmi would make a trap.
    fn is_reached(&self, address: Operand, access: Access) -> bool {
        if !address.may_be_known {
            return true;
        }
        let known = if address.is_own { None } else { self.code.value_of(address.slot) };
        known.is_some_and(|at| at + u64::from(access.offset) + access.bytes <= self.outline.memory_bytes)
    }
}

/// Whether an operator that is never reached is one of those that are decoded elsewhere.
fn is_known(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::Br { .. }
            | Operator::BrIf { .. }
            | Operator::BrTable { .. }
            | Operator::Return
            | Operator::Unreachable
            | Operator::Nop
            | Operator::Drop
            | Operator::Select
            | Operator::LocalGet { .. }
            | Operator::LocalSet { .. }
            | Operator::LocalTee { .. }
            | Operator::GlobalGet { .. }
            | Operator::GlobalSet { .. }
            | Operator::I32Const { .. }
            | Operator::I64Const { .. }
            | Operator::MemorySize { .. }
    ) || operators::kind(operator).is_some()
}
