//! Requests without a number at a target of RDMA, which has receives for so many of them (RFC 7145 6.7, 8.1).

use sanwire_buffer::{Packet, Slices};
use sanwire_core::Movement;

use super::*;
use crate::ConnectionParameters;
use crate::wire::AsyncMessage;

const COMMANDS: u16 = 20;

/// A stream that passes for one that reaches into memory: what a client does differs, what passes does not.
struct Reaching(ByteStream);

impl Datamover for Reaching {
    fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.0.spaces()
    }

    fn filled(&mut self, count: usize) {
        self.0.filled(count);
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        self.0.take(bytes)
    }

    fn poll(&mut self) -> Step {
        self.0.poll()
    }

    fn place(&mut self, destination: Destination) {
        self.0.place(destination);
    }

    fn withdraw(&mut self) -> Vec<(u32, Frame)> {
        self.0.withdraw()
    }

    fn fills_frame_of(&self) -> Option<u64> {
        self.0.fills_frame_of()
    }

    fn placed_bytes(&self) -> u64 {
        self.0.placed_bytes()
    }

    fn movement(&self) -> Movement {
        self.0.movement()
    }

    fn awaited_bytes(&self) -> u64 {
        self.0.awaited_bytes()
    }

    fn push_extended(&mut self, header: Header, additional: Vec<u8>, data: Option<Slices>) {
        self.0.push_extended(header, additional, data);
    }

    fn pop(&mut self) -> Option<Packet> {
        self.0.pop()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn queued_bytes(&self) -> usize {
        self.0.queued_bytes()
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    fn lent_bytes(&self) -> usize {
        self.0.lent_bytes()
    }

    fn widen(&mut self, staging_bytes: usize) {
        self.0.widen(staging_bytes);
    }

    fn begin(&mut self, parameters: &ConnectionParameters, commands_max: usize) {
        self.0.begin(parameters, commands_max);
    }

    fn reaches_memory(&self) -> bool {
        true
    }
}

/// A client with a session over RDMA, whose target has said that it takes so many.
fn connected(said: &str) -> (World, ConnectionId) {
    let config = ClientConfig { commands_max: COMMANDS, ..config() };
    let mut world = World::of(Client::over(|_| Box::new(Reaching(ByteStream::new(0))), config, START));
    world.keys = "RDMAExtensions=Yes\0InitiatorRecvDataSegmentLength=1024\0TargetRecvDataSegmentLength=8192\0".into();
    if !said.is_empty() {
        world.keys += &format!("MaxOutstandingUnexpectedPDUs={said}\0");
    }
    let connection = world.only();
    world.log_in(connection);
    assert!(matches!(world.event(), ClientEvent::Connected { .. }));
    (world, connection)
}

/// The same, with so many commands that are late.
fn late(said: &str, count: u16) -> (World, ConnectionId, Vec<TaskRequest>) {
    let (mut world, connection) = connected(said);
    (0..count).for_each(|_| {
        world.read(512);
        world.take_command(connection);
    });
    let sent = world.tarry(connection, 75);
    let aborts = aborts(&sent);
    (world, connection, aborts)
}

/// These, all of which must abort a command.
fn aborts(sent: &[(Header, Vec<u8>)]) -> Vec<TaskRequest> {
    assert!(sent.iter().all(|(header, _)| header.opcode() == Some(Opcode::TaskRequest)), "{sent:?}");
    sent.iter().map(|(header, _)| TaskRequest::read(header)).collect()
}

fn are_timed_out(world: &World, count: usize) -> bool {
    let is_timed_out =
        |event: &ClientEvent| matches!(event, ClientEvent::Failed { failure: Failure::TimedOut { .. }, .. });
    world.events.len() == count && world.events.iter().all(is_timed_out)
}

#[test]
fn no_more_aborts_are_unanswered_than_a_target_of_rdma_takes() {
    // Two of what it takes are left for a sign of life and the logout.
    for (said, at_a_time) in
        [("", 4), ("0", 4), ("2", 1), ("3", 1), ("4", 2), ("8", 6), ("0x10", 14), ("48", 14), ("4294967295", 14)]
    {
        let (mut world, connection, mut waiting) = late(said, COMMANDS);
        assert_eq!(waiting.len(), at_a_time, "{said}");
        let mut aborted = Vec::new();
        while !waiting.is_empty() {
            let abort = waiting.remove(0);
            world.answer_abort(connection, &abort, 0);
            aborted.push(abort.referenced_task_tag);
            // Each answer makes room for the next one.
            waiting.extend(std::iter::from_fn(|| world.take(connection)).map(|(header, _)| TaskRequest::read(&header)));
            assert_eq!(waiting.len(), at_a_time.min(usize::from(COMMANDS) - aborted.len()), "{said}");
        }
        aborted.sort_unstable();
        aborted.dedup();
        assert_eq!(aborted.len(), usize::from(COMMANDS), "{said}: each once");
        assert!(are_timed_out(&world, aborted.len()), "{said}: {:?}", world.events);
    }
}

#[test]
fn over_plain_tcp_nothing_is_held_back() {
    let (mut world, connection) = World::connected(ClientConfig { commands_max: COMMANDS, ..config() });
    (0..COMMANDS).for_each(|_| {
        world.read(512);
        world.take_command(connection);
    });
    assert_eq!(aborts(&world.tarry(connection, 75)).len(), usize::from(COMMANDS));
}

/// A command has the time of its own abort, not of those that went before.
#[test]
fn an_abort_that_had_to_wait_has_its_time() {
    let (mut world, connection, mut waiting) = late("4", 6);
    for _ in 0..3 {
        assert_eq!(waiting.len(), 2);
        let sent = world.tarry(connection, 10);
        assert!(sent.is_empty(), "{sent:?}");
        std::mem::take(&mut waiting).iter().for_each(|abort| world.answer_abort(connection, abort, 0));
        waiting = std::iter::from_fn(|| world.take(connection)).map(|(header, _)| TaskRequest::read(&header)).collect();
    }
    assert!(waiting.is_empty() && are_timed_out(&world, 6), "{:?}", world.events);
    // One that is not answered costs the connection, as ever.
    let (mut world, connection, waiting) = late("4", 3);
    assert_eq!(waiting.len(), 2);
    world.tarry(connection, 16);
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::Lost { .. })), "{:?}", world.events);
}

