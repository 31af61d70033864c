//! A server that runs out of descriptors, and says so.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::harness::{AUTHORITY, Initiator, Scratch, Server, port, wait_until};

const TIMEOUT: Duration = Duration::from_secs(90);
const OUT_OF_RESOURCES: [u8; 2] = [3, 2];
const LIMIT: u32 = 192;

fn serve(scratch: &Scratch, limit: &str) -> (Server, String) {
    let address = format!("127.0.0.1:{}", port());
    let server = Server::start_limited(scratch, limit, &format!("iscsi:{address}"), &["disk=ram:8M"]);
    (server, address)
}

fn log_in(address: &str, number: u8) -> Result<Initiator, [u8; 2]> {
    log_in_as("iqn.2026-11.org.example:host", address, number)
}

fn log_in_as(name: &str, address: &str, number: u8) -> Result<Initiator, [u8; 2]> {
    Initiator::log_in(address, name, &format!("{AUTHORITY}:disk"), number)
}

#[test]
fn who_takes_all_descriptors_that_it_gets_leaves_some_to_others() {
    run_out_of_descriptors(|_| ());
}

/// Takes all descriptors of a server that one initiator gets, waits as told, and gives them back.
pub fn run_out_of_descriptors(wait: impl FnOnce(&Server)) {
    let scratch = Scratch::new();
    let (mut server, address) = serve(&scratch, &format!("-n {LIMIT}"));
    let mut sessions = Vec::new();
    let refused = (0..LIMIT as u8).find_map(|number| log_in(&address, number).map(|one| sessions.push(one)).err());
    assert_eq!(refused, Some(OUT_OF_RESOURCES), "after {} sessions", sessions.len());
    assert!(sessions.len() > 20, "{}", server.log());
    wait_until("the log says why", TIMEOUT, || server.log().contains("no descriptors left"));

    // Connections without a login take only a part of the rest: the oldest make room for newcomers.
    let idle: Vec<TcpStream> = (0..LIMIT).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
    wait(&server);
    assert!(!server.log().contains("no connections are taken"), "{}", server.log());
    sessions[0].good(&[0; 6], &[], 0);
    let mut other = log_in_as("iqn.2026-11.org.example:other", &address, 1).expect("there is room for others");
    other.good(&[0; 6], &[], 0);

    drop((idle, other, sessions));
    wait_until("there is room again", TIMEOUT, || log_in(&address, 1).is_ok());
    assert!(server.stop().success(), "{}", server.log());
}

/// Lets a server that runs open no descriptors beyond this number.
fn limit(server: &Server, descriptors: u32) {
    let arguments = [format!("--pid={}", server.pid()), format!("--nofile={descriptors}:")];
    assert!(Command::new("prlimit").args(arguments).status().expect("prlimit").success());
}

#[test]
fn a_server_without_descriptors_says_so_once_and_takes_connections_again_when_it_has_some() {
    let scratch = Scratch::new();
    let (mut server, address) = serve(&scratch, &format!("-n {LIMIT}"));
    let mut session = log_in(&address, 0).expect("a session");
    limit(&server, 8);
    let waiting = TcpStream::connect(&address).expect("the kernel keeps it");
    wait_until("the log says why", TIMEOUT, || server.log().contains("no connections are taken until others end"));
    assert!(server.log().contains("LimitNOFILE="), "and what to do: {}", server.log());
    session.good(&[0; 6], &[], 0);
    limit(&server, LIMIT);
    wait_until("connections are taken again", TIMEOUT, || log_in(&address, 1).is_ok());
    assert_eq!(server.log().matches("no connections are taken").count(), 1, "{}", server.log());
    drop((waiting, session));
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn the_limit_of_descriptors_is_raised_as_far_as_it_may_be() {
    let scratch = Scratch::new();
    let (mut server, _) = serve(&scratch, "-S -n 64");
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("its limits");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a line");
    let mut words = line.split_ascii_whitespace();
    let (soft, hard) = (words.next(), words.next());
    assert!(soft == hard && soft != Some("64"), "{line}");
    assert!(server.stop().success(), "{}", server.log());
}
