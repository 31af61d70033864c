//! What stands in the labels of arrays, and in what says which regions are being written: whatever was damaged, no label is read, or an array is refused, or it can be used and is found
//! again as it was.
#![no_main]

use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use libfuzzer_sys::fuzz_target;
use sanwire_array::{Arrangement, Array, Begin, Candidate, Label, Plan, assemble, create};
use sanwire_store::{Completion, KernelOp, Outcome, RamStore, Request, Started, Store};

/// Room for two labels and three MiB of data.
const MEMBER_BYTES: u64 = 5 << 20;
const LABEL_BYTES: usize = 16 << 10;
const CHECKSUM: std::ops::Range<usize> = 12..16;
const BLOCK: usize = 4096;
/// Where the blocks begin that say which regions are being written, and where the checksum of one stands in it.
const REGIONS_AT: u64 = 32 << 10;
const REGIONS_CHECKSUM: std::ops::Range<usize> = 8..12;

fn kernel(op: KernelOp) -> Completion {
    panic!("{op:?} is for the kernel")
}

fn drive(begin: Begin) -> Completion {
    sanwire_store::drive(begin, kernel)
}

fn run(store: &dyn Store, request: Request) -> Option<Vec<u8>> {
    match sanwire_store::run(store, request, kernel) {
        Ok(Outcome::Read(frame)) => Some(frame.to_vec()),
        Ok(_) => Some(Vec::new()),
        Err(_) => None,
    }
}

fn read(store: &dyn Store, offset_bytes: u64, length: usize) -> Option<Vec<u8>> {
    run(store, Request::Read { offset_bytes, buffer: vec![9; length].into() })
}

fn write(store: &dyn Store, offset_bytes: u64, data: Vec<u8>) -> bool {
    run(store, Request::Write { offset_bytes, data: data.into() }).is_some()
}

fn found(candidates: &[Candidate], run: u64) -> Option<Array> {
    assemble("data", candidates, false, run, &mut drive).ok()
}

/// Brings all members up to date, as far as that goes.
fn settle(array: &Array) {
    for _ in 0..64 {
        let mut has_begun = false;
        let end = sanwire_store::drive(
            |completions| match array.resync(completions) {
                Some(started) => {
                    has_begun = true;
                    started
                }
                None => Started::Done(Ok(Outcome::Done)),
            },
            kernel,
        );
        if !has_begun || end.is_err() {
            return;
        }
    }
}

/// What an array does that could be assembled: what it takes it shows again, also when it was assembled anew.
fn use_it(array: Array, candidates: &[Candidate]) {
    settle(&array);
    let end_bytes = array.geometry().length_bytes;
    let places = [0, end_bytes / 2 / BLOCK as u64 * BLOCK as u64, end_bytes.saturating_sub(BLOCK as u64)];
    let taken: Vec<_> = (1..)
        .zip(places)
        .filter(|(byte, at)| at + BLOCK as u64 <= end_bytes && write(&array, *at, vec![*byte; BLOCK]))
        .collect();
    let shown = |array: &Array| places.map(|at| read(array, at, BLOCK));
    let before = shown(&array);
    for (byte, at) in taken.iter().rev().take(1) {
        assert_eq!(read(&array, *at, BLOCK), Some(vec![*byte; BLOCK]), "what was written last");
    }
    drop(array);
    if before.iter().all(Option::is_some)
        && let Some(again) = found(candidates, 3)
    {
        settle(&again);
        assert_eq!(shown(&again), before);
    }
}

/// Changes what a member says of its regions, so that it is a block still.
fn change_regions(store: &dyn Store, at: usize, bytes: &[u8]) {
    let mut block = read(store, REGIONS_AT, BLOCK).expect("memory can be read");
    let from = at % BLOCK;
    let end = (from + bytes.len()).min(BLOCK);
    block[from..end].copy_from_slice(&bytes[..end - from]);
    block[REGIONS_CHECKSUM].fill(0);
    // CRC32C has 32 bits.
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &block) as u32;
    block[REGIONS_CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    write(store, REGIONS_AT, block);
}

fuzz_target!(|input: &[u8]| {
    let [kind, member, copy, first, second, bytes @ ..] = input else { return };
    let store = || Arc::new(RamStore::new(MEMBER_BYTES, 512)) as Arc<dyn Store>;
    let candidates: Vec<_> =
        (0..4).map(|number| Candidate { place: format!("ram:{number}"), store: store() }).collect();
    let arrangement = match kind % 2 {
        0 => Arrangement::Concat,
        _ => Arrangement::Stripe { chunk_bytes: 65_536 },
    };
    let copies = [1, 2, 4][usize::from(kind / 2) % 3];
    let plan = Plan { name: "data".to_owned(), arrangement, copies, force: false };
    let mut id = 0;
    let fresh = || {
        id += 1;
        [id; 16]
    };
    create(&plan, &candidates, fresh, &mut drive).expect("the members are fit");
    if kind / 6 % 2 == 1 {
        // Labels that tell of a run.
        drop(found(&candidates, 1));
    }
    if kind / 12 % 2 == 1 {
        let at = u16::from_le_bytes([*first, *second]);
        change_regions(&*candidates[usize::from(member % 4)].store, at.into(), bytes);
        let array = found(&candidates, 2).expect("the labels are whole, and so are the copies that count");
        return use_it(array, &candidates);
    }
    let changed = &*candidates[usize::from(member % 4)].store;
    // One of the copies at the beginning, or both.
    let at = [0, LABEL_BYTES as u64];
    for at in at.into_iter().enumerate().filter(|(number, _)| usize::from(copy % 3) != *number).map(|(_, at)| at) {
        let mut label = read(changed, at, LABEL_BYTES).expect("memory can be read");
        let from = usize::from(u16::from_le_bytes([*first, *second])) % 1200;
        let end = (from + bytes.len()).min(LABEL_BYTES);
        label[from..end].copy_from_slice(&bytes[..end - from]);
        label[CHECKSUM].fill(0);
        // CRC32C has 32 bits.
        let sum = checksum(CrcAlgorithm::Crc32Iscsi, &label) as u32;
        label[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
        if let Ok(Some(read)) = Label::decode(&label) {
            assert_eq!(Label::decode(&read.encode()), Ok(Some(read)), "it is read as it is written");
        }
        write(changed, at, label);
    }
    if let Some(array) = found(&candidates, 2) {
        use_it(array, &candidates);
    }
});
