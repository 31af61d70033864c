//! Random numbers of the system.

use std::io;

/// So many random bytes.
///
/// # Errors
/// When the system's generator fails.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| io::Error::other("the system's generator of random numbers failed"))?;
    Ok(bytes)
}
