//! Who waits for whom.

use super::Access::{Alone, Change, Look};
use super::*;

const ONE: Lane = Lane(1);
const OTHER: Lane = Lane(2);

fn claim(offset_bytes: u64, length_bytes: u64, access: Access) -> Claim {
    Claim { range: Range { offset_bytes, length_bytes }, access }
}

#[test]
fn writes_do_not_wait_for_each_other() {
    let exclusion = Exclusion::default();
    let (a, b) = (exclusion.enter(claim(0, 10, Change), ONE), exclusion.enter(claim(5, 10, Change), ONE));
    assert!(matches!((&a, &b), (Permit::Counted(ONE, _), Permit::Counted(ONE, _))));
    assert!(exclusion.may_go(&a) && exclusion.may_go(&b));
}

#[test]
fn an_exclusive_claim_waits_for_what_came_before_and_is_waited_for() {
    let exclusion = Exclusion::default();
    let before = exclusion.enter(claim(100, 10, Change), ONE);
    let alone = exclusion.enter(claim(0, 10, Alone), OTHER);
    assert!(!exclusion.may_go(&alone), "where the counted write goes is not known");
    let beside = exclusion.enter(claim(10, 10, Change), ONE);
    let within = exclusion.enter(claim(9, 10, Change), ONE);
    assert!(exclusion.may_go(&beside) && !exclusion.may_go(&within));
    exclusion.leave(&before);
    assert!(exclusion.may_go(&alone), "what came later does not hold it up");
    exclusion.leave(&alone);
    assert!(exclusion.may_go(&within));
    let next = exclusion.enter(claim(0, 50, Alone), ONE);
    assert!(!exclusion.may_go(&next));
    exclusion.leave(&beside);
    exclusion.leave(&within);
    assert!(exclusion.may_go(&next));
    exclusion.leave(&next);
    assert!(matches!(exclusion.enter(claim(0, 50, Change), ONE), Permit::Counted(..)), "all is as at first");
}

#[test]
fn exclusive_claims_on_other_blocks_go_side_by_side() {
    let exclusion = Exclusion::default();
    let (a, b) = (exclusion.enter(claim(0, 10, Alone), ONE), exclusion.enter(claim(10, 10, Alone), ONE));
    let c = exclusion.enter(claim(19, 1, Alone), ONE);
    assert!(exclusion.may_go(&a) && exclusion.may_go(&b) && !exclusion.may_go(&c));
    exclusion.leave(&b);
    assert!(exclusion.may_go(&c));
}

#[test]
fn everybody_waits_for_the_blocks_of_a_lost_change() {
    let exclusion = Exclusion::default();
    let before = exclusion.enter(claim(8, 4, Change), OTHER);
    let mut lost = exclusion.enter(claim(0, 10, Change), ONE);
    exclusion.keep(&mut lost, None);
    let later = [Look, Change, Alone].map(|access| exclusion.enter(claim(9, 10, access), ONE));
    let beside = [Look, Change].map(|access| exclusion.enter(claim(20, 10, access), ONE));
    assert!(exclusion.may_go(&before), "it was under way");
    assert!(!later.iter().any(|permit| exclusion.may_go(permit)));
    assert!(beside.iter().all(|permit| exclusion.may_go(permit)));
    [&before, &beside[0], &beside[1], &lost].into_iter().for_each(|permit| exclusion.leave(permit));
    assert!(exclusion.may_go(&later[0]) && exclusion.may_go(&later[1]));
    assert!(!exclusion.may_go(&later[2]), "a change that came before it");
    later[..2].iter().for_each(|permit| exclusion.leave(permit));
    assert!(exclusion.may_go(&later[2]));
    exclusion.leave(&later[2]);
    assert!(matches!(exclusion.enter(claim(0, 1, Look), ONE), Permit::Nothing), "all is as at first");
    assert!(matches!(exclusion.enter(claim(0, 1, Change), ONE), Permit::Counted(..)));
}

#[test]
fn those_who_were_at_their_stores_together_go_on() {
    let exclusion = Exclusion::default();
    let mut both = [ONE, OTHER].map(|lane| exclusion.enter(claim(0, 10, Change), lane));
    both.iter_mut().for_each(|permit| exclusion.keep(permit, None));
    assert!(both.iter().all(|permit| exclusion.may_go(permit)), "to flush what they wrote");
}

