//! What both ends agree on, over networks of all kinds, and what they do about it.

#[path = "../common/mod.rs"]
mod common;
mod live;
mod net;
mod several;

use std::time::Duration;

use net::{Net, READ, Terms, WRITE, Weather, identity};
use sanwire_core::Protection;
use sanwire_hyperscsi::{Agreed, DesiredOptions, DeviceOption, Failure, Offered, OptionNumber, Options, Stance};

const CALM: Weather = Weather { lost_per_thousand: 0, doubled_per_thousand: 0, delay_max_us: 1 };
const STORM: Weather = Weather { lost_per_thousand: 30, doubled_per_thousand: 30, delay_max_us: 2000 };

fn terms(wishes: DesiredOptions) -> Terms {
    let terms = Terms::default();
    *terms.wishes.lock().unwrap() = wishes;
    terms
}

fn wish(option: DeviceOption, stance: Stance, value: &[u8]) -> DesiredOptions {
    let mut others = Options::default();
    others.set(option.number(), Offered { stance, value: value.to_vec() }).unwrap();
    DesiredOptions { others, ..DesiredOptions::default() }
}

fn compressing() -> DesiredOptions {
    DesiredOptions { compression: Stance::Supported, ..DesiredOptions::default() }
}

fn text(bytes: usize) -> Vec<u8> {
    b"all work and no play makes a dull disk. ".iter().copied().cycle().take(bytes).collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn connected(server: DesiredOptions, client: DesiredOptions, weather: Weather) -> Net {
    let mut net = Net::new(terms(server), vec![client], weather);
    net.run(Duration::from_secs(5));
    assert!(net.is_connected(), "{:?}", net.failures);
    net
}

/// The handshake of both ends agrees with what the table says; it is tested whole beside it.
#[test]
fn every_option_pair_is_negotiated_alike_at_both_ends_under_loss_doubling_and_reordering() {
    let options = [
        (DeviceOption::Compression, vec![1]),
        (DeviceOption::ReadOnly, vec![]),
        (DeviceOption::MediumLock, vec![]),
        (DeviceOption::TransferMax, vec![0, 1, 0, 0]),
        (DeviceOption::RateCap, vec![0, 0, 0, 0, 1, 0, 0, 0]),
        (DeviceOption::Priority, vec![3]),
    ];
    for (option, value) in options {
        for (of_server, of_client) in Stance::ALL.into_iter().flat_map(|one| Stance::ALL.map(|other| (one, other))) {
            let (server, client) = (wish(option, of_server, &value), wish(option, of_client, &value));
            // The server grants a priority in any case.
            let is_two_sided = option == DeviceOption::Compression;
            let has_conflict = is_two_sided
                && matches!(
                    (of_server, of_client),
                    (Stance::Enforced, Stance::Ignored) | (Stance::Ignored, Stance::Enforced)
                );
            let mut net = Net::new(terms(server), vec![client], STORM);
            net.run(Duration::from_secs(5));
            assert_eq!(net.is_connected(), !has_conflict, "{option:?} {of_server:?} {of_client:?}");
            if has_conflict {
                assert_eq!(net.failures, [Failure::Option(option)], "told at the client, which knows both offers");
            } else {
                let at_server = net.opened[0].clone();
                let at_client = net.agreed(0).unwrap();
                let alike = Agreed { peer_is_read_only: at_server.peer_is_read_only, ..at_client };
                assert_eq!(alike, at_server, "{option:?} {of_server:?} {of_client:?}");
            }
        }
    }
}

/// An end always has encryption and hashing: it supports each, or enforces it.
#[test]
fn every_pair_of_demands_for_encryption_and_hashing_has_the_stronger_at_both_ends_whatever_the_network_does() {
    for (of_server, of_client) in Protection::ALL.into_iter().flat_map(|one| Protection::ALL.map(|other| (one, other)))
    {
        let terms = Terms { least: [of_server, of_client], ..Terms::default() };
        let mut net = Net::new(terms, vec![DesiredOptions::default()], STORM);
        net.run(Duration::from_secs(5));
        assert!(net.is_connected(), "{of_server} {of_client}: {:?}", net.failures);
        let floor = of_server.max(of_client);
        assert_eq!(net.opened[0].protection_min, floor, "{of_server} {of_client}");
        assert_eq!(net.agreed(0).unwrap(), net.opened[0], "{of_server} {of_client}");
        for _ in 0..3 {
            net.order(0, 0, WRITE, &text(20_000), 0);
            net.order(0, 0, READ, &[], 20_000);
            net.run(Duration::from_secs(3));
        }
        assert!(net.written.len() == 3 && net.written.iter().all(|data| *data == text(20_000)));
        assert_eq!((net.answers[0].len(), net.lost), (6, 0), "{of_server} {of_client}");
        assert_eq!(net.guards.first(), Some(&floor), "{of_server} {of_client}: {:?}", net.guards);
    }
}

#[test]
fn vendors_options_are_carried_to_the_other_end_and_never_fatal() {
    let number = OptionNumber::new(0x4abc).unwrap();
    let offered = Offered { stance: Stance::Enforced, value: b"of a vendor".to_vec() };
    let mut wishes = DesiredOptions::default();
    wishes.others.set(number, offered.clone()).unwrap();
    let net = connected(wishes.clone(), DesiredOptions::default(), CALM);
    assert_eq!(net.agreed(0).unwrap().unknown, [(number, offered.clone())]);
    let net = connected(DesiredOptions::default(), wishes, CALM);
    assert_eq!(net.opened[0].unknown, [(number, offered)]);
}

#[test]
fn data_is_compressed_both_ways_where_it_shrinks_and_comes_whole_whatever_the_network_does() {
    for (lun, weather) in [(0, CALM), (0, STORM), (1, CALM), (1, STORM)] {
        let mut net = connected(compressing(), compressing(), weather);
        net.content = text(40);
        let sizes = [512, 1024, 4096, 5000, 65_536, 300_001, 1 << 20];
        for bytes in sizes {
            assert!(net.order(0, lun, WRITE, &text(bytes), 0) && net.order(0, lun, READ, &[], bytes));
            net.run(Duration::from_secs(3));
        }
        let written: Vec<usize> = net.written.iter().map(Vec::len).collect();
        assert_eq!(written, sizes);
        assert!(net.written.iter().all(|data| *data == text(data.len())));
        let read: Vec<&Vec<u8>> = net.answers[0].iter().map(|(_, data)| data).filter(|data| !data.is_empty()).collect();
        assert_eq!(read.iter().map(|data| data.len()).collect::<Vec<_>>(), sizes);
        assert!(read.iter().all(|data| **data == text(data.len())));
        let most = 300_000;
        assert!(net.sent_by[0] < most && net.sent_to[0] < most, "{:?} {:?}", net.sent_by, net.sent_to);
        assert_eq!((net.lost, net.server.counters().violations, net.clients[0].counters().violations), (0, 0, 0));
    }
}

#[test]
fn data_that_does_not_shrink_goes_as_it_is() {
    let mut bytes = Vec::new();
    for wishes in [DesiredOptions::default(), compressing()] {
        let mut net = connected(wishes.clone(), wishes, CALM);
        let before = net.sent_by[0];
        for _ in 0..4 {
            net.order(0, 0, WRITE, &noise(200_000), 0);
            net.run(Duration::from_secs(1));
        }
        assert!(net.written.iter().all(|data| *data == noise(200_000)) && net.written.len() == 4);
        bytes.push(net.sent_by[0] - before);
    }
    assert!(bytes[1].abs_diff(bytes[0]) < bytes[0] / 100, "{bytes:?}");
}

#[test]
fn nothing_is_compressed_for_an_end_that_does_not_want_it() {
    for (server, client) in [(compressing(), DesiredOptions::default()), (DesiredOptions::default(), compressing())] {
        let mut net = connected(server, client, CALM);
        net.order(0, 0, WRITE, &text(200_000), 0);
        net.run(Duration::from_secs(1));
        assert!(net.sent_by[0] > 200_000 && net.written[0] == text(200_000));
    }
}

#[test]
fn data_of_a_unit_that_does_not_want_it_is_not_compressed_on_a_connection_that_compresses() {
    let mut net = connected(compressing(), compressing(), CALM);
    net.content = text(40);
    for (lun, is_compressed) in [(0, true), (2, false)] {
        // The first answer says what holds for the unit.
        net.order(0, lun, READ, &[], 512);
        net.run(Duration::from_secs(1));
        let (out, back) = (net.sent_by[0], net.sent_to[0]);
        net.order(0, lun, WRITE, &text(200_000), 0);
        net.order(0, lun, READ, &[], 200_000);
        net.run(Duration::from_secs(1));
        let bytes = [net.sent_by[0] - out, net.sent_to[0] - back];
        assert!(bytes.iter().all(|bytes| (*bytes < 100_000) == is_compressed), "unit {lun}: {bytes:?}");
    }
    assert_eq!(net.answers[0].len(), 6);
}

#[test]
fn options_change_in_mid_transfer_without_harm() {
    let terms = terms(DesiredOptions::default());
    let wishes = terms.wishes.clone();
    let mut net = Net::new(terms, vec![compressing()], STORM);
    net.content = text(40);
    net.run(Duration::from_secs(5));
    let data = text(100_000);
    for round in 0..15u64 {
        *wishes.lock().unwrap() = DesiredOptions {
            compression: if round % 2 == 0 { Stance::Supported } else { Stance::Ignored },
            rate_cap_bytes_per_second: (round % 3 == 0).then_some(5_000_000),
            read_only: round % 5 == 0,
            ..DesiredOptions::default()
        };
        net.server.refresh_options(net.now);
        // Some are under way whenever the options change.
        for _ in 0..4 {
            net.order(0, 0, WRITE, &data, 0);
            net.order(0, 0, READ, &[], 100_000);
            net.run(Duration::from_millis(150));
        }
        let agreed = net.agreed(0).unwrap();
        assert_eq!(agreed.compression, round % 2 == 0, "round {round}");
        assert_eq!(agreed.rate_cap_bytes_per_second.is_some(), round % 3 == 0);
        assert_eq!(agreed.read_only, round % 5 == 0);
    }
    assert!(net.written.len() > 50 && net.written.iter().all(|written| *written == data));
    assert!(net.answers[0].iter().all(|(_, read)| read.is_empty() || *read == data));
    assert_eq!((net.lost, net.kinds_of_answers(0).len()), (0, 1));
    assert_eq!((net.server.counters().violations, net.clients[0].counters().violations), (0, 0));
}

#[test]
fn a_change_that_an_end_cannot_take_ends_the_connection_and_is_explained_there() {
    let terms = terms(DesiredOptions::default());
    let wishes = terms.wishes.clone();
    let mut net = Net::new(terms, vec![DesiredOptions::default()], CALM);
    net.run(Duration::from_secs(2));
    wishes.lock().unwrap().compression = Stance::Enforced;
    net.server.refresh_options(net.now);
    net.run(Duration::from_secs(5));
    assert!(!net.is_connected() && net.lost == 1);
    assert!(net.clients[0].counters().conflicts > 0 && net.server.counters().conflicts > 0);
    // It waits for the server to change its mind.
    wishes.lock().unwrap().compression = Stance::Supported;
    net.run(Duration::from_secs(5));
    assert!(net.is_connected());
}

#[test]
fn a_storm_of_changes_is_bounded_and_leaves_the_connection_alone() {
    let terms = terms(DesiredOptions::default());
    let wishes = terms.wishes.clone();
    let mut net = Net::new(terms, vec![DesiredOptions::default()], CALM);
    net.run(Duration::from_secs(2));
    let before = net.sent_to[0];
    for cap in 1..=2000u64 {
        wishes.lock().unwrap().rate_cap_bytes_per_second = Some(1_000_000 + cap);
        net.server.refresh_options(net.now);
        net.run(Duration::from_millis(1));
    }
    let told = net.sent_to[0] - before;
    assert!(told < 10_000, "one change in 200 ms is told: {told} bytes");
    net.run(Duration::from_secs(1));
    assert_eq!(net.agreed(0).unwrap().rate_cap_bytes_per_second, Some(1_002_000), "the last one holds");
    net.order(0, 0, READ, &[], 4096);
    net.run(Duration::from_secs(1));
    assert_eq!((net.answers[0].len(), net.lost), (1, 0));
}

#[test]
fn neither_end_sends_more_than_the_cap_and_not_much_less() {
    let cap = 2_000_000;
    for (server, client) in [(Some(cap), None), (None, Some(cap)), (Some(2 * cap), Some(cap))] {
        let wishes = |cap| DesiredOptions { rate_cap_bytes_per_second: cap, ..DesiredOptions::default() };
        let mut net = connected(wishes(server), wishes(client), CALM);
        let data = noise(50_000);
        let fits =
            |bytes: u64| assert!((cap * 5 * 9 / 10..cap * 5 * 21 / 20).contains(&bytes), "{bytes} of {}", cap * 5);
        let before = net.sent_by[0];
        net.run_with(Duration::from_secs(5), |net| while net.order(0, 0, WRITE, &data, 0) {});
        fits(net.sent_by[0] - before);
        net.run(Duration::from_secs(2));
        let before = net.sent_to[0];
        net.run_with(Duration::from_secs(5), |net| while net.order(0, 0, READ, &[], 50_000) {});
        fits(net.sent_to[0] - before);
    }
}

#[test]
fn the_smaller_largest_transfer_holds_at_both_ends() {
    let wishes = |bytes| DesiredOptions { transfer_max_bytes: Some(bytes), ..DesiredOptions::default() };
    let mut net = connected(wishes(65_536), wishes(131_072), CALM);
    assert_eq!(net.clients[0].server().unwrap().transfer_max_bytes, 65_536);
    net.order(0, 0, WRITE, &text(65_537), 0);
    net.order(0, 0, WRITE, &text(65_536), 0);
    net.order(0, 0, READ, &[], 100_000);
    net.run(Duration::from_secs(1));
    assert_eq!(net.failures, [Failure::TooLarge]);
    assert_eq!(net.answers[0].iter().map(|(_, data)| data.len()).collect::<Vec<_>>(), [0, 65_536]);
}

/// Bytes that clients of these weights and priorities got through a link that all of them fill.
fn shares(clients: &[(u16, Option<u8>)]) -> Vec<u64> {
    let mut terms = terms(DesiredOptions { priority: Some(7), ..DesiredOptions::default() });
    for (number, (weight, _)) in clients.iter().enumerate() {
        terms.weights.insert(identity(number).client_id(), *weight);
    }
    let wishes = clients
        .iter()
        .map(|(_, priority)| DesiredOptions { priority: Some(priority.unwrap_or(0)), ..DesiredOptions::default() });
    read(Net::new(terms, wishes.collect(), CALM))
}

/// Bytes that each got through a link that all of them fill.
fn read(mut net: Net) -> Vec<u64> {
    net.link_bytes_per_second = Some(12_500_000);
    net.run(Duration::from_secs(2));
    assert!(net.is_connected());
    let refill = |net: &mut Net| {
        for number in 0..net.clients.len() {
            while net.order(number, 0, READ, &[], 65_536) {}
        }
    };
    net.run_with(Duration::from_secs(1), refill);
    let before = net.sent_to.clone();
    net.run_with(Duration::from_secs(10), refill);
    assert_eq!(net.lost, 0);
    net.sent_to.iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn a_client_of_weight_three_gets_three_times_a_client_of_weight_one() {
    for clients in [vec![(3, None), (1, None)], vec![(1, None), (3, None)], vec![(300, None), (100, None)]] {
        let got = shares(&clients);
        let (most, least) = (got[0].max(got[1]) as f64, got[0].min(got[1]) as f64);
        assert!((2.7..3.3).contains(&(most / least)), "{clients:?}: {got:?}");
        assert!(most + least > 0.9 * 125_000_000.0, "the link is full: {got:?}");
    }
}

#[test]
fn a_priority_that_changes_counts_from_then_on() {
    let terms = terms(DesiredOptions::default());
    let wishes = terms.wishes.clone();
    let of = |priority| DesiredOptions { priority: Some(priority), ..DesiredOptions::default() };
    let mut net = Net::new(terms, vec![of(3), of(0)], CALM);
    net.run(Duration::from_secs(1));
    wishes.lock().unwrap().priority = Some(7);
    net.server.refresh_options(net.now);
    net.run(Duration::from_secs(1));
    let packets = |number: usize| {
        let statuses = net.server.connection_statuses();
        let status = statuses.iter().find(|(client, _)| *client == identity(number).client_id());
        status.map(|(_, status)| status.windows.inward.in_flight_packets()).unwrap()
    };
    assert!(packets(0) > 3 * packets(1), "{} and {}", packets(0), packets(1));
}

#[test]
fn clients_of_one_weight_get_the_same_and_priority_counts_as_weight() {
    let got = shares(&[(2, None), (2, None), (2, None), (2, None)]);
    let sum: f64 = got.iter().map(|bytes| *bytes as f64).sum();
    let squares: f64 = got.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
    assert!(sum * sum / (4.0 * squares) > 0.99, "Jain's index of {got:?}");
    let got = shares(&[(1, Some(1)), (1, None)]);
    assert!((1.8..2.2).contains(&(got[0] as f64 / got[1] as f64)), "{got:?}");
}
