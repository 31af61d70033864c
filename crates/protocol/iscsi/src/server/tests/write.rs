//! The data of writes.

use super::*;
use crate::wire::{ReadyToTransfer, ScsiResponse, TaskResponse};

fn write(world: &mut World, tag: u32, length: u32, is_final: bool, immediate: &[u8]) {
    let command_number = world.next_number();
    let command = ScsiCommand { is_final, ..write_command(tag, length, command_number) };
    world.send(1, command.write(), immediate);
}

fn r2t(world: &mut World) -> ReadyToTransfer {
    let (header, _) = world.take_one(1);
    assert_eq!(header.opcode(), Some(Opcode::ReadyToTransfer), "{header:?}");
    ReadyToTransfer::read(&header)
}

/// Status and additional sense of the one answer.
fn outcome(world: &mut World) -> (u8, Option<(u8, u8)>) {
    let (header, data) = world.take_one(1);
    assert_eq!(header.opcode(), Some(Opcode::ScsiResponse), "{header:?}");
    (ScsiResponse::read(&header).status, data.get(14..16).map(|codes| (codes[0], codes[1])))
}

#[test]
fn immediate_data_makes_a_command_whole() {
    let mut world = World::with_session(parameters());
    let data = pattern(4096);
    write(&mut world, 5, 4096, true, &data);
    let (handle, task) = world.command();
    assert_eq!(task.data_out.as_ref().map(Slices::to_vec).as_deref(), Some(&data[..]));
    drop(task);
    world.reply(handle, None);
    assert_eq!(outcome(&mut world), (0, None));
    world.assert_home();
}

#[test]
fn data_is_asked_for_in_bursts() {
    let mut session = parameters();
    session.max_outstanding_r2t = 2;
    let mut world = World::with_session(session);
    let data = pattern(150_000);
    write(&mut world, 5, 150_000, true, &data[..8192]);
    let asked: Vec<ReadyToTransfer> = world.take(1).iter().map(|(h, _)| ReadyToTransfer::read(h)).collect();
    let shapes: Vec<_> = asked.iter().map(|r2t| (r2t.number, r2t.offset_bytes, r2t.desired_bytes)).collect();
    assert_eq!(shapes, [(0, 8192, 65536), (1, 73728, 65536)]);
    let (first, second) = (asked[0].transfer_tag, asked[1].transfer_tag);
    world.send(1, data_out(5, first, 0, 8192, false).write(), &data[8192..40000]);
    world.send(1, data_out(5, first, 1, 40000, true).write(), &data[40000..73728]);
    let third = r2t(&mut world);
    assert_eq!((third.number, third.offset_bytes, third.desired_bytes), (2, 139_264, 10736));
    world.send(1, data_out(5, second, 0, 73728, true).write(), &data[73728..139_264]);
    world.send(1, data_out(5, third.transfer_tag, 0, 139_264, true).write(), &data[139_264..]);
    let (handle, task) = world.command();
    assert!(task.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&data[..]));
    world.reply(handle, None);
    assert_eq!(ScsiResponse::read(&world.take_one(1).0).expected_data_number, 3);
}

#[test]
fn unsolicited_data_follows_up_to_the_first_burst() {
    let mut world = World::with_session(parameters());
    let data = pattern(20000);
    write(&mut world, 5, 20000, false, &data[..4096]);
    world.send(1, data_out(5, TAG_NONE, 0, 4096, false).write(), &data[4096..8192]);
    assert!(world.take(1).is_empty(), "nothing is asked for before the end of what comes unasked");
    world.send(1, data_out(5, TAG_NONE, 1, 8192, true).write(), &data[8192..16384]);
    let rest = r2t(&mut world);
    assert_eq!((rest.offset_bytes, rest.desired_bytes), (16384, 3616));
    world.send(1, data_out(5, rest.transfer_tag, 0, 16384, true).write(), &data[16384..]);
    assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&data[..]));
}

#[test]
fn data_that_nobody_asked_for_fails_its_command() {
    let mut session = parameters();
    (session.initial_r2t, session.immediate_data) = (true, false);
    let mut world = World::with_session(session);
    write(&mut world, 5, 4096, true, &pattern(4096));
    assert_eq!(outcome(&mut world), (2, Some((0x0c, 0x0c))));
    write(&mut world, 6, 4096, false, &[]);
    assert!(world.take(1).is_empty(), "the data is still to come");
    world.send(1, data_out(6, TAG_NONE, 0, 0, true).write(), &pattern(4096));
    assert_eq!(outcome(&mut world), (2, Some((0x0c, 0x0c))));
    let handle = world.read(7, 512);
    world.reply(handle, None);
    assert_eq!(outcome(&mut world).0, 0, "others are not harmed");
    world.assert_home();
}

