use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::state::PRECEDENCE_RELEASES;
use super::*;

#[test]
fn frames_go_home_when_dropped() {
    let region = Region::new(4 * UNIT_BYTES).unwrap();
    let big = region.frame(3 * UNIT_BYTES).unwrap();
    assert!(region.frame(2 * UNIT_BYTES).is_none(), "back-pressure, not growth");
    let small = region.frame(1).unwrap();
    assert_eq!((small.len(), small.capacity()), (1, UNIT_BYTES));
    assert_eq!(region.free_bytes(), 0);
    drop((big, small));
    assert_eq!(region.free_bytes(), region.length_bytes());
}

#[test]
fn a_frame_outlives_its_region_handle() {
    let mut frame = Region::new(UNIT_BYTES).unwrap().frame(16).unwrap();
    frame.copy_from_slice(&[7; 16]);
    assert_eq!(*frame, [7; 16]);
}

#[test]
fn free_bytes_in_holes_are_no_run() {
    let region = Region::new(4 * UNIT_BYTES).unwrap();
    let mut frames: Vec<_> = (0..4).map(|_| region.frame(1)).collect();
    (frames[0], frames[2]) = (None, None);
    assert_eq!(region.free_bytes(), 2 * UNIT_BYTES);
    assert!(region.has_frames(UNIT_BYTES, UNIT_BYTES) && region.has_frames(0, 0));
    assert!(!region.has_frames(UNIT_BYTES + 1, 0) && !region.has_frames(0, UNIT_BYTES + 1));
    frames[1] = None;
    assert!(region.has_frames(3 * UNIT_BYTES, 0) && !region.has_frames(4 * UNIT_BYTES, 0));
    assert!(region.has_frames(UNIT_BYTES, 2 * UNIT_BYTES) && !region.has_frames(2 * UNIT_BYTES, 2 * UNIT_BYTES));
    assert_eq!(region.free_bytes(), 3 * UNIT_BYTES, "nothing was taken");
}

#[test]
fn what_a_holder_takes_is_counted_wherever_it_goes() {
    let region = Region::new(16 * UNIT_BYTES).unwrap();
    let (one, other) = (region.share(0), region.share(0));
    let slices: Vec<_> = (0..4).map(|_| one.clone().frame(3 * UNIT_BYTES).unwrap().freeze()).collect();
    assert_eq!((one.held_bytes(), other.held_bytes(), region.held_bytes()), (12 * UNIT_BYTES, 0, 0));
    assert!(one.frame(1).is_none() && one.free_bytes() == 0, "it leaves a quarter");
    assert_eq!((region.usage().most, region.usage().refused), (Some(MEMORY_OF_CLIENT.limit), 1));
    assert_eq!((other.free_bytes(), region.free_bytes()), (3 * UNIT_BYTES, 4 * UNIT_BYTES));
    assert!(other.has_frames(2 * UNIT_BYTES, 1) && !other.has_frames(2 * UNIT_BYTES, UNIT_BYTES + 1));
    let kept = slices[0].slice(5..6);
    let releases = region.releases();
    drop((slices, one));
    assert_eq!((other.free_bytes(), region.releases()), (39 * UNIT_BYTES / 4, releases + 3), "all but one frame");
    drop(kept);
    assert_eq!(region.free_bytes(), region.length_bytes());
    let next = region.share(0);
    assert_eq!(next.held_bytes(), 0, "who has the number of one that is gone begins with nothing");
}

#[test]
fn what_is_guaranteed_is_denied_only_when_it_is_not_there() {
    let region = Region::new(4 * UNIT_BYTES).unwrap();
    let (one, other) = (region.share(4 * UNIT_BYTES), region.share(2 * UNIT_BYTES));
    let all = one.frame(4 * UNIT_BYTES).unwrap();
    assert!(one.frame(1).is_none() && !one.is_denied());
    assert!(other.frame(3 * UNIT_BYTES).is_none() && !other.is_denied());
    assert!(other.frame(1).is_none() && other.is_denied());
    drop(all);
    assert!(other.frame(1).is_some() && !other.is_denied());
    assert!(region.nothing().frame(1).is_none() && !region.nothing().has_frames(1, 0));
    assert!(region.is_same(&other.nothing()));
}

