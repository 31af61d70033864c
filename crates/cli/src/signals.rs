//! SIGINT and SIGTERM as a request to end in order, SIGHUP as one to read the configuration again, SIGTSTP as one to wait, SIGIO as the end of
//! a lease.

use std::fs;
use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sanwire_initiator::Pauser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGIO, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A server that has not heard of a pause by then may be away: the process stops nevertheless.
const HEARD_WITHIN: Duration = Duration::from_millis(500);

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

/// SIGINT, SIGTERM and SIGHUP are caught until the end of this: the first one says that what goes on is to end in order, and the second one
/// ends the process at once.
pub(crate) struct Caught(Arc<CaughtState>);

#[derive(Default)]
struct CaughtState {
    is_stopped: AtomicBool,
    is_over: AtomicBool,
}

impl Caught {
    /// Catches them.
    ///
    /// # Errors
    /// As for [`on_stop`].
    pub(crate) fn new() -> io::Result<Self> {
        // Who has it ignored, as nohup(1) does, means that.
        let hangup = Some(SIGHUP).filter(|signal| !is_ignored(*signal));
        let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))?;
        let caught = Arc::<CaughtState>::default();
        let state = Arc::clone(&caught);
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                let was_stopped = state.is_stopped.swap(true, Ordering::SeqCst);
                if state.is_over.load(Ordering::SeqCst) {
                    // As if nobody had caught it.
                    let _ = emulate_default_handler(signal);
                }
                if was_stopped {
                    process::exit(128 + signal);
                }
            }
        })?;
        Ok(Caught(caught))
    }

    /// Whether a signal has been received.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::SeqCst)
    }

    /// From now on signals end the process as they do where nobody catches them; gives whether one had come before.
    pub(crate) fn end(self) -> bool {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.is_stopped()
    }
}

/// Whether this process was begun with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    (mask >> (signal - 1)) & 1 == 1
}

/// Calls `give_back` at the first SIGINT or SIGTERM, which then ends the process; the second one ends it at once.
///
/// # Errors
/// As for [`on_stop`].
pub(crate) fn on_end(give_back: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut arrived = signals.forever();
        let Some(first) = arrived.next() else { return };
        let giving = thread::Builder::new().name("end".into()).spawn(move || {
            give_back();
            process::exit(128 + first);
        });
        if giving.is_err() || arrived.next().is_some() {
            process::exit(128 + first);
        }
    })?;
    Ok(())
}

/// Calls `stop` at the first SIGINT or SIGTERM. After that only a SIGINT ends the process, after `give_up`: it comes from somebody at a
/// terminal, who was told what that means. Another SIGTERM is that of a program, which asks for the same again.
///
/// # Errors
/// As for [`on_stop`].
pub(crate) fn on_detach(
    stop: impl FnOnce() + Send + 'static,
    give_up: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            stop();
        }
        if arrived.any(|signal| signal == SIGINT) {
            give_up();
            process::exit(128 + SIGINT);
        }
    })?;
    Ok(())
}

/// Lets servers wait while this process is stopped by SIGTSTP (Ctrl-Z): what they would send in vain, and soon take for lost, stays
/// with them. They go on when the process does.
///
/// # Errors
/// As for [`on_stop`].
pub(crate) fn on_suspend(pausers: Vec<Pauser>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTSTP])?;
    thread::Builder::new().name("suspensions".into()).spawn(move || {
        while let Some(signal) = next(&mut signals) {
            let pause = |is_paused| {
                let unheard = Pauser::pause_all(&pausers, is_paused, HEARD_WITHIN);
                if unheard > 0 {
                    tracing::debug!("{unheard} servers have not heard that this process stops or goes on");
                }
            };
            pause(true);
            if let Err(error) = emulate_default_handler(signal) {
                tracing::warn!("cannot stop: {error}");
            }
            // Those of an impatient user, while the servers were told: it was stopped for them all.
            signals.pending().for_each(drop);
            pause(false);
        }
    })?;
    Ok(())
}

fn next(signals: &mut Signals) -> Option<i32> {
    signals.forever().next()
}

/// Calls `look` at each SIGIO, on a thread of its own: somebody wants to open a file of which this process has a lease.
///
/// # Errors
/// As for [`on_stop`].
pub(crate) fn on_lease_break(mut look: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGIO])?;
    thread::Builder::new().name("leases".into()).spawn(move || signals.forever().for_each(|_| look()))?;
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
