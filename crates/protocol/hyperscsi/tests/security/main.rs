//! What stands on the wire under each level of protection, and what becomes of attempts to get around it.

#[path = "../common/mod.rs"]
mod common;
mod ends;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::Sent;
use ends::{Ends, REKEY_INTERVAL};
use sanwire_core::Protection;
use sanwire_hyperscsi::wire::packet::{COVERED_BYTES, PREFIX_BYTES, checksum};
use sanwire_hyperscsi::wire::{Opcode, Prefix};
use sanwire_hyperscsi::{Client, ClientConfig, Failure, Identity, NO_PASSWORD, SecurityEvent};

const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;
const SECRET: &[u8] = b"the secret of the volume";

/// A unit of each level, under the level's number.
fn units() -> Vec<(u16, Protection)> {
    Protection::ALL.into_iter().map(|protection| (protection as u16, protection)).collect()
}

fn is_data(sent: &Sent) -> bool {
    matches!(sent.prefix().header.opcode, Opcode::HcbeRequest | Opcode::HcbeReply)
}

fn shows(sent: &[Sent], what: &[u8]) -> bool {
    sent.iter().any(|packet| packet.bytes.windows(what.len()).any(|part| part == what))
}

#[test]
fn every_packet_of_a_unit_goes_as_the_unit_demands_and_shows_nothing_that_is_encrypted() {
    let mut ends = Ends::new(&units(), Protection::Checksum);
    for (lun, level) in units() {
        let first = ends.ask(lun, READ, &[], 512);
        assert!(
            first.iter().filter(|sent| is_data(sent)).all(|sent| sent.prefix().protection == Protection::STRONGEST)
        );
        let data = SECRET.repeat(200);
        let sent = ends.ask(lun, WRITE, &data, 0);
        let guards: BTreeSet<Protection> =
            sent.iter().filter(|sent| is_data(sent)).map(|sent| sent.prefix().protection).collect();
        assert_eq!(guards, BTreeSet::from([level]));
        assert_eq!(shows(&sent, SECRET), !level.encrypts(), "{level}");
        let cdb = [WRITE, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(shows(&sent, &cdb), !level.encrypts(), "the command, too: {level}");
    }
    assert_eq!(ends.server.counters().downgrades + ends.client.counters().downgrades, 0);
}

#[test]
fn no_packet_number_is_used_twice_whatever_is_lost() {
    let mut ends = Ends::new(&units(), Protection::Checksum);
    let mut count = 0;
    ends.network = Box::new(move |sent| {
        count += 1;
        if count % 7 == 0 { vec![] } else { vec![sent.bytes.clone()] }
    });
    for lun in [0, 3, 4, 1, 2] {
        ends.order(lun, WRITE, &SECRET.repeat(1000), 0);
        ends.order(lun, READ, &[], 20_000);
        ends.run(Duration::from_secs(5));
    }
    assert_eq!((ends.answers.len(), ends.lost), (10, 0));
    let mut numbers = BTreeSet::new();
    for sent in &ends.sent {
        let prefix = sent.prefix();
        assert!(
            numbers.insert((prefix.connection, sent.from_client, prefix.number)),
            "{prefix:?} has a number that was used"
        );
    }
}

/// Pieces of two packets' bodies that are alike at the same place: there are some when plaintexts are alike there, and one key
/// sealed both under one number.
fn are_alike(one: &Sent, other: &Sent) -> bool {
    let [one, other] = [one, other].map(|sent| sent.bytes[PREFIX_BYTES..].chunks_exact(8));
    one.zip(other).any(|(one, other)| one == other)
}

#[test]
fn no_key_seals_under_one_number_twice_when_keys_change_and_ends_restart() {
    let mut ends = Ends::new(&[(0, Protection::Aes128Gcm)], Protection::Checksum);
    let mut sealed: Vec<(usize, Sent)> = Vec::new();
    let mut epochs = BTreeSet::new();
    for life in 0..4 {
        // Each end comes again with the static key that it had; the server even draws the same ephemeral keys.
        match life {
            1 | 3 => ends.restart_server(),
            2 => {
                let config = ClientConfig { seed: [44; 32], ..ends::client_config(Protection::Checksum) };
                ends.client = Client::new(config, ends.now);
            }
            _ => {}
        }
        ends.run(Duration::from_secs(10));
        for _ in 0..3 {
            // Alike each time, so that what is sealed alike would look alike.
            ends.ask(0, WRITE, &SECRET.repeat(500), 0);
            ends.ask(0, READ, &[], 20_000);
            ends.run(REKEY_INTERVAL / 2);
        }
        let of_keys = |sent: &Sent| sent.prefix().protection.encrypts();
        let sent = std::mem::take(&mut ends.sent).into_iter().filter(of_keys);
        sealed.extend(sent.map(|sent| (life, sent)));
    }
    let mut numbers = BTreeSet::new();
    let mut by_number: BTreeMap<u64, Vec<&Sent>> = BTreeMap::new();
    for (life, sent) in &sealed {
        let Prefix { connection, epoch, number, .. } = sent.prefix();
        epochs.insert((life, epoch));
        assert!(numbers.insert((life, connection, sent.from_client, number)), "{:?} of life {life}", sent.prefix());
        by_number.entry(number).or_default().push(sent);
    }
    assert!(epochs.len() >= 8, "keys changed in each life: {epochs:?}");
    let mut pairs = 0;
    for alike in by_number.values() {
        for (at, one) in alike.iter().enumerate() {
            for other in &alike[at + 1..] {
                assert!(!are_alike(one, other), "{:?} and {:?} have one key", one.prefix(), other.prefix());
                pairs += 1;
            }
        }
    }
    assert!(pairs > 100, "{pairs} pairs of packets of one number");
}

#[test]
fn a_request_guarded_less_than_demanded_is_not_executed_but_asked_again_better() {
    let mut ends = Ends::new(&[(1, Protection::Checksum)], Protection::Checksum);
    ends.ask(1, READ, &[], 512);
    ends.ask(1, READ, &[], 512);
    ends.levels.lock().unwrap().insert(1, Protection::ChaCha20Poly1305);
    ends.executed.clear();
    let sent = ends.ask(1, WRITE, SECRET, 0);
    assert_eq!(ends.executed, [(1, WRITE)], "once");
    assert_eq!(ends.server.counters().downgrades, 1);
    let answers: Vec<Protection> = sent
        .iter()
        .filter(|sent| sent.prefix().header.opcode == Opcode::HcbeReply)
        .map(|sent| sent.prefix().protection)
        .collect();
    assert_eq!(answers, [Protection::STRONGEST, Protection::ChaCha20Poly1305]);
    assert!(!shows(&ends.ask(1, WRITE, SECRET, 0), SECRET));
}

#[test]
fn a_client_guards_no_packet_less_than_its_least_and_takes_none() {
    let mut ends = Ends::new(&[(0, Protection::Checksum), (1, Protection::Hash)], Protection::Aes128Gcm);
    for lun in [0, 1] {
        ends.ask(lun, READ, &[], 512);
        let sent = ends.ask(lun, WRITE, SECRET, 0);
        let mut data = sent.iter().filter(|sent| is_data(sent));
        assert!(data.all(|sent| sent.prefix().protection == Protection::Aes128Gcm));
        assert_eq!(ends.client.protection(sanwire_core::Lun::new(lun).unwrap()), Some(Protection::Aes128Gcm));
    }
}

/// A packet with other fields and a mended checksum: who sees a packet knows how far it is from an ordinary checksum.
fn forge(seen: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let sum = |bytes: &[u8]| checksum(&bytes[..COVERED_BYTES], &[&bytes[PREFIX_BYTES..]]);
    let seen_sum = u32::from_be_bytes(seen[COVERED_BYTES..PREFIX_BYTES].try_into().unwrap());
    let mut forged = seen.to_vec();
    change(&mut forged);
    let forged_sum = seen_sum ^ sum(seen) ^ sum(&forged);
    forged[COVERED_BYTES..PREFIX_BYTES].copy_from_slice(&forged_sum.to_be_bytes());
    forged
}

const NUMBER: usize = 12;
const SEQUENCE: usize = PREFIX_BYTES;
const ACKNOWLEDGEMENT: usize = PREFIX_BYTES + 16 - 4;
const COMMAND: usize = PREFIX_BYTES + 24;
const SETTLED: usize = COMMAND + 8;
const LUN: usize = COMMAND + 16;

fn add(bytes: &mut [u8], at: usize, more: u64) {
    let value = u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()) + more;
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

#[test]
fn forged_headers_of_unprotected_packets_change_nothing() {
    let mut ends = Ends::new(&units(), Protection::Checksum);
    ends.ask(0, READ, &[], 512);
    let sent = ends.ask(0, WRITE, SECRET, 0);
    let seen: Vec<Sent> = sent.into_iter().filter(is_data).collect();
    assert_eq!(seen.len(), 2, "a request and its answer");
    ends.executed.clear();
    for Sent { from_client, bytes, .. } in &seen {
        for (at, more) in [(NUMBER, 1), (SEQUENCE, 1), (SEQUENCE, 40), (ACKNOWLEDGEMENT, 1), (COMMAND, 1), (SETTLED, 9)]
        {
            let before = counted(&ends);
            ends.inject(*from_client, &forge(bytes, |bytes| add(bytes, at, more)));
            assert_eq!(counted(&ends), before + 1, "byte {at}, {more} more, from the client: {from_client}");
        }
    }
    for lun in [0u8, 1, 2, 3, 4] {
        let before = ends.server.counters().rejected;
        ends.inject(
            true,
            &forge(&seen[0].bytes, |bytes| {
                add(bytes, SEQUENCE, 1);
                add(bytes, COMMAND, 1);
                bytes[LUN + 1] = lun;
            }),
        );
        assert_eq!(ends.server.counters().rejected, before + 1, "a command for unit {lun}");
    }
    ends.run(Duration::from_secs(2));
    assert_eq!((&ends.executed[..], &ends.offences[..]), (&[][..], &[SecurityEvent::NotAuthentic][..]));
    ends.ask(0, READ, &[], 512);
    ends.ask(3, WRITE, SECRET, 0);
    assert_eq!((ends.lost, ends.server.connections()), (0, 1));
}

#[test]
fn where_nothing_is_unprotected_a_forged_checksum_is_refused_before_it_touches_anything() {
    let mut ends = Ends::new(&[(1, Protection::Hash), (3, Protection::Aes128Gcm)], Protection::Checksum);
    let sent = ends.ask(1, WRITE, SECRET, 0);
    for packet in sent.iter().filter(|sent| is_data(sent)) {
        let mut stripped = packet.bytes.clone();
        stripped[5] = 0;
        ends.inject(packet.from_client, &stripped);
    }
    assert_eq!((ends.server.counters().downgrades, ends.client.counters().downgrades), (1, 1));
    ends.ask(3, READ, &[], 5000);
    assert_eq!(ends.lost, 0);
}

#[test]
fn a_reply_guarded_less_than_its_request_does_not_stand_in_for_the_true_one() {
    let mut ends = Ends::new(&units(), Protection::Checksum);
    ends.network = Box::new(|sent| {
        let is_reply = sent.prefix().header.opcode == Opcode::HcbeReply;
        let mut stripped = sent.bytes.clone();
        stripped[5] = 0;
        if is_reply { vec![stripped, sent.bytes.clone()] } else { vec![sent.bytes.clone()] }
    });
    ends.ask(4, READ, &[], 512);
    ends.ask(4, READ, &[], 512);
    assert_eq!((ends.client.counters().downgrades, ends.lost), (2, 0));
}

#[test]
fn what_is_replayed_reflected_or_changed_is_refused_and_counted() {
    for level in Protection::ALL.into_iter().filter(|level| *level != Protection::Checksum) {
        let mut ends = Ends::new(&[(0, level)], Protection::Checksum);
        ends.ask(0, READ, &[], 512);
        let sent = ends.ask(0, WRITE, SECRET, 0);
        ends.executed.clear();
        let before = ends.server.counters();
        let mut attempts = 0;
        for packet in sent.iter().filter(|sent| is_data(sent)) {
            for at in [0, 5, 6, 12, 20, PREFIX_BYTES, packet.bytes.len() - 1] {
                let mut changed = packet.bytes.clone();
                changed[at] ^= 0x10;
                ends.inject(packet.from_client, &changed);
            }
            ends.inject(packet.from_client, &packet.bytes);
            ends.inject(!packet.from_client, &packet.bytes);
            attempts += 1;
        }
        ends.run(Duration::from_millis(10));
        assert!(attempts > 0 && ends.server.counters().rejected > before.rejected, "{level}");
        assert_eq!((&ends.executed[..], ends.lost), (&[][..], 0), "{level}");
        ends.ask(0, READ, &[], 512);
    }
}

#[test]
fn fragments_of_another_connection_do_not_fit() {
    let mut ends = Ends::new(&[(0, Protection::Aes128Gcm)], Protection::Checksum);
    let mut other = Ends::new(&[(0, Protection::Aes128Gcm)], Protection::Checksum);
    let config = ClientConfig { seed: [77; 32], ..ends::client_config(Protection::Checksum) };
    other.client = Client::new(config, other.now);
    other.run(Duration::from_secs(2));
    ends.ask(0, READ, &[], 512);
    let theirs = other.ask(0, WRITE, &SECRET.repeat(500), 0);
    let connection = ends.sent.iter().rev().find(|sent| is_data(sent)).unwrap().prefix().connection;
    ends.order(0, WRITE, &SECRET.repeat(500), 0);
    for packet in theirs.iter().filter(|sent| sent.from_client && is_data(sent)) {
        let mut spliced = packet.bytes.clone();
        spliced[8..12].copy_from_slice(&connection.to_be_bytes());
        ends.inject(true, &spliced);
    }
    assert!(ends.server.counters().rejected > 0);
    ends.executed.clear();
    ends.run(Duration::from_millis(500));
    assert_eq!((&ends.executed[..], ends.lost), (&[(0, WRITE)][..], 0));
}

/// Packets that were not taken at either end, for whatever reason.
fn counted(ends: &Ends) -> u64 {
    let reasons = ends.server.counters().reasons().chain(ends.client.counters().reasons());
    reasons.map(|(_, count)| count).sum()
}

#[test]
fn forged_packets_of_every_kind_do_nothing_and_are_counted() {
    let mut ends = Ends::new(&units(), Protection::Checksum);
    let sent = ends.ask(0, READ, &[], 512);
    let seen = sent.iter().find(|sent| is_data(sent)).unwrap().prefix();
    ends.executed.clear();
    for opcode in Opcode::ALL {
        for protection in Protection::ALL {
            for number in [0, 5, 1000, u64::MAX - 1, u64::MAX] {
                let header = sanwire_hyperscsi::wire::Header::single(opcode, Default::default());
                let prefix = Prefix { header, protection, epoch: 0, number, ..seen };
                for body in [&[16; 40][..], &[1; 3], &[0; 16], &[]] {
                    let forged = [&prefix.write(body.len())[..], body].concat();
                    for to_server in [true, false] {
                        let before = counted(&ends);
                        ends.inject(to_server, &forged);
                        assert_eq!(counted(&ends), before + 1, "{prefix:?} {body:?} to the server: {to_server}");
                    }
                }
            }
        }
    }
    ends.run(Duration::from_secs(3));
    assert_eq!((ends.lost, &ends.executed[..], ends.server.connections()), (0, &[][..], 1));
    // The last are steps of handshakes, which name no client.
    assert_eq!(ends.offences, [SecurityEvent::NotAuthentic, SecurityEvent::Unsealed, SecurityEvent::NotAuthentic]);
    ends.ask(0, READ, &[], 512);
}

#[test]
fn keys_change_under_load_without_a_pause() {
    for (lost, patience_ms) in [(0, 10), (11, 4_000)] {
        let mut ends = Ends::new(&[(0, Protection::Aes128Gcm)], Protection::Checksum);
        let mut count = 0;
        ends.network = Box::new(move |sent| {
            count += 1;
            if lost > 0 && count % lost == 0 { vec![] } else { vec![sent.bytes.clone(); 1 + count % 2] }
        });
        let begun = ends.now;
        let mut epochs = BTreeSet::new();
        while ends.now < begun + REKEY_INTERVAL * 3 {
            let asked = ends.answers.len();
            ends.order(0, WRITE, &SECRET.repeat(2000), 0);
            ends.order(0, READ, &[], 40_000);
            ends.run(Duration::from_millis(patience_ms));
            assert_eq!((ends.answers.len(), ends.lost), (asked + 2, 0), "at {:?}", ends.now);
            let last = ends.sent.iter().rev().filter(|sent| is_data(sent)).take(1);
            epochs.extend(last.map(|sent| sent.prefix().epoch));
            ends.run(Duration::from_millis(200));
        }
        assert!(epochs.len() >= 3, "{epochs:?}");
    }
}

#[test]
fn a_client_that_may_not_connect_any_more_is_dropped_when_its_keys_are_due() {
    let mut ends = Ends::new(&[(0, Protection::Checksum)], Protection::Checksum);
    ends.ask(0, READ, &[], 512);
    ends.is_permitted.store(false, Ordering::Relaxed);
    ends.run(REKEY_INTERVAL + Duration::from_secs(1));
    assert_eq!(ends.server.connections(), 0);
}

/// Ends whose client begins anew, with other settings.
fn with_client(change: impl FnOnce(&mut ClientConfig)) -> Ends {
    let mut ends = Ends::new(&[], Protection::Checksum);
    let mut config = ends::client_config(Protection::Checksum);
    config.seed = [88; 32];
    change(&mut config);
    ends.client = Client::new(config, ends.now);
    ends
}

#[test]
fn who_has_given_no_password_is_told_that_one_is_required() {
    let mut ends = with_client(|config| config.psk = NO_PASSWORD);
    ends.run(Duration::from_secs(3));
    assert_eq!(ends.given_up, Some(Failure::NoPassword));
}

#[test]
fn a_wrong_password_is_told_counted_and_slows_down_only_who_gave_it() {
    let mut ends = with_client(|config| config.psk = [9; 32]);
    ends.run(Duration::from_secs(3));
    assert_eq!(ends.given_up, Some(Failure::WrongPassword));
    let counters = ends.server.counters();
    assert_eq!((counters.not_authentic, counters.throttled), (1, 0), "one attempt is one, however often it is said");
    assert_eq!(ends.wrong_passwords, 1, "the server's owner is told");
    let mut config = ends::client_config(Protection::Checksum);
    (config.psk, config.connect_patience) = ([9; 32], Duration::from_secs(3600));
    for seed in 0..40 {
        config = ClientConfig { seed: [seed; 32], ..config_of(&config) };
        ends.client = Client::new(config_of(&config), ends.now);
        ends.run(Duration::from_millis(500));
    }
    assert!(ends.wrong_passwords < 20, "{} in 20 s", ends.wrong_passwords);
    let throttled = |ends: &Ends| ends.server.counters().throttled;
    assert!(throttled(&ends) > 0);
    let mut before = throttled(&ends);
    for seed in 50.. {
        before = throttled(&ends);
        ends.client = Client::new(ClientConfig { seed: [seed; 32], ..config_of(&config) }, ends.now);
        ends.run(Duration::from_millis(10));
        if throttled(&ends) > before {
            break;
        }
    }
    // Its first attempt goes on: two more packets.
    ends.run(Duration::from_millis(160));
    assert_eq!(throttled(&ends), before + 1, "so is one that comes too soon");
    ends.given_up = None;
    ends.client = Client::new(ends::client_config(Protection::Checksum), ends.now);
    ends.run(Duration::from_secs(3));
    assert!(ends.client.server().is_some(), "the right password gets in after a short wait");
}

fn config_of(config: &ClientConfig) -> ClientConfig {
    let usual = ends::client_config(Protection::Checksum);
    ClientConfig { psk: config.psk, connect_patience: config.connect_patience, seed: config.seed, ..usual }
}

#[test]
fn forged_third_steps_make_nobody_wait() {
    let mut ends = Ends::new(&[], Protection::Checksum);
    ends.client = Client::new(ClientConfig { seed: [99; 32], ..ends::client_config(Protection::Checksum) }, ends.now);
    // Whatever the client says in its third step, a forger was there before, many times.
    ends.network = Box::new(|sent| {
        let mut forged = sent.bytes.clone();
        if sent.prefix().header.opcode != Opcode::AdnReply || sent.prefix().protection != Protection::Checksum {
            return vec![forged];
        }
        let last = forged.len() - 1;
        forged[last] ^= 1;
        forged[PREFIX_BYTES + 10] ^= 1;
        let sum = checksum(&forged[..COVERED_BYTES], &[&forged[PREFIX_BYTES..]]);
        forged[COVERED_BYTES..PREFIX_BYTES].copy_from_slice(&sum.to_be_bytes());
        let mut all = vec![forged; 50];
        all.push(sent.bytes.clone());
        all
    });
    ends.run(Duration::from_secs(2));
    assert!(ends.client.server().is_some(), "connected");
    let counters = ends.server.counters();
    assert!(counters.not_authentic >= 50, "{counters:?}");
    assert_eq!((ends.wrong_passwords, ends.server.counters().throttled), (0, 0));
}

#[test]
fn a_server_with_another_key_than_the_pinned_one_is_not_told_the_clients() {
    let server_key = *Identity::from_private([2; 32]).unwrap().public();
    let mut ends = with_client(|config| config.server_key = Some(server_key));
    ends.run(Duration::from_secs(2));
    assert_eq!(ends.client.server().map(|server| server.public_key), Some(server_key));

    let mut ends = with_client(|config| config.server_key = Some([7; 32]));
    ends.sent.clear();
    ends.run(Duration::from_secs(3));
    assert_eq!(ends.given_up, Some(Failure::OtherServer { pinned: [7; 32], received: server_key }));
    assert!(ends.sent.iter().all(|sent| sent.prefix().header.opcode != Opcode::AdnReply), "no third step");
}

#[test]
fn a_replayed_or_reflected_handshake_leads_to_no_connection_and_is_counted() {
    let mut ends = Ends::new(&[], Protection::Checksum);
    ends.client = Client::new(ClientConfig { seed: [66; 32], ..ends::client_config(Protection::Checksum) }, ends.now);
    // The client that was there before is dropped meanwhile.
    ends.run(Duration::from_secs(6));
    let shaken: Vec<Sent> =
        ends.sent.iter().filter(|sent| sent.prefix().header.opcode as u8 >= 0x10).cloned().collect();
    let connections = ends.server.connections();
    for packet in &shaken {
        for to_server in [packet.from_client, !packet.from_client] {
            let before = counted(&ends);
            ends.inject(to_server, &packet.bytes);
            assert_eq!(counted(&ends), before + 1, "{:?} to the server: {to_server}", packet.prefix());
        }
        ends.run(Duration::from_millis(1));
    }
    ends.run(Duration::from_secs(6));
    assert_eq!((ends.server.connections(), ends.wrong_passwords), (connections, 0));
    assert!(ends.client.server().is_some() && ends.lost == 0, "the honest client goes on");
    ends.ask(0, READ, &[], 512);
}
