//! Tokens that stand for data, and copies with list identifiers of four bytes (SBC-4 5.12, 5.25 and 5.59; SPC-4 6.3, 6.24 and 6.26).

mod populate;
mod ranges;
mod write;

use std::sync::Arc;

use sanwire_scsi::Sense;
use sanwire_scsi::rod::RodCommand;

use crate::beginning::Beginning;
use crate::copies::Copies;
use crate::data::cut;
use crate::fault;
use crate::step::Step;

pub(super) use populate::populate;
pub(super) use write::write;

/// What needs no medium.
pub(super) fn ask(asked: RodCommand, copies: &Arc<Copies>, begun: &Beginning<'_>) -> Result<Step, Sense> {
    let (unknown, nexus) = (Sense::invalid_field_in_cdb(2, None), begun.nexus);
    match asked {
        RodCommand::Status { list_id, allocation_bytes } => {
            let told = copies.long_status(nexus, list_id).ok_or(unknown)?;
            Ok(Step::Answer(cut(told, allocation_bytes as usize)))
        }
        RodCommand::Information { list_id, allocation_bytes } => {
            let told = copies.information(nexus, list_id, allocation_bytes as usize).ok_or(unknown)?;
            Ok(Step::Answer(cut(told, allocation_bytes as usize)))
        }
        RodCommand::Abort { list_id } => {
            let end = copies.cancel(nexus, list_id).ok_or(unknown)?;
            // If it waits, it hears of it now.
            begun.unit.exclusion.bell().ring();
            Ok(Step::AwaitCopy(end))
        }
        RodCommand::Populate { .. } | RodCommand::Write { .. } => Err(fault::INTERNAL),
    }
}
