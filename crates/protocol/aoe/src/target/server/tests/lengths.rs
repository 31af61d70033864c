//! Messages of every length that an Ethernet carries.

use super::*;

#[test]
fn messages_of_every_length_are_answered_by_no_more_than_came() {
    let mut world = World::new();
    world.sent();
    // Up to the payload of a frame of 9,018 bytes.
    for length in 0..=9_004 {
        let begin = |command| message(ADDRESS, command, length, &[]);
        for mut message in [
            Vec::new(),
            begin(command::ATA),
            ata(length, 0x41, 0x34, 17, 5, &[]),
            begin(command::CONFIG),
            begin(command::MASK),
            begin(command::RESERVE),
            begin(9),
        ] {
            message.resize(length as usize, 0);
            let answers = world.give(1, HOST, &message);
            // Shorter than a frame may be is none.
            let most = message.len().max(wire::PAYLOAD_MIN_BYTES);
            assert!(
                answers.len() <= 1 && answers.iter().all(|answer| answer.len() <= most),
                "{length} bytes, {:?}: {answers:?}",
                message.get(5)
            );
        }
    }
    let [answer] = &world.give(1, HOST, &ata(1 << 20, 0x40, 0x24, 17, 5, &[]))[..] else { panic!("one answer") };
    assert_eq!(answer[22..], [0xab; 17 * 512], "it is there still");
}
