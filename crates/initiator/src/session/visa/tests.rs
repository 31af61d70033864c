//! What a client says of a server that it does not reach.

use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Instant;

use super::*;

/// What is told when nobody has answered at this port of this host.
fn said_of(port: u16) -> String {
    let (clock, waker) = (Clock::new(), Waker::new().unwrap());
    let options = ClientOptions { connect_patience: Duration::from_millis(300), ..ClientOptions::anonymous().unwrap() };
    let server = VisaServer { host: Ipv4Addr::LOCALHOST.to_string(), port, is_stream: true };
    let mut session = Visa::open(&server, &options, &waker, clock.now()).unwrap();
    loop {
        let now = clock.now();
        session.handle_timeout(now);
        session.receive(now);
        session.transmit(now);
        match session.poll_event() {
            Some(Event::GivenUp(Failure::NoAnswer(text))) => return text,
            Some(_) => panic!("there is no server"),
            None => session.wait(&waker, session.poll_timeout()).unwrap(),
        }
    }
}

/// The same, asked again until it begins so: while a thread is halted, the client gives up before it knows why.
fn said_in_the_end_of(port: u16, beginning: &str) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let text = said_of(port);
        if text.starts_with(beginning) || Instant::now() > until {
            return text;
        }
    }
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn who_is_turned_away_over_tcp_hears_so() {
    let (listener, port) = listener();
    // Each connection is closed, as by a server that does not allow the client; until the test ends.
    thread::spawn(move || listener.incoming().for_each(drop));
    let beginning = format!("127.0.0.1:{port} closes the connection");
    let text = said_in_the_end_of(port, &beginning);
    assert!(text.starts_with(&beginning), "{text}");
}

#[test]
fn who_finds_nobody_at_a_port_of_tcp_hears_so_and_what_to_look_at() {
    let (_, port) = listener();
    let beginning = format!("127.0.0.1:{port}: ");
    let text = said_in_the_end_of(port, &beginning);
    assert!(text.starts_with(&beginning) && text.contains("refused"), "{text}");
    assert!(text.contains("`sanwire id` prints the id"), "{text}");
}
