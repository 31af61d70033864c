//! What is counted stays counted when its connection is gone.

use std::time::Duration;

use sanwire_buffer::{Frame, Region, Slices};
use sanwire_core::{Carried, Instant, LinkId, Lun};
use sanwire_scsi::{Reply, build};

use super::world::World;
use super::{client, client_knowing, config_for, exchange, id, server};
use crate::wire::command::Ask;
use crate::{Handshakes, LinkTally, Order, Server, ServerConfig, ServerEvent};

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

#[test]
fn what_is_copied_of_writes_and_answers_is_told() {
    let config = ServerConfig { compressible: Box::new(|_| false), ..config_for(Box::new(|_, _| true)) };
    let mut world = World::with(Server::new(config));
    world.order(5000);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.come(), [5000]);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.server.written(), Carried { in_place: 0, copied: 5000 });
    assert_eq!(world.server.answered(), Carried::default());
    // One answer lies in memory for data, and one on the heap.
    let data = Region::new(4096).unwrap().frame(1024).unwrap().freeze();
    for data in [Slices::from(data), Slices::from(vec![1; 512])] {
        let ask = Ask::Command(build::test_unit_ready());
        let data_in = Frame::zeroed(1024);
        let order = Order { lun: Lun::default(), ask, is_repeatable: true, data_out: None, data_in };
        world.client.order(order, world.now).unwrap();
        world.pass(Duration::from_millis(100));
        let handle = std::iter::from_fn(|| world.server.poll_event()).find_map(|event| match event {
            ServerEvent::Command { handle, .. } => Some(handle),
            _ => None,
        });
        world.server.reply(handle.unwrap(), Reply::good(Some(data)), world.now);
        world.pass(Duration::from_millis(100));
    }
    let told = world.server.answered();
    assert_eq!(told, Carried { in_place: 1024, copied: 512 });
    world.server.drop_client(id(1), world.now);
    assert_eq!((world.server.connections(), world.server.answered()), (0, told));
}
