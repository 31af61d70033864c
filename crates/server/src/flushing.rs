//! The end of a server: what was written to its volumes becomes stable.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::{LogicalUnit, LogicalUnits};

use crate::volumes::flush_volume;

/// How long a server that stops waits for all its stores together: one may be elsewhere, and not come back. What starts servers waits
/// longer before it kills them (systemd: 90 s).
const PATIENCE: Duration = Duration::from_secs(60);

/// Volumes that are flushed side by side, at the most: those that hang keep no others waiting.
const SIDE_BY_SIDE_MAX: usize = 256;

/// What is left to do.
type Queue = Arc<Mutex<std::vec::IntoIter<(usize, Arc<LogicalUnit>)>>>;

/// Makes stable what was written to all volumes, and remembers for which it was done.
///
/// # Errors
/// The first that could not be flushed, or has not been in time; the others are all the same.
pub(crate) fn flush_all(units: &LogicalUnits, state: Option<&Path>) -> io::Result<()> {
    flush_all_within(PATIENCE, units, state)
}

fn flush_all_within(patience: Duration, units: &LogicalUnits, state: Option<&Path>) -> io::Result<()> {
    let names: Vec<String> = units.iter().iter().map(|(_, disk)| disk.identity().name().to_owned()).collect();
    let disks: Vec<_> = units.iter().into_iter().map(|(_, disk)| disk).enumerate().collect();
    let (mut left, mut failed) = ((0..names.len()).collect::<BTreeSet<_>>(), Vec::new());
    let (queue, (sender, ended)): (Queue, _) = (Arc::new(Mutex::new(disks.into_iter())), mpsc::channel());
    for _ in 0..names.len().min(SIDE_BY_SIDE_MAX) {
        let (queue, sender, state) = (Arc::clone(&queue), sender.clone(), state.map(Path::to_owned));
        if thread::Builder::new().name("flush".into()).spawn(move || work(&queue, state, &sender)).is_err() {
            // Those that there are do it all, or this one.
            break;
        }
    }
    if Arc::strong_count(&queue) == 1 {
        work(&queue, state.map(Path::to_owned), &sender);
    }
    drop(sender);
    let until = Instant::now() + patience;
    while let Ok((index, flushed)) = ended.recv_timeout(until.saturating_duration_since(Instant::now())) {
        left.remove(&index);
        failed.extend(flushed.err().map(|error: io::Error| (index, error)));
    }
    let late = |index| (index, io::Error::other(format!("its store has not done that within {patience:?}")));
    failed.extend(left.into_iter().map(late));
    match failed.into_iter().min_by_key(|(index, _)| *index) {
        Some((index, error)) => Err(io::Error::other(format!("volume {}: {error}", names[index]))),
        None => Ok(()),
    }
}

fn work(queue: &Queue, state: Option<PathBuf>, ended: &Sender<(usize, io::Result<()>)>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((index, disk)) = next else { return };
        let flushed = flush_volume(&disk, state.as_deref(), true);
        // What it has open is free before anybody is told.
        drop(disk);
        if ended.send((index, flushed)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::Lun;
    use sanwire_device::UnitOptions;
    use sanwire_scsi::Identity;
    use sanwire_store::{Completer, CompletionQueue, Geometry, NullStore, Outcome, Request, Started, Store};

    use super::*;

    /// Ends no flush as long as it is there.
    #[derive(Debug, Default)]
    struct Hanging(Mutex<Vec<Completer>>);

    impl Store for Hanging {
        fn geometry(&self) -> Geometry {
            NullStore::new(1 << 20, 512).geometry()
        }

        fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
            let (pending, completer) = completions.pend();
            match request {
                Request::Flush => self.0.lock().unwrap().push(completer),
                _ => completer.complete(Ok(Outcome::Done)),
            }
            Started::Pending(pending)
        }
    }

    #[test]
    fn a_store_that_hangs_keeps_no_server_from_its_end_and_no_other_volume_from_being_flushed() {
        let units = LogicalUnits::new();
        let add = |lun, name, store| {
            let identity = Identity::new(name, [lun as u8; 16]).unwrap();
            let disk = LogicalUnit::new(identity, store, UnitOptions::default()).unwrap();
            units.add(Lun::new(lun).unwrap(), disk).unwrap();
        };
        let hanging = Arc::new(Hanging::default());
        add(0, "far", hanging.clone());
        assert_eq!(flush_all_within(PATIENCE, &LogicalUnits::new(), None).map_err(|error| error.to_string()), Ok(()));
        let error = flush_all_within(Duration::from_millis(10), &units, None).unwrap_err().to_string();
        assert!(error.contains("volume far") && error.contains("within 10ms"), "{error}");
        hanging.0.lock().unwrap().drain(..).for_each(|completer| completer.complete(Ok(Outcome::Done)));
        units.remove(Lun::new(0).unwrap());
        add(1, "near", Arc::new(NullStore::new(1 << 20, 512)));
        assert!(flush_all_within(PATIENCE, &units, None).is_ok());
    }
}
