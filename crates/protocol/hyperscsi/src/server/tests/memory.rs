//! Memory that clients hold which do nothing by which it would be given back, and answers that nobody takes.

use std::time::Duration;

use sanwire_buffer::{Frame, Region, Shortage};
use sanwire_core::{Lun, NexusId};
use sanwire_scsi::{Cdb, Reply, build};

use super::world::{MS, World, bytes};
use super::{config_for, path};
use crate::server::Server;
use crate::server::connection::Request;
use crate::wire::command::{Ask, Function, RequestHead};
use crate::wire::live::LiveReply;
use crate::wire::packet::Prefix;
use crate::wire::{Opcode, Protection, Tag};
use crate::{ClientEvent, CommandHandle, Order, ServerEvent};

const S: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 << 10;

fn opcode(packet: &[u8]) -> Opcode {
    Prefix::read(packet).unwrap().0.header.opcode
}

impl World {
    /// Time passes, and of the packets those of which this holds: of the client's, and of the server's.
    fn pass_some(&mut self, duration: Duration, is_heard: fn(Opcode) -> bool, comes: fn(Opcode) -> bool) {
        self.pass_as(duration, &is_heard, &comes);
    }

    fn pass_as(&mut self, duration: Duration, is_heard: &dyn Fn(Opcode) -> bool, comes: &dyn Fn(Opcode) -> bool) {
        let end = self.now + duration;
        while self.now < end {
            self.now += 10 * MS;
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            while let Some((_, packet)) = self.client.poll_transmit(self.now) {
                let packet = bytes(&packet);
                if is_heard(opcode(&packet)) {
                    self.server.handle_input(path(100), &packet, self.now);
                }
            }
            while let Some((_, packet)) = self.server.poll_transmit(self.now) {
                let packet = bytes(&packet);
                if comes(opcode(&packet)) {
                    self.client.handle_input(path(1), &packet, self.now);
                }
            }
        }
    }

    fn read(&mut self) {
        let ask = Ask::Command(Cdb::from([0x28, 0, 0, 0, 0, 0, 0, 0, 128, 0]));
        let data_in = Some(Frame::from(vec![0; READ_BYTES]));
        self.client
            .order(Order { lun: Lun::default(), ask, is_repeatable: true, data_out: None, data_in }, self.now)
            .unwrap();
    }

    /// Answers the reads that have come, and those that wait, as far as their session has memory; gives those for which it has none.
    fn execute_reads(&mut self, mut reads: Vec<CommandHandle>) -> Vec<CommandHandle> {
        let share = self.server.sessions.values().next().unwrap().memory.clone();
        let events = std::iter::from_fn(|| self.server.poll_event());
        reads.extend(events.filter_map(|event| match event {
            ServerEvent::Command { handle, .. } => Some(handle),
            _ => None,
        }));
        reads.retain(|handle| {
            let frame = share.frame(READ_BYTES);
            let waits = frame.is_none();
            if let Some(frame) = frame {
                let read = Reply { is_bulk_read: true, ..Reply::good(Some(frame.freeze().into())) };
                self.server.reply(*handle, read, self.now);
            }
            waits
        });
        reads
    }

    /// A request comes, whatever else its client does.
    pub(super) fn request(&mut self, number: u64, ask: Ask) {
        self.request_after(0, number, ask);
    }

    /// The same, of a client that says that it has all answers below a number.
    pub(super) fn request_after(&mut self, settled_below: u64, number: u64, ask: Ask) {
        let nexus = *self.server.sessions.keys().next().unwrap();
        let head = RequestHead { number, settled_below, receipts: 0, lun: [0; 8], data_in_max_bytes: 0, ask };
        let protection = Protection::Checksum;
        let request = Request { tag: Tag::default(), head, data: None, protection, is_local: false };
        self.server.handle_request(nexus, path(100), request, self.now);
    }

    /// Reads until the share of the session is full, and takes none of the answers.
    fn fill_share(&mut self) -> Vec<CommandHandle> {
        (0..20).for_each(|_| self.read());
        self.pass_some(10 * MS, |_| true, |opcode| opcode != Opcode::HcbeReply);
        self.execute_reads(Vec::new())
    }

