//! How a connection comes about, and how it ends.

use std::io;
use std::sync::Arc;

use sanwire_iser::wire::SetUp;
use sanwire_iwarp::{Closed, Event, Request, Terms};

use super::{Connection, Origin, Phase};
use crate::adapter::Capabilities;
use crate::domain::Members;
use crate::endpoint::{Breakage, Endpoint, Told};
use crate::errand::Errand;
use crate::error::Error;
use crate::ffi::{
    EVENT_ADDRESS_ERROR, EVENT_ADDRESS_RESOLVED, EVENT_CONNECT_ERROR, EVENT_DEVICE_REMOVAL, EVENT_DISCONNECTED,
    EVENT_ESTABLISHED, EVENT_REJECTED, EVENT_ROUTE_ERROR, EVENT_ROUTE_RESOLVED, EVENT_UNREACHABLE,
};
use crate::manager::{Depths, Notice};

/// Why InfiniBand refuses where nobody listens (IBA 12.6.7.2: invalid service ID).
const REJECTED_NOBODY: i32 = 8;

/// Why it refuses where somebody listens who does not want to.
const REJECTED_BY_OWNER: i32 = 28;

/// RDMA Reads that an initiator of iSER has under way: none. An adapter may insist on one.
const READS_OF_INITIATOR: u8 = 1;

impl Connection {
    /// Does one of the things that are to be done; `false` when there is none, and the descriptor tells of the next one.
    pub(super) fn step(&mut self) -> bool {
        if matches!(self.phase, Phase::Closed) {
            self.quieten();
            return false;
        }
        if self.take_completions() {
            return true;
        }
        let ready = self.readiness.ask();
        if let Some(endpoint) = self.endpoint.as_mut().filter(|_| ready.completions) {
            endpoint.take_notice();
        }
        if ready.errand && self.end_errand() {
            return true;
        }
        if ready.manager {
            match self.manager.next() {
                Ok(Some(notice)) => {
                    self.take_notice(notice);
                    return true;
                }
                Ok(None) => {}
                Err(error) => return self.give_up(error),
            }
        }
        match self.endpoint.as_mut().map(Endpoint::arm) {
            Some(Ok(was_armed_now)) => was_armed_now,
            Some(Err(error)) => self.give_up(error),
            None => false,
        }
    }

    /// Nothing follows: whatever there still is to tell is not waited for.
    fn quieten(&mut self) {
        let ready = self.readiness.ask();
        if let Some(endpoint) = self.endpoint.as_mut().filter(|_| ready.completions) {
            endpoint.take_notice();
        }
        if ready.errand {
            self.end_errand();
        }
        if ready.manager {
            while let Ok(Some(_)) = self.manager.next() {}
        }
    }

    /// Takes what has come of the call by which the other end is asked, if it is over.
    fn end_errand(&mut self) -> bool {
        let Some(result) = self.errand.as_mut().and_then(Errand::result) else { return false };
        self.errand = None;
        self.note_requested(result);
        true
    }

    fn give_up(&mut self, error: Error) -> bool {
        self.blame(error.to_string());
        self.finish(Closed::Lost);
        true
    }

    /// The first reason counts.
    pub(super) fn blame(&mut self, reason: String) {
        self.trouble.get_or_insert(reason);
    }

    /// `false` when there were none.
    fn take_completions(&mut self) -> bool {
        let Some(endpoint) = &mut self.endpoint else { return false };
        let mut told = std::mem::take(&mut self.told);
        let has_some = endpoint.poll(|one| told.push(one)) || !told.is_empty();
        for one in told.drain(..) {
            match one {
                Told::Event(event) => self.take_event(event),
                Told::Broken(breakage) => self.break_off(breakage),
            }
        }
        self.told = told;
        let is_all_sent = self.endpoint.as_ref().is_some_and(Endpoint::is_all_sent);
        if let Phase::Ending(closed) = self.phase
            && is_all_sent
        {
            self.finish(closed);
        }
        has_some || self.end_flushed()
    }

    /// Ends an established connection whose queue pair has stopped, once all is told that was before: `false` when there is none. Nobody
    /// else may tell of it: an other end that has broken a rule is no cause for the connection manager, and need not leave.
    fn end_flushed(&mut self) -> bool {
        let is_over =
            matches!(self.phase, Phase::Established) && self.endpoint.as_ref().is_some_and(Endpoint::is_flushed);
        if is_over {
            self.finish(Closed::ByPeer);
        }
        is_over
    }

