//! One end of a connection.

mod progress;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_iser::{Counts, QueuePair};
use sanwire_iwarp::{Closed, Event, Memory, Order, Refusal, Refused, Registration, Stag, Terms, WorkId};

use crate::adapter::{Adapter, Capabilities};
use crate::domain::{Domains, Members};
use crate::endpoint::{Endpoint, Told};
use crate::errand::Errand;
use crate::error::Error;
use crate::manager::{Depths, Manager, Notice};
use crate::options::ConnectOptions;
use crate::readiness::{Readiness, Source};

/// One end of a reliable connection of an RDMA adapter, which a [`crate::Connector`] or a [`crate::Listener`] gives: see the [crate].
///
/// Its descriptor is readable whenever [`QueuePair::poll_event`] may have something to tell, but for what is there from the beginning:
/// so it is asked once after it was made.
pub struct Connection {
    // Dropped in this order: the queue pair and all else of the adapter, then the identifier that keeps the adapter open.
    endpoint: Option<Endpoint>,
    manager: Arc<Manager>,
    readiness: Readiness,
    phase: Phase,
    events: VecDeque<Event>,
    /// What an adapter has told, on its way into the events.
    told: Vec<Told>,
    capabilities: Option<Capabilities>,
    options: ConnectOptions,
    /// Messages that may come, and the longest of them.
    expected: (usize, usize),
    /// RDMA Reads of this end at a time, as both ends have agreed.
    reads_max: u16,
    /// The most data of a packet, once it is established.
    path_mtu_bytes: Option<u32>,
    peer: SocketAddr,
    origin: Origin,
    /// Those of the listener, or of the connector.
    domains: Arc<Domains>,
    /// The other end is being asked by a call that may block. It uses the queue pair and the identifier.
    errand: Option<Errand<(Option<Endpoint>, Arc<Manager>)>>,
    trouble: Option<String>,
}

/// How it has come about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// This end connects.
    Connects,
    /// It was connected to.
    Accepts,
}

enum Phase {
    /// Which adapter leads there?
    Resolving,
    /// By which way?
    Routing,
    /// The other end was asked.
    Connecting,
    /// The owner of this end is asked.
    Requested(Depths),
    /// The other end is told that it is taken.
    Accepting(Terms),
    Established,
    /// What was ordered is sent, then it ends so.
    Ending(Closed),
    Closed,
}

impl Connection {
    /// As [`crate::Connector::connect`].
    pub(crate) fn connect(
        peer: SocketAddr,
        domains: Arc<Domains>,
        options: ConnectOptions,
    ) -> Result<Connection, Error> {
        let connection = Connection::new(Manager::new()?, peer, (Origin::Connects, domains), options)?;
        connection.manager.resolve_address(peer)?;
        Ok(connection)
    }

    /// The end of a request that has come to a listener.
    pub(crate) fn requested(
        (manager, notice): (Manager, Notice),
        domains: Arc<Domains>,
        options: ConnectOptions,
    ) -> Result<Connection, Error> {
        let peer = manager.peer_address();
        let peer = peer.ok_or_else(|| Error::number("a request has no address", libc::EAFNOSUPPORT))?;
        let mut connection = Connection::new(manager, peer, (Origin::Accepts, domains), options)?;
        connection.take_request(notice)?;
        Ok(connection)
    }

    fn new(
        manager: Manager,
        peer: SocketAddr,
        (origin, domains): (Origin, Arc<Domains>),
        options: ConnectOptions,
    ) -> Result<Connection, Error> {
        let readiness = Readiness::new()?;
        readiness.add(manager.descriptor(), Source::Manager)?;
        Ok(Connection {
            endpoint: None,
            manager: Arc::new(manager),
            readiness,
            phase: Phase::Resolving,
            events: VecDeque::new(),
            told: Vec::new(),
            capabilities: None,
            options,
            expected: (0, 0),
            reads_max: 0,
            path_mtu_bytes: None,
            peer,
            origin,
            domains,
            errand: None,
            trouble: None,
        })
    }

