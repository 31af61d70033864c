//! What each example lets through.

use std::sync::Arc;

use sanwire_device::CommandProgram;
use sanwire_scsi::{Cdb, SenseKey};

use crate::commands::Answer::{Allowed, Deferred, Redirected, Refused, Rewritten};
use crate::commands::*;
use crate::compilers::module;

#[test]
fn write_once() {
    let Some(module) = module("write_once.rs") else { return };
    let program = load(&module, &Arc::default());
    check(
        &program,
        &[
            (read(0, 8), Allowed),
            (write(60, 8), Allowed),
            (write(60, 1), WRITE_PROTECTED),
            (write(0, 61), WRITE_PROTECTED),
            (write(67, 2), WRITE_PROTECTED),
            (write(0, 60), Allowed),
            (write(68, 1000), Allowed),
            (write(1067, 1), WRITE_PROTECTED),
            (write(1068, 1), Allowed),
            (copied(false, 1068, 1), WRITE_PROTECTED),
            (copied(false, 1069, 1), Allowed),
            (copied(true, 0, 8), Allowed),
            (compare_and_write(0, 1), WRITE_PROTECTED),
            (write(5, 0), Allowed),
            (flush(), Allowed),
            (unmap(&[(3000, 1)]), WRITE_PROTECTED),
            (sanitize(), WRITE_PROTECTED),
            (write(65_535, 2), WRITE_PROTECTED),
            (write(65_535, 1), Allowed),
        ],
    );
    assert!(judgement(&program, &write(2000, 1)).1.keep.is_some(), "it is durable first");
    assert!(judgement(&program, &flush()).1.keep.is_none());
}

#[test]
fn append_only() {
    let Some(module) = module("append_only.rs") else { return };
    let program = load(&module, &Arc::default());
    let elsewhere = Refused(SenseKey::IllegalRequest, 0x21, 0x04);
    check(
        &program,
        &[
            (read(0, 8), Allowed),
            (write(8, 8), elsewhere),
            (write(0, 8), Allowed),
            (write(0, 8), elsewhere),
            (write(7, 8), elsewhere),
            (copied(false, 8, 8), Allowed),
            (write(0, 0), Allowed),
            (flush(), Allowed),
            (unmap(&[(0, 1)]), elsewhere),
            (unmap(&[(16, 1)]), elsewhere),
            (sanitize(), elsewhere),
        ],
    );
    // One that fails gives its place back, if none came after it.
    let token = |lba| judgement(&program, &write(lba, 4)).1.end.unwrap();
    let first = token(16);
    assert_eq!(program.ended(first, false), None);
    let again = token(16);
    let next = token(20);
    program.ended(again, false);
    check(&program, &[(write(16, 4), elsewhere)]);
    program.ended(next, true);
    check(&program, &[(write(24, 1), Allowed)]);
}

#[test]
fn copy_on_first_write() {
    let Some(module) = module("copy_on_first_write.rs") else { return };
    let program = load(&module, &Arc::default());
    let half = CAPACITY_BLOCKS / 2;
    let write_fua = |lba: u64| {
        let [high, low] = (lba as u16).to_be_bytes();
        Rewritten(Cdb::from([0x8a, 0x08, 0, 0, 0, 0, 0, 0, high, low, 0, 0, 0, 8, 0, 0]))
    };
    check(
        &program,
        &[
            (read(8, 8), Allowed),
            (read(9, 1), Allowed),
            (read(8, 9), NO_ACCESS),
            (read(half, 1), NO_ACCESS),
            (write(half, 8), NO_ACCESS),
            (write(8, 7), NO_ACCESS),
            (write(12, 8), NO_ACCESS),
            (compare_and_write(8, 8), NO_ACCESS),
            (copied(false, 8, 8), NO_ACCESS),
            (copied(true, 8, 8), Allowed),
            (unmap(&[(8, 8)]), NO_ACCESS),
            (sanitize(), NO_ACCESS),
            (flush(), Allowed),
            (write(8, 8), write_fua(half + 8)),
            (read(8, 8), Allowed),
        ],
    );
    // Until the first write has ended it is the image that is read.
    let page = judgement(&program, &write(8, 8)).1.end.unwrap();
    assert_eq!(program.ended(page, false), None);
    check(&program, &[(read(8, 8), Allowed), (write(8, 8), write_fua(half + 8))]);
    assert!(program.ended(page, true).is_some(), "and its writer waits until that is durable");
    check(
        &program,
        &[
            (read(8, 8), Redirected(half + 8)),
            (read(12, 4), Redirected(half + 12)),
            (write(9, 1), Redirected(half + 9)),
            (copied(false, 8, 8), Redirected(half + 8)),
            (compare_and_write(9, 1), Redirected(half + 9)),
            (read(0, 8), Allowed),
            (read(16, 8), Allowed),
        ],
    );
}

