//! What executes commands: it takes them from front ends, has logical units and their stores work on them, and says what is to be
//! answered.
//!
//! Pure: no socket, no thread, no clock, no I/O. A shard of the server drives one [`Engine`], and so does a shard of the simulation;
//! several of them execute commands for the same logical units. Its driver calls, in any order:
//!
//! ```text
//! begin(handle, ..), go_on_with_piece(..)   commands, as front ends bring them
//! abort(..), leave(..), keep_blocks(..)     their early ends, and what is lost
//! pause(nexus, ..)                          none of a nexus is begun, or those that wait are
//! completed(id, completion)                 the kernel has done this work
//! reap(now)                                 stores have completed what they did themselves: the queue has woken the driver
//! barrier_passed(number)                    all shards have ended what a command wanted ended
//! retry(now)                                in each turn: what waits for others, or for memory, may go on
//! handle_timeout(now)                       when poll_timeout() says so
//! ```
//!
//! and drains afterwards, in this order:
//!
//! ```text
//! poll_work()      what the kernel is to do; the rest of it by give_back when there is no room for more
//! poll_abort()     commands of all shards that a command wants ended: see AbortBarrier
//! poll_ended()     answers, each for the handle of its command
//! poll_notice()    what an administrator should read
//! poll_timeout()   when it is to be called again
//! ```
//!
//! [`Handle`] is what a front end calls its commands by: the engine knows of it only whose command that is.
#![forbid(unsafe_code)]

mod abort;
mod barrier;
mod engine;
mod flights;
mod held;
mod looking;
mod meter;
mod notice;
mod paused;
mod pieces;
mod stall;
mod starved;

pub use abort::{Selection, Which};
pub use barrier::AbortBarrier;
pub use engine::{Ended, Engine, Handle, Work, task_aborted};
pub use looking::{UnderWay, WaitsFor};
pub use meter::{FailureKind, Meter, NexusCount, Operation, Place, VolumeCount, VolumeCounters};
pub use notice::Notice;

#[cfg(test)]
mod tests;
