//! The RDMA adapters of this host, for server and client.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sanwire_rdma::{Accepted, Adapters, Connection, Listener, Rdma};
use sanwire_verbs::{ConnectOptions, Error, ListenOptions};

/// The way to them. Nothing of rdma-core is loaded before something listens or connects there.
pub(crate) fn adapters() -> Rdma {
    Rdma::by(Arc::new(Verbs))
}

#[derive(Debug)]
struct Verbs;

impl Adapters for Verbs {
    fn check(&self) -> io::Result<()> {
        sanwire_verbs::available().map_err(io::Error::other)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        self.check()?;
        let listener = sanwire_verbs::Listener::bind(address, ListenOptions::default()).map_err(io::Error::other)?;
        Ok(Box::new(Port(listener)))
    }

    fn connect(&self, to: SocketAddr) -> io::Result<Connection> {
        connection(sanwire_verbs::Connection::connect(to, ConnectOptions::default()).map_err(io::Error::other)?)
    }
}

/// An address at which adapters take connections.
struct Port(sanwire_verbs::Listener);

impl Listener for Port {
    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.0.local_address())
    }

    fn accept(&mut self) -> io::Result<Option<Accepted>> {
        let Some(accepted) = self.0.accept().map_err(of_listener)? else { return Ok(None) };
        let (local, peer_address) = (accepted.local_address(), accepted.peer_address());
        let local_address = local.unwrap_or_else(|| self.0.local_address());
        Ok(Some(Accepted { connection: connection(accepted)?, local_address, peer_address }))
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// That nothing listens any more is not what passes when others leave.
fn of_listener(error: Error) -> io::Error {
    let kind = if matches!(error, Error::Gone { .. }) { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}

fn connection(queue_pair: sanwire_verbs::Connection) -> io::Result<Connection> {
    let events = queue_pair.as_fd().try_clone_to_owned()?;
    Ok(Connection { queue_pair: Box::new(queue_pair), events })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_that_is_gone_is_told_apart_from_what_passes() {
        let address = "10.0.0.1:3260".parse().unwrap();
        let gone = of_listener(Error::Gone { address });
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
        assert!(gone.to_string().contains("10.0.0.1:3260"), "{gone}");
        let short = Error::Listen { address, source: io::ErrorKind::OutOfMemory.into() };
        assert_eq!(of_listener(short).kind(), io::ErrorKind::Other);
    }
}
