//! What becomes of commands under way when a connection is lost and the session goes on, and when it does not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_core::{ClientId, Lun, Peer};
use sanwire_scsi::{Reply, build};

use super::world::{MS, World};
use super::{server, server_for};
use crate::wire::command::Ask;
use crate::{Admission, ClientEvent, CommandHandle, CommandId, DesiredOptions, Failure, Order, ServerEvent};

/// The largest transfer that the server wants.
#[derive(Clone, Default)]
struct Most(Arc<Mutex<Option<u32>>>);

impl Admission for Most {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn wishes(&self, _: ClientId) -> DesiredOptions {
        DesiredOptions { transfer_max_bytes: *self.0.lock().unwrap(), ..DesiredOptions::default() }
    }
}

impl World {
    /// Commands that the server has been asked since the last look.
    fn asked(&mut self) -> Vec<CommandHandle> {
        let events = std::iter::from_fn(|| self.server.poll_event());
        events
            .filter_map(|event| if let ServerEvent::Command { handle, .. } = event { Some(handle) } else { None })
            .collect()
    }

    /// The server forgets the connection, but not the session.
    fn cut(&mut self) {
        let old = *self.server.connections.keys().next().unwrap();
        self.server.drop_connection(old, self.now);
    }

    fn events(&mut self) -> Vec<ClientEvent> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    fn give(&mut self, lun: u16, data_bytes: usize) -> CommandId {
        let ask = Ask::Command(build::test_unit_ready());
        let data_out = (data_bytes > 0).then(|| vec![1; data_bytes].into());
        let order = Order { lun: Lun::new(lun).unwrap(), ask, is_repeatable: true, data_out, data_in: None };
        self.client.order(order, self.now).unwrap()
    }
}

fn completed(events: &[ClientEvent]) -> Vec<CommandId> {
    let id = |event: &ClientEvent| if let ClientEvent::Completed { id, .. } = event { Some(*id) } else { None };
    events.iter().filter_map(id).collect()
}

/// Its caller would give it in pieces, beside the one that the server still works on.
#[test]
fn what_was_asked_goes_on_with_the_session_however_small_the_largest_transfer_becomes() {
    let most = Most::default();
    let mut world = World::with(server_for(Box::new(most.clone())));
    world.pass(Duration::from_secs(1));
    let first = world.give(0, 500_000);
    world.pass(200 * MS);
    let [executing] = world.asked()[..] else { panic!("it is being executed") };
    // One that the server has not heard of whole when the connection is lost.
    let second = world.give(0, 400_000);
    world.pass(MS);
    *most.0.lock().unwrap() = Some(64 << 10);
    world.cut();
    world.pass(Duration::from_secs(3));
    let events = world.events();
    assert!(events.iter().any(|event| matches!(event, ClientEvent::Connected { resumed: true, .. })), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, ClientEvent::Failed { .. })), "{events:?}");
    assert_eq!(world.client.server().unwrap().transfer_max_bytes, 64 << 10, "to that new ones are cut");
    world.server.reply(executing, Reply::good(None), world.now);
    for handle in world.asked() {
        world.server.reply(handle, Reply::good(None), world.now);
    }
    world.pass(500 * MS);
    let mut answered = completed(&world.events());
    answered.sort_unstable();
    assert_eq!(answered, [first, second]);
}

#[test]
fn a_forgotten_session_takes_its_large_transfers_with_it() {
    let most = Most::default();
    let mut world = World::with(server_for(Box::new(most.clone())));
    world.pass(Duration::from_secs(1));
    let large = world.give(0, 500_000);
    world.pass(200 * MS);
    *most.0.lock().unwrap() = Some(64 << 10);
    world.server = server_for(Box::new(most));
    world.pass(Duration::from_secs(3));
    let failed = world.events().into_iter().find_map(|event| match event {
        ClientEvent::Failed { id, failure, .. } => Some((id, failure)),
        _ => None,
    });
    assert_eq!(failed, Some((large, Failure::TooLarge)));
}

/// Its tag would be another command's while requests and answers under it are on their way.
#[test]
fn a_command_that_the_server_was_asked_cannot_be_abandoned_before_its_answer() {
    let mut world = World::new();
    world.client.hold_after_restart();
    let id = world.give(0, 0);
    world.pass(50 * MS);
    let [handle] = world.asked()[..] else { panic!("it is being executed") };
    world.client.abandon(Lun::default(), Failure::InDoubt);
    world.client.withdraw(id.number());
    assert_eq!((world.client.in_transit(), world.events().len()), (1, 0));
    world.server.reply(handle, Reply::good(None), world.now);
    world.pass(50 * MS);
    assert_eq!(completed(&world.events()), [id]);
}

#[test]
fn what_is_held_waits_through_further_reconnections_and_what_is_not_does_not() {
    let mut world = World::new();
    world.client.hold_after_restart();
    let held = [world.give(0, 0), world.give(1, 0), world.give(2, 0)];
    world.pass(20 * MS);
    assert_eq!(world.asked().len(), 3);
    world.server = server();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.asked().len(), 0, "they wait");
    let own = world.give(0, 0);
    world.pass(20 * MS);
    let [first] = world.asked()[..] else { panic!("it is asked at once") };
    world.cut();
    world.server.reply(first, Reply::good(None), world.now);
    world.pass(Duration::from_secs(2));
    assert_eq!(completed(&world.events()), [own], "it was answered to the next connection");
    assert_eq!(world.asked().len(), 0, "the others still wait");
    world.client.abandon(Lun::new(1).unwrap(), Failure::InDoubt);
    world.client.withdraw(held[2].number());
    let failed = world.events().into_iter().map(|event| match event {
        ClientEvent::Failed { id, failure: Failure::InDoubt, .. } => id,
        event => panic!("{event:?}"),
    });
    assert_eq!(failed.collect::<Vec<_>>(), held[1..]);
    world.client.release();
    world.pass(20 * MS);
    assert_eq!(world.asked().len(), 1);
}
