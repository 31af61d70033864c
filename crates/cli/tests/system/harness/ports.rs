//! Ports of this host for servers of tests.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::Mutex;

/// Where they lie: above those of well-known services, below those that the kernel gives away.
const ALL: Range<u16> = 10_048..32_704;
const BLOCK: u16 = 64;

/// Ports that are this process's own as long as it lives: it holds the one before them.
struct Claim {
    _held: UdpSocket,
    free: Range<u16>,
}

/// A port that no other test uses, of whatever process: over UDP and TCP nobody is there.
pub fn port() -> u16 {
    static CLAIMS: Mutex<Vec<Claim>> = Mutex::new(Vec::new());
    let mut claims = CLAIMS.lock().expect("no test fails in here");
    loop {
        let next = claims.last_mut().and_then(|claim| claim.free.find(|port| is_free(*port)));
        match next {
            Some(port) => return port,
            None => claims.push(claim()),
        }
    }
}

/// The first block that nobody holds.
fn claim() -> Claim {
    let mut blocks = ALL.step_by(usize::from(BLOCK));
    let taken = blocks.find_map(|first| Some((first, UdpSocket::bind((Ipv4Addr::LOCALHOST, first)).ok()?)));
    let (first, held) = taken.expect("a block of ports");
    Claim { _held: held, free: first + 1..first + BLOCK }
}

fn is_free(port: u16) -> bool {
    let place = (Ipv4Addr::UNSPECIFIED, port);
    UdpSocket::bind(place).is_ok() && TcpListener::bind(place).is_ok()
}
