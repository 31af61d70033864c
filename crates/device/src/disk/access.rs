//! The commands of a disk that need its medium.

use std::sync::Arc;

use sanwire_scsi::rod::RodCommand;
use sanwire_scsi::{BlockCommand, ByteCheck, Extent, Task, report};

use crate::beginning::Beginning;
use crate::copies::Copies;
use crate::data::cut;
use crate::disk::capacity::capacity;
use crate::disk::copy;
use crate::disk::{compare_and_write, lba_status, rod, unmap, verify, write_same};
use crate::fault;
use crate::piece::{self, Part};
use crate::refusal::Refusal;
use crate::step::Step;
use crate::transfer;

/// The commands that need the medium.
pub(super) fn access(
    command: &BlockCommand,
    begun: &Beginning<'_>,
    task: &mut Task,
    copies: &Arc<Copies>,
) -> Result<Step, Refusal> {
    let geometry = &begun.geometry;
    match *command {
        BlockCommand::Read { extent } => {
            let part = begun.part(piece::of_read(extent, geometry, task)?);
            transfer::read(part.extent, begun, task)
        }
        BlockCommand::Write { extent, force_unit_access } => write(extent, force_unit_access, begun, task),
        BlockCommand::WriteAtomic { extent, force_unit_access } => {
            Ok(transfer::write_atomic(extent, force_unit_access, begun, task)?)
        }
        BlockCommand::GetLbaStatus { lba, allocation_bytes } => {
            Ok(lba_status::get_lba_status(lba, allocation_bytes, geometry, task)?)
        }
        BlockCommand::SynchronizeCache { extent, immediate } => {
            Ok(transfer::synchronize_cache(extent, immediate, geometry)?)
        }
        BlockCommand::PreFetch { extent, immediate } => transfer::pre_fetch(extent, immediate, begun),
        BlockCommand::CompareAndWrite { extent, force_unit_access } => {
            compare_and_write::compare_and_write(extent, force_unit_access, begun, task)
        }
        BlockCommand::OrWrite { extent, force_unit_access } => {
            compare_and_write::or_write(extent, force_unit_access, begun, task)
        }
        BlockCommand::ReadDefectData(asked) => {
            Ok(Step::Answer(cut(report::no_defects(&asked), asked.allocation_bytes as usize)))
        }
        BlockCommand::Verify { extent, check } => verify_blocks(extent, check, begun, task),
        BlockCommand::WriteAndVerify { extent, check } => {
            let part = begun.part(piece::of_write(extent, geometry, task)?);
            verify::write_and_verify(part, check, begun, task)
        }
        BlockCommand::WriteSame { extent, unmap, no_data } => {
            write_same::write_same(extent, (unmap, no_data), begun, task)
        }
        BlockCommand::Unmap { parameter_bytes } => Ok(unmap::unmap(parameter_bytes, begun, task)?),
        BlockCommand::ExtendedCopy { parameter_bytes } => copy::extended_copy(parameter_bytes, copies, begun, task),
        BlockCommand::Rod(RodCommand::Populate { list_id, parameter_bytes }) => {
            rod::populate((list_id, parameter_bytes), copies, begun, task)
        }
        BlockCommand::Rod(RodCommand::Write { list_id, parameter_bytes }) => {
            rod::write((list_id, parameter_bytes), copies, begun, task)
        }
        BlockCommand::ReadCapacity10 => Ok(Step::Answer(capacity(geometry).to_ten().to_vec())),
        BlockCommand::ReadCapacity16 { allocation_bytes } => {
            let bytes = capacity(geometry).to_sixteen().to_vec();
            Ok(Step::Answer(cut(bytes, allocation_bytes as usize)))
        }
        // These were executed before.
        BlockCommand::StartStopUnit(_)
        | BlockCommand::PreventAllowMediumRemoval { .. }
        | BlockCommand::ReceiveCopyResults { .. }
        | BlockCommand::Rod(_)
        | BlockCommand::Sanitize(_) => Err(fault::INTERNAL.into()),
    }
}

fn write(extent: Extent, force_unit_access: bool, begun: &Beginning<'_>, task: &mut Task) -> Result<Step, Refusal> {
    let part = begun.part(piece::of_write(extent, &begun.geometry, task)?);
    let stable = (force_unit_access, part.rest.is_none());
    Ok(transfer::write(part.extent, stable, begun, task)?)
}

fn verify_blocks(extent: Extent, check: ByteCheck, begun: &Beginning<'_>, task: &mut Task) -> Result<Step, Refusal> {
    let part = begun.part(match check {
        ByteCheck::Data => piece::of_check(extent, &begun.geometry, task)?,
        ByteCheck::Medium => piece::of_read(extent, &begun.geometry, task)?,
        ByteCheck::OneBlock => Part::whole(extent),
    });
    verify::verify(part, check, begun, task)
}
