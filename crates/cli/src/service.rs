//! What a service manager is told (sd_notify(3)), if one has started this process.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The service works.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// By how much the start may take longer from each time on that it is said to go on, how often that is said, and for how long.
const START_EXTENSION: Duration = Duration::from_secs(60);
const START_PAUSE: Duration = Duration::from_secs(20);
const START_MAX: Duration = Duration::from_secs(3600);

/// Says every now and then that the start goes on, until the service is ready: pools and stores may take longer than usual.
///
/// # Errors
/// When no thread can be had.
pub(crate) fn extend_start() -> io::Result<Starting> {
    let (is_over, over) = mpsc::channel::<Infallible>();
    let extend = move || {
        let begin = Instant::now();
        while begin.elapsed() < START_MAX && over.recv_timeout(START_PAUSE) == Err(RecvTimeoutError::Timeout) {
            tell(&[NotifyState::ExtendTimeoutUsec(START_EXTENSION.as_micros() as u32)]);
        }
    };
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        tell(&[NotifyState::ExtendTimeoutUsec(START_EXTENSION.as_micros() as u32)]);
        thread::Builder::new().name("starting".into()).spawn(extend)?;
    }
    Ok(Starting { _is_over: is_over })
}

/// A start that goes on until this is dropped.
pub(crate) struct Starting {
    _is_over: mpsc::Sender<Infallible>,
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
