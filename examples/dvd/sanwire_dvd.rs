//! What a program in Rust shares with the server: version 1 of the ABI, as docs/dvd-programs.md explains it.
//!
//! All of it is made of atomics, because the server reads and writes it while the program does not run, of which the compiler knows
//! nothing. A program has one thread, so they cost no more than plain numbers, and no `unsafe` is needed.
#![allow(dead_code, reason = "no program needs all of it")]

pub use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

// Classes of operations: what a command needs, and what a program wants to judge.
pub const INFORMATION: u32 = 0x01;
pub const READ: u32 = 0x02;
pub const WRITE: u32 = 0x04;
pub const DISCARD: u32 = 0x08;
pub const MANAGEMENT: u32 = 0x10;
pub const RESERVATIONS: u32 = 0x20;
pub const COPY_SOURCE: u32 = 0x40;
pub const COPY_TARGET: u32 = 0x80;

/// The command is executed as it is.
pub const ALLOW: u32 = 1;
const REFUSE: u32 = 2;
const REDIRECT: u32 = 3;
const REWRITE: u32 = 4;
const DEFER: u32 = 5;
/// With a verdict: the state must be durable before the command begins. Returned by `ended`: before it is answered.
pub const KEEP: u32 = 0x100;
const TELL_END: u32 = 0x200;

/// What the command is. The server fills it in before it calls `judge`.
#[repr(C, align(8))]
pub struct Command {
    classes: AtomicU32,
    cdb_bytes: AtomicU32,
    cdb: [AtomicU8; 32],
    lba: AtomicU64,
    blocks: AtomicU64,
    capacity_blocks: AtomicU64,
    block_bytes: AtomicU32,
    range_count: AtomicU32,
    ranges_given: AtomicU32,
    data_given: AtomicU32,
    unix_ms: AtomicU64,
    waited_ms: AtomicU32,
    principal_number: AtomicU32,
    principal_kind: AtomicU32,
    principal_bytes: AtomicU32,
    reserved: [AtomicU64; 3],
    principal: [AtomicU8; 256],
}

/// What is to be done with it. The server fills it with zeroes before it calls `judge`.
#[repr(C, align(8))]
pub struct Answer {
    sense: [AtomicU8; 4],
    delay_ms: AtomicU32,
    lba: AtomicU64,
    token: AtomicU64,
    cdb_bytes: AtomicU32,
    reserved: AtomicU32,
    cdb: [AtomicU8; 32],
}

/// Where all this is. A program exports one as `sanwire_abi_1`.
#[repr(C)]
pub struct Header {
    command: &'static Command,
    answer: &'static Answer,
    ranges: Option<&'static AtomicU64>,
    ranges_max: u32,
    data: Option<&'static AtomicU8>,
    data_max_bytes: u32,
    state: Option<&'static AtomicU64>,
    state_bytes: u32,
    classes: u32,
    reserved: [u32; 3],
}

// A number that is zero says the same as an atomic that is; the initializers below are nothing but zeroes.
#[allow(clippy::declare_interior_mutable_const, reason = "each static has its own")]
const ZERO_8: AtomicU8 = AtomicU8::new(0);
#[allow(clippy::declare_interior_mutable_const, reason = "each static has its own")]
const ZERO_32: AtomicU32 = AtomicU32::new(0);
#[allow(clippy::declare_interior_mutable_const, reason = "each static has its own")]
const ZERO_64: AtomicU64 = AtomicU64::new(0);

/// The command that is to be judged.
pub static COMMAND: Command = Command {
    classes: ZERO_32,
    cdb_bytes: ZERO_32,
    cdb: [ZERO_8; 32],
    lba: ZERO_64,
    blocks: ZERO_64,
    capacity_blocks: ZERO_64,
    block_bytes: ZERO_32,
    range_count: ZERO_32,
    ranges_given: ZERO_32,
    data_given: ZERO_32,
    unix_ms: ZERO_64,
    waited_ms: ZERO_32,
    principal_number: ZERO_32,
    principal_kind: ZERO_32,
    principal_bytes: ZERO_32,
    reserved: [ZERO_64; 3],
    principal: [ZERO_8; 256],
};
static ANSWER: Answer = Answer {
    sense: [ZERO_8; 4],
    delay_ms: ZERO_32,
    lba: ZERO_64,
    token: ZERO_64,
    cdb_bytes: ZERO_32,
    reserved: ZERO_32,
    cdb: [ZERO_8; 32],
};

impl Header {
    /// Of a program that judges commands of these classes. All others are executed without a call.
    pub const fn judging(classes: u32) -> Header {
        Header {
            command: &COMMAND,
            answer: &ANSWER,
            ranges: None,
            ranges_max: 0,
            data: None,
            data_max_bytes: 0,
            state: None,
            state_bytes: 0,
            classes,
            reserved: [0; 3],
        }
    }

    /// These words are kept through restarts of the server.
    pub const fn with_state<const WORDS: usize>(mut self, state: &'static [AtomicU64; WORDS]) -> Header {
        self.state = Some(&state[0]);
        self.state_bytes = 8 * WORDS as u32;
        self
    }

    /// The first bytes of the data that comes with a command are put here.
    pub const fn with_data<const BYTES: usize>(mut self, data: &'static [AtomicU8; BYTES]) -> Header {
        self.data = Some(&data[0]);
        self.data_max_bytes = BYTES as u32;
        self
    }
}

impl Command {
    /// Whether it needs one of these classes.
    pub fn needs(&self, classes: u32) -> bool {
        self.classes.load(Relaxed) & classes != 0
    }

    /// The operation code: byte 0 of the CDB.
    pub fn operation_code(&self) -> u8 {
        self.cdb[0].load(Relaxed)
    }

    /// Whether it makes durable what was written, and writes nothing itself: SYNCHRONIZE CACHE (10) and (16).
    pub fn is_flush(&self) -> bool {
        matches!(self.operation_code(), 0x35 | 0x91)
    }

    /// The first block that it is about.
    pub fn lba(&self) -> u64 {
        self.lba.load(Relaxed)
    }

    /// So many blocks it is about; of a command with several ranges, from the first to the last of them all.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Relaxed)
    }

    /// Blocks of the device.
    pub fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks.load(Relaxed)
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes.load(Relaxed)
    }
}

/// The command ends with this sense data: sense key, additional sense code and its qualifier.
pub fn refuse(key: u8, code: u8, qualifier: u8) -> u32 {
    for (field, value) in ANSWER.sense.iter().zip([key, code, qualifier]) {
        field.store(value, Relaxed);
    }
    REFUSE
}

/// The command is executed at another LBA.
pub fn redirect(lba: u64) -> u32 {
    ANSWER.lba.store(lba, Relaxed);
    REDIRECT
}

/// This command is executed in its place.
pub fn rewrite(cdb: &[u8]) -> u32 {
    for (field, value) in ANSWER.cdb.iter().zip(cdb) {
        field.store(*value, Relaxed);
    }
    ANSWER.cdb_bytes.store(cdb.len() as u32, Relaxed);
    REWRITE
}

/// The program is asked about the command again after so many milliseconds.
pub fn defer(delay_ms: u32) -> u32 {
    ANSWER.delay_ms.store(delay_ms, Relaxed);
    DEFER
}

/// With a verdict: `ended` is called with this number when the command has ended.
pub fn tell_end(token: u64) -> u32 {
    ANSWER.token.store(token, Relaxed);
    TELL_END
}

/// A program that panics traps: its command is refused, and it begins anew.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
