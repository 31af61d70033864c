//! Packets that wait to be sent on one connection, gathered from where they lie.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{iovec, msghdr};
use sanwire_buffer::Packet;

/// Packets that one stream holds at the most.
pub(super) const QUEUE_PACKETS: usize = 128;

/// Pieces of memory that one call sends, at the most: two of each packet.
const PIECES_MAX: usize = 2 * QUEUE_PACKETS;

#[derive(Default, Debug)]
pub(super) struct Outgoing {
    packets: VecDeque<Packet>,
    /// Bytes of the first packet that are sent.
    sent_bytes: usize,
    /// Bytes that are to be sent.
    unsent_bytes: usize,
    /// Bytes that were sent, ever.
    total_bytes: u64,
}

impl Outgoing {
    #[expect(clippy::result_large_err, reason = "the packet itself comes back; boxing it would allocate")]
    pub(super) fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if !self.has_room() {
            return Err(packet);
        }
        self.unsent_bytes += packet.length_bytes();
        self.packets.push_back(packet);
        Ok(())
    }

    pub(super) fn has_room(&self) -> bool {
        self.packets.len() < QUEUE_PACKETS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn length_bytes(&self) -> usize {
        self.unsent_bytes
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(super) fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while !self.packets.is_empty() {
            match self.send(socket) {
                Ok(bytes) => self.advance(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends what the socket takes of all that waits; gives the number of bytes.
    fn send(&self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut places = [const { MaybeUninit::<iovec>::uninit() }; PIECES_MAX];
        let mut skip = self.sent_bytes;
        let mut count = 0;
        for packet in &self.packets {
            for piece in packet.parts() {
                let rest = piece.get(skip..).unwrap_or_default();
                skip = skip.saturating_sub(piece.len());
                if let (false, Some(place)) = (rest.is_empty(), places.get_mut(count)) {
                    place.write(iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
                    count += 1;
                }
            }
        }
        // SAFETY: a msghdr of zeroes is a valid, empty one.
        let mut header: msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = places.as_mut_ptr().cast();
        header.msg_iovlen = count as _;
        // SAFETY: the first `count` places are initialised and point into packets that stay until the call has ended.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Lets go of what is sent.
    fn advance(&mut self, bytes: usize) {
        self.total_bytes += bytes as u64;
        self.sent_bytes += bytes;
        self.unsent_bytes -= bytes;
        while let Some(first) = self.packets.front() {
            let length = first.length_bytes();
            if self.sent_bytes < length {
                break;
            }
            self.sent_bytes -= length;
            self.packets.pop_front();
        }
    }
}
