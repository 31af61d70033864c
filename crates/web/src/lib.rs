//! The HTTP API of a running server: resources, events and metrics, for programs and pages.
//!
//! [`Web::start`] opens the listeners and starts one thread, which serves all connections. What is asked becomes a request to the
//! server's management ([`Desk`]), in a few threads beside it: nothing here decides anything that `sanwire ctl` would decide in another
//! way.
#![forbid(unsafe_code)]

mod accounts;
mod activity;
mod address;
mod answer;
mod app;
mod caller;
mod certificate;
mod config;
mod counts;
mod events;
mod extract;
mod guard;
mod handshakes;
mod json;
mod limits;
mod listen;
mod management;
mod openapi;
mod operations;
mod page;
mod patient;
mod places;
mod problem;
mod routes;
mod tls;
mod web;

pub use accounts::FileError;
pub use address::{NoWebAddress, PORT, WebAddress};
pub use caller::Role;
pub use config::WebConfig;
pub use management::Desk;
pub use tls::CertificateError;
pub use web::{Web, WebError};

#[cfg(test)]
mod tests;
