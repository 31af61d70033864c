//! SIGINT and SIGTERM as a request to end in order, SIGHUP as one to read the configuration again.

use std::io;
use std::process;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` at the first SIGINT or SIGTERM, on a thread of its own; the second one ends the process at once.
///
/// # Errors
/// The kernel's, when the signals cannot be caught or no thread can be had.
pub(crate) fn on_stop(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            stop();
        }
        if let Some(signal) = arrived.next() {
            process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// Calls `reload` at each SIGHUP, on a thread of its own.
///
/// # Errors
/// As for [`on_stop`].
pub(crate) fn on_hangup(mut reload: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    thread::Builder::new().name("hangups".into()).spawn(move || signals.forever().for_each(|_| reload()))?;
    Ok(())
}
