//! Both ends of a connection, each of which sleeps until its descriptor tells of something.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sanwire_buffer::Head;
use sanwire_iser::QueuePair;
use sanwire_iwarp::{Event, Message, Order, Request, SendKind, WorkId};
use sanwire_testing::{skip, this_test};
use sanwire_verbs::{ConnectOptions, Connection, Connector, ListenOptions, Listener};

/// How long anything may take: adapters in software on an emulated processor are slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is said at the set-up by the end that was connected to.
pub const ANSWER: [u8; 4] = [0x80, 0, 0, 0];

/// The longest message.
pub const MESSAGE_BYTES: usize = 8192;

/// Messages that may come at once.
pub const MESSAGES: usize = 32;

/// The name of what is not asked after.
pub const UNASKED: WorkId = WorkId(u64::MAX);

/// An address of an adapter, with a port; `None` where there is none, which is said.
pub fn address() -> Option<SocketAddr> {
    let Some(ip) = std::env::var_os("SANWIRE_RDMA_ADDRESS") else {
        skip(&this_test(), "SANWIRE_RDMA_ADDRESS does not say which address an RDMA adapter has");
        return None;
    };
    sanwire_verbs::available().unwrap();
    let ip = ip.to_str().and_then(|ip| ip.parse().ok());
    Some(SocketAddr::new(ip.expect("SANWIRE_RDMA_ADDRESS is an IP address"), 0))
}

/// Sleeps until something can be read there. `false` when that takes longer than is given.
pub fn is_readable(descriptor: impl AsFd, within: Duration) -> bool {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    poll(&mut descriptors, Some(&timeout)).unwrap() > 0
}

/// One end.
pub struct End(pub Connection);

impl End {
    /// The next event, slept for.
    pub fn event(&mut self) -> Event {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.0.poll_event() {
                return event;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(is_readable(&self.0, left), "nothing happens; trouble: {:?}", self.0.trouble());
        }
    }

    /// The next event but for those that tell what was sent.
    pub fn next(&mut self) -> Event {
        loop {
            match self.event() {
                Event::Sent(_) => {}
                event => return event,
            }
        }
    }

    pub fn message(&mut self) -> Vec<u8> {
        match self.next() {
            Event::Message(Message { buffer, .. }) => {
                self.0.expect_messages(MESSAGES, MESSAGE_BYTES);
                buffer.to_vec()
            }
            other => panic!("{other:?} instead of a message"),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.order(message(bytes), Some(UNASKED)).map_err(|refused| refused.refusal).unwrap();
    }

    /// Nothing happens for a while, and the descriptor says so. What was sent may still be told before: an
    /// adapter learns late that it has arrived.
    pub fn rests(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            while let Some(event) = self.0.poll_event() {
                assert!(matches!(event, Event::Sent(_)), "{event:?}");
            }
            if !is_readable(&self.0, Duration::from_millis(100)) {
                return true;
            }
        }
        false
    }
}

pub fn message(bytes: &[u8]) -> Order {
    let kind = SendKind { solicited: true, invalidate: None };
    Order::Send { kind, head: Head::from(bytes.to_vec()), data: None }
}

/// The next request, slept for.
pub fn request(listener: &mut Listener) -> (End, Request) {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(connection) = listener.accept().unwrap() {
            let mut end = End(connection);
            end.0.expect_messages(MESSAGES, MESSAGE_BYTES);
            return match end.event() {
                Event::Requested(request) => (end, request),
                other => panic!("{other:?} instead of a request"),
            };
        }
        assert!(is_readable(&*listener, until.saturating_duration_since(Instant::now())), "no request");
    }
}

pub fn connect(peer: SocketAddr, options: ConnectOptions) -> End {
    connect_by(&Connector::new(options), peer)
}

pub fn connect_by(connector: &Connector, peer: SocketAddr) -> End {
    let mut end = End(connector.connect(peer).unwrap());
    end.0.expect_messages(MESSAGES, MESSAGE_BYTES);
    end
}

/// Drives one end in a thread until it has an event, while the other end is driven here.
pub fn meanwhile<T>(end: &mut End, work: impl FnOnce() -> T) -> (Event, T) {
    std::thread::scope(|scope| {
        let event = scope.spawn(|| end.next());
        let done = work();
        (event.join().unwrap(), done)
    })
}

/// An initiator's end and a target's, connected.
pub fn pair(address: SocketAddr, options: ConnectOptions) -> (End, End) {
    let mut listener =
        Listener::bind(address, ListenOptions { connection: options, ..ListenOptions::default() }).unwrap();
    pair_by(&mut listener, &Connector::new(options))
}

/// The same, where others may be.
pub fn pair_by(listener: &mut Listener, connector: &Connector) -> (End, End) {
    let mut initiator = connect_by(connector, listener.local_address());
    let (event, (mut target, said)) = meanwhile(&mut initiator, || {
        let (mut target, request) = request(listener);
        assert!(request.ird > Some(0), "{request:?}");
        target.0.accept(&ANSWER).unwrap();
        (target, request.private_data)
    });
    let flags = if initiator.0.invalidates() { 0x80 } else { 0xc0 };
    assert_eq!(said, [flags, 0, 0, 0], "what an initiator says");
    match event {
        Event::Connected(terms) => assert_eq!(terms.private_data, ANSWER),
        other => panic!("{other:?}; {:?}", initiator.0.trouble()),
    }
    // On InfiniBand the target knows it by the first message at the latest.
    initiator.send(b"hello");
    match target.next() {
        Event::Connected(terms) => assert!(terms.ord > 0, "{terms:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(target.message(), b"hello");
    (initiator, target)
}
