//! Where a sought server is by now: its name is asked for again, beside the search at the places that are known.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use sanwire_io::Waker;

use crate::resolve::{self, Service};

/// A host's name, and who knows its addresses. Name servers may take their time, so they are asked on a thread of its own.
pub(crate) struct Lookup {
    host: String,
    port: u16,
    service: Service,
    name_servers: Vec<SocketAddr>,
    answer: Option<Receiver<Vec<SocketAddr>>>,
    /// Whom the answer wakes.
    waker: Option<Waker>,
}

impl Lookup {
    fn new(host: &str, port: u16, service: Service, name_servers: &[SocketAddr]) -> Self {
        Lookup { host: host.to_owned(), port, service, name_servers: name_servers.to_vec(), answer: None, waker: None }
    }

    /// The lookup for a host that is known by a name; none for an address.
    pub(crate) fn of(host: &str, port: u16, service: Service, name_servers: &[SocketAddr]) -> Option<Self> {
        let is_name = host.parse::<IpAddr>().is_err();
        is_name.then(|| Lookup::new(host, port, service, name_servers))
    }

    /// Wakes the one who polls when there is an answer.
    pub(crate) fn waking(self, waker: Waker) -> Self {
        Lookup { waker: Some(waker), ..self }
    }

    /// The server is there: an answer that is still to come is an old one at the next outage.
    pub(crate) fn forget(&mut self) {
        self.answer = None;
    }

    /// Asks, unless an answer is awaited.
    pub(crate) fn start(&mut self) {
        if self.answer.is_some() {
            return;
        }
        let (host, port, service) = (self.host.clone(), self.port, self.service);
        let (name_servers, waker) = (self.name_servers.clone(), self.waker.clone());
        let (sender, receiver) = channel();
        let ask = move || match resolve::addresses(&host, port, service, &name_servers) {
            // Nobody waits any more when the server was found in another way.
            Ok(addresses) => {
                drop(sender.send(addresses));
                waker.iter().for_each(Waker::wake);
            }
            Err(error) => tracing::debug!("the addresses of {host} cannot be looked up again: {error}"),
        };
        // Without a thread the known places are sought on, and the next look comes soon.
        self.answer = thread::Builder::new().name("lookup".into()).spawn(ask).is_ok().then_some(receiver);
    }

    /// The addresses, once they are there.
    pub(crate) fn poll(&mut self) -> Option<Vec<SocketAddr>> {
        let result = self.answer.as_ref()?.try_recv();
        if result != Err(std::sync::mpsc::TryRecvError::Empty) {
            self.answer = None;
        }
        result.ok()
    }
}

#[cfg(test)]
mod tests {
    use sanwire_io::{Clock, Poller};

    use super::*;

    #[test]
    fn an_answer_wakes_the_one_who_polls() {
        let waker = Waker::new().expect("an event descriptor");
        let mut lookup = Lookup::new("localhost", 3260, crate::session::table::ISCSI, &[]).waking(waker.clone());
        lookup.start();
        // Nothing else ends this wait.
        Poller::new().wait(&[], &[], Some(&waker), None, &Clock::new()).expect("an answer");
        assert!(lookup.poll().is_some_and(|addresses| addresses.iter().all(|address| address.ip().is_loopback())));
    }
}
