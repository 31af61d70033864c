//! Strangers at a portal of iSER, over real sockets: whatever they send, and however many they are, who uses the server goes on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sanwire_initiator::{Client, Volume};
use sanwire_io::descriptors;
use sanwire_server::{Server, Wire};

use super::{patterned, server, url};
use crate::options;

/// A reply of MPA with what iSER says in it.
const REPLY_BYTES: usize = 28;

/// More logins than one host may have under way.
const STORM: usize = 128 + 60;

/// What a stranger sends at once, and what when it has a reply.
struct Script {
    first: Vec<u8>,
    second: Vec<u8>,
}

/// A request of MPA (RFC 5044 7.1, RFC 6581 6): revision 2, CRCs, IRD 128 and ORD 1; iSER's flags behind it.
fn request() -> Vec<u8> {
    [&b"MPA ID Req Frame"[..], &[0x50, 2, 0, 8, 0, 128, 0, 1, 0x80, 0, 0, 0]].concat()
}

/// The same with other bytes at some place, and more behind it.
fn changed(at: usize, bytes: &[u8], more: usize) -> Script {
    let mut first = request();
    first[at..at + bytes.len()].copy_from_slice(bytes);
    first.resize(first.len() + more, 0x5a);
    Script { first, second: Vec::new() }
}

fn scripts() -> Vec<Script> {
    let said = |first: &[u8]| Script { first: first.to_vec(), second: Vec::new() };
    let mut all = vec![
        said(b""),
        said(&b"GET / HTTP/1.1\r\n\r\n".repeat(20)),
        said(&request()[..13]),
        said(&request()),
        // A wrong key, markers, revisions 0 and 3, a rejection, no reads.
        changed(7, b"X", 0),
        changed(16, &[0xd0], 0),
        changed(17, &[0], 0),
        changed(17, &[3], 0),
        changed(16, &[0x70], 0),
        changed(20, &[0, 0], 0),
        // Private data of 512 bytes, all of it and some; one byte more; none.
        changed(18, &[2, 0], 504),
        changed(18, &[2, 0], 100),
        changed(18, &[2, 1], 505),
        changed(18, &[0, 0], 0),
        // Something behind it before there is a reply.
        changed(0, b"M", 200),
    ];
    // FPDUs of lengths that none has, and of the longest.
    for length in (0..=14).chain([65_535u16]) {
        let second = [&length.to_be_bytes()[..], &[0xc1; 100]].concat();
        all.push(Script { first: request(), second });
    }
    all
}

/// Its connection, if the server has it still.
fn stranger(portal: SocketAddr, script: &Script) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(portal).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(&script.first).ok()?;
    if !script.second.is_empty() {
        stream.read_exact(&mut [0; REPLY_BYTES]).ok()?;
        stream.write_all(&script.second).ok()?;
    }
    Some(stream)
}

fn portal(target: &Server) -> SocketAddr {
    let is_iser = |wire: &&Wire| wire.has_targets() && wire.scheme() == "iser";
    target.wires().iter().find(is_iser).and_then(Wire::portal).unwrap().0
}

fn goes_on(client: &mut Client, volume: &Volume, round: usize) {
    client.block_on(async {
        let data = patterned(volume.buffer(65_536).await.unwrap(), round);
        volume.write(0, data.clone()).await.unwrap();
        let back = volume.read(0, volume.buffer(65_536).await.unwrap()).await.unwrap();
        assert!(*back == *data, "round {round}");
    });
}

#[test]
fn whatever_strangers_say_to_iser_its_users_go_on() {
    let target = server("disk=ram:64M");
    let mut client = Client::connect(&url(&target, "iser", true), &options()).unwrap();
    let volume = client.open("0").unwrap();
    for round in 0..3 {
        for script in scripts() {
            drop(stranger(portal(&target), &script));
        }
        // And all of them at once.
        let all: Vec<Option<TcpStream>> = scripts().iter().map(|script| stranger(portal(&target), script)).collect();
        goes_on(&mut client, &volume, round);
        drop(all);
    }
    drop((volume, client));
    target.stop().unwrap();
}

#[test]
fn a_storm_of_connections_to_iser_keeps_nobody_out() {
    descriptors::raise_limit(0).unwrap();
    let target = server("disk=ram:64M");
    let mut client = Client::connect(&url(&target, "iser", true), &options()).unwrap();
    let volume = client.open("0").unwrap();
    for (round, first) in [Vec::new(), request()[..20].to_vec(), request()].into_iter().enumerate() {
        let script = Script { first, second: Vec::new() };
        let storm: Vec<Option<TcpStream>> = (0..STORM).map(|_| stranger(portal(&target), &script)).collect();
        goes_on(&mut client, &volume, round);
        let mut newcomer = Client::connect(&url(&target, "iser", true), &options()).unwrap();
        let own = newcomer.open("0").unwrap();
        goes_on(&mut newcomer, &own, round);
        drop((own, newcomer, storm));
    }
    drop((volume, client));
    target.stop().unwrap();
}
