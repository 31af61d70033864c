//! Sectors of a CD with what stands around their user data (MMC-6 6.16), and what only CDs have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sanwire_buffer::Slices;
use sanwire_core::Instant;
use sanwire_core::limits::LONG_TRANSFER_MAX_BYTES;
use sanwire_scsi::{AdditionalSense, Piece, Reply, Sense, SenseKey, Status, Task};
use sanwire_store::ErrorKind;
use sanwire_store_file::blocking;

use super::optical::{EJECT, TEST_UNIT_READY, change_disc, read, world, world_of};
use crate::testing::{NEXUS, OTHER, Op, World, sense, task};
use crate::{Progress, Seat, Starvation};

const ALL: u8 = 0xf8;
const CHANGED: Sense = Sense::new(SenseKey::UnitAttention, AdditionalSense::NOT_READY_TO_READY_CHANGE);

/// READ CD.
fn read_cd(lba: u16, sectors: u16, selection: u8) -> [u8; 12] {
    let ([high, low], [many, few]) = (lba.to_be_bytes(), sectors.to_be_bytes());
    [0xbe, 0, 0, 0, high, low, 0, many, few, selection, 0, 0]
}

fn piece(world: &World, cdb: [u8; 12], from_bytes: u32, medium: u32) -> Reply {
    let piece = Some(Piece { from_bytes, medium, data_out_bytes: 0 });
    world.run_task(NEXUS, Task { piece, data_in_max_bytes: LONG_TRANSFER_MAX_BYTES as u32, ..task(cdb, &[]) })
}

#[test]
fn the_fields_around_the_user_data_are_read_with_it_or_by_themselves() {
    let world = world(7);
    let sector = world.good(read_cd(0, 1, ALL), &[]);
    assert_eq!(
        (sector.len(), &sector[..18]),
        (2352, &[0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 2, 0, 1, 7, 0][..])
    );
    assert_ne!(sector[2064..2068], [0; 4], "the error detection code");
    for (selection, part) in [(0xb0, 0..2064), (0x18, 16..2352), (0x38, 12..2352), (0xa0, 0..16), (0x50, 16..2064)] {
        assert_eq!(world.good(read_cd(0, 1, selection), &[]), sector[part], "{selection:02x}");
    }
    let two = world.good(read_cd(0x100, 2, ALL), &[]);
    assert_eq!(
        (&two[12..16], &two[2364..2368]),
        (&[0, 5, 0x31, 1][..], &[0, 5, 0x32, 1][..]),
        "256 + 150 frames, in decimal digits"
    );
    assert_eq!(world.good([0xb9, 0, 0, 0, 2, 0, 0, 2, 1, ALL, 0, 0], &[]), sector, "READ CD MSF");
    world.store.take_log();
    assert_eq!(world.good(read_cd(511, 1, 0x60), &[]), [0, 8, 0x61, 1]);
    assert_eq!(world.good(read_cd(0, 1, 0), &[]), [0; 0]);
    assert_eq!(world.store.take_log(), [], "the store is not asked for what it has not");
}

#[test]
fn long_reads_of_sectors_go_in_pieces() {
    let world = world_of(4 << 20, 3);
    for (selection, bytes) in [(ALL, 2352), (0xe0, 16)] {
        let (mut found, mut from, mut medium) = (Vec::new(), 0, 0);
        loop {
            let reply = piece(&world, read_cd(1, 2000, selection), from, medium);
            assert_eq!(reply.status, Status::Good);
            found.extend(reply.data_in.iter().flat_map(Slices::to_vec));
            let Some(rest) = reply.rest else { break };
            (from, medium) = (rest.from_bytes, rest.medium);
        }
        assert_eq!(found.len(), 2000 * bytes);
        for at in [0_u16, 63, 64, 1999] {
            let alone = world.good(read_cd(1 + at, 1, selection), &[]);
            assert!(found.chunks(bytes).nth(usize::from(at)) == Some(&alone), "{selection:02x} {at}");
        }
    }
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes(), "all frames are home");
    let too_long = world.bad(read_cd(0, 446, ALL), &[]);
    assert_eq!(too_long, Sense::invalid_field_in_cdb(6, None), "more than 1 MiB where there are no pieces");
}

