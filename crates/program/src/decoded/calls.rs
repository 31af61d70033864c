//! How calls are decoded: what is called becomes a part of who calls it, as if it stood there. It has the slots behind those that are
//! used then, of which its arguments are the first.

use std::mem;

use super::control::{Caller, Control, Frame};
use super::decoder::{Decoder, locals};
use super::operation::{Code, Operation};
use super::values::Values;

/// Calls within calls, of which the interpreter allows more.
const CALLS_MAX: usize = 8;

/// Local variables of what is called, which are zeroed by an operation each at each call, and cost no fuel.
const CALLED_LOCALS_MAX: usize = 32;

impl Decoder<'_> {
    pub(super) fn call(&mut self, number: u32) -> Option<()> {
        let outline = self.outline;
        let (body, signature) = outline.function(number).filter(|_| self.callers.len() < CALLS_MAX)?;
        self.count_bytes(body)?;
        let first_local = self.values.settle(signature.parameters, &mut self.code)?;
        self.values.truncate(self.values.height() - signature.parameters);
        let own_locals = first_local + signature.parameters;
        let zeroed = locals(body).filter(|locals| *locals <= CALLED_LOCALS_MAX)?;
        let behind = own_locals + zeroed;
        let zero = self.code.constant(0)?;
        for slot in own_locals..behind {
            self.code.push(Operation::new(Code::Copy, u8::try_from(slot).ok()?, zero, 0))?;
        }
        let fuel_at = self.code.begin_charge()?;
        let label = self.code.new_label()?;
        let caller = Caller {
            values: mem::replace(&mut self.values, Values::new(behind)),
            control: mem::replace(&mut self.control, Control::new(Frame::function(fuel_at, signature.has_result))),
            first_local: mem::replace(&mut self.first_local, first_local),
            result: if signature.has_result { Some(u8::try_from(first_local).ok()?) } else { None },
            label,
        };
        self.callers.push(caller);
        self.body(body)?;
        let caller = self.callers.pop()?;
        (self.values, self.control, self.first_local) = (caller.values, caller.control, caller.first_local);
        self.code.take_back_jump(label);
        self.code.place(label)?;
        // Also where it never comes back: who compiles the caller alone does not know that.
        if signature.has_result { self.values.push_own(false).map(drop) } else { Some(()) }
    }

    /// Leaves the function, with its result on the stack. That stays there for who does not come this way.
    pub(super) fn leave(&mut self) -> Option<()> {
        let value = self.values.top();
        let Some(&Caller { result, label, .. }) = self.callers.last() else {
            return self.code.push(Operation::new(Code::Return, 0, value?.slot, 0));
        };
        if let Some(to) = result {
            self.code.push(Operation::new(Code::Copy, to, value?.slot, 0))?;
        }
        self.jump(label)
    }
}
