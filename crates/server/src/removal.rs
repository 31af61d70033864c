//! The end of a volume that is served no longer: all that was written to it becomes stable. Who is told that it is gone may take
//! its store away then, or serve it again: a store elsewhere that is away does nothing more when it is back.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::LogicalUnit;
use sanwire_store::Store;

use crate::volumes::flush_volume;

/// How long commands that a volume has begun may take to end before what they have written is made stable.
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(5);

/// How often it is looked whether they have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A volume that is served no longer. What was written to it is being made stable, whether somebody waits for that or not.
#[derive(Default, Debug)]
pub struct Removal {
    /// How it ended; `None` for a volume that loses nothing.
    ended: Option<Receiver<io::Result<()>>>,
    /// Where that is done.
    store: Option<Weak<dyn Store>>,
}

impl Removal {
    /// Begins with that for a disk that nobody finds any more.
    pub(crate) fn begin(disk: Arc<LogicalUnit>, state: Option<PathBuf>) -> Removal {
        Removal::begin_within(COMMANDS_TIMEOUT, disk, state)
    }

    fn begin_within(patience: Duration, disk: Arc<LogicalUnit>, state: Option<PathBuf>) -> Removal {
        if !disk.is_volatile() {
            return Removal::default();
        }
        disk.store().retire();
        let store = Arc::downgrade(disk.store());
        let (sender, ended) = mpsc::channel();
        let work = move || {
            let give_up_at = Instant::now() + patience;
            // A command that begins has the unit, and one that is under way its state: so the unit is looked at first.
            let is_last = || Arc::strong_count(&disk) == 1 && Arc::strong_count(disk.state()) == 1;
            while !is_last() && Instant::now() < give_up_at {
                thread::sleep(LOOK_INTERVAL);
            }
            let is_last = is_last();
            let flushed = flush_volume(&disk, state.as_deref(), is_last);
            disk.store().abandon();
            // Its file is free before anybody is told.
            drop(disk);
            let under_way = || io::Error::other("commands that it had begun are still under way");
            let _ = sender.send(flushed.and_then(|()| if is_last { Ok(()) } else { Err(under_way()) }));
        };
        // Without a thread nobody sends anything.
        drop(thread::Builder::new().name("removal".into()).spawn(work));
        Removal { ended: Some(ended), store: Some(store) }
    }

