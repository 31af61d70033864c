//! From WebAssembly to operations: a function is read once, from its beginning to its end.
//!
//! It has been validated before. What cannot be decoded gives `None`, and so does all that wasmi may compile to something else
//! because it knows a value: then the fuel of the two could differ.

use wasmparser::{FunctionBody, Operator, ValType};

use super::control::{Caller, Control, Frame};
use super::function::{Function, Writer};
use super::operation::{Code, Operation, SLOTS};
use super::operators::{self, Access, Kind};
use super::outline::{Outline, Signature};
use super::values::{Operand, Values};

/// Bytes that are read of a function and all that it calls, as often as it calls it: an operator may be one byte, or a table of many.
const BYTES_MAX: usize = 1 << 16;

/// A function that is being decoded.
#[derive(Debug)]
pub(super) struct Decoder<'m> {
    pub(super) outline: &'m Outline<'m>,
    pub(super) code: Writer,
    /// Those of the function that is read now, which may be one that is called.
    pub(super) values: Values,
    pub(super) control: Control,
    /// The slot of its first local variable.
    pub(super) first_local: usize,
    /// Who have called it, the last one last.
    pub(super) callers: Vec<Caller>,
    /// The most slots that are used at once.
    pub(super) used_slots: usize,
    bytes_left: usize,
}

/// Decodes a function that has one result.
pub(super) fn decode(number: u32, outline: &Outline<'_>) -> Option<Function> {
    let (body, Signature { parameters, .. }) = outline.function(number).filter(|(_, it)| it.has_result)?;
    let locals = parameters + locals(body)?;
    let mut code = Writer::default();
    let control = Control::new(Frame::function(code.begin_charge()?, true));
    let mut decoder = Decoder {
        outline,
        code,
        values: Values::new(locals),
        control,
        first_local: 0,
        callers: vec![],
        used_slots: 0,
        bytes_left: BYTES_MAX.checked_sub(body.range().len())?,
    };
    decoder.body(body)?;
    decoder.code.finish(decoder.used_slots, parameters, locals)
}

/// Its local variables beside its parameters.
pub(super) fn locals(body: &FunctionBody<'_>) -> Option<usize> {
    let mut locals = 0_usize;
    for group in body.get_locals_reader().ok()? {
        let (count, of) = group.ok()?;
        locals += usize::try_from(count).ok().filter(|_| matches!(of, ValType::I32 | ValType::I64))?;
    }
    (locals <= SLOTS).then_some(locals)
}

impl Decoder<'_> {
    /// A function is read (again), with its local variables. `None` when that is too much.
    pub(super) fn count_bytes(&mut self, body: &FunctionBody<'_>) -> Option<()> {
        self.bytes_left = self.bytes_left.checked_sub(body.range().len())?;
        Some(())
    }

    /// Reads a function, for which all is ready.
    pub(super) fn body(&mut self, body: &FunctionBody<'_>) -> Option<()> {
        let mut operators = body.get_operators_reader().ok()?;
        while !operators.eof() {
            self.operator(&operators.read().ok()?)?;
        }
        self.used_slots = self.used_slots.max(self.values.used_slots());
        self.control.is_over().then_some(())
    }

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
            Operator::Call { function_index } => self.call(*function_index),
            Operator::LocalGet { local_index } => self.values.push_local(self.local(*local_index)?, false),
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

    /// The slot of a local variable.
    fn local(&self, local: u32) -> Option<u8> {
        u8::try_from(usize::try_from(local).ok()?.checked_add(self.first_local)?).ok()
    }

    /// Gives where the value is now.
    fn set_local(&mut self, local: u32) -> Option<Operand> {
        let local = self.local(local)?;
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
            | Operator::Call { .. }
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
