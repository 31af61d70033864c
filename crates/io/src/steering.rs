//! Spreading the packets of one address over several shards, in the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, sock_filter, sock_fprog};

use crate::sys;

/// One shard's place among several that share an interface and EtherType, or a UDP address.
///
/// The big-endian u32 at byte 8 of every packet, modulo `shards`, is the index of the shard that gets it; packets too
/// short for that go to shard 0. The kernel numbers shards by the order in which they open their ports: **open them in
/// the order of their indices**, and all of them again when one must be reopened.
///
/// UDP only: packets that the kernel or a network card merged (GRO) are steered together, by the first of them. This
/// crate's sender never merges packets of different steering; a client should use one socket per server shard, because
/// a card merges all that comes from one socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    /// How many shards there are, at least 1.
    pub shards: u32,
    /// Which of them this is, below `shards`.
    pub index: u32,
    /// The same number for all shards of one server, and another one for other servers on this host (Ethernet only).
    pub group: u16,
}

/// Where the steering word lies in every packet.
pub(crate) const STEERING_OFFSET_BYTES: usize = 8;

/// The word that chooses the shard of a packet made of these parts; `None` when it is too short to have one.
pub(crate) fn steering_word(head: &[u8], payload: &[u8]) -> Option<[u8; 4]> {
    let end = STEERING_OFFSET_BYTES + 4;
    if let Some(word) = head.get(STEERING_OFFSET_BYTES..end) {
        return word.try_into().ok();
    }
    let mut bytes = head.iter().chain(payload).skip(STEERING_OFFSET_BYTES).copied();
    Some([bytes.next()?, bytes.next()?, bytes.next()?, bytes.next()?])
}

impl Steering {
    fn check(self) -> io::Result<()> {
        if self.shards == 0 || self.index >= self.shards {
            let message = format!("there is no shard {} among {}", self.index, self.shards);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// Makes a bound packet socket one of the shards (packet(7), `PACKET_FANOUT`).
    pub(crate) fn join_fanout(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.check()?;
        let mode = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let group = u32::from(self.group) | mode << 16;
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &group)?;
        // The kernel runs it with the packet at its network header, whatever precedes that.
        let offset = libc::SKF_NET_OFF.cast_unsigned() + STEERING_OFFSET_BYTES as u32;
        self.attach(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, offset)
    }

    /// Makes a UDP socket, not yet bound, one of the shards (socket(7), `SO_REUSEPORT`).
    pub(crate) fn share_port(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.check()?;
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1)
    }

    /// Gives the sockets that share the port the rule that chooses among them. `socket` is bound.
    pub(crate) fn choose_among_shared(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        // Here the program sees the datagram's payload.
        let offset = STEERING_OFFSET_BYTES as u32;
        self.attach(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, offset)
    }

    /// Attaches `return word[offset] % shards`.
    fn attach(self, socket: BorrowedFd<'_>, level: c_int, name: c_int, offset: u32) -> io::Result<()> {
        let instruction = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut program = [
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset),
            instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, self.shards),
            instruction(libc::BPF_RET | libc::BPF_A, 0),
        ];
        let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel reads `program` and the instructions that it points to; both live during the call.
        sys::check(unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                (&raw const program).cast(),
                size_of::<sock_fprog>() as libc::socklen_t,
            )
        })
        .map(drop)
    }
}
