use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::Duration;

use sanwire_store::CompletionQueue;

use super::super::address::Place;
use super::super::endings::{Claim, Sites};
use super::*;

fn config() -> Config {
    let (patience, linger) = (Duration::from_secs(60), Duration::from_secs(5));
    let connect_timeout = Duration::from_secs(20);
    Config { export: String::new(), connections: 1, connect_timeout, patience, linger, kept_max_bytes: 1 << 20 }
}

fn mailbox(address: &Address, places: &VecDeque<Place>) -> Arc<Mailbox> {
    let claim = Claim::begin(Sites::of(address, places), None, Duration::ZERO).unwrap();
    Arc::new(Mailbox::new(claim).unwrap())
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn a_server_is_found_at_any_of_the_addresses_of_its_name() {
    let (closed, (listener, open)) = (listener().1, listener());
    listener.set_nonblocking(true).unwrap();
    let address = Address::Host { host: "localhost".to_owned(), port: open.port() };
    let places = [closed, open].map(Place::Socket).into();
    let mailbox = mailbox(&address, &places);
    let (tell, told) = mpsc::channel();
    let mut driver = Driver::new(config(), address, Ways::to(places), mailbox, tell);
    let _accepted = loop {
        driver.drain();
        let until = Some(driver.clock.now() + Duration::from_millis(20));
        driver.poller.wait(&[], &[], None, until, &driver.clock).unwrap();
        driver.look_at_sockets();
        if let Ok(accepted) = listener.accept() {
            break accepted;
        }
        assert!(told.try_recv().is_err(), "it is given up");
    };
}

#[test]
fn what_is_asked_of_a_store_whose_thread_has_ended_ends_at_once() {
    let address = Address::Path("/nonexistent".into());
    let places = address.places().unwrap();
    let mailbox = mailbox(&address, &places);
    let (tell, _told) = mpsc::channel();
    let driver = Driver::new(config(), address, Ways::to(places), Arc::clone(&mailbox), tell);
    let queue = CompletionQueue::new(|| ());
    let ask = || mailbox.put(Request::Flush, queue.pend().1);
    ask();
    assert!(queue.take().is_empty());
    // As when it panics, or the poller fails.
    drop(driver);
    ask();
    let ended = queue.take();
    let is_gone = |end: &Completion| matches!(end, Err(error) if error.kind == ErrorKind::Gone);
    assert!(ended.len() == 2 && ended.iter().all(|(_, end)| is_gone(end)), "{ended:?}");
}
