//! The connections of one shard, and which of them to look at.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_io::tcp::{Received, Stream};
use sanwire_io::{Interest, Poller};
use sanwire_iscsi::{ConnectionId, Server};

use crate::registry::Seat;

/// Streams that are tried without asking the kernel first which are ready.
const HOT_MAX: usize = 4;

/// A stream without input for so long is not tried any more, only waited for.
const HOT_FOR: Duration = Duration::from_millis(2);

/// Turns between two questions about the other streams, while the hot ones keep the shard busy.
const ASK_PAUSE_MAX: u32 = 16;

/// Calls to receive from one stream before another has its turn.
const RECEIVES_MAX: u32 = 8;

/// Once a connection is to be closed, it is looked at so often: what the other end has taken none of since is not sent.
const CLOSE_LOOK_EVERY: Duration = Duration::from_secs(10);

/// So often: 5 minutes are enough for 8 MiB over a line of 256 kbit/s.
const CLOSE_LOOKS_MAX: u32 = 30;

struct Connection {
    id: ConnectionId,
    stream: Stream,
    /// What the poller watches it for.
    watched: Interest,
    last_input_at: Instant,
    /// What it was last told of that waits here.
    unsent_bytes: usize,
    /// The protocol had no room for input when it was last asked.
    is_stalled: bool,
    /// Close it when all is sent.
    is_closing: bool,
    /// Its share of the connections that there may be, until it is closed.
    _seat: Arc<Seat>,
}

/// Connections in slots. An id is its slot and how often the slot was used, so that none comes twice.
#[derive(Default)]
pub(crate) struct Streams {
    slots: Vec<(u32, Option<Connection>)>,
    free: Vec<u32>,
    hot: Vec<ConnectionId>,
    /// The poller has said that some stream is ready.
    is_told: bool,
    /// Turns until the next question about the others.
    ask_in: u32,
    ask_pause: u32,
    /// Told by the last question.
    ready: Vec<(ConnectionId, Interest)>,
    /// Connections that are closed when all is sent, or when that comes no further.
    closing: VecDeque<Closing>,
}

/// A connection that is to be closed.
struct Closing {
    id: ConnectionId,
    look_at: Instant,
    looks_left: u32,
    /// What was sent on it when it was looked at.
    sent_bytes: u64,
}