#[test]
fn a_lost_compare_and_write_keeps_its_blocks_from_reads_too_and_is_kept_once() {
    let exclusion = Exclusion::default();
    let mut lost = exclusion.enter(claim(0, 10, Alone), ONE);
    assert!(exclusion.may_go(&exclusion.enter(claim(0, 1, Look), ONE)));
    exclusion.keep(&mut lost, None);
    exclusion.keep(&mut lost, None);
    let read = exclusion.enter(claim(0, 1, Look), ONE);
    assert!(!exclusion.may_go(&read));
    exclusion.leave(&lost);
    assert!(exclusion.may_go(&read));
    assert!(matches!(exclusion.enter(claim(0, 1, Look), ONE), Permit::Nothing));
}

/// It may be the older copy of one that was given again by another path.
#[test]
fn a_change_that_waits_is_not_overtaken() {
    let exclusion = Exclusion::default();
    let mut lost = exclusion.enter(claim(0, 10, Change), ONE);
    exclusion.keep(&mut lost, None);
    let waiting = exclusion.enter(claim(5, 10, Change), ONE);
    let beyond = exclusion.enter(claim(12, 10, Change), OTHER);
    let read = exclusion.enter(claim(12, 10, Look), OTHER);
    assert!(!exclusion.may_go(&waiting) && !exclusion.may_go(&beyond) && exclusion.may_go(&read));
    exclusion.leave(&lost);
    let later = exclusion.enter(claim(5, 10, Change), OTHER);
    assert!(!exclusion.may_go(&later) && exclusion.may_go(&exclusion.enter(claim(30, 1, Change), OTHER)));
    assert!(exclusion.may_go(&waiting) && exclusion.may_go(&beyond) && exclusion.may_go(&later));
    assert!(matches!(exclusion.enter(claim(5, 10, Change), ONE), Permit::Counted(..)), "all is as at first");
}

#[test]
fn a_change_that_is_lost_while_it_waits_keeps_its_blocks_from_then_on() {
    let exclusion = Exclusion::default();
    let alone = exclusion.enter(claim(0, 10, Alone), ONE);
    let mut lost = exclusion.enter(claim(0, 10, Change), ONE);
    assert!(!exclusion.may_go(&lost) && exclusion.may_go(&exclusion.enter(claim(0, 1, Look), ONE)));
    exclusion.keep(&mut lost, None);
    let read = exclusion.enter(claim(0, 1, Look), ONE);
    assert!(!exclusion.may_go(&lost) && !exclusion.may_go(&read), "it would see what is overwritten then");
    exclusion.leave(&read);
    exclusion.requeue(&mut lost);
    exclusion.leave(&alone);
    assert!(exclusion.may_go(&lost));
    let later = [Look, Change].map(|access| exclusion.enter(claim(9, 10, access), OTHER));
    assert!(!later.iter().any(|permit| exclusion.may_go(permit)));
    exclusion.leave(&lost);
    assert!(later.iter().all(|permit| exclusion.may_go(permit)));
    later.iter().for_each(|permit| exclusion.leave(permit));
    assert!(matches!(exclusion.enter(claim(0, 1, Look), ONE), Permit::Nothing), "all is as at first");
    assert!(matches!(exclusion.enter(claim(0, 1, Change), ONE), Permit::Counted(..)));
}

#[test]
fn what_is_kept_ahead_waits_for_whom_it_meets_there_and_for_nobody_later() {
    let exclusion = Exclusion::default();
    let alone = exclusion.enter(claim(50, 10, Alone), OTHER);
    assert!(exclusion.may_go(&alone));
    let mut lost = exclusion.enter(claim(0, 10, Change), ONE);
    assert!(exclusion.may_go(&lost));
    exclusion.keep(&mut lost, Some(Places::One(Range { offset_bytes: 0, length_bytes: 100 })));
    assert!(exclusion.may_go(&alone) && !exclusion.may_go(&lost), "it began before");
    let later = [Look, Change, Alone].map(|access| exclusion.enter(claim(90, 10, access), OTHER));
    exclusion.leave(&alone);
    assert!(exclusion.may_go(&lost) && !later.iter().any(|permit| exclusion.may_go(permit)));
    exclusion.leave(&lost);
    assert!(exclusion.may_go(&later[0]) && exclusion.may_go(&later[1]));
}
