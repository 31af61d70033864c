//! One connection, and what of it is sent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use sanwire_core::{Instant, NexusId};
use sanwire_io::tcp::Stream;
use sanwire_io::{Interest, Poller};

use super::counts::ByteCount;
use crate::channel::{Channel, PortalPath};
use crate::front::{Carried, StreamEnd, StreamId};
use crate::registry::Seat;

pub(super) struct Connection {
    pub(super) id: StreamId,
    /// Whose it is.
    pub(super) front: u8,
    pub(super) nexus: NexusId,
    /// Where it came in.
    pub(super) portal: Option<(SocketAddr, PortalPath)>,
    pub(super) channel: Channel,
    /// How far it has come, where an adapter carries it.
    pub(super) carried: Carried,
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
        match &self.channel {
            Channel::Stream(stream) => ByteCount { received: stream.received_bytes(), sent: stream.sent_bytes() },
            Channel::Adapter { .. } => {
                ByteCount { received: self.carried.received_bytes, sent: self.carried.sent_bytes }
            }
        }
    }

    /// Whether nothing is left of what was to be sent, as far as it was taken from the protocol.
    pub(super) fn is_all_sent(&self) -> bool {
        match &self.channel {
            Channel::Stream(stream) => !stream.wants_write(),
            Channel::Adapter { .. } => self.carried.is_all_sent,
        }
    }

    /// Sends what the protocol has.
    pub(super) fn fill(&mut self, end: &mut dyn StreamEnd, now: Instant) -> io::Result<()> {
        match &mut self.channel {
            Channel::Stream(stream) => {
                move_packets(stream, self.id, end)?;
                let unsent_bytes = stream.unsent_bytes();
                self.tell_unsent(unsent_bytes, end);
            }
            Channel::Adapter { .. } => _ = self.ask_adapter(end, now),
        }
        Ok(())
    }

    /// Has the protocol ask the adapter, and give it what is to be sent; tells how many bytes have come.
    pub(super) fn ask_adapter(&mut self, end: &mut dyn StreamEnd, now: Instant) -> usize {
        end.handle_ready(self.id, now);
        // The adapter has it, not we.
        drop(end.poll_transmit(self.id));
        let before = self.carried.received_bytes;
        // One that the protocol has no more has nothing to send.
        self.carried = end.carried(self.id).unwrap_or(Carried { is_all_sent: true, ..self.carried });
        let received = self.carried.received_bytes.saturating_sub(before);
        if received > 0 {
            self.last_input_at = now;
        }
        usize::try_from(received).unwrap_or(usize::MAX)
    }

    /// What waits here keeps memory: the protocol is to see whether it comes forward.
    fn tell_unsent(&mut self, unsent_bytes: usize, end: &mut dyn StreamEnd) {
        if unsent_bytes != self.unsent_bytes {
            self.unsent_bytes = unsent_bytes;
            end.note_unsent(self.id, unsent_bytes);
        }
    }

    pub(super) fn watch(&mut self, wanted: Interest, poller: &mut Poller) {
        if wanted != self.watched && poller.change_stream(&self.channel, self.id.0, wanted).is_ok() {
            self.watched = wanted;
        }
    }
}

/// Moves packets from the protocol to the stream and sends them, until there are no more or the socket is full.
fn move_packets(stream: &mut Stream, id: StreamId, end: &mut dyn StreamEnd) -> io::Result<()> {
    loop {
        let mut is_empty = false;
        while !is_empty && stream.wants_more() {
            match end.poll_transmit(id) {
                // There is room.
                Some(packet) => drop(stream.queue(packet)),
                None => is_empty = true,
            }
        }
        stream.flush()?;
        if is_empty || stream.wants_write() {
            return Ok(());
        }
    }
}
