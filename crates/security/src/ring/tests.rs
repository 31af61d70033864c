//! Both ends' rings: what one seals, only the other opens.

use std::time::Duration;

use super::*;
use crate::handshake::tests::shake;

/// Bytes before a body that are covered too.
const PREFIX_BYTES: usize = 24;

const KEYED: [Protection; 4] =
    [Protection::Hash, Protection::Aes128Gcm, Protection::ChaCha20Poly1305, Protection::Aes256Gcm];

/// A packet: prefix, body, tag.
fn seal(ring: &mut KeyRing, protection: Protection, number: u64, body: &[u8]) -> Vec<u8> {
    let mut packet = [&[7; PREFIX_BYTES][..], body].concat();
    if protection == Protection::Hash {
        let plain = packet.split_off(0);
        packet = vec![0; plain.len() + TAG_BYTES];
        ring.hash_into(number, [&plain[..PREFIX_BYTES], &plain[PREFIX_BYTES..]], &mut packet).unwrap();
        assert_eq!(&packet[plain.len()..], ring.hash(number, &plain).unwrap());
        assert!(ring.hash_into(number, [&plain, &[]], &mut [0; TAG_BYTES]).is_err(), "no room");
    } else {
        let (prefix, body) = packet.split_at_mut(PREFIX_BYTES);
        let (body, more) = body.split_at_mut(body.len() / 3);
        let mut sealed = vec![0; more.len() + TAG_BYTES];
        ring.seal(protection, number, prefix, body, more, &mut sealed).unwrap();
        packet = [&*prefix, body, &sealed].concat();
    }
    packet
}

fn open_of(
    ring: &mut KeyRing,
    epoch: u8,
    protection: Protection,
    number: u64,
    packet: &[u8],
    now: Instant,
) -> Result<Vec<u8>, KeyError> {
    let (all, tag) = packet.split_at(packet.len() - TAG_BYTES);
    let (prefix, body) = all.split_at(PREFIX_BYTES);
    let mut plain = Vec::new();
    ring.open(protection, epoch, number, Sealed { prefix, body, all, tag }, &mut plain, now).map(<[u8]>::to_vec)
}

fn open(ring: &mut KeyRing, protection: Protection, number: u64, packet: &[u8]) -> Result<Vec<u8>, KeyError> {
    open_of(ring, 0, protection, number, packet, Instant::ZERO)
}

#[test]
fn what_one_end_seals_only_the_other_opens_and_only_unchanged() {
    let (mut client, mut server) = shake([3; 32], [3; 32]).unwrap();
    for protection in KEYED {
        let packet = seal(&mut client, protection, 9, b"some body that is longer than one block");
        let opened = open(&mut server, protection, 9, &packet).unwrap();
        assert_eq!(opened, b"some body that is longer than one block", "{protection}");
        assert_eq!(packet.windows(4).any(|part| part == b"body"), !protection.encrypts());
        assert!(open(&mut server, protection, 8, &packet).is_err(), "{protection}: another number");
        assert!(open(&mut client, protection, 9, &packet).is_err(), "{protection}: reflected to its sender");
        for bit in 0..packet.len() * 8 {
            let mut bad = packet.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&mut server, protection, 9, &bad).is_err(), "{protection}: bit {bit}");
        }
    }
}

#[test]
fn a_packet_is_opened_to_its_place_and_nowhere_else() {
    let (mut client, mut server) = shake([3; 32], [3; 32]).unwrap();
    let body = b"some body that is longer than one block";
    let mut open_into = |protection, packet: &[u8], place: &mut [u8]| {
        let (all, tag) = packet.split_at(packet.len() - TAG_BYTES);
        let (prefix, body) = all.split_at(PREFIX_BYTES);
        server.open_into(protection, 0, 9, Sealed { prefix, body, all, tag }, place, Instant::ZERO)
    };
    for protection in KEYED {
        let packet = seal(&mut client, protection, 9, body);
        let mut forged = packet.clone();
        forged[PREFIX_BYTES] ^= 1;
        let mut memory = [5; 100];
        assert!(open_into(protection, &forged, &mut memory[10..10 + body.len()]).is_err(), "{protection}");
        assert_eq!((&memory[..10], &memory[10 + body.len()..]), (&[5u8; 10][..], &[5u8; 51][..]), "{protection}");
        for length in [0, body.len() - 1, body.len() + 1] {
            let opened = open_into(protection, &packet, &mut memory[10..10 + length]);
            assert_eq!(opened.is_err(), protection.encrypts(), "{protection}: a place of {length} bytes");
        }
        let mut memory = [5; 100];
        open_into(protection, &packet, &mut memory[10..10 + body.len()]).unwrap();
        let opened: &[u8] = if protection.encrypts() { body } else { &[5; 39] };
        assert_eq!(memory.to_vec(), [&[5u8; 10][..], opened, &[5; 51]].concat(), "{protection}");
    }
}