    fn memory(&self) -> &Region {
        &self.server.config.memory
    }

    fn is_all_memory_free(&self) -> bool {
        self.memory().free_bytes() == self.memory().length_bytes()
    }

    /// As the layer above does it: what has not begun when the connection ends is not going to.
    fn withdraw(&mut self, waiting: Vec<CommandHandle>) {
        while let Some(event) = self.server.poll_event() {
            if matches!(event, ServerEvent::Disconnected { .. }) {
                waiting.iter().for_each(|handle| self.server.withdraw(*handle, self.now));
            }
        }
    }
}

/// Another session waits for memory of this share.
fn shortage_of(share: &Region) -> Shortage {
    [(NexusId(9), share)].into_iter().collect()
}

/// A share that can be filled by few commands.
fn small_share() -> Server {
    let config = config_for(Box::new(|_, _| true));
    Server::new(crate::ServerConfig { transfer_max_bytes: READ_BYTES as u32, ..config })
}

#[test]
fn a_client_that_dies_while_it_reads_leaves_its_share_to_others_and_finds_all_when_it_is_back() {
    let mut world = World::with(small_share());
    world.pass(S);
    let waiting = world.fill_share();
    assert_eq!(waiting.len(), 8, "twelve have three quarters");
    world.pass_some(16 * S, |_| false, |_| false);
    assert!(world.is_all_memory_free(), "{:?}", world.memory());
    assert_eq!((world.server.connections(), world.server.sessions.len()), (0, 1));
    world.withdraw(waiting);
    assert_eq!(world.server.sessions.values().next().unwrap().executing(), 0, "the session can end");
    let (mut answered, mut waiting) = (0, Vec::new());
    for _ in 0..200 {
        world.pass(10 * MS);
        waiting = world.execute_reads(waiting);
        answered += std::iter::from_fn(|| world.client.poll_event())
            .filter(|event| matches!(event, ClientEvent::Completed { .. }))
            .count();
    }
    assert_eq!(answered, 20, "they are read again");
}

#[test]
fn a_client_that_is_heard_and_does_not_say_what_has_come_is_dropped() {
    let mut world = World::with(small_share());
    world.pass(S);
    let waiting = world.fill_share();
    let says_that_it_lives = |opcode| opcode == Opcode::AdnReply;
    let hears_keep_alives = |opcode| opcode == Opcode::AdnRequest;
    world.pass_some(9 * S, says_that_it_lives, hears_keep_alives);
    assert_eq!(world.server.connections(), 1);
    world.pass_some(2 * S, says_that_it_lives, hears_keep_alives);
    assert_eq!((world.server.connections(), world.server.counters().unheeded), (0, 1));
    assert!(world.is_all_memory_free());
    drop(waiting);
}

#[test]
fn who_takes_no_answers_gives_its_memory_up_when_others_have_not_the_least() {
    let mut world = World::with(small_share());
    world.pass(S);
    world.fill_share();
    let other = world.memory().share(READ_BYTES);
    world.pass_some(3 * S, |_| false, |_| false);
    world.server.relieve(&shortage_of(&other), world.now);
    assert_eq!(world.server.connections(), 1, "the other one has memory");
    let rest = world.memory().frame(world.memory().free_bytes());
    assert!(other.frame(READ_BYTES).is_none());
    world.server.relieve(&shortage_of(&other), world.now);
    assert_eq!((world.server.connections(), world.server.counters().hoarders), (0, 1));
    assert!(other.frame(READ_BYTES).is_some() && rest.is_some());
}

