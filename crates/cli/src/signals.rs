//! SIGINT and SIGTERM as a request to end in order.

use std::io;
use std::process;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
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
