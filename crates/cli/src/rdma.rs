//! The RDMA adapters of this host, for server and client.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sanwire_io::descriptors;
use sanwire_rdma::{Accepted, Adapters, Connection, Listener, Rdma};
use sanwire_verbs::{Connector, Error, ListenOptions};

/// The way to them. Nothing of rdma-core is loaded before something listens or connects there.
pub(crate) fn adapters() -> Rdma {
    Rdma::by(Arc::new(Verbs(Connector::default())))
}

/// What is counted of them, in the text of OpenMetrics.
pub(crate) fn metrics() -> String {
    const NAME: &str = "sanwire_rdma_kept_out_bytes";
    let help = "Memory that is not used again because an RDMA adapter has not let go of it";
    format!("# HELP {NAME} {help}.\n# TYPE {NAME} counter\n{NAME}_total {}\n", sanwire_verbs::kept_out_bytes())
}

struct Verbs(Connector);

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verbs")
    }
}

impl Adapters for Verbs {
    fn check(&self) -> io::Result<()> {
        sanwire_verbs::available().map_err(io::Error::other)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        sanwire_verbs::available().map_err(|error| of_listening(error.into()))?;
        let listener = sanwire_verbs::Listener::bind(address, ListenOptions::default()).map_err(of_listening)?;
        Ok(Box::new(Port(listener)))
    }

    fn connect(&self, to: SocketAddr) -> io::Result<Connection> {
        connection(self.0.connect(to).map_err(io::Error::other)?)
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

fn connection(queue_pair: sanwire_verbs::Connection) -> io::Result<Connection> {
    let events = queue_pair.as_fd().try_clone_to_owned()?;
    Ok(Connection { queue_pair: Box::new(queue_pair), events })
}

/// Why nothing listens at an address, in the same way.
fn of_listening(error: Error) -> io::Error {
    let kind = if error.is_absence() { io::ErrorKind::AddrNotAvailable } else { io::ErrorKind::Other };
    io::Error::new(kind, error)
}

/// What a listener says, in the kinds by which its owner knows what to do.
fn of_listener(error: Error) -> io::Error {
    if matches!(error, Error::Gone { .. }) {
        return io::Error::new(io::ErrorKind::NetworkDown, error);
    }
    let used_up = error.os_error().map(io::Error::from_raw_os_error).filter(descriptors::are_used_up);
    used_up.unwrap_or_else(|| io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_memory_that_is_lost_to_adapters() {
        assert!(metrics().ends_with("\nsanwire_rdma_kept_out_bytes_total 0\n"), "{}", metrics());
    }

    #[test]
    fn what_a_listener_says_is_known_by_its_kind() {
        let of = |source| of_listener(Error::Adapter { what: "a request cannot be taken over", source });
        // Too many open files, and no memory.
        assert!(descriptors::are_used_up(&of(io::Error::from_raw_os_error(24))));
        assert!(!descriptors::are_used_up(&of(io::Error::from_raw_os_error(12))));
        let gone = of_listener(Error::Gone { address: "10.0.0.1:3260".parse().unwrap() });
        assert_eq!(gone.kind(), io::ErrorKind::NetworkDown);
        assert!(gone.to_string().contains("10.0.0.1:3260 is gone"), "{gone}");
        let listening = |number| {
            let source = io::Error::from_raw_os_error(number);
            of_listening(Error::Listen { address: "10.0.0.1:3260".parse().unwrap(), source })
        };
        // No such device, and address in use.
        assert_eq!(listening(19).kind(), io::ErrorKind::AddrNotAvailable);
        assert_eq!(listening(98).kind(), io::ErrorKind::Other);
        assert!(listening(19).to_string().contains("rdma link"), "{}", listening(19));
    }
}
