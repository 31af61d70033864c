//! Pauses of data: asked by either end, and told by a server that has no memory for what comes.

use std::time::Duration;

use sanwire_buffer::{Frame, Packet};
use sanwire_core::{Instant, Lun};
use sanwire_scsi::{Reply, build};

use super::{client, exchange, path, server};
use crate::wire::command::Ask;
use crate::{Client, ClientEvent, Order, Server, ServerEvent};

const MS: Duration = Duration::from_millis(1);

/// Both ends, and a clock.
struct World {
    server: Server,
    client: Client,
    now: Instant,
    /// Packets from the client so far.
    sent: u32,
}

impl World {
    fn new() -> Self {
        let (mut server, mut clients) = (server(), [client(1)]);
        exchange(&mut server, &mut clients, Instant::ZERO);
        while server.poll_event().is_some() {}
        let [mut client] = clients;
        while client.poll_event().is_some() {}
        World { server, client, now: Instant::ZERO, sent: 0 }
    }

    /// Time passes, and packets; those from the server of which `is_lost` holds do not come.
    fn run(&mut self, duration: Duration, is_lost: &mut dyn FnMut(&Packet) -> bool) {
        let end = self.now + duration;
        while self.now < end {
            self.now += MS;
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            for _ in 0..10 {
                while let Some((_, packet)) = self.client.poll_transmit(self.now) {
                    self.sent += 1;
                    self.server.handle_input(path(100), &bytes(&packet), self.now);
                }
                while let Some((_, packet)) = self.server.poll_transmit(self.now) {
                    if !is_lost(&packet) {
                        self.client.handle_input(path(1), &bytes(&packet), self.now);
                    }
                }
            }
        }
    }

    fn pass(&mut self, duration: Duration) {
        self.run(duration, &mut |_| false);
    }

    fn order(&mut self, data_bytes: usize) {
        let data_out = (data_bytes > 0).then(|| vec![1; data_bytes].into());
        let ask = Ask::Command(build::test_unit_ready());
        self.client.order(Order { lun: Lun::default(), ask, data_out, data_in: None }, self.now).unwrap();
    }

    /// Bytes of the commands that have come since the last look.
    fn come(&mut self) -> Vec<usize> {
        let events = std::iter::from_fn(|| self.server.poll_event());
        let tasks = events.filter_map(|event| match event {
            ServerEvent::Command { handle, task } => Some((handle, task)),
            _ => None,
        });
        let tasks: Vec<_> = tasks.collect();
        for (handle, _) in &tasks {
            self.server.reply(*handle, Reply::good(None), self.now);
        }
        tasks.iter().map(|(_, task)| task.data_out.as_ref().map_or(0, |data| data.len())).collect()
    }

    fn answers(&mut self) -> usize {
        std::iter::from_fn(|| self.client.poll_event()).fold(0, |count, event| {
            assert!(matches!(event, ClientEvent::Completed { .. }), "the connection stays");
            count + 1
        })
    }

    /// All the memory of the server.
    fn all_memory(&self) -> Frame {
        self.server.config.memory.frame(self.server.config.memory.free_bytes()).unwrap()
    }
}

fn bytes(packet: &Packet) -> Vec<u8> {
    [&packet.head[..], packet.payload.as_deref().unwrap_or(&[])].concat()
}

#[test]
fn what_finds_no_memory_is_kept_back_until_there_is_some_and_what_needs_none_goes_on() {
    let mut world = World::new();
    let held = world.all_memory();
    world.order(50_000);
    world.order(0);
    world.pass(2 * MS);
    assert_eq!(world.come(), [0], "what needs no memory does not wait");
    let sent = world.sent;
    world.pass(100 * MS);
    assert!(world.sent <= sent + 2, "{} packets that find no memory", world.sent - sent);
    world.pass(Duration::from_secs(5));
    // Each time that the pause has passed there is one attempt, of a window at the most.
    assert!(world.sent <= sent + 25 * 15, "{} packets that find no memory", world.sent - sent);
    world.order(0);
    world.pass(2 * MS);
    assert_eq!(world.come(), [0], "nor later");
    drop(held);
    world.pass(30 * MS);
    assert_eq!(world.come(), [50_000], "it goes when there is memory");
    world.pass(2 * MS);
    assert_eq!(world.answers(), 3);
}

#[test]
fn the_word_that_there_is_memory_is_said_until_it_is_heard() {
    let mut world = World::new();
    let held = world.all_memory();
    world.order(50_000);
    // Just after an attempt: the next one by itself is far.
    while world.server.counters().no_memory == 0 {
        world.pass(MS);
    }
    world.pass(10 * MS);
    drop(held);
    let mut lost = 0;
    world.run(10 * MS, &mut |_| {
        lost += 1;
        lost == 1
    });
    assert!(lost > 0 && world.come().is_empty(), "the word was lost");
    world.pass(100 * MS);
    assert_eq!(world.come(), [50_000]);
}

#[test]
fn a_pause_for_want_of_memory_ends_also_when_no_word_comes() {
    let mut world = World::new();
    let held = world.all_memory();
    world.order(50_000);
    world.pass(10 * MS);
    let count = world.server.counters().no_memory;
    assert!(count > 0);
    drop(held);
    // The server has forgotten that it owes a word.
    world.server.starved.clear();
    world.pass(100 * MS);
    assert_eq!((world.come().len(), world.server.counters().no_memory), (0, count), "it waits");
    world.pass(200 * MS);
    assert_eq!(world.come(), [50_000]);
}

#[test]
fn a_pause_that_is_overtaken_by_its_end_changes_nothing() {
    let mut world = World::new();
    let id = super::id(1);
    let said = |world: &mut World, is_paused: bool| {
        world.server.pause(id, is_paused, world.now);
        bytes(&world.server.poll_transmit(world.now).unwrap().1)
    };
    let (pause, resume) = (said(&mut world, true), said(&mut world, false));
    world.client.handle_input(path(1), &resume, world.now);
    world.client.handle_input(path(1), &pause, world.now);
    world.order(50_000);
    world.pass(10 * MS);
    assert_eq!(world.come(), [50_000]);
}

#[test]
fn a_client_that_pauses_its_server_gets_no_answer_until_it_lets_it_go_on() {
    let mut world = World::new();
    world.client.pause(true, world.now);
    world.order(50_000);
    world.pass(10 * MS);
    assert_eq!(world.come(), [50_000], "its commands are executed");
    world.pass(Duration::from_secs(20));
    assert_eq!(world.answers(), 0, "and the connection stays");
    world.client.pause(false, world.now);
    world.pass(10 * MS);
    assert_eq!(world.answers(), 1);
}
