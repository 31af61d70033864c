//! Copies from one target to another that outlive the session which asked for them.

use super::initiator::{GOOD, Initiator, Said};
use super::{GATED, World};

/// The list of an EXTENDED COPY of the first block of a unit to that of another (SPC-3 6.3).
fn list(from: [u8; 8], to: [u8; 8]) -> Vec<u8> {
    let target = |naa: [u8; 8]| {
        let mut descriptor = [&[0xe4, 0, 0, 0, 1, 3, 0, 8][..], &naa].concat();
        descriptor.resize(32, 0);
        descriptor
    };
    let mut segment = [&[2, 0, 0, 0x18, 0, 0, 0, 1, 0, 0, 0, 1][..], &[0; 16]].concat();
    let header = [1, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, segment.len() as u8, 0, 0, 0, 0];
    let mut bytes = [&header[..], &target(from), &target(to)].concat();
    bytes.append(&mut segment);
    bytes
}

#[test]
fn what_a_lost_copy_still_writes_to_another_target_never_lands_on_a_newer_write_there() {
    let world = World::new();
    let mut there = world.login(1);
    let mut here = Initiator::login(world.portal(), "iqn.2026-11.org.sanwire:prompt", 1);
    let tag = here.write(0, 0, 1);
    assert_eq!(here.hear(), Said::Status(tag, GOOD));
    let list = list(here.naa(0), there.naa(GATED));
    world.store.hold(|| here.command(0, &[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0], &list, 0));
    drop((here, there));
    world.wait_for_sessions(0);
    let mut there = world.login(1);
    let newer = there.write(GATED, 0, 2);
    there.hears_nothing_else();
    let elsewhere = there.write(GATED, 1, 3);
    assert_eq!(there.hear(), Said::Status(elsewhere, GOOD), "other blocks do not wait");
    world.store.release();
    assert_eq!(there.hear(), Said::Status(newer, GOOD));
    assert_eq!(there.read(GATED, 0), 2);
}
