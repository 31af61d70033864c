use sanwire_buffer::Region;
use sanwire_core::Instant;
use sanwire_scsi::{AdditionalSense, Cdb, Extent, Information, Sense, SenseKey, Status, Task, build};
use sanwire_store::{ErrorKind, Geometry};

use crate::Progress;
use crate::testing::{NEXUS, Op, SMALL, World, sense, task};

const fn extent(lba: u64, blocks: u32) -> Extent {
    Extent { lba, blocks }
}

fn pattern(blocks: usize) -> Vec<u8> {
    (0..blocks * 512).map(|at| (at / 512 * 31 + at) as u8).collect()
}

fn illegal(additional: AdditionalSense) -> Sense {
    Sense::new(SenseKey::IllegalRequest, additional)
}

#[test]
fn what_was_written_is_read() {
    let world = World::small();
    let data = pattern(8);
    for (write, read) in [
        (Cdb::from([0x0a, 0, 0, 16, 8, 0]), Cdb::from([0x08, 0, 0, 16, 8, 0])),
        (Cdb::from([0x2a, 0, 0, 0, 0, 17, 0, 0, 8, 0]), Cdb::from([0x28, 0, 0, 0, 0, 17, 0, 0, 8, 0])),
        (Cdb::from([0xaa, 0, 0, 0, 0, 18, 0, 0, 0, 8, 0, 0]), Cdb::from([0xa8, 0, 0, 0, 0, 18, 0, 0, 0, 8, 0, 0])),
        (build::write_16(extent(19, 8), false), build::read_16(extent(19, 8))),
    ] {
        let other: Vec<u8> = data.iter().map(|byte| byte ^ write[0]).collect();
        world.good(write, &other);
        assert_eq!(world.good(read, &[]), other, "{write:?}");
    }
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes(), "all frames are home");
}

#[test]
fn six_byte_transfers_of_zero_are_256_blocks() {
    let world = World::small();
    let data = pattern(256);
    world.good([0x0a, 0, 0, 1, 0, 0], &data);
    assert_eq!(world.good([0x08, 0, 0, 1, 0, 0], &[]), data);
    assert_eq!(world.store.take_log()[0], (Op::Write, 512, 256 * 512));
}

#[test]
fn a_transfer_of_nothing_succeeds_without_the_store() {
    let world = World::small();
    world.good(build::read_16(extent(0, 0)), &[]);
    world.good(build::write_16(extent(2048, 0), true), &[]);
    assert_eq!(world.bad(build::read_16(extent(2049, 0)), &[]), illegal(AdditionalSense::LBA_OUT_OF_RANGE));
    assert_eq!(world.store.take_log(), []);
}

#[test]
fn ranges_are_checked_without_overflow() {
    let world = World::small();
    let out = illegal(AdditionalSense::LBA_OUT_OF_RANGE);
    for (lba, blocks) in [(2048, 1), (2047, 2), (u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 55, 1), (1 << 63, 2)] {
        assert_eq!(world.bad(build::read_16(extent(lba, blocks)), &[]), out, "{lba} {blocks}");
        assert_eq!(world.bad(build::write_16(extent(lba, blocks), false), &pattern(2)), out);
        assert_eq!(world.bad(build::synchronize_cache_16(extent(lba, blocks)), &[]), out);
    }
    assert_eq!(world.good(build::read_16(extent(2047, 1)), &[]).len(), 512);
}

#[test]
fn a_transfer_above_the_limit_points_at_its_length() {
    let world = World::new(Geometry { length_bytes: 1 << 40, ..SMALL }, true);
    assert_eq!(world.good(build::read_16(extent(0, 6144)), &[]).len(), 1 << 20, "as much as there is room for");
    assert_eq!(world.bad(build::read_16(extent(0, 6145)), &[]), Sense::invalid_field_in_cdb(10, None));
    let read_10 = [0x28, 0, 0, 0, 0, 0, 0, 0x18, 0x01, 0];
    assert_eq!(world.bad(read_10, &[]), Sense::invalid_field_in_cdb(7, None));
    let read_12 = [0xa8, 0, 0, 0, 0, 0, 0, 0, 0x18, 0x01, 0, 0];
    assert_eq!(world.bad(read_12, &[]), Sense::invalid_field_in_cdb(6, None));
}

