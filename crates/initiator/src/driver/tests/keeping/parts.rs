//! Disks that take less at once than when they were opened.

use super::*;

const LONG: usize = 8 * BLOCK;

async fn write_long(volume: &Volume) -> Result<(), VolumeError> {
    volume.write(0, Frame::from(vec![0; LONG]).freeze()).await
}

/// The first disk takes two blocks at once from now on.
fn shrink(set: &Set, told: AdditionalSense) {
    set.change(|array| {
        array.blocks_max = 2;
        array.attention = Some((1, told));
        array.log.clear();
    });
}

#[test]
fn a_write_that_has_become_too_long_for_its_unit_is_given_in_parts() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    let before = volume.info();
    shrink(&set, AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
    assert_eq!(set.serve_for(&mut driver, 100, write_long(&volume)), Some(Ok(())));
    assert_eq!(set.writes(0), [0, 0, 2, 4, 6], "the first is told of the change");
    let info = volume.info();
    assert_eq!((info.transfer_max_bytes as usize, info.transfer_limit_bytes), (2 * BLOCK, before.transfer_limit_bytes));
    set.change(|array| {
        array.blocks_max = 128;
        array.attention = Some((1, AdditionalSense::INQUIRY_DATA_HAS_CHANGED));
    });
    assert_eq!(set.serve_for(&mut driver, 100, write_long(&volume)), Some(Ok(())));
    assert_eq!(set.writes(0), [0, 0], "all at once again, but for the part that was told of it");
}

#[test]
fn a_part_that_fails_is_the_end_of_its_write() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    shrink(&set, AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
    set.take(|code, _, log| {
        let is_third = code == WRITE && log.last() == Some(&(WRITE, 0, 4));
        is_third.then(|| Ok(refuse(SenseKey::MediumError, AdditionalSense::WRITE_ERROR)))
    });
    let told = set.serve_for(&mut driver, 100, write_long(&volume));
    let at = 4 * BLOCK as u64;
    assert!(matches!(told, Some(Err(VolumeError::Medium { offset_bytes, .. })) if offset_bytes == at), "{told:?}");
    assert_eq!(set.writes(0), [0, 0, 2, 4]);
}

#[test]
fn a_lost_write_that_has_become_too_long_for_its_unit_is_given_again_in_parts() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    assert_eq!(set.serve_for(&mut driver, 100, write_long(&volume)), Some(Ok(())));
    assert_eq!(serve(&mut driver, write(&volume, 9)), Ok(()));
    shrink(&set, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
    set.change(|array| array.verifier += 1);
    assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())), "nothing is lost");
    assert_eq!(set.writes(0), [0, 2, 4, 6, 9]);
}
