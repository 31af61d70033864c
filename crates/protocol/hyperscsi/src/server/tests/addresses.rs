//! Where the server can be reached, as its clients hear of it.

use sanwire_core::Peer;

use super::world::{MS, World};
use crate::ClientEvent;
use crate::wire::links::Address;

fn address(last: u8, speed_mbit: u32) -> Address {
    Address { peer: Peer::Udp(([10, 0, 0, last], 5674).into()), packet_max_bytes: 1500, speed_mbit }
}

/// What the client has heard since the last look.
fn heard(world: &mut World) -> Vec<Vec<Address>> {
    let events = std::iter::from_fn(|| world.client.poll_event());
    events.filter_map(|event| if let ClientEvent::Addresses(told) = event { Some(told) } else { None }).collect()
}

#[test]
fn clients_hear_of_other_addresses_until_they_answer_and_of_other_speeds_with_them_only() {
    let mut world = World::new();
    let (one, two) = (vec![address(1, 1000)], vec![address(2, 100), address(1, 10)]);
    world.server.set_addresses(one.clone(), world.now);
    world.pass(MS);
    assert_eq!(heard(&mut world), std::slice::from_ref(&one));

    world.server.set_addresses(two.clone(), world.now);
    world.run(100 * MS, &mut |_| true);
    assert_eq!(heard(&mut world), [[]; 0]);
    world.pass(300 * MS);
    assert_eq!(heard(&mut world), std::slice::from_ref(&two), "once more, and no more");

    world.server.set_addresses(vec![address(1, 1000), address(2, 100)], world.now);
    world.pass(300 * MS);
    assert_eq!(heard(&mut world), [[]; 0]);
    world.server.set_addresses(one.clone(), world.now);
    world.pass(MS);
    assert_eq!(heard(&mut world), [one]);
}
