//! Why a command does not begin.

use std::time::Duration;

use sanwire_scsi::Sense;

/// Why a command did not begin.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// CHECK CONDITION.
    Sense(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
    /// BUSY: there were too many of the kind lately.
    Busy,
    /// The region has no frame free; nothing has happened yet.
    NoMemory,
    /// It is to be begun again after so long.
    Defer(Duration),
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Self {
        Refusal::Sense(sense)
    }
}
