//! Why a program cannot be loaded.

use std::io;

/// Why a module is none of a program, or cannot be one now. The text says what to do; whoever shows it says before which file it is about.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// More bytes than are taken.
    #[error(
        "the module has {bytes} bytes, and {max_bytes} are taken: leave names and debug information out of it (rustc -C strip=symbols, \
         wasm-ld --strip-all)"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest one.
        max_bytes: usize,
    },
    /// Not the binary format of WebAssembly.
    #[error("{}", if *is_text { TEXT } else { FOREIGN })]
    NoModule {
        /// It looks like the text format.
        is_text: bool,
    },
    /// A component, which holds modules.
    #[error("this is a WebAssembly component: a program is a core module (rustc --target wasm32-unknown-unknown)")]
    Component,
    /// It breaks a rule of WebAssembly, or uses what programs do not have.
    #[error(
        "the module is not valid: {reason}; a program uses WebAssembly without floating point, vectors, threads, exceptions, tail \
         calls and a second memory"
    )]
    Invalid {
        /// The words of the parser or compiler, with the place.
        reason: String,
    },
    /// More of something than a program needs.
    #[error("the module has {count} {what}, and a program has at most {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
        /// And how many there may be.
        max: u64,
    },
    /// It wants something from the server.
    #[error(
        "the module imports {name} from {module}, but a program is given nothing to call: define that, or link what defines it \
         (with -nostdlib nothing of a C library is linked)"
    )]
    Import {
        /// Whence.
        module: String,
        /// What.
        name: String,
    },
    /// A function that would run before any command came.
    #[error(
        "the module has a start function, and nothing runs before the first command: set variables where they are declared"
    )]
    Start,
    /// Nothing to share commands in.
    #[error("the module has no memory: a program declares one, in which it is told of commands")]
    NoMemory,
    /// Too much memory.
    #[error(
        "the module wants {bytes} bytes of memory at the start, and may have {max_bytes}: compilers reserve 1 MiB for the stack, unless \
         they are told otherwise (-zstack-size=8192 for the linker)"
    )]
    Memory {
        /// So much.
        bytes: u64,
        /// And so much is given.
        max_bytes: usize,
    },
    /// A memory that the server cannot be asked for.
    #[error(
        "no program may have {bytes} bytes of memory: it has whole pages of 65536 bytes, at most {max_bytes} bytes in all"
    )]
    MemoryLimit {
        /// So much is allowed by [`crate::Limits`].
        bytes: usize,
        /// And so much is possible.
        max_bytes: usize,
    },
    /// An export is missing, or another kind of thing.
    #[error("the module does not export {wanted}: see the ABI in docs/dvd-programs.md")]
    Export {
        /// What it should be.
        wanted: &'static str,
    },
    /// A field of the header is wrong.
    #[error("the header (sanwire_abi_1) is wrong at byte {at}: {reason}")]
    Header {
        /// The byte of the header at which the field begins.
        at: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// A segment of data or of the table does not fit, or this host is short of memory.
    #[error(
        "the module cannot be started: a segment of its memory or of its table ends outside of that, or this host is short of memory"
    )]
    NoStart,
    /// It declares a state, and there is no place for it.
    #[error("the program has a state of {bytes} bytes, and no place is given where it is to be kept")]
    NoKeeper {
        /// The length of its state.
        bytes: u32,
    },
    /// Its state cannot be read.
    #[error(
        "the state that is kept in {place} cannot be read: {error}; make it readable, or remove it to let the program begin anew"
    )]
    StateUnreadable {
        /// Where it is.
        place: String,
        /// Why.
        error: io::Error,
    },
    /// What was read is no state.
    #[error(
        "what is kept in {place} is no state of a program, or damaged: restore it, or remove it to let the program begin anew"
    )]
    StateDamaged {
        /// Where it is.
        place: String,
    },
    /// The state of another program.
    #[error(
        "the state that is kept in {place} has {kept_bytes} bytes, and the program declares {wanted_bytes}: it is of another program; give \
         the program that it belongs to, or remove it to let this one begin anew"
    )]
    StateLength {
        /// Where it is.
        place: String,
        /// So long is it.
        kept_bytes: usize,
        /// So long should it be.
        wanted_bytes: u32,
    },
}

const TEXT: &str = "this is WebAssembly in text form: make a module of it (wat2wasm of the package wabt)";
const FOREIGN: &str = "this is no WebAssembly module: it does not begin with 00 61 73 6d";

impl From<wasmparser::BinaryReaderError> for LoadError {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        LoadError::Invalid { reason: format!("{} at byte {}", error.message(), error.offset()) }
    }
}
