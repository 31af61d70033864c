//! Programs of derived virtual devices: WebAssembly modules of an owner that judge each command before the device executes it.
//!
//! A [`Program`] is made of a module and is a [`sanwire_device::CommandProgram`]. The module is a stranger: it is counted and validated
//! before it is compiled ([`LoadError`]), runs in an interpreter with a bounded amount of memory and fuel ([`Limits`]), can call
//! nothing, and is asked by writing into its memory ([`abi`]). What it does wrong refuses the command that it was asked about and is
//! counted ([`ProgramStatistics`]); the next one is judged by a fresh instance.
//!
//! What it must remember through restarts is its *state*, a part of its memory that a [`StateKeeper`] keeps.
#![forbid(unsafe_code)]

mod abi;
mod decoded;
mod engine;
mod error;
mod limits;
mod module;
mod program;
mod selects;
mod state;
mod statistics;

pub use abi::Nonsense;
pub use error::LoadError;
pub use limits::Limits;
pub use program::{Description, Judged, Program};
pub use state::StateKeeper;
pub use statistics::{Failure, ProgramStatistics};

#[cfg(test)]
mod tests;
