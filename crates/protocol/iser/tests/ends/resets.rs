//! Task management on one connection of a session, and RDMA on another one.

use sanwire_core::Instant;
use sanwire_iscsi::ConnectionId;
use sanwire_iscsi::wire::TaskRequest;
use sanwire_iser::wire::{HeaderForm, IserHeader};
use sanwire_iwarp::{Config, Registration};

use super::host::Host;
use super::pair::message;
use super::raw::{ID, Line, of_blocks, opened, window};
use super::world::MEMORY_BYTES;

const OTHER: ConnectionId = ConnectionId(2);

/// A session with two connections, on the first of which the data of a WRITE is being read; a reset of its unit has come on the second.
fn reset_while_reading(function: u8) -> (Host, Instant, [Line; 2]) {
    let (mut host, now) = (Host::new(), Instant::from_nanos(1));
    let mut first = Line::open(ID, HeaderForm::Rfc7145, Config::default(), &mut host, now);
    let tsih = first.log_in(0, "InitialR2T=Yes\0MaxConnections=2", &mut host, now);
    let mut second = Line::open(OTHER, HeaderForm::Rfc7145, Config::default(), &mut host, now);
    assert_eq!(second.log_in(tsih, "InitialR2T=Yes", &mut host, now), tsih);
    let stag = first.rdma.register(Registration::of_slices(vec![7; 8192].into())).unwrap();
    first.order(message(opened(None, Some(window(stag))), of_blocks(1, 16, false).write(), &[]));
    first.send(&mut host, now);
    assert!(host.memory.free_bytes() < MEMORY_BYTES, "the data is being read");
    let reset = TaskRequest {
        is_immediate: true,
        is_final: true,
        function,
        task_tag: 99,
        referenced_task_tag: if function == 1 { 1 } else { u32::MAX },
        command_number: 2,
        referenced_command_number: u32::from(function == 1),
        ..TaskRequest::default()
    };
    second.say(message(IserHeader::PLAIN, reset.write(), &[]), &mut host, now);
    (host, now, [first, second])
}

fn is_complete(line: &mut Line) -> bool {
    let answers = line.answers();
    let [answer] = &answers[..] else { return false };
    (answer[28], answer[30]) == (0x22, 0)
}

/// Once an initiator knows that its commands are over it closes their memory: a read that is under way there would end a connection.
#[test]
fn a_reset_waits_for_what_is_being_read_on_another_connection() {
    // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET WARM RESET.
    for function in [1, 2, 4, 5, 6] {
        let (mut host, now, [mut first, mut second]) = reset_while_reading(function);
        assert!(second.answers().is_empty(), "{function}: the read is under way");
        first.pass(&mut host, now);
        second.pass(&mut host, now);
        assert!(is_complete(&mut second), "{function}");
        assert!(first.rdma.is_established() && host.closed.is_empty(), "{function}");
        assert!(first.answers().is_empty() && host.disk.iter().all(|byte| *byte == 0), "{function}: nothing is done");
        assert_eq!(host.memory.free_bytes(), MEMORY_BYTES, "{function}");
    }
}

/// What is read is behind what wants memory, and the memory comes back by it: neither waits for the other.
#[test]
fn a_connection_does_not_wait_for_the_memory_that_its_own_reads_hold() {
    let (mut host, now, [mut first, mut second]) = reset_while_reading(5);
    let others: Vec<_> = std::iter::from_fn(|| host.memory.frame(4096)).collect();
    first.order(message(opened(None, None), of_blocks(2, 1, false).write(), &[9; 512]));
    first.send(&mut host, now);
    first.pass(&mut host, now);
    second.pass(&mut host, now);
    assert!(is_complete(&mut second), "the reads are over");
    drop(others);
    assert_eq!(host.memory.free_bytes(), MEMORY_BYTES);
}

#[test]
fn a_reset_does_not_wait_for_a_connection_that_is_gone() {
    let (mut host, now, [_, mut second]) = reset_while_reading(5);
    assert!(second.answers().is_empty());
    host.lose(ID, now);
    second.pass(&mut host, now);
    assert!(is_complete(&mut second));
    assert_eq!(host.memory.free_bytes(), MEMORY_BYTES);
}

/// More requests than are kept are refused, and refusals wait for nothing.
#[test]
fn resets_that_wait_are_not_kept_without_end() {
    let (mut host, now, [mut first, mut second]) = reset_while_reading(5);
    for task_tag in 100..300 {
        let reset = TaskRequest {
            is_immediate: true,
            is_final: true,
            function: 5,
            task_tag,
            referenced_task_tag: u32::MAX,
            command_number: 2,
            ..TaskRequest::default()
        };
        second.order(message(IserHeader::PLAIN, reset.write(), &[]));
    }
    second.pass(&mut host, now);
    let refused = second.answers();
    assert!(refused.len() > 100 && refused.iter().all(|answer| answer[30] == 255), "{}", refused.len());
    first.pass(&mut host, now);
    second.pass(&mut host, now);
    let complete = second.answers();
    assert_eq!(complete.len() + refused.len(), 201);
    assert!(complete.iter().all(|answer| answer[30] == 0));
}
