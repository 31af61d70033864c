//! The thread between a store and its server: sockets for a client that has none.

mod places;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_io::tcp::Received;
use sanwire_io::{Clock, Interest, Poller};
use sanwire_nbd::{Action, Answer, Client, Config, ConnectionId, Event, Failure, Order, OrderId};
use sanwire_store::{
    Access, Allocation, Completer, Completion, ErrorKind, Outcome, RemoteRequest, Request, StoreError,
};

pub(super) use self::places::Ways;
use self::places::{Departed, Socket};
use super::Address;
use super::mailbox::{Mailbox, Reader};
use super::outage::Outage;

/// Receptions from one connection before others have their turn.
const RECEPTIONS_MAX: usize = 16;

/// How long the end of a store waits for the answers to writes that its server has received.
const REST_TIMEOUT: Duration = Duration::from_secs(60);

/// What the end of an order must know.
#[derive(Debug)]
struct Waiting {
    /// It is counted no more before its end is told.
    counted: RemoteRequest,
    completer: Completer,
    offset_bytes: u64,
    access: Access,
}

pub(super) struct Driver {
    client: Client,
    address: Address,
    /// For the log.
    export: String,
    ways: Ways,
    mailbox: Reader,
    /// Who opens the store, until it is.
    opener: Option<Sender<Event>>,
    sockets: BTreeMap<ConnectionId, Socket>,
    departed: Departed,
    waiting: BTreeMap<OrderId, Waiting>,
    outage: Outage,
    /// The store is not used any more.
    is_ending: bool,
    clock: Clock,
    poller: Poller,
}

impl Driver {
    pub(super) fn new(
        config: Config,
        address: Address,
        ways: Ways,
        mailbox: Arc<Mailbox>,
        opener: Sender<Event>,
    ) -> Self {
        let clock = Clock::new();
        Driver {
            departed: Departed::new(config.linger),
            export: config.export.clone(),
            client: Client::new(config, clock.now()),
            address,
            ways,
            mailbox: Reader(mailbox),
            opener: Some(opener),
            sockets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            outage: Outage::default(),
            is_ending: false,
            clock,
            poller: Poller::new(),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            if self.take_mail() {
                return self.end();
            }
            self.drain();
            let waker = &self.mailbox.0.waker;
            if let Err(error) = self.poller.wait(&[], &[], Some(waker), self.poll_timeout(), &self.clock) {
                tracing::error!("NBD server {}: {error}: its volume is given up", self.address);
                return self.end();
            }
            self.look_at_sockets();
            let now = self.clock.now();
            self.give_up_places(now);
            if self.client.poll_timeout().is_some_and(|at| at <= now) {
                self.client.handle_timeout(now);
            }
        }
    }

    /// The store is not used any more. Who waits is told that it is gone, and nothing more is sent; but what the server has received
    /// of writes cannot be called back, and another store there may be opened when that is over.
    fn end(mut self) {
        // Where the thread cannot go on, the store does not know that yet.
        self.mailbox.0.close();
        drop(self.mailbox.0.take());
        self.is_ending = true;
        self.waiting.clear();
        self.client.abandon();
        let until = self.clock.now() + REST_TIMEOUT;
        let is_at_work = !self.client.is_at_rest();
        if is_at_work {
            tracing::info!(
                "NBD server {}, export '{}': its volume is closed, and has unanswered writes there; they are waited for, up to {} s",
                self.address,
                self.export,
                REST_TIMEOUT.as_secs()
            );
        }
        loop {
            self.drain();
            let waker = &self.mailbox.0.waker;
            if self.client.is_at_rest()
                || self.clock.now() >= until
                || self.poller.wait(&[], &[], Some(waker), Some(until), &self.clock).is_err()
            {
                break;
            }
            self.look_at_sockets();
        }
        if self.client.is_at_rest() {
            self.client.disconnect();
        } else {
            let ids: Vec<ConnectionId> = self.sockets.keys().copied().collect();
            ids.into_iter().for_each(|id| self.lose(id, "its server does not answer"));
        }
        self.drain();
        let now = self.clock.now();
        if let Some(until) =
            self.client.may_be_at_work_until().filter(|until| *until > now && !self.departed.have_ended(now))
        {
            if is_at_work {
                tracing::warn!(
                    "NBD server {}, export '{}': it has not answered all writes of a volume that is closed, and may do them late: what they \
                     have changed is in doubt",
                    self.address,
                    self.export
                );
            }
            std::thread::sleep(until.saturating_since(now));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_places = self.sockets.values().filter_map(|socket| socket.until);
        self.client.poll_timeout().into_iter().chain(of_places).min()
    }

    /// Takes requests over; gives whether the store is not used any more: then they end.
    fn take_mail(&mut self) -> bool {
        let (requests, is_closed) = self.mailbox.0.take();
        if is_closed {
            return true;
        }
        let now = self.clock.now();
        for (counted, request, completer) in requests {
            let (offset_bytes, _) = request.range_bytes();
            let access = match request {
                Request::Read { .. } | Request::Allocation { .. } => Access::Read,
                _ => Access::Write,
            };
            let id = self.client.order(order(request), now);
            self.waiting.insert(id, Waiting { counted, completer, offset_bytes, access });
        }
        false
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
                Action::Close(id) => self.close(id),
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
        if let Event::Completed { id, result } = event {
            if let Some(waiting) = self.waiting.remove(&id) {
                let completion = completion(result, &waiting);
                drop(waiting.counted);
                waiting.completer.complete(completion);
            }
            return;
        }
        if let Event::Lost { .. } | Event::AttemptFailed { .. } = event {
            self.ways.is_known = false;
        }
        let outages = &self.mailbox.0.counter.outages;
        match &event {
            Event::Lost { .. } => outages.begin(),
            Event::Restored { .. } => outages.end(),
            _ => {}
        }
        match self.opener.take() {
            // Who does not wait any more has closed the mailbox as well.
            Some(opener) => drop(opener.send(event)),
            None if self.is_ending => {}
            None => self.outage.tell(&self.address, &event, self.clock.now()),
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
            match self.look_at(id, interest) {
                Ok(()) => {}
                Err(error) if self.is_on_its_way(id) => self.go_elsewhere(id, &error),
                Err(error) => self.lose(id, &error.to_string()),
            }
        }
    }

    fn look_at(&mut self, id: ConnectionId, interest: Interest) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
        if !socket.is_connected {
            if !socket.look_whether_connected()? {
                return Ok(());
            }
            self.ways.found(socket.place.clone());
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

    /// Closes a connection. What of it the kernel still has to send must not arrive when newer connections have gone on.
    fn close(&mut self, id: ConnectionId) {
        let Some(Socket { stream, process, is_connected, .. }) = self.sockets.remove(&id) else { return };
        stream.abort();
        if is_connected {
            self.departed.add(process);
        }
    }

    fn lose(&mut self, id: ConnectionId, reason: &str) {
        self.close(id);
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
