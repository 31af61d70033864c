//! That a client says nothing twice in other words.

use sanwire_core::{LinkId, MacAddress, Peer, Protection};
use sanwire_security::handshake::Responder;
use sanwire_security::keys::Identity;

use super::*;
use crate::wire::offer::{Terms, Waiting};

const PSK: [u8; 32] = [9; 32];
const CLIENT_PORT: u16 = 7;
const SERVER_PORT: u16 = 5;

fn path(station: u8) -> Path {
    Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, station])) }
}

fn terms() -> Terms {
    Terms { packet_max_bytes: 1500, window_packets: 32, group_packets: 8 }
}

fn theirs() -> Header {
    Header { from_server: true, ..header(CLIENT_PORT, SERVER_PORT) }
}

#[test]
fn a_challenge_that_comes_again_is_answered_in_the_same_words_wherever_from_and_after_a_refusal() {
    let identity = Identity::from_private([2; 32]).unwrap();
    let session = SessionName { client: identity.client_id(), run: 1, epoch: 0 };
    let config = ClientConfig {
        identity,
        psk: PSK,
        server_name: String::new(),
        server_key: None,
        volume: String::new(),
        disk_address: 0,
        disk_type: DiskType::Any,
        protection: Protection::Hash,
        links: Vec::new(),
        places: Vec::new(),
        group_packets: 8,
        patience: Duration::from_secs(1),
        seed: [3; 32],
    };
    let mut random = Randomness::new([4; 32]);
    let mut seek = Seek::new(&config, (session, CLIENT_PORT), &mut random, Instant::ZERO).unwrap();
    let server_offer = ServerOffer {
        terms: terms(),
        write_room_bytes: 1 << 20,
        transfer_max_bytes: 1 << 20,
        keep_alive_ms: 1000,
        instance: Default::default(),
        name: "vault".to_owned(),
    };
    let offer = ClientOffer {
        terms: terms(),
        protection: Protection::Hash,
        disk_type: DiskType::Any,
        disk_address: 0,
        volume: String::new(),
        waiting: Waiting::default(),
    };
    let request = Request { attempt: seek.attempt, session, server_name: "", noise: seek.first, cookie: None };
    let said = (theirs().connection(), &server_offer.write()[..]);
    let keys = (&Identity::from_private([1; 32]).unwrap(), &PSK);
    let made = Responder::new(keys, &request.prologue(CLIENT_PORT), &seek.first, said, &mut random);
    let (responder, noise, mark) = made.unwrap();
    let attempt = seek.attempt;
    let mut meet = |seek: &mut Seek, station: u8, header: Header| {
        let second = SecondStep { connection: header.connection(), noise: &noise, mark };
        let from = (path(station), header);
        match seek.challenged((&config, &offer), from, (attempt, second), &mut random) {
            Challenged::Proof(proof, is_new) => Some((proof.to_vec(), is_new == IsNew::Yes)),
            Challenged::OtherServer { .. } | Challenged::Ignore => None,
        }
    };
    let (proof, is_new) = meet(&mut seek, 1, theirs()).unwrap();
    assert!(is_new);
    let again = Some((proof, false));
    assert_eq!(meet(&mut seek, 1, theirs()), again);
    assert_eq!(meet(&mut seek, 77, theirs()), again, "from elsewhere");
    let refused = Header { error: Some(ErrorCode::Full), ..theirs() };
    let refusal = responder.refusal_key().prove(ErrorCode::Full as u8, &seek.candidates[0].third);
    assert!(seek.refused((path(1), refused), Some(&refusal)).is_some());
    assert_eq!(meet(&mut seek, 1, theirs()), again, "after a refusal");
    let moved = Header { server_port: SERVER_PORT + 1, ..theirs() };
    assert_eq!(meet(&mut seek, 1, moved), None, "the mark covers the port");
}
