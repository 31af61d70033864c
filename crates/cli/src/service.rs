//! What a service manager is told (sd_notify(3)), if one has started this process.

use std::io;
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

/// The service ends.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Feeds the watchdog, on a thread of its own, for as long as `is_well` says so within the time that it is given; without a
/// watchdog it does nothing.
///
/// # Errors
/// When no thread can be had.
pub(crate) fn feed_watchdog(is_well: impl Fn(Duration) -> bool + Send + 'static) -> io::Result<()> {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else { return Ok(()) };
    // A look may take as long as the pause between two of them, and one that fails leaves time for another one.
    let pause = limit / 4;
    let feed = move || loop {
        if is_well(pause) {
            tell(&[NotifyState::Watchdog]);
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
