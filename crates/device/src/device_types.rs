//! Which device server a unit has, by its type.

use std::sync::Arc;

use sanwire_core::DeviceType;
use sanwire_scsi::Identity;
use sanwire_store::{Geometry, Store};

use crate::disk::Disk;
use crate::logical_unit::{LogicalUnit, Served, UnitError};
use crate::medium::MediumError;
use crate::optical::Optical;
use crate::unit_state::UnitOptions;

impl LogicalUnit {
    /// A unit on `store`, which is the disc in it if it is a drive.
    ///
    /// # Errors
    /// [`UnitError`] when the store's geometry is not one that such a unit can have, or the kept reservations cannot be had.
    pub fn new(identity: Identity, store: Arc<dyn Store>, options: UnitOptions) -> Result<Self, UnitError> {
        Self::of(identity, server(store, &options)?, options, None)
    }

    /// A drive without a disc.
    ///
    /// # Errors
    /// [`UnitError`] when units of its type are never without a medium, or the kept reservations cannot be had.
    pub fn empty(identity: Identity, options: UnitOptions) -> Result<Self, UnitError> {
        let served = match options.device_type {
            DeviceType::Disk => return Err(MediumError::Fixed.into()),
            DeviceType::Optical => drive(None)?,
        };
        Self::of(identity, served, options, None)
    }
}

/// Those of a unit of the type.
pub(crate) fn server(store: Arc<dyn Store>, options: &UnitOptions) -> Result<Served, UnitError> {
    match options.device_type {
        DeviceType::Disk => {
            let Geometry { length_bytes, block_bytes, .. } = store.geometry();
            if !matches!(block_bytes, 512 | 4096) {
                return Err(UnitError::BlockSize(block_bytes));
            }
            if length_bytes < u64::from(block_bytes) {
                return Err(UnitError::Empty(block_bytes));
            }
            let disk = Disk::new(options.removable, store.space().as_ref());
            Ok((store, Arc::new(disk)))
        }
        DeviceType::Optical => Ok(drive(Some(store))?),
    }
}

fn drive(disc: Option<Arc<dyn Store>>) -> Result<Served, MediumError> {
    let drive = Optical::new(disc)?;
    Ok((Arc::clone(drive.tray()) as Arc<dyn Store>, Arc::new(drive)))
}
