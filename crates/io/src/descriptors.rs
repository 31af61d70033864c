//! How many files and connections the process may have open.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys;

/// Raises the limit to what is `wanted`, or as far as this process may by itself, and gives it. It is never lowered.
///
/// # Errors
/// The kernel's.
pub fn raise_limit(wanted: u64) -> io::Result<u64> {
    let libc::rlimit { rlim_cur, rlim_max } = limits()?;
    // Only who is privileged raises the upper one, and not above what the system allows.
    if rlim_max < wanted && set(libc::rlimit { rlim_cur: wanted, rlim_max: wanted }).is_ok() {
        return limit();
    }
    if rlim_cur < rlim_max {
        set(libc::rlimit { rlim_cur: rlim_max, rlim_max })?;
    }
    limit()
}

/// The limit: descriptors have numbers below it.
///
/// # Errors
/// The kernel's.
pub fn limit() -> io::Result<u64> {
    Ok(limits()?.rlim_cur)
}

/// The number of a descriptor. New ones get the lowest that is free, so it tells how many are open at least.
#[must_use]
pub fn number(fd: BorrowedFd<'_>) -> u64 {
    // An open descriptor is not negative.
    u64::try_from(fd.as_raw_fd()).unwrap_or(0)
}

/// Whether the error says that the process, or the system, has too many open.
#[must_use]
pub fn are_used_up(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn set(limits: libc::rlimit) -> io::Result<()> {
    // SAFETY: `limits` lives during the call, and is only read.
    sys::check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) }).map(drop)
}

fn limits() -> io::Result<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`, which lives during the call.
    sys::check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) })?;
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_limit_is_raised_and_descriptors_are_below_it() {
        let raised = raise_limit(0).unwrap();
        assert_eq!((raised, limits().unwrap().rlim_max), (limit().unwrap(), limit().unwrap()));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(number(file.as_fd()) > 2 && number(file.as_fd()) < raised);
        assert!(are_used_up(&io::Error::from_raw_os_error(libc::EMFILE)) && !are_used_up(&io::Error::other("else")));
    }
}
