//! An export of an NBD server as store: qemu-nbd, nbdkit, and what they reach (qcow2, vmdk, ssh, RBD, S3).

mod address;
mod driver;
mod endings;
mod kind;
mod mailbox;
mod outage;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sanwire_nbd::{Config, Event, Export, wire};
use sanwire_store::{CompletionQueue, ErrorKind, Geometry, RemoteCount, Request, Started, Store, StoreError};

pub use address::Address;
use driver::{Driver, Ways};
use endings::{Busy, Claim, Sites};
pub use kind::NbdKind;
use mailbox::Mailbox;

/// How long a connection may take until the server has told about its export.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the first one, with the time that a name takes and the one for which another store is in the way.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a server may be at work on writes that a connection carried that is lost, where nobody knows that it has ended. Longer
/// than disks and networks take that work, and shorter than initiators wait.
const LINGER: Duration = Duration::from_secs(5);
/// What is kept of writes that no flush has made stable, to be given again to a server that restarts.
const KEPT_MAX_BYTES: usize = 32 << 20;
/// The smallest and the largest block that volumes have.
const BLOCKS_BYTES: [u32; 2] = [512, 4096];

/// How an export is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Its name; empty for the server's default one.
    pub export: String,
    /// The logical block: 512 or 4096 bytes. By default the smallest that the server takes.
    pub block_bytes: Option<u32>,
    /// Whether it is only read; then others may use it too.
    pub read_only: bool,
    /// Connections, at the most, where the server takes several.
    pub connections: usize,
    /// How long requests wait for a server that cannot be reached.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            export: String::new(),
            block_bytes: None,
            read_only: false,
            connections: 2,
            patience: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// Which export of which server it is, told from all others.
    fn place(&self, address: &Address) -> String {
        format!("nbd:{address}/{}", self.export)
    }
}

/// Why an export cannot be a store.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The first attempt to reach it has failed.
    #[error("{reason}")]
    Unreachable {
        /// Why, and what to do.
        reason: String,
    },
    /// It may still be at work on what it was sent before.
    #[error(
        "its server is still at work on writes of a volume that was removed here before, or may be: try again when it is done with them"
    )]
    AtWork,
    /// Another store of this process writes to it.
    #[error(
        "another volume of this server writes to the same export, or one that was removed has not ended: remove it, or make one of them read-only"
    )]
    InUse,
    /// It does not give the export.
    #[error("{reason}")]
    Refused {
        /// Why, and what to do.
        reason: String,
    },
    /// Its blocks are larger than those of volumes.
    #[error("its server takes requests of whole blocks of {min_bytes} bytes only{}", if *wanted_bytes == 4096 { "" } else { ": use block=4096" })]
    Block {
        /// What the server takes.
        min_bytes: u32,
        /// What was wanted.
        wanted_bytes: u32,
    },
    /// It holds not even one block.
    #[error("the export is empty")]
    Empty,
    /// No disk is so long (NBD's offsets have 63 bits).
    #[error("its server says that it has {0} bytes, which cannot be")]
    TooLong(u64),
    /// This machine lacks something.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// An export of an NBD server.
#[derive(Debug)]
pub struct NbdStore {
    geometry: Geometry,
    mailbox: Arc<Mailbox>,
}

