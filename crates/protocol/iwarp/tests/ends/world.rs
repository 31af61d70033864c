//! Two ends, and the stream between them: cut as a test likes, and seen by it.

use std::collections::VecDeque;

use sanwire_buffer::{Frame, Head, Slices};
use sanwire_iwarp::{
    Closed, Config, Connection, Ended, Event, Message, Order, Registration, SendKind, Stag, Terms, WorkId,
};

/// Bytes that differ from place to place and from seed to seed.
pub fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(7) ^ (at >> 8) as u8 ^ seed).collect()
}

pub fn frame(length: usize) -> Frame {
    Frame::from(vec![0; length])
}

/// What one end has told.
#[derive(Default)]
pub struct Told {
    pub request: Option<sanwire_iwarp::Request>,
    pub terms: Option<Terms>,
    pub rejected: Option<Vec<u8>>,
    pub messages: VecDeque<Message>,
    pub sent: Vec<WorkId>,
    pub reads: VecDeque<(WorkId, Frame)>,
    pub terminated: Option<Ended>,
    pub closed: Option<Closed>,
}

/// One end, what it has told, and what it has sent that has not arrived.
pub struct End {
    pub connection: Connection,
    pub told: Told,
    pub on_the_way: VecDeque<u8>,
}

impl End {
    pub fn new(connection: Connection) -> Self {
        End { connection, told: Told::default(), on_the_way: VecDeque::new() }
    }

    /// Takes what it has to tell and to send, as a driver does. `false` when there was nothing.
    pub fn drain(&mut self) -> bool {
        let mut has_done = self.drain_events();
        while let Some(packet) = self.connection.poll_transmit() {
            self.on_the_way.extend(packet.to_vec());
            has_done = true;
        }
        has_done | self.drain_events()
    }

    fn drain_events(&mut self) -> bool {
        let mut has_done = false;
        while let Some(event) = self.connection.poll_event() {
            has_done = true;
            assert!(self.told.closed.is_none(), "nothing follows the end: {event:?}");
            match event {
                Event::Requested(request) => self.told.request = Some(request),
                Event::Connected(terms) => self.told.terms = Some(terms),
                Event::Rejected(private_data) => self.told.rejected = Some(private_data),
                Event::Message(message) => self.told.messages.push_back(message),
                Event::Sent(id) => self.told.sent.push(id),
                Event::ReadDone { id, frame } => self.told.reads.push_back((id, frame)),
                Event::Terminated(ended) => self.told.terminated = Some(ended),
                Event::Closed(closed) => self.told.closed = Some(closed),
            }
        }
        has_done
    }

    pub fn send(&mut self, text: &[u8]) {
        self.send_as(SendKind::default(), text, None);
    }

    pub fn send_as(&mut self, kind: SendKind, text: &[u8], data: Option<Slices>) {
        let head = Head::from(text.to_vec());
        self.connection.order(Order::Send { kind, head, data }, None).unwrap();
    }

    pub fn write(&mut self, stag: Stag, offset: u64, data: Vec<u8>) {
        self.connection.order(Order::Write { stag, offset, data: data.into() }, None).unwrap();
    }

    pub fn read(&mut self, id: u64, length: usize, stag: Stag, offset: u64) {
        self.connection.read(WorkId(id), frame(length), 0..length, stag, offset).unwrap();
    }

    pub fn post(&mut self, count: usize, length: usize) {
        (0..count).for_each(|_| self.connection.post_receive(frame(length)).unwrap());
    }

    /// A window for the peer to write to.
    pub fn sink(&mut self, length: usize) -> Stag {
        self.connection.register(Registration::of_frame(frame(length))).unwrap()
    }

    /// A window for the peer to read.
    pub fn source(&mut self, data: Vec<u8>) -> Stag {
        self.connection.register(Registration::of_slices(data.into())).unwrap()
    }

    /// The bytes of a window.
    pub fn contents(&mut self, stag: Stag) -> Vec<u8> {
        match self.connection.deregister(stag).expect("registered") {
            sanwire_iwarp::Memory::Frame(frame) => frame.to_vec(),
            sanwire_iwarp::Memory::Slices(slices) => slices.to_vec(),
        }
    }

    /// The next message, as bytes.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        self.told.messages.pop_front().map(|message| message.buffer.to_vec())
    }

    /// So many of the bytes arrive, as from a socket: into the spaces, never more than these hold.
    pub fn receive(&mut self, bytes: &mut VecDeque<u8>, most: usize) -> usize {
        let mut taken = 0;
        for space in self.connection.spaces() {
            let count = space.len().min(bytes.len()).min(most - taken);
            bytes.drain(..count).zip(space).for_each(|(byte, place)| *place = byte);
            taken += count;
        }
        if taken > 0 {
            self.connection.filled(taken);
        }
        taken
    }
}

/// Both ends.
pub struct World {
    pub initiator: End,
    pub responder: End,
    /// So many bytes arrive at a time.
    pub most: usize,
    /// What the initiator sends, or the responder, stops once after so many bytes of it.
    pub cut: Option<(bool, usize)>,
    /// What was sent: by the initiator or not, and the bytes.
    pub sent: Vec<(bool, Vec<u8>)>,
}

impl World {
    pub fn new(initiator: Config, responder: Config) -> Self {
        let initiator = Connection::initiator(Config { seed: [1; 16], ..initiator }, b"from the initiator").unwrap();
        let responder = Connection::responder(Config { seed: [2; 16], ..responder }).unwrap();
        World {
            initiator: End::new(initiator),
            responder: End::new(responder),
            most: usize::MAX,
            cut: None,
            sent: Vec::new(),
        }
    }

    /// Both agree, and each has buffers.
    pub fn connected(initiator: Config, responder: Config) -> Self {
        let mut world = World::new(initiator, responder);
        world.connect();
        world
    }

    pub fn connect(&mut self) {
        self.run();
        assert!(self.responder.told.request.is_some());
        self.initiator.post(8, 4096);
        self.responder.post(8, 4096);
        self.responder.connection.accept(b"from the responder").unwrap();
        self.run();
    }

    pub fn plain() -> Self {
        World::connected(Config::default(), Config::default())
    }

    /// Until nothing happens any more.
    pub fn run(&mut self) {
        loop {
            let mut has_done = self.initiator.drain() | self.responder.drain();
            for is_initiator in [true, false] {
                let (from, to) = if is_initiator {
                    (&mut self.initiator, &mut self.responder)
                } else {
                    (&mut self.responder, &mut self.initiator)
                };
                if !from.on_the_way.is_empty() {
                    let before: Vec<u8> = from.on_the_way.iter().copied().collect();
                    let most = match &mut self.cut {
                        Some((of, rest)) if *of == is_initiator && *rest > 0 => self.most.min(*rest),
                        _ => self.most,
                    };
                    let taken = to.receive(&mut from.on_the_way, most);
                    if let Some((of, rest)) = &mut self.cut
                        && *of == is_initiator
                    {
                        *rest = rest.saturating_sub(taken);
                    }
                    assert!(taken > 0, "a stream that does not move");
                    self.sent.push((is_initiator, before[..taken].to_vec()));
                    has_done = true;
                }
            }
            if !has_done {
                return;
            }
        }
    }
}
