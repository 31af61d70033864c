//! Whom a client answers, and that it says nothing twice in other words.

use std::net::{Ipv4Addr, SocketAddr};

use sanwire_core::{LinkId, Peer, Protection};
use sanwire_security::handshake::Responder;
use sanwire_security::keys::Identity;

use super::*;
use crate::server::Wishes;

const NOW: Instant = Instant::ZERO;
const SERVER: u8 = 1;
const PSK: [u8; 32] = [9; 32];

fn identity(number: u8) -> Identity {
    Identity::from_private([number; 32]).unwrap()
}

fn path(host: u8) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), crate::PORT))) }
}

fn own() -> Offer {
    Offer {
        packet_max_bytes: 1472,
        window_packets: 64,
        allows_classic: false,
        wants_classic: false,
        allows_unchecked: false,
        wants_unchecked: false,
        classic_payload_bytes: 0,
        protection_min: Protection::Checksum,
    }
}

/// A client that seeks, and those who answer it.
struct World {
    config: ClientConfig,
    seek: Seek,
    random: Randomness,
    prologue: Vec<u8>,
}

/// A challenge.
struct Second {
    connection: u32,
    noise: Vec<u8>,
    mark: Mark,
    refusal_key: RefusalKey,
}

impl World {
    fn new(known: Option<[u8; 32]>) -> World {
        let config = ClientConfig {
            identity: identity(2),
            psk: PSK,
            server_key: None,
            places: vec![path(SERVER)],
            server_name: String::new(),
            links: Vec::new(),
            wishes: Wishes::default(),
            commands_max: 8,
            protection_min: Protection::Checksum,
            connect_patience: Duration::from_secs(5),
            reconnect_patience: None,
            seed: [3; 32],
        };
        let mut random = Randomness::new([4; 32]);
        let seek = Seek::new(&config, 7, known, &mut random, NOW).unwrap();
        let prologue = connect(&config, seek.attempt, 7, seek.first).prologue();
        World { config, seek, random, prologue }
    }

    /// What a server with this key answers.
    fn second(&mut self, key: u8, connection: u32) -> Second {
        let offer = ServerOffer {
            offer: own(),
            commands_max: 8,
            transfer_max_bytes: 1 << 20,
            keep_alive_ms: 1000,
            instance: 1,
            name: String::new(),
        };
        let keys = (&identity(key), &PSK);
        let said = (connection, &offer.write()[..]);
        let made = Responder::new(keys, &self.prologue, &self.seek.first, said, &mut self.random);
        let (responder, noise, mark) = made.unwrap();
        Second { connection, noise, mark, refusal_key: responder.refusal_key() }
    }

    fn meet(&mut self, host: u8, second: &Second) -> Option<Vec<u8>> {
        let step = SecondStep { connection: second.connection, noise: &second.noise, mark: second.mark };
        let asked = (self.seek.attempt, step);
        match self.seek.challenged((&self.config, own()), path(host), asked, &mut self.random, NOW) {
            Challenged::Answer(packet) => Some(packet.to_vec()),
            Challenged::OtherServer { .. } | Challenged::Ignore => None,
        }
    }

    fn has(&self, host: u8, connection: u32) -> bool {
        self.seek.candidates.iter().any(|one| (one.path, one.connection) == (path(host), connection))
    }
}

#[test]
fn a_challenge_that_comes_again_is_answered_in_the_same_words_wherever_from_and_after_a_refusal() {
    let mut world = World::new(None);
    let second = world.second(SERVER, 5);
    let answer = world.meet(SERVER, &second).unwrap();
    assert_eq!(world.meet(77, &second).as_ref(), Some(&answer), "from elsewhere");
    assert!(world.has(SERVER, 5) && world.has(77, 5));
    let confirm = world.seek.candidates[0].confirm.clone();
    let proof = second.refusal_key.prove(Refusal::Full as u8, &confirm);
    assert!(world.seek.refused((path(SERVER), 5), Refusal::Full, Some(&proof)));
    assert!(!world.has(SERVER, 5));
    assert_eq!(world.meet(SERVER, &second), Some(answer), "after a refusal");
    let moved = Second { connection: 6, ..second };
    assert_eq!(world.meet(SERVER, &moved), None, "the mark covers the connection");
}

#[test]
fn the_known_server_takes_the_place_of_those_who_came_first() {
    let mut world = World::new(Some(*identity(SERVER).public()));
    for impostor in 0..4 {
        let second = world.second(100 + impostor, 10 + u32::from(impostor));
        assert!(world.meet(50 + impostor, &second).is_some());
    }
    let second = world.second(SERVER, 5);
    // Somebody passes it on from elsewhere, often.
    for host in 80..90 {
        world.meet(host, &second);
    }
    assert!(world.meet(SERVER, &second).is_some());
    assert!(world.has(SERVER, 5));
    assert_eq!(world.seek.candidates.len(), CANDIDATES_MAX);
}

#[test]
fn a_server_that_is_not_known_has_a_chance_among_many() {
    let accepted = (0..40).filter(|round| {
        let mut world = World::new(None);
        world.random = Randomness::new([*round; 32]);
        for impostor in 0..10 {
            let second = world.second(100 + impostor, 10 + u32::from(impostor));
            world.meet(SERVER, &second);
        }
        let second = world.second(SERVER, 5);
        world.meet(SERVER, &second).is_some()
    });
    // Four of eleven.
    assert!((6..25).contains(&accepted.count()));
}

#[test]
fn each_cookie_is_brought_back_up_to_a_bound() {
    let World { config, mut seek, .. } = World::new(None);
    let attempt = seek.attempt;
    assert!(seek.bring_back(&config, attempt + 1, [8; 16]).is_none());
    let packet = seek.bring_back(&config, attempt, [8; 16]).unwrap().to_vec();
    let raw = RawPacket::read(&packet).unwrap();
    let asked = Connect::read(raw.payload).unwrap();
    assert_eq!((asked.cookie, asked.noise, asked.attempt), (Some([8; 16]), seek.first, attempt));
    let more = (0..100).filter(|_| seek.bring_back(&config, attempt, [8; 16]).is_some());
    assert_eq!(more.count(), COOKIES_MAX as usize - 1);
}
