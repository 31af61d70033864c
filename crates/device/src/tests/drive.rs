//! What initiators in the field ask of an optical drive, and the edges of that (MMC-6).

use sanwire_scsi::mode::ModeData;
use sanwire_scsi::{AdditionalSense, ModeForm, Sense, SenseKey, Status};

use super::optical::{EJECT, READ_CAPACITY, TEST_UNIT_READY, change_disc, read, world, world_of};
use crate::testing::{NEXUS, OTHER, World, lun, sense};

const PREVENT: [u8; 6] = [0x1e, 0, 0, 0, 1, 0];

fn invalid(byte: u16, bit: u8) -> Sense {
    Sense::invalid_field_in_cdb(byte, Some(bit))
}

/// GET EVENT STATUS NOTIFICATION of these classes, with so much room.
fn events(world: &World, classes: u8, room_bytes: u8) -> Vec<u8> {
    world.good([0x4a, 1, 0, 0, classes, 0, 0, 0, room_bytes, 0], &[])
}

#[test]
fn blocks_are_read_by_their_time_too() {
    let world = world(7);
    let read_cd_msf = |from: [u8; 3], to: [u8; 3]| {
        let ([m0, s0, f0], [m1, s1, f1]) = (from, to);
        world.run(NEXUS, [0xb9, 0, 0, m0, s0, f0, m1, s1, f1, 0x10, 0, 0], &[])
    };
    let two = read_cd_msf([0, 2, 0], [0, 2, 2]);
    assert_eq!(two.data_in.map(|data| data.to_vec()), Some(world.good(read(2), &[])));
    let last = read_cd_msf([0, 8, 61], [0, 8, 62]);
    assert_eq!((last.status, last.data_in.map(|data| data.len())), (Status::Good, Some(2048)), "block 511");
    let nothing = read_cd_msf([0, 3, 0], [0, 3, 0]);
    assert_eq!((nothing.status, nothing.data_in.is_none()), (Status::Good, true));
    let out_of_range = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    assert_eq!(sense(&read_cd_msf([0, 8, 61], [0, 8, 63])), out_of_range);
    assert_eq!(sense(&read_cd_msf([0, 1, 74], [0, 2, 1])), out_of_range, "the lead-in");
    assert_eq!(sense(&read_cd_msf([0, 3, 0], [0, 2, 0])), Sense::invalid_field_in_cdb(6, None), "backwards");
    assert_eq!(
        sense(&read_cd_msf([0, 2, 75], [0, 4, 0])),
        Sense::invalid_field_in_cdb(5, None),
        "75 frames in a second"
    );
    assert_eq!(sense(&read_cd_msf([0, 2, 0], [0, 60, 0])), Sense::invalid_field_in_cdb(7, None));
    world.good(EJECT, &[]);
    assert_eq!(sense(&read_cd_msf([0, 2, 0], [0, 2, 1])).key, SenseKey::NotReady);
}

#[test]
fn a_drive_has_the_mode_pages_of_its_features() {
    let world = world(0);
    let pages = |control: u8| {
        let bytes = world.good([0x5a, 0, 0x3f | control, 0, 0, 0, 0, 1, 0, 0], &[]);
        let data = ModeData::parse(ModeForm::Ten, &bytes).unwrap();
        data.pages().map(|page| page.bytes.to_vec()).collect::<Vec<_>>()
    };
    let all = pages(0);
    let lengths: Vec<_> = all.iter().map(|page| (page[0], page[1], page.len())).collect();
    assert_eq!(lengths, [(0x01, 10, 12), (0x0a, 10, 12), (0x1a, 10, 12), (0x1d, 8, 10), (0x2a, 24, 26)]);
    let six = world.good([0x1a, 0x08, 0x3f, 0, 255, 0], &[]);
    assert_eq!(
        (usize::from(six[0]) + 1, six.len(), &six[1..4]),
        (76, 76, &[0, 0, 0][..]),
        "no block descriptor, with DBD"
    );
    assert_eq!(world.good([0x1a, 0, 0x3f, 0, 255, 0], &[]), six, "nor without");
    assert_eq!(pages(0x80), all, "the defaults");
    assert_eq!(pages(0x40)[0], [0x01, 10, 0x37, 0xff, 0, 0, 0, 0, 0, 0, 0, 0], "what can be changed");
    assert_eq!(pages(0x40)[2][2..], [0; 10]);
    let saved = world.bad([0x5a, 0, 0xc1, 0, 0, 0, 0, 0, 128, 0], &[]);
    assert_eq!(saved.additional, AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED);
    for room_bytes in [0, 1, 4, 8, 20] {
        let cut = world.good([0x5a, 0, 0x2a, 0, 0, 0, 0, 0, room_bytes, 0], &[]);
        assert_eq!(cut.len(), usize::from(room_bytes), "the length that is told stays whole");
        assert!(cut.len() < 2 || cut[..2] == [0, 32]);
    }
}