    /// Waits until all is stable, and for so long at the most. What is not done then is given up, where the store can do that.
    ///
    /// # Errors
    /// When it is not, and may never be.
    pub fn wait(self, patience: Duration) -> io::Result<()> {
        let Some(ended) = self.ended else { return Ok(()) };
        match ended.recv_timeout(patience) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                self.store.iter().filter_map(Weak::upgrade).for_each(|store| store.abandon());
                Err(io::Error::other(format!("its store has not done that within {patience:?}")))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the system has no thread for that")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanwire_buffer::Region;
    use sanwire_core::{Instant as VirtualInstant, Lun, NexusId};
    use sanwire_device::{LogicalUnits, Progress, UnitOptions, Volatility};
    use sanwire_scsi::{Cdb, Identity, Task};
    use sanwire_store::{Completer, CompletionQueue, Geometry, Request, Started, StoreSpec};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::slots::Slots;

    /// A store whose server is away: what it is asked waits until it is given up.
    #[derive(Debug)]
    struct Away(Mutex<Option<Vec<Completer>>>, AtomicBool);

    impl Store for Away {
        fn geometry(&self) -> Geometry {
            let (length_bytes, block_bytes, physical_block_bytes) = (1 << 20, 512, 4096);
            let (read_only, discards, atomic_write_bytes) = (false, false, 0);
            Geometry { length_bytes, block_bytes, physical_block_bytes, read_only, discards, atomic_write_bytes }
        }

        fn start(&self, _: Request, completions: &CompletionQueue) -> Started {
            let (pending, completer) = completions.pend();
            if let Some(waiting) = &mut *self.0.lock().unwrap() {
                waiting.push(completer);
            }
            Started::Pending(pending)
        }

        fn retire(&self) {
            self.1.store(true, Ordering::Relaxed);
        }

        fn abandon(&self) {
            *self.0.lock().unwrap() = None;
        }
    }

    fn disk(store: &str) -> Arc<LogicalUnit> {
        disk_on(store.parse::<StoreSpec>().unwrap().open().unwrap())
    }

    fn disk_on(store: Arc<dyn Store>) -> Arc<LogicalUnit> {
        let volatility = Some(Volatility { verifier: [1; 16], has_failed: false, tenure: None, keeper: None });
        let options = UnitOptions { volatility, ..UnitOptions::default() };
        Arc::new(LogicalUnit::new(Identity::new("a", [7; 16]).unwrap(), store, options).unwrap())
    }

    fn ended(patience: Duration, disk: Arc<LogicalUnit>) -> Result<(), String> {
        Removal::begin_within(patience, disk, None).wait(Duration::from_secs(20)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_removal_ends_well_when_all_is_stable_and_nothing_is_under_way() {
        assert_eq!(ended(Duration::from_secs(20), disk("ram:1M")), Ok(()));
        assert!(ended(Duration::from_secs(20), disk("ram:1M,error=flush")).is_err());
        let (used, patience) = (disk("ram:1M"), Duration::ZERO);
        assert!(ended(patience, Arc::clone(&used)).unwrap_err().contains("still under way"));
        let user = Arc::clone(&used);
        let removal = Removal::begin_within(Duration::from_secs(20), used, None);
        drop(user);
        assert!(removal.wait(Duration::from_secs(20)).is_ok(), "it has ended meanwhile");
    }

    /// It would write what it has kept when its server is back: over what is written by then through the volume that was added again.
    #[test]
    fn a_store_that_is_away_when_its_removal_is_over_is_asked_for_nothing_more() {
        let store = Arc::new(Away(Mutex::new(Some(Vec::new())), AtomicBool::new(false)));
        let disk = disk_on(store.clone());
        let user = Arc::clone(&disk);
        let removal = Removal::begin_within(Duration::ZERO, disk, None);
        assert!(store.1.load(Ordering::Relaxed), "from now on nothing else is to be opened there");
        assert!(removal.wait(Duration::ZERO).is_err());
        assert!(store.0.lock().unwrap().is_none());
        drop(user);
        // Its thread, which makes stable what it can, has ended too.
        while Arc::strong_count(&store) > 1 {
            thread::sleep(LOOK_INTERVAL);
        }
    }

    #[test]
    fn who_waits_for_a_removal_has_patience() {
        let used = disk("ram:1M");
        let removal = Removal::begin(Arc::clone(&used), None);
        assert!(removal.wait(Duration::ZERO).unwrap_err().to_string().contains("within"));
    }

    /// A write that is at the store when its volume is removed.
    fn begun(unit: &Arc<LogicalUnit>) -> Progress {
        let units = LogicalUnits::new();
        let lun = Lun::new(0).unwrap();
        units.add_shared(lun, Arc::clone(unit)).unwrap();
        let task = Task {
            lun: Some(lun),
            cdb: Cdb::new(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]).unwrap(),
            data_out: Some(vec![1; 512].into()),
            tells_residual: false,
            data_in_max_bytes: 0,
            may_share: false,
            piece: None,
            receipts: u64::MAX,
        };
        let memory = Region::new(1 << 20).unwrap();
        let progress = units.begin(NexusId(1), task, &memory, VirtualInstant::ZERO);
        assert!(matches!(progress, Progress::Store(..)), "{progress:?}");
        units.remove(lun).unwrap();
        progress
    }

    #[test]
    fn a_removal_waits_for_a_write_that_is_at_the_store() {
        let unit = disk("ram:1M");
        let store = Arc::downgrade(unit.store());
        let write = begun(&unit);
        let removed = ended(Duration::ZERO, unit);
        let is_store_open = store.upgrade().is_some();
        drop(write);
        assert!(
            removed.clone().is_err_and(|error| error.contains("still under way")),
            "{removed:?}, its store is open: {is_store_open}"
        );
    }

    #[test]
    fn a_place_is_not_free_while_a_write_of_its_volume_is_at_the_store() {
        let slots = Slots::taken(vec![0]);
        let unit = disk("ram:1M");
        let write = begun(&unit);
        slots.give_back(&unit);
        drop(unit);
        let free = slots.lowest_free(1, |_| false);
        drop(write);
        assert_eq!(free, [1]);
    }
}
