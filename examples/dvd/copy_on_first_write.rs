//! Copy on first write: the first half of the device is a golden image that stays as it is; what is written to it goes to the second half.
//!
//! A page of 4 KiB that was written is read from its place in the second half, all others from the image. So the owner can take back everything
//! by a new, empty state. The page counts as written when its data is durable (the first write of a page is made one with FUA) and before
//! its writer hears of that (`ended` returns `KEEP`): at any moment a crash leaves the page of before or the new one.
//!
//! A program can send a command to one place, not to several, so each must be about one page: on Linux, `echo 4 >
//! /sys/block/DISK/queue/max_sectors_kb`, and a file system with blocks of 4 KiB. 8 KiB of state remember 65,536 pages: an image of 256 MiB.
#![no_std]

mod sanwire_dvd;

use sanwire_dvd::*;

const PAGE_BYTES: u64 = 4096;

/// A bit for each page: it is in the second half.
static MOVED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

#[export_name = "sanwire_abi_1"]
pub static HEADER: Header =
    Header::judging(READ | WRITE | DISCARD | COPY_SOURCE | COPY_TARGET).with_state(&MOVED);

#[no_mangle]
pub extern "C" fn judge() -> u32 {
    // MANAGEMENT together with WRITE is SANITIZE, which would take the image.
    if COMMAND.needs(DISCARD | MANAGEMENT) {
        return no_access();
    }
    if COMMAND.is_flush() || COMMAND.blocks() == 0 {
        return ALLOW;
    }
    let half = COMMAND.capacity_blocks() / 2;
    let page_blocks = PAGE_BYTES / u64::from(COMMAND.block_bytes());
    let (lba, blocks) = (COMMAND.lba(), COMMAND.blocks());
    let page = lba / page_blocks;
    let is_in_page = lba + blocks <= (page + 1) * page_blocks && (page + 1) * page_blocks <= half;
    if !is_in_page || page >= 64 * MOVED.len() as u64 {
        return no_access();
    }
    if MOVED[word(page)].load(Relaxed) & bit(page) != 0 {
        return redirect(lba + half);
    }
    if !COMMAND.needs(WRITE | COPY_TARGET) {
        return ALLOW;
    }
    // The rest of the page is not copied, so the first write must be a whole one: WRITE (10), (12) or (16).
    if !matches!(COMMAND.operation_code(), 0x2a | 0xaa | 0x8a) || blocks != page_blocks || COMMAND.needs(COPY_TARGET) {
        return no_access();
    }
    rewrite(&write_16_fua(lba + half, blocks as u32)) | tell_end(page)
}

#[no_mangle]
pub extern "C" fn ended(page: u64, is_good: u32) -> u32 {
    if is_good == 0 {
        return 0;
    }
    let moved = &MOVED[word(page)];
    moved.store(moved.load(Relaxed) | bit(page), Relaxed);
    KEEP
}

fn word(page: u64) -> usize {
    (page / 64) as usize
}

fn bit(page: u64) -> u64 {
    1 << (page % 64)
}

/// WRITE (16), with the bit that has the data durable before the answer.
fn write_16_fua(lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x8a, 0x08);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// ILLEGAL REQUEST, ACCESS DENIED - NO ACCESS RIGHTS.
fn no_access() -> u32 {
    refuse(0x5, 0x20, 0x02)
}
