//! Datagrams in: `recvmmsg` into a fixed pool, merged datagrams taken apart.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_uint, cmsghdr, iovec, mmsghdr, sockaddr_storage, socklen_t};
use sanwire_buffer::Arrival;
use sanwire_core::Peer;

use crate::address;
use crate::port::PortCounters;
use crate::sys;

/// `UDP_GRO` of `linux/udp.h`: as an option, take merged datagrams; as a control message, the size of each.
pub(super) const UDP_GRO: c_int = 104;

/// Buffers of one `recvmmsg`, each large enough for the largest merged datagram.
const BUFFERS: usize = 16;
const BUFFER_BYTES: usize = 1 << 16;

/// How often one call asks the kernel again after a pending (ICMP) error came instead of datagrams.
const ERRORS_MAX: usize = 8;

/// Room for the control message with the size, and alignment.
type Control = [u64; 8];

/// The pool and what of it is not handed out yet.
#[derive(Debug)]
pub(super) struct Receiver {
    pool: Box<[u8]>,
    addresses: Box<[sockaddr_storage]>,
    controls: Box<[Control]>,
    iovecs: Box<[iovec]>,
    headers: Box<[mmsghdr]>,
    /// Buffers that the last call filled.
    filled: usize,
    /// The first of them that is not handed out wholly, and how much of it is.
    current: usize,
    offset_bytes: usize,
}

// SAFETY: the pointers in `iovecs` and `headers` lead into this value's own boxes, whichever thread has it.
unsafe impl Send for Receiver {}

impl Receiver {
    pub(super) fn new() -> Self {
        // SAFETY: headers and buffer lists of zeroes are valid, empty ones.
        let (iovec, header) = unsafe { (std::mem::zeroed::<iovec>(), std::mem::zeroed::<mmsghdr>()) };
        Receiver {
            // Untouched pages of the pool cost nothing: small datagrams touch the first page of each buffer.
            pool: vec![0; BUFFERS * BUFFER_BYTES].into(),
            addresses: vec![address::empty(); BUFFERS].into(),
            controls: vec![[0; 8]; BUFFERS].into(),
            iovecs: vec![iovec; BUFFERS].into(),
            headers: vec![header; BUFFERS].into(),
            filled: 0,
            current: 0,
            offset_bytes: 0,
        }
    }

    pub(super) fn has_input(&self) -> bool {
        self.current < self.filled
    }

    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        budget: usize,
        counters: &mut PortCounters,
        handler: &mut dyn FnMut(Peer, Arrival<'_>),
    ) -> io::Result<usize> {
        let mut received = self.hand_out(budget, counters, handler);
        while received < budget {
            let filled = self.fill(socket)?;
            received += self.hand_out(budget - received, counters, handler);
            if filled < BUFFERS {
                break;
            }
        }
        Ok(received)
    }

    /// Asks the kernel for what has arrived; returns how many buffers it filled. All earlier ones are handed out.
    fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.point_headers();
        (self.filled, self.current, self.offset_bytes) = (0, 0, 0);
        for _ in 0..ERRORS_MAX {
            // SAFETY: every header points to this value's own buffers with their sizes.
            let filled = sys::check(unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    BUFFERS as c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            });
            match filled {
                Ok(filled) => {
                    self.filled = filled as usize;
                    return Ok(self.filled);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(0),
                    Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) => return Err(error),
                    // An interruption, or what ICMP told about an earlier datagram: it concerns one peer, not the port.
                    _ => {}
                },
            }
        }
        Ok(0)
    }

    fn point_headers(&mut self) {
        let buffers = self.pool.chunks_exact_mut(BUFFER_BYTES).zip(self.addresses.iter_mut().zip(&mut self.controls));
        for ((header, iovec), (buffer, (address, control))) in
            self.headers.iter_mut().zip(&mut self.iovecs).zip(buffers)
        {
            *iovec = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: BUFFER_BYTES };
            let header = &mut header.msg_hdr;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            header.msg_name = std::ptr::from_mut(address).cast();
            header.msg_namelen = size_of::<sockaddr_storage>() as socklen_t;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>() as _;
            header.msg_flags = 0;
        }
    }

    /// Hands out what is in the pool.
    fn hand_out(
        &mut self,
        budget: usize,
        counters: &mut PortCounters,
        handler: &mut dyn FnMut(Peer, Arrival<'_>),
    ) -> usize {
        let mut received = 0;
        while self.current < self.filled && received < budget {
            let index = self.current;
            let header = &self.headers[index];
            let (length, flags) = ((header.msg_len as usize).min(BUFFER_BYTES), header.msg_hdr.msg_flags);
            let sender = address::from_raw(&self.addresses[index]).filter(|_| flags & libc::MSG_TRUNC == 0);
            let Some(sender) = sender else {
                counters.filtered += 1;
                self.next_buffer();
                continue;
            };
            let segment = segment_bytes(header).unwrap_or(length).clamp(1, length.max(1));
            let start = self.offset_bytes;
            let end = (start + segment).min(length);
            let place = index * BUFFER_BYTES;
            handler(Peer::Udp(sender), self.pool[place + start..place + end].into());
            counters.received += 1;
            counters.received_bytes += (end - start) as u64;
            received += 1;
            self.offset_bytes = end;
            if end >= length {
                self.next_buffer();
            }
        }
        received
    }

    fn next_buffer(&mut self) {
        self.current += 1;
        self.offset_bytes = 0;
    }
}

/// The size of each datagram that was merged into this one, if the kernel says so.
fn segment_bytes(header: &mmsghdr) -> Option<usize> {
    // SAFETY: the kernel has filled in the header's control buffer and its length, and both belong to the receiver that
    // lends the header; the CMSG functions stay within it.
    unsafe {
        let mut control: *const cmsghdr = libc::CMSG_FIRSTHDR(&raw const header.msg_hdr);
        while let Some(message) = control.as_ref() {
            if message.cmsg_level == libc::SOL_UDP && message.cmsg_type == UDP_GRO {
                let size = libc::CMSG_DATA(control).cast::<c_int>().read_unaligned();
                return usize::try_from(size).ok();
            }
            control = libc::CMSG_NXTHDR(&raw const header.msg_hdr, control);
        }
    }
    None
}
