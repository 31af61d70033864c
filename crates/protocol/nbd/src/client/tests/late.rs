//! What a lost connection carried may be done late.

use super::*;

/// A write is under way when the connections break; it was given again, and done.
fn given_again(world: &mut World) {
    let first = world.write(1024, 1, 512);
    assert_eq!(world.server.pending(), 1);
    world.cut();
    world.pass(Duration::from_secs(1));
    world.run();
    assert!(matches!(world.result(first), Some(Ok(Answer::Done))));
}

#[test]
fn a_newer_write_waits_for_what_a_lost_connection_may_still_bring() {
    let mut world = World::new(Traits::default());
    given_again(&mut world);
    let (newer, apart) = (world.write(1024, 2, 512), world.write(4096, 3, 512));
    let zeroed = world.order(Order::Zero { offset_bytes: 1024, length_bytes: 64, keeps_space: false });
    let (read, before) = (world.read(1024, 512), world.read(8192, 512));
    world.run();
    assert!(world.result(apart).is_some() && world.result(before).is_some(), "they have nothing to do with it");
    assert!(world.result(newer).is_none() && world.result(zeroed).is_none() && world.result(read).is_none());
    assert!(world.server.work_late(0), "there it is");
    world.pass(LINGER);
    world.run();
    assert!(world.result(newer).is_some() && world.result(zeroed).is_some());
    let mut expected = [2; 512];
    expected[..64].fill(0);
    assert_eq!(world.bytes(read), expected);
}

#[test]
fn a_write_that_has_failed_comes_late_all_the_same() {
    let config = Config { patience: Duration::ZERO, ..config() };
    let mut world = World::with(config, Traits::default(), usize::MAX);
    let failed = world.write(1024, 1, 512);
    world.cut();
    assert!(matches!(world.result(failed), Some(Err(Failure::Gone { .. }))));
    world.pass(Duration::from_secs(1));
    let newer = world.write(1024, 2, 512);
    world.run();
    assert!(world.result(newer).is_none());
    world.server.work_late(0);
    world.pass(LINGER);
    world.run();
    assert!(world.result(newer).is_some_and(|result| result.is_ok()));
    assert_eq!(world.server.disk[1024], 2);
}

#[test]
fn nothing_waits_for_a_server_that_is_known_to_have_ended() {
    let mut world = World::new(Traits::default());
    given_again(&mut world);
    let newer = world.write(1024, 2, 512);
    world.run();
    assert!(world.result(newer).is_none());
    world.client.servers_have_ended();
    world.run();
    assert!(world.result(newer).is_some());
}

#[test]
fn many_lost_writes_are_remembered_as_one() {
    let config = Config { kept_max_bytes: 1 << 20, ..config() };
    let mut world = World::with(config, Traits::default(), usize::MAX);
    for _ in 0..20 {
        for block in 0..100 {
            world.write(8192 + block * 512, 1, 512);
        }
        world.cut();
        world.pass(Duration::from_millis(60));
        world.run();
    }
    let (within, before) = (world.write(8192 + 50 * 512, 2, 512), world.write(0, 2, 512));
    world.run();
    assert!(world.result(within).is_none() && world.result(before).is_some());
    world.pass(LINGER);
    world.run();
    assert!(world.result(within).is_some());
}
