//! Write once: each block can be written one time, and reads as it was written ever after.
//!
//! The program remembers a bit for each block that it has let anybody write. The bit is durable before the write begins (`KEEP`): were it
//! kept later, a server that crashes in between would let the block be written again. What a crash leaves is a block that counts as written,
//! though its write never was: as on a disc that is burnt, that block is lost, and nothing that was written is.
//!
//! 8 KiB of state remember 65,536 blocks, which is 32 MiB of 512-byte blocks; up to 64 KiB can be declared.
#![no_std]

mod sanwire_dvd;

use sanwire_dvd::*;

/// A bit for each block.
static WRITTEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

#[export_name = "sanwire_abi_1"]
pub static HEADER: Header = Header::judging(WRITE | DISCARD | COPY_TARGET).with_state(&WRITTEN);

#[no_mangle]
pub extern "C" fn judge() -> u32 {
    if COMMAND.is_flush() {
        return ALLOW;
    }
    let (first, end) = (COMMAND.lba(), COMMAND.lba() + COMMAND.blocks());
    // What is discarded, or sanitized (MANAGEMENT), is not there any more; and what cannot be remembered is not written.
    if COMMAND.needs(DISCARD | MANAGEMENT) || end > 64 * WRITTEN.len() as u64 {
        return write_protected();
    }
    // All words are looked at before the first is changed: a write is let through whole or not at all.
    let words = || (first / 64..end.div_ceil(64)).map(|word| (&WRITTEN[word as usize], mask(word, first, end)));
    if words().any(|(word, mask)| word.load(Relaxed) & mask != 0) {
        return write_protected();
    }
    words().for_each(|(word, mask)| word.store(word.load(Relaxed) | mask, Relaxed));
    ALLOW | KEEP
}

/// The bits in this word of the blocks from `first` to before `end`.
fn mask(word: u64, first: u64, end: u64) -> u64 {
    let from = first.saturating_sub(64 * word);
    let to = (end - 64 * word).min(64);
    (u64::MAX << from) & (u64::MAX >> (64 - to))
}

/// DATA PROTECT, WRITE PROTECTED.
fn write_protected() -> u32 {
    refuse(0x7, 0x27, 0x00)
}
