//! A word that is said once and stays said, for threads that wait on file descriptors.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Something that happens at most once ("stop"). Clones share it.
#[derive(Clone, Debug)]
pub struct Latch(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    /// Readable once the latch is set; never read.
    watched: UnixStream,
    set: UnixStream,
}

impl Latch {
    /// A latch that is not set.
    ///
    /// # Errors
    /// The kernel's, when no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let (watched, set) = UnixStream::pair()?;
        set.set_nonblocking(true)?;
        Ok(Latch(Arc::new(Ends { watched, set })))
    }

    /// Sets it. Setting it again changes nothing.
    pub fn set(&self) {
        // A full socket means that it was set thousands of times: it is readable.
        let _ = (&self.0.set).write(&[1]);
    }

    /// Whether it is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        let mut fds = [PollFd::new(&self.0.watched, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }

    /// Waits for so long, or until it is set; gives whether it is.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(&self.0.watched, PollFlags::IN)];
        let time =
            Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() };
        matches!(poll(&mut fds, Some(&time)), Ok(1..))
    }

    /// Waits until it is set.
    pub fn wait(&self) {
        wait_any(&[self.as_fd()]);
    }
}

impl AsFd for Latch {
    /// Readable once the latch is set.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.watched.as_fd()
    }
}

/// Waits until one of the descriptors is readable or closed.
pub(crate) fn wait_any(fds: &[BorrowedFd<'_>]) {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    while let Err(rustix::io::Errno::INTR) = poll(&mut polled, None) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latch_wakes_all_who_wait_and_stays_set() {
        let latch = Latch::new().unwrap();
        assert!(!latch.is_set() && !latch.wait_for(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| latch.wait());
            }
            latch.clone().set();
        });
        latch.wait();
        assert!(latch.is_set() && latch.wait_for(Duration::MAX));
    }
}
