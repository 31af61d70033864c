//! Answers that nobody takes: few are kept, and of little data.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_buffer::{Frame, Slices};
use sanwire_core::quota::{ANSWER_BYTES_OF_SESSION, ANSWERS_OF_SESSION, LENT_BYTES_OF_SESSION};
use sanwire_scsi::{Cdb, CommandSet, Features, Reply, Task, build};

use super::server;
use super::world::World;
use crate::ServerEvent;
use crate::channel::Held;
use crate::wire::Protection;
use crate::wire::command::Ask;

const S: Duration = Duration::from_secs(1);

fn ready() -> Ask {
    Ask::Command(build::test_unit_ready())
}

impl World {
    /// Executes what was received, with answers of so much data that is in no region; gives how many.
    fn execute(&mut self, data_bytes: usize) -> usize {
        let tasks = self.answer_all(|| (data_bytes > 0).then(|| vec![7; data_bytes].into()));
        tasks.len()
    }

    /// Executes what was received, with this data; gives what it was asked to do.
    fn answer_all(&mut self, data_in: impl Fn() -> Option<Slices>) -> Vec<Task> {
        let events = std::iter::from_fn(|| self.server.poll_event());
        let commands: Vec<_> = events
            .filter_map(|event| match event {
                ServerEvent::Command { handle, task } => Some((handle, task)),
                _ => None,
            })
            .collect();
        commands
            .into_iter()
            .map(|(handle, task)| {
                let is_bulk_read = CommandSet::disk(Features::default()).is_bulk_read(&task.cdb);
                self.server.reply(handle, Reply { is_bulk_read, ..Reply::good(data_in()) }, self.now);
                task
            })
            .collect()
    }

    fn untaken(&self) -> Held {
        self.server.connections.values().next().map(|connection| connection.channel.untaken()).unwrap_or_default()
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
    assert_eq!((world.server.connections(), world.untaken()), (1, Held::default()), "the client takes them");
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
    let untaken_bytes = world.untaken().heap_bytes;
    assert!(untaken_bytes <= ANSWER_BYTES_OF_SESSION.limit + (64 << 10), "{untaken_bytes}");
    assert!((128..=129).contains(&executed), "{executed}: the others are told that there is no room");
    world.pass(10 * S);
    assert_eq!(world.untaken(), Held::default(), "the client takes them");
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

/// What a volume in memory shares is no memory that the answers take; but who takes none of them keeps what is overwritten meanwhile.
#[test]
fn who_holds_much_of_a_store_gets_copies_and_is_served() {
    let mut world = World::new();
    world.pass(S);
    let store = || Some(Frame::from(vec![7; 1 << 20]).of_store().freeze().slice(0..512).into());
    let (mut tasks, most) = (Vec::new(), LENT_BYTES_OF_SESSION.limit >> 20);
    for number in 0..2 * most {
        world.request_after(number, number, ready());
        tasks.extend(world.answer_all(store));
    }
    let may_share: Vec<bool> = tasks.iter().map(|task| task.may_share).collect();
    assert_eq!(may_share.len() as u64, 2 * most, "all are served");
    assert_eq!(may_share.iter().position(|may_share| !may_share), Some(most as usize + 1), "until there is too much");
    assert_eq!(world.untaken(), Held { messages: may_share.len(), heap_bytes: 0, lent_bytes: (2 * most) << 20 });
    world.pass(10 * S);
    assert_eq!(world.untaken(), Held::default(), "the client takes them");
    world.request_after(2 * most, 2 * most, ready());
    assert!(world.answer_all(store)[0].may_share);
}
