//! Clients that keep to their cap, and one that does not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_core::{ClientId, Peer};

use super::server_for;
use super::world::{MS, World};
use crate::{Admission, Wishes};

const CAP: u64 = 1_000_000;

/// The cap that the server wants.
#[derive(Clone)]
struct Cap(Arc<Mutex<Option<u64>>>);

impl Admission for Cap {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn wishes(&self, _: ClientId) -> Wishes {
        Wishes { rate_cap_bytes_per_second: *self.0.lock().unwrap(), ..Wishes::default() }
    }
}

/// Bytes of the commands that come while the client always has something to send.
fn come(world: &mut World, duration: Duration) -> u64 {
    let (end, mut bytes) = (world.now + duration, 0);
    while world.now < end {
        while world.client.in_transit() < 8 {
            world.order(20_000);
        }
        world.pass(MS);
        bytes += world.come().iter().map(|bytes| *bytes as u64).sum::<u64>();
        world.answers();
    }
    bytes
}

#[test]
fn a_client_that_ignores_its_cap_gets_no_more_than_one_that_keeps_to_it() {
    let mut world = World::with(server_for(Box::new(Cap(Arc::new(Mutex::new(Some(CAP)))))));
    let kept = come(&mut world, Duration::from_secs(10));
    assert!((9 * CAP..11 * CAP).contains(&kept), "{kept}");
    assert_eq!(world.server.counters().excess, 0, "who keeps to it is left alone");
    world.client.ignore_cap();
    let got = come(&mut world, Duration::from_secs(10));
    assert!(got < 11 * CAP, "{got} bytes in 10 s at {CAP} in a second");
    assert!(world.server.counters().excess > 0);
}

#[test]
fn a_cap_that_changes_finds_nobody_in_excess_who_heeds_it() {
    let cap = Cap(Arc::new(Mutex::new(None)));
    let mut world = World::with(server_for(Box::new(cap.clone())));
    for wanted in [None, Some(50 * CAP), Some(CAP), Some(2 * CAP), None, Some(CAP)] {
        *cap.0.lock().unwrap() = wanted;
        world.server.refresh_options(world.now);
        come(&mut world, Duration::from_millis(700));
        assert_eq!(world.server.counters().excess, 0, "{wanted:?}");
    }
}
