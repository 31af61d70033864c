//! Several writes of the same blocks.

use super::*;

/// The device may still have the later one, and others may have read it.
#[test]
fn a_write_is_not_given_again_over_a_later_one() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    assert_eq!(serve(&mut driver, volume.write(0, Frame::from(vec![0; 8 * BLOCK]).freeze())), Ok(()));
    for lba in [3, 12, 3, 5] {
        assert_eq!(serve(&mut driver, write(&volume, lba)), Ok(()));
    }
    set.writes(0);
    set.lose_power(1);
    assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())));
    assert_eq!(set.writes(0), [0, 4, 6, 12, 3, 5], "each block once, as it was last");
}
