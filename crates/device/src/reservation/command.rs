//! PERSISTENT RESERVE OUT (SPC-5 6.16).

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::reservation::{OrderAction, order};
use sanwire_scsi::{AdditionalSense, Sense, SenseKey, Task};

use super::Reserving;
use crate::logical_unit::LogicalUnit;
use crate::refusal::Refusal;
use crate::step::Step;

pub(crate) fn persistent_reserve_out(
    (action, scope_and_type, parameter_bytes): (OrderAction, u8, u32),
    unit: &Arc<LogicalUnit>,
    nexus: NexusId,
    task: &Task,
) -> Result<Step, Refusal> {
    let data = task.data_out.as_deref().unwrap_or(&[]);
    let too_short = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let list = data.get(..parameter_bytes as usize).ok_or(too_short)?;
    Reserving::new(order(action, scope_and_type, list)?, nexus).next(unit)
}
