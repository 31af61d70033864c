//! Spreading the packets of one address over several shards, in the kernel.
//!
//! The big-endian u32 at byte 8 of every packet (where a protocol has nothing of use there, at another one), modulo the number of
//! shards, is the index of the shard that gets it; packets too short for that go to shard 0. The kernel numbers shards by the order in which their sockets join, and while some are not there
//! it gives their packets to others. So the sockets of all shards are opened together, in the order of the shards, and hear
//! nothing before all are there.
//!
//! UDP only: packets that the kernel or a network card merged (GRO) are steered together, by the first of them. This crate's
//! sender never merges packets of different steering; a client should use one socket per server shard, because a card merges all
//! that comes from one socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, sock_filter, sock_fprog};

use crate::sys;

/// Where the steering word lies in every packet, as a rule.
pub const STEERING_OFFSET_BYTES: usize = 8;

/// The word that chooses the shard of a packet made of these parts; `None` when it is too short to have one.
pub(crate) fn steering_word(head: &[u8], payload: &[u8]) -> Option<[u8; 4]> {
    let end = STEERING_OFFSET_BYTES + 4;
    if let Some(word) = head.get(STEERING_OFFSET_BYTES..end) {
        return word.try_into().ok();
    }
    let mut bytes = head.iter().chain(payload).skip(STEERING_OFFSET_BYTES).copied();
    Some([bytes.next()?, bytes.next()?, bytes.next()?, bytes.next()?])
}

/// Makes a bound packet socket the next shard of a group (packet(7), `PACKET_FANOUT`).
pub(crate) fn join_fanout(socket: BorrowedFd<'_>, group: u16) -> io::Result<()> {
    let mode = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(u32::from(group) | mode << 16))
}

/// Gives the group of a packet socket the rule that chooses among so many shards by the word at this byte.
pub(crate) fn choose_in_fanout(socket: BorrowedFd<'_>, word_at: usize, shards: u32) -> io::Result<()> {
    // The kernel runs it with the packet at its network header, whatever precedes that.
    let offset = libc::SKF_NET_OFF.cast_unsigned() + word_at as u32;
    attach(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, choice(offset, shards))
}

/// Lets a UDP socket, not yet bound, be the next shard of its address (socket(7), `SO_REUSEPORT`).
pub(crate) fn share_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1)
}

/// Gives the sockets that share the port of this one the rule that chooses among so many shards.
pub(crate) fn choose_among_shared(socket: BorrowedFd<'_>, shards: u32) -> io::Result<()> {
    // Here the program sees the datagram's payload.
    let rule = choice(STEERING_OFFSET_BYTES as u32, shards);
    attach(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, rule)
}

/// Lets a socket, not yet bound, hear nothing.
pub(crate) fn deafen(socket: BorrowedFd<'_>) -> io::Result<()> {
    attach(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, [instruction(libc::BPF_RET | libc::BPF_K, 0)])
}

/// Lets a socket hear that was made deaf.
pub(crate) fn undeafen(socket: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_option::<c_int>(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
}

/// `return word[offset] % shards`.
fn choice(offset: u32, shards: u32) -> [sock_filter; 3] {
    [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, shards),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Attaches a program (socket(7)) by this option.
fn attach<const N: usize>(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    mut program: [sock_filter; N],
) -> io::Result<()> {
    let program = sock_fprog { len: N as u16, filter: program.as_mut_ptr() };
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
