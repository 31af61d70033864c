use super::*;
use crate::wire::*;

#[test]
fn what_was_not_answered_is_given_again() {
    let mut world = World::new(Traits::default());
    let (written, read) = (world.write(0, 5, 4096), world.read(8192, 512));
    world.cut();
    assert!(world.result(written).is_none());
    world.pass(Duration::from_secs(1));
    world.run();
    assert!(matches!(world.result(written), Some(Ok(Answer::Done))));
    assert_eq!(world.bytes(read), [0; 512]);
    assert!(world.events.iter().any(|event| matches!(event, Event::Lost { reason } if reason == "cut")));
    assert!(world.events.iter().any(|event| matches!(event, Event::Restored { given_again: 0 })));
}

#[test]
fn a_server_that_loses_what_it_answered_is_given_it_again_before_it_is_read() {
    let mut world = World::new(Traits::default());
    world.write(0, 1, 4096);
    world.run();
    world.order(Order::Flush);
    world.run();
    world.write(512, 2, 512);
    world.order(Order::Zero { offset_bytes: 2048, length_bytes: 512, keeps_space: false });
    world.run();
    world.server.lose_power();
    world.cut();
    let (read, flush) = (world.read(0, 4096), world.order(Order::Flush));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.server.pending(), 1, "what is stable is looked at first");
    world.server.work(0);
    world.carry();
    let requests: Vec<u16> = world.server.done.iter().map(|request| request.kind).collect();
    assert_eq!(world.server.pending(), 2, "neither the read nor the flush before what is given again: {requests:?}");
    world.run();
    let mut expected = [1; 4096];
    expected[512..1024].fill(2);
    expected[2048..2560].fill(0);
    assert!(world.bytes(read) == expected);
    assert!(matches!(world.result(flush), Some(Ok(_))));
    assert!(world.server.stable[..4096] == expected, "the flush came after it");
    world.server.done.clear();
    world.cut();
    world.pass(Duration::from_secs(1));
    world.run();
    assert!(world.server.done.iter().all(|request| request.kind == CMD_READ), "what is stable is not given again");
}

#[test]
fn a_write_that_cannot_be_given_again_fails_the_next_flush() {
    let mut world = World::new(Traits::default());
    world.write(0, 1, 4096);
    world.run();
    world.server.fails = Some((CMD_WRITE, 28));
    world.cut();
    world.pass(Duration::from_secs(1));
    world.run();
    for is_told in [true, false] {
        let flush = world.order(Order::Flush);
        world.run();
        let failed = matches!(world.result(flush), Some(Err(Failure::Server { errno: 28, .. })));
        assert_eq!(failed, is_told, "once");
    }
}

#[test]
fn what_is_kept_is_bounded_by_flushes_of_its_own() {
    let mut world = World::new(Traits::default());
    let ids: Vec<OrderId> = (0..64).map(|at| world.write(at * 1024, 1, 1024)).collect();
    world.run();
    assert!(ids.into_iter().all(|id| matches!(world.result(id), Some(Ok(_)))));
    assert!(world.client.kept.bytes() <= config().kept_max_bytes);
    assert!(world.server.done.iter().filter(|request| request.kind == CMD_FLUSH).count() >= 4);
    // A disk that fails to flush is told of, and does not stop what writes on.
    world.server.fails = Some((CMD_FLUSH, 5));
    let ids: Vec<OrderId> = (0..64).map(|at| world.write(at * 1024, 2, 1024)).collect();
    world.run();
    assert!(ids.into_iter().all(|id| matches!(world.result(id), Some(Ok(_)))));
    world.server.fails = None;
    let flush = world.order(Order::Flush);
    world.run();
    assert!(matches!(world.result(flush), Some(Err(Failure::Server { errno: 5, .. }))));
}

#[test]
fn orders_fail_when_the_server_stays_away_and_it_is_sought_on() {
    let mut world = World::new(Traits::default());
    world.write(0, 9, 512);
    world.run();
    world.is_reachable = false;
    let waiting = world.write(0, 5, 4096);
    world.server.lose_power();
    world.cut();
    world.pass(Duration::from_secs(29));
    assert!(world.result(waiting).is_none());
    world.pass(Duration::from_secs(2));
    assert!(matches!(world.result(waiting), Some(Err(Failure::Gone { .. }))));
    let at_once = world.read(0, 512);
    assert!(matches!(world.result(at_once), Some(Err(Failure::Gone { .. }))));
    world.pass(Duration::from_secs(600));
    world.is_reachable = true;
    world.pass(Duration::from_secs(3));
    let read = world.read(0, 512);
    world.run();
    assert_eq!(world.bytes(read), [9; 512], "what was answered is kept all the while, what failed is not given again");
}

#[test]
fn another_export_in_its_place_is_not_taken_for_it() {
    let mut world = World::new(Traits::default());
    world.server.traits.size_bytes -= 512;
    world.cut();
    let read = world.read(0, 512);
    world.pass(Duration::from_secs(5));
    assert!(world.result(read).is_none());
    let is_told = |event: &Event| matches!(event, Event::AttemptFailed { reason, is_refused: true } if reason.contains("65024 bytes now"));
    assert!(world.events.iter().any(is_told), "{:?}", world.events);
    world.server.traits.size_bytes += 512;
    world.pass(Duration::from_secs(5));
    world.run();
    assert_eq!(world.bytes(read), [0; 512]);
}

#[test]
fn a_server_that_is_shutting_down_is_left() {
    let mut world = World::new(Traits::default());
    world.server.fails = Some((CMD_WRITE, 108));
    let written = world.write(0, 5, 512);
    world.run();
    assert!(world.result(written).is_none());
    world.server.fails = None;
    world.pass(Duration::from_secs(1));
    world.run();
    assert!(matches!(world.result(written), Some(Ok(Answer::Done))));
}

#[test]
fn one_that_accepts_and_says_nothing_is_left_in_time() {
    let mut world = World::new(Traits::default());
    let now = world.now;
    let mut client = Client::new(config(), now);
    let Some(Action::Connect(id)) = client.poll_action() else { panic!("no attempt") };
    client.connected(id);
    assert_eq!(client.poll_timeout(), Some(now + config().connect_timeout));
    client.handle_timeout(now + config().connect_timeout);
    assert!(
        matches!(client.poll_event(), Some(Event::AttemptFailed { reason, is_refused: false }) if reason.contains("does not answer"))
    );
    assert_eq!(client.poll_action(), Some(Action::Close(id)));
    world.client.disconnect();
    world.carry();
    assert_eq!(world.server.pending(), 0);
}
