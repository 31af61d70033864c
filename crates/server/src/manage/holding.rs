//! Holding the writes of volumes for a moment, and work on files that may hang meanwhile.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::{LogicalUnit, WriteHold};
use sanwire_store::CompletionQueue;

use crate::pools::PoolError;

/// A volume, if it is served.
pub(super) type Served = (String, Option<Arc<LogicalUnit>>);

/// Has the writes of all these volumes wait from one moment on, and waits until what they had begun before has ended: for so long at the
/// most. Writes go on when what this gives is dropped.
///
/// # Errors
/// [`PoolError::Silent`] of the first whose store has not ended its writes by then; nothing waits any more.
pub(super) fn hold_writes(volumes: &[Served], patience: Duration) -> Result<Vec<WriteHold>, PoolError> {
    let (sender, woken) = mpsc::channel();
    let driver = CompletionQueue::new(move || {
        // Nobody listens when all are held.
        let _ = sender.send(());
    });
    let served = || volumes.iter().filter_map(|(name, unit)| Some((name, unit.as_ref()?)));
    let holds: Vec<WriteHold> = served().map(|(_, unit)| WriteHold::begin(unit.state())).collect();
    let give_up_at = Instant::now() + patience;
    loop {
        holds.iter().for_each(|hold| hold.wake(&driver));
        let mut waiting = holds.iter().zip(served()).filter(|(hold, _)| !hold.is_held());
        let Some((_, (name, _))) = waiting.next() else { return Ok(holds) };
        let left = give_up_at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(PoolError::Silent(name.clone()));
        }
        // Woken or not, it is looked again.
        let _ = woken.recv_timeout(left);
    }
}

/// Writes that wait, also when whoever held them is gone or has failed: until they are let go.
#[derive(Debug)]
pub(super) struct Stuck(Vec<WriteHold>);

impl Stuck {
    pub(super) fn new(holds: Vec<WriteHold>) -> Stuck {
        Stuck(holds)
    }

    /// Whether nothing waits: the volume is not served.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has them go on.
    pub(super) fn release(mut self) {
        drop(std::mem::take(&mut self.0));
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // What waits is not to be written: the rollback is done again, or ended at the next start.
        std::mem::forget(std::mem::take(&mut self.0));
    }
}

/// Does what may hang, for so long at the most; `None` when it has not ended by then, or there is no thread for it. What it gives then
/// is for `late`.
pub(super) fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
    late: impl FnOnce(T) + Send + 'static,
) -> Option<T> {
    let (sender, done) = mpsc::sync_channel(0);
    let work = move || {
        // Whoever has given up does not take it. Who takes it has what was for `late` too: nothing is held any more for that.
        if let Err(mpsc::SendError((result, late))) = sender.send((work(), late)) {
            late(result);
        }
    };
    thread::Builder::new().name("content".into()).spawn(work).ok()?;
    done.recv_timeout(patience).ok().map(|(result, _)| result)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// What takes its time to be let go.
    struct Slow(Arc<AtomicBool>);

    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(20));
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_is_held_any_more_when_what_was_waited_for_is_told() {
        let is_let_go = Arc::new(AtomicBool::new(false));
        let held = Slow(Arc::clone(&is_let_go));
        let done = within(Duration::from_secs(60), || 7, move |_| drop(held));
        assert_eq!((done, is_let_go.load(Ordering::Relaxed)), (Some(7), true));
    }

    #[test]
    fn what_is_late_is_told_of_and_held_until_then() {
        let (sender, told) = mpsc::channel();
        let (go_on, waits) = mpsc::channel::<()>();
        let done = within(
            Duration::from_millis(1),
            move || waits.recv().is_ok(),
            move |is_well| sender.send(is_well).unwrap(),
        );
        assert_eq!(done, None);
        go_on.send(()).unwrap();
        assert!(told.recv_timeout(Duration::from_secs(60)).unwrap());
    }
}
