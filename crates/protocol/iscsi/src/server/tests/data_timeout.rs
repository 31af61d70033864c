//! Data that does not come: it is asked for again, or its command ends.

use super::*;
use crate::wire::{NopOut, ReadyToTransfer, ScsiResponse};

/// Longer than a sequence may stand still.
const SILENCE: Duration = Duration::from_secs(11);

impl World {
    /// Time passes; the initiator answers nothing but pings.
    fn pass(&mut self, duration: Duration) -> Vec<Sent> {
        let end = self.now + duration;
        let mut sent = Vec::new();
        while let Some(at) = self.server.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.server.handle_timeout(self.now);
            assert_ne!(self.server.poll_timeout(), Some(at), "the same moment is due for ever");
            let (pings, others): (Vec<Sent>, Vec<Sent>) =
                self.take(1).into_iter().partition(|(header, _)| header.opcode() == Some(Opcode::NopIn));
            for (ping, _) in pings {
                let pong = NopOut { is_immediate: true, is_final: true, ..NopOut::read(&ping) };
                self.send(1, pong.write(), &[]);
            }
            sent.extend(others);
        }
        self.now = end;
        sent
    }
}

fn asked(sent: &[Sent]) -> Vec<(u32, u32, u32)> {
    let r2ts = sent.iter().map(|(header, _)| {
        assert_eq!(header.opcode(), Some(Opcode::ReadyToTransfer), "{header:?}");
        ReadyToTransfer::read(header)
    });
    r2ts.map(|r2t| (r2t.number, r2t.offset_bytes, r2t.desired_bytes)).collect()
}

fn session(error_recovery_level: u8) -> World {
    World::with_session(SessionParameters { error_recovery_level, ..parameters() })
}

#[test]
fn a_lost_final_data_out_is_asked_for_again_at_level_1() {
    let mut world = session(1);
    let data = pattern(20_000);
    world.send(1, write_command(5, 20_000, 1).write(), &data[..8192]);
    let first = ReadyToTransfer::read(&world.take_one(1).0);
    world.send(1, data_out(5, first.transfer_tag, 0, 8192, false).write(), &data[8192..16_384]);
    let again = world.pass(SILENCE);
    assert_eq!(asked(&again), [(1, 16_384, 3616)]);
    // What was given up comes late: it is forgotten, and nothing else happens.
    world.send(1, data_out(5, first.transfer_tag, 1, 16_384, true).write(), &[9; 3616]);
    assert!(world.take(1).is_empty());
    let again = ReadyToTransfer::read(&again[0].0);
    world.send(1, data_out(5, again.transfer_tag, 0, 16_384, true).write(), &data[16_384..]);
    assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&data[..]));
}

#[test]
fn lost_unsolicited_data_is_asked_for_at_level_1() {
    let mut world = session(1);
    let data = pattern(16_384);
    let command = ScsiCommand { is_final: false, ..write_command(5, 16_384, 1) };
    world.send(1, command.write(), &data[..8192]);
    world.send(1, data_out(5, TAG_NONE, 0, 8192, false).write(), &data[8192..12_288]);
    let again = world.pass(SILENCE);
    assert_eq!(asked(&again), [(0, 12_288, 4096)]);
    world.send(1, data_out(5, TAG_NONE, 1, 12_288, true).write(), &[9; 4096]);
    let again = ReadyToTransfer::read(&again[0].0);
    world.send(1, data_out(5, again.transfer_tag, 0, 12_288, true).write(), &data[12_288..]);
    assert!(world.command().1.data_out.as_ref().map(Slices::to_vec).as_deref() == Some(&data[..]));
}

#[test]
fn data_that_never_comes_fails_its_command_at_every_level_and_gives_its_memory_back() {
    for level in 0..=2 {
        let mut world = session(level);
        world.send(1, write_command(5, 20_000, 1).write(), &[]);
        world.take_one(1);
        let sent = world.pass(4 * SILENCE);
        let (answer, again) = sent.split_last().expect("an answer");
        assert_eq!(again.len(), if level == 0 { 0 } else { 3 }, "level {level}");
        let status = ScsiResponse::read(&answer.0).status;
        assert_eq!((status, answer.1[4], &answer.1[14..16]), (2, 0x0b, &[0x4b_u8, 6][..]));
        world.assert_home();
        assert!(world.pass(SILENCE).is_empty(), "nothing more is waited for");
    }
}

/// An initiator that has many requests for data answers them one after the other.
#[test]
fn a_sequence_that_has_not_begun_waits_for_those_before_it() {
    let mut world = session(1);
    for (tag, number) in [(5, 1), (6, 2)] {
        world.send(1, write_command(tag, 20_000, number).write(), &[]);
    }
    let [first, second] = &world.take(1)[..] else { panic!("two R2Ts") };
    let [first, second] = [first, second].map(|(header, _)| ReadyToTransfer::read(header));
    for number in 0..5 {
        world.send(1, data_out(5, first.transfer_tag, number, number * 4000, number == 4).write(), &[1; 4000]);
        assert!(world.pass(Duration::from_secs(6)).is_empty(), "nothing is asked for again");
    }
    world.command();
    world.send(1, data_out(6, second.transfer_tag, 0, 0, true).write(), &[2; 20_000]);
    world.command();
}