#[test]
fn what_is_selected_for_the_recovery_of_errors_stays_until_a_reset() {
    let world = world(0);
    for nexus in [NEXUS, OTHER] {
        world.establish(nexus);
        drop(world.run(nexus, TEST_UNIT_READY, &[]));
    }
    let recovery = || world.good([0x5a, 0, 0x01, 0, 0, 0, 0, 0, 128, 0], &[])[10..12].to_vec();
    let before = recovery();
    let mut list = [0; 20];
    list[8..12].copy_from_slice(&[0x01, 10, 0x20, 1]);
    let select = [0x55, 0x10, 0, 0, 0, 0, 0, 0, 20, 0];
    world.good(select, &list);
    assert_eq!(recovery(), [0x20, 1]);
    let changed = Sense::new(SenseKey::UnitAttention, AdditionalSense::MODE_PARAMETERS_CHANGED);
    assert_eq!(sense(&world.run(OTHER, TEST_UNIT_READY, &[])), changed);
    list[10] = 0x80;
    assert_eq!(world.bad(select, &list), Sense::invalid_field_in_parameters(10, Some(7)), "nothing is written");
    assert_eq!(recovery(), [0x20, 1]);
    assert!(world.units.logical_unit_reset(lun(0)));
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    assert_eq!(recovery(), before);
}

#[test]
fn of_several_classes_of_events_that_is_told_in_which_something_has_happened() {
    let world = world(0);
    world.establish(NEXUS);
    drop(world.run(NEXUS, TEST_UNIT_READY, &[]));
    assert_eq!(events(&world, 0, 8), [0, 2, 0x80, 0x14], "which there are");
    assert_eq!(events(&world, 0x42, 8), [0, 2, 0x80, 0x14], "none of these");
    assert_eq!(events(&world, 0x04, 8), [0, 6, 0x02, 0x14, 0, 1, 0, 0], "the power is on");
    assert_eq!(events(&world, 0x5e, 8), [0, 6, 0x02, 0x14, 0, 1, 0, 0], "the first, while nothing has happened");
    assert_eq!(events(&world, 0x10, 8), [0, 6, 0x04, 0x14, 0, 2, 0, 0]);
    drop(change_disc(&world, 4096));
    assert_eq!(events(&world, 0x04, 8)[2], 0x02, "and the event of the other class stays");
    for room_bytes in 0..=4 {
        let cut = events(&world, 0x10, room_bytes);
        assert_eq!(cut, [0, 6, 0x04, 0x14][..usize::from(room_bytes)], "so does one that there is no room for");
    }
    assert_eq!(events(&world, 0x5e, 8), [0, 6, 0x04, 0x14, 2, 2, 0, 0]);
    assert_eq!(events(&world, 0x5e, 8)[2], 0x02);
}

#[test]
fn answers_are_cut_to_the_room_that_there_is() {
    let world = world(0);
    for (cdb, whole) in [
        ([0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0], 20),
        ([0x43, 2, 1, 0, 0, 0, 0, 0, 0, 0], 12),
        ([0x43, 2, 2, 0, 0, 0, 0, 0, 0, 0], 48),
        ([0x46, 2, 0, 3, 0, 0, 0, 0, 0, 0], 16),
        ([0x46, 2, 0x7f, 0, 0, 0, 0, 0, 0, 0], 8),
        ([0x51, 0, 0, 0, 0, 0, 0, 0, 0, 0], 34),
        ([0x52, 1, 0, 0, 0, 1, 0, 0, 0, 0], 36),
        ([0x23, 0, 0, 0, 0, 0, 0, 0, 0, 0], 12),
    ] {
        for room_bytes in [0, 1, 2, 4, 8, 12, 255] {
            let mut cdb = cdb;
            cdb[8] = room_bytes;
            assert_eq!(world.good(cdb, &[]).len(), whole.min(usize::from(room_bytes)), "{cdb:02x?}");
        }
    }
    let mechanism = |room_bytes| world.good([0xbd, 0, 0, 0, 0, 0, 0, 0, 0, room_bytes, 0, 0], &[]);
    assert_eq!((mechanism(0).len(), mechanism(3).len(), mechanism(255)), (0, 3, vec![0; 8]));
    world.good(EJECT, &[]);
    assert_eq!(mechanism(8)[1], 0x10, "the door is open");
}

