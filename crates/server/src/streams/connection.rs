//! One connection, and what of it is sent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use sanwire_core::{Instant, NexusId};
use sanwire_io::tcp::Stream;
use sanwire_io::{Interest, Poller};

use super::counts::ByteCount;
use crate::front::{StreamEnd, StreamId};
use crate::registry::Seat;

pub(super) struct Connection {
    pub(super) id: StreamId,
    /// Whose it is.
    pub(super) front: u8,
    pub(super) nexus: NexusId,
    /// Where it came in.
    pub(super) portal: Option<SocketAddr>,
    pub(super) stream: Stream,
    /// What the poller watches it for.
    pub(super) watched: Interest,
    pub(super) last_input_at: Instant,
    /// What it was last told of that waits here.
    pub(super) unsent_bytes: usize,
    /// The protocol had no room for input when it was last asked.
    pub(super) is_stalled: bool,
    /// Close it when all is sent.
    pub(super) is_closing: bool,
    /// Its share of the connections that there may be, until it is closed.
    pub(super) _seat: Arc<Seat>,
}

impl Connection {
    /// What has passed.
    pub(super) fn bytes(&self) -> ByteCount {
        ByteCount { received: self.stream.received_bytes(), sent: self.stream.sent_bytes() }
    }

    /// Moves packets from the protocol to the stream and sends them, until there are no more or the socket is full.
    pub(super) fn fill(&mut self, end: &mut dyn StreamEnd) -> io::Result<()> {
        loop {
            let mut is_empty = false;
            while !is_empty && self.stream.wants_more() {
                match end.poll_transmit(self.id) {
                    // There is room.
                    Some(packet) => drop(self.stream.queue(packet)),
                    None => is_empty = true,
                }
            }
            self.stream.flush()?;
            if is_empty || self.stream.wants_write() {
                self.tell_unsent(end);
                return Ok(());
            }
        }
    }

    /// What waits here keeps memory: the protocol is to see whether it comes forward.
    fn tell_unsent(&mut self, end: &mut dyn StreamEnd) {
        let unsent_bytes = self.stream.unsent_bytes();
        if unsent_bytes != self.unsent_bytes {
            self.unsent_bytes = unsent_bytes;
            end.note_unsent(self.id, unsent_bytes);
        }
    }

    pub(super) fn watch(&mut self, wanted: Interest, poller: &mut Poller) {
        if wanted != self.watched && poller.change_stream(&self.stream, self.id.0, wanted).is_ok() {
            self.watched = wanted;
        }
    }
}
