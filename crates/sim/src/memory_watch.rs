//! What a simulated shard does for those that wait for memory, as a real one does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_buffer::Region;
use sanwire_core::{HEADWAY_PERIOD, Instant};

/// Tells when memory is released that somebody waits for, and when the progress of those that have some is to be measured.
pub struct MemoryWatch {
    is_released: Arc<AtomicBool>,
    measure_at: Instant,
}

impl MemoryWatch {
    /// Watches a region of which nobody else is told.
    #[must_use]
    pub fn new(memory: &Region) -> Self {
        let is_released = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&is_released);
        memory.on_release(move || flag.store(true, Ordering::Relaxed));
        MemoryWatch { is_released, measure_at: Instant::ZERO }
    }

    /// When the shard is to be driven: at once when memory was released; when somebody waits, also to measure progress.
    #[must_use]
    pub fn poll_timeout(&self, is_starved: bool) -> Option<Instant> {
        if self.is_released.load(Ordering::Relaxed) {
            return Some(Instant::ZERO);
        }
        is_starved.then_some(self.measure_at)
    }

    /// The shard is driven now: it tries those that wait, and measures progress.
    pub fn note_driven(&mut self, now: Instant) {
        self.is_released.store(false, Ordering::Relaxed);
        self.measure_at = now + HEADWAY_PERIOD;
    }
}
