//! How the data that initiators send comes to its place.

use sanwire_core::Movement;

/// What has come over all connections that there have been.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Movements {
    /// Over plain TCP.
    pub stream: Movement,
    /// By RDMA.
    pub rdma: Movement,
}

impl Movements {
    /// Adds that of a connection.
    pub(super) fn add(&mut self, other: &Movement) {
        let sum = if other.rdma.is_some() { &mut self.rdma } else { &mut self.stream };
        sum.add(other);
    }
}
