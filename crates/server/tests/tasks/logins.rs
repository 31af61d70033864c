//! Many logins at once, most of which never end.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use sanwire_io::descriptors;
use sanwire_iscsi::wire::{HEADER_BYTES, Header, LoginRequest, LoginResponse};
use sanwire_server::{AllowList, TargetNodeConfig};

use super::initiator::pdu;
use super::{TIMEOUT, World};

/// As many as one host may have, and more.
const HALF_OPEN: usize = 128 + 60;

/// A connection that says who it is and never goes on.
fn half_open(portal: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(portal).unwrap();
    let text = b"InitiatorName=iqn.2026-11.org.sanwire:idler\0SessionType=Discovery\0";
    let request = LoginRequest { is_immediate: true, command_number: 1, ..LoginRequest::default() };
    stream.write_all(&pdu(&request.write(), text)).unwrap();
    stream
}

/// A discovery session.
fn discovery(portal: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(portal).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let text = b"InitiatorName=iqn.2026-11.org.sanwire:idler\0SessionType=Discovery\0";
    let request = LoginRequest { transits: true, current_stage: 1, next_stage: 3, ..LoginRequest::default() };
    stream.write_all(&pdu(&request.write(), text)).unwrap();
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let response = LoginResponse::read(&Header::from_bytes(header));
    assert_eq!((response.status_class, response.status_detail), (0, 0), "everybody may ask what there is");
    stream
}

/// Whether the server keeps it, once its answer is read.
fn is_kept(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut [0; 1024]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
}

#[test]
fn half_open_logins_keep_nobody_waiting() {
    descriptors::raise_limit(0).unwrap();
    let world = World::new();
    let mut idlers: Vec<TcpStream> = (0..HALF_OPEN).map(|_| half_open(world.portal())).collect();
    let silent: Vec<TcpStream> = (0..HALF_OPEN).map(|_| TcpStream::connect(world.portal()).unwrap()).collect();
    let mut own = world.login(1);
    own.settle(super::PROMPT);
    drop(silent);
    let kept = idlers.iter_mut().map(is_kept).filter(|is_kept| *is_kept).count();
    assert!(kept > 0, "those that stay were not waited for");
    assert!(kept <= 128, "{kept} are more than one host may have");
}

/// Lets nobody in but whom this rule names.
fn allow(world: &World, rule: &str) {
    let allow = AllowList::new(vec![rule.parse().unwrap()]);
    let exports = world.target.exports().into_iter();
    world
        .target
        .set_exports(exports.map(|export| TargetNodeConfig { allow: allow.clone(), ..export }).collect())
        .unwrap();
}

#[test]
fn strangers_who_stay_in_discovery_sessions_keep_out_nobody() {
    let world = World::new();
    allow(&world, "iqn.2026-11.org.sanwire:test");
    let mut idlers: Vec<TcpStream> = (0..200).map(|_| discovery(world.portal())).collect();
    let mut own = world.login(1);
    own.settle(super::PROMPT);
    assert!(is_kept(idlers.last_mut().unwrap()), "the last one came in");
    super::wait_until("the oldest have ended", || {
        idlers.iter_mut().map(is_kept).filter(|is_kept| *is_kept).count() <= 64
    });
    assert!(idlers[136..].iter_mut().all(is_kept), "the 64 newest stay");
}

#[test]
fn who_may_not_log_in_is_still_told_why() {
    let world = World::new();
    allow(&world, "192.0.2.0/24");
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(world.portal()).unwrap()).collect();
    let mut stream = TcpStream::connect(world.portal()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let text = b"InitiatorName=iqn.2026-11.org.sanwire:test\0TargetName=iqn.2026-11.org.sanwire:all\0";
    let request = LoginRequest { transits: true, current_stage: 1, next_stage: 3, ..LoginRequest::default() };
    stream.write_all(&pdu(&request.write(), text)).unwrap();
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let response = LoginResponse::read(&Header::from_bytes(header));
    assert_eq!((response.status_class, response.status_detail), (2, 2), "authorization failure");
    drop(silent);
}
