//! A store of this host as a volume of the client: whatever attaches, copies or measures volumes takes it too.
//!
//! One thread drives the store, as a shard of a server does. A store that is gone is asked again for as long as a client waits for its
//! server.

mod driver;
mod job;
mod workers;

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sanwire_buffer::Region;
use sanwire_core::{Lun, Outages};
use sanwire_initiator::{BufferPool, InfoCell, OpQueue, Volume, VolumeInfo, WireUnit};
use sanwire_store::{CompletionQueue, Geometry, Store};

use driver::Driver;

/// Memory for what is read and written at a time.
const REGION_BYTES: usize = 32 << 20;
/// The longest transfer.
const TRANSFER_MAX_BYTES: u32 = 1 << 20;
/// The longest discard or zeroing that the store is asked for at once.
const RANGE_MAX_BYTES: u64 = 1 << 30;
/// How often it is looked whether the thread has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What a store is called.
#[derive(Clone, Debug)]
pub struct StoreNames {
    /// Its name as a volume.
    pub name: String,
    /// Who serves it, in words for people.
    pub server: String,
    /// What tells its content from any other.
    pub identity: String,
}

/// A store that a thread attends to, until the last handle of its volume is gone.
#[derive(Debug)]
pub struct StoreVolume {
    volume: Volume,
    outages: Arc<Outages>,
    thread: JoinHandle<()>,
}

impl StoreVolume {
    /// `patience`: how long what is asked waits for a store that is gone; `None`: for as long as it takes.
    ///
    /// # Errors
    /// This machine's, when it has no memory or no threads.
    pub fn start(store: Arc<dyn Store>, names: StoreNames, patience: Option<Duration>) -> io::Result<StoreVolume> {
        let bell = Arc::<Bell>::default();
        let (rung, woken, outages) = (Arc::clone(&bell), Arc::clone(&bell), Arc::<Outages>::default());
        let queue = OpQueue::new(Arc::new(move || rung.ring()));
        let completions = CompletionQueue::new(move || woken.ring());
        let info = InfoCell::new(info(names, &store.geometry()));
        let pool = BufferPool::new(Region::new(REGION_BYTES)?);
        let volume = Volume::from_queue(info.clone(), &queue, pool);
        let driver = Driver::new(store, (queue, completions, bell), (info, Arc::clone(&outages)), patience)?;
        let thread = thread::Builder::new().name("volume".to_owned()).spawn(move || driver.run())?;
        Ok(StoreVolume { volume, outages, thread })
    }

    /// A handle.
    #[must_use]
    pub fn volume(&self) -> Volume {
        self.volume.clone()
    }

    /// How often the store was gone.
    #[must_use]
    pub fn outages(&self) -> Arc<Outages> {
        Arc::clone(&self.outages)
    }

    /// Closes the store, when all other handles of the volume are gone, and waits for that for so long at the most.
    pub fn leave(self, patience: Duration) {
        let StoreVolume { volume, thread, .. } = self;
        drop(volume);
        let end = Instant::now() + patience;
        while !thread.is_finished() && Instant::now() < end {
            thread::sleep(LOOK_INTERVAL);
        }
    }
}

fn info(names: StoreNames, geometry: &Geometry) -> VolumeInfo {
    VolumeInfo {
        name: names.name.into(),
        lun: Lun::default(),
        size_bytes: geometry.length_bytes,
        block_bytes: geometry.block_bytes,
        physical_block_bytes: geometry.physical_block_bytes,
        read_only: geometry.read_only,
        discards: geometry.discards,
        transfer_max_bytes: TRANSFER_MAX_BYTES,
        transfer_limit_bytes: TRANSFER_MAX_BYTES,
        range_max_bytes: RANGE_MAX_BYTES,
        server: names.server.into(),
        wire: "this host".into(),
        unit: WireUnit::DataSegment(TRANSFER_MAX_BYTES),
        protection: None,
        is_compressed: false,
        rate_cap_bytes_per_second: None,
        identity: names.identity.into(),
        naa: None,
    }
}

/// Wakes the thread; who rings before it sleeps is heard, too.
#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.has_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_one();
    }

    /// Waits until it rings, for so long at the most.
    fn wait(&self, patience: Duration) {
        let has_rung = self.has_rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_timeout_while(has_rung, patience, |has_rung| !*has_rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bell").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