#[test]
fn many_that_ask_for_little_do_not_keep_one_from_much() {
    let region = Region::new(16 * UNIT_BYTES).unwrap();
    let (much, little) = (region.share(16 * UNIT_BYTES), region.share(16 * UNIT_BYTES));
    let first = little.frame(1).unwrap();
    let second = little.frame(1).unwrap();
    assert!(much.frame(16 * UNIT_BYTES).is_none() && much.is_denied());
    assert!(little.frame(1).is_none() && little.free_bytes() == 0, "it has some");
    drop((first, second));
    let again = little.frame(1);
    assert!(again.is_some() && little.frame(1).is_none(), "who has nothing is served");
    drop(again);
    let all = much.frame(16 * UNIT_BYTES).unwrap();
    drop(all);
    assert!((0..2).map(|_| little.frame(1)).all(|frame| frame.is_some()), "nobody is denied anything");
}

#[test]
fn who_was_denied_and_asks_no_more_keeps_nobody_waiting() {
    let region = Region::new(16 * UNIT_BYTES).unwrap();
    let (gone, other) = (region.share(16 * UNIT_BYTES), region.share(16 * UNIT_BYTES));
    let held = other.frame(1);
    assert!(!gone.has_frames(16 * UNIT_BYTES, 0));
    assert!(other.frame(1).is_none());
    (0..PRECEDENCE_RELEASES).for_each(|_| drop(region.frame(1)));
    assert!(other.frame(1).is_some());
    assert!(!gone.has_frames(16 * UNIT_BYTES, 0) && other.frame(1).is_none());
    drop(gone);
    assert!(other.frame(1).is_some() && held.is_some());
}

#[test]
fn who_was_denied_much_has_precedence_until_it_has_got_that() {
    let region = Region::new(16 * UNIT_BYTES).unwrap();
    let (much, little) = (region.share(16 * UNIT_BYTES), region.share(16 * UNIT_BYTES));
    let held: Vec<_> = (0..4).map(|_| little.frame(1).unwrap()).collect();
    assert!(much.frame(14 * UNIT_BYTES).is_none() && much.is_denied());
    let some = much.frame(1).unwrap();
    assert!(much.is_denied() && little.frame(1).is_none(), "little of it is not what it was denied");
    drop((some, held));
    assert!(much.frame(14 * UNIT_BYTES).is_some() && !much.is_denied());
}

#[test]
fn nobody_waits_for_what_its_holder_has_itself() {
    let region = Region::new(16 * UNIT_BYTES).unwrap();
    let (much, other) = (region.share(64 * UNIT_BYTES), region.share(0));
    let held = [much.frame(8 * UNIT_BYTES), other.frame(1)];
    assert!(much.frame(9 * UNIT_BYTES).is_none() && much.is_denied());
    assert!(other.frame(1).is_some());
    much.forgo();
    assert!(much.frame(8 * UNIT_BYTES).is_none() && other.frame(1).is_none());
    drop(held);
}

#[test]
fn what_is_not_wanted_any_more_gives_no_precedence() {
    let region = Region::new(16 * UNIT_BYTES).unwrap();
    let (gone, other) = (region.share(16 * UNIT_BYTES), region.share(16 * UNIT_BYTES));
    let held = other.frame(1).unwrap();
    assert!(gone.frame(16 * UNIT_BYTES).is_none() && gone.is_denied() && other.frame(1).is_none());
    gone.forgo();
    assert!(!gone.is_denied() && other.frame(1).is_some());
    drop(held);
}

#[test]
fn precedence_keeps_others_from_no_more_than_was_denied() {
    let region = Region::new(16 * UNIT_BYTES).unwrap();
    let (first, other) = (region.share(8 * UNIT_BYTES), region.share(0));
    let mut held: Vec<_> = (0..12).map(|_| other.frame(1).unwrap()).collect();
    assert!(first.frame(8 * UNIT_BYTES).is_none());
    held.truncate(1);
    assert_eq!(other.free_bytes(), 7 * UNIT_BYTES);
    let more: Vec<_> = std::iter::from_fn(|| other.frame(1)).collect();
    assert_eq!(more.len(), 7);
    assert!(first.frame(8 * UNIT_BYTES).is_some());
}