impl NbdStore {
    /// Connects, and gives the store when the server has told about the export. It blocks for as long as that takes.
    ///
    /// # Errors
    /// [`NbdError`].
    pub fn open(address: &Address, options: &Options) -> Result<NbdStore, NbdError> {
        let config = Config {
            export: options.export.clone(),
            connections: options.connections,
            connect_timeout: CONNECT_TIMEOUT,
            patience: options.patience,
            linger: LINGER,
            kept_max_bytes: KEPT_MAX_BYTES,
        };
        let until = Instant::now() + OPEN_TIMEOUT;
        let left = || until.saturating_duration_since(Instant::now());
        // A name that is not known now is asked for once more by the thread, which tells why.
        let places = address.places().unwrap_or_default();
        let sites = Sites::of(address, &places);
        let export = (!options.read_only).then_some(&*options.export);
        let claim = Claim::begin(sites, export, left().saturating_sub(CONNECT_TIMEOUT)).map_err(|busy| match busy {
            Busy::Ending => NbdError::AtWork,
            Busy::InUse => NbdError::InUse,
        })?;
        let (tell, told) = mpsc::channel();
        let mailbox = Arc::new(Mailbox::new(claim)?);
        let driver = Driver::new(config, address.clone(), Ways::to(places), Arc::clone(&mailbox), tell);
        std::thread::Builder::new().name("nbd".to_owned()).spawn(move || driver.run())?;
        let opened = match told.recv_timeout(left().max(CONNECT_TIMEOUT)) {
            Ok(Event::Opened(export)) => {
                warn_of(&export, address);
                geometry(&export, options.block_bytes)
            }
            Ok(Event::AttemptFailed { reason, is_refused: false }) => Err(NbdError::Unreachable { reason }),
            Ok(Event::AttemptFailed { reason, is_refused: true }) => Err(NbdError::Refused { reason }),
            _ => Err(NbdError::Unreachable { reason: "it does not answer".to_owned() }),
        };
        // Ends the thread.
        let geometry = opened.inspect_err(|_| mailbox.close())?;
        if geometry.read_only {
            mailbox.only_read();
        }
        Ok(NbdStore { geometry, mailbox })
    }
}

/// What the store is. Discards are zeroings that may give space back: a trim promises nothing about what is read then.
fn geometry(export: &Export, wanted_bytes: Option<u32>) -> Result<Geometry, NbdError> {
    let min_bytes = export.blocks.min_bytes;
    let block_bytes = match wanted_bytes {
        Some(bytes) => bytes,
        None => BLOCKS_BYTES.into_iter().find(|bytes| *bytes >= min_bytes).unwrap_or(BLOCKS_BYTES[1]),
    };
    if block_bytes < min_bytes {
        return Err(NbdError::Block { min_bytes, wanted_bytes: block_bytes });
    }
    if i64::try_from(export.size_bytes).is_err() {
        return Err(NbdError::TooLong(export.size_bytes));
    }
    let length_bytes = export.size_bytes / u64::from(block_bytes) * u64::from(block_bytes);
    if length_bytes == 0 {
        return Err(NbdError::Empty);
    }
    Ok(Geometry {
        length_bytes,
        block_bytes,
        physical_block_bytes: export.blocks.preferred_bytes.clamp(block_bytes, 64 << 10),
        read_only: export.is_read_only(),
        discards: export.writes_zeroes(),
        atomic_write_bytes: 0,
    })
}

fn warn_of(export: &Export, address: &Address) {
    if !export.flushes() && !export.is_read_only() {
        tracing::warn!("NBD server {address}: it offers no flush: whether answered writes are stable is not known");
    }
    if !export.size_bytes.is_multiple_of(u64::from(BLOCKS_BYTES[0])) {
        tracing::warn!("NBD server {address}: the export's last bytes are no whole block, and are left out");
    }
    if !export.has(wire::TRANSMISSION_HAS_FLAGS) {
        tracing::warn!("NBD server {address}: it does not announce its capabilities");
    }
}

impl Store for NbdStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if let Err(error) = self.geometry.check(&request) {
            return Started::Done(Err(error));
        }
        if let (Request::Discard { offset_bytes, .. }, false) = (&request, self.geometry.discards) {
            return Started::Done(Err(StoreError::new(ErrorKind::Unsupported, *offset_bytes)));
        }
        let (pending, completer) = completions.pend();
        self.mailbox.put(request, completer);
        Started::Pending(pending)
    }

    fn remote(&self) -> Option<RemoteCount> {
        Some(self.mailbox.counter.count())
    }

    fn retire(&self) {
        self.mailbox.retire();
    }

    fn is_over(&self) -> bool {
        self.mailbox.is_closed()
    }

    fn abandon(&self) {
        self.mailbox.close();
    }
}

impl Drop for NbdStore {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

#[cfg(test)]
mod tests;
