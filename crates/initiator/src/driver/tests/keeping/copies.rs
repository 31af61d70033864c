//! Copies that the device has made of another disk of its.

use super::*;

/// It is not kept: by then there may be other data where it was copied from, and nobody has read it. So it is made stable at once.
#[test]
fn a_copy_is_flushed_unasked_and_not_made_again() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let (to, from) = (open_unit(&mut driver, 0), open_unit(&mut driver, 1));
    let copied = set.serve_for(&mut driver, 100, to.copy_from(&from, 0, 0, 4 * BLOCK as u64));
    assert_eq!((copied, set.count(COPY), set.count(FLUSH)), (Some(Ok(())), 1, 1));
    set.lose_power(1);
    assert_eq!(set.serve_for(&mut driver, 2000, to.flush()), Some(Ok(())));
    assert_eq!(set.count(COPY), 1);
}

/// Nobody has said that it is there.
#[test]
fn a_copy_that_was_not_answered_is_given_again() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let (to, from) = (open_unit(&mut driver, 0), open_unit(&mut driver, 1));
    set.change(|array| array.attention = Some((1, AdditionalSense::RESERVATIONS_RELEASED)));
    let copied = set.serve_for(&mut driver, 2000, to.copy_from(&from, 0, 0, BLOCK as u64));
    assert_eq!((copied, set.count(COPY)), (Some(Ok(())), 2));
}
