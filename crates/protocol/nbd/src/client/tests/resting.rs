//! A client that is not used any more, and what its server still has of it.

use super::*;

#[test]
fn the_writes_that_a_server_has_are_waited_for_and_no_others_follow() {
    let mut world = World::new(Traits::default());
    let (kept, flying) = (world.write(0, 1, 512), world.write(1024, 2, 512));
    assert_eq!(world.server.pending(), 2);
    assert!(world.server.work(0));
    world.carry();
    assert!(world.result(kept).is_some() && world.result(flying).is_none());
    world.read(8192, 512);
    // One that the driver has not polled, and one behind the write under way.
    world.client.order(Order::Write { offset_bytes: 4096, data: vec![3; 512].into() }, world.now);
    world.client.order(Order::Write { offset_bytes: 1024, data: vec![4; 512].into() }, world.now);
    world.client.abandon();
    world.carry();
    assert!(!world.client.is_at_rest() && world.server.pending() == 2, "the write and the read");
    world.run();
    assert!(world.client.is_at_rest() && world.client.may_be_at_work_until().is_none());
    assert_eq!((world.server.disk[1024], world.server.disk[4096]), (2, 0));
    assert_eq!(world.server.done.len(), 3, "both writes, and the read");
}

#[test]
fn a_write_of_which_a_part_was_polled_is_sent_to_its_end() {
    let mut world = World::with(Config { connections: 1, ..config() }, Traits::default(), usize::MAX);
    let data = Slices::gather([1, 2, 3].map(|byte| Slice::from(vec![byte; 512]))).unwrap();
    world.client.order(Order::Write { offset_bytes: 4096, data }, world.now);
    world.client.order(Order::Write { offset_bytes: 0, data: vec![4; 512].into() }, world.now);
    let id = world.client.connections().next().unwrap();
    let first = world.client.poll_transmit(id).unwrap();
    world.server.input(id.0, &first.to_vec());
    world.client.abandon();
    world.run();
    assert!(world.client.is_at_rest());
    let expected = [[1; 512], [2; 512], [3; 512]].concat();
    assert!(world.server.disk[4096..5632] == expected && world.server.disk[..512] == [0; 512]);
}

#[test]
fn a_connection_that_breaks_then_is_not_made_again_and_its_writes_may_linger() {
    let mut world = World::new(Traits::default());
    world.write(1024, 2, 512);
    world.client.abandon();
    world.cut();
    assert!(world.client.is_at_rest());
    assert_eq!(world.client.may_be_at_work_until(), Some(world.now + LINGER));
    world.pass(Duration::from_secs(2));
    assert!(world.open.is_empty() && world.client.connections().next().is_none());
    world.client.servers_have_ended();
    assert_eq!(world.client.may_be_at_work_until(), None);
}