#[test]
fn a_write_with_too_little_data_writes_nothing() {
    let world = World::small();
    for data in [&[][..], &[1; 1023]] {
        let refused = world.bad(build::write_16(extent(0, 2), false), data);
        assert_eq!(refused, illegal(AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT));
    }
    for (data, told) in [(&[1; 1023][..], Some(1024)), (&[1; 1025], Some(1024)), (&[1; 1024], None)] {
        assert_eq!(world.run(NEXUS, build::write_16(extent(0, 2), false), data).data_out_bytes, told);
    }
    world.store.take_log();
    world.good(build::write_16(extent(0, 1), false), &[1; 1023]);
    assert_eq!(world.store.take_log(), [(Op::Write, 0, 512)], "what is too much is left out");
}

#[test]
fn an_answer_is_cut_to_the_room_for_it() {
    let world = World::small();
    world.good(build::write_16(extent(0, 4), false), &pattern(4));
    world.store.take_log();
    let mut narrow = task(build::read_16(extent(0, 4)), &[]);
    narrow.data_in_max_bytes = 700;
    let reply = world.run_task(NEXUS, narrow);
    assert_eq!(reply.data_in.map(|data| data.to_vec()).as_deref(), Some(&pattern(2)[..700]));
    assert_eq!(world.store.take_log(), [(Op::Read, 0, 1024)], "whole blocks, no more than needed");
}

#[test]
fn stable_writes_are_flushed_before_the_answer() {
    let cached = World::small();
    cached.good(build::write_16(extent(1, 1), false), &pattern(1));
    assert_eq!(cached.store.take_log(), [(Op::Write, 512, 512)]);
    cached.good(build::write_16(extent(1, 1), true), &pattern(1));
    assert_eq!(cached.store.take_log(), [(Op::Write, 512, 512), (Op::Flush, 0, 0)], "FUA");
    cached.good(build::synchronize_cache_16(extent(0, 0)), &[]);
    assert_eq!(cached.store.take_log(), [(Op::Flush, 0, 0)]);
    let through = World::new(SMALL, false);
    through.good([0x0a, 0, 0, 1, 1, 0], &pattern(1));
    assert_eq!(through.store.take_log(), [(Op::Write, 512, 512), (Op::Flush, 0, 0)], "no write cache");
    through.store.fail(Op::Flush, ErrorKind::Unwritable);
    let failed = through.bad([0x0a, 0, 0, 1, 1, 0], &pattern(1));
    assert_eq!(failed, Sense::new(SenseKey::MediumError, AdditionalSense::WRITE_ERROR), "a flush has no place");
}

#[test]
fn store_errors_become_sense_data() {
    use AdditionalSense as A;
    use SenseKey::{DataProtect, HardwareError, IllegalRequest, MediumError, NotReady};
    let world = World::small();
    for (kind, key, additional, has_lba) in [
        (ErrorKind::Unreadable, MediumError, A::UNRECOVERED_READ_ERROR, true),
        (ErrorKind::Unwritable, MediumError, A::WRITE_ERROR, true),
        (ErrorKind::Full, DataProtect, A::SPACE_ALLOCATION_FAILED_WRITE_PROTECT, false),
        (ErrorKind::ReadOnly, DataProtect, A::WRITE_PROTECTED, false),
        (ErrorKind::OutOfRange, IllegalRequest, A::LBA_OUT_OF_RANGE, false),
        (ErrorKind::Gone, NotReady, A::NOT_READY_MANUAL_INTERVENTION_REQUIRED, false),
        (ErrorKind::Unsupported, HardwareError, A::INTERNAL_TARGET_FAILURE, false),
        (ErrorKind::Other, HardwareError, A::INTERNAL_TARGET_FAILURE, false),
    ] {
        let expected = Sense { information: has_lba.then_some(Information::Place(7)), ..Sense::new(key, additional) };
        world.store.fail(Op::Write, kind);
        assert_eq!(world.bad(build::write_16(extent(7, 1), false), &pattern(1)), expected);
        world.store.fail(Op::Read, kind);
        assert_eq!(world.bad(build::read_16(extent(7, 1)), &[]), expected);
    }
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

#[test]
fn a_store_that_is_gone_shows_until_it_is_back() {
    let world = World::small();
    world.store.fail(Op::Read, ErrorKind::Gone);
    world.bad(build::read_16(extent(0, 1)), &[]);
    let expected = Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);
    assert_eq!(world.bad(build::test_unit_ready(), &[]), expected);
    world.store.heal();
    world.good(build::read_16(extent(0, 1)), &[]);
    world.good(build::test_unit_ready(), &[]);
}

