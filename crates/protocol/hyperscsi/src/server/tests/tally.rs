//! What is counted stays counted when its connection is gone.

use std::time::Duration;

use sanwire_core::{Instant, LinkId};

use super::world::World;
use super::{client, client_knowing, config_for, exchange, id, server};
use crate::{Handshakes, LinkTally, Server, ServerConfig};

#[test]
fn handshakes_are_told_by_their_results() {
    let (mut server, now) = (server(), Instant::ZERO);
    let mut clients = [client(1), client_knowing(2, [0xee; 32])];
    exchange(&mut server, &mut clients, now);
    assert_eq!(server.handshakes(), Handshakes { established: 1, wrong_password: 1, ..Handshakes::default() });
    assert_eq!(server.handshakes().results()[..2], [("established", 1), ("wrong password", 1)]);
}

#[test]
fn new_keys_and_packets_that_were_sent_again_are_told_by_links() {
    let config = ServerConfig { rekey_interval: Duration::from_secs(2), ..config_for(Box::new(|_, _| true)) };
    let mut world = World::with(Server::new(config));
    world.order(0);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.come(), [0]);
    // The answer is lost for a while.
    world.run(Duration::from_millis(300), &mut |_| true);
    world.pass(Duration::from_secs(3));
    let told = world.server.link_tallies();
    let LinkTally { rekeys, resent_packets, timeouts } = told[&LinkId(0)];
    assert!(rekeys == 1 && resent_packets > 0 && timeouts > 0 && told.len() == 1, "{told:?}");
    world.server.drop_client(id(1), world.now);
    assert_eq!((world.server.connections(), world.server.link_tallies()), (0, told));
}
