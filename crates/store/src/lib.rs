//! Where blocks live: RAM, nothing, files and block devices, and layers over them.
//!
//! A store is asked by [`Store::start`] and never waits. What it can do at once it answers at once; what the kernel
//! must do it hands back as a [`KernelOp`] for the caller's I/O engine; what must come later it hands back as
//! [`Delayed`]. So a store is the same thing under io_uring, under a thread pool and in a simulation.
#![forbid(unsafe_code)]

mod error;
mod request;

pub use error::{ErrorKind, StoreError};
pub use request::{Completion, Delayed, Geometry, KernelOp, Outcome, Request, Started, Store};