#[test]
fn a_read_only_store_is_protected() {
    let world = World::new(Geometry { read_only: true, ..SMALL }, true);
    let expected = Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
    for cdb in [
        build::write_16(extent(0, 1), false),
        build::write_16(extent(0, 0), false),
        build::write_same_16(extent(0, 1), false, true),
        build::unmap(24),
        Cdb::from([0x2e, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
    ] {
        assert_eq!(world.bad(cdb, &[0; 512]), expected);
    }
    assert_eq!(world.good(build::mode_sense_6(sanwire_scsi::PageControl::Current, 8, 255), &[])[2], 0x90, "WP");
    assert_eq!(world.store.take_log(), []);
}

#[test]
fn initiators_of_a_read_only_target_change_nothing_but_those_of_another_do() {
    let world = World::small();
    let shared = world.units.get(crate::testing::lun(0)).unwrap();
    let readers = crate::LogicalUnits::new();
    readers.add_shared(crate::testing::lun(0), shared).unwrap();
    readers.set_read_only(true);
    let run = |cdb: Cdb, data: &[u8]| {
        world.finish(readers.begin(crate::testing::OTHER, task(cdb, data), &world.memory, Instant::ZERO))
    };
    let expected = Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
    for (cdb, data) in [
        (build::write_16(extent(0, 1), false), &[0; 512][..]),
        (build::unmap(24), &[0; 24]),
        (Cdb::from([0x16, 0, 0, 0, 0, 0]), &[]),
        (Cdb::from([0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0]), &[0; 24]),
        (Cdb::from([0x1b, 0, 0, 0, 0, 0]), &[]),
        (Cdb::from([0x1e, 0, 0, 0, 1, 0]), &[]),
        (Cdb::from([0x15, 0x10, 0, 0, 4, 0]), &[0; 4]),
        (Cdb::from([0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), &[]),
    ] {
        assert_eq!(crate::testing::sense(&run(cdb, data)), expected, "{cdb:?}");
    }
    assert_eq!(run(build::read_16(extent(0, 1)), &[]).status, sanwire_scsi::Status::Good);
    world.good(build::write_16(extent(0, 1), false), &[7; 512]);
    readers.set_read_only(false);
    assert_eq!(run(build::write_16(extent(0, 1), false), &[8; 512]).status, sanwire_scsi::Status::Good);
}

#[test]
fn verify_compares_on_demand() {
    let world = World::small();
    let data = pattern(4);
    world.good(build::write_16(extent(8, 4), false), &data);
    let verify = |flags| Cdb::from([0x2f, flags, 0, 0, 0, 8, 0, 0, 4, 0]);
    world.good(verify(0x00), &[]);
    world.good(verify(0x02), &data);
    let mut wrong = data.clone();
    wrong[1234] ^= 1;
    let miscompare = Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION);
    assert_eq!(world.bad(verify(0x02), &wrong), miscompare.with_information(1234));
    let too_little = illegal(AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    assert_eq!(world.bad(verify(0x02), &data[..2047]), too_little);
    world.good(build::write_same_16(extent(8, 4), false, false), &data[..512]);
    world.good(verify(0x06), &data[..512]);
    world.store.set_byte(8 * 512 + 1025, 0);
    assert_eq!(world.bad(verify(0x06), &data[..512]), miscompare.with_information(1025), "one block for all");
    world.store.fail(Op::Read, ErrorKind::Unreadable);
    assert_eq!(world.bad(verify(0x00), &[]).information, Some(Information::Place(8)));
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
}

#[test]
fn write_and_verify_reads_what_it_wrote_from_the_medium() {
    let world = World::small();
    let cdb = |flags| Cdb::from([0x8e, flags, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0]);
    let data = pattern(2);
    for flags in [0x00, 0x02] {
        world.good(cdb(flags), &data);
        let log = [(Op::Write, 1536, 1024), (Op::Flush, 0, 0), (Op::Read, 1536, 1024)];
        assert_eq!(world.store.take_log(), log);
    }
    assert_eq!(world.store.bytes(1536, 1024), data);
    assert_eq!(world.bad(cdb(0x06), &data), Sense::invalid_field_in_cdb(1, Some(2)));
    world.store.fail(Op::Flush, ErrorKind::Full);
    assert_eq!(world.bad(cdb(0x02), &data).key, SenseKey::DataProtect);
}

#[test]
fn without_memory_the_task_comes_back_whole() {
    let mut world = World::small();
    world.memory = Region::new(64 << 10).unwrap();
    let held = world.memory.frame(60 << 10).unwrap();
    let mut verify = task([0x2f, 0x02, 0, 0, 0, 0, 0, 0, 16, 0], &[0; 8192]);
    let Progress::NoMemory(task) = world.begin(NEXUS, verify.clone()) else { panic!("there is no memory") };
    assert_eq!(task.task.data_out.as_ref().map(|data| data.len()), Some(8192));
    drop(held);
    assert_eq!(world.run_task(NEXUS, *task).status, Status::Good);
    verify.cdb = Cdb::from([0x2f, 0, 0, 0, 0, 0, 0, 0, 129, 0]);
    let refused = sense(&world.run_task(NEXUS, verify));
    assert_eq!(refused, illegal(AdditionalSense::INSUFFICIENT_RESOURCES), "waiting would not help");
}

#[test]
fn a_write_that_came_short_is_done_as_far_as_it_came_where_that_is_told() {
    let world = World::small();
    let write = |tells_residual, data: &[u8]| {
        let mut task = task(build::write_16(extent(4, 2), false), data);
        task.tells_residual = tells_residual;
        world.run_task(NEXUS, task).status
    };
    assert_eq!(write(false, &[7; 512]), Status::CheckCondition);
    assert_eq!(write(true, &[]), Status::Good);
    assert_eq!(world.store.take_log().len(), 0, "nothing came, nothing is written");
    assert_eq!(write(true, &[7; 512]), Status::Good);
    let read = |lba| world.good(build::read_16(extent(lba, 1)), &[]);
    assert_eq!((read(4), read(5)), (vec![7; 512], vec![0; 512]), "whole blocks");
}

/// GOOD would say that all that came was written: a residual tells only what did not come.
#[test]
fn a_write_whose_data_ends_within_a_block_is_refused_and_changes_nothing() {
    let wrong = illegal(AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    for cdb in [
        Cdb::from([0x0a, 0, 0, 4, 2, 0]),
        Cdb::from([0x2a, 0, 0, 0, 0, 4, 0, 0, 2, 0]),
        Cdb::from([0xaa, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0]),
        build::write_16(extent(4, 2), false),
        build::write_16(extent(4, 2), true),
        Cdb::from([0x2e, 0, 0, 0, 0, 4, 0, 0, 2, 0]),
        Cdb::from([0xae, 0x02, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0]),
        Cdb::from([0x8e, 0x02, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0]),
        Cdb::from([0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0]),
        Cdb::from([0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0]),
    ] {
        let world = World::small();
        for (tells_residual, sent_bytes) in
            [(true, 1), (true, 200), (true, 700), (true, 1023), (false, 200), (false, 700)]
        {
            let task = Task { tells_residual, ..task(cdb, &vec![7; sent_bytes]) };
            let reply = world.run_task(NEXUS, task);
            assert_eq!(sense(&reply), wrong, "{cdb:?} {sent_bytes} {tells_residual}");
            assert_eq!(reply.data_out_bytes, Some(1024), "the residual is told nevertheless");
        }
        assert_eq!(world.store.take_log(), [], "{cdb:?}");
        assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
    }
}

#[test]
fn commands_that_want_all_of_their_data_are_refused_when_it_ends_early() {
    for (cdb, whole) in [
        (Cdb::from([0x89, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0]), vec![0; 1024]),
        (Cdb::from([0x41, 0, 0, 0, 0, 4, 0, 0, 2, 0]), vec![7; 512]),
        (build::write_same_16(extent(4, 2), false, false), vec![7; 512]),
        (build::unmap(24), [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 7], &[4, 0, 0, 0, 2, 0, 0, 0, 0]].concat()),
        (Cdb::from([0x55, 0x10, 0, 0, 0, 0, 0, 0, 28, 0]), [&[0; 8][..], &[8, 18], &[0; 18]].concat()),
        (Cdb::from([0x15, 0x10, 0, 0, 24, 0]), [&[0; 4][..], &[8, 18], &[0; 18]].concat()),
        (Cdb::from([0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0]), vec![0; 24]),
    ] {
        let world = World::small();
        for sent_bytes in (1..whole.len()).step_by(if whole.len() > 100 { 97 } else { 1 }) {
            let task = Task { tells_residual: true, ..task(cdb, &whole[..sent_bytes]) };
            assert_eq!(sense(&world.run_task(NEXUS, task)).key, SenseKey::IllegalRequest, "{cdb:?} {sent_bytes}");
        }
        assert_eq!(world.store.take_log(), [], "{cdb:?}");
        let task = Task { tells_residual: true, ..task(cdb, &whole) };
        assert_ne!(world.run_task(NEXUS, task).status, Status::CheckCondition, "whole, it is taken: {cdb:?}");
    }
}
