//! The commands of reservations.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::reservation::{OrderAction, order};
use sanwire_scsi::{AdditionalSense, Command, Sense, SenseKey, Task};

use super::Reserving;
use crate::dispatch::cut;
use crate::logical_unit::LogicalUnit;
use crate::step::{Refusal, Step};

impl LogicalUnit {
    /// Executes a command of reservations; `None` for all others.
    pub(crate) fn reservation(
        self: &Arc<Self>,
        command: &Command,
        nexus: NexusId,
        task: &Task,
    ) -> Option<Result<Step, Refusal>> {
        Some(match *command {
            Command::Reserve => self.reservations.reserve(nexus).map(|()| Step::Good),
            Command::Release => self.reservations.release(nexus).map(|()| Step::Good),
            Command::PersistentReserveIn { query, allocation_bytes } => {
                self.reservations.answer(query).map(|bytes| Step::Answer(cut(bytes, allocation_bytes as usize)))
            }
            Command::PersistentReserveOut { action, scope_and_type, parameter_bytes } => {
                self.persistent_reserve_out(action, scope_and_type, parameter_bytes, nexus, task)
            }
            _ => return None,
        })
    }

    fn persistent_reserve_out(
        self: &Arc<Self>,
        action: OrderAction,
        scope_and_type: u8,
        parameter_bytes: u32,
        nexus: NexusId,
        task: &Task,
    ) -> Result<Step, Refusal> {
        let data = task.data_out.as_deref().unwrap_or(&[]);
        let too_short = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        let list = data.get(..parameter_bytes as usize).ok_or(too_short)?;
        Reserving::new(order(action, scope_and_type, list)?, nexus).next(self)
    }
}
