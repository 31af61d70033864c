//! The client against a server without I/O that keeps the rules.

mod basic;
mod hostile;
mod late;
mod outage;
mod property;
mod resting;
mod server;
mod witnesses;

use sanwire_buffer::{Frame, Slice, Slices};

use self::server::{Server, Traits};
use super::*;

struct World {
    client: Client,
    server: Server,
    now: Instant,
    /// Whether the server can be reached.
    is_reachable: bool,
    events: Vec<Event>,
    /// Connections that the client has.
    open: BTreeSet<u64>,
    /// Bytes that a connection brings at a time.
    piece: usize,
}

const LINGER: Duration = Duration::from_secs(5);

fn config() -> Config {
    Config {
        export: "disk".to_owned(),
        connections: 3,
        connect_timeout: Duration::from_secs(5),
        patience: Duration::from_secs(30),
        linger: LINGER,
        kept_max_bytes: 1 << 14,
    }
}

impl World {
    fn new(traits: Traits) -> Self {
        World::with(config(), traits, usize::MAX)
    }

    fn with(config: Config, traits: Traits, piece: usize) -> Self {
        let now = Instant::from_nanos(1);
        let mut world = World {
            client: Client::new(config, now),
            server: Server::new(traits),
            now,
            is_reachable: true,
            events: Vec::new(),
            open: BTreeSet::new(),
            piece,
        };
        world.carry();
        world
    }

    /// Carries bytes and actions to and fro until nothing moves; the server carries nothing out.
    fn carry(&mut self) {
        loop {
            let mut has_moved = false;
            while let Some(action) = self.client.poll_action() {
                has_moved = true;
                match action {
                    Action::Connect(id) if self.is_reachable => {
                        self.open.insert(id.0);
                        self.server.accept(id.0);
                        self.client.connected(id);
                    }
                    Action::Connect(id) => self.client.lost(id, "refused", self.now),
                    Action::Close(id) => {
                        self.open.remove(&id.0);
                        self.server.cut(id.0, self.now + LINGER);
                    }
                }
            }
            for id in self.client.connections().collect::<Vec<_>>() {
                while let Some(packet) = self.client.poll_transmit(id) {
                    has_moved = true;
                    let payload = packet.payload.as_deref().unwrap_or_default();
                    self.server.input(id.0, &[&packet.head[..], payload].concat());
                }
            }
            for id in self.server.connections() {
                let bytes = self.server.output(id);
                has_moved |= !bytes.is_empty();
                self.deliver(id, &bytes);
            }
            self.events.extend(std::iter::from_fn(|| self.client.poll_event()));
            if !has_moved {
                return;
            }
        }
    }

    fn deliver(&mut self, id: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut taken = 0;
            let most = bytes.len().min(self.piece);
            for space in self.client.spaces(ConnectionId(id)) {
                let count = space.len().min(most - taken);
                space[..count].copy_from_slice(&bytes[taken..taken + count]);
                taken += count;
            }
            if taken == 0 {
                return;
            }
            self.client.filled(ConnectionId(id), taken, self.now);
            bytes = &bytes[taken..];
        }
    }

    /// The server carries everything out.
    fn run(&mut self) {
        self.carry();
        while self.server.work(0) {
            self.carry();
        }
    }

    fn order(&mut self, order: Order) -> OrderId {
        let id = self.client.order(order, self.now);
        self.carry();
        id
    }

    fn write(&mut self, offset_bytes: u64, byte: u8, length: usize) -> OrderId {
        let data = Slice::from(vec![byte; length]);
        let middle = length / 3;
        let pieces = [data.slice(0..middle), data.slice(middle..length)];
        self.order(Order::Write { offset_bytes, data: Slices::join(pieces.into_iter()).unwrap() })
    }

    fn read(&mut self, offset_bytes: u64, length: usize) -> OrderId {
        // What the memory held before must not pass for data.
        self.order(Order::Read { offset_bytes, frame: Frame::from(vec![0xee; length]) })
    }

    /// The connections break.
    fn cut(&mut self) {
        for id in std::mem::take(&mut self.open) {
            self.server.cut(id, self.now + LINGER);
            self.client.lost(ConnectionId(id), "cut", self.now);
        }
        self.carry();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.client.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.server.pass(self.now);
            self.client.handle_timeout(self.now);
            self.carry();
        }
        self.now = end;
        self.server.pass(end);
    }

    /// The result of an order, if it has ended.
    fn result(&mut self, wanted: OrderId) -> Option<Result<Answer, Failure>> {
        let is_it = |event: &Event| matches!(event, Event::Completed { id, .. } if *id == wanted);
        let at = self.events.iter().position(is_it)?;
        match self.events.remove(at) {
            Event::Completed { result, .. } => Some(result),
            _ => None,
        }
    }

    fn bytes(&mut self, id: OrderId) -> Vec<u8> {
        match self.result(id) {
            Some(Ok(Answer::Read(frame))) => frame.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}