#[test]
fn data_beyond_its_r2t_or_overlapping_or_misnumbered_fails_its_command() {
    for (number, offset, length, sense) in [
        (0, 8192, 65537 - 8192, (0x0c, 0x0d)),
        (0, 0, 4096, (0x0c, 0x0d)),
        (0, u32::MAX - 100, 4096, (0x0c, 0x0d)),
        (0, 12288, 4096, (0x0c, 0x0d)),
        (1, 8192, 4096, (0x47, 0x05)),
        (u32::MAX, 8192, 4096, (0x47, 0x05)),
    ] {
        let mut world = World::with_session(SessionParameters { max_burst_bytes: 16384, ..parameters() });
        let data = pattern(65536);
        write(&mut world, 5, 40000, true, &data[..8192]);
        let asked = r2t(&mut world);
        world.send(1, data_out(5, asked.transfer_tag, number, offset, false).write(), &data[..length as usize]);
        assert!(world.take(1).is_empty(), "the end of the sequence is waited for");
        world.send(1, data_out(5, asked.transfer_tag, 1, 12288, true).write(), &data[..4096]);
        assert_eq!(outcome(&mut world), (2, Some(sense)), "{number} {offset} {length}");
        assert!(world.server.poll_event().is_none());
        world.assert_home();
    }
}

#[test]
fn a_sequence_that_ends_early_fails_its_command() {
    let mut world = World::with_session(parameters());
    write(&mut world, 5, 20000, true, &pattern(8192));
    let asked = r2t(&mut world);
    world.send(1, data_out(5, asked.transfer_tag, 0, 8192, true).write(), &pattern(100));
    assert_eq!(outcome(&mut world), (2, Some((0x0c, 0x0d))));
}

#[test]
fn data_after_the_end_of_its_sequence_and_with_unknown_tags_is_rejected_or_forgotten() {
    let mut world = World::with_session(parameters());
    write(&mut world, 5, 100_000, true, &pattern(8192));
    let asked = r2t(&mut world);
    world.send(1, data_out(5, asked.transfer_tag + 7, 0, 8192, true).write(), &pattern(512));
    assert_eq!(rejection(&world.take_one(1)), 9, "a tag that was never given");
    world.send(1, data_out(99, 12345, 0, 0, true).write(), &pattern(512));
    assert_eq!(rejection(&world.take_one(1)), 9, "no such command");
    world.send(1, data_out(5, asked.transfer_tag, 0, 8192, true).write(), &pattern(65536));
    let next = r2t(&mut world);
    world.send(1, data_out(5, asked.transfer_tag, 1, 8192, true).write(), &pattern(512));
    assert!(world.take(1).is_empty(), "a tag that was used up");
    world.send(1, data_out(5, next.transfer_tag, 0, 73728, true).write(), &pattern(26272));
    world.command();
}

#[test]
fn pieces_may_come_in_any_order_where_that_was_agreed() {
    let mut world = World::with_session(SessionParameters { data_pdu_in_order: false, ..parameters() });
    let data = pattern(40000);
    write(&mut world, 5, 40000, true, &data[..8192]);
    let asked = r2t(&mut world);
    let pieces = [(30000, 40000), (8192, 10000), (20000, 30000), (10000, 20000)];
    for (number, (from, to)) in pieces.into_iter().enumerate() {
        let header = data_out(5, asked.transfer_tag, number as u32, from as u32, number == 3);
        world.send(1, header.write(), &data[from..to]);
    }
    assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&data[..]));
    write(&mut world, 6, 40000, true, &data[..8192]);
    let asked = r2t(&mut world);
    world.send(1, data_out(6, asked.transfer_tag, 0, 30000, false).write(), &data[30000..40000]);
    world.send(1, data_out(6, asked.transfer_tag, 1, 25000, true).write(), &data[25000..35000]);
    assert_eq!(outcome(&mut world), (2, Some((0x0c, 0x0d))), "an overlap");
}

/// CVE-2026-97951.
#[test]
fn an_abort_between_r2t_and_data_ends_at_once() {
    let mut world = World::with_session(parameters());
    write(&mut world, 5, 100_000, true, &pattern(8192));
    let asked = r2t(&mut world);
    let abort = task_request(1, 50, (5, 1), 2);
    world.send(1, abort.write(), &[]);
    let answer = TaskResponse::read(&world.take_one(1).0);
    assert_eq!((answer.response, answer.task_tag, answer.max_command_number), (0, 50, 33));
    world.assert_home();
    world.send(1, data_out(5, asked.transfer_tag, 0, 8192, true).write(), &pattern(65536));
    assert!(world.take(1).is_empty() && world.server.poll_event().is_none(), "late data is forgotten");
}

#[test]
fn a_transfer_longer_than_the_target_takes_is_refused() {
    let mut world = World::with_session(parameters());
    write(&mut world, 5, (1 << 20) + 1, false, &pattern(8192));
    world.send(1, data_out(5, TAG_NONE, 0, 8192, true).write(), &pattern(8192));
    assert_eq!(outcome(&mut world), (2, Some((0x24, 0))));
}