fn slot_of(id: ConnectionId) -> usize {
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

    /// Takes a stream in and gives it a number; gives it back when there is no room.
    pub(crate) fn add(
        &mut self,
        stream: Stream,
        seat: Arc<Seat>,
        poller: &mut Poller,
        now: Instant,
    ) -> Result<ConnectionId, (Box<Stream>, io::Error)> {
        let slot = match self.free.last() {
            Some(slot) => *slot,
            None => self.slots.len() as u32,
        };
        let round = self.slots.get(slot as usize).map_or(0, |(round, _)| *round);
        let id = ConnectionId(u64::from(round) << 32 | u64::from(slot));
        if let Err(error) = poller.add_stream(&stream, id.0, Interest::READABLE) {
            return Err((Box::new(stream), error));
        }
        let connection = Connection {
            id,
            stream,
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

    fn get(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(slot_of(id))?.1.as_mut().filter(|connection| connection.id == id)
    }

    fn remove(&mut self, id: ConnectionId) {
        if self.get(id).is_some() {
            let (round, connection) = &mut self.slots[slot_of(id)];
            *connection = None;
            // A slot that was used 2^32 times is not used again.
            if let Some(next) = round.checked_add(1) {
                *round = next;
                self.free.push(slot_of(id) as u32);
            }
            self.hot.retain(|hot| *hot != id);
        }
    }

    fn lose(&mut self, id: ConnectionId, server: &mut Server, now: Instant) {
        self.remove(id);
        server.connection_lost(id, now);
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
    pub(crate) fn receive(&mut self, server: &mut Server, poller: &mut Poller, now: Instant) -> io::Result<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let mut received = self.receive_hot(server, now);
        let is_told = std::mem::take(&mut self.is_told);
        if self.ask_in == 0 || (is_told && received == 0) {
            received += self.receive_ready(server, poller, now)?;
        } else if received > 0 {
            self.ask_in -= 1;
        }
        Ok(received)
    }

    /// Receives from the hot streams.
    pub(crate) fn receive_hot(&mut self, server: &mut Server, now: Instant) -> usize {
        let mut received = 0;
        let mut index = 0;
        while let Some(&id) = self.hot.get(index) {
            let count = self.receive_from(id, server, now);
            received += count;
            let is_hot = self.get(id).is_some_and(|connection| now - connection.last_input_at < HOT_FOR);
            if is_hot {
                index += 1;
            } else {
                self.hot.retain(|hot| *hot != id);
            }
        }
        received
    }

    fn receive_ready(&mut self, server: &mut Server, poller: &mut Poller, now: Instant) -> io::Result<usize> {
        let mut ready = std::mem::take(&mut self.ready);
        poller.poll_streams(&mut |key, interest| ready.push((ConnectionId(key), interest)))?;
        let mut received = 0;
        let mut is_surprise = false;
        for (id, interest) in ready.drain(..) {
            if interest.writable {
                self.send(id, server, poller, now);
            }
            if interest.readable && self.get(id).is_some_and(|connection| !connection.watched.readable) {
                // Who is told of unasked has failed.
                self.lose(id, server, now);
            } else if interest.readable && !self.hot.contains(&id) {
                let count = self.receive_from(id, server, now);
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
    fn warm_up(&mut self, id: ConnectionId, count: usize, poller: &mut Poller) {
        let Some(connection) = self.get(id) else { return };
        if connection.is_stalled {
            connection.watch(Interest { readable: false, ..connection.watched }, poller);
        } else if count > 0 && self.hot.len() < HOT_MAX {
            self.hot.push(id);
        }
    }

    /// Receives from one stream; gives the number of bytes.
    fn receive_from(&mut self, id: ConnectionId, server: &mut Server, now: Instant) -> usize {
        let mut received = 0;
        let Some(connection) = self.get(id) else { return 0 };
        for _ in 0..RECEIVES_MAX {
            let spaces = server.spaces(id);
            let room = spaces[0].len() + spaces[1].len();
            connection.is_stalled = room == 0;
            match connection.stream.receive(spaces) {
                Ok(Received::Bytes(count)) => {
                    connection.last_input_at = now;
                    server.filled(id, count, now);
                    received += count;
                    if count < room {
                        break;
                    }
                }
                Ok(Received::Nothing) => break,
                Ok(Received::End) | Err(_) => {
                    self.lose(id, server, now);
                    break;
                }
            }
        }
        received
    }

    /// Sends what the protocol has for the connections; gives how many had something.
    pub(crate) fn transmit(&mut self, server: &mut Server, poller: &mut Poller, now: Instant) -> usize {
        let mut connections = 0;
        while let Some(id) = server.poll_ready() {
            connections += 1;
            self.send(id, server, poller, now);
            // It may have waited for memory or for its answers to be sent.
            if let Some(connection) = self.get(id)
                && !connection.watched.readable
            {
                connection.watch(Interest { readable: true, ..connection.watched }, poller);
            }
        }
        connections
    }

    /// Sends what there is for one connection, until it takes no more.
    fn send(&mut self, id: ConnectionId, server: &mut Server, poller: &mut Poller, now: Instant) {
        let Some(connection) = self.get(id) else { return };
        let result = connection.fill(server);
        let is_over = connection.is_closing && !connection.stream.wants_write();
        if let Err(error) = result {
            tracing::debug!("an iSCSI connection is lost: {error}");
            self.lose(id, server, now);
        } else if is_over {
            // No session has it any more, so that none loses it: the protocol forgets what was still to be sent.
            self.lose(id, server, now);
        } else {
            let writable = connection.stream.wants_write();
            connection.watch(Interest { writable, ..connection.watched }, poller);
        }
    }

    /// Closes a connection at once.
    pub(crate) fn cut(&mut self, id: ConnectionId) {
        self.remove(id);
    }

    /// Closes a connection once all is sent.
    pub(crate) fn close(&mut self, id: ConnectionId, server: &mut Server, poller: &mut Poller, now: Instant) {
        if let Some(connection) = self.get(id) {
            connection.is_closing = true;
            connection.watch(Interest { readable: false, ..connection.watched }, poller);
            self.hot.retain(|hot| *hot != id);
            self.send(id, server, poller, now);
            self.await_close(id, CLOSE_LOOKS_MAX, now);
        }
    }

    fn await_close(&mut self, id: ConnectionId, looks_left: u32, now: Instant) {
        if let Some(sent_bytes) = self.get(id).map(|connection| connection.stream.sent_bytes()) {
            self.closing.push_back(Closing { id, look_at: now + CLOSE_LOOK_EVERY, looks_left, sent_bytes });
        }
    }

    /// When [`Streams::handle_timeout`] is next due. It may come early, never late.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.closing.front().map(|closing| closing.look_at)
    }

    /// Closes what was to be closed, and whose other end takes no more of what was left, or takes too long.
    pub(crate) fn handle_timeout(&mut self, server: &mut Server, poller: &mut Poller, now: Instant) {
        while let Some(&Closing { id, look_at, looks_left, sent_bytes }) = self.closing.front()
            && (look_at <= now || self.get(id).is_none())
        {
            self.closing.pop_front();
            // The kernel may have room of which it has not told.
            self.send(id, server, poller, now);
            let Some(connection) = self.get(id) else { continue };
            if connection.stream.sent_bytes() > sent_bytes && looks_left > 1 {
                self.await_close(id, looks_left - 1, now);
            } else {
                self.lose(id, server, now);
            }
        }
    }
}

impl Connection {
    /// Moves packets from the protocol to the stream and sends them, until there are no more or the socket is full.
    fn fill(&mut self, server: &mut Server) -> io::Result<()> {
        loop {
            let mut is_empty = false;
            while !is_empty && self.stream.has_room() {
                match server.poll_transmit(self.id) {
                    // There is room.
                    Some(packet) => drop(self.stream.queue(packet)),
                    None => is_empty = true,
                }
            }
            self.stream.flush()?;
            if is_empty || self.stream.wants_write() {
                self.tell_unsent(server);
                return Ok(());
            }
        }
    }

    /// What waits here keeps memory: the protocol is to see whether it comes forward.
    fn tell_unsent(&mut self, server: &mut Server) {
        let unsent_bytes = self.stream.unsent_bytes();
        if unsent_bytes != self.unsent_bytes {
            self.unsent_bytes = unsent_bytes;
            server.note_unsent(self.id, unsent_bytes);
        }
    }

    fn watch(&mut self, wanted: Interest, poller: &mut Poller) {
        if wanted != self.watched && poller.change_stream(&self.stream, self.id.0, wanted).is_ok() {
            self.watched = wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

    use sanwire_buffer::{Head, Packet, Region};
    use sanwire_core::NexusId;
    use sanwire_io::tcp::Listener;
    use sanwire_iscsi::wire::LoginRequest;
    use sanwire_iscsi::{
        Admission, Admitted, Authentication, ConnectionParameters, Digests, Directory, IscsiName, Isid, LoginRefusal,
        Portal, ServerConfig, ServerEvent, SessionKind, SessionParameters, TargetEntry, TargetId,
    };

    use super::*;

    struct NoTargets;

    impl Directory for NoTargets {
        fn target(&self, _: &IscsiName, _: &IscsiName, _: IpAddr, _: &Portal) -> Result<TargetEntry, LoginRefusal> {
            Err(LoginRefusal::NotFound)
        }

        fn permits_user(&self, _: TargetId, _: &IscsiName, _: &str) -> bool {
            true
        }

        fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> Result<Authentication, LoginRefusal> {
            Ok(Authentication::default())
        }

        fn visible(&self, _: &IscsiName, _: IpAddr, _: &Portal) -> Vec<(IscsiName, Vec<String>)> {
            Vec::new()
        }
    }

    fn admitted(initiator: &IscsiName) -> Admitted {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 3260));
        Admitted {
            request: LoginRequest { current_stage: 1, command_number: 1, task_tag: 7, ..LoginRequest::default() },
            text: Vec::new(),
            status_number: 100,
            initiator: initiator.clone(),
            alias: String::new(),
            isid: Isid([0x40, 0, 0, 0, 0, 1]),
            user: None,
            peer: Ipv4Addr::LOCALHOST.into(),
            portal: Portal { address, group_tag: 1 },
            kind: SessionKind::Normal { target: TargetId(0), name: initiator.clone() },
            connection: ConnectionParameters {
                digests: Digests::default(),
                send_data_max_bytes: 8192,
                receive_data_max_bytes: 65536,
            },
            session: SessionParameters {
                initial_r2t: false,
                immediate_data: true,
                max_burst_bytes: 65536,
                first_burst_bytes: 16384,
                max_outstanding_r2t: 1,
                data_pdu_in_order: true,
                data_sequence_in_order: true,
                error_recovery_level: 2,
                max_connections: 1,
                time_to_wait_s: 2,
                time_to_retain_s: 20,
                protocol_level: 2,
            },
            leftover: Vec::new(),
        }
    }

    /// A session over a stream, whose login is answered.
    struct World {
        server: Server,
        streams: Streams,
        poller: Poller,
        id: ConnectionId,
        initiator: TcpStream,
    }

    impl World {
        fn new(name: &IscsiName) -> Self {
            let config = ServerConfig {
                memory: Region::new(1 << 20).unwrap(),
                directory: Arc::new(NoTargets),
                commands_max: 32,
                transfer_max_bytes: 1 << 16,
            };
            let (mut server, mut streams, mut poller) = (Server::new(config), Streams::default(), Poller::new());
            let listener = Listener::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let initiator = TcpStream::connect(listener.local_address().unwrap()).unwrap();
            let accepted = std::iter::repeat_with(|| listener.accept().unwrap()).find_map(|accepted| accepted);
            let (stream, _) = accepted.unwrap();
            let now = Instant::ZERO;
            let id = streams.add(stream, Seat::for_test(), &mut poller, now).map_err(|(_, error)| error).unwrap();
            server.admit(id, admitted(name), Admission { tsih: 1, nexus: NexusId(1) }, now);
            streams.transmit(&mut server, &mut poller, now);
            World { server, streams, poller, id, initiator }
        }

        /// Something to be sent that takes more room than the kernel has.
        fn leave_unread(&mut self) {
            let packet = Packet { head: Head::new(), payload: Some(vec![0; 64 << 20].into()) };
            assert!(self.streams.get(self.id).unwrap().stream.queue(packet).is_ok());
        }

        /// The initiator reads what the kernel has.
        fn read_some(&mut self) {
            let mut room = vec![0; 1 << 20];
            self.initiator.set_nonblocking(true).unwrap();
            loop {
                match self.initiator.read(&mut room) {
                    Ok(count) => assert!(count > 0),
                    Err(error) => return assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        }

        /// Waits until a connection is looked at.
        fn wait(&mut self) {
            let at = self.streams.poll_timeout().unwrap();
            self.streams.handle_timeout(&mut self.server, &mut self.poller, at);
        }

        /// Closes what the protocol says is to be closed.
        fn close(&mut self) {
            while let Some(event) = self.server.poll_event() {
                if let ServerEvent::Close { connection } = event {
                    self.streams.close(connection, &mut self.server, &mut self.poller, Instant::ZERO);
                }
            }
        }
    }

    #[test]
    fn a_connection_whose_end_does_not_read_what_is_left_is_closed_all_the_same() {
        let name: IscsiName = "iqn.2026-11.org.sanwire:test".parse().unwrap();
        let mut world = World::new(&name);
        world.leave_unread();
        world.server.drop_initiator(&name);
        world.close();
        assert!(!world.streams.is_empty(), "it may still read");
        let at = world.streams.poll_timeout().unwrap();
        assert!(at > Instant::ZERO && at <= Instant::ZERO + Duration::from_secs(10));
        world.streams.handle_timeout(&mut world.server, &mut world.poller, Instant::ZERO + Duration::from_secs(5));
        assert!(!world.streams.is_empty());
        world.streams.handle_timeout(&mut world.server, &mut world.poller, at);
        assert!(world.streams.is_empty() && world.streams.poll_timeout().is_none());
        assert_eq!(world.server.connections_closing(), 0);
    }

    /// A connection that is to be closed, of which the other end reads slowly what is left.
    fn slow_world() -> World {
        let name: IscsiName = "iqn.2026-11.org.sanwire:test".parse().unwrap();
        let mut world = World::new(&name);
        world.leave_unread();
        world.server.drop_initiator(&name);
        world.close();
        world
    }

    #[test]
    fn a_connection_whose_end_reads_what_is_left_is_not_closed_before_it_has_all() {
        let mut world = slow_world();
        for _ in 0..3 {
            world.read_some();
            world.wait();
            assert!(!world.streams.is_empty(), "it reads");
        }
        world.wait();
        assert!(world.streams.is_empty(), "it reads no more");
        assert_eq!(world.server.connections_closing(), 0);
    }

    #[test]
    fn a_connection_whose_end_reads_for_ever_what_is_left_is_closed_all_the_same() {
        let mut world = slow_world();
        let looks = (1..100).find(|_| {
            world.leave_unread();
            world.read_some();
            world.wait();
            world.streams.is_empty()
        });
        assert_eq!(looks, Some(30));
    }

    #[test]
    fn a_connection_that_is_closed_when_all_is_sent_leaves_nothing_behind() {
        let name: IscsiName = "iqn.2026-11.org.sanwire:test".parse().unwrap();
        let mut world = World::new(&name);
        world.server.drop_initiator(&name);
        assert_eq!(world.server.connections_closing(), 1);
        world.close();
        assert!(world.streams.is_empty());
        assert_eq!(world.server.connections_closing(), 0);
    }
}
