//! By what the connections of a session go.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sanwire_io::tcp::Stream;
use sanwire_rdma::Rdma;

/// By what all of them go.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// TCP: plain iSCSI.
    Tcp,
    /// iSER, by iWARP over TCP.
    Iwarp,
    /// iSER, by an adapter.
    Adapter(Rdma),
}

/// By what one goes.
pub(super) enum Channel {
    /// Bytes are received from it, and sent.
    Stream(Stream),
    /// Readable when the adapter has something for the protocol, which has the queue pair.
    Adapter(OwnedFd),
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Channel::Stream(stream) => stream.as_fd(),
            Channel::Adapter(events) => events.as_fd(),
        }
    }
}
