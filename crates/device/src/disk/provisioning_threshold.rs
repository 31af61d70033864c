//! Thresholds of thin provisioning (SBC-4 4.7.3.8): initiators are told before the space behind a unit comes to its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_scsi::log::ResourceCounts;
use sanwire_scsi::mode::{CountedResources, Threshold, Thresholds};
use sanwire_store::Space;

/// The threshold set: what one is in a count. 32 bits of them are more than any store has.
const SET_BYTES: u64 = 1 << 20;

/// The threshold set in blocks, as a power of two.
pub(crate) fn exponent(block_bytes: u32) -> u8 {
    SET_BYTES.checked_div(block_bytes.into()).and_then(u64::checked_ilog2).map_or(0, |exponent| exponent as u8)
}

/// Space in threshold sets: what has begun is used, what is not whole is not available.
pub(crate) fn counts(space: &Space) -> ResourceCounts {
    let count = |sets: u64| u32::try_from(sets).unwrap_or(u32::MAX);
    ResourceCounts {
        available: space.available_bytes.map(|bytes| count(bytes / SET_BYTES)),
        used: Some(count(space.used_bytes.div_ceil(SET_BYTES))),
    }
}

/// The thresholds that were reached by the last change.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ReachedThresholds {
    pub(crate) available: bool,
    pub(crate) used: bool,
}

/// Watches the space of one store.
#[derive(Debug)]
pub(crate) struct Watch {
    counted: CountedResources,
    /// Whether some threshold is to be told: all that a write reads when, as nearly always, none is.
    is_watching: AtomicBool,
    state: Mutex<WatchState>,
}

#[derive(Default, Debug)]
struct WatchState {
    thresholds: Thresholds,
    /// Those that will be told when they are reached: they are told once, until the space is on their other side again.
    armed: ReachedThresholds,
}

impl Watch {
    /// No threshold for a store that has this space now; none ever for what it does not count.
    pub(crate) fn new(space: Option<&Space>) -> Watch {
        let counted = space.map_or(CountedResources::default(), |space| CountedResources {
            available: space.available_bytes.is_some(),
            used: true,
        });
        Watch { counted, is_watching: AtomicBool::new(false), state: Mutex::default() }
    }

    pub(crate) fn counted(&self) -> CountedResources {
        self.counted
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.is_watching.load(Ordering::Relaxed)
    }

    pub(crate) fn thresholds(&self) -> Thresholds {
        self.lock().thresholds
    }

    /// Puts other thresholds in their place. One that is reached already is told when it is reached again.
    pub(crate) fn set(&self, thresholds: Thresholds, space: Option<&Space>) {
        let mut state = self.lock();
        *state = WatchState { thresholds, armed: ReachedThresholds::default() };
        if let Some(space) = space {
            state.observe(space);
        }
        let is_watching = thresholds.is_reporting && (thresholds.available.is_enabled || thresholds.used.is_enabled);
        self.is_watching.store(is_watching, Ordering::Relaxed);
    }

    /// Which thresholds the space has reached since it was last looked at.
    pub(crate) fn observe(&self, space: &Space) -> ReachedThresholds {
        self.lock().observe(space)
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        // Nothing panics between two writes to the state: a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchState {
    fn observe(&mut self, space: &Space) -> ReachedThresholds {
        let Thresholds { available, used, .. } = self.thresholds;
        let is_down = |threshold: &Threshold| space.available_bytes.is_some_and(|bytes| bytes <= bytes_of(threshold));
        let is_up = |threshold: &Threshold| space.used_bytes >= bytes_of(threshold);
        let clear_of_available = |bytes: u64| bytes >= bytes_of(&available).saturating_add(SET_BYTES / 2);
        ReachedThresholds {
            available: available.is_enabled
                && fires(
                    &mut self.armed.available,
                    is_down(&available),
                    space.available_bytes.is_some_and(clear_of_available),
                ),
            used: used.is_enabled
                && fires(
                    &mut self.armed.used,
                    is_up(&used),
                    space.used_bytes.saturating_add(SET_BYTES / 2) <= bytes_of(&used),
                ),
        }
    }
}

/// SBC-4 6.5.10: a count is the centre of a range of one threshold set. A threshold is armed beyond that range, and fires in
/// its middle.
fn fires(is_armed: &mut bool, is_reached: bool, is_clear: bool) -> bool {
    let fires = *is_armed && is_reached;
    *is_armed = is_clear || (*is_armed && !is_reached);
    fires
}

fn bytes_of(threshold: &Threshold) -> u64 {
    u64::from(threshold.count) * SET_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: fn(u32) -> Threshold = |count| Threshold { is_enabled: true, count };

    fn space(used_kib: u64, available_kib: u64) -> Space {
        Space { used_bytes: used_kib << 10, available_bytes: Some(available_kib << 10) }
    }

    #[test]
    fn a_threshold_is_told_once_until_it_is_left_behind() {
        let watch = Watch::new(Some(&space(0, 0)));
        let thresholds = Thresholds { is_reporting: true, available: ON(2), used: ON(3) };
        watch.set(thresholds, Some(&space(0, 8 << 10)));
        let told = |used_kib, available_kib| {
            let ReachedThresholds { available, used } = watch.observe(&space(used_kib, available_kib));
            (available, used)
        };
        assert_eq!(told(3071, 2049), (false, false));
        assert_eq!(told(3072, 2048), (true, true));
        assert_eq!(told(4000, 0), (false, false), "told already");
        assert_eq!(told(2561, 2559), (false, false), "within the range");
        assert_eq!(told(3072, 2048), (false, false));
        assert_eq!(told(2560, 2560), (false, false), "armed again");
        assert_eq!(told(9999, 9999), (false, true));
        assert_eq!(told(9999, 0), (true, false));
    }

    #[test]
    fn what_is_reached_already_is_not_told() {
        let watch = Watch::new(Some(&space(0, 0)));
        watch.set(Thresholds { is_reporting: true, available: ON(2), used: ON(0) }, Some(&space(9, 9)));
        assert!(watch.is_watching());
        assert_eq!(watch.observe(&space(10, 8)), ReachedThresholds::default());
        watch.set(Thresholds { is_reporting: false, ..watch.thresholds() }, None);
        assert!(!watch.is_watching());
    }

    #[test]
    fn counts_are_threshold_sets() {
        assert_eq!((exponent(512), exponent(4096)), (11, 8));
        assert_eq!(counts(&space(1025, 2047)), ResourceCounts { available: Some(1), used: Some(2) });
        let without = Space { available_bytes: None, ..space(0, 0) };
        assert_eq!(counts(&without), ResourceCounts { available: None, used: Some(0) });
        assert_eq!(Watch::new(Some(&without)).counted(), CountedResources { available: false, used: true });
        assert!(!Watch::new(None).counted().any());
    }
}