#[test]
fn what_the_initiator_has_no_room_for_is_not_made() {
    let world = world(5);
    let whole = world.good(read_cd(0, 3, ALL), &[]);
    world.store.take_log();
    let cut = world.run_task(NEXUS, Task { data_in_max_bytes: 2400, ..task(read_cd(0, 3, ALL), &[]) });
    assert_eq!(cut.data_in.unwrap().to_vec(), whole[..2400]);
    assert_eq!(world.store.take_log(), [(Op::Read, 0, 4096)]);
}

#[test]
fn sectors_without_memory_wait_and_nothing_is_read() {
    let world = world(0);
    let taken = world.memory.frame(world.memory.length_bytes() - 4096).unwrap();
    let Progress::NoMemory(task) = world.begin(NEXUS, task(read_cd(0, 1, ALL), &[])) else {
        panic!("it needs two frames")
    };
    assert_eq!(world.store.take_log(), []);
    drop(taken);
    assert_eq!(world.run_task(NEXUS, *task).status, Status::Good);
}

#[test]
fn sectors_are_of_the_disc_on_which_the_command_began() {
    let world = world_of(4 << 20, 1);
    let Progress::Store(execution, request) = world.begin(NEXUS, task(read_cd(0, 1, ALL), &[])) else {
        panic!("it reads")
    };
    let completion = blocking::run(&**execution.store(), request);
    let rest = piece(&world, read_cd(0, 100, ALL), 0, 0).rest.expect("it goes in pieces");
    world.store.fail(Op::Read, ErrorKind::Gone);
    let Progress::Store(late, request) = world.begin(NEXUS, task(read_cd(0, 1, ALL), &[])) else { panic!("it reads") };
    let gone = blocking::run(&**late.store(), request);
    change_disc(&world, 4 << 20);
    assert_eq!(sense(&world.finish(world.units.resume(execution, completion, &world.memory))), CHANGED);
    assert_eq!(sense(&world.finish(world.units.resume(late, gone, &world.memory))), CHANGED);
    world.good(TEST_UNIT_READY, &[]);
    assert_eq!(sense(&piece(&world, read_cd(0, 100, ALL), rest.from_bytes, rest.medium)), CHANGED);
    assert_eq!(world.good(read_cd(0, 1, ALL), &[])[16], 0, "what begins now");
}

#[test]
fn an_error_of_the_store_names_the_block() {
    let world = world(0);
    world.store.fail(Op::Read, ErrorKind::Unreadable);
    let read_10 = [0x28, 0, 0, 0, 0, 9, 0, 0, 1, 0];
    let of_block = world.bad(read_10, &[]);
    assert_eq!(world.bad(read_cd(9, 1, ALL), &[]), of_block);
}

#[test]
fn sectors_that_no_such_disc_has_are_refused() {
    let world = world(0);
    let refused = |additional| Sense::new(SenseKey::IllegalRequest, additional);
    let of_type = |sector_type: u8| {
        let mut cdb = read_cd(0, 1, ALL);
        cdb[1] = sector_type << 2;
        world.run(NEXUS, cdb, &[])
    };
    assert_eq!(of_type(2).status, Status::Good, "mode 1");
    for other in [1, 3, 4, 5] {
        assert_eq!(sense(&of_type(other)), refused(AdditionalSense::ILLEGAL_MODE_FOR_THIS_TRACK), "{other}");
    }
    assert_eq!(sense(&of_type(6)), Sense::invalid_field_in_cdb(1, Some(4)));
    for selection in [0x08, 0x28, 0x90, 0xc0, 0xfa, 0x11] {
        assert_eq!(world.bad(read_cd(0, 1, selection), &[]), Sense::invalid_field_in_cdb(9, None), "{selection:02x}");
    }
    let mut subchannel = read_cd(0, 1, ALL);
    subchannel[10] = 2;
    assert_eq!(world.bad(subchannel, &[]), Sense::invalid_field_in_cdb(10, Some(2)));
    assert_eq!(world.bad(read_cd(511, 2, ALL), &[]), refused(AdditionalSense::LBA_OUT_OF_RANGE));
    assert_eq!(world.bad(read_cd(511, 2, 0x20), &[]), refused(AdditionalSense::LBA_OUT_OF_RANGE));
    world.good(EJECT, &[]);
    assert_eq!(world.bad(read_cd(0, 1, ALL), &[]).key, SenseKey::NotReady);
    let dvd = world_of(2048 * 360_001, 0);
    assert_eq!(
        dvd.bad(read_cd(0, 1, ALL), &[]),
        refused(AdditionalSense::INCOMPATIBLE_FORMAT),
        "a DVD has other sectors"
    );
    assert_eq!(dvd.good(read_cd(0, 1, 0x10), &[]), dvd.good(read(1), &[]));
}

