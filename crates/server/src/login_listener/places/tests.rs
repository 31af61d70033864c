use std::net::{Ipv4Addr, Ipv6Addr};

use sanwire_core::quota::{LOGINS, LOGINS_OF_NETWORK, LOGINS_OF_STRANGERS};

use super::*;
use crate::budget::Budget;

/// Those of a process that may have so many descriptors.
fn places_within(descriptors: u64) -> Places {
    Places::new(Arc::new(LoginAccounts::new(&Budget::new(descriptors))))
}

fn places() -> Places {
    places_within(1 << 20)
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + number).into()
}

/// Takes places for so many connections of a host, and gives the next key.
fn fill(places: &mut Places, first_key: u64, count: u64, number: u32) -> u64 {
    for key in first_key..first_key + count {
        places.take(key, address(number), false);
    }
    first_key + count
}

#[test]
fn half_open_logins_of_few_hosts_push_out_one_another_and_nobody_else() {
    let mut places = places();
    let mut key = 0;
    for number in 0..5 {
        key = fill(&mut places, key, 128, number);
    }
    let honest = key;
    assert!(places.take(honest, address(100), false).is_some_and(|victim| victim < honest));
    for step in 0..5000 {
        let victim = places.take(honest + 1 + step, address((step % 5) as u32), false);
        assert!(victim.is_some_and(|victim| victim != honest));
    }
    assert_eq!((places.homes.len() as u64, places.known.taken), (LOGINS.limit, LOGINS.limit));
}

#[test]
fn a_host_that_has_all_it_may_have_loses_its_oldest_and_first_those_that_are_silent() {
    let mut places = places();
    let next = fill(&mut places, 0, LOGINS_OF_NETWORK.limit, 1);
    places.has_spoken(0);
    places.has_spoken(1);
    assert_eq!(places.take(next, address(1), false), Some(2), "the others have said something");
    assert_eq!(places.take(next + 1, address(2), false), None);
    for silent in 3..=next {
        places.has_spoken(silent);
    }
    assert_eq!(places.take(next + 2, address(1), false), Some(0), "all have spoken: the oldest");
}

#[test]
fn whom_no_rule_may_name_never_takes_the_place_of_who_may_be_named() {
    let mut places = places();
    let mut key = 0;
    for number in 0..LOGINS.limit as u32 {
        key = fill(&mut places, key, 1, number);
    }
    for stranger in 0..1000 {
        let victim = places.take(key + stranger, address(2000 + stranger as u32), true);
        assert_eq!(victim, (stranger >= 64).then(|| key + stranger - 64), "strangers are among themselves");
    }
    assert_eq!((places.known.taken, places.strangers.taken), (LOGINS.limit, LOGINS_OF_STRANGERS.limit));
    assert_eq!(places.take(key + 1000, address(5000), false), Some(0), "and hinder nobody");
}

#[test]
fn a_network_of_ipv6_counts_as_one_host() {
    let mut places = places();
    let within = |low: u128| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8_0000_0001 << 64 | low));
    for key in 0..128 {
        assert_eq!(places.take(key, within(u128::from(key) << 7), false), None);
    }
    assert_eq!(places.take(128, within(u128::from(u64::MAX)), false), Some(0));
    assert_eq!(places.take(129, "2001:db8:0:2::1".parse().unwrap(), false), None);
    let mapped = "::ffff:10.0.0.7".parse().unwrap();
    assert_eq!(source(mapped), address(7), "an IPv4 address inside IPv6 is one");
}

fn neighbour(low: u64) -> IpAddr {
    Ipv6Addr::from_bits(0x2001_0db8_0000_0001 << 64 | u128::from(low)).into()
}

#[test]
fn one_host_of_a_network_of_ipv6_pushes_out_only_its_own() {
    let mut places = places();
    places.take(0, neighbour(1), false);
    places.take(1, neighbour(2), false);
    places.has_spoken(1);
    for key in 2..5000 {
        let victim = places.take(key, neighbour(3), false);
        assert!(victim.is_none_or(|victim| victim >= 2), "login {key} takes the place of {victim:?}");
    }
}

#[test]
fn hosts_of_one_link_are_not_one_host() {
    let mut places = places();
    let on_the_link = |number: u16| IpAddr::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number));
    for key in 0..LOGINS_OF_NETWORK.limit + 10 {
        assert_eq!(places.take(key, on_the_link(key as u16), false), None);
    }
}

#[test]
fn neither_who_only_connects_nor_who_only_begins_pushes_out_who_does_the_other() {
    for speaks in [true, false] {
        let mut places = places();
        let next = fill(&mut places, 0, LOGINS_OF_NETWORK.limit, 1);
        if speaks {
            (0..next).for_each(|key| places.has_spoken(key));
        }
        // One that has just come, among those that have all begun; or one that has begun, among those that only come.
        places.take(next, address(1), false);
        if !speaks {
            places.has_spoken(next);
        }
        for key in next + 1..next + 50 {
            let victim = places.take(key, address(1), false);
            assert!(victim.is_some_and(|victim| victim != next), "{speaks}");
            if speaks {
                places.has_spoken(key);
            }
        }
    }
}

#[test]
fn a_place_that_was_left_is_free() {
    let mut places = places();
    let next = fill(&mut places, 0, LOGINS_OF_NETWORK.limit, 1);
    places.leave(5);
    places.leave(5);
    assert_eq!(places.take(next, address(1), false), None);
    assert_eq!(places.take(next + 1, address(1), false), Some(0));
    (0..next + 2).for_each(|key| places.leave(key));
    assert!(places.homes.is_empty() && places.known.hosts.is_empty() && places.known.taken == 0, "nothing is kept");
}

#[test]
fn few_descriptors_mean_few_places() {
    let mut places = places_within(72);
    for key in 0..10 {
        assert_eq!(places.take(key, address(key as u32), false), None);
    }
    assert_eq!(places.take(10, address(10), false), Some(0));
    assert_eq!(
        places.accounts.usages().map(|usage| (usage.limit, usage.refused)),
        [(10, 0), (10, 0), (10, 1), (60, 0)]
    );
}

#[test]
fn lines_about_logins_are_bounded_and_whoever_asks_hears_how_many_were_left_out() {
    let (accounts, now) = (places().accounts, sanwire_core::Instant::ZERO);
    let logged = (0..1000).filter(|_| accounts.next_line(now).is_some()).count();
    assert_eq!((logged, accounts.usages()[3].refused), (20, 980));
    let later = now + std::time::Duration::from_secs(1);
    assert!(
        accounts.next_line(later).unwrap().to_string().contains("980 lines") && accounts.next_line(later).is_none()
    );
}

#[test]
fn whoever_asks_hears_how_the_places_are_used() {
    let mut places = places();
    let next = fill(&mut places, 0, LOGINS_OF_NETWORK.limit + 2, 1);
    places.take(next, address(2), true);
    let seen = places.accounts.usages().map(|usage| (usage.most, usage.refused));
    assert_eq!(seen, [(Some(1), 0), (Some(128), 2), (Some(129), 0), (None, 0)]);
}
