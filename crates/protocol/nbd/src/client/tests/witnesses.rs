//! Whether an export is the one that it was.

use super::*;

fn written_and_flushed(offset_bytes: u64, byte: u8) -> World {
    let mut world = World::new(Traits::default());
    world.write(offset_bytes, byte, 4096);
    world.run();
    world.order(Order::Flush);
    world.run();
    world
}

fn is_refused(world: &mut World) -> bool {
    world.pass(Duration::from_secs(1));
    world.run();
    let tells = |event: &Event| matches!(event, Event::Lost { reason } if reason.contains("does not hold what was"));
    world.events.iter().any(tells)
}

#[test]
fn a_server_that_has_lost_what_was_stable_is_not_used_on() {
    let mut world = written_and_flushed(8192, 7);
    world.server.disk.fill(0);
    world.cut();
    let (read, written) = (world.read(8192, 512), world.write(0, 9, 512));
    assert!(is_refused(&mut world));
    assert!(world.result(read).is_none() && world.server.disk[0] == 0, "nothing is given to it");
    for _ in 0..60 {
        world.pass(Duration::from_secs(1));
        world.run();
    }
    for waiting in [read, written] {
        let failed = world.result(waiting);
        assert!(
            matches!(&failed, Some(Err(Failure::Gone { reason })) if reason.contains("does not hold")),
            "{failed:?}"
        );
    }
    // The right one again.
    world.server.disk[8192..12_288].fill(7);
    world.pass(Duration::from_secs(5));
    world.run();
    let read = world.read(8192, 512);
    world.run();
    assert_eq!(world.bytes(read), [7; 512]);
}

#[test]
fn a_server_that_has_lost_what_was_stable_is_not_asked_all_the_time() {
    let mut world = written_and_flushed(8192, 7);
    world.server.disk.fill(0);
    world.cut();
    for _ in 0..1200 {
        world.pass(Duration::from_millis(50));
        world.run();
    }
    let losses = world.events.iter().filter(|event| matches!(event, Event::Lost { .. })).count();
    assert!((25..50).contains(&losses), "{losses} in a minute");
}

#[test]
fn what_may_have_been_written_since_is_no_evidence() {
    // A newer write that is under way, and one that is done and not stable.
    for is_done in [false, true] {
        let mut world = written_and_flushed(8192, 7);
        world.write(8192, 8, 512);
        if is_done {
            world.run();
        }
        world.server.disk[8192..8704].fill(0);
        world.cut();
        assert!(!is_refused(&mut world));
    }
    // One that has failed with the connection, and is done late.
    let config = Config { patience: Duration::ZERO, ..config() };
    let mut world = World::with(config, Traits::default(), usize::MAX);
    world.write(8192, 7, 512);
    world.run();
    world.write(8192, 8, 512);
    world.cut();
    world.pass(Duration::from_secs(1));
    world.run();
    world.order(Order::Flush);
    world.run();
    assert!(world.server.work_late(0) && world.server.disk[8192] == 8);
    world.cut();
    assert!(!is_refused(&mut world));
}

#[test]
fn zeroes_and_errors_are_no_evidence() {
    let mut world = written_and_flushed(8192, 0);
    world.server.disk.fill(9);
    world.cut();
    assert!(!is_refused(&mut world));
    let mut world = written_and_flushed(8192, 7);
    world.server.fails = Some((crate::wire::CMD_READ, 5));
    world.cut();
    assert!(!is_refused(&mut world));
}
