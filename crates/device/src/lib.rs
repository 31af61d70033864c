//! Logical units and their device servers: what executes a SCSI command. A [`LogicalUnit`] does what SPC asks of every unit; what a
//! device type does besides is a server of its own, in a folder of its own.
//!
//! Pure: no clock, no thread, no I/O. [`LogicalUnits::begin`] looks at a task and either answers it or says what the
//! store must do; the caller does it and hands the completion to [`LogicalUnits::resume`], until there is an answer:
//!
//! ```text
//! begin(nexus, task) -> Done(reply)
//!                    -> Store(execution, request)   execution.store().start(request, ..) -> completion
//!                          resume(execution, completion) -> Done or Store, a bounded number of times
//!                    -> Abort(execution, scope)      end what the scope covers, then resume(execution, Ok(Done))
//!                    -> Answered(execution, request) the same, but GOOD is answered before
//!                    -> Wait(waiting)               retry(waiting) soon, after other work
//!                    -> Piece(reply, unit)          begin the task with its next piece, when that is wanted
//!                    -> NoMemory(task)              begin it again when frames have been given back
//! ```
//!
//! [`Starvation`] keeps the tasks that found no memory, and begins them so that no session keeps others waiting.
//!
//! Several threads may do this at once. Reads and writes take no lock: what they must know of the state that other
//! initiators change stands in atomics.
#![forbid(unsafe_code)]

mod abort_scope;
mod beginning;
mod bell;
mod control;
mod copy_targets;
mod data;
mod device_server;
mod device_types;
mod disk;
mod dispatch;
mod disturbances;
mod exclusion;
mod execution;
mod fault;
mod flushes;
mod generation;
mod hold;
mod last_writer;
mod logical_unit;
mod medium;
mod nexus;
mod optical;
mod piece;
mod port_groups;
mod progress;
mod queues;
mod range;
mod refusal;
mod reservation;
mod starvation;
mod step;
mod store_retry;
mod tenure;
mod transfer;
mod unit_attention;
mod unit_state;
mod units;
mod viewers;
mod waiting;
mod write_hold;

pub use abort_scope::{AbortScope, UnitId};
pub use bell::RecordListener;
pub use copy_targets::{CopyTargetResolver, CopyTargetUnit};
pub use execution::Execution;
pub use logical_unit::{LogicalUnit, UnitError};
pub use medium::MediumError;
pub use nexus::NexusPorts;
pub use progress::Progress;
pub use reservation::{KeptError, RecordError, RegistrationReport, ReservationKeeper, ReservationReport, Saved};
pub use starvation::{Seat, Starvation, Starved};
pub use store_retry::StoreRetry;
pub use tenure::{Tenure, TenureKeeper, Volatility};
pub use unit_state::{UnitOptions, UnitState};
pub use units::{AddError, LogicalUnits};
pub use waiting::Waiting;
pub use write_hold::WriteHold;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
