//! The state of a program that outlives the server: what it is now, and how far that is durable.
//!
//! The state of now is a copy, beside the program's memory: there it is taken from when a call went wrong, and there a thread
//! takes it to write it down. That thread exists as long as something is to be written. What nobody waits for is written a second
//! after it has changed, with all that changed meanwhile.

mod record;

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::{Keeping, RecordListener};

use crate::error::LoadError;

/// A change that nobody waits for is written after this.
const LAZY: Duration = Duration::from_secs(1);
/// What could not be written is tried again after this.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Commands wait for so long for a state that cannot be written, where nothing else is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the state of one program is kept through restarts. A thread of the program calls it, so it may block.
pub trait StateKeeper: Debug + Send + Sync {
    /// The record saved last; `None` when there has been none.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Puts this record in the place of the one before, as a whole or not at all. It is durable when this returns.
    ///
    /// # Errors
    /// When it is not. It is tried again from time to time.
    fn save(&self, record: &[u8]) -> io::Result<()>;

    /// The place of the record, for messages.
    fn place(&self) -> String;
}

/// The state of a program, shared with the thread that writes it down.
#[derive(Debug)]
pub(crate) struct State {
    keeper: Arc<dyn StateKeeper>,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Held while a record is written, so that no older one comes after a newer one.
    writing: Mutex<()>,
}

#[derive(Debug)]
struct Inner {
    bytes: Vec<u8>,
    /// How often it has changed.
    version: u64,
    /// The version that is durable.
    kept: u64,
    /// The highest version for which a command waits.
    awaited: u64,
    /// Since when it is not what is durable.
    dirty_since: Instant,
    /// Since when it is tried in vain.
    failing_since: Option<Instant>,
    /// Commands wait for so long for one that cannot be written.
    patience: Duration,
    is_working: bool,
    /// What is to be written is written at once, since nobody changes it any more.
    is_ending: bool,
    listeners: Vec<RecordListener>,
}

impl State {
    /// What is kept of a program whose state has so many bytes; `first` if nothing is.
    ///
    /// # Errors
    /// What is kept is not to be had, or of another program.
    pub(crate) fn load(keeper: Arc<dyn StateKeeper>, first: &[u8]) -> Result<Arc<State>, LoadError> {
        let place = || keeper.place();
        let record = keeper.load().map_err(|error| LoadError::StateUnreadable { place: place(), error })?;
        let kept = record.as_deref().map(|record| record::decode(record).ok_or(())).transpose();
        let kept = kept.map_err(|()| LoadError::StateDamaged { place: place() })?;
        let bytes = kept.unwrap_or(first).to_vec();
        if bytes.len() != first.len() {
            let (kept_bytes, wanted_bytes) = (bytes.len(), first.len() as u32);
            return Err(LoadError::StateLength { place: place(), kept_bytes, wanted_bytes });
        }
        let inner = Inner {
            bytes,
            version: 0,
            kept: 0,
            awaited: 0,
            dirty_since: Instant::now(),
            failing_since: None,
            patience: PATIENCE,
            is_working: false,
            is_ending: false,
            listeners: vec![],
        };
        Ok(Arc::new(State { keeper, inner: Mutex::new(inner), changed: Condvar::new(), writing: Mutex::default() }))
    }

    /// Puts it into the memory of the program.
    pub(crate) fn restore(&self, memory: &mut [u8]) {
        memory.copy_from_slice(&self.lock().bytes);
    }

    /// It is what stands in the memory of the program now. Gives its version, which is waited for if `is_awaited`.
    pub(crate) fn take(self: &Arc<Self>, memory: &[u8], is_awaited: bool) -> u64 {
        let mut inner = self.lock();
        let has_changed = inner.bytes != memory;
        if has_changed {
            if inner.is_durable() {
                inner.dirty_since = Instant::now();
            }
            inner.bytes.copy_from_slice(memory);
            inner.version += 1;
        }
        if is_awaited && inner.awaited < inner.version {
            inner.awaited = inner.version;
            self.changed.notify_all();
        }
        if has_changed || is_awaited {
            self.see_to_it(&mut inner);
        }
        inner.version
    }

    /// Whether nobody should wait for it to become durable.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.lock().is_hopeless()
    }

    /// Whether this version, or a later one, is durable. One that there will never be is not.
    pub(crate) fn keeping(self: &Arc<Self>, version: u64) -> Keeping {
        let mut inner = self.lock();
        // A system that had no thread may have one now.
        self.see_to_it(&mut inner);
        match () {
            () if inner.kept >= version => Keeping::Kept,
            () if version > inner.version || inner.is_hopeless() => Keeping::Failed,
            () => Keeping::Pending,
        }
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        self.lock().patience = patience;
    }

    /// From now on this is told whenever a version has become durable, or should not be waited for any more.
    pub(crate) fn listen(&self, listener: RecordListener) {
        self.lock().listeners.push(listener);
    }

    /// Makes durable what it is now, and waits for that.
    ///
    /// # Errors
    /// Those of its keeper.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let _writing = lock(&self.writing);
        if self.lock().is_durable() { Ok(()) } else { self.write() }
    }

    /// Nobody changes it any more: what is not durable becomes so at once.
    pub(crate) fn end(&self) {
        self.lock().is_ending = true;
        self.changed.notify_all();
    }

    fn see_to_it(self: &Arc<Self>, inner: &mut Inner) {
        if !inner.is_working && !inner.is_durable() {
            let own = Arc::clone(self);
            inner.is_working = thread::Builder::new().name("program state".into()).spawn(move || own.work()).is_ok();
        }
    }

    /// Writes until all is durable.
    fn work(&self) {
        while self.is_due() {
            let writing = lock(&self.writing);
            let is_written = self.write().is_ok();
            drop(writing);
            self.tell();
            if !is_written {
                self.pause();
            }
        }
    }

    /// Waits until something should be written; not when there is nothing to write.
    fn is_due(&self) -> bool {
        let mut inner = self.lock();
        loop {
            // One that cannot be written is given up when the program is gone.
            if inner.is_durable() || (inner.is_ending && inner.is_hopeless()) {
                inner.is_working = false;
                return false;
            }
            let age = inner.dirty_since.elapsed();
            if inner.awaited > inner.kept || inner.is_ending || age >= LAZY {
                return true;
            }
            let waited = self.changed.wait_timeout(inner, LAZY - age);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes what it is now. To be called by who holds `writing`.
    fn write(&self) -> io::Result<()> {
        let (record, version) = {
            let inner = self.lock();
            (record::encode(&inner.bytes), inner.version)
        };
        let written = self.keeper.save(&record);
        let mut inner = self.lock();
        match &written {
            Ok(()) => {
                (inner.kept, inner.failing_since) = (version, None);
                inner.dirty_since = Instant::now();
            }
            Err(_) => {
                inner.failing_since.get_or_insert_with(Instant::now);
            }
        }
        written
    }

    fn tell(&self) {
        let listeners = self.lock().listeners.clone();
        listeners.iter().for_each(RecordListener::tell);
    }

    /// Nobody tells when a file system has room again: it is tried from time to time, by who nobody waits for but one that ends.
    fn pause(&self) {
        let inner = self.lock();
        drop(self.changed.wait_timeout(inner, TRY_AGAIN));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Inner {
    fn is_durable(&self) -> bool {
        self.kept == self.version
    }

    /// Whether nobody should wait for it.
    fn is_hopeless(&self) -> bool {
        self.failing_since.is_some_and(|since| since.elapsed() >= self.patience)
    }
}

/// What is behind these is changed by single assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
