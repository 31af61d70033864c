//! Making a unit from another one.

use std::sync::Arc;

use sanwire_core::DeviceType;
use sanwire_scsi::Identity;
use sanwire_store::{ExtentAccess, ExtentError, ExtentMap, ExtentStore, Geometry, Store};

use crate::bell::RecordListener;
use crate::derivation::{Derivation, DerivedExtent};
use crate::derived::{Derived, Judge, Placed};
use crate::device_types;
use crate::logical_unit::{LogicalUnit, UnitError};
use crate::unit_state::{Lineage, UnitOptions, UnitState};

/// A unit can be derived from one that is derived, and so on: so many in all.
pub const DERIVATIONS_MAX: usize = 8;

/// Why a unit cannot be derived.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeriveError {
    /// Extents that are none.
    #[error(transparent)]
    Extents(#[from] ExtentError),
    /// One is not of whole blocks. They are counted from 1.
    #[error(
        "extent {number} is not of whole blocks: its offset and its length must be multiples of {block_bytes} bytes"
    )]
    Unaligned {
        /// Which one.
        number: usize,
        /// The block.
        block_bytes: u32,
    },
    /// One ends behind the end.
    #[error(
        "extent {number} ends at byte {end_bytes}, behind the end of what it is derived from, which has {length_bytes} bytes"
    )]
    PastEnd {
        /// Which one.
        number: usize,
        /// Where it ends.
        end_bytes: u64,
        /// How long the parent is.
        length_bytes: u64,
    },
    /// An operation that no disk has.
    #[error("a derived device cannot allow {0}: no disk has it, or it is about all units of a target")]
    UnknownOperation(String),
    /// An operation that its parent does not allow.
    #[error("what it is derived from does not allow {0}, so this cannot either")]
    Operations(String),
    /// Its parent is revoked.
    #[error("what it is derived from was revoked")]
    Revoked,
    /// It is derived from what is derived, and so on, too often.
    #[error("there are {DERIVATIONS_MAX} derivations on top of each other already: derive it from one of those below")]
    TooDeep,
    /// One of both is no disk.
    #[error("only disks can be derived, and only from disks")]
    DeviceType,
    /// What its flushes are worth is known of the unit that it is derived from.
    #[error("whether its writes may be lost is said by what it is derived from, not by itself")]
    Volatility,
    /// There can be no such unit.
    #[error(transparent)]
    Unit(#[from] UnitError),
}

impl LogicalUnit {
    /// A unit that is made of some blocks of another one, for somebody who may do less with them: a derived virtual device.
    ///
    /// It is a logical unit like all others, with an identity, mode pages, reservations, unit attentions and a queue of its own. What it
    /// shares with the unit from which it is derived is what follows from sharing blocks: commands of one wait for those of the other
    /// where they must not be done at once; a flush that fails is told to the initiators of both; a write through the derived unit is
    /// that of another initiator to one that writes the other unit alone; and a replacement of the content is one of both. The
    /// reservations of one are not those of the other (SPC-5 5.14.1: a reservation is of one logical unit).
    ///
    /// It lasts as long as its derivation allows, and until it, or what it is derived from, is revoked ([`UnitState::revoke`]).
    ///
    /// # Errors
    /// [`DeriveError`] when the derivation is not one, is wider than its parent, or there can be no such unit.
    pub fn derive(
        identity: Identity,
        parent: &Arc<LogicalUnit>,
        derivation: Derivation,
        options: UnitOptions,
    ) -> Result<LogicalUnit, DeriveError> {
        if options.device_type != DeviceType::Disk || !parent.is_disk() {
            return Err(DeriveError::DeviceType);
        }
        if options.volatility.is_some() {
            return Err(DeriveError::Volatility);
        }
        check(&derivation, parent)?;
        let placed = placed(&derivation, parent)?;
        let root = parent.state().shared_root();
        let listener = RecordListener::new(root.exclusion.bell());
        derivation.program.iter().for_each(|program| program.listen(listener.clone()));
        let of_parent = parent.derived().map_or(&[][..], |derived| &derived.judges);
        let judges: Option<Vec<Judge>> =
            of_parent.iter().map(|judge| judge.of_part(&placed.in_parent, &listener)).collect();
        // What lies in the parent lies in what the parent lies in.
        let judges = judges.ok_or(DeriveError::Revoked)?;
        let store = Arc::clone(&placed.store) as Arc<dyn Store>;
        let served = device_types::server(store, &options)?;
        let derived = Derived::new(derivation, placed, judges, parent.derived());
        let lineage = Lineage { parent: Arc::clone(parent.state()), root, derived };
        let unit = LogicalUnit::of(identity, served, options, Some(Box::new(lineage)))?;
        if parent.adopt(unit.state()) { Ok(unit) } else { Err(DeriveError::Revoked) }
    }
}

/// Whether it is no wider than its parent. It ends with that in any case.
fn check(derivation: &Derivation, parent: &UnitState) -> Result<(), DeriveError> {
    if let Some(unknown) = derivation.operations.unknown() {
        return Err(DeriveError::UnknownOperation(unknown));
    }
    let Some(of_parent) = parent.derived() else { return Ok(()) };
    if parent.ancestors().count() >= DERIVATIONS_MAX {
        return Err(DeriveError::TooDeep);
    }
    if let Some(beyond) = derivation.operations.beyond(of_parent.operations()) {
        return Err(DeriveError::Operations(beyond));
    }
    Ok(())
}

/// Where its blocks lie.
fn placed(derivation: &Derivation, parent: &LogicalUnit) -> Result<Placed, DeriveError> {
    let Geometry { length_bytes, block_bytes, .. } = parent.store().geometry();
    let extents: Vec<_> = derivation.extents.iter().map(|extent| (extent.offset_bytes, extent.length_bytes)).collect();
    let in_parent = Arc::new(ExtentMap::new(&extents)?);
    for (DerivedExtent { offset_bytes, length_bytes: own_bytes }, number) in derivation.extents.iter().zip(1..) {
        let is_whole = |bytes: &u64| bytes.is_multiple_of(block_bytes.into());
        if !is_whole(offset_bytes) || !is_whole(own_bytes) {
            return Err(DeriveError::Unaligned { number, block_bytes });
        }
        let end_bytes = offset_bytes.saturating_add(*own_bytes);
        if end_bytes > length_bytes {
            return Err(DeriveError::PastEnd { number, end_bytes, length_bytes });
        }
    }
    let in_root = match parent.derived() {
        None => Arc::clone(&in_parent),
        Some(derived) => Arc::new(in_parent.over(&derived.in_root).ok_or(DeriveError::Revoked)?),
    };
    let operations = &derivation.operations;
    let access = ExtentAccess { writes: operations.has_writes(), discards: operations.has_discards() };
    let store = ExtentStore::new(Arc::clone(parent.root().store()), Arc::clone(&in_root), access);
    Ok(Placed { in_parent, in_root, store: Arc::new(store) })
}
