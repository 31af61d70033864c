//! A running server: opened whole or not at all.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::limits::{COMMANDS_IN_TRANSIT_MAX, TRANSFER_MAX_BYTES};
use sanwire_core::{ClientId, Peer};
use sanwire_device::{AddError, Disk, DiskError, DiskOptions, LogicalUnits, ReservationKeeper};
use sanwire_hyperscsi::{Admission, ServerConfig};
use sanwire_io::{LocalAddress, Port, Waker, interface};
use sanwire_scsi::Identity as VolumeIdentity;
use sanwire_store::{Backing, OpenError, Request, Started, Store, blocking};

use crate::config::{TargetConfig, VolumeConfig};
use crate::link::Opener;
use crate::reservations::FileKeeper;
use crate::shard::{self, ShardParts, link_limits};
use crate::wire::Wire;

const KEEP_ALIVE: Duration = Duration::from_secs(5);
const SESSION_IDLE_MAX: Duration = Duration::from_secs(600);

/// Memory of a shard, at least: some commands of the largest size.
const SHARD_MEMORY_MIN_BYTES: usize = 4 * TRANSFER_MAX_BYTES;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A volume's store cannot be opened.
    #[error("volume {volume}: {source}")]
    Store {
        /// Which.
        volume: String,
        /// Why.
        source: OpenError,
    },
    /// A store on which no disk can stand.
    #[error("volume {volume}: {source}")]
    Disk {
        /// Which.
        volume: String,
        /// Why.
        source: DiskError,
    },
    /// A volume's name or number is wrong or taken.
    #[error("volume {volume}: {reason}")]
    Volume {
        /// Which.
        volume: String,
        /// Why.
        reason: String,
    },
    /// A wire cannot be opened.
    #[error("wire {wire}: {source}{}", hint(.wire, .source))]
    Wire {
        /// Which.
        wire: Wire,
        /// Why.
        source: io::Error,
    },
    /// The machine refuses memory, threads or randomness.
    #[error("the server cannot get {what}: {source}")]
    Resource {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

fn hint(wire: &Wire, source: &io::Error) -> String {
    match (wire, source.kind()) {
        (Wire::HsEth { .. }, io::ErrorKind::PermissionDenied) => {
            "; raw Ethernet needs root or the capability CAP_NET_RAW (`setcap cap_net_raw+ep sanwire`)".into()
        }
        (Wire::HsIp { address }, io::ErrorKind::AddrInUse) => {
            format!("; is another server running on {address}? choose another port with hs-ip:{}:PORT", address.ip())
        }
        (Wire::HsIp { .. }, io::ErrorKind::AddrNotAvailable) => "; this host does not have that address".into(),
        _ => String::new(),
    }
}

/// A server that runs. Dropping it stops it.
pub struct Target {
    units: Arc<LogicalUnits>,
    wakers: Vec<Waker>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    wires: Vec<Wire>,
}

impl Target {
    /// Opens every volume and wire, and starts to serve. When something fails, nothing stays open.
    ///
    /// # Errors
    /// [`StartError`] says what, where, and what to do.
    pub fn start(config: TargetConfig) -> Result<Target, StartError> {
        let instance = u64::from_be_bytes(random()?);
        let units = Arc::new(LogicalUnits::new());
        for volume in &config.volumes {
            add_volume(&units, volume, config.state_directory.as_deref(), instance)?;
        }
        let shards = config.shards.max(1);
        let mut target = Target {
            units: Arc::clone(&units),
            wakers: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            wires: config.wires.clone(),
        };
        let reopened: Vec<Arc<AtomicU32>> = config.wires.iter().map(|_| Arc::default()).collect();
        let mut parts = Vec::new();
        for index in 0..shards {
            parts.push(target.shard_parts(&config, index, &reopened, instance)?);
        }
        for (index, parts) in parts.into_iter().enumerate() {
            target.spawn(index, parts)?;
        }
        Ok(target)
    }

    /// Where the server listens; port 0 is replaced by the port that the kernel chose.
    #[must_use]
    pub fn wires(&self) -> &[Wire] {
        &self.wires
    }

    /// The logical units.
    #[must_use]
    pub fn units(&self) -> &Arc<LogicalUnits> {
        &self.units
    }

    fn shard_parts(
        &mut self,
        config: &TargetConfig,
        index: u32,
        reopened: &[Arc<AtomicU32>],
        instance: u64,
    ) -> Result<ShardParts, StartError> {
        let shards = config.shards.max(1);
        let memory_bytes = (config.memory_bytes / shards as usize).max(SHARD_MEMORY_MIN_BYTES);
        let memory = Region::new(memory_bytes).map_err(|source| StartError::Resource { what: "memory", source })?;
        let mut openers = self.openers(config, index, reopened);
        let ports = openers
            .iter()
            .map(|opener| opener.open().map_err(|source| StartError::Wire { wire: opener.wire.clone(), source }))
            .collect::<Result<Vec<Port>, _>>()?;
        // The port that the kernel chose is everybody's from now on.
        for ((opener, port), wire) in openers.iter_mut().zip(&ports).zip(&mut self.wires) {
            if let (Wire::HsIp { address }, LocalAddress::Udp(bound)) = (&mut opener.wire, port.local_address()) {
                *address = bound;
                *wire = opener.wire.clone();
            }
        }
        let waker = Waker::new().map_err(|source| StartError::Resource { what: "an event descriptor", source })?;
        self.wakers.push(waker.clone());
        let server = ServerConfig {
            name: config.name.clone(),
            identity: config.identity.clone(),
            psk: config.psk,
            admission: admission(config),
            memory,
            links: ports.iter().map(|port| link_limits(port, shards)).collect(),
            shard: index,
            shards,
            instance,
            keep_alive: KEEP_ALIVE,
            session_idle_max: SESSION_IDLE_MAX,
            commands_max: COMMANDS_IN_TRANSIT_MAX as u16,
            transfer_max_bytes: TRANSFER_MAX_BYTES as u32,
            recovery: config.recovery,
            seed: random()?,
        };
        Ok(ShardParts {
            ports,
            openers,
            server,
            units: Arc::clone(&self.units),
            engine: config.engine,
            waker,
            stop: Arc::clone(&self.stop),
        })
    }

    fn openers(&self, config: &TargetConfig, shard: u32, reopened: &[Arc<AtomicU32>]) -> Vec<Opener> {
        let wires = self.wires.iter().zip(reopened).zip(0..);
        wires
            .map(|((wire, reopened), number)| Opener {
                wire: wire.clone(),
                number,
                shards: config.shards.max(1),
                shard,
                ring_bytes: config.ring_bytes,
                reopened: Arc::clone(reopened),
            })
            .collect()
    }

    fn spawn(&mut self, index: usize, parts: ShardParts) -> Result<(), StartError> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("shard-{index}"))
            .spawn(move || {
                shard::run(parts, |result| {
                    // Nobody listens any more when the start has failed elsewhere.
                    drop(sender.send(result));
                });
            })
            .map_err(|source| StartError::Resource { what: "a thread", source })?;
        self.threads.push(thread);
        let started = receiver.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended at once")));
        started.map_err(|source| StartError::Resource { what: "an I/O engine", source })
    }

    /// Whether every shard still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops: commands under way are finished, clients are told, everything is flushed.
    ///
    /// # Errors
    /// The first store that could not be flushed: what it had acknowledged may not be stable.
    pub fn stop(mut self) -> io::Result<()> {
        self.halt();
        flush_all(&self.units)
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a shard has panicked; this is a defect of Sanwire, please report it");
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.halt();
    }
}

