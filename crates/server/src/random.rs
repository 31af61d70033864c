//! Random numbers of the system.

use std::io;

/// So many random bytes.
///
/// # Errors
/// When the system's generator fails.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    #[cfg(test)]
    if followed::fill(&mut bytes) {
        return Ok(bytes);
    }
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| io::Error::other("the system's generator of random numbers failed"))?;
    Ok(bytes)
}

#[cfg(test)]
pub(crate) use self::followed::follow;

#[cfg(test)]
mod followed {
    use std::cell::RefCell;

    use sanwire_sim::random::Random;

    thread_local! {
        static RANDOM: RefCell<Option<Random>> = const { RefCell::new(None) };
    }

    /// From now on what this thread draws follows from a seed.
    pub(crate) fn follow(seed: u64) {
        RANDOM.set(Some(Random::new(seed)));
    }

    /// `false`: it does not.
    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        RANDOM.with_borrow_mut(|random| random.as_mut().map(|random| bytes.fill_with(|| random.u64() as u8)).is_some())
    }
}
