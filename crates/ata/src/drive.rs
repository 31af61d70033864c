//! The device's side: a SCSI unit behind the commands of an ATA disk.
//!
//! A command is an [`Execution`], a value that says what to ask the unit ([`Step::Ask`]) until it knows what to answer
//! ([`Step::Done`]). All that reaches the unit is SCSI, so that reservations, write protection, exclusion and counting hold for ATA hosts
//! as for all others.

mod execution;
mod facts;
mod failure;
mod knowledge;
mod settings;

pub use execution::{Answer, Ask, Execution, Step};
pub use facts::Facts;
pub use settings::Drive;