#[test]
fn what_a_drive_has_not_is_pointed_at() {
    let world = world(0);
    assert_eq!(world.bad([0x1b, 0, 0, 0, 7, 0], &[]), invalid(4, 2), "FL: there is one format layer");
    assert_eq!(world.bad([0xbe, 2, 0, 0, 0, 0, 0, 0, 1, 0x10, 0, 0], &[]), invalid(1, 1), "DAP");
    let no_audio = Sense::new(SenseKey::IllegalRequest, AdditionalSense::ILLEGAL_MODE_FOR_THIS_TRACK);
    assert_eq!(world.bad([0xbe, 4, 0, 0, 0, 0, 0, 0, 1, 0x10, 0, 0], &[]), no_audio);
    assert_eq!(world.bad([0x46, 3, 0, 0, 0, 0, 0, 0, 8, 0], &[]), invalid(1, 1), "RT 11b");
    assert_eq!(world.bad([0x52, 5, 0, 0, 0, 1, 0, 0, 36, 0], &[]), invalid(1, 2), "OPEN");
    assert_eq!(world.bad([0x51, 1, 0, 0, 0, 0, 0, 0, 34, 0], &[]), invalid(1, 2), "the resources of tracks");
    for format in [3, 6, 15] {
        assert_eq!(world.bad([0x43, 0, format, 0, 0, 0, 0, 0, 12, 0], &[]), invalid(2, 3), "{format}");
    }
    for track in [2, 99, 0xa9] {
        let beyond = world.bad([0x43, 0, 0, 0, 0, 0, track, 0, 12, 0], &[]);
        assert_eq!(beyond, Sense::invalid_field_in_cdb(6, None), "{track}");
    }
    assert_eq!(world.good([0x43, 2, 1, 0, 0, 0, 0, 0, 12, 0], &[])[8..], [0, 0, 2, 0], "MSF: after two seconds");
    assert_eq!(world.run(NEXUS, PREVENT, &[]).status, Status::Good);
    assert_eq!(world.good(READ_CAPACITY, &[]).len(), 8);
}

#[test]
fn which_features_are_told_follows_the_request_and_the_disc() {
    let features = |world: &World, request: u8, first: u8| {
        let bytes = world.good([0x46, request, 0, first, 0, 0, 0, 4, 0, 0], &[]);
        assert_eq!(u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len() - 4);
        let mut rest = &bytes[8..];
        let mut codes = Vec::new();
        while let [high, low, flags, length, after @ ..] = rest {
            codes.push((u16::from_be_bytes([*high, *low]), flags & 1, after[..usize::from(*length)].to_vec()));
            rest = &after[usize::from(*length)..];
        }
        codes
    };
    let world = world_of(700 << 20, 0);
    let all = features(&world, 0, 0);
    assert!(all.is_sorted_by_key(|(code, ..)| *code));
    let current: Vec<_> = all.iter().filter(|(_, is_current, _)| *is_current == 1).cloned().collect();
    assert_eq!(features(&world, 1, 0), current);
    for (code, ..) in all.iter().filter(|(code, ..)| *code < 256) {
        let one = features(&world, 2, *code as u8);
        assert_eq!(one.iter().map(|(code, ..)| *code).collect::<Vec<_>>(), [*code]);
        assert_eq!(features(&world, 0, *code as u8)[0], one[0], "from this one on");
    }
    assert_eq!(features(&world, 2, 0x22), [], "no such feature");
    let of = |world: &World, code| features(world, 2, code).remove(0);
    assert_eq!(of(&world, 0x10), (0x10, 1, vec![0, 0, 8, 0, 0, 1, 0, 0]), "a CD is read block by block");
    assert_eq!((of(&world, 0x1e).1, of(&world, 0x1f).1, of(&world, 0x40).1), (1, 0, 0));
    let dvd = world_of(4 << 30, 0);
    assert_eq!(of(&dvd, 0x10).2[4..6], [0, 16], "a DVD by 16 blocks that are corrected together");
    assert_eq!((of(&dvd, 0x1e).1, of(&dvd, 0x1f).1, of(&dvd, 0x40).1), (0, 1, 0));
    let (_, is_current, classes) = of(&world_of(20 << 30, 0), 0x40);
    assert_eq!((is_current, classes.len(), &classes[20..22]), (1, 28, &[0, 2][..]), "BD-ROM of version 1");
}
