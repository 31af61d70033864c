//! The thread between a store and its server: sockets for a client that has none.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_io::tcp::{Received, Stream};
use sanwire_io::{Clock, Interest, Poller, Waker};
use sanwire_nbd::{Action, Answer, Client, Config, ConnectionId, Event, Failure, Order, OrderId};
use sanwire_store::{Access, Allocation, Completer, Completion, ErrorKind, Outcome, Request, StoreError};

use super::Address;

/// Receptions from one connection before others have their turn.
const RECEPTIONS_MAX: usize = 16;

/// Requests on their way to the thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Mail {
    requests: VecDeque<(Request, Completer)>,
    is_closed: bool,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Mailbox { mail: Mutex::default(), waker: Waker::new()? })
    }

    /// Hands over a request. Those who start requests bound their number: each is a command under way.
    pub(super) fn put(&self, request: Request, completer: Completer) {
        self.lock().requests.push_back((request, completer));
        self.waker.wake();
    }

    /// The store is not used any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        // Nothing panics while it is locked.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Socket {
    stream: Stream,
    is_connected: bool,
    interest: Interest,
}

/// What the end of an order must know.
#[derive(Debug)]
struct Waiting {
    completer: Completer,
    offset_bytes: u64,
    access: Access,
}

pub(super) struct Driver {
    client: Client,
    address: Address,
    /// Where the connections of now went.
    known: Option<SocketAddr>,
    mailbox: Arc<Mailbox>,
    /// Who opens the store, until it is.
    opener: Option<Sender<Event>>,
    sockets: BTreeMap<ConnectionId, Socket>,
    waiting: BTreeMap<OrderId, Waiting>,
    clock: Clock,
    poller: Poller,
}

impl Driver {
    pub(super) fn new(config: Config, address: Address, mailbox: Arc<Mailbox>, opener: Sender<Event>) -> Self {
        let clock = Clock::new();
        Driver {
            client: Client::new(config, clock.now()),
            address,
            known: None,
            mailbox,
            opener: Some(opener),
            sockets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            clock,
            poller: Poller::new(),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let is_closed = self.take_mail();
            if is_closed {
                self.client.disconnect();
            }
            self.drain();
            if is_closed {
                // What still waits is told that its store is gone when the completers go.
                return;
            }
            let waited = self.poller.wait(&[], &[], Some(&self.mailbox.waker), self.client.poll_timeout(), &self.clock);
            if let Err(error) = waited {
                tracing::error!("NBD server {}: {error}: its volume is given up", self.address);
                return;
            }
            self.look_at_sockets();
            let now = self.clock.now();
            if self.client.poll_timeout().is_some_and(|at| at <= now) {
                self.client.handle_timeout(now);
            }
        }
    }

    /// Takes requests over; gives whether the store is not used any more.
    fn take_mail(&mut self) -> bool {
        let (requests, is_closed) = {
            let mut mail = self.mailbox.lock();
            (std::mem::take(&mut mail.requests), mail.is_closed)
        };
        let now = self.clock.now();
        for (request, completer) in requests {
            let (offset_bytes, _) = request.range_bytes();
            let access = match request {
                Request::Read { .. } | Request::Allocation { .. } => Access::Read,
                _ => Access::Write,
            };
            let id = self.client.order(order(request), now);
            self.waiting.insert(id, Waiting { completer, offset_bytes, access });
        }
        is_closed
    }

    /// Does what the client wants until it wants nothing more.
    fn drain(&mut self) {
        loop {
            while let Some(event) = self.client.poll_event() {
                self.handle(event);
            }
            let Some(action) = self.client.poll_action() else { break };
            match action {
                Action::Connect(id) => self.connect(id),
                Action::Close(id) => drop(self.sockets.remove(&id)),
            }
        }
        let ids: Vec<ConnectionId> = self.sockets.keys().copied().collect();
        let failed: Vec<_> =
            ids.into_iter().filter_map(|id| self.transmit(id).err().map(|error| (id, error))).collect();
        if !failed.is_empty() {
            failed.into_iter().for_each(|(id, error)| self.lose(id, &error.to_string()));
            self.drain();
        }
    }

    fn handle(&mut self, event: Event) {
        let address = &self.address;
        match event {
            Event::Completed { id, result } => {
                if let Some(waiting) = self.waiting.remove(&id) {
                    let completion = completion(result, &waiting);
                    waiting.completer.complete(completion);
                }
                return;
            }
            Event::Lost { ref reason } => {
                tracing::warn!("NBD server {address}: {reason}; reconnecting");
                self.known = None;
            }
            Event::Restored { given_again } => {
                tracing::info!("NBD server {address}: reconnected; {given_again} answered writes are given again");
            }
            Event::AttemptFailed { ref reason } => {
                self.known = None;
                tracing::debug!("NBD server {address}: {reason}");
            }
            Event::Opened(_) => {}
        }
        if let Some(opener) = self.opener.take() {
            // Who does not wait any more has closed the mailbox as well.
            let _ = opener.send(event);
        }
    }