fn add_volume(
    units: &LogicalUnits,
    volume: &VolumeConfig,
    state: Option<&Path>,
    instance: u64,
) -> Result<(), StartError> {
    let name = volume.spec.name.to_string();
    let store = volume.spec.store.open().map_err(|source| StartError::Store { volume: name.clone(), source })?;
    let uuid = volume_uuid(&name, &volume.spec.store.backing, instance);
    let identity = VolumeIdentity::new(&name, uuid)
        .map_err(|error| StartError::Volume { volume: name.clone(), reason: error.to_string() })?;
    let options =
        DiskOptions { reservations: keeper(&volume.spec.store.backing, state, uuid), ..DiskOptions::default() };
    let disk =
        Disk::new(identity, store, options).map_err(|source| StartError::Disk { volume: name.clone(), source })?;
    units
        .add(volume.lun, disk)
        .map(drop)
        .map_err(|error: AddError| StartError::Volume { volume: name, reason: error.to_string() })
}

/// What keeps a volume's reservations: nothing for those in memory, which no restart survives either.
fn keeper(backing: &Backing, state: Option<&Path>, uuid: [u8; 16]) -> Option<Arc<dyn ReservationKeeper>> {
    match backing {
        Backing::Ram { .. } | Backing::Null { .. } => None,
        Backing::File { .. } => Some(Arc::new(FileKeeper::new(state?, uuid))),
    }
}

/// The identity of a volume's content: that of a file stays through restarts, that of memory does not, so that no client
/// goes on with an empty disk as if nothing had happened.
fn volume_uuid(name: &str, backing: &Backing, instance: u64) -> [u8; 16] {
    let mut text = format!("sanwire volume\0{name}\0");
    match backing {
        Backing::Ram { .. } | Backing::Null { .. } => text.push_str(&format!("memory of {instance}")),
        Backing::File { path, .. } => {
            let path: PathBuf = path.canonicalize().unwrap_or_else(|_| path.clone());
            text.push_str(&path.to_string_lossy());
        }
    }
    fnv1a_128(text.as_bytes()).to_be_bytes()
}

/// FNV-1a with 128 bits: a name for bytes, not a protection.
fn fnv1a_128(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

fn admission(config: &TargetConfig) -> Admission {
    let allow = config.allow.clone();
    Box::new(move |peer: Peer, client: Option<ClientId>| {
        let is_local = allow.rules().is_empty() && interface::is_local_address(peer).unwrap_or(false);
        allow.permits(peer, client, is_local)
    })
}

fn flush_all(units: &LogicalUnits) -> io::Result<()> {
    for (_, disk) in units.iter() {
        let store: &Arc<dyn Store> = disk.store();
        let mut started = store.start(Request::Flush);
        let completion = loop {
            match started {
                Started::Done(completion) => break completion,
                Started::Kernel(op) => break blocking::perform(op),
                Started::Later(delayed) => started = delayed.resume(),
            }
        };
        completion.map_err(|error| io::Error::other(format!("volume {}: {error}", disk.identity().name())))?;
    }
    Ok(())
}

fn random<const N: usize>() -> Result<[u8; N], StartError> {
    sanwire_hyperscsi::random().map_err(|_| StartError::Resource {
        what: "random numbers",
        source: io::Error::other("the system's generator failed"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a_128(b""), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(fnv1a_128(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
    }
}
