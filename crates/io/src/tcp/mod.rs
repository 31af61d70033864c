//! TCP connections that never block and never copy what they send.

mod listener;
mod options;
mod outgoing;
mod peer_process;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use sanwire_buffer::Packet;

use crate::{address, sys};
pub use listener::Listener;
use outgoing::Outgoing;
pub use peer_process::PeerProcess;

/// So much is worth a call of the kernel, and fits into the cache that a processor has to itself (L2).
const FLUSH_AT_BYTES: usize = 256 << 10;

/// What [`Stream::receive`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The other end sends no more.
    End,
}

/// One TCP connection.
#[derive(Debug)]
pub struct Stream {
    socket: OwnedFd,
    outgoing: Outgoing,
    /// Bytes that were received, ever.
    received_bytes: u64,
}

impl Stream {
    fn new(socket: OwnedFd) -> Self {
        Stream { socket, outgoing: Outgoing::default(), received_bytes: 0 }
    }

    /// Connects to a unix socket.
    ///
    /// # Errors
    /// The kernel's; [`ErrorKind::WouldBlock`] where more wait to be accepted than the other end takes.
    pub fn connect_local(path: &Path) -> io::Result<Stream> {
        let (raw, length) = address::local_to_raw(path)?;
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
        // SAFETY: `raw` lives and is at least `length` bytes long.
        sys::check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) })?;
        Ok(Stream::new(socket))
    }

    /// Begins to connect. The stream becomes writable when that has ended: then ask [`Stream::is_connected`].
    ///
    /// # Errors
    /// The kernel's: no route, no descriptor left.
    pub fn connect(to: SocketAddr) -> io::Result<Stream> {
        let socket = open(to)?;
        let (raw, length) = address::to_raw(to);
        // SAFETY: `raw` lives and is at least `length` bytes long.
        match sys::check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) }) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Stream::new(socket)),
        }
    }

    /// Whether the connection that [`Stream::connect`] has begun is there.
    ///
    /// # Errors
    /// Why there will be none.
    pub fn is_connected(&self) -> io::Result<bool> {
        match sys::get_option_int(self.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => match address::remote(self.as_fd()) {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
                Err(error) => Err(error),
            },
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Ends the connection at once: what the kernel has taken and the other end has not received never gets there. A stream that
    /// is dropped leaves that to the kernel, which may deliver it minutes later.
    pub fn abort(self) {
        let now = libc::linger { l_onoff: 1, l_linger: 0 };
        // It fails for no connection that has anything to send.
        let _ = sys::set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &now);
    }

    /// The process at the other end of a unix socket, where the kernel tells (Linux 6.5) and it has not ended.
    #[must_use]
    pub fn peer_process(&self) -> Option<PeerProcess> {
        PeerProcess::of(self.as_fd())
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        address::local(self.as_fd())
    }

    /// Bytes of the segments that the connection sends (MSS), as far as the kernel knows by now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn segment_bytes(&self) -> io::Result<usize> {
        let bytes = sys::get_option_int(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG)?;
        usize::try_from(bytes).map_err(io::Error::other)
    }

    /// Receives what is there: first into the first space, then into the second. Without any space it finds nothing.
    ///
    /// # Errors
    /// The kernel's: the connection is lost.
    pub fn receive(&mut self, spaces: [&mut [u8]; 2]) -> io::Result<Received> {
        let room = spaces[0].len() + spaces[1].len();
        if room == 0 {
            return Ok(Received::Nothing);
        }
        let entries = spaces.map(|space| libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: space.len() });
        let socket = self.socket.as_raw_fd();
        loop {
            // An empty first space is left out: a call with one place is the cheaper one.
            let count = match &entries {
                // SAFETY: the entry describes memory that is borrowed mutably until the call has ended.
                [first, only] if first.iov_len == 0 => unsafe { libc::recv(socket, only.iov_base, only.iov_len, 0) },
                // SAFETY: as above, of both.
                both => unsafe { libc::readv(socket, both.as_ptr(), both.len() as libc::c_int) },
            };
            if let Ok(count) = usize::try_from(count) {
                self.received_bytes += count as u64;
                return Ok(if count == 0 { Received::End } else { Received::Bytes(count) });
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock => return Ok(Received::Nothing),
                _ => return Err(error),
            }
        }
    }

    /// Puts a packet behind those that wait to be sent.
    ///
    /// # Errors
    /// Gives the packet back while there is no room ([`Stream::has_room`]): flush first.
    #[expect(clippy::result_large_err, reason = "the packet itself comes back; boxing it would allocate")]
    pub fn queue(&mut self, packet: Packet) -> Result<(), Packet> {
        self.outgoing.push(packet)
    }

    /// Whether [`Stream::queue`] would take a packet.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.outgoing.has_room()
    }

    /// Whether more is to be queued before it is flushed: then a call of the kernel is worth it, and what has just been summed for its
    /// digest is still in the processor's cache when the kernel copies it.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.has_room() && self.outgoing.length_bytes() < FLUSH_AT_BYTES
    }

    /// Sends what waits, as far as the connection takes it now; the rest stays ([`Stream::wants_write`]).
    ///
    /// # Errors
    /// The kernel's: the connection is lost.
    pub fn flush(&mut self) -> io::Result<()> {
        self.outgoing.flush(self.socket.as_fd())
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.outgoing.length_bytes()
    }

    /// Bytes that the kernel has taken to be sent, in all.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.outgoing.total_bytes()
    }

    /// Bytes that were received, in all.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Whether something waits for the stream to become writable.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.outgoing.is_empty()
    }
}

/// A connected socket that does not block.
impl From<OwnedFd> for Stream {
    fn from(socket: OwnedFd) -> Self {
        Stream::new(socket)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket of the address's family, ready to listen or connect.
fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let domain = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = sys::socket(domain, libc::SOCK_STREAM, libc::IPPROTO_TCP)?;
    options::tune(socket.as_fd())?;
    Ok(socket)
}
