//! A token stands for what was there when it was made, or for nothing.

use sanwire_scsi::{Extent, build, unmap_parameters};
use sanwire_store::ErrorKind;

use super::*;
use crate::WriteHold;
use crate::testing::{Driver, OTHER, Op};
use crate::tests::copy::{A, list, run, segment};

fn on(unit: u16, cdb: sanwire_scsi::Cdb, data: &[u8]) -> Task {
    Task { lun: Some(lun(unit)), ..task(cdb, data) }
}

fn write(unit: u16, lba: u64, byte: u8) -> Task {
    on(unit, build::write_16(Extent { lba, blocks: 1 }, false), &[byte; BLOCK])
}

fn swap(lba: u64, from: u8, to: u8) -> Task {
    let mut cdb = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    on(0, cdb.into(), &[[from; BLOCK], [to; BLOCK]].concat())
}

#[test]
fn whatever_changes_its_blocks_ends_a_token() {
    let unmap = unmap_parameters(&[Extent { lba: 9, blocks: 1 }]).unwrap();
    let same = build::write_same_16(Extent { lba: 0, blocks: 9 }, false, false);
    for task in [
        write(0, 8, 0x99),
        write(0, 11, 0x99),
        on(0, same, &[0; BLOCK]),
        on(0, build::unmap(unmap.len() as u16), &unmap),
        swap(10, content(10), 0x99),
        on(0, [0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0].into(), &[]),
    ] {
        let (world, second) = world();
        let token = world.token(NEXUS, 0, &[(8, 4)]);
        let shown = format!("{:?}", task.cdb);
        world.tell(OTHER, task).unwrap();
        assert_eq!(world.use_token(NEXUS, &token, 1, (0, 4)), Err(CANCELLED), "{shown}");
        assert_eq!(second.take_log(), []);
    }
    let (world, _) = world();
    let token = world.token(NEXUS, 0, &[(8, 4)]);
    run(&world, &list(1, &[segment(A, A, 1, 0, 11)])).unwrap();
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 4)), Err(CANCELLED), "EXTENDED COPY");
    let token = world.token(NEXUS, 0, &[(8, 4)]);
    world.units.get(lun(0)).unwrap().content_replaced();
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 4)), Err(CANCELLED), "a rollback");
}

#[test]
fn what_changes_nothing_of_it_leaves_a_token_as_it_is() {
    let (world, second) = world();
    let token = world.token(NEXUS, 0, &[(8, 4), (20, 1)]);
    for task in
        [write(0, 7, 1), write(0, 12, 1), write(1, 8, 1), on(0, build::read_16(Extent { lba: 8, blocks: 4 }), &[])]
    {
        world.tell(OTHER, task).unwrap();
    }
    assert!(world.tell(OTHER, swap(8, 0x77, 0x99)).is_err(), "a miscompare writes nothing");
    drop(WriteHold::begin(world.units.get(lun(0)).unwrap().state()));
    let other = world.token(OTHER, 0, &[(8, 4)]);
    assert!(world.units.logical_unit_reset(lun(0)));
    world.use_token(NEXUS, &token, 1, (0, 5)).unwrap();
    assert_eq!(held(&second, 0, 5), [9, 10, 11, 12, 21]);
    world.use_token(OTHER, &other, 1, (0, 4)).unwrap();
}

/// Two pieces of a copy, between which the second one's source is written.
#[test]
fn a_copy_writes_nothing_that_was_changed_while_it_went_on() {
    let (world, second) = world();
    (0..1024).for_each(|block| set(&world.store, block, 0x11));
    let token = world.token(NEXUS, 0, &[(0, 1024)]);
    let begun = world.begin(NEXUS, write_using(&token, (0, 1), 1, (0, &[(0, 1024)])));
    // It asks which blocks have space, reads the first piece, and writes it.
    let read = step(&world, step(&world, step(&world, begun)));
    world.tell(OTHER, write(0, 1000, 0x99)).unwrap();
    let Progress::Done(reply) = step(&world, read) else { panic!("its data is not what the token stands for") };
    assert_eq!(told(reply), Err(CANCELLED));
    assert_eq!((held(&second, 0, 512), held(&second, 512, 512)), (vec![0x11; 512], vec![0; 512]));
    let told = world.tell(NEXUS, ask(INFORMATION, 1, 1, 1024)).unwrap();
    assert_eq!((told[5], told[12], &told[20..24]), (0x02, 0x02, &[0, 0, 2, 0][..]), "512 blocks were written");
    assert_eq!(told[32 + 12..32 + 14], [0x23, 0x08]);
}

