//! The commands of SPC that answer from memory: INQUIRY, states, the frame of mode pages.

use std::borrow::Cow;

use sanwire_core::NexusId;
use sanwire_scsi::vpd::{self, TargetPort};
use sanwire_scsi::{AdditionalSense, Sense, SenseKey, Task};
use sanwire_store::Geometry;

use crate::data::parameter_list;
use crate::fault::{self, NOT_SUPPORTED};
use crate::logical_unit::LogicalUnit;

pub(crate) fn inquiry(
    page: Option<u8>,
    unit: &LogicalUnit,
    port: &TargetPort,
    geometry: &Geometry,
    transfer_max_bytes: usize,
) -> Result<Vec<u8>, Sense> {
    let standard = unit.server().standard_inquiry();
    let device_type = standard.first().copied();
    let mut bytes = match page {
        None => return Ok(standard),
        Some(vpd::page::SUPPORTED_PAGES) => vpd::supported_pages(unit.server().vpd_pages()),
        Some(vpd::page::UNIT_SERIAL_NUMBER) => vpd::unit_serial_number(&unit.identity().serial()),
        Some(vpd::page::DEVICE_IDENTIFICATION) => unit.identity().to_page(port),
        Some(vpd::page::EXTENDED_INQUIRY) => vpd::extended_inquiry(),
        Some(page) => {
            let page = unit.server().vpd_page(page, unit, geometry, transfer_max_bytes);
            page.ok_or(Sense::invalid_field_in_cdb(2, None))?
        }
    };
    bytes.iter_mut().zip(device_type).for_each(|(first, device_type)| *first = device_type);
    Ok(bytes)
}

pub(crate) fn test_unit_ready(unit: &LogicalUnit) -> Result<(), Sense> {
    if unit.is_out_of_reach() { Err(fault::NOT_ACCESSIBLE) } else { Ok(()) }
}

/// REQUEST SENSE tells, in its data, what another command would have been refused with (SPC-5 6.39).
pub(crate) fn request_sense(
    descriptor: bool,
    unit: &LogicalUnit,
    nexus: NexusId,
    not_accessible: Option<Sense>,
) -> Vec<u8> {
    if unit.nexuses.is_unseen(nexus) {
        return sense_bytes(&NOT_SUPPORTED, descriptor);
    }
    let pending = unit.nexuses.take(nexus);
    let server = unit.server();
    let not_ready = || server.check_not_busy().and_then(|()| server.check_started()).err();
    let sense = pending.or(not_accessible).or_else(not_ready).unwrap_or(NO_SENSE);
    sense_bytes(&sense, descriptor)
}

/// Sense data as the answer to REQUEST SENSE.
pub(crate) fn sense_bytes(sense: &Sense, descriptor: bool) -> Vec<u8> {
    if descriptor { sense.to_descriptor() } else { sense.to_fixed() }
}

const NO_SENSE: Sense = Sense::new(SenseKey::NoSense, AdditionalSense::NONE);

/// The parameter list of MODE SELECT.
pub(crate) fn mode_parameters(page_format: bool, parameter_bytes: u16, task: &Task) -> Result<Cow<'_, [u8]>, Sense> {
    let list = parameter_list(task, usize::from(parameter_bytes))?;
    if !page_format && !list.is_empty() {
        // SPC-5 6.12: without PF all is vendor specific, and this vendor has nothing to specify.
        return Err(Sense::invalid_field_in_cdb(1, Some(4)));
    }
    Ok(list)
}
