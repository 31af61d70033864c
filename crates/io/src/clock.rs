//! Where drivers get their instants from.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sanwire_core::Instant;

/// The machine's monotonic clock (`CLOCK_MONOTONIC`): its instants may be compared between threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock(());

impl Clock {
    /// The clock.
    #[must_use]
    pub const fn new() -> Self {
        Clock(())
    }

    /// This moment. Costs a few tens of nanoseconds and no system call.
    #[must_use]
    pub fn now(&self) -> Instant {
        let time = clock_gettime(ClockId::Monotonic);
        let since_boot = Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32);
        Instant::ZERO + since_boot
    }
}

/// Processor time that the calling thread has taken so far.
#[must_use]
pub fn thread_time() -> Duration {
    taken(ClockId::ThreadCPUTime)
}

/// Processor time that all threads of this process have taken so far, also those that have ended.
#[must_use]
pub fn process_time() -> Duration {
    taken(ClockId::ProcessCPUTime)
}

fn taken(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let start = Clock::new().now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(Clock::new().now().saturating_since(start) >= Duration::from_millis(2));
    }
}
