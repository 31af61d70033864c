//! What a service manager is told (sd_notify(3)), if one has started this process.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

/// The service works.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// One line about how it goes.
pub(crate) fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// Whether the service ends. Who would feed the watchdog then would set it again, for an end that may take longer than its limit.
static IS_ENDING: Mutex<bool> = Mutex::new(false);

/// The service ends.
pub(crate) fn stopping() {
    let mut is_ending = IS_ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    *is_ending = true;
    tell(&[NotifyState::Stopping]);
}

/// Says that the service lives, unless it ends: then gives `false`.
fn live() -> bool {
    let is_ending = IS_ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_ending {
        tell(&[NotifyState::Watchdog]);
    }
    !*is_ending
}

/// Feeds the watchdog, on a thread of its own, for as long as `is_well` says so within the time that it is given, until the service
/// ends; without a watchdog it does nothing.
///
/// # Errors
/// When no thread can be had.
pub(crate) fn feed_watchdog(is_well: impl Fn(Duration) -> bool + Send + 'static) -> io::Result<()> {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else { return Ok(()) };
    // A look may take as long as the pause between two of them, and one that fails leaves time for another one.
    let pause = limit / 4;
    let feed = move || loop {
        if is_well(pause) {
            if !live() {
                return;
            }
        } else {
            tracing::warn!("not every shard turns: the watchdog of {} s is not fed", limit.as_secs_f32());
        }
        thread::sleep(pause);
    };
    thread::Builder::new().name("watchdog".into()).spawn(feed).map(drop)
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("the service manager cannot be told: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_ends_feeds_no_watchdog() {
        assert!(live());
        stopping();
        assert!(!live());
    }
}
