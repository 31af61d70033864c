//! Volumes: from what is configured to disks, and their end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sanwire_device::{AddError, Disk, DiskOptions, LogicalUnits, ReservationKeeper};
use sanwire_scsi::Identity;
use sanwire_store::{Backing, Request, Started, Store, VolumeSpec, blocking};

use crate::config::VolumeConfig;
use crate::error::StartError;
use crate::reservations::FileKeeper;

/// Opens a volume and puts it among the others; what is counted of it is found by `slot`.
pub(crate) fn add_volume(
    units: &LogicalUnits,
    volume: &VolumeConfig,
    state: Option<&Path>,
    instance: u64,
    slot: u16,
) -> Result<(), StartError> {
    let name = volume.spec.name.to_string();
    let store = volume.spec.store.open().map_err(|source| StartError::Store { volume: name.clone(), source })?;
    let uuid = volume_uuid(&name, &volume.spec.store.backing, instance);
    let identity = Identity::new(&name, uuid)
        .map_err(|error| StartError::Volume { volume: name.clone(), reason: error.to_string() })?;
    let reservations = keeper(&volume.spec.store.backing, state, uuid);
    let VolumeSpec { removable, patience, .. } = volume.spec;
    let options = DiskOptions { removable, reservations, slot, patience, ..DiskOptions::default() };
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

/// Makes stable what was written to all volumes.
pub(crate) fn flush_all(units: &LogicalUnits) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a_128(b""), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(fnv1a_128(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
    }
}
