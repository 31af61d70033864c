//! How much one connection may have in flight.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests that one connection has in flight at the most.
const REQUESTS_MAX: usize = 64;
/// Bytes of data of those requests at the most; one request alone may always go.
const DATA_MAX_BYTES: u64 = 64 << 20;

/// Counts requests and their bytes from their arrival until their answers are sent.
#[derive(Debug, Default)]
pub(super) struct Window {
    used: Mutex<Used>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Used {
    requests: usize,
    bytes: u64,
}

/// One request's share of the window.
#[derive(Debug)]
pub(super) struct Permit {
    window: Arc<Window>,
    bytes: u64,
}

impl Window {
    /// Waits until there is room.
    pub(super) fn enter(self: &Arc<Self>, bytes: u32) -> Permit {
        let bytes = u64::from(bytes);
        let full = |used: &mut Used| {
            used.requests >= REQUESTS_MAX || (used.requests > 0 && used.bytes + bytes > DATA_MAX_BYTES)
        };
        let mut used = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        used.requests += 1;
        used.bytes += bytes;
        Permit { window: Arc::clone(self), bytes }
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
        used.requests -= 1;
        used.bytes -= self.bytes;
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

    #[test]
    fn requests_and_bytes_are_bounded_and_one_large_request_still_goes() {
        let window = Arc::new(Window::default());
        let half = window.enter(32 << 20);
        let other_half = window.enter(32 << 20);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| window.enter(1));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!late.is_finished());
            drop(half);
            drop(late.join().unwrap());
        });
        assert!(!window.wait_idle(Duration::from_millis(5)));
        drop(other_half);
        drop(window.enter(u32::MAX));
        let all: Vec<Permit> = (0..REQUESTS_MAX).map(|_| window.enter(0)).collect();
        std::thread::scope(|scope| {
            let late = scope.spawn(|| window.enter(0));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!late.is_finished());
            drop(all);
            drop(late.join().unwrap());
        });
        assert!(window.wait_idle(Duration::ZERO));
    }
}
