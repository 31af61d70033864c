//! ATA over Ethernet (AoEr11): the wire format and both ends, without I/O, threads or clocks.
//!
//! A [`Target`] serves SCSI units at addresses, as ATA disks; a [`Client`] uses one as if it were a SCSI unit. Both are drained in the
//! same order after every call that lets them go on: `poll_event`, `poll_transmit`, `poll_timeout`.
#![forbid(unsafe_code)]

mod admission;
mod client;
mod record;
mod shelves;
mod target;
pub mod wire;

pub use admission::Admits;
pub use client::{Client, ClientConfig, ClientEvent, Failure, Found, Order, Place, found, question};
pub use shelves::{Entry, Shelves, TargetSettings};
pub use target::{Counters, Target, TargetConfig, TargetEvent};
pub use wire::{Address, AddressError, ETHERTYPE};