#[test]
fn a_token_is_made_when_what_is_being_written_has_been() {
    let (world, second) = world();
    let Progress::Store(writing, request) = world.begin(OTHER, write(0, 3, 0x99)) else { panic!("it writes") };
    let driver = Driver::new();
    let waiting = driver.wait(&world, world.begin(NEXUS, populate(5, 0, &[(2, 3)])));
    // Who writes there comes after it.
    let behind = driver.wait(&world, world.begin(OTHER, write(0, 2, 0x77)));
    let completion = blocking::run(&**writing.store(), request);
    assert!(matches!(resume(&world, writing, completion), Progress::Done(_)));
    let reply = world.finish(world.units.retry(waiting, &world.memory));
    assert_eq!(told(reply), Ok(vec![]));
    let told = world.tell(NEXUS, ask(INFORMATION, 5, 0, 1024)).unwrap();
    let token: Bytes = told[38..].try_into().unwrap();
    world.use_token(NEXUS, &token, 1, (0, 3)).unwrap();
    assert_eq!(held(&second, 0, 3), [content(2), 0x99, content(4)]);
    assert_eq!(world.finish(world.units.retry(behind, &world.memory)).status, Status::Good);
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 3)), Err(CANCELLED), "the write that waited");
}

#[test]
fn writes_elsewhere_do_not_wait_for_a_token_for_longer_than_it_takes() {
    let (world, _) = world();
    let Progress::Store(making, read) = world.begin(NEXUS, populate(5, 0, &[(2, 1), (6, 1)])) else {
        panic!("it reads")
    };
    assert!(matches!(world.begin(OTHER, write(0, 7, 1)), Progress::Store(..)), "it is not touched");
    let driver = Driver::new();
    let waiting = driver.wait(&world, world.begin(OTHER, write(0, 4, 1)));
    drop((making, read));
    assert!(driver.take_woken(), "the token is not made after all");
    assert_eq!(world.finish(world.units.retry(waiting, &world.memory)).status, Status::Good);
    let told = world.tell(NEXUS, ask(STATUS, 5, 0, 64)).unwrap();
    assert_eq!((told[5], told[12]), (0x60, Status::TaskAborted as u8));
}

#[test]
fn no_token_is_made_of_what_cannot_be_read() {
    let (world, _) = world();
    world.store.fail(Op::Read, ErrorKind::Unreadable);
    let failed = world.tell(NEXUS, populate(5, 0, &[(2, 1)])).unwrap_err();
    assert_eq!((failed.key, failed.additional), (SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR));
    let told = world.tell(NEXUS, ask(INFORMATION, 5, 0, 1024)).unwrap();
    assert_eq!((told[5], told[12], told[14]), (0x02, 0x02, 18));
    assert_eq!(told[told.len() - 4..], [0; 4]);
}

/// An unused token costs writes nothing for longer than it is kept.
#[test]
fn a_token_that_nobody_uses_ends() {
    use sanwire_core::Instant;
    use std::time::Duration;

    let (world, _) = world();
    let token = world.token(NEXUS, 0, &[(0, 1)]);
    let root = world.units.get(lun(0)).unwrap();
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let ready = |seconds| {
        let progress = world.units.begin(NEXUS, task(build::test_unit_ready(), &[]), &world.memory, at(seconds));
        assert_eq!(world.finish(progress).status, Status::Good);
        root.tokens().are_there()
    };
    assert_eq!((ready(29), ready(30)), (true, false));
    let expired = Err(illegal(AdditionalSense::TOKEN_EXPIRED));
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 1)), expired);
}
