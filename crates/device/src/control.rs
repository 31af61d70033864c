//! The commands that answer from memory: INQUIRY, capacities, mode pages, states.

use sanwire_core::NexusId;
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_scsi::mode::{self, ModeState};
use sanwire_scsi::vpd::{self, BlockCharacteristics, BlockLimits, Provisioning, ProvisioningType, TargetPort};
use sanwire_scsi::{AdditionalSense, ModeForm, ModeSense, Sense, SenseKey, StartStop, Task, inquiry};
use sanwire_store::{Geometry, Request};

use crate::disk::compare_and_write::compare_and_write_max_blocks;
use crate::disk::provisioning_threshold;
use crate::disk::unmap::{DESCRIPTORS_MAX, UNMAP_MAX_BLOCKS};
use crate::dispatch::Beginning;
use crate::execution::{State, finish};
use crate::fault;
use crate::logical_unit::{LogicalUnit, capacity};
use crate::step::{Refusal, Step};
use crate::unit_attention::UnitAttention;
use crate::units::NOT_SUPPORTED;

pub(crate) fn inquiry(
    page: Option<u8>,
    disk: &LogicalUnit,
    port: &TargetPort,
    geometry: &Geometry,
    transfer_max_bytes: usize,
) -> Result<Vec<u8>, Sense> {
    Ok(match page {
        None => inquiry::standard_inquiry(disk.is_removable()).to_vec(),
        Some(vpd::page::SUPPORTED_PAGES) => vpd::supported_pages(),
        Some(vpd::page::UNIT_SERIAL_NUMBER) => vpd::unit_serial_number(&disk.identity().serial()),
        Some(vpd::page::DEVICE_IDENTIFICATION) => disk.identity().to_page(port),
        Some(vpd::page::EXTENDED_INQUIRY) => vpd::extended_inquiry(),
        Some(vpd::page::THIRD_PARTY_COPY) => vpd::third_party_copy(geometry.block_bytes),
        Some(vpd::page::BLOCK_LIMITS) => block_limits(geometry, transfer_max_bytes).to_page(),
        Some(vpd::page::BLOCK_DEVICE_CHARACTERISTICS) => characteristics(geometry).to_page(),
        Some(vpd::page::LOGICAL_BLOCK_PROVISIONING) => provisioning(disk, geometry).to_page(),
        Some(vpd::page::SUPPORTED_BLOCK_LENGTHS) => vpd::supported_block_lengths(geometry.block_bytes),
        Some(_) => return Err(Sense::invalid_field_in_cdb(2, None)),
    })
}

fn characteristics(geometry: &Geometry) -> BlockCharacteristics {
    BlockCharacteristics { reads_after_block_erase: geometry.discards, ..BlockCharacteristics::NON_ROTATING }
}

fn block_limits(geometry: &Geometry, transfer_max_bytes: usize) -> BlockLimits {
    let blocks = |bytes: u64| u32::try_from(bytes / u64::from(geometry.block_bytes.max(1))).unwrap_or(u32::MAX);
    let granularity = blocks(geometry.physical_block_bytes.into()).max(1);
    let mut limits = BlockLimits {
        optimal_transfer_granularity: u16::try_from(granularity).unwrap_or(0),
        maximum_transfer: blocks(transfer_max_bytes as u64),
        // Longer ones go in pieces.
        optimal_transfer: blocks(TRANSFER_MAX_BYTES as u64),
        maximum_compare_and_write: compare_and_write_max_blocks(geometry),
        maximum_atomic: blocks(geometry.atomic_write_bytes.into()),
        ..BlockLimits::default()
    };
    if geometry.discards {
        limits.maximum_unmap = UNMAP_MAX_BLOCKS;
        limits.maximum_unmap_descriptors = DESCRIPTORS_MAX as u32;
        limits.optimal_unmap_granularity = granularity;
        limits.unmap_alignment = Some(0);
    }
    limits
}

fn provisioning(disk: &LogicalUnit, geometry: &Geometry) -> Provisioning {
    let thin = geometry.discards;
    let kind = if thin { ProvisioningType::Thin } else { ProvisioningType::Full };
    Provisioning {
        threshold_exponent: if disk.counted().any() {
            provisioning_threshold::exponent(geometry.block_bytes)
        } else {
            0
        },
        unmap: thin,
        write_same_16: thin,
        write_same_10: thin,
        reads_zeroes: thin,
        kind,
    }
}

pub(crate) fn test_unit_ready(disk: &LogicalUnit) -> Result<Step, Sense> {
    if disk.is_gone() { Err(fault::NOT_ACCESSIBLE) } else { Ok(Step::Good) }
}

