//! The stream carrier: the connections of one shard, and which of them to look at.

mod connection;
mod counts;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::{Instant, NexusId};
use sanwire_io::tcp::Received;
use sanwire_io::{Interest, Poller};

use self::connection::Connection;
use self::counts::Closed;
pub(crate) use self::counts::{ByteCount, PortalCount};
use crate::channel::Channel;
use crate::front::{Carried, StreamEnds, StreamId};
use crate::registry::Seat;

/// Streams that are tried without asking the kernel first which are ready.
const HOT_MAX: usize = 4;

/// A stream without input for so long is not tried any more, only waited for.
const HOT_FOR: Duration = Duration::from_millis(2);

/// Commands between two waits that are few. Who has so few under way waits for each answer and comes again after a round
/// trip, which has a wake-up in it at the other end: longer than that is watched for, and the wake-up at this end spared.
const FEW_COMMANDS: u32 = 2;
const FEW_SPIN: Duration = Duration::from_micros(100);
/// Many commands come without a pause, or with one in which their initiator works off what was answered: as long as going to
/// sleep and being woken cost. 4 KiB writes at depth 32 over the loopback, one processor for each end, with 20 us and with 50:
/// 280,000 and 307,000 a second by an initiator that sleeps, 371,000 and 397,000 by one that watches for 50 us itself.
const MANY_SPIN: Duration = Duration::from_micros(50);

/// Turns between two questions about the other streams, while the hot ones keep the shard busy.
const ASK_PAUSE_MAX: u32 = 16;

/// Calls to receive from one stream before another has its turn.
const RECEIVES_MAX: u32 = 8;

/// Once a connection is to be closed, it is looked at so often: what the other end has taken none of since is not sent.
const CLOSE_LOOK_EVERY: Duration = Duration::from_secs(10);

/// So often: 5 minutes are enough for 8 MiB over a line of 256 kbit/s.
const CLOSE_LOOKS_MAX: u32 = 30;

/// Connections in slots. An id is its slot and how often the slot was used, so that none comes twice.
#[derive(Default)]
pub(crate) struct Streams {
    slots: Vec<(u32, Option<Connection>)>,
    free: Vec<u32>,
    hot: Vec<StreamId>,
    /// Events since the last wait, nearly all of them commands.
    events: u32,
    /// The poller has said that some stream is ready.
    is_told: bool,
    /// Turns until the next question about the others.
    ask_in: u32,
    ask_pause: u32,
    /// Told by the last question.
    ready: Vec<(StreamId, Interest)>,
    /// Connections that are closed when all is sent, or when that comes no further.
    closing: VecDeque<Closing>,
    closed: Closed,
}

/// A connection that is to be closed.
struct Closing {
    id: StreamId,
    look_at: Instant,
    looks_left: u32,
    /// What was sent on it when it was looked at.
    sent_bytes: u64,
}

fn slot_of(id: StreamId) -> usize {
    (id.0 & u64::from(u32::MAX)) as usize
}

impl Streams {
    /// Whether there are no connections.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Whether some stream is worth trying again and again for a moment.
    pub(crate) fn is_hot(&self) -> bool {
        !self.hot.is_empty()
    }

    /// Takes note of an event that input has brought.
    pub(crate) fn note_event(&mut self) {
        self.events = self.events.saturating_add(1);
    }

    /// How long the hot streams are worth trying before the shard sleeps.
    pub(crate) fn spin(&mut self) -> Duration {
        if std::mem::take(&mut self.events) <= FEW_COMMANDS { FEW_SPIN } else { MANY_SPIN }
    }

    /// Takes a stream of a nexus in and gives it a number; gives it back when there is no room.
    pub(crate) fn add(
        &mut self,
        channel: Channel,
        (front, nexus): (u8, NexusId),
        seat: Arc<Seat>,
        poller: &mut Poller,
        now: Instant,
    ) -> Result<StreamId, (Box<Channel>, io::Error)> {
        let slot = match self.free.last() {
            Some(slot) => *slot,
            None => self.slots.len() as u32,
        };
        let round = self.slots.get(slot as usize).map_or(0, |(round, _)| *round);
        let id = StreamId(u64::from(round) << 32 | u64::from(slot));
        if let Err(error) = poller.add_stream(&channel, id.0, Interest::READABLE) {
            return Err((Box::new(channel), error));
        }
        let connection = Connection {
            id,
            front,
            nexus,
            portal: channel.portal().ok(),
            channel,
            carried: Carried::default(),
            watched: Interest::READABLE,
            last_input_at: now,
            unsent_bytes: 0,
            is_stalled: false,
            is_closing: false,
            _seat: seat,
        };
        if self.free.pop().is_some() {
            self.slots[slot as usize] = (round, Some(connection));
        } else {
            self.slots.push((round, Some(connection)));
        }
        Ok(id)
    }