    fn connect(&mut self, id: ConnectionId) {
        let connected = self.address.connect(self.known).and_then(|(stream, known)| {
            let interest = Interest { readable: true, writable: true };
            self.poller.add_stream(&stream, id.0, interest)?;
            self.known = known;
            Ok(Socket { stream, is_connected: false, interest })
        });
        match connected {
            Ok(socket) => drop(self.sockets.insert(id, socket)),
            Err(error) => self.client.lost(id, &error.to_string(), self.clock.now()),
        }
    }

    fn transmit(&mut self, id: ConnectionId) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(&id).filter(|socket| socket.is_connected) else { return Ok(()) };
        loop {
            let mut has_queued = false;
            while socket.stream.has_room()
                && let Some(packet) = self.client.poll_transmit(id)
            {
                has_queued |= socket.stream.queue(packet).is_ok();
            }
            socket.stream.flush()?;
            if !has_queued || socket.stream.wants_write() {
                break;
            }
        }
        let interest = Interest { readable: true, writable: socket.stream.wants_write() };
        if interest != socket.interest {
            socket.interest = interest;
            self.poller.change_stream(&socket.stream, id.0, interest)?;
        }
        Ok(())
    }

    fn look_at_sockets(&mut self) {
        let mut ready = Vec::new();
        if let Err(error) = self.poller.poll_streams(&mut |key, interest| ready.push((ConnectionId(key), interest))) {
            tracing::error!("NBD server {}: {error}", self.address);
        }
        for (id, interest) in ready {
            if let Err(error) = self.look_at(id, interest) {
                self.lose(id, &error.to_string());
            }
        }
    }

    fn look_at(&mut self, id: ConnectionId, interest: Interest) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
        if !socket.is_connected {
            socket.is_connected = matches!(self.address, Address::Path(_)) || socket.stream.is_connected()?;
            if !socket.is_connected {
                return Ok(());
            }
            self.client.connected(id);
        }
        if !interest.readable {
            return Ok(());
        }
        for _ in 0..RECEPTIONS_MAX {
            // What was received may have ended it.
            let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
            match socket.stream.receive(self.client.spaces(id))? {
                Received::Bytes(count) => self.client.filled(id, count, self.clock.now()),
                Received::Nothing => return Ok(()),
                Received::End => return Err(io::Error::other("the server has closed the connection")),
            }
        }
        Ok(())
    }

    fn lose(&mut self, id: ConnectionId, reason: &str) {
        self.sockets.remove(&id);
        self.client.lost(id, reason, self.clock.now());
    }
}

fn order(request: Request) -> Order {
    match request {
        Request::Read { offset_bytes, buffer } => Order::Read { offset_bytes, frame: buffer },
        Request::Write { offset_bytes, data } => Order::Write { offset_bytes, data },
        Request::Flush => Order::Flush,
        Request::Discard { offset_bytes, length_bytes } => {
            Order::Zero { offset_bytes, length_bytes, keeps_space: false }
        }
        Request::WriteZeroes { offset_bytes, length_bytes } => {
            Order::Zero { offset_bytes, length_bytes, keeps_space: true }
        }
        Request::Allocation { offset_bytes, length_bytes } => Order::Extent { offset_bytes, length_bytes },
    }
}

fn completion(result: Result<Answer, Failure>, waiting: &Waiting) -> Completion {
    match result {
        Ok(Answer::Read(frame)) => Ok(Outcome::Read(frame)),
        Ok(Answer::Extent(extent)) => {
            let (is_mapped, length_bytes) = (!extent.is_hole, extent.length_bytes);
            Ok(Outcome::Allocated(Allocation { is_mapped, length_bytes }))
        }
        Ok(Answer::Done) => Ok(Outcome::Done),
        Err(failure) => {
            let (kind, place) = match &failure {
                // The numbers are those of Linux.
                Failure::Server { errno, offset_bytes, .. } => {
                    let source = io::Error::from_raw_os_error(i32::try_from(*errno).unwrap_or(0));
                    (StoreError::from_io(waiting.access, 0, source).kind, *offset_bytes)
                }
                Failure::Gone { .. } => (ErrorKind::Gone, None),
            };
            let offset_bytes = place.unwrap_or(waiting.offset_bytes);
            Err(StoreError { kind, offset_bytes, source: Some(io::Error::other(failure)) })
        }
    }
}
