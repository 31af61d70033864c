//! Datagrams out: `sendmmsg`, and runs of equal ones to one peer as a single large one that the kernel or the card cuts.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use libc::{c_int, cmsghdr, sockaddr_storage, socklen_t};
use sanwire_buffer::Packet;

use super::DATAGRAM_MAX_BYTES;
use crate::address;
use crate::batch::{self, Fill, Messages, PACKET_BUFFERS};
use crate::port::{BATCH_PACKETS, PortCounters};
use crate::steering::steering_word;

/// `UDP_SEGMENT` of `linux/udp.h`: the control message with the size at which a large datagram is cut.
const UDP_SEGMENT: c_int = 103;

/// `UDP_MAX_SEGMENTS` of the kernels before 6.9.
const SEGMENTS_MAX: usize = 64;

/// Room for one control message with a u16, aligned as the kernel wants it.
type Control = [u64; 3];

/// The batch and the arrays for sending it.
#[derive(Debug)]
pub(super) struct Sender {
    batch: Vec<Outgoing>,
    fill: Fill,
    messages: Messages,
    /// The packets of each message.
    runs: Vec<Range<usize>>,
    /// Runs that the kernel refused to cut.
    refused: Vec<Range<usize>>,
    controls: Vec<Control>,
    may_segment: bool,
}

#[derive(Debug)]
struct Outgoing {
    to: SocketAddr,
    address: sockaddr_storage,
    address_bytes: socklen_t,
    length_bytes: usize,
    packet: Packet,
}

impl Outgoing {
    fn steering_word(&self) -> Option<[u8; 4]> {
        steering_word(&self.packet.head, self.packet.payload.as_deref().unwrap_or_default())
    }
}

impl Sender {
    pub(super) fn new() -> Self {
        Sender {
            batch: Vec::with_capacity(BATCH_PACKETS),
            fill: Fill::default(),
            messages: Messages::new(BATCH_PACKETS, PACKET_BUFFERS * BATCH_PACKETS),
            runs: Vec::with_capacity(BATCH_PACKETS),
            refused: Vec::with_capacity(BATCH_PACKETS),
            controls: Vec::with_capacity(BATCH_PACKETS),
            may_segment: true,
        }
    }

    #[expect(clippy::result_large_err, reason = "the packet itself comes back; boxing it would allocate")]
    pub(super) fn queue(&mut self, to: SocketAddr, packet: Packet) -> Result<(), Packet> {
        if !self.fill.add(&packet) {
            return Err(packet);
        }
        let (address, address_bytes) = address::to_raw(to);
        let length_bytes = packet.length_bytes();
        self.batch.push(Outgoing { to, address, address_bytes, length_bytes, packet });
        Ok(())
    }

    pub(super) fn try_segmentation_again(&mut self) {
        self.may_segment = true;
    }

    #[cfg(test)]
    pub(super) fn forbid_segmentation(&mut self) {
        self.may_segment = false;
    }

    pub(super) fn flush(&mut self, socket: BorrowedFd<'_>, counters: &mut PortCounters) -> io::Result<()> {
        self.refused.clear();
        self.plan_runs();
        let mut result = self.send_runs(socket, counters);
        if !self.refused.is_empty() {
            let sent_before = counters.sent;
            self.plan_singles();
            result = result.and(self.send_runs(socket, counters));
            // Too large to send at all is no fault of segmentation; after other errors do without until the next refresh.
            self.may_segment = counters.sent == sent_before;
        }
        self.batch.clear();
        self.fill = Fill::default();
        result
    }

    /// Cuts the batch into runs that may leave as one datagram.
    fn plan_runs(&mut self) {
        self.runs.clear();
        let mut start = 0;
        while start < self.batch.len() {
            let end = if self.may_segment { run_end(&self.batch, start) } else { start + 1 };
            self.runs.push(start..end);
            start = end;
        }
    }

    /// The packets of refused runs, one by one.
    fn plan_singles(&mut self) {
        self.runs.clear();
        for packet in self.refused.drain(..).flatten() {
            self.runs.push(packet..packet + 1);
        }
    }