#[test]
fn no_two_protections_share_a_key() {
    let (mut client, mut server) = shake([3; 32], [3; 32]).unwrap();
    for sealed in KEYED {
        let packet = seal(&mut client, sealed, 1, b"");
        for opened in KEYED {
            assert_eq!(open(&mut server, opened, 1, &packet).is_ok(), sealed == opened, "{sealed} as {opened}");
        }
    }
}

const SEALED: Protection = Protection::Aes128Gcm;

fn opens(ring: &mut KeyRing, epoch: u8, packet: &[u8], now: Instant) -> bool {
    open_of(ring, epoch, SEALED, 7, packet, now).is_ok()
}

#[test]
fn new_keys_come_into_use_one_end_after_the_other_and_old_ones_go() {
    let (mut client, mut server) = shake([3; 32], [3; 32]).unwrap();
    let now = Instant::ZERO;
    let request = server.ask(|| [21; 32]).unwrap();
    assert_eq!(server.ask(|| [22; 32]), Ok(request), "asked again, it is the same");
    let answer = client.answer(request, || [23; 32]).unwrap().unwrap();
    assert_eq!(client.answer(request, || [24; 32]), Ok(Some(answer)), "and so is the answer");
    let other = NewKeys { public: [9; 32], ..request };
    assert_eq!(client.answer(other, || [24; 32]), Ok(None), "another request for the same keys is none");

    let old = seal(&mut client, SEALED, 7, b"old");
    assert_eq!((client.epoch(), server.take_answer(answer, now)), (0, Ok(true)));
    assert_eq!(server.take_answer(answer, now), Ok(false), "it was not asked for any more");
    assert!(opens(&mut server, 0, &old, now), "still under the old keys");
    assert!(!server.is_confirmed());
    let new = seal(&mut server, SEALED, 7, b"new");
    assert!(opens(&mut client, 1, &new, now));
    assert_eq!(client.epoch(), 1, "the first packet under the new keys tells that the server has them");
    let confirming = seal(&mut client, SEALED, 7, b"new");
    assert!(opens(&mut server, 1, &confirming, now) && server.is_confirmed());

    let late = now + Duration::from_secs(5);
    assert!(!opens(&mut server, 0, &old, late), "too late");
    assert_eq!(server.poll_timeout(), Some(late));
    server.handle_timeout(late);
    assert_eq!(server.poll_timeout(), None, "forgotten");
}

#[test]
fn generations_follow_each_other_past_the_prefixs_sixteen() {
    let (mut client, mut server) = shake([3; 32], [3; 32]).unwrap();
    for epoch in 1..40u64 {
        let request = server.ask(|| [epoch as u8; 32]).unwrap();
        let answer = client.answer(request, || [100 + epoch as u8; 32]).unwrap().unwrap();
        assert_eq!(server.take_answer(answer, Instant::ZERO), Ok(true));
        let packet = seal(&mut server, SEALED, 7, b"x");
        assert!(opens(&mut client, (epoch % 16) as u8, &packet, Instant::ZERO), "{epoch}");
    }
}

#[test]
fn a_public_key_of_small_order_is_refused() {
    let (mut client, mut server) = shake([3; 32], [3; 32]).unwrap();
    assert!(client.answer(NewKeys { epoch: 1, public: [0; 32] }, || [1; 32]).is_err());
    server.ask(|| [2; 32]).unwrap();
    assert!(server.take_answer(NewKeys { epoch: 1, public: [0; 32] }, Instant::ZERO).is_err());
    assert_eq!((client.epoch(), server.epoch()), (0, 0));
}

#[test]
fn keys_wear_out_and_are_not_used_for_ever() {
    let (mut client, mut server) = shake([3; 32], [3; 32]).unwrap();
    server.limits = Limits { packets: 3, bytes: 1 << 20 };
    for number in 0..6 {
        assert_eq!(server.is_worn(), number >= 3);
        let packet = seal(&mut server, SEALED, number, b"x");
        assert!(open(&mut client, SEALED, number, &packet).is_ok());
    }
    assert!(server.hash(6, b"x").is_err(), "twice the limit");
    server.limits = Limits { packets: 100, bytes: 10 };
    assert!(server.is_worn(), "bytes count, too");
}
