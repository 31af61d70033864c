//! A hostile server that tells its client options without end.

use std::time::Duration;

use super::world::{MS, World};
use crate::options::{DeviceOption, Offered, Options, Stance};
use crate::wire::Opcode;
use crate::wire::live::{LiveRequest, NewOptions};

/// The server says this, sealed, whatever it is.
fn say(world: &mut World, body: Vec<u8>) {
    let id = *world.server.connections.keys().next().unwrap();
    world.server.connections.get_mut(&id).unwrap().channel.send_control(Opcode::AdnRequest, body);
    world.server.touch(id);
}

fn capped(change: u32, cap: u64) -> Vec<u8> {
    let mut options = Options::default();
    let value = cap.to_be_bytes().to_vec();
    options.set(DeviceOption::RateCap.number(), Offered { stance: Stance::Enforced, value }).unwrap();
    LiveRequest::Options(NewOptions { change, options }).write()
}

/// Whether a command of the client is answered, and its connection is still the first.
fn is_served(world: &mut World) {
    world.order(20_000);
    world.pass(500 * MS);
    assert_eq!(world.come(), [20_000]);
    world.pass(500 * MS);
    assert_eq!(world.answers(), 1);
}

#[test]
fn a_client_takes_a_few_changes_in_a_second_counts_the_others_and_goes_on() {
    let mut world = World::new();
    world.pass(Duration::from_secs(2));
    let sent = world.sent;
    for change in 1..=1000 {
        say(&mut world, capped(change, 100_000_000 + u64::from(change)));
        if change % 10 == 0 {
            world.pass(MS);
        }
    }
    assert_eq!(world.client.counters().violations, 992, "eight are taken");
    assert!(world.sent - sent < 30, "{} answers", world.sent - sent);
    assert_eq!(world.client.server().unwrap().options.rate_cap_bytes_per_second, Some(100_000_008));
    is_served(&mut world);
    world.pass(Duration::from_secs(1));
    say(&mut world, capped(2000, 5_000_000));
    world.pass(MS);
    assert_eq!(
        world.client.server().unwrap().options.rate_cap_bytes_per_second,
        Some(5_000_000),
        "later ones count again"
    );
}

#[test]
fn options_that_are_none_and_such_as_are_old_change_nothing() {
    let mut world = World::new();
    say(&mut world, capped(5, 5_000_000));
    world.pass(MS);
    let agreed = world.client.server().unwrap().options;
    assert_eq!(agreed.rate_cap_bytes_per_second, Some(5_000_000));
    let whole = capped(6, 1);
    let mut twice = capped(6, 1);
    // Two options of one number.
    twice[6] = 2;
    twice.extend_from_within(7..);
    for length in 1..whole.len() {
        say(&mut world, whole[..length].to_vec());
        world.pass(MS);
    }
    say(&mut world, twice);
    world.pass(MS);
    assert_eq!(world.client.counters().violations, whole.len() as u64);
    for change in 0..5 {
        say(&mut world, capped(change, 1));
    }
    world.pass(MS);
    assert_eq!(world.client.server().unwrap().options, agreed);
    is_served(&mut world);
}