    fn get(&mut self, id: StreamId) -> Option<&mut Connection> {
        self.slots.get_mut(slot_of(id))?.1.as_mut().filter(|connection| connection.id == id)
    }

    fn remove(&mut self, id: StreamId) {
        if self.get(id).is_some() {
            let (round, connection) = &mut self.slots[slot_of(id)];
            connection.take().iter().for_each(|connection| self.closed.note(connection));
            // A slot that was used 2^32 times is not used again.
            if let Some(next) = round.checked_add(1) {
                *round = next;
                self.free.push(slot_of(id) as u32);
            }
            self.hot.retain(|hot| *hot != id);
        }
    }

    fn lose(&mut self, id: StreamId, ends: &mut impl StreamEnds, now: Instant) {
        let front = self.get(id).map(|connection| connection.front);
        self.remove(id);
        if let Some(end) = front.and_then(|front| ends.end(front)) {
            end.lost(id, now);
        }
    }

    /// The next [`Streams::receive`] asks which streams are ready, unless it is the hot ones.
    pub(crate) fn ask(&mut self) {
        self.is_told = true;
    }

    /// The next [`Streams::receive`] asks which streams are ready, also while the hot ones are busy.
    pub(crate) fn ask_now(&mut self) {
        self.ask_in = 0;
    }

