//! A call that may block for long, made by a thread of its own.

use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Error;
use crate::readiness::{Readiness, Source};

/// Calls under way in this process, at the most: hosts that do not answer keep each of them for minutes.
const ERRANDS_MAX: usize = 64;

static ERRANDS: AtomicUsize = AtomicUsize::new(0);

/// One call. `T` is what the call must not lose before it ends.
pub(crate) struct Errand<T> {
    // Behind a lock only so that all threads may see it: nobody but the owner asks.
    result: Mutex<Receiver<Result<(), Error>>>,
    legacy: Sender<T>,
    /// It is closed at the other end when there is a result. Whoever drops it has it watched no more.
    _told: PipeReader,
}

/// What one takes of all that there may be.
struct Place;

impl Place {
    fn take() -> Result<Place, Error> {
        // From here on it is given back.
        let place = Place;
        if ERRANDS.fetch_add(1, Ordering::Relaxed) < ERRANDS_MAX {
            return Ok(place);
        }
        Err(Error::Unanswered { count: ERRANDS_MAX })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        ERRANDS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Send + 'static> Errand<T> {
    /// Begins it. The descriptor of [`Source::Errand`] is readable when it has ended.
    ///
    /// # Errors
    /// When there is no thread for it, or there are too many.
    pub(crate) fn begin(
        call: impl FnOnce() -> Result<(), Error> + Send + 'static,
        readiness: &Readiness,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Adapter { what: "no thread to ask for a connection", source };
        let place = Place::take()?;
        let (reader, writer) = io::pipe().map_err(failed)?;
        readiness.add(reader.as_fd(), Source::Errand)?;
        let (tell, result) = mpsc::channel();
        let (legacy, left) = mpsc::channel();
        let work = move || {
            let _place = place;
            let _ = tell.send(call());
            drop(writer);
            // Nothing, where its owner goes on.
            drop(left.recv());
        };
        thread::Builder::new().name("rdma-connect".to_owned()).spawn(work).map_err(failed)?;
        Ok(Errand { result: Mutex::new(result), legacy, _told: reader })
    }

    /// What has come of it; `None` as long as it goes on.
    pub(crate) fn result(&mut self) -> Option<Result<(), Error>> {
        match self.result.get_mut().unwrap_or_else(PoisonError::into_inner).try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::number("a thread has ended early", libc::EIO))),
        }
    }

    /// Nobody waits for it any more: what must outlive it is let go of by its thread, behind it.
    pub(crate) fn leave(self, legacy: T) {
        drop(self.legacy.send(legacy));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn wait_for(mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG, "it is not so");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn who_waits_hears_what_has_come_of_a_call() {
        let readiness = Readiness::new().unwrap();
        let refused = || Err(Error::number("nobody is there", libc::ECONNREFUSED));
        let mut errand = Errand::<()>::begin(refused, &readiness).unwrap();
        wait_for(|| readiness.ask().errand);
        let error = errand.result().unwrap().unwrap_err();
        assert_eq!(error.kind(), Some(io::ErrorKind::ConnectionRefused));
        drop(errand);
        assert!(!readiness.ask().errand, "nothing more is to be told");
    }

    /// The kernel has the queue pair as long, and to destroy it would wait for that.
    #[test]
    fn who_waits_no_more_is_not_held_and_what_it_leaves_goes_behind_the_call() {
        let readiness = Readiness::new().unwrap();
        let (answer, answered) = mpsc::channel::<()>();
        let blocked = move || answered.recv_timeout(LONG).map_err(|_| Error::number("no answer", libc::ETIMEDOUT));
        let mut errand = Errand::begin(blocked, &readiness).unwrap();
        let (legacy, is_there) = mpsc::channel::<()>();
        assert!(!readiness.ask().errand && errand.result().is_none());
        errand.leave(legacy);
        assert_eq!(is_there.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        answer.send(()).unwrap();
        assert_eq!(is_there.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
