//! Numbers that nobody has yet.

use sanwire_core::Lun;
use sanwire_core::limits::LUNS_MAX;

/// The lowest number that none of these has, which ascend, nor anything else; `None` when all are taken.
pub(crate) fn free_number(taken: impl IntoIterator<Item = u16>, is_reserved: impl Fn(u16) -> bool) -> Option<u16> {
    let mut taken = taken.into_iter().peekable();
    (0..LUNS_MAX as u16).find(|number| taken.next_if_eq(number).is_none() && !is_reserved(*number))
}

/// As [`free_number`], for a unit among others.
pub(crate) fn free_lun<'a>(taken: impl IntoIterator<Item = &'a Lun>, is_reserved: impl Fn(Lun) -> bool) -> Option<Lun> {
    let is_reserved = |number| Lun::new(number).is_some_and(&is_reserved);
    free_number(taken.into_iter().map(|lun| lun.number()), is_reserved).and_then(Lun::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_is_found_that_nobody_has() {
        let free = |taken: &[u16], reserved: u16| free_number(taken.iter().copied(), |number| number == reserved);
        assert_eq!([free(&[], 9), free(&[], 0), free(&[0, 1, 3], 9), free(&[0, 1, 3], 2)], [0, 1, 2, 4].map(Some));
        let all: Vec<u16> = (0..LUNS_MAX as u16).collect();
        assert_eq!((free(&all, 0), free(&all[..LUNS_MAX - 1], 0)), (None, Some(LUNS_MAX as u16 - 1)));
        assert_eq!(free(&all[..LUNS_MAX - 1], LUNS_MAX as u16 - 1), None);
    }
}