#[test]
fn who_takes_its_answers_keeps_its_connection_however_short_memory_is() {
    let mut world = World::with(small_share());
    world.pass(S);
    // What it reads is the memory that the other one needs.
    let data = world.server.sessions.values().next().unwrap().memory.frame(READ_BYTES).unwrap().freeze();
    let other = world.memory().share(READ_BYTES);
    let _rest = world.memory().frame(world.memory().free_bytes());
    assert!(other.frame(READ_BYTES).is_none());
    for _ in 0..30 {
        world.read();
        world.pass(10 * MS);
        let asked: Vec<ServerEvent> = std::iter::from_fn(|| world.server.poll_event()).collect();
        for event in asked {
            if let ServerEvent::Command { handle, .. } = event {
                let read = Reply { is_bulk_read: true, ..Reply::good(Some(data.clone().into())) };
                world.server.reply(handle, read, world.now);
            }
        }
        world.server.relieve(&shortage_of(&other), world.now);
        world.pass(100 * MS);
        world.server.relieve(&shortage_of(&other), world.now);
    }
    assert_eq!((world.server.connections(), world.server.counters().hoarders, world.answers()), (1, 0, 30));
}

#[test]
fn who_takes_its_answers_a_packet_at_a_time_gives_its_memory_up() {
    let mut world = World::with(small_share());
    world.pass(S);
    world.fill_share();
    let other = world.memory().share(READ_BYTES);
    let _rest = world.memory().frame(world.memory().free_bytes());
    assert!(other.frame(READ_BYTES).is_none());
    for _ in 0..30 {
        // One packet of the answers in a tenth of a second, and all that is said of it.
        let comes = std::cell::Cell::new(1);
        world.pass_as(100 * MS, &|_| true, &|opcode| opcode != Opcode::HcbeReply || comes.replace(0) == 1);
        world.server.relieve(&shortage_of(&other), world.now);
    }
    assert_eq!(world.server.counters().hoarders, 1);
    assert!(other.frame(READ_BYTES).is_some());
}

#[test]
fn who_goes_on_with_a_request_a_packet_at_a_time_gives_its_memory_up() {
    let mut world = World::new();
    world.pass(2 * S);
    world.order(1 << 20);
    let other = world.memory().share(READ_BYTES);
    for _ in 0..30 {
        let goes = std::cell::Cell::new(1);
        world.pass_as(100 * MS, &|opcode| opcode != Opcode::HcbeRequest || goes.replace(0) == 1, &|_| true);
        assert!(other.frame(READ_BYTES).is_none() || world.server.counters().hoarders == 1);
        world.server.relieve(&shortage_of(&other), world.now);
    }
    assert_eq!(world.server.counters().hoarders, 1);
}

#[test]
fn who_was_stopped_for_a_while_has_time_to_say_what_has_come() {
    let mut world = World::with(small_share());
    world.pass(S);
    world.read();
    world.pass_some(10 * MS, |_| true, |opcode| opcode != Opcode::HcbeReply);
    world.execute_reads(Vec::new());
    // The answer is on its way, and is lost; its client stops the server before it is asked what has arrived.
    world.pass_some(S, |_| false, |_| false);
    world.client.pause(true, world.now);
    world.pass_some(30 * S, |opcode| opcode != Opcode::AckReply, |_| true);
    world.client.pause(false, world.now);
    world.pass_some(100 * MS, |opcode| opcode != Opcode::AckReply, |_| true);
    assert_eq!((world.server.connections(), world.server.counters().unheeded), (1, 0));
    world.pass(S);
    assert_eq!((world.server.connections(), world.server.counters().unheeded), (1, 0));
}

#[test]
fn a_connection_that_ends_while_its_client_takes_nothing_stops_its_session_no_more() {
    let mut world = World::new();
    world.pass(S);
    world.client.pause(true, world.now);
    world.pass(10 * MS);
    world.pass_some(70 * S, |_| false, |_| false);
    let events = std::iter::from_fn(|| world.server.poll_event());
    let told: Vec<bool> = events
        .filter_map(|event| match event {
            ServerEvent::Held { is_held, .. } => Some(is_held),
            _ => None,
        })
        .collect();
    assert_eq!((world.server.connections(), told), (0, vec![true, false]));
}

#[test]
fn a_client_that_comes_again_has_the_share_that_it_had() {
    let mut world = World::with(small_share());
    world.pass(S);
    let of_session = |world: &World| {
        let session = world.server.sessions.values().next().unwrap();
        (session.number, session.memory.clone())
    };
    let (number, before) = of_session(&world);
    world.server.config.session_idle_max = 600 * S;
    world.read();
    // Longer than the patience of its owner: it gives its session up for another one.
    world.pass_some(100 * S, |_| false, |_| false);
    world.pass(5 * S);
    let (next, after) = of_session(&world);
    assert_eq!((world.server.sessions.len(), next), (1, number + 1));
    assert!(after.is_same_share(&before));
}

