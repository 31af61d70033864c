//! Where initiators ask for connections.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::connection::Connection;
use crate::domain::Domains;
use crate::error::Error;
use crate::ffi::EVENT_DEVICE_REMOVAL;
use crate::manager::Manager;
use crate::options::ListenOptions;

/// An address at which connections are taken, by all RDMA adapters that have it. Its descriptor is readable when there is a request.
pub struct Listener {
    manager: Manager,
    options: ListenOptions,
    domains: Arc<Domains>,
    address: SocketAddr,
}

impl Listener {
    /// Listens. Port 0 is any that is free.
    ///
    /// # Errors
    /// When there is no RDMA here, or nothing can listen there.
    pub fn bind(address: SocketAddr, options: ListenOptions) -> Result<Listener, Error> {
        let manager = Manager::new()?;
        manager.listen(address, options.backlog)?;
        let address = manager.local_address().unwrap_or(address);
        let domains = Arc::new(Domains::sharing(options.shared_receives_max));
        Ok(Listener { manager, options, domains, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The next request, as the end of a connection that is to accept or to reject it: `Event::Requested` waits there. It never blocks,
    /// and a request takes nothing from an adapter before it is accepted.
    ///
    /// # Errors
    /// The kernel's: a request that cannot be taken is refused; the next one may be fine. [`Error::Gone`], once, when an adapter was
    /// unplugged: the kernel then ends what listens there.
    pub fn accept(&mut self) -> Result<Option<Connection>, Error> {
        while let Some((notice, manager)) = self.manager.next_request()? {
            if let Some(manager) = manager {
                let domains = Arc::clone(&self.domains);
                return Connection::requested((manager, notice), domains, self.options.connection).map(Some);
            }
            if notice.kind == EVENT_DEVICE_REMOVAL {
                return Err(Error::Gone { address: self.address });
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.manager.descriptor()
    }
}
