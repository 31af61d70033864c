//! Answers on their way: many of them go in one system call.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use sanwire_nbd::wire::ReplyHead;

use super::socket::Socket;
use super::window::Permit;
use crate::bytes::ReadData;

/// Answers that are sent in one system call at the most.
pub(super) const BATCH_REPLIES: usize = 32;

/// An answer or a chunk of one. The request leaves the window when the last of them is sent.
pub(super) struct Reply {
    pub(super) head: ReplyHead,
    pub(super) data: Data,
    /// The shares of the window that the request and this data have.
    pub(super) _permits: (Arc<Permit>, Option<Permit>),
}

/// What goes with an answer.
pub(super) enum Data {
    None,
    Part(ReadData),
    Whole(Vec<u8>),
}

impl Data {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Data::None => &[],
            Data::Part(data) => data.payload(),
            Data::Whole(bytes) => bytes,
        }
    }
}

/// Sends answers, all of them.
pub(super) fn send(mut socket: &Socket, batch: &[Reply]) -> io::Result<()> {
    let mut slices = [IoSlice::new(&[]); 2 * BATCH_REPLIES];
    for (pair, reply) in slices.chunks_exact_mut(2).zip(batch) {
        pair[0] = IoSlice::new(reply.head.as_bytes());
        pair[1] = IoSlice::new(reply.data.bytes());
    }
    let mut rest = &mut slices[..2 * batch.len()];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match socket.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => IoSlice::advance_slices(&mut rest, sent),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