/// REQUEST SENSE tells, in its data, what another command would have been refused with (SPC-5 6.39).
pub(crate) fn request_sense(
    descriptor: bool,
    disk: &LogicalUnit,
    nexus: NexusId,
    not_accessible: Option<Sense>,
) -> Vec<u8> {
    if disk.nexuses.is_unseen(nexus) {
        return sense_bytes(&NOT_SUPPORTED, descriptor);
    }
    let pending = disk.nexuses.take(nexus);
    let not_ready = || disk.sanitize.check_not_running().and_then(|()| disk.check_started()).err();
    let sense = pending.or(not_accessible).or_else(not_ready).unwrap_or(NO_SENSE);
    sense_bytes(&sense, descriptor)
}

/// Sense data as the answer to REQUEST SENSE.
pub(crate) fn sense_bytes(sense: &Sense, descriptor: bool) -> Vec<u8> {
    if descriptor { sense.to_descriptor() } else { sense.to_fixed() }
}

const NO_SENSE: Sense = Sense::new(SenseKey::NoSense, AdditionalSense::NONE);

pub(crate) fn mode_sense(asked: &ModeSense, disk: &LogicalUnit, geometry: &Geometry) -> Result<Vec<u8>, Sense> {
    mode::sense(asked, &mode_state(disk, geometry))
}

pub(crate) fn mode_select(
    form: ModeForm,
    page_format: bool,
    parameter_bytes: u16,
    begun: &Beginning<'_>,
    task: &Task,
) -> Result<Step, Refusal> {
    let (disk, geometry) = (begun.disk, &begun.geometry);
    let data = task.data_out.as_deref().unwrap_or(&[]);
    let too_short = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let list = data.get(..usize::from(parameter_bytes)).ok_or(too_short)?;
    if !page_format && !list.is_empty() {
        // SPC-5 6.12: without PF all is vendor specific, and this vendor has nothing to specify.
        return Err(Sense::invalid_field_in_cdb(1, Some(4)).into());
    }
    let before = disk.mode_values();
    let after = mode::select(form, list, &mode_state(disk, geometry))?;
    if after == before {
        return Ok(Step::Good);
    }
    begun.check_quiet()?;
    disk.change_values(after, begun.nexus);
    // SBC-4 6.5.5: when the write cache is switched off, what is in it must reach the medium.
    Ok(finish(before.settings.write_cache && !after.settings.write_cache))
}

fn mode_state(disk: &LogicalUnit, geometry: &Geometry) -> ModeState {
    let capacity = capacity(geometry);
    ModeState {
        current: disk.mode_values(),
        default: disk.default_values(),
        counted: disk.counted(),
        write_protected: disk.check_writable(geometry).is_err(),
        blocks: capacity.blocks,
        block_bytes: capacity.block_bytes,
    }
}

/// START STOP UNIT (SBC-4 5.31).
pub(crate) fn start_stop(asked: StartStop, disk: &LogicalUnit, nexus: NexusId) -> Result<Step, Sense> {
    if asked.power_condition != 0 {
        // There is no power to save: every condition is entered by doing nothing, and wakes up by itself.
        return Ok(Step::Good);
    }
    if asked.load_eject {
        return load_eject(asked, disk, nexus);
    }
    // A removable unit is there as long as its medium is: initiators stop it without starting it again.
    let stops = !asked.start && !disk.is_removable();
    if asked.start || (stops && asked.no_flush) {
        disk.set_stopped(stops);
        return Ok(Step::Good);
    }
    // SBC-4 5.31: what is cached is written before the unit stops.
    Ok(Step::Store(if stops { State::Stop } else { State::Flush }, Request::Flush))
}

fn load_eject(asked: StartStop, disk: &LogicalUnit, nexus: NexusId) -> Result<Step, Sense> {
    if !disk.is_removable() {
        return Err(Sense::invalid_field_in_cdb(4, Some(1)));
    }
    if disk.is_removal_prevented() {
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::MEDIUM_REMOVAL_PREVENTED));
    }
    if asked.start {
        if disk.is_ejected() {
            disk.set_ejected(false);
            disk.nexuses.raise(UnitAttention::MediumChanged, Some(nexus));
        }
        return Ok(Step::Good);
    }
    if asked.no_flush || disk.is_ejected() {
        disk.set_ejected(true);
        return Ok(Step::Good);
    }
    Ok(Step::Store(State::Eject, Request::Flush))
}
