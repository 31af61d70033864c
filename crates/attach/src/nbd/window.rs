//! How much one connection may have in flight.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests that one connection has in flight at the most.
const REQUESTS_MAX: usize = 64;
/// Bytes of data of those requests at the most, a quarter of what a client of a server usually has for all that use its volume: who takes
/// no answers leaves the rest to others. One part of a request may always go alone.
const DATA_MAX_BYTES: u64 = 16 << 20;

/// Counts requests from their arrival until their answers are sent, and the bytes of their parts likewise.
#[derive(Debug, Default)]
pub(super) struct Window {
    used: Mutex<Used>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    requests: usize,
    bytes: u64,
}

/// The share of the window of a request, or of the data of a part of one.
#[derive(Debug)]
pub(super) struct Permit {
    window: Arc<Window>,
    share: Used,
}

impl Window {
    /// Waits until there is room for one more request.
    pub(super) fn enter(self: &Arc<Self>) -> Permit {
        self.take(Used { requests: 1, bytes: 0 }, |used| used.requests >= REQUESTS_MAX)
    }

    /// Waits until there is room for so much data of a request that has entered.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Permit {
        let bytes = bytes as u64;
        self.take(Used { requests: 0, bytes }, |used| used.bytes > 0 && used.bytes + bytes > DATA_MAX_BYTES)
    }

    fn take(self: &Arc<Self>, share: Used, is_full: impl Fn(&Used) -> bool) -> Permit {
        let waited = self.changed.wait_while(self.lock(), |used| is_full(used));
        let mut used = waited.unwrap_or_else(PoisonError::into_inner);
        used.requests += share.requests;
        used.bytes += share.bytes;
        Permit { window: Arc::clone(self), share }
    }

    /// Waits until nothing is in flight; `false` when that took too long.
    pub(super) fn wait_idle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut used = self.lock();
        while used.requests > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            used = self.changed.wait_timeout(used, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        // Nothing panics between two writes to the counters.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut used = self.window.lock();
        let was_tight = used.requests >= REQUESTS_MAX || used.bytes > DATA_MAX_BYTES / 2;
        used.requests -= self.share.requests;
        used.bytes -= self.share.bytes;
        let idle = used.requests == 0;
        drop(used);
        if was_tight || idle {
            self.window.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this waits until that is given back.
    fn waits_for<T: Send>(held: T, wanted: impl FnOnce() -> Permit + Send) -> bool {
        std::thread::scope(|scope| {
            let late = scope.spawn(wanted);
            std::thread::sleep(Duration::from_millis(20));
            let waits = !late.is_finished();
            drop(held);
            drop(late.join().unwrap());
            waits
        })
    }

    #[test]
    fn requests_and_bytes_are_bounded_and_one_large_part_still_goes() {
        let window = Arc::new(Window::default());
        let request = window.enter();
        let (half, other_half) = (window.hold(8 << 20), window.hold(8 << 20));
        assert!(waits_for(half, || window.hold(1)));
        assert!(!window.wait_idle(Duration::from_millis(5)));
        drop((other_half, request));
        drop(window.hold(u32::MAX as usize));
        let all: Vec<Permit> = (0..REQUESTS_MAX).map(|_| window.enter()).collect();
        drop(window.hold(1));
        assert!(waits_for(all, || window.enter()));
        assert!(window.wait_idle(Duration::ZERO));
    }
}
