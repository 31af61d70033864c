//! The way to other ends.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::connection::Connection;
use crate::domain::Domains;
use crate::error::Error;
use crate::options::ConnectOptions;

/// Connects, by whatever adapter leads to the other end. Connections of the same one share what they can of an adapter.
#[derive(Clone, Default)]
pub struct Connector {
    domains: Arc<Domains>,
    options: ConnectOptions,
}

impl Connector {
    /// One whose connections have this.
    #[must_use]
    pub fn new(options: ConnectOptions) -> Connector {
        Connector { domains: Arc::default(), options }
    }

    /// Begins to connect. Everything else is told by events.
    ///
    /// # Errors
    /// When there is no RDMA here, or none that leads there.
    pub fn connect(&self, peer: SocketAddr) -> Result<Connection, Error> {
        Connection::connect(peer, Arc::clone(&self.domains), self.options)
    }
}
