//! A log that only grows: a write is let through where the one before ended, and nowhere else.
//!
//! A write elsewhere ends with ILLEGAL REQUEST, UNALIGNED WRITE COMMAND, as on a zoned disk (ZBC) whose write pointer it misses. The end of
//! the log is durable before the write begins (`KEEP`), so no crash lets anything be overwritten; it may leave blocks at the end that were
//! never written, whose writer has had no answer.
#![no_std]

mod sanwire_dvd;

use sanwire_dvd::*;

/// Where the next write begins, in blocks.
static END: [AtomicU64; 1] = [const { AtomicU64::new(0) }; 1];
/// Where the last one began.
static LAST: AtomicU64 = AtomicU64::new(0);

#[export_name = "sanwire_abi_1"]
pub static HEADER: Header = Header::judging(WRITE | DISCARD | COPY_TARGET).with_state(&END);

#[no_mangle]
pub extern "C" fn judge() -> u32 {
    if COMMAND.is_flush() {
        return ALLOW;
    }
    let end = END[0].load(Relaxed);
    // MANAGEMENT together with WRITE is SANITIZE.
    let is_append = COMMAND.lba() == end || COMMAND.blocks() == 0;
    if COMMAND.needs(DISCARD | MANAGEMENT) || !is_append {
        return refuse(0x5, 0x21, 0x04);
    }
    let new_end = end + COMMAND.blocks();
    LAST.store(end, Relaxed);
    END[0].store(new_end, Relaxed);
    ALLOW | KEEP | tell_end(new_end)
}

/// A write that failed gives its place back, if none came after it: its writer may try it again.
#[no_mangle]
pub extern "C" fn ended(token: u64, is_good: u32) -> u32 {
    if is_good == 0 && END[0].load(Relaxed) == token {
        END[0].store(LAST.load(Relaxed), Relaxed);
    }
    0
}
