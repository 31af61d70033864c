//! Stream sockets of either kind.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use sanwire_io::unix::{self, SocketPlace};

/// A client that takes no answers for so long is dropped: they hold buffers that others wait for.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Where an NBD server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NbdAddress {
    /// A unix socket at this path, for the owner only.
    Unix(PathBuf),
    /// A TCP address; port 0 takes a free one.
    Tcp(SocketAddr),
}

impl fmt::Display for NbdAddress {
    /// The URL that qemu and libnbd take.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            NbdAddress::Tcp(address) => write!(f, "nbd://{address}"),
        }
    }
}

/// A listening socket. Dropping it removes a unix socket's file.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener, SocketPlace),
    Tcp(TcpListener),
}

impl Listener {
    pub(super) fn bind(address: &NbdAddress) -> io::Result<Self> {
        let listener = match address {
            NbdAddress::Unix(path) => {
                let (listener, place) = unix::listen(path)?;
                listener.set_nonblocking(true)?;
                return Ok(Listener::Unix(listener, place));
            }
            NbdAddress::Tcp(address) => TcpListener::bind(address)?,
        };
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(listener))
    }

    pub(super) fn address(&self) -> io::Result<NbdAddress> {
        Ok(match self {
            Listener::Unix(_, place) => NbdAddress::Unix(place.path().to_owned()),
            Listener::Tcp(listener) => NbdAddress::Tcp(listener.local_addr()?),
        })
    }

    pub(super) fn accept(&self) -> io::Result<Socket> {
        let socket = match self {
            Listener::Unix(listener, _) => Socket::Unix(listener.accept()?.0),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
        };
        match &socket {
            Socket::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
            }
            Socket::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
            }
        }
        Ok(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// A connected socket, used by a reading and a writing thread at once.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub(super) fn shutdown(&self, how: Shutdown) {
        // Fails when the peer is gone already, which is as good.
        let _ = match self {
            Socket::Unix(stream) => stream.shutdown(how),
            Socket::Tcp(stream) => stream.shutdown(how),
        };
    }

    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).read(buffer),
            Socket::Tcp(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).write(bytes),
            Socket::Tcp(stream) => (&*stream).write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).write_vectored(slices),
            Socket::Tcp(stream) => (&*stream).write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
