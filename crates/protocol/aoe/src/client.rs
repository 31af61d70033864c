//! The initiator's end: one target, used as a SCSI unit.

mod flight;
mod ghosts;
mod input;
mod machine;
mod orders;
mod seek;
mod types;
mod window;

pub use machine::Client;
pub use seek::{Found, found, question};
pub use types::{ClientConfig, ClientEvent, Failure, Order, Place};

#[cfg(test)]
mod tests;
