//! What is kept of reservations through restarts, as bytes.
//!
//! All numbers are big-endian:
//!
//! ```text
//!  0  4  "SWPR"
//!  4  2  version, 1
//!  6  1  type of the reservation (SPC-5 table 63); 0 for none
//!  7  1  0
//!  8  4  which registration holds it, from 0; FFFFFFFFh for none or all
//! 12  4  how many registrations follow
//!        each: 8 key, 1 whether for all target ports, 1 zero, 2 relative target port identifier, TransportID
//! -4  4  CRC32C of all before
//! ```

use crc_fast::{CrcAlgorithm, checksum};
use sanwire_core::quota::REGISTRATIONS;
use sanwire_scsi::reservation::{ReservationType, TransportId};

use super::registry::{Registrant, Registry};

const MAGIC: &[u8; 4] = b"SWPR";
const VERSION: u16 = 1;
const NO_HOLDER: u32 = u32::MAX;

/// Bytes that are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Another file, or one that was cut short or changed.
    #[error("it is damaged")]
    Damaged,
    /// A newer Sanwire has written it.
    #[error("its version {0} is unknown to this version of Sanwire")]
    Version(u16),
}

/// The record of a registry.
pub(super) fn write(registry: &Registry) -> Vec<u8> {
    let mut registrations = Vec::new();
    let mut holder_at = NO_HOLDER;
    let mut count = 0u32;
    for (registrant, key) in registry.registrations() {
        if registry.holder() == Some(registrant) {
            holder_at = count;
        }
        count += 1;
        registrations.extend(key.to_be_bytes());
        registrations.extend([u8::from(registrant.target_port.is_none()), 0]);
        registrations.extend(registrant.target_port.unwrap_or(0).to_be_bytes());
        registrations.extend(registrant.initiator.as_bytes());
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend([registry.kind().map_or(0, |kind| kind as u8), 0]);
    bytes.extend(holder_at.to_be_bytes());
    bytes.extend(count.to_be_bytes());
    bytes.extend(registrations);
    bytes.extend(crc32c(&bytes).to_be_bytes());
    bytes
}

/// Reads a record.
///
/// # Errors
/// [`RecordError`] when it is none that [`write`] could have made.
pub(super) fn read(bytes: &[u8]) -> Result<Registry, RecordError> {
    let (body, crc) = bytes.split_last_chunk().ok_or(RecordError::Damaged)?;
    if crc32c(body) != u32::from_be_bytes(*crc) {
        return Err(RecordError::Damaged);
    }
    let mut fields = Fields(body);
    if fields.take() != Some(*MAGIC) {
        return Err(RecordError::Damaged);
    }
    match fields.take().map(u16::from_be_bytes) {
        Some(VERSION) => fields.registry().ok_or(RecordError::Damaged),
        Some(version) => Err(RecordError::Version(version)),
        None => Err(RecordError::Damaged),
    }
}

/// What is still to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn registry(mut self) -> Option<Registry> {
        let [kind, _] = self.take()?;
        let holder_at = u32::from_be_bytes(self.take()?);
        let count = u32::from_be_bytes(self.take()?);
        if u64::from(count) > REGISTRATIONS.limit {
            return None;
        }
        let registrations = (0..count).map(|_| self.registration()).collect::<Option<Vec<_>>>()?;
        if !self.0.is_empty() {
            return None;
        }
        let kind = if kind == 0 { None } else { Some(ReservationType::from_code(kind)?) };
        let holder = match holder_at {
            NO_HOLDER => None,
            at => Some(registrations.get(usize::try_from(at).ok()?)?.0.clone()),
        };
        Registry::kept(registrations, kind, holder)
    }

    fn registration(&mut self) -> Option<(Registrant, u64)> {
        let key = u64::from_be_bytes(self.take()?);
        let [all_ports, _] = self.take()?;
        let target_port = u16::from_be_bytes(self.take()?);
        let (initiator, rest) = TransportId::split_first(self.0)?;
        self.0 = rest;
        let target_port = (all_ports == 0).then_some(target_port);
        Some((Registrant { initiator, target_port }, key))
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    // The algorithm has 32 bits.
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanwire_core::ClientId;

    fn registry(holder_at: Option<usize>, kind: Option<ReservationType>) -> Registry {
        let registrations: Vec<_> = (0..3u8)
            .map(|n| {
                let initiator = TransportId::hyperscsi(ClientId([n; 16]));
                (Registrant { initiator, target_port: (n != 1).then_some(n.into()) }, u64::from(n) + 1)
            })
            .collect();
        let holder = holder_at.map(|at| registrations[at].0.clone());
        Registry::kept(registrations, kind, holder).unwrap()
    }

    #[test]
    fn a_record_comes_back() {
        for registry in [
            registry(None, None),
            registry(Some(2), Some(ReservationType::ExclusiveAccess)),
            registry(None, Some(ReservationType::WriteExclusiveAllRegistrants)),
        ] {
            assert_eq!(read(&write(&registry)), Ok(registry));
        }
        let empty = read(&write(&Registry::default())).unwrap();
        assert!(empty.is_empty() && !empty.is_kept());
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let bytes = write(&registry(Some(0), Some(ReservationType::WriteExclusive)));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert_eq!(read(&changed), Err(RecordError::Damaged), "changed at {at}");
            assert_eq!(read(&bytes[..at]), Err(RecordError::Damaged), "cut at {at}");
        }
        let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut changed = bytes[..bytes.len() - 4].to_vec();
            change(&mut changed);
            changed.extend(crc32c(&changed).to_be_bytes());
            read(&changed)
        };
        assert_eq!(sealed(&|bytes| bytes[5] = 2), Err(RecordError::Version(2)));
        for (at, byte) in [(6, 2), (6, 7), (6, 0), (8, 1), (11, 3), (12, 1), (15, 2), (15, 4)] {
            assert_eq!(sealed(&|bytes| bytes[at] = byte), Err(RecordError::Damaged), "{byte} at {at}");
        }
        assert_eq!(sealed(&|bytes| bytes.push(0)), Err(RecordError::Damaged));
        assert!(sealed(&|_| ()).is_ok());
    }
}
