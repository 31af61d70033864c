use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use sanwire_buffer::{Frame, Head, Packet};
use sanwire_iscsi::wire::{Header, LoginRequest, LoginResponse, LogoutResponse, Opcode};

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
    let mut session = Iscsi::new(config, Way::Tcp, None, now);
    let connection = ConnectionId(u64::MAX);
    session.connect(to, connection, now).expect("a connection");
    let (mut other, _) = target.accept().expect("a connection");
    let socket = session.sockets.get_mut(&connection).expect("a socket");
    let Channel::Stream(stream) = &mut socket.channel else { panic!("over TCP") };
    while !stream.is_connected().expect("a connection") {}
    let payload = Frame::from(vec![0; 1 << 20]).freeze();
    let mut unsent_bytes = None;
    while unsent_bytes != Some(stream.unsent_bytes()) {
        unsent_bytes = Some(stream.unsent_bytes());
        while stream.has_room() {
            let packet = Packet::new(Head::new(), Some(payload.clone()));
            stream.queue(packet).expect("room");
        }
        stream.flush().expect("a connection");
    }
    other.write_all(b"more").expect("room");
    let until = now + CLOSE_TIMEOUT;
    socket.stage = Stage::Closing { until };
    session.wait(&Waker::new().expect("an event descriptor"), Some(now)).expect("no wait");
    assert!(!session.sockets[&connection].watched.readable, "what came would end every wait");
    session.transmit(now);
    assert!(session.sockets.contains_key(&connection) && session.poll_timeout().is_some_and(|at| at <= until));
    session.transmit(until);
    assert!(!session.sockets.contains_key(&connection));
}

/// The header of the next PDU, behind which its text is left out; `None` at the end of the connection.
fn read_pdu(stream: &mut TcpStream) -> Option<Header> {
    let mut header = [0; 48];
    stream.read_exact(&mut header).ok()?;
    let header = Header::from_bytes(header);
    let mut text = vec![0; header.data_bytes().next_multiple_of(4)];
    stream.read_exact(&mut text).ok()?;
    Some(header)
}

/// Linux' target of iSER frees a command twice when the end of a connection reaches it before it is done with the answer to the logout.
#[test]
fn who_leaves_waits_for_the_answer_of_the_target_and_for_its_end() {
    const ANSWERS_AFTER: Duration = Duration::from_millis(50);
    // A target on a busy machine may be halted for some seconds.
    const PATIENCE: Duration = Duration::from_secs(60);
    let target = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = target.local_addr().expect("an address");
    let name = "iqn.2026-11.org.example:disk".parse().ok();
    let server = IscsiServer { user: None, host: to.ip().to_string(), port: to.port(), is_iser: false, target: name };
    let answering = thread::spawn(move || {
        let (mut stream, _) = target.accept().expect("a connection");
        loop {
            let Some(header) = read_pdu(&mut stream) else {
                // Its login has taken too long: it comes again.
                stream = target.accept().expect("a connection").0;
                continue;
            };
            if header.opcode() == Some(Opcode::LogoutRequest) {
                thread::sleep(ANSWERS_AFTER);
                stream.set_nonblocking(true).expect("a socket");
                let found = stream.read(&mut [0]).map_err(|error| error.kind());
                assert_eq!(found, Err(ErrorKind::WouldBlock), "it has not gone");
                let answer = LogoutResponse { task_tag: header.task_tag(), ..LogoutResponse::default() };
                stream.write_all(answer.write().as_bytes()).expect("a connection");
                thread::sleep(ANSWERS_AFTER);
                let found = stream.read(&mut [0]).map_err(|error| error.kind());
                return assert_eq!(found, Err(ErrorKind::WouldBlock), "the target goes first");
            }
            let request = LoginRequest::read(&header);
            let answer = LoginResponse {
                transits: request.transits,
                current_stage: request.current_stage,
                next_stage: request.next_stage,
                isid: request.isid,
                tsih: 1,
                task_tag: request.task_tag,
                expected_command_number: request.command_number,
                max_command_number: request.command_number,
                ..LoginResponse::default()
            };
            // Who has gone meanwhile comes again.
            let _ = stream.write_all(answer.write().as_bytes());
        }
    });
    let options = ClientOptions::anonymous().map(|options| ClientOptions { connect_patience: PATIENCE, ..options });
    let config = options.and_then(|options| options.iscsi(&server, None)).expect("options");
    let waker = Waker::new().expect("an event descriptor");
    let mut session = Iscsi::new(config, Way::Tcp, None, Clock::new().now());
    while session.server().is_none() {
        let now = session.now();
        let done = session.receive(now);
        session.handle_timeout(now);
        while session.poll_event().is_some() {}
        if done + session.transmit(now) == 0 {
            session.wait(&waker, session.poll_timeout()).expect("a wait");
        }
    }
    let now = session.now();
    session.disconnect(now);
    session.transmit(now);
    session.take_leave(&waker, PATIENCE);
    assert!(!session.protocol.is_leaving() && session.sockets.is_empty());
    assert!((now + ANSWERS_AFTER * 2..now + PATIENCE).contains(&session.now()));
    answering.join().expect("the target saw it in order");
}
