//! Version 1 of what a program and the server tell each other: three structures in the program's memory. All numbers have their lowest
//! byte first. `docs/dvd-programs.md` has the same as tables, for those who write programs.

mod answer;
mod command;
mod header;

pub use answer::Nonsense;
pub(crate) use answer::{Answer, ended, is_allowance};
pub(crate) use command::{Principals, write_command};
pub(crate) use header::Header;

/// Bytes of the structure that says what the command is.
pub(crate) const COMMAND_BYTES: u32 = 384;
/// Bytes of the structure in which the program says what is to be done.
pub(crate) const ANSWER_BYTES: u32 = 64;
/// Bytes of one range of blocks.
pub(crate) const RANGE_BYTES: u32 = 16;
/// Ranges of a command that a program can be told of, at most.
pub(crate) const RANGES_MAX: u32 = 256;
/// Bytes of the data of a command that a program can be told of, at most.
pub(crate) const DATA_MAX_BYTES: u32 = 4096;
/// Bytes of a state that is kept, at most.
pub(crate) const STATE_MAX_BYTES: u32 = 64 << 10;

/// A place in the program's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) at: u32,
    pub(crate) bytes: u32,
}

impl Place {
    /// The first byte behind it. The lengths are bounded, so it cannot overflow.
    fn end(self) -> u64 {
        u64::from(self.at) + u64::from(self.bytes)
    }

    fn overlaps(self, other: Place) -> bool {
        self.bytes > 0 && other.bytes > 0 && u64::from(self.at) < other.end() && u64::from(other.at) < self.end()
    }

    /// What is in it. It lies within the memory as that was when the program was loaded, and memory never shrinks.
    pub(crate) fn of(self, memory: &[u8]) -> &[u8] {
        &memory[self.at as usize..self.end() as usize]
    }

    pub(crate) fn of_mut(self, memory: &mut [u8]) -> &mut [u8] {
        &mut memory[self.at as usize..self.end() as usize]
    }
}

/// The number of four bytes at `at`.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().copied().map_or(0, u32::from_le_bytes)
}

/// The number of eight bytes at `at`.
fn long_number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().copied().map_or(0, u64::from_le_bytes)
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}
