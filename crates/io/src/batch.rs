//! Packets waiting to be sent, and the arrays that `sendmmsg` wants.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use libc::{c_uint, iovec, mmsghdr, msghdr};
use sanwire_buffer::Packet;

use crate::port::{BATCH_BYTES, BATCH_PACKETS, PortCounters};
use crate::{Clock, sys};

/// How long one flush waits for room in the send buffer, at the most.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(1);

/// Buffers that a packet takes: head, payload and tail.
pub(crate) const PACKET_BUFFERS: usize = 3;

/// How much of a batch is taken.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    packets: usize,
    bytes: usize,
}

impl Fill {
    /// Counts a packet in; false when the batch is full.
    pub(crate) fn add(&mut self, packet: &Packet) -> bool {
        if self.packets == BATCH_PACKETS || self.bytes >= BATCH_BYTES {
            return false;
        }
        self.packets += 1;
        self.bytes += packet.length_bytes();
        true
    }
}

/// The message headers and buffer lists of one `sendmmsg`, allocated once.
///
/// They hold pointers only while a flush builds and sends them.
#[derive(Debug)]
pub(crate) struct Messages {
    iovecs: Vec<iovec>,
    headers: Vec<mmsghdr>,
}

// SAFETY: the pointers are followed only within `Messages::send`, whose caller vouches for them; between flushes
// nothing reads them, so the thread does not matter.
unsafe impl Send for Messages {}

impl Messages {
    /// Room for `headers` messages of together `iovecs` buffers.
    pub(crate) fn new(headers: usize, iovecs: usize) -> Self {
        Messages { iovecs: Vec::with_capacity(iovecs), headers: Vec::with_capacity(headers) }
    }

    pub(crate) fn clear(&mut self) {
        self.iovecs.clear();
        self.headers.clear();
    }

    /// Adds bytes to the message that [`Messages::finish`] ends.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Growing would move the buffer lists that finished messages point to.
        assert!(self.iovecs.len() < self.iovecs.capacity(), "more buffers than the batch was made for");
        self.iovecs.push(iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
    }

    /// Adds a packet's bytes: at most [`PACKET_BUFFERS`] buffers.
    pub(crate) fn push_packet(&mut self, packet: &Packet) {
        packet.parts().into_iter().filter(|part| !part.is_empty()).for_each(|part| self.push(part));
    }

    /// Buffers pushed so far: where the next message starts.
    pub(crate) fn buffers(&self) -> usize {
        self.iovecs.len()
    }

    /// Ends a message made of the buffers since `first_buffer`; returns its header for the address to be filled in.
    pub(crate) fn finish(&mut self, first_buffer: usize) -> &mut msghdr {
        let buffers = &mut self.iovecs[first_buffer..];
        // SAFETY: a msghdr of zeroes is a valid, empty one.
        let mut header: mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = buffers.as_mut_ptr();
        header.msg_hdr.msg_iovlen = buffers.len() as _;
        self.headers.push(header);
        let last = self.headers.len() - 1;
        &mut self.headers[last].msg_hdr
    }

    /// Sends all messages and tells the fate of each, in order.
    ///
    /// # Errors
    /// The kernel's, when the socket no longer works at all; the messages left were told as failed.
    ///
    /// # Safety
    /// All that was pushed and all that the headers were made to point to must still live.
    pub(crate) unsafe fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        fate: &mut dyn FnMut(usize, Result<(), &io::Error>),
    ) -> io::Result<()> {
        let mut next = 0;
        let mut room_deadline = None;
        while next < self.headers.len() {
            // SAFETY: by the contract above.
            match unsafe { send_some(socket, &mut self.headers[next..]) } {
                Ok(sent) => {
                    (next..next + sent).for_each(|index| fate(index, Ok(())));
                    next += sent;
                }
                Err(error) => match Refusal::of(&error) {
                    Refusal::Interrupted => {}
                    Refusal::Message => {
                        fate(next, Err(&error));
                        next += 1;
                    }
                    Refusal::Full if has_room(socket, &mut room_deadline) => {}
                    Refusal::Full => {
                        (next..self.headers.len()).for_each(|index| fate(index, Err(&error)));
                        return Ok(());
                    }
                    Refusal::Socket => {
                        (next..self.headers.len()).for_each(|index| fate(index, Err(&error)));
                        return Err(error);
                    }
                },
            }
        }
        Ok(())
    }
}

/// What an error of `sendmmsg` is about.
enum Refusal {
    Interrupted,
    /// The send buffer is full.
    Full,
    /// This message; the next one may go.
    Message,
    /// The whole socket, for good.
    Socket,
}

impl Refusal {
    fn of(error: &io::Error) -> Refusal {
        match error.raw_os_error() {
            Some(libc::EINTR) => Refusal::Interrupted,
            Some(libc::EAGAIN) => Refusal::Full,
            Some(libc::ENXIO | libc::ENODEV | libc::EBADF | libc::ENOTSOCK) => Refusal::Socket,
            _ => Refusal::Message,
        }
    }
}

/// # Safety
/// What the headers point to lives.
unsafe fn send_some(socket: BorrowedFd<'_>, headers: &mut [mmsghdr]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `headers` are valid, and so is what they point to, by the contract above.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as c_uint, flags as _) };
    sys::check(sent).map(|sent| sent as usize)
}

/// Waits for room until the deadline of this flush, which the first call sets.
fn has_room(socket: BorrowedFd<'_>, deadline: &mut Option<sanwire_core::Instant>) -> bool {
    let now = Clock::new().now();
    now < *deadline.get_or_insert(now + WAIT_FOR_ROOM) && sys::wait_writable(socket, WAIT_FOR_ROOM)
}

/// Counts the fate of one packet.
pub(crate) fn count(counters: &mut PortCounters, packet: &Packet, is_sent: bool) {
    if is_sent {
        counters.sent += 1;
        counters.sent_bytes += packet.length_bytes() as u64;
    } else {
        counters.send_errors += 1;
    }
}

/// Fills in the address of a message.
pub(crate) fn set_address(header: &mut msghdr, address: &libc::sockaddr_storage, length: libc::socklen_t) {
    header.msg_name = ptr::from_ref(address).cast_mut().cast();
    header.msg_namelen = length;
}
