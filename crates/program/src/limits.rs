//! What a program may take: of memory, of time, and of the server while its module is read.

/// The limits of one program. Those that are not here are the same for all programs: they stand below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest module, in bytes. A longer one is refused before it is looked at.
    pub module_bytes: usize,
    /// The most memory of a running program, in bytes: whole pages of 64 KiB, from 64 KiB to [`Limits::MEMORY_MAX_BYTES`].
    pub memory_bytes: usize,
    /// The fuel of one call. An instruction takes about one unit, which is about a nanosecond; 64 bytes that are copied or filled
    /// take one as well.
    pub fuel: u64,
}

impl Limits {
    /// A page of WebAssembly memory, in bytes.
    pub const PAGE_BYTES: usize = 64 << 10;
    /// The most memory that a program may be given, in bytes.
    pub const MEMORY_MAX_BYTES: usize = 1 << 20;
}

impl Default for Limits {
    fn default() -> Self {
        Limits { module_bytes: 1 << 20, memory_bytes: Limits::MEMORY_MAX_BYTES, fuel: 100_000 }
    }
}

/// Types of functions in a module.
pub(crate) const TYPES_MAX: u64 = 1_000;
/// Parameters, and results, of a function or block.
pub(crate) const VALUES_MAX: u64 = 32;
/// Functions in a module.
pub(crate) const FUNCTIONS_MAX: u64 = 4_000;
/// Bytes of one function.
pub(crate) const FUNCTION_MAX_BYTES: u64 = 128 << 10;
/// Local variables of one function, however few bytes they take in the module.
pub(crate) const LOCALS_MAX: u64 = 1_000;
/// Tables, of functions to be called by their numbers.
pub(crate) const TABLES_MAX: u64 = 1;
/// Elements of a table: at first, and when it has grown.
pub(crate) const TABLE_ELEMENTS_MAX: u64 = 4_096;
/// Segments that fill a table.
pub(crate) const ELEMENT_SEGMENTS_MAX: u64 = 1_000;
/// Segments that fill the memory.
pub(crate) const DATA_SEGMENTS_MAX: u64 = 1_000;
/// Global variables.
pub(crate) const GLOBALS_MAX: u64 = 1_000;
/// What a module exports.
pub(crate) const EXPORTS_MAX: u64 = 1_000;

/// Calls within calls, while a program runs.
pub(crate) const CALL_DEPTH_MAX: usize = 256;
/// What these calls keep in local variables, in bytes. It is no part of the program's memory.
pub(crate) const STACK_MAX_BYTES: usize = 256 << 10;
/// The same when a program is loaded, in bytes: more is taken when it is needed.
pub(crate) const STACK_MIN_BYTES: usize = 4 << 10;