#[test]
fn what_a_client_waits_for_with_its_next_request_is_left_to_it() {
    let mut world = World::with(small_share());
    world.pass(S);
    let other = world.memory().share(world.memory().length_bytes());
    let mut little: Vec<Frame> = std::iter::from_fn(|| other.frame(1)).collect();
    let rest = world.memory().frame(world.memory().free_bytes());
    world.order(READ_BYTES);
    world.pass(100 * MS);
    assert!(world.server.counters().no_memory > 0);
    let third = world.memory().share(READ_BYTES);
    for _ in 0..64 {
        // What comes home is taken at once, but for what the client waits for, whoever takes and gives back little meanwhile.
        drop(little.pop());
        (0..4).for_each(|_| drop(third.frame(1)));
        world.pass(MS);
        little.extend(other.frame(1));
    }
    assert!(little.len() > 16);
    world.pass(10 * MS);
    assert_eq!(world.come(), [READ_BYTES]);
    drop(rest);
}

#[test]
fn the_beginning_of_a_request_that_does_not_go_on_is_given_up() {
    let mut world = World::new();
    world.pass(2 * S);
    world.order(1 << 20);
    let (_, packet) = world.client.poll_transmit(world.now).unwrap();
    world.server.handle_input(path(100), &bytes(&packet), world.now);
    assert_eq!(world.memory().free_bytes(), 0);
    // It says that it lives, and never notices that its request does not go on.
    let mut live_for = |seconds: u32| {
        for _ in 0..seconds {
            world.now += S;
            world.client.say(Opcode::AdnReply, LiveReply::KeepAlive { nonce: 1 }.write());
            while let Some((_, packet)) = world.client.poll_transmit(world.now) {
                let packet = bytes(&packet);
                if opcode(&packet) == Opcode::AdnReply {
                    world.server.handle_input(path(100), &packet, world.now);
                }
            }
            world.server.handle_timeout(world.now);
            while world.server.poll_transmit(world.now).is_some() {}
        }
        (world.server.connections(), world.is_all_memory_free())
    };
    assert_eq!(live_for(29), (1, false));
    // It is looked at with the next keep-alive.
    assert_eq!(live_for(7), (0, true));
}

#[test]
fn a_request_that_its_client_may_not_go_on_with_is_waited_for() {
    let mut world = World::new();
    world.pass(2 * S);
    let client = world.server.sessions.values().next().unwrap().client;
    world.order(1 << 20);
    let (_, packet) = world.client.poll_transmit(world.now).unwrap();
    world.server.handle_input(path(100), &bytes(&packet), world.now);
    let connection = *world.server.connections.keys().next().unwrap();
    world.server.pause(client, true, world.now);
    world.pass(60 * S);
    world.server.pause(client, false, world.now);
    world.pass(S);
    assert_eq!(world.come(), [1 << 20]);
    assert!(world.server.connections.contains_key(&connection), "it did not have to come again");
}

#[test]
fn who_has_all_its_commands_under_way_may_have_them_ended() {
    let mut world = World::new();
    world.pass(S);
    while world.server.poll_event().is_some() {}
    (0..65).for_each(|number| world.request(number, Ask::Command(build::test_unit_ready())));
    let begun = std::iter::from_fn(|| world.server.poll_event()).count();
    assert_eq!(begun, 64, "one is too many");
    let usage = world.server.accounts.commands.usage();
    assert_eq!((usage.most, usage.refused), (Some(64), 1));
    for by in 100..200 {
        world.request(by, Ask::Manage { function: Function::AbortTask, task: by - 100 });
    }
    let aborts = std::iter::from_fn(|| world.server.poll_event());
    let aborts = aborts.filter(|event| matches!(event, ServerEvent::Abort { .. })).count();
    assert_eq!(aborts, 64, "of all that have begun");
}
