//! The interpreter: a module is compiled once, and run in an instance that can be made anew at any time. Functions that are small
//! enough are run in a shorter way ([`Decoded`]), in the memory of that instance.
//!
//! Nothing is compiled to machine code, so the server needs no memory that it may write and execute.

use std::sync::Arc;

use wasmi::{
    CompilationMode, Config, Engine, Error, Extern, Instance, Memory, Module, Store, StoreLimits, StoreLimitsBuilder,
    TrapCode, TypedFunc, Val,
};

use crate::decoded::{Decoded, DecodedInstance};
use crate::error::LoadError;
use crate::limits::{self, Limits};
use crate::module;
use crate::selects;

/// The export that says where things are.
const HEADER: &str = "sanwire_abi_1";
const JUDGE: &str = "judge";
const ENDED: &str = "ended";

/// A module that is compiled. It has an engine of its own, with which all that was compiled goes.
#[derive(Debug)]
pub(crate) struct Code {
    engine: Engine,
    module: Module,
    decoded: Option<Arc<Decoded>>,
    limits: Limits,
}

/// A module in memory of its own.
#[derive(Debug)]
pub(crate) struct Running {
    store: Store<StoreLimits>,
    memory: Memory,
    judge: TypedFunc<(), u32>,
    ended: Option<TypedFunc<(u64, u32), u32>>,
    decoded: Option<DecodedInstance>,
    header_at: u32,
}

/// Why a call came to no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trap {
    OutOfFuel,
    /// Anything else that ends a program: the words say what.
    Other(&'static str),
}

impl Code {
    /// # Errors
    /// What is wrong with the module, or with the limits.
    pub(crate) fn compile(module: &[u8], limits: Limits) -> Result<Code, LoadError> {
        let bytes = limits.memory_bytes;
        let is_possible = bytes.is_multiple_of(Limits::PAGE_BYTES) && bytes > 0 && bytes <= Limits::MEMORY_MAX_BYTES;
        if !is_possible {
            return Err(LoadError::MemoryLimit { bytes, max_bytes: Limits::MEMORY_MAX_BYTES });
        }
        module::check(module, &limits)?;
        let engine = Engine::new(&config());
        let invalid = |error: Error| LoadError::Invalid { reason: error.to_string() };
        // The compiler validates each instruction before it translates it, but that something follows the end of a function it notices
        // only when it has translated that, without anything on its stacks, and may panic.
        Module::validate(&engine, module).map_err(invalid)?;
        let decoded = Decoded::of(module, JUDGE, ENDED).map(Arc::new);
        let module = Module::new(&engine, &selects::set_apart(module)?).map_err(invalid)?;
        Ok(Code { engine, module, decoded, limits })
    }

    /// From the next instance on, the interpreter runs all calls.
    pub(crate) fn leave_to_interpreter(&mut self) {
        self.decoded = None;
    }

    /// Whether calls that judge go the shorter way.
    pub(crate) fn is_decoded(&self) -> bool {
        self.decoded.is_some()
    }

    /// An instance with the memory that the module begins with.
    ///
    /// # Errors
    /// What the module lacks, or does not fit.
    pub(crate) fn start(&self) -> Result<Running, LoadError> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(self.limits.memory_bytes)
            .table_elements(limits::TABLE_ELEMENTS_MAX as usize)
            .build();
        let mut store = Store::new(&self.engine, limits);
        store.limiter(|limits| limits);
        let no_start = |_: Error| LoadError::NoStart;
        // What the segments of the module copy takes fuel as well.
        store.set_fuel(u64::MAX).map_err(no_start)?;
        let instance = Instance::new(&mut store, &self.module, &[]).map_err(no_start)?;
        let memory = instance.exports(&store).find_map(|export| export.into_memory());
        let memory = memory.ok_or(LoadError::Export { wanted: "its memory" })?;
        let judge = instance.get_typed_func(&store, JUDGE);
        let judge = judge.map_err(|_| LoadError::Export { wanted: "a function judge() -> i32" })?;
        let ended = match instance.get_func(&store, ENDED) {
            Some(function) => Some(function.typed(&store).map_err(|_| LoadError::Export {
                wanted: "a function ended(token: i64, is_good: i32) -> i32, as it exports one of that name",
            })?),
            None => None,
        };
        let header_at = match instance.get_export(&store, HEADER) {
            Some(Extern::Global(global)) => match global.get(&store) {
                Val::I32(at) => Some(at.cast_unsigned()),
                _ => None,
            },
            _ => None,
        };
        let header_at = header_at
            .ok_or(LoadError::Export { wanted: "sanwire_abi_1, the address of its header, as a global i32" })?;
        let decoded = self.decoded.as_ref().map(Decoded::start);
        Ok(Running { store, memory, judge, ended, decoded, header_at })
    }

    /// The fuel of a call.
    pub(crate) fn fuel(&self) -> u64 {
        self.limits.fuel
    }
}

