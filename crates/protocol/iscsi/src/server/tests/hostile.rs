//! Initiators that break the rules on purpose: they harm themselves only.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::*;
use crate::wire::{NopOut, ScsiResponse, TextRequest, TextResponse};

/// A session that behaves on connection 1, and one on connection 2 that does not.
fn two_sessions() -> World {
    let mut world = World::with_session(parameters());
    let mut login = admitted(SessionParameters { error_recovery_level: 2, ..parameters() });
    login.isid = Isid([0x40, 0, 0, 0, 0, 2]);
    world.admit(2, login, 2);
    world.take_one(2);
    world.server.poll_event();
    world
}

/// A header of chance: its operation code is one that there is, and its numbers are often near what they should be.
fn any_header(random: &mut ChaCha20Rng) -> Header {
    let mut bytes = [0; 48];
    random.fill_bytes(&mut bytes);
    let codes = [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x3f];
    bytes[0] = codes[(random.next_u32() % 8) as usize] | bytes[0] & 0x40;
    bytes[4] = 0;
    for at in [16, 20, 24, 28, 32, 36, 40] {
        if !random.next_u32().is_multiple_of(4) {
            bytes[at..at + 4].copy_from_slice(&(random.next_u32() % 9).to_be_bytes());
        }
    }
    Header::from_bytes(bytes)
}

#[test]
fn garbage_on_one_connection_leaves_all_others_alone() {
    let mut random = ChaCha20Rng::from_seed([9; 32]);
    for round in 0..200 {
        let mut world = two_sessions();
        for step in 0..50 {
            let length = [0, 4, 511, 4096, 20_000, 70_000][(random.next_u32() % 6) as usize];
            let bytes = pdu(any_header(&mut random), &pattern(length), Digests::default());
            world.send_bytes(2, &bytes);
            while let Some(event) = world.server.poll_event() {
                if let ServerEvent::Command { handle, .. } = event {
                    world.reply(handle, Some(pattern(600).into()));
                }
            }
            world.take(2);
            let handle = world.read(step, 512);
            world.reply(handle, Some(pattern(512).into()));
            assert_eq!(world.take_one(1).1, pattern(512), "round {round}, step {step}");
        }
        for connection in [1, 2] {
            world.server.connection_lost(ConnectionId(connection), world.now);
        }
        world.now += Duration::from_secs(60);
        world.server.handle_timeout(world.now);
        while world.server.poll_event().is_some() {}
        world.assert_home();
    }
}

#[test]
fn a_text_that_comes_damaged_is_rejected_and_may_come_again() {
    let mut world = World::new(1 << 20);
    let mut login = admitted(parameters());
    login.connection.digests = Digests { header: true, data: true };
    world.admit(1, login, 1);
    world.take_one(1);
    let text = TextRequest {
        is_immediate: true,
        is_final: true,
        task_tag: 4,
        transfer_tag: TAG_NONE,
        ..TextRequest::default()
    };
    let keys = b"MaxRecvDataSegmentLength=1024\0";
    let mut bytes = pdu(text.write(), keys, world.digests(1));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    world.send_bytes(1, &bytes);
    assert_eq!(rejection(&world.take_one(1)), 2);
    world.send(1, text.write(), keys);
    assert!(TextResponse::read(&world.take_one(1).0).is_final);
}

#[test]
fn data_segments_up_to_the_largest_number_are_read_and_forgotten() {
    let mut world = World::with_session(parameters());
    for (step, length) in [65_537, 1 << 20, 0x00ff_ffff].into_iter().enumerate() {
        let nop =
            NopOut { is_immediate: true, is_final: true, task_tag: 9, transfer_tag: TAG_NONE, ..NopOut::default() };
        world.send(1, nop.write(), &vec![0; length]);
        assert_eq!(rejection(&world.take_one(1)), 9);
        let handle = world.read(step as u32, 512);
        world.reply(handle, None);
        assert_eq!(ScsiResponse::read(&world.take_one(1).0).task_tag, step as u32);
    }
    world.assert_home();
}

#[test]
fn of_two_requests_with_one_tag_that_come_early_one_is_executed() {
    let mut world = World::with_session(parameters());
    for number in [2, 3] {
        world.send(1, write_command(5, 512, number).write(), &pattern(512));
    }
    world.send(1, read_command(6, 512, 1).write(), &[]);
    let [_, (write, _)] = [world.command(), world.command()];
    assert!(world.server.poll_event().is_none(), "a write twice");
    assert_eq!(rejection(&world.take_one(1)), 7);
    world.reply(write, None);
    assert_eq!(ScsiResponse::read(&world.take_one(1).0).max_command_number, 34, "the number is settled");
    world.send(1, read_command(5, 512, 4).write(), &[]);
    world.command();
    world.assert_home();
}