    /// The address of the other end.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// The address of this end, once it is known.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.manager.local_address()
    }

    /// The adapter, once it is known.
    #[must_use]
    pub fn adapter(&self) -> Option<&Adapter> {
        self.capabilities.as_ref().map(|known| &known.adapter)
    }

    /// An order or a read was not taken. What is not taken for good never will be: then nothing more is done here, since the adapter need
    /// not tell of what it has not taken, and it is said why.
    fn take_refusal(&mut self, refusal: Refusal) {
        if refusal != Refusal::NotConnected || !matches!(self.phase, Phase::Established) {
            return;
        }
        if let Some(reason) = self.endpoint.as_ref().and_then(Endpoint::failure).map(Error::to_string) {
            self.blame(reason);
        }
        self.finish(Closed::Lost);
    }

    /// What is to be done at the adapter, if it can be.
    fn established(&mut self) -> Option<&mut Endpoint> {
        self.endpoint.as_mut().filter(|_| matches!(self.phase, Phase::Established))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(errand) = self.errand.take() {
            // To destroy them here would wait for the call. Dropped in the same order as here.
            errand.leave((self.endpoint.take(), Arc::clone(&self.manager)));
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl QueuePair for Connection {
    fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if !self.step() && self.events.is_empty() {
                return None;
            }
        }
    }

    fn accept(&mut self, private_data: &[u8]) -> Result<(), Refusal> {
        let Phase::Requested(proposed) = self.phase else { return Err(Refusal::NotConnected) };
        self.admit(proposed, private_data).map_err(|error| {
            self.blame(error.to_string());
            self.finish(Closed::Lost);
            Refusal::NotConnected
        })
    }

    fn reject(&mut self, private_data: &[u8]) -> Result<(), Refusal> {
        let Phase::Requested(_) = self.phase else { return Err(Refusal::NotConnected) };
        let rejected = self.manager.reject(private_data);
        self.finish(Closed::Refused);
        rejected.map_err(|_| Refusal::NotConnected)
    }

    fn order(&mut self, order: Order, id: Option<WorkId>) -> Result<(), Refused<Order>> {
        let ordered = match self.established() {
            Some(endpoint) => endpoint.order(&order, id),
            None => Err(Refusal::NotConnected),
        };
        ordered.map_err(|refusal| {
            self.take_refusal(refusal);
            Refused { refusal, given: order }
        })
    }

    fn read(
        &mut self,
        id: WorkId,
        frame: Frame,
        part: Range<usize>,
        source: Stag,
        source_offset: u64,
    ) -> Result<(), Refused<Frame>> {
        let reads_max = usize::from(self.reads_max);
        let begun = match self.established() {
            Some(endpoint) => endpoint.read(id, frame, part, (source, source_offset), reads_max),
            None => Err(Refused { refusal: Refusal::NotConnected, given: frame }),
        };
        begun.inspect_err(|refused| self.take_refusal(refused.refusal))
    }

    fn limit_reads(&mut self, at_a_time: u16) {
        self.reads_max = self.reads_max.min(at_a_time);
    }

    fn register(&mut self, registration: Registration) -> Result<(Stag, u64), Refused<Registration>> {
        let Some(endpoint) = self.established() else {
            return Err(Refused { refusal: Refusal::NotConnected, given: registration });
        };
        let registered = endpoint.register(registration);
        // No other window will leave room for it.
        let is_full = matches!(&registered, Err(refused) if refused.refusal == Refusal::Full);
        let is_hopeless = is_full && endpoint.windows().len() == 0;
        let failure = endpoint.windows().failure().filter(|_| is_hopeless).map(Error::to_string);
        if let Some(reason) = failure {
            self.blame(reason);
        }
        registered
    }

    fn deregister(&mut self, stag: Stag) -> Option<Memory> {
        self.endpoint.as_mut()?.deregister(stag)
    }

    fn expect_messages(&mut self, count: usize, longest_bytes: usize) {
        self.expected = (count, longest_bytes);
        if matches!(self.phase, Phase::Closed | Phase::Ending(_)) {
            return;
        }
        if let Some(Err(error)) = self.endpoint.as_mut().map(|endpoint| endpoint.expect(count, longest_bytes)) {
            self.blame(error.to_string());
            self.finish(Closed::Lost);
        }
    }

    fn disconnect(&mut self) {
        let is_all_sent = self.endpoint.as_ref().is_none_or(Endpoint::is_all_sent);
        match self.phase {
            Phase::Ending(_) | Phase::Closed => {}
            Phase::Established if !is_all_sent => self.phase = Phase::Ending(Closed::ByUs),
            _ => self.finish(Closed::ByUs),
        }
    }

    fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    fn invalidates(&self) -> bool {
        self.capabilities.as_ref().is_some_and(|known| match self.origin {
            Origin::Connects => known.opens_windows(self.options.opening),
            Origin::Accepts => known.sends_invalidations,
        })
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    fn adapter(&self) -> Option<String> {
        let Adapter { name, transport } = Connection::adapter(self)?;
        let way = match &self.endpoint {
            Some(endpoint) if endpoint.members() == Members::ByWindows => ", memory windows",
            Some(endpoint) if endpoint.shares_receives() => ", shared receives",
            _ => "",
        };
        Some(format!("{name} ({transport}{way})"))
    }

    fn counts(&self) -> Counts {
        let Some(endpoint) = &self.endpoint else { return Counts::default() };
        let (windows, reads) = (endpoint.windows(), endpoint.reads());
        Counts {
            moved_bytes: reads.read_bytes(),
            copied_bytes: reads.copied_bytes(),
            registered: windows.len() as u64,
            registered_ever: windows.registered_ever(),
            receives: endpoint.receives().posted() as u64,
            segment_bytes: self.path_mtu_bytes,
        }
    }
}