#[test]
fn rate_per_principal() {
    let Some(module) = module("rate_per_principal.c") else { return };
    let program = load(&module, &Arc::default());
    // 2048 blocks are 1 MiB: 100 ms of the rate, and the burst is as much.
    check(
        &program,
        &[
            (write(0, 2048).by(1), Allowed),
            (read(0, 2048).by(1), Allowed),
            (read(0, 1).by(1), Deferred(101)),
            (write(0, 2048).by(2), Allowed),
            (flush().by(1), Allowed),
            (read(0, 1).by(1).after_ms(99), Deferred(2)),
            (read(0, 2048).by(1).after_ms(101), Allowed),
            (read(0, 8).by(256), Allowed),
            (read(0, 8).by(1).after_ms(60_000), Allowed),
        ],
    );
}

#[test]
fn partition_guard() {
    let Some(module) = module("partition_guard.c") else { return };
    let program = load(&module, &Arc::default());
    let record = |code: u8, table: u8| {
        let mut record = [code; 512];
        record[446..510].fill(table);
        record[510..].copy_from_slice(&[0x55, 0xaa]);
        record
    };
    check(
        &program,
        &[
            (write(0, 8).with(&[0; 512]), Allowed),
            (write(0, 8).with(&record(1, 7)), Allowed),
            (write(0, 1).with(&record(2, 7)), Allowed),
            (write(0, 1).with(&record(1, 8)), WRITE_PROTECTED),
            (write(0, 1).with(&[0; 512]), WRITE_PROTECTED),
            (write(0, 8).with(&record(1, 7)[..500]), WRITE_PROTECTED),
            (write(1, 8).with(&[0; 512]), Allowed),
            (compare_and_write(0, 1).with(&record(1, 7)), WRITE_PROTECTED),
            (copied(false, 0, 8), WRITE_PROTECTED),
            (copied(false, 8, 8), Allowed),
            (unmap(&[(8, 8), (0, 1)]), WRITE_PROTECTED),
            (unmap(&[(8, 8), (1, 1)]), Allowed),
            (sanitize(), WRITE_PROTECTED),
            (flush(), Allowed),
        ],
    );
}

#[test]
fn read_only_by_hour() {
    let program = load(&module("read_only_by_hour.wat").unwrap(), &Arc::default());
    let hour = |asked: Asked, hour: u64| asked.at(1_780_272_000_000 + hour * 3_600_000);
    check(
        &program,
        &[
            (hour(write(0, 1), 7).after_ms(3_599_999), Allowed),
            (hour(write(0, 1), 8), WRITE_PROTECTED),
            (hour(read(0, 1), 8), Allowed),
            (hour(flush(), 12), Allowed),
            (hour(unmap(&[(0, 1)]), 17), WRITE_PROTECTED),
            (hour(copied(false, 0, 1), 17).after_ms(3_599_999), WRITE_PROTECTED),
            (hour(write(0, 1), 18), Allowed),
            (hour(write(0, 1), 0), Allowed),
        ],
    );
}

#[test]
fn one_writer() {
    let program = load(&module("one_writer.wat").unwrap(), &Arc::default());
    check(
        &program,
        &[
            (read(0, 1).by(2), Allowed),
            (write(0, 1).by(0), Allowed),
            (write(0, 1).by(1).after_ms(29_999), WRITE_PROTECTED),
            (write(0, 1).by(0).after_ms(29_999), Allowed),
            (write(0, 1).by(1).after_ms(30_000), WRITE_PROTECTED),
            (write(0, 1).by(1).after_ms(59_999), Allowed),
            (write(0, 1).by(0).after_ms(60_000), WRITE_PROTECTED),
        ],
    );
}
