//! Stores that are not used any more while their servers may still be at work for them: until that is over, no other store of
//! this process is opened at the same place, so that no late write of the one lands on what the other has written.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static ENDINGS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
static FEWER: Condvar = Condvar::new();

/// A store that is ending, for as long as this lives.
#[derive(Debug)]
pub(super) struct Ending(String);

impl Ending {
    /// The store at this place is ending.
    pub(super) fn begin(place: &str) -> Ending {
        *lock().entry(place.to_owned()).or_default() += 1;
        Ending(place.to_owned())
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut endings = lock();
        if let Some(count) = endings.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                endings.remove(&self.0);
            }
        }
        drop(endings);
        FEWER.notify_all();
    }
}

/// Waits until no store at this place is ending, for so long at the most; gives whether that is so.
pub(super) fn wait(place: &str, patience: Duration) -> bool {
    let waited = FEWER.wait_timeout_while(lock(), patience, |endings| endings.contains_key(place));
    let (endings, _) = waited.unwrap_or_else(PoisonError::into_inner);
    !endings.contains_key(place)
}

fn lock() -> MutexGuard<'static, BTreeMap<String, usize>> {
    // Nothing panics while it is locked.
    ENDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_opens_a_place_waits_for_all_that_end_there_and_for_no_others() {
        let (here, brief) = ("nbd:/endings/here/", Duration::from_millis(1));
        let both = [Ending::begin(here), Ending::begin(here)];
        assert!(!wait(here, brief) && wait("nbd:/endings/there/", brief));
        let [one, other] = both;
        drop(one);
        assert!(!wait(here, brief));
        let opener = std::thread::spawn(move || wait(here, Duration::from_secs(60)));
        drop(other);
        assert!(opener.join().unwrap() && wait(here, Duration::ZERO));
    }
}