#[test]
fn a_pressed_disc_of_data_has_no_pre_groove_and_no_text() {
    let (cd, dvd) = (world(0), world_of(2048 * 360_001, 0));
    let toc = |format: u8| [0x43, 0, format, 0, 0, 0, 0, 0, 128, 0];
    assert_eq!([cd.good(toc(4), &[]), cd.good(toc(5), &[])], [[0, 2, 0, 0], [0, 2, 0, 0]], "a header and nothing else");
    let invalid = Sense::invalid_field_in_cdb(2, Some(3));
    assert_eq!([cd.bad(toc(3), &[]), cd.bad(toc(6), &[])], [invalid; 2], "no program memory area");
    assert_eq!([dvd.bad(toc(3), &[]), dvd.bad(toc(4), &[]), dvd.bad(toc(5), &[])], [invalid; 3]);
}

/// Who waits for memory is woken by each release: a command that takes some, does not get the rest and gives that back wakes itself.
#[test]
fn sectors_that_wait_for_memory_do_not_wake_themselves() {
    let world = world(0);
    let calls = Arc::new(AtomicU32::new(0));
    let hook = Arc::clone(&calls);
    assert!(world.memory.on_release(move || _ = hook.fetch_add(1, Ordering::SeqCst)));
    let _taken = world.memory.frame(world.memory.length_bytes() - 4096).unwrap();
    let mut starvation = Starvation::new(&world.memory);
    let share = world.memory.share(2 << 20);
    let units = Arc::new(world.units);
    let mut wait = |cdb: [u8; 12]| {
        let seat = Seat { units: &units, memory: &share, weight: 1 };
        assert!(starvation.begin(NEXUS, 1, seat, task(cdb, &[]), Instant::ZERO).is_none());
        for _ in 0..100 {
            starvation.serve(Instant::ZERO, |_: i32, _, progress| panic!("{progress:?}"));
        }
        let called = calls.load(Ordering::SeqCst);
        drop(starvation.extract(|_| true));
        calls.store(0, Ordering::SeqCst);
        called
    };
    let of_a_read = wait([0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0]);
    let of_sectors = wait(read_cd(0, 1, ALL));
    assert_eq!((of_a_read, of_sectors), (0, 0));
}

/// SPC-5 table 50: PREVENT ALLOW MEDIUM REMOVAL with PREVENT zero is allowed in the presence of any reservation.
#[test]
fn a_persistent_lock_is_taken_back_while_another_initiator_has_the_drive() {
    let world = world(0);
    world.establish(NEXUS);
    world.establish(OTHER);
    for nexus in [NEXUS, OTHER] {
        drop(world.run(nexus, TEST_UNIT_READY, &[]));
    }
    world.good([0x1e, 0, 0, 0, 3, 0], &[]);
    assert_eq!(world.run(OTHER, [0x16, 0, 0, 0, 0, 0], &[]).status, Status::Good);
    assert_eq!(world.run(NEXUS, [0x1e, 0, 0, 0, 0, 0], &[]).status, Status::Good, "ALLOW");
    assert_eq!(world.run(NEXUS, [0x1e, 0, 0, 0, 2, 0], &[]).status, Status::Good, "PERSISTENT ALLOW");
}
