//! Options that change on a connection that lives, by either end.

use std::time::Duration;

use sanwire_core::{Lun, Protection};
use sanwire_hyperscsi::{DesiredOptions, DeviceOption, Failure, Stance};

use crate::net::{Net, READ, Terms, WRITE};
use crate::{CALM, STORM, compressing, connected, terms, text};

/// What both ends take that was sent before a change, and a little more.
const GRACE: Duration = Duration::from_millis(5500);

/// Reads and writes for a while, of which some are always under way.
fn work(net: &mut Net, lun: u16, duration: Duration) {
    let data = text(40_000);
    let end = net.now + duration;
    while net.now < end {
        net.order(0, lun, WRITE, &data, 0);
        net.order(0, lun, READ, &[], 40_000);
        net.run(Duration::from_millis(50));
    }
}

/// How the packets are guarded of what is asked and answered from now on.
fn guards(net: &mut Net, lun: u16) -> Option<Protection> {
    net.run(Duration::from_secs(2));
    net.guards.clear();
    work(net, lun, Duration::from_millis(500));
    net.guards.first().copied()
}

fn is_unharmed(net: &Net) {
    let data = text(40_000);
    assert!(net.written.len() > 20 && net.written.iter().all(|written| *written == data));
    assert_eq!((net.lost, net.kinds_of_answers(0).len(), net.failures.len()), (0, 1, 0));
    for counters in [net.server.counters(), net.clients[0].counters()] {
        assert_eq!((counters.downgrades, counters.violations, counters.conflicts), (0, 0, 0));
    }
}

#[test]
fn the_floor_rises_and_falls_under_load_and_nothing_is_guarded_less_afterwards() {
    let terms = terms(DesiredOptions::default());
    let floor = terms.floor.clone();
    let mut net = Net::new(terms, vec![DesiredOptions::default()], STORM);
    net.content = text(40);
    net.run(Duration::from_secs(5));
    let levels = [Protection::Hash, Protection::Aes128Gcm, Protection::Checksum, Protection::Aes256Gcm];
    for level in levels.into_iter().chain([Protection::ChaCha20Poly1305, Protection::Checksum]) {
        *floor.lock().unwrap() = Some(level);
        net.server.refresh_options(net.now);
        work(&mut net, 0, Duration::from_secs(2));
        assert_eq!(net.agreed(0).unwrap().protection_min, level);
        assert_eq!(net.changed.as_ref().unwrap().protection_min, level);
        work(&mut net, 0, GRACE);
        assert_eq!(guards(&mut net, 0), Some(level));
    }
    is_unharmed(&net);
}

#[test]
fn a_units_protection_changes_under_load_without_an_offence_or_an_error() {
    for weather in [CALM, STORM] {
        let terms = Terms::default();
        let third = terms.third.clone();
        let mut net = Net::new(terms, vec![DesiredOptions::default()], weather);
        net.content = text(40);
        net.run(Duration::from_secs(5));
        assert_eq!(guards(&mut net, 3), Some(Protection::Checksum));
        let mut before = Protection::Checksum;
        for level in [Protection::Hash, Protection::Aes256Gcm, Protection::Checksum, Protection::Aes128Gcm] {
            work(&mut net, 3, Duration::from_millis(120));
            net.server.unit_demands_more(Lun::new(3).unwrap(), before, net.now);
            *third.lock().unwrap() = level;
            work(&mut net, 3, Duration::from_millis(500));
            assert_eq!(guards(&mut net, 3), Some(level));
            before = level;
        }
        is_unharmed(&net);
    }
}

#[test]
fn transfers_of_the_former_size_end_well_however_late_they_come_when_the_largest_one_becomes_smaller() {
    // So they take longer than anything else of before is taken.
    let terms = terms(DesiredOptions { rate_cap_bytes_per_second: Some(500_000), ..DesiredOptions::default() });
    let wishes = terms.wishes.clone();
    let mut net = Net::new(terms, vec![DesiredOptions::default()], STORM);
    net.content = text(40);
    net.run(Duration::from_secs(5));
    let large = text(1 << 20);
    let order = |net: &mut Net| {
        for _ in 0..4 {
            assert!(net.order(0, 0, WRITE, &large, 0) && net.order(0, 0, READ, &[], 1 << 20));
        }
    };
    order(&mut net);
    net.run(Duration::from_millis(3));
    wishes.lock().unwrap().transfer_max_bytes = Some(65_536);
    net.server.refresh_options(net.now);
    net.run(GRACE);
    assert_eq!(net.clients[0].server().unwrap().transfer_max_bytes, 65_536);
    assert!(net.written.len() < 4, "they are still under way");
    // One more fails alone.
    assert!(net.order(0, 0, WRITE, &text((1 << 20) + 1), 0));
    net.run(GRACE * 4);
    // What was cut for the old size by who has not looked yet.
    order(&mut net);
    net.run(GRACE * 5);
    assert!(net.written.len() == 8 && net.written.iter().all(|data| data.len() == 1 << 20));
    let read: Vec<usize> = net.answers[0].iter().map(|(_, data)| data.len()).filter(|bytes| *bytes > 0).collect();
    assert_eq!(read, [1 << 20; 8]);
    assert_eq!(net.failures, [Failure::TooLarge]);
    assert_eq!((net.lost, net.server.counters().violations), (0, 0));
}