impl Running {
    /// The address of the header.
    pub(crate) fn header_at(&self) -> u32 {
        self.header_at
    }

    /// Whether it can be told of the end of commands.
    pub(crate) fn hears_of_ends(&self) -> bool {
        self.ended.is_some()
    }

    pub(crate) fn memory(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        self.memory.data_mut(&mut self.store)
    }

    /// Asks about the command that is put into its memory first. Gives what it returns, and the fuel that was taken.
    ///
    /// # Errors
    /// It has none: then this instance is of no use any more.
    pub(crate) fn judge(&mut self, fuel: u64, put_command: impl FnOnce(&mut [u8])) -> (Result<u32, Trap>, u64) {
        let memory = self.memory.data_mut(&mut self.store);
        put_command(memory);
        if let Some(decoded) = &mut self.decoded {
            let (returned, left) = decoded.judge(memory, fuel);
            return (returned.map_err(named), fuel - left);
        }
        self.fill(fuel);
        let returned = self.judge.call(&mut self.store, ()).map_err(|error| trap(&error));
        (returned, fuel - self.left())
    }

    /// Tells it of the end of a command.
    ///
    /// # Errors
    /// As [`Running::judge`].
    pub(crate) fn ended(&mut self, token: u64, is_good: bool, fuel: u64) -> (Result<u32, Trap>, u64) {
        let Some(ended) = self.ended else { return (Ok(0), 0) };
        let memory = self.memory.data_mut(&mut self.store);
        let decoded = self.decoded.as_mut().and_then(|decoded| decoded.ended(memory, token, is_good, fuel));
        if let Some((returned, left)) = decoded {
            return (returned.map_err(named), fuel - left);
        }
        self.fill(fuel);
        let returned = ended.call(&mut self.store, (token, is_good.into())).map_err(|error| trap(&error));
        (returned, fuel - self.left())
    }

    fn fill(&mut self, fuel: u64) {
        // An error says that fuel is not counted; the configuration has it counted.
        let _ = self.store.set_fuel(fuel);
    }

    fn left(&self) -> u64 {
        self.store.get_fuel().unwrap_or(0)
    }
}

/// What programs have of WebAssembly: what compilers use by themselves, and nothing whose results could differ.
fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .compilation_mode(CompilationMode::Eager)
        .ignore_custom_sections(true)
        .allow_start_fn(false)
        .floats(false)
        // With several values a jump table of some KiB would be compiled to a hundred times as much.
        .wasm_multi_value(false)
        .wasm_multi_memory(false)
        .wasm_tail_call(false)
        .set_max_recursion_depth(limits::CALL_DEPTH_MAX)
        .set_min_stack_height(limits::STACK_MIN_BYTES)
        .set_max_stack_height(limits::STACK_MAX_BYTES)
        .set_max_cached_stacks(1);
    config
}

fn trap(error: &Error) -> Trap {
    error.as_trap_code().map_or(Trap::Other("the interpreter failed"), named)
}

fn named(code: TrapCode) -> Trap {
    match code {
        TrapCode::OutOfFuel => Trap::OutOfFuel,
        code => Trap::Other(code.trap_message()),
    }
}