#[test]
fn a_region_of_nothing_is_refused() {
    assert_eq!(Region::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

/// A region whose calls of its hook are counted.
fn counted(units: usize) -> (Region, Arc<AtomicU32>) {
    let (region, calls) = (Region::new(units * UNIT_BYTES).unwrap(), Arc::<AtomicU32>::default());
    let counter = Arc::clone(&calls);
    assert!(region.on_release(move || _ = counter.fetch_add(1, Ordering::Relaxed)));
    assert!(!region.on_release(|| ()), "it has one");
    (region, calls)
}

#[test]
fn who_waits_is_told_once_of_what_comes_free() {
    let (region, calls) = counted(4);
    let calls = || calls.swap(0, Ordering::Relaxed);
    drop(region.frame(1));
    assert_eq!(calls(), 0, "nobody waits");
    let mut held: Vec<_> = (0..4).map(|_| region.frame(1).unwrap()).collect();
    let releases = region.await_release();
    assert!(region.frame(1).is_none());
    assert_eq!((calls(), region.releases()), (0, releases));
    held.truncate(2);
    assert_eq!((calls(), region.releases()), (1, releases + 2));
    region.await_release();
    std::thread::spawn(move || drop(held)).join().unwrap();
    assert_eq!(calls(), 1, "from any thread");
}

#[test]
fn who_waits_is_told_when_nothing_must_be_left_to_another_any_more() {
    let (region, calls) = counted(16);
    let calls = || calls.swap(0, Ordering::Relaxed);
    let waiting = region.share(16 * UNIT_BYTES);
    let held = waiting.frame(1);
    let denied = || {
        let first = region.share(16 * UNIT_BYTES);
        assert!(first.frame(16 * UNIT_BYTES).is_none() && first.is_denied());
        region.await_release();
        assert!(waiting.frame(1).is_none());
        assert_eq!(calls(), 0);
        first
    };
    let first = denied();
    first.forgo();
    assert_eq!((calls(), waiting.frame(1).is_some()), (1, true), "it does not want it");
    drop(first);
    drop(denied());
    assert_eq!((calls(), waiting.frame(1).is_some()), (1, true), "it is gone");
    let first = denied();
    drop(held);
    assert_eq!(calls(), 1);
    region.await_release();
    let all = first.frame(16 * UNIT_BYTES);
    assert_eq!((calls(), all.is_some()), (1, true), "it has got it");
}

#[test]
fn who_asks_again_and_again_in_vain_wakes_nobody() {
    let (region, calls) = counted(16);
    let holders = [(); 3].map(|()| region.share(16 * UNIT_BYTES));
    let held = region.frame(1);
    for round in 0..10 {
        let _ = region.await_release();
        assert!(holders.iter().all(|holder| holder.frame(16 * UNIT_BYTES).is_none()));
        assert_eq!(calls.load(Ordering::Relaxed), 0, "round {round}");
    }
    drop(held);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

proptest! {
    /// Who was refused something and is not told of a release is refused the same again.
    #[test]
    fn what_is_not_told_of_changes_nothing(steps in proptest::collection::vec((0usize..4, 0usize..6, 1usize..12), 1..120)) {
        let (region, calls) = counted(16);
        let mut shares: Vec<Region> = [0, 4, 8, 16].iter().map(|units| region.share(units * UNIT_BYTES)).collect();
        let (mut held, mut refused) = (Vec::new(), Vec::<(usize, usize)>::new());
        for (holder, what, units) in steps {
            match what {
                0..3 => held.extend(shares[holder].frame(units * UNIT_BYTES)),
                3 if !held.is_empty() => drop(held.swap_remove(units % held.len())),
                4 => shares[holder].forgo(),
                _ if held.is_empty() => {
                    shares[holder] = region.share(units * UNIT_BYTES);
                    refused.retain(|(other, _)| *other != holder);
                }
                _ => {}
            }
            if calls.swap(0, Ordering::Relaxed) == 0 {
                for &(holder, bytes) in &refused {
                    prop_assert!(!Region::has_frames(&shares[holder], bytes, 0), "{holder} was not told of {bytes} bytes");
                }
            }
            region.await_release();
            let is_refused = |holder: &usize| !Region::has_frames(&shares[*holder], units * UNIT_BYTES, 0);
            refused = (0..shares.len()).filter(is_refused).map(|holder| (holder, units * UNIT_BYTES)).collect();
        }
    }
}

#[test]
fn who_has_less_than_others_that_have_something_does_not_hold_its_part() {
    let region = Region::new(16 * UNIT_BYTES).unwrap();
    let shares = [(); 4].map(|()| region.share(16 * UNIT_BYTES));
    let holds = || shares.each_ref().map(Region::holds_its_part);
    assert_eq!(holds(), [true; 4], "nobody has anything");
    let much = shares[0].frame(4 * UNIT_BYTES);
    assert_eq!(holds(), [true, false, false, false]);
    let little = shares[1].frame(UNIT_BYTES);
    assert_eq!(holds(), [true, false, false, false]);
    let more = shares[1].frame(3 * UNIT_BYTES);
    assert_eq!(holds(), [true, true, false, false], "those that have nothing are not counted");
    let whole = region.frame(4 * UNIT_BYTES);
    assert_eq!(holds(), [true, true, false, false], "nor is who has it for all");
    drop((much, more, whole));
    assert_eq!(holds(), [false, true, false, false]);
    drop(little);
    assert_eq!(holds(), [true; 4]);
    assert!(region.holds_its_part() && region.nothing().holds_its_part());
}