#[test]
fn a_client_changes_its_options_under_load_as_far_as_the_server_agrees() {
    let server = DesiredOptions { rate_cap_bytes_per_second: Some(5_000_000), ..compressing() };
    let mut net = connected(server, DesiredOptions::default(), STORM);
    net.content = text(40);
    let wishes = [
        (
            DesiredOptions { rate_cap_bytes_per_second: Some(1_000_000), ..DesiredOptions::default() },
            Protection::Checksum,
        ),
        (DesiredOptions { rate_cap_bytes_per_second: Some(9_000_000), ..compressing() }, Protection::Checksum),
        (DesiredOptions { medium_lock: true, read_only: true, ..DesiredOptions::default() }, Protection::Aes128Gcm),
        (
            DesiredOptions { transfer_max_bytes: Some(65_536), priority: Some(3), ..DesiredOptions::default() },
            Protection::Hash,
        ),
    ];
    let expected =
        [(1_000_000, false, false), (5_000_000, true, false), (5_000_000, false, true), (5_000_000, false, false)];
    for ((wishes, protection_min), (cap, compression, lock)) in wishes.into_iter().zip(expected) {
        let transfer_max_bytes = wishes.transfer_max_bytes;
        net.clients[0].wish(wishes.clone(), protection_min, net.now).unwrap();
        work(&mut net, 0, Duration::from_secs(2));
        let (at_client, at_server) = (net.agreed(0).unwrap(), net.changed.clone().unwrap());
        assert_eq!(at_server.peer_is_read_only, wishes.read_only);
        for agreed in [at_client, at_server] {
            assert_eq!(agreed.rate_cap_bytes_per_second, Some(cap));
            assert_eq!((agreed.compression, agreed.medium_lock), (compression, lock));
            assert_eq!((agreed.protection_min, agreed.transfer_max_bytes), (protection_min, transfer_max_bytes));
            assert_eq!(agreed.priority, 0, "the server has granted none");
        }
    }
    work(&mut net, 0, GRACE);
    assert_eq!(guards(&mut net, 0), Some(Protection::Hash));
    is_unharmed(&net);
    assert!(net.refused.is_empty());
}

#[test]
fn a_wish_that_the_server_cannot_meet_is_refused_and_what_held_before_holds_also_on_the_next_connection() {
    let terms = terms(DesiredOptions::default());
    let wishes = terms.wishes.clone();
    let capped = DesiredOptions { rate_cap_bytes_per_second: Some(1_000_000), ..DesiredOptions::default() };
    let mut net = Net::new(terms, vec![capped.clone()], STORM);
    net.run(Duration::from_secs(5));
    let impossible = DesiredOptions { compression: Stance::Enforced, ..DesiredOptions::default() };
    net.clients[0].wish(impossible, Protection::Checksum, net.now).unwrap();
    net.run(Duration::from_secs(2));
    assert_eq!(net.refused, [DeviceOption::Compression]);
    assert_eq!((net.lost, net.agreed(0).unwrap().rate_cap_bytes_per_second), (0, Some(1_000_000)));
    assert!(net.server.counters().conflicts > 0 && net.clients[0].counters().conflicts == 1);
    // The server changes its mind, which ends the connection; the client comes again with what it wanted before.
    wishes.lock().unwrap().others = crate::wish(DeviceOption::Compression, Stance::Enforced, &[1]).others;
    net.server.refresh_options(net.now);
    net.run(Duration::from_secs(3));
    *wishes.lock().unwrap() = DesiredOptions::default();
    net.run(Duration::from_secs(5));
    assert!(net.is_connected() && net.lost > 0);
    assert_eq!(net.agreed(0).unwrap().rate_cap_bytes_per_second, Some(1_000_000));
}

#[test]
fn a_wish_while_the_server_is_away_holds_when_it_is_back() {
    let mut net = connected(DesiredOptions::default(), DesiredOptions::default(), CALM);
    net.server.shut_down();
    let mut capped = Some(DesiredOptions { rate_cap_bytes_per_second: Some(1_000_000), ..DesiredOptions::default() });
    net.run_with(Duration::from_secs(5), |net| {
        if net.clients[0].server().is_none()
            && let Some(capped) = capped.take()
        {
            net.clients[0].wish(capped, Protection::Checksum, net.now).unwrap();
        }
    });
    assert!(capped.is_none());
    assert!(net.is_connected() && net.lost == 1);
    assert_eq!(net.agreed(0).unwrap().rate_cap_bytes_per_second, Some(1_000_000));
}

