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
//!                    -> Piece(reply, continuation)  begin the task with its next piece, when that is wanted
//!                    -> NoMemory(submission)        begin it again when frames have been given back
//!                    -> Deferred(submission, delay) begin it again after that
//! ```
//!
//! [`Starvation`] keeps the tasks that found no memory, or are deferred, and begins them so that no session keeps others waiting.
//!
//! A unit can be derived from another one ([`LogicalUnit::derive`]): some of its blocks, for somebody who may do less with them. What
//! a command of such a unit may do is looked at in one place before it begins (`judging.rs`), and again at its store.
//!
//! Several threads may do this at once. Reads and writes take no lock: what they must know of the state that other
//! initiators change stands in atomics.
#![forbid(unsafe_code)]

mod abort_scope;
mod allowed_operations;
mod beginning;
mod bell;
mod command_program;
mod control;
mod copies;
mod copy_targets;
mod data;
mod deferrals;
mod derivation;
mod derive;
mod derived;
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
mod judged;
mod judging;
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
mod submission;
mod tenure;
mod tokens;
mod transfer;
mod unit_attention;
mod unit_exclusion;
mod unit_state;
mod units;
mod viewers;
mod waiting;
mod write_hold;

pub use abort_scope::{AbortScope, UnitId};
pub use allowed_operations::AllowedOperations;
pub use bell::RecordListener;
pub use command_program::{
    BlockRange, CommandProgram, DATA_HEAD_MAX_BYTES, JudgedCommand, Judgement, Keeping, Verdict,
};
pub use copy_targets::{CopyTargetResolver, CopyTargetUnit};
pub use derivation::{Admission, Derivation, DerivedExtent};
pub use derive::{DERIVATIONS_MAX, DeriveError};
pub use derived::{Derived, DerivedStatistics, PrincipalStatistics, PrincipalUsage};
pub use execution::Execution;
pub use logical_unit::{LogicalUnit, UnitError};
pub use medium::MediumError;
pub use nexus::NexusPorts;
pub use progress::Progress;
pub use reservation::clearing::{ClearedReservations, NotCleared};
pub use reservation::{KeptError, RecordError, RegistrationReport, ReservationKeeper, ReservationReport, Saved};
pub use starvation::{Seat, Starvation, Starved};
pub use store_retry::StoreRetry;
pub use submission::{Continuation, Submission};
pub use tenure::{Tenure, TenureKeeper, Volatility};
pub use tokens::TokenSeed;
pub use unit_state::{UnitOptions, UnitState};
pub use units::{AddError, LogicalUnits};
pub use waiting::Waiting;
pub use write_hold::WriteHold;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
