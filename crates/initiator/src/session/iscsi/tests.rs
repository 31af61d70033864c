use std::io::Write;
use std::net::TcpListener;

use sanwire_buffer::{Frame, Head, Packet};

use super::*;
use crate::options::ClientOptions;
use crate::url::IscsiServer;

/// A target that has frozen, say.
#[test]
fn a_connection_to_be_closed_is_not_read_and_does_not_stay_for_a_target_that_does_not_read() {
    let target = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = target.local_addr().expect("an address");
    let server = IscsiServer { user: None, host: to.ip().to_string(), port: to.port(), is_iser: false, target: None };
    let config = ClientOptions::anonymous().and_then(|options| options.iscsi(&server, None)).expect("options");
    let now = Clock::new().now();
    let mut session = Iscsi::new(config, false, None, now);
    let connection = ConnectionId(u64::MAX);
    let mut socket = session.connect(to, connection).expect("a connection");
    let (mut other, _) = target.accept().expect("a connection");
    while !socket.stream.is_connected().expect("a connection") {}
    let payload = Frame::from(vec![0; 1 << 20]).freeze();
    let mut unsent_bytes = None;
    while unsent_bytes != Some(socket.stream.unsent_bytes()) {
        unsent_bytes = Some(socket.stream.unsent_bytes());
        while socket.stream.has_room() {
            let packet = Packet::new(Head::new(), Some(payload.clone()));
            socket.stream.queue(packet).expect("room");
        }
        socket.stream.flush().expect("a connection");
    }
    other.write_all(b"more").expect("room");
    let until = now + CLOSE_TIMEOUT;
    socket.stage = Stage::Closing { until };
    session.sockets.insert(connection, socket);
    session.wait(&Waker::new().expect("an event descriptor"), Some(now)).expect("no wait");
    assert!(!session.sockets[&connection].watched.readable, "what came would end every wait");
    session.transmit(now);
    assert!(session.sockets.contains_key(&connection) && session.poll_timeout().is_some_and(|at| at <= until));
    session.transmit(until);
    assert!(!session.sockets.contains_key(&connection));
}
