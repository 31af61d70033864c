//! Writes that are stable as soon as they are acknowledged.

use super::*;

async fn write_stable(volume: &Volume, lba: u64, blocks: usize) -> Result<(), VolumeError> {
    volume.write_stable(lba * BLOCK as u64, Frame::from(vec![1; blocks * BLOCK]).freeze()).await
}

/// Rewriting may be interrupted before it is complete.
#[test]
fn what_is_stable_is_not_overwritten_by_what_is_given_again() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    assert_eq!(serve(&mut driver, volume.write(0, Frame::from(vec![0; 8 * BLOCK]).freeze())), Ok(()));
    assert_eq!(serve(&mut driver, write(&volume, 9)), Ok(()));
    assert_eq!(serve(&mut driver, write_stable(&volume, 3, 2)), Ok(()));
    assert_eq!(serve(&mut driver, write_stable(&volume, 9, 1)), Ok(()));
    assert_eq!(serve(&mut driver, write(&volume, 4)), Ok(()));
    set.writes(0);
    set.lose_power(1);
    assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())));
    assert_eq!(set.writes(0), [0, 5, 4], "what is left of the first, and what came after the stable one");
}
