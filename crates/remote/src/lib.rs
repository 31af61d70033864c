//! Stores whose blocks are on another server, and arrays of such and other stores.
//!
//! A request is handed to a thread that talks to that server, and stays pending until the server has answered: see
//! [`sanwire_store::Started::Pending`]. An outage is a pause; what lasts longer than a store waits fails as
//! [`sanwire_store::ErrorKind::Gone`].
#![forbid(unsafe_code)]

pub mod array;
pub mod nbd;
pub mod store_volume;
pub mod volume;
