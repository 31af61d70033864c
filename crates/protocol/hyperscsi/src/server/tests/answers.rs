//! Answers that nobody takes: few are kept, and of little data.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_core::quota::{ANSWER_BYTES_OF_SESSION, ANSWERS_OF_SESSION};
use sanwire_scsi::{Cdb, Reply, build};

use super::server;
use super::world::World;
use crate::ServerEvent;
use crate::wire::Protection;
use crate::wire::command::Ask;

const S: Duration = Duration::from_secs(1);

fn ready() -> Ask {
    Ask::Command(build::test_unit_ready())
}

impl World {
    /// Executes what has come, with answers of so much data that is in no region; gives how many.
    fn execute(&mut self, data_bytes: usize) -> usize {
        let events = std::iter::from_fn(|| self.server.poll_event());
        let handles: Vec<_> = events
            .filter_map(|event| match event {
                ServerEvent::Command { handle, .. } => Some(handle),
                _ => None,
            })
            .collect();
        for handle in &handles {
            let data_in = (data_bytes > 0).then(|| vec![7; data_bytes].into());
            self.server.reply(*handle, Reply::good(data_in), self.now);
        }
        handles.len()
    }

    fn untaken(&self) -> (usize, u64) {
        self.server.connections.values().next().map_or((0, 0), |connection| connection.channel.untaken())
    }
}

#[test]
fn answers_about_weak_requests_that_nobody_takes_do_not_pile_up() {
    let level = Arc::new(Mutex::new(Protection::Checksum));
    let own = Arc::clone(&level);
    let mut server = server();
    server.config.levels = Box::new(move |lun| if lun.is_none() { Protection::Checksum } else { *own.lock().unwrap() });
    let mut world = World::with(server);
    world.pass(S);
    *level.lock().unwrap() = Protection::Aes256Gcm;
    (0..ANSWERS_OF_SESSION.limit).for_each(|number| world.request(number, ready()));
    world.pass(S);
    assert_eq!((world.server.connections(), world.untaken()), (1, (0, 0)), "the client takes them");
    (0..=ANSWERS_OF_SESSION.limit).for_each(|number| world.request(number, ready()));
    assert_eq!((world.server.connections(), world.server.counters().unheeded), (0, 1));
}

#[test]
fn who_says_that_it_has_answers_and_acknowledges_none_is_not_served_without_end() {
    let mut world = World::new();
    world.pass(S);
    for number in 0..10_000 {
        world.request_after(number, number, ready());
        world.execute(0);
    }
    assert_eq!((world.server.connections(), world.server.counters().unheeded), (0, 1));
    assert_eq!(world.server.sessions.len(), 1, "it may come again");
    let usage = world.server.accounts.answers.usage();
    assert_eq!((usage.most, usage.refused), (Some(ANSWERS_OF_SESSION.limit), 1));
}

#[test]
fn long_answers_that_nobody_takes_are_not_made_without_end() {
    let mut world = World::new();
    world.pass(S);
    let mut executed = 0;
    for number in 0..1000 {
        world.request_after(number, number, ready());
        executed += world.execute(64 << 10);
    }
    let (_, untaken_bytes) = world.untaken();
    assert!(untaken_bytes <= ANSWER_BYTES_OF_SESSION.limit + (64 << 10), "{untaken_bytes}");
    assert!((128..=129).contains(&executed), "{executed}: the others are told that there is no room");
    world.pass(10 * S);
    assert_eq!(world.untaken(), (0, 0), "the client takes them");
    world.request_after(1000, 1000, ready());
    assert_eq!(world.execute(64 << 10), 1, "and is served again");
}

/// Of sessions that are away a client may have many, and of commands with much to tell, too.
#[test]
fn what_was_told_of_reservations_is_asked_again_after_a_lost_connection_and_not_kept() {
    let mut world = World::new();
    world.pass(S);
    let full_status = || Ask::Command(Cdb::from([0x5e, 3, 0, 0, 0, 0, 0, 0xff, 0xff, 0]));
    world.request(0, full_status());
    assert_eq!(world.execute(64 << 10), 1);
    world.server.sessions.values_mut().for_each(|session| session.connect(77));
    world.request(0, full_status());
    assert_eq!(world.execute(64 << 10), 1, "it is executed again");
}
