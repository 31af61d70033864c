//! Writes that are acknowledged while a flush, or another write of the same blocks, is under way.

use super::*;

/// The power may go right after it.
#[test]
fn what_is_acknowledged_while_a_flush_is_under_way_is_not_taken_for_flushed() {
    for is_own in [false, true] {
        let set = Set::new();
        let (mut driver, _) = set.driver(if is_own { LITTLE } else { PLENTY });
        let volume = open(&mut driver);
        set.take(|code, _, _| (code == FLUSH).then(|| Err(Silence::Gated(good()))));
        for lba in 1..4 {
            assert_eq!(serve(&mut driver, write(&volume, lba)), Ok(()));
        }
        let mut flush = std::pin::pin!(volume.flush());
        match is_own {
            true => set.run(&mut driver, 10),
            false => assert_eq!(set.serve_for(&mut driver, 10, flush.as_mut()), None),
        }
        assert_eq!(set.count(FLUSH), 1);
        assert_eq!(set.serve_for(&mut driver, 10, write(&volume, 9)), Some(Ok(())));
        set.stage.open_gate(0);
        match is_own {
            true => set.run(&mut driver, 10),
            false => assert_eq!(set.serve_for(&mut driver, 10, flush.as_mut()), Some(Ok(()))),
        }
        set.take(|_, _, _| None);
        set.writes(0);
        set.lose_power(1);
        assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())));
        assert_eq!(set.writes(0), [9], "own: {is_own}");
    }
}

/// What the device did last it has shown to readers: the other one must not come over it.
#[test]
fn writes_of_the_same_blocks_that_were_under_way_together_are_not_given_again() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    set.take(|code, _, log| {
        let is_first = code == WRITE && log.iter().filter(|(code, ..)| *code == WRITE).count() == 1;
        is_first.then(|| Err(Silence::Gated(good())))
    });
    let mut first = std::pin::pin!(write(&volume, 5));
    assert_eq!(set.serve_for(&mut driver, 10, first.as_mut()), None);
    assert_eq!(set.serve_for(&mut driver, 10, write(&volume, 5)), Some(Ok(())));
    set.stage.open_gate(0);
    assert_eq!(set.serve_for(&mut driver, 10, first.as_mut()), Some(Ok(())));
    set.take(|_, _, _| None);
    assert_eq!(serve(&mut driver, write(&volume, 9)), Ok(()));
    set.run(&mut driver, 10);
    assert_eq!(set.count(FLUSH), 1, "they are made stable instead");
    set.writes(0);
    set.lose_power(1);
    assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())));
    assert_eq!(set.writes(0), [9], "only what was given after them");
}
