//! Whose programs are asked about the commands of a derived unit.

use std::sync::Arc;

use sanwire_scsi::OperationClasses;
use sanwire_store::ExtentMap;

use super::budget::Budget;
use super::users::Users;
use crate::bell::RecordListener;
use crate::command_program::{CommandProgram, DATA_HEAD_MAX_BYTES};

/// A program of a unit, or of one of those that it is derived from.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    pub(crate) program: Arc<dyn CommandProgram>,
    /// Of which commands it is asked.
    pub(crate) classes: OperationClasses,
    /// How much of their data it sees.
    pub(crate) head_bytes: usize,
    /// Of the unit whose program it is.
    pub(crate) length_bytes: u64,
    /// Where the blocks of the unit lie in the one whose program it is; `None`: it is the unit's own.
    pub(crate) map: Option<Arc<ExtentMap>>,
    /// Who uses the unit whose program it is.
    pub(crate) users: Arc<Users>,
    /// What it may take, of the unit whose program it is.
    pub(crate) budget: Arc<Budget>,
}

impl Judge {
    /// That of a unit of this length with such users.
    pub(crate) fn new(
        program: Arc<dyn CommandProgram>,
        users: &Arc<Users>,
        budget: &Arc<Budget>,
        length_bytes: u64,
    ) -> Judge {
        let (classes, head_bytes) = (program.classes(), program.data_head_bytes().min(DATA_HEAD_MAX_BYTES));
        let (users, budget) = (Arc::clone(users), Arc::clone(budget));
        Judge { program, classes, head_bytes, length_bytes, map: None, users, budget }
    }

    /// The same for a unit whose blocks lie so in the one for which this is one. `None` when they do not lie in it.
    pub(crate) fn of_part(&self, map: &Arc<ExtentMap>, listener: &RecordListener) -> Option<Judge> {
        self.program.listen(listener.clone());
        let map = match &self.map {
            None => Arc::clone(map),
            Some(own) => Arc::new(map.over(own)?),
        };
        Some(Judge { map: Some(map), ..self.clone() })
    }
}