    fn send_runs(&mut self, socket: BorrowedFd<'_>, counters: &mut PortCounters) -> io::Result<()> {
        self.messages.clear();
        self.controls.clear();
        for run in &self.runs {
            let first_buffer = self.messages.buffers();
            self.batch[run.clone()].iter().for_each(|outgoing| self.messages.push_packet(&outgoing.packet));
            let first = &self.batch[run.start];
            let header = self.messages.finish(first_buffer);
            batch::set_address(header, &first.address, first.address_bytes);
            if run.len() > 1 {
                // Growing would move the control messages that earlier headers point to.
                assert!(self.controls.len() < self.controls.capacity(), "more messages than the batch was made for");
                self.controls.push(Control::default());
                if let Some(control) = self.controls.last_mut() {
                    set_segment(header, control, first.length_bytes as u16);
                }
            }
        }
        let (batch, runs, refused) = (&self.batch, &self.runs, &mut self.refused);
        let mut fate = |index: usize, result: Result<(), &io::Error>| {
            let run = runs[index].clone();
            match result {
                Err(error) if run.len() > 1 && is_about_segmentation(error) => refused.push(run),
                _ => batch[run].iter().for_each(|o| batch::count(counters, &o.packet, result.is_ok())),
            }
        };
        // SAFETY: every message points into `self.batch` and `self.controls`, which are not touched until the call is
        // over.
        unsafe { self.messages.send(socket, &mut fate) }
    }
}

/// The end of the run that starts at `start`: packets to one peer and shard, equally long but for a shorter last one.
fn run_end(batch: &[Outgoing], start: usize) -> usize {
    let first = &batch[start];
    let word = first.steering_word();
    let (mut end, mut total_bytes) = (start + 1, first.length_bytes);
    while let Some(next) = batch.get(end) {
        total_bytes += next.length_bytes;
        let is_like_first = next.to == first.to && next.length_bytes <= first.length_bytes && next.length_bytes > 0;
        let is_room = end - start < SEGMENTS_MAX && total_bytes <= DATAGRAM_MAX_BYTES;
        if !is_like_first || !is_room || next.steering_word() != word {
            break;
        }
        end += 1;
        if next.length_bytes < first.length_bytes {
            break;
        }
    }
    end
}

/// Errors that cut datagrams get where the single packets may still go (udp(7)).
fn is_about_segmentation(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE | libc::EOPNOTSUPP))
}

/// Tells the kernel where to cut.
fn set_segment(header: &mut libc::msghdr, control: &mut Control, segment_bytes: u16) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: these compute sizes; `CMSG_SPACE(2)` is 24, the size of `Control`, so that the first control message and
    // its two bytes lie within `control`.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
        let message: *mut cmsghdr = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    fn sender(to: SocketAddr, packets: &[(u8, usize)]) -> Sender {
        let mut sender = Sender::new();
        for &(shard, length) in packets {
            sender.queue(to, Packet::new(vec![shard; length].into(), None)).unwrap();
        }
        sender
    }

    #[test]
    fn equal_packets_of_one_shard_leave_together() {
        let to = "127.0.0.1:9".parse().unwrap();
        for (packets, expected) in [
            (vec![(1, 1400); 64], vec![46, 18]),
            (vec![(1, 1000); 64], vec![64]),
            (vec![(1, 100), (1, 100), (1, 60), (1, 100), (1, 200)], vec![3, 1, 1]),
            (vec![(1, 100), (2, 100), (2, 100), (1, 100)], vec![1, 2, 1]),
            (vec![(1, 100), (1, 0), (1, 0)], vec![1, 1, 1]),
            (vec![(1, 40_000), (1, 40_000)], vec![1, 1]),
        ] {
            let mut sender = sender(to, &packets);
            sender.plan_runs();
            let lengths: Vec<usize> = sender.runs.iter().map(Range::len).collect();
            assert_eq!(lengths, expected, "{packets:?}");
        }
    }

    #[test]
    fn the_kernel_cuts_runs_and_packets_go_singly_where_it_refuses() {
        let (socket, receiver) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut sender = sender(receiver.local_addr().unwrap(), &[(1, 500), (1, 500), (1, 499)]);
        let mut counters = PortCounters::default();
        sender.flush(socket.as_fd(), &mut counters).unwrap();
        assert_eq!((counters.sent, sender.may_segment), (3, true), "this kernel cuts");
        // The kernel computes no checksums while it cuts: it refuses where they are switched off.
        crate::sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, &1).unwrap();
        for _ in 0..2 {
            for length in [300, 300, 300, 200] {
                let packet = Packet::new(vec![1; length].into(), None);
                sender.queue(receiver.local_addr().unwrap(), packet).unwrap();
            }
            sender.flush(socket.as_fd(), &mut counters).unwrap();
        }
        assert_eq!((counters.sent, counters.send_errors, sender.may_segment), (11, 0, false));
        let mut buffer = [0; 2000];
        let lengths: Vec<usize> = (0..11).map(|_| receiver.recv(&mut buffer).unwrap()).collect();
        assert_eq!(lengths, [500, 500, 499, 300, 300, 300, 200, 300, 300, 300, 200]);
    }
}
