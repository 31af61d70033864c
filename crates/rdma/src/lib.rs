//! RDMA adapters, as those see them who drive connections: server and client.
//!
//! An adapter knows no bytes to be received and sent. It has the memory of a connection, moves what was posted, and says that something
//! has happened by one descriptor. So a driver puts that into its poller, and gives the queue pair to the datamover of iSER, which asks
//! it what has happened whenever the descriptor is readable. When the datamover is dropped, the connection is over.
//!
//! Which adapters there are, and how they are spoken to, is an [`Adapters`]; the program's top has one, and gives it to server and client
//! as an [`Rdma`].
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub use sanwire_iser::QueuePair;

/// The adapters of this host.
pub trait Adapters: Debug + Send + Sync {
    /// Whether there are any now.
    ///
    /// # Errors
    /// In words for people: what is missing, and what to do.
    fn check(&self) -> io::Result<()>;

    /// Takes connections at an address; port 0 lets the system choose one.
    ///
    /// # Errors
    /// In words for people: there is no RDMA here, or no adapter has the address. Where one may come that has it, it is an
    /// `AddrNotAvailable`.
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>>;

    /// Begins to connect, and does not wait. Whether that succeeds, and why not, the queue pair tells.
    ///
    /// # Errors
    /// In words for people: there is no RDMA here.
    fn connect(&self, to: SocketAddr) -> io::Result<Connection>;
}

/// An address at which connections are accepted. Its descriptor is readable when one waits.
pub trait Listener: AsFd + Send {
    /// Where it is.
    ///
    /// # Errors
    /// The system's.
    fn local_address(&self) -> io::Result<SocketAddr>;

    /// The next request for a connection, which its queue pair tells of; `None` when no more are there. Dropping it refuses the request.
    ///
    /// # Errors
    /// The system's, which is mostly short of something: wait a little before the next call. `NetworkDown` when the adapter is gone
    /// whose address this is: nothing comes there any more, and who wants to listen there again drops this one first.
    fn accept(&mut self) -> io::Result<Option<Accepted>>;
}

/// One end of a connection.
pub struct Connection {
    /// For the datamover.
    pub queue_pair: Box<dyn QueuePair>,
    /// Readable whenever the queue pair may have something to tell. It may outlive the queue pair, and is never readable then.
    pub events: OwnedFd,
}

/// A connection that an initiator asks for.
pub struct Accepted {
    /// This end of it.
    pub connection: Connection,
    /// The address of this host that was asked.
    pub local_address: SocketAddr,
    /// The address of the initiator.
    pub peer_address: SocketAddr,
}

/// The way to the adapters of this host, for who listens and connects by them.
#[derive(Clone, Debug, Default)]
pub struct Rdma(Option<Arc<dyn Adapters>>);

impl Rdma {
    /// By these adapters.
    #[must_use]
    pub fn by(adapters: Arc<dyn Adapters>) -> Self {
        Rdma(Some(adapters))
    }

    /// Whether there are any now.
    ///
    /// # Errors
    /// As for [`Adapters::check`].
    pub fn check(&self) -> io::Result<()> {
        self.adapters()?.check()
    }

    /// Takes connections at an address.
    ///
    /// # Errors
    /// As for [`Adapters::listen`].
    pub fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        self.adapters()?.listen(address)
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// As for [`Adapters::connect`].
    pub fn connect(&self, to: SocketAddr) -> io::Result<Connection> {
        self.adapters()?.connect(to)
    }

    fn adapters(&self) -> io::Result<&dyn Adapters> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, "this program has no way to RDMA adapters");
        self.0.as_deref().ok_or_else(none)
    }
}