#[test]
fn a_question_waits_until_there_is_room_for_it() {
    let (mut world, connection, aborts) = late("2", 1);
    world.client.discover(world.now);
    world.drain();
    assert!(world.take(connection).is_none());
    world.answer_abort(connection, &aborts[0], 0);
    let (question, text) = world.take(connection).expect("a question");
    assert_eq!((question.opcode(), &text[..]), (Some(Opcode::TextRequest), &b"SendTargets=\0"[..]));
}

#[test]
fn who_has_no_room_for_a_logout_goes_without() {
    for (said, commands, logs_out) in [("2", 0, true), ("2", 1, false), ("3", 1, true), ("4", 3, true), ("", 9, true)] {
        let (mut world, connection, _) = late(said, commands);
        world.client.disconnect(world.now);
        world.drain();
        let sent = world.take(connection).and_then(|(header, _)| header.opcode());
        assert_eq!(sent == Some(Opcode::LogoutRequest), logs_out, "{said}, {commands} commands");
        assert_eq!(world.closed.contains(&connection), !logs_out, "{said}, {commands} commands");
    }
    // The target wants the session to end, and has no room for the logout: it ends, and another one is made.
    let (mut world, connection, _) = late("2", 1);
    let message = AsyncMessage { event: 1, ..AsyncMessage::default() };
    world.send(connection, message.write(), Vec::new());
    world.wait(Duration::from_millis(10));
    assert!(matches!(world.event(), ClientEvent::Lost { announced: true }));
    assert!(world.closed.contains(&connection) && world.only() != connection);
}

/// Others that are answered make none of those younger whose aborts are not.
#[test]
fn aborts_that_are_not_answered_cost_the_connection_though_others_are() {
    let (mut world, connection, aborts) = late("4", 6);
    world.answer_abort(connection, &aborts[0], 0);
    world.tarry(connection, 300);
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::Lost { .. })), "{:?}", world.events);
}

#[test]
fn a_question_that_is_not_answered_keeps_no_late_command_for_ever() {
    let (mut world, connection) = connected("2");
    world.client.discover(world.now);
    world.drain();
    let (question, _) = world.take(connection).expect("a question");
    assert_eq!(question.opcode(), Some(Opcode::TextRequest));
    world.read(512);
    world.take_command(connection);
    world.tarry(connection, 200);
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::Lost { .. })), "{:?}", world.events);
}

#[test]
fn an_abort_that_is_never_answered_keeps_no_other_command_for_ever() {
    let (mut world, connection, aborts) = late("2", 1);
    let answer = ScsiResponse {
        is_final: true,
        status: Status::CheckCondition as u8,
        task_tag: aborts[0].referenced_task_tag,
        underflow: true,
        residual_bytes: 512,
        ..ScsiResponse::default()
    };
    world.send(connection, answer.write(), Vec::new());
    assert!(matches!(world.event(), ClientEvent::Completed { .. }));
    world.read(512);
    world.take_command(connection);
    world.tarry(connection, 200);
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::Lost { .. })), "{:?}", world.events);
}

/// A command that is late once more, since others were answered meanwhile, has its first abort still.
#[test]
fn no_command_has_two_aborts_under_way() {
    let (mut world, connection, first) = late("48", 2);
    assert_eq!(first.len(), 2);
    world.answer_abort(connection, &first[0], 0);
    assert!(aborts(&world.tarry(connection, 300)).is_empty());
    assert!(world.events.iter().any(|event| matches!(event, ClientEvent::Lost { .. })), "{:?}", world.events);
}