    fn take_event(&mut self, event: Event) {
        match (&self.phase, &event) {
            // The message may be there before the manager tells that the initiator is (IBA 12.9.7.2).
            (Phase::Accepting(terms), Event::Message(_)) => {
                let terms = terms.clone();
                self.establish(terms);
            }
            // What arrives at an end that leaves is not looked at.
            (Phase::Ending(_), Event::Message(_) | Event::ReadDone { .. }) | (Phase::Closed, _) => return,
            _ => {}
        }
        self.events.push_back(event);
    }

    fn break_off(&mut self, Breakage { ended, reason }: Breakage) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        self.blame(reason);
        let closed = match ended {
            Some(ended) => {
                self.events.push_back(Event::Terminated(ended));
                Closed::Terminated
            }
            None => Closed::Lost,
        };
        self.finish(closed);
    }

    fn establish(&mut self, terms: Terms) {
        self.reads_max = terms.ord;
        self.path_mtu_bytes = self.endpoint.as_ref().and_then(Endpoint::path_mtu_bytes);
        self.phase = Phase::Established;
        self.events.push_back(Event::Connected(terms));
    }

    /// Ends the connection now.
    pub(super) fn finish(&mut self, closed: Closed) {
        match self.phase {
            Phase::Closed => return,
            Phase::Accepting(_) | Phase::Established | Phase::Ending(_) => self.manager.disconnect(),
            Phase::Resolving | Phase::Routing | Phase::Connecting | Phase::Requested(_) => {}
        }
        self.phase = Phase::Closed;
        self.events.push_back(Event::Closed(closed));
    }

    fn take_notice(&mut self, notice: Notice) {
        let peer = self.peer;
        match (notice.kind, &self.phase) {
            (EVENT_ADDRESS_RESOLVED, Phase::Resolving) => self.find_route(),
            (EVENT_ROUTE_RESOLVED, Phase::Routing) => self.request(),
            (EVENT_ADDRESS_ERROR, Phase::Resolving) => {
                self.miss(format!("no RDMA adapter here leads to {}: {}", peer.ip(), of_status(notice.status)));
            }
            (EVENT_ROUTE_ERROR, Phase::Routing) => {
                self.miss(format!("no way of RDMA leads to {}: {}", peer.ip(), of_status(notice.status)));
            }
            (EVENT_UNREACHABLE | EVENT_CONNECT_ERROR, Phase::Connecting) => {
                self.miss(format!("{peer} is not reached by RDMA: {}", of_status(notice.status)));
            }
            (EVENT_REJECTED, Phase::Connecting) => self.take_rejection(&notice),
            (EVENT_ESTABLISHED, Phase::Connecting) => {
                let given = notice.initiator_depth.min(READS_OF_INITIATOR);
                let depths = Depths { served: notice.responder_resources, given };
                self.establish(terms(depths, notice.private_data));
            }
            (EVENT_ESTABLISHED, Phase::Accepting(terms)) => {
                let terms = terms.clone();
                self.establish(terms);
            }
            (EVENT_DEVICE_REMOVAL, _) => self.miss("the RDMA adapter is gone".to_owned()),
            // What the other end had said before that has arrived.
            (EVENT_DISCONNECTED, Phase::Accepting(_) | Phase::Established | Phase::Ending(_)) => {
                while !matches!(self.phase, Phase::Closed) && self.take_completions() {}
                let closed = if let Phase::Ending(closed) = self.phase { closed } else { Closed::ByPeer };
                self.finish(closed);
            }
            // An initiator that has gone before it had an answer, or whose last word has not come.
            (EVENT_REJECTED | EVENT_UNREACHABLE | EVENT_CONNECT_ERROR | EVENT_DISCONNECTED, _) => {
                self.finish(Closed::Lost);
            }
            _ => {}
        }
    }

    /// There will be no connection.
    fn miss(&mut self, reason: String) {
        self.blame(reason);
        self.finish(Closed::Lost);
    }

    fn find_route(&mut self) {
        self.phase = Phase::Routing;
        if let Err(error) = self.manager.resolve_route() {
            self.give_up(error);
        }
    }

    /// The adapter is found: takes from it what a connection needs, and asks for one.
    fn request(&mut self) {
        let requested = self.meet_adapter().and_then(|()| self.take_endpoint()).and_then(|()| self.ask_peer());
        self.phase = Phase::Connecting;
        self.note_requested(requested);
    }

    fn ask_peer(&mut self) -> Result<(), Error> {
        let lacks_invalidation = !sanwire_iser::QueuePair::invalidates(self);
        let private_data = SetUp { has_addresses: true, lacks_invalidation }.write();
        let served = self.capabilities.as_ref().map_or(0, |known| known.reads_served_max);
        let depths = Depths { served: served.min(self.options.reads_max), given: READS_OF_INITIATOR };
        if !self.capabilities.as_ref().is_some_and(Capabilities::is_iwarp) {
            return self.manager.connect(&private_data, depths);
        }
        // siw connects by TCP before the call returns.
        let manager = Arc::clone(&self.manager);
        self.errand = Some(Errand::begin(move || manager.connect(&private_data, depths), &self.readiness)?);
        Ok(())
    }

    /// The other end was asked, or cannot be.
    fn note_requested(&mut self, requested: Result<(), Error>) {
        match requested {
            Err(error) if matches!(self.phase, Phase::Connecting) => {
                if error.kind() == Some(io::ErrorKind::ConnectionRefused) {
                    return self.find_nobody();
                }
                self.give_up(error);
            }
            _ => {}
        }
    }

    fn find_nobody(&mut self) {
        self.blame(format!("nobody at {} takes connections by RDMA", self.peer));
        self.finish(Closed::Refused);
    }

    fn take_rejection(&mut self, notice: &Notice) {
        let peer = self.peer;
        match notice.status.abs() {
            REJECTED_NOBODY | libc::ECONNREFUSED => return self.find_nobody(),
            REJECTED_BY_OWNER | libc::ECONNRESET => {
                self.blame(format!("{peer} refuses the connection by RDMA"));
                self.events.push_back(Event::Rejected(notice.private_data.clone()));
            }
            status => self.blame(format!("{peer} takes no connection by RDMA (reason {status})")),
        }
        self.finish(Closed::Refused);
    }

    /// An initiator wants in.
    pub(super) fn take_request(&mut self, notice: Notice) -> Result<(), Error> {
        self.meet_adapter()?;
        let depths = Depths { served: notice.responder_resources, given: notice.initiator_depth };
        self.phase = Phase::Requested(depths);
        self.events.push_back(Event::Requested(Request {
            private_data: notice.private_data,
            ird: Some(depths.given.into()),
            ord: Some(depths.served.into()),
            is_peer_to_peer: false,
        }));
        Ok(())
    }

    /// Takes the initiator: with no more reads than it proposes and the adapter can do.
    pub(super) fn admit(&mut self, proposed: Depths, private_data: &[u8]) -> Result<(), Error> {
        self.take_endpoint()?;
        let most = self.capabilities.as_ref().map_or(Depths { served: 0, given: 0 }, |known| Depths {
            served: known.reads_served_max,
            given: known.reads_given_max,
        });
        let bounded = |proposed: u8, most: u8| proposed.min(most).min(self.options.reads_max);
        let depths =
            Depths { served: bounded(proposed.served, most.served), given: bounded(proposed.given, most.given) };
        self.manager.accept(private_data, depths)?;
        self.endpoint.iter().for_each(Endpoint::begin);
        self.phase = Phase::Accepting(terms(depths, Vec::new()));
        Ok(())
    }

    /// Asks the adapter that leads to the other end what it can do.
    fn meet_adapter(&mut self) -> Result<(), Error> {
        let context = self.manager.context();
        let context = context.ok_or_else(|| Error::number("no RDMA adapter leads there", libc::ENODEV))?;
        // SAFETY: it is the context of an identifier that lives.
        self.capabilities = Some(unsafe { Capabilities::query(context)? });
        Ok(())
    }

    /// Takes what it needs from the adapter. Receives are there before anything can come.
    fn take_endpoint(&mut self) -> Result<(), Error> {
        let (Some(context), Some(capabilities)) = (self.manager.context(), self.capabilities.clone()) else {
            return Ok(());
        };
        let members = match self.origin {
            Origin::Connects if capabilities.opens_windows(self.options.opening) => Members::ByWindows,
            // There the other end is told keys of what is read into.
            Origin::Accepts if !capabilities.is_iwarp() => Members::Accepted,
            Origin::Connects | Origin::Accepts => Members::One,
        };
        // SAFETY: the library keeps an adapter open as long as there are identifiers that have led to it. This connection has one, and
        // drops the endpoint before it, with all that it holds of the domain.
        let domain = unsafe { self.domains.of(context, capabilities, members)? };
        let (count, longest_bytes) = self.expected;
        let shared = self.domains.receives_of(&domain, longest_bytes);
        let mut endpoint = Endpoint::new(&self.manager, domain, shared, &self.readiness, &self.options)?;
        endpoint.expect(count, longest_bytes)?;
        self.endpoint = Some(endpoint);
        Ok(())
    }
}

fn terms(depths: Depths, private_data: Vec<u8>) -> Terms {
    Terms {
        revision: 0,
        crc: false,
        is_peer_to_peer: false,
        ird: depths.served.into(),
        ord: depths.given.into(),
        private_data,
    }
}

/// An error of the kernel, in its words.
fn of_status(status: i32) -> String {
    if status == 0 { "no answer".to_owned() } else { io::Error::from_raw_os_error(status.abs()).to_string() }
}
