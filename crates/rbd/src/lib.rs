//! Ceph RBD images as stores, through librados and librbd.
//!
//! The libraries are loaded when the first image is opened: who has no Ceph needs none of them. Requests are handed to librbd, whose
//! threads complete them.
//!
//! An image is used by one server at a time. Opening it takes its exclusive lock for good, so that librbd never passes it on because
//! somebody else writes. Another server takes it over only when it is told to ([`Options::takes_over`]): it breaks the lock, by which
//! the cluster refuses everything more from who had it, waits until all of the cluster knows, and goes on with what was answered.

mod api;
mod error;
mod image;
mod kind;
mod own;
mod requests;
mod store;

pub use error::RbdError;
pub use image::{ImageName, Options};
pub use kind::RbdKind;
pub use store::RbdStore;
