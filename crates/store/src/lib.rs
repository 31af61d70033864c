//! Where blocks live: RAM, nothing, and layers over what else there is. Files, and all that needs a system, are other crates' stores.
//!
//! A store is asked by [`Store::start`] and never waits. What it can do at once it answers at once; what the kernel
//! must do it hands back as a [`KernelOp`] for the caller's I/O engine; what it does itself, or has others do, it leaves
//! [`Pending`], and completes it by its [`Completer`] from whichever thread learns of the end. So a store is the same thing under
//! io_uring, under a thread pool and in a simulation. Layers see a request on its way down and its completion on its way up
//! ([`Started::then`], [`Started::join`]); a driver follows all of that by a [`Course`].
//!
//! [`VolumeSpec`] is the way in: it reads what the user wrote, checks it whole, and only then opens anything.
#![forbid(unsafe_code)]

mod completion;
mod copies;
mod counts;
mod course;
mod error;
mod expectation;
mod extent_store;
mod extents;
pub mod kind;
pub mod layer;
mod memory;
mod null;
mod open_error;
pub mod parts;
mod ram;
mod request;
mod resize;
mod run;
mod spec;
mod unavailable_policy;

pub use completion::{Completer, CompletionQueue, Pending};
pub use copies::{Cancellation, Copies, CopiesError};
pub use counts::{ErrorCounts, RemoteCount, RemoteCounter, RemoteRequest};
pub use course::{Course, Layered, Operation};
pub use error::{Access, ErrorKind, StoreError};
pub use expectation::{Acceptance, Expectation, Known, VOLUME_MARK};
pub use extent_store::{ExtentAccess, ExtentStore};
pub use extents::{EXTENTS_MAX, ExtentError, ExtentMap};
pub use memory::overcommitted;
pub use null::NullStore;
pub use open_error::OpenError;
pub use ram::RamStore;
pub use request::{
    Allocation, Capabilities, Completion, Delayed, Geometry, KernelOp, Outcome, Request, Space, Started, Store,
};
pub use resize::{GrowingGeometry, ResizeError};
pub use run::{drive, run};
pub use spec::{ShelfSlot, SpecError, StoreSpec, VolumeName, VolumeSpec, Written};
pub use unavailable_policy::{Patience, Retry};
