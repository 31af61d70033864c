//! What carries connections: TCP, or RDMA adapters.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sanwire_io::tcp::{self, Stream};
use sanwire_rdma::{self as rdma, Rdma};

/// By what connections come to a portal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum PortalPath {
    /// TCP, and RDMA by iWARP over it.
    #[default]
    Tcp,
    /// An RDMA adapter.
    Rdma,
}

impl PortalPath {
    /// As they are written.
    pub(crate) const WORDS: [(&'static str, PortalPath); 2] = [("tcp", PortalPath::Tcp), ("rdma", PortalPath::Rdma)];
}

/// Where connections are accepted.
pub(crate) enum Listener {
    Tcp(tcp::Listener),
    /// By an adapter, which may come and go.
    Rdma {
        port: Box<dyn rdma::Listener>,
        rdma: Rdma,
    },
}

/// An accepted connection, with the address of its peer.
pub(crate) struct Incoming {
    pub(crate) channel: Channel,
    pub(crate) peer: SocketAddr,
    /// Of one that an adapter carries.
    pub(crate) queue_pair: Option<QueuePair>,
}

/// What an adapter has of a connection.
pub(crate) type QueuePair = Box<dyn rdma::QueuePair>;

impl Listener {
    /// The next connection; `None` when no more are there.
    ///
    /// # Errors
    /// The kernel's, which is mostly short of something.
    pub(crate) fn accept(&mut self) -> io::Result<Option<Incoming>> {
        match self {
            Listener::Tcp(listener) => {
                let incoming = |(stream, peer)| Incoming { channel: Channel::Stream(stream), peer, queue_pair: None };
                Ok(listener.accept()?.map(incoming))
            }
            Listener::Rdma { port, .. } => {
                let incoming = |accepted| {
                    let rdma::Accepted { connection, local_address, peer_address: peer } = accepted;
                    let rdma::Connection { queue_pair, events } = connection;
                    Incoming { channel: Channel::Adapter { events, local_address }, peer, queue_pair: Some(queue_pair) }
                };
                Ok(port.accept()?.map(incoming))
            }
        }
    }

    /// Whether nothing comes there any more, as such an error of [`Listener::accept`] says.
    pub(crate) fn is_gone(&self, error: &io::Error) -> bool {
        matches!(self, Listener::Rdma { .. }) && error.kind() == io::ErrorKind::NetworkDown
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_address(),
            Listener::Rdma { port, .. } => port.local_address(),
        }
    }
}

impl From<tcp::Listener> for Listener {
    fn from(listener: tcp::Listener) -> Self {
        Listener::Tcp(listener)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Rdma { port, .. } => port.as_fd(),
        }
    }
}

/// By what a connection goes.
pub(crate) enum Channel {
    /// Bytes are received from it, and sent.
    Stream(Stream),
    /// The protocol has the queue pair, and asks the adapter itself, whenever the descriptor is readable.
    Adapter { events: OwnedFd, local_address: SocketAddr },
}

impl Channel {
    /// Where its connection came in.
    pub(crate) fn portal(&self) -> io::Result<(SocketAddr, PortalPath)> {
        match self {
            Channel::Stream(stream) => Ok((stream.local_address()?, PortalPath::Tcp)),
            Channel::Adapter { local_address, .. } => Ok((*local_address, PortalPath::Rdma)),
        }
    }

    /// The stream of bytes, if it is one.
    pub(crate) fn stream(&mut self) -> Option<&mut Stream> {
        match self {
            Channel::Stream(stream) => Some(stream),
            Channel::Adapter { .. } => None,
        }
    }

    /// Whether something waits for it to become writable.
    pub(crate) fn wants_write(&self) -> bool {
        matches!(self, Channel::Stream(stream) if stream.wants_write())
    }

    /// Bytes of the segments of its TCP, as far as the kernel knows.
    pub(crate) fn segment_bytes(&self) -> Option<usize> {
        match self {
            Channel::Stream(stream) => stream.segment_bytes().ok(),
            Channel::Adapter { .. } => None,
        }
    }
}

impl From<Stream> for Channel {
    fn from(stream: Stream) -> Self {
        Channel::Stream(stream)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Channel::Stream(stream) => stream.as_fd(),
            Channel::Adapter { events, .. } => events.as_fd(),
        }
    }
}
