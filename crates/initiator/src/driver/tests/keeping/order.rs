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

/// The caller was told an error, and others may have read what it wrote: nobody may say that the earlier one is there either.
#[test]
fn a_write_is_not_given_again_over_one_that_failed_and_may_have_been_done() {
    let manners: [fn() -> Result<Told, Silence>; 4] = [
        || Err(Silence::Failed(Failure::TimedOut { after: Duration::ZERO })),
        || Err(Silence::Failed(Failure::NoAnswer("it is away".into()))),
        || Err(Silence::Failed(Failure::InDoubt)),
        || Ok(refuse(SenseKey::MediumError, AdditionalSense::WRITE_ERROR)),
    ];
    for (which, manner) in manners.into_iter().enumerate() {
        for (is_stable, lba) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
            let what = format!("{which} at {lba}, stable: {is_stable}");
            let set = Set::new();
            let (mut driver, _) = set.driver(PLENTY);
            let volume = open(&mut driver);
            assert_eq!(serve(&mut driver, write(&volume, 1)), Ok(()));
            set.take(move |code, _, _| if code == WRITE { Some(manner()) } else { Some(Ok(status(Status::Busy))) });
            let block = Frame::from(vec![0; BLOCK]).freeze();
            let failed = match is_stable {
                true => serve(&mut driver, volume.write_stable(lba * BLOCK as u64, block)),
                false => serve(&mut driver, write(&volume, lba)),
            };
            assert!(failed.is_err(), "{what}");
            set.take(|_, _, _| None);
            set.writes(0);
            set.lose_power(1);
            let told = set.serve_for(&mut driver, 2000, volume.flush());
            let is_told = matches!(told, Some(Err(VolumeError::WritesLost { .. })));
            let again: &[u8] = if lba == 1 { &[] } else { &[1] };
            assert_eq!((is_told, &set.writes(0)[..]), (lba == 1, again), "{what}: {told:?}");
            assert_eq!(set.serve_for(&mut driver, 2000, volume.flush()), Some(Ok(())), "{what}");
        }
    }
}
