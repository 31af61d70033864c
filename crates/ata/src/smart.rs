//! The data of SMART READ DATA (ACS-3): a disk that predicts nothing and tests nothing says so.

/// How long it is, in bytes.
pub const DATA_BYTES: usize = 512;

/// What SMART READ DATA answers: no attributes, no self-tests, no logs.
#[must_use]
pub fn data() -> Vec<u8> {
    // Off-line collection never began (362), the last self-test passed or none was run (363), nothing can be asked for (367, 370).
    let mut data = vec![0; DATA_BYTES];
    seal(&mut data);
    data
}

/// Puts the last byte so that the sum of all is zero.
pub(crate) fn seal(data: &mut [u8]) {
    if let Some((last, others)) = data.split_last_mut() {
        *last = others.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    }
}

/// Whether the sum of all bytes is zero, as it is where nothing was damaged.
pub fn is_sealed(data: &[u8]) -> bool {
    data.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_the_bytes_is_zero() {
        assert!(is_sealed(&data()) && data().len() == DATA_BYTES);
        let mut some = vec![1, 2, 0xff, 9];
        assert!(!is_sealed(&some));
        seal(&mut some);
        assert_eq!(some, [1, 2, 0xff, 0xfe]);
    }
}
