//! A faster way for small functions than the interpreter: most filters are a dozen operations on a few values, and so much is done
//! in less time than the interpreter takes to begin.
//!
//! A function is decoded once, when its module is compiled: into operations on the slots of a frame, which a loop runs. What it calls
//! becomes a part of it.
//! It has the memory of the interpreter's instance, but global variables of its own. Whatever a module is, decoding takes time by its length,
//! and what is not decoded (recursion, tables, bulk memory, more than some thousand operations) is left to the interpreter. No caller can
//! tell the two apart: results, traps and fuel are the same, which `tests/decoded.rs` and a target of the fuzzer look at.

mod branches;
mod calls;
mod control;
mod decoder;
mod function;
mod operation;
mod operators;
mod outline;
mod run;
mod values;

use std::sync::Arc;

use wasmi::TrapCode;

use decoder::decode;
use function::Function;
use operation::Frame;
use outline::Outline;
use run::{Machine, run};

/// The functions of a module that are decoded.
#[derive(Debug)]
pub(crate) struct Decoded {
    judge: Function,
    ended: Option<Function>,
    globals: Vec<u64>,
}

/// The same with what one instance has of its own.
#[derive(Debug)]
pub(crate) struct DecodedInstance {
    decoded: Arc<Decoded>,
    judge_frame: Box<Frame>,
    ended_frame: Option<Box<Frame>>,
    globals: Vec<u64>,
}

impl Decoded {
    /// Decodes the functions with these names of a module that was validated; `None` if the interpreter is to run them.
    pub(crate) fn of(module: &[u8], judge: &str, ended: &str) -> Option<Decoded> {
        let outline = Outline::of(module)?;
        let globals = outline.globals.iter().map(|global| global.value).collect();
        let ended_number = outline.number_of(ended);
        let ended = ended_number.and_then(|number| decode(number, &outline));
        let judge = decode(outline.number_of(judge)?, &outline)?;
        // The interpreter has global variables of its own, so either it uses them or these do.
        let is_shared = ended_number.is_some() && ended.is_none() && judge.uses_globals();
        (!is_shared).then_some(Decoded { judge, ended, globals })
    }

    /// The functions with what an instance needs that has just been started.
    pub(crate) fn start(self: &Arc<Self>) -> DecodedInstance {
        DecodedInstance {
            judge_frame: self.judge.frame(),
            ended_frame: self.ended.as_ref().map(Function::frame),
            globals: self.globals.clone(),
            decoded: Arc::clone(self),
        }
    }
}

impl DecodedInstance {
    /// Calls `judge`. Gives what it returns, and how much of the fuel is left.
    pub(crate) fn judge(&mut self, memory: &mut [u8], mut fuel: u64) -> (Result<u32, TrapCode>, u64) {
        let mut machine = Machine { memory, globals: &mut self.globals, fuel: &mut fuel };
        let returned = run(&self.decoded.judge, &mut self.judge_frame, &mut machine);
        (returned.map(|value| value as u32), fuel)
    }

    /// Calls `ended` in the same way; `None` if that is not decoded.
    pub(crate) fn ended(
        &mut self,
        memory: &mut [u8],
        token: u64,
        is_good: bool,
        mut fuel: u64,
    ) -> Option<(Result<u32, TrapCode>, u64)> {
        let (function, frame) = (self.decoded.ended.as_ref()?, self.ended_frame.as_mut()?);
        (frame[0], frame[1]) = (token, is_good.into());
        let mut machine = Machine { memory, globals: &mut self.globals, fuel: &mut fuel };
        let returned = run(function, frame, &mut machine);
        Some((returned.map(|value| value as u32), fuel))
    }
}