#[test]
fn a_server_that_stops_is_not_come_back_to() {
    let mut net = connected(DesiredOptions::default(), DesiredOptions::default(), CALM);
    net.server.admit_no_more();
    net.server.shut_down();
    net.run(Duration::from_secs(5));
    assert_eq!((net.is_connected(), net.lost), (false, 1));
}

#[test]
fn who_loses_the_question_for_a_higher_floor_does_not_see_data_guarded_less() {
    let mut net = connected(DesiredOptions::default(), DesiredOptions::default(), CALM);
    assert_eq!(guards(&mut net, 0), Some(Protection::Checksum));
    net.is_deaf = true;
    net.clients[0].wish(DesiredOptions::default(), Protection::Aes128Gcm, net.now).unwrap();
    net.run(Duration::from_secs(10));
    assert!(net.is_connected() && net.lost == 1 && net.refused.is_empty());
    assert_eq!(net.agreed(0).unwrap().protection_min, Protection::Aes128Gcm);
    assert_eq!(guards(&mut net, 0), Some(Protection::Aes128Gcm));
    net.server.shut_down();
    net.run(Duration::from_secs(10));
    assert_eq!((net.lost, net.agreed(0).unwrap().protection_min), (2, Protection::Aes128Gcm), "nor later");
}

#[test]
fn a_client_that_the_server_does_not_go_together_with_gets_in_when_it_wishes_what_the_server_requires() {
    let required = DesiredOptions { compression: Stance::Enforced, ..DesiredOptions::default() };
    let mut net = Net::new(terms(required), vec![DesiredOptions::default()], CALM);
    net.run(Duration::from_millis(400));
    assert!(!net.is_connected() && net.clients[0].counters().conflicts > 0);
    net.clients[0].wish(compressing(), Protection::Checksum, net.now).unwrap();
    net.run(Duration::from_secs(5));
    assert!(net.is_connected() && net.agreed(0).unwrap().compression);
    assert!(net.failures.is_empty() && net.refused.is_empty());
}

#[test]
fn a_wish_while_the_server_is_away_that_it_cannot_meet_is_refused_when_it_is_back() {
    let capped = DesiredOptions { rate_cap_bytes_per_second: Some(1_000_000), ..DesiredOptions::default() };
    let mut net = connected(DesiredOptions::default(), capped, CALM);
    net.server.shut_down();
    let mut impossible = Some(DesiredOptions { compression: Stance::Enforced, ..DesiredOptions::default() });
    net.run_with(Duration::from_secs(5), |net| {
        if net.clients[0].server().is_none()
            && let Some(impossible) = impossible.take()
        {
            net.clients[0].wish(impossible, Protection::Checksum, net.now).unwrap();
        }
    });
    assert_eq!(net.refused, [DeviceOption::Compression]);
    assert!(net.is_connected() && net.lost == 1);
    assert_eq!(net.agreed(0).unwrap().rate_cap_bytes_per_second, Some(1_000_000));
}

#[test]
fn both_ends_that_change_their_options_at_once_agree_in_the_end() {
    let terms = terms(DesiredOptions::default());
    let (wishes, floor) = (terms.wishes.clone(), terms.floor.clone());
    let mut net = Net::new(terms, vec![DesiredOptions::default()], STORM);
    net.content = text(40);
    net.run(Duration::from_secs(5));
    let levels = [Protection::Checksum, Protection::Aes256Gcm, Protection::Hash];
    for round in 1..=9u64 {
        let (of_server, of_client) = (levels[round as usize % 3], levels[round as usize / 3 % 3]);
        let capped = |cap: u64| DesiredOptions { rate_cap_bytes_per_second: Some(cap), ..DesiredOptions::default() };
        (*wishes.lock().unwrap(), *floor.lock().unwrap()) = (capped(5_000_000 + round), Some(of_server));
        net.server.refresh_options(net.now);
        net.clients[0].wish(capped(5_000_009 - round), of_client, net.now).unwrap();
        work(&mut net, 0, Duration::from_secs(2));
        let agreed = net.agreed(0).unwrap();
        assert_eq!(Some(&agreed), net.changed.as_ref());
        assert_eq!(agreed.protection_min, of_server.max(of_client));
        assert_eq!(agreed.rate_cap_bytes_per_second, Some((5_000_000 + round).min(5_000_009 - round)));
    }
    is_unharmed(&net);
}