    /// Receives from the streams that have something; gives the number of bytes.
    pub(crate) fn receive(
        &mut self,
        ends: &mut impl StreamEnds,
        poller: &mut Poller,
        now: Instant,
    ) -> io::Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let mut received = self.receive_hot(ends, now);
        let is_told = std::mem::take(&mut self.is_told);
        if self.ask_in == 0 || (is_told && received == 0) {
            received += self.receive_ready(ends, poller, now)?;
        } else if received > 0 {
            self.ask_in -= 1;
        }
        Ok(received)
    }

    /// Receives from the hot streams.
    pub(crate) fn receive_hot(&mut self, ends: &mut impl StreamEnds, now: Instant) -> usize {
        let mut received = 0;
        let mut index = 0;
        while let Some(&id) = self.hot.get(index) {
            let count = self.receive_from(id, ends, now);
            received += count;
            // One without room is not tried, nor watched, until the protocol says that it has some.
            let is_hot =
                |connection: &mut Connection| !connection.is_stalled && now - connection.last_input_at < HOT_FOR;
            let is_hot = self.get(id).is_some_and(is_hot);
            if is_hot {
                index += 1;
            } else {
                self.hot.retain(|hot| *hot != id);
            }
        }
        received
    }

    fn receive_ready(&mut self, ends: &mut impl StreamEnds, poller: &mut Poller, now: Instant) -> io::Result<usize> {
        let mut ready = std::mem::take(&mut self.ready);
        poller.poll_streams(&mut |key, interest| ready.push((StreamId(key), interest)))?;
        let mut received = 0;
        let mut is_surprise = false;
        for (id, interest) in ready.drain(..) {
            if interest.writable {
                self.send(id, ends, poller, now);
            }
            if interest.readable && self.get(id).is_some_and(|connection| !connection.watched.readable) {
                // Who is told of unasked has failed.
                self.lose(id, ends, now);
            } else if interest.readable && !self.hot.contains(&id) {
                let count = self.receive_from(id, ends, now);
                received += count;
                is_surprise |= count > 0;
                self.warm_up(id, count, poller);
            }
        }
        self.ready = ready;
        self.ask_pause = if is_surprise { 0 } else { (self.ask_pause * 2 + 1).min(ASK_PAUSE_MAX) };
        self.ask_in = self.ask_pause;
        Ok(received)
    }

    /// A stream that had input becomes hot; one for whose input there is no room is not asked about for now.
    fn warm_up(&mut self, id: StreamId, count: usize, poller: &mut Poller) {
        let Some(connection) = self.get(id) else { return };
        if connection.is_stalled {
            connection.watch(Interest { readable: false, ..connection.watched }, poller);
        } else if count > 0 && self.hot.len() < HOT_MAX {
            self.hot.push(id);
        }
    }

    /// Receives from one stream; gives the number of bytes.
    fn receive_from(&mut self, id: StreamId, ends: &mut impl StreamEnds, now: Instant) -> usize {
        let mut received = 0;
        let Some(connection) = self.get(id) else { return 0 };
        let Some(end) = ends.end(connection.front) else { return 0 };
        let Channel::Stream(stream) = &mut connection.channel else {
            let received = connection.ask_adapter(end, now);
            self.close_if_over(id, ends, now);
            return received;
        };
        for _ in 0..RECEIVES_MAX {
            let spaces = end.spaces(id);
            let room = spaces[0].len() + spaces[1].len();
            connection.is_stalled = room == 0;
            match stream.receive(spaces) {
                Ok(Received::Bytes(count)) => {
                    connection.last_input_at = now;
                    end.filled(id, count, now);
                    received += count;
                    if count < room {
                        break;
                    }
                }
                Ok(Received::Nothing) => break,
                Ok(Received::End) | Err(_) => {
                    self.lose(id, ends, now);
                    break;
                }
            }
        }
        received
    }

    /// Sends what the protocol has for the connections; gives how many had something.
    pub(crate) fn transmit(&mut self, ends: &mut impl StreamEnds, poller: &mut Poller, now: Instant) -> usize {
        let mut connections = 0;
        for front in 0..ends.count() {
            while let Some(id) = ends.end(front).and_then(|end| end.poll_ready()) {
                connections += 1;
                self.send(id, ends, poller, now);
                // It may have waited for memory or for its answers to be sent.
                if let Some(connection) = self.get(id)
                    && !connection.watched.readable
                {
                    connection.watch(Interest { readable: true, ..connection.watched }, poller);
                }
            }
        }
        connections
    }

    /// Sends what there is for one connection, until it takes no more.
    fn send(&mut self, id: StreamId, ends: &mut impl StreamEnds, poller: &mut Poller, now: Instant) {
        let Some(connection) = self.get(id) else { return };
        let result = ends.end(connection.front).map_or(Ok(()), |end| connection.fill(end, now));
        let writable = connection.channel.wants_write();
        connection.watch(Interest { writable, ..connection.watched }, poller);
        if let Err(error) = result {
            tracing::debug!("a connection is lost: {error}");
            self.lose(id, ends, now);
        } else {
            self.close_if_over(id, ends, now);
        }
    }

    /// Closes a connection that was to be closed when all is sent, if it is.
    fn close_if_over(&mut self, id: StreamId, ends: &mut impl StreamEnds, now: Instant) {
        if self.get(id).is_some_and(|connection| connection.is_closing && connection.is_all_sent()) {
            // No session has it any more, so that none loses it: the protocol forgets what was still to be sent.
            self.lose(id, ends, now);
        }
    }

    /// Closes a connection at once.
    pub(crate) fn cut(&mut self, id: StreamId) {
        self.remove(id);
    }

    /// Closes a connection once all is sent.
    pub(crate) fn close(&mut self, id: StreamId, ends: &mut impl StreamEnds, poller: &mut Poller, now: Instant) {
        if let Some(connection) = self.get(id) {
            connection.is_closing = true;
            // An adapter says by it, too, what is sent.
            let readable = connection.channel.stream().is_none();
            connection.watch(Interest { readable, ..connection.watched }, poller);
            self.hot.retain(|hot| *hot != id);
            self.send(id, ends, poller, now);
            self.await_close(id, CLOSE_LOOKS_MAX, now);
        }
    }

    fn await_close(&mut self, id: StreamId, looks_left: u32, now: Instant) {
        if let Some(sent_bytes) = self.get(id).map(|connection| connection.bytes().sent) {
            self.closing.push_back(Closing { id, look_at: now + CLOSE_LOOK_EVERY, looks_left, sent_bytes });
        }
    }

    /// When [`Streams::handle_timeout`] is next due. It may come early, never late.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.closing.front().map(|closing| closing.look_at)
    }

    /// Closes what was to be closed, and whose other end takes no more of what was left, or takes too long.
    pub(crate) fn handle_timeout(&mut self, ends: &mut impl StreamEnds, poller: &mut Poller, now: Instant) {
        while let Some(&Closing { id, look_at, looks_left, sent_bytes }) = self.closing.front()
            && (look_at <= now || self.get(id).is_none())
        {
            self.closing.pop_front();
            // The kernel may have room of which it has not told.
            self.send(id, ends, poller, now);
            let Some(connection) = self.get(id) else { continue };
            if connection.bytes().sent > sent_bytes && looks_left > 1 {
                self.await_close(id, looks_left - 1, now);
            } else {
                self.lose(id, ends, now);
            }
        }
    }
}

#[cfg(test)]
impl Streams {
    /// Something to be sent that takes more room than the kernel has.
    pub(crate) fn leave_unread(&mut self, id: StreamId) {
        let payload = Some(vec![0; 64 << 20].into());
        let packet = sanwire_buffer::Packet::new(sanwire_buffer::Head::new(), payload);
        let stream = self.get(id).and_then(|connection| connection.channel.stream());
        assert!(stream.is_some_and(|stream| stream.queue(packet).is_ok()));
    }
}
