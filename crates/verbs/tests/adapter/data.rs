//! Data that moves without messages.

use sanwire_buffer::{Frame, Slice, Slices};
use sanwire_iser::QueuePair;
use sanwire_iwarp::{Event, Memory, Order, Refusal, Registration, Rights, Stag, WorkId};
use sanwire_verbs::ConnectOptions;

use crate::ends::{End, address, pair};

/// Bytes of which no two places are alike.
fn pattern(length: usize, seed: u32) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn write(end: &mut End, stag: Stag, offset: u64, data: impl Into<Slices>) {
    let order = Order::Write { stag, offset, data: data.into() };
    end.0.order(order, Some(WorkId(0))).map_err(|refused| refused.refusal).unwrap();
}

fn open(end: &mut End, registration: Registration) -> (Stag, u64) {
    end.0.register(registration).map_err(|refused| refused.refusal).unwrap()
}

fn close(end: &mut End, stag: Stag) -> Frame {
    match end.0.deregister(stag) {
        Some(Memory::Frame(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn data_is_written_where_it_belongs_and_nowhere_else() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    for (length, parts) in [(1, 1), (5000, 3), (32 << 10, 1), (1 << 20, 1), (1 << 20, 7)] {
        let mut registration = Registration::of_frame(vec![0xee; length + 20].into());
        registration.range = 10..length + 10;
        let (stag, offset) = open(&mut initiator, registration);
        let bytes = pattern(length, parts as u32);
        let each = length.div_ceil(parts);
        for (number, part) in bytes.chunks(each).enumerate() {
            write(&mut target, stag, offset + (number * each) as u64, Slice::from(part.to_vec()));
        }
        target.send(b"written");
        assert_eq!(initiator.message(), b"written");
        let frame = close(&mut initiator, stag);
        assert!(frame[10..length + 10] == bytes, "{length} bytes in {parts} parts");
        assert!(frame[..10].iter().chain(&frame[length + 10..]).all(|byte| *byte == 0xee));
    }
    assert_eq!((initiator.0.counts().registered, initiator.0.counts().registered_ever), (0, 5));
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn long_and_short_pieces_arrive_in_their_order() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    let bytes = pattern(600_000, 5);
    let lengths = [100, 40_000, 200, 300, 100_000, 20_000, 20_000, 20_000, 300_000];
    let mut start = 0;
    let pieces = lengths.map(|length| {
        start += length;
        Slice::from(bytes[start - length..start].to_vec())
    });
    let (stag, offset) = open(&mut initiator, Registration::of_frame(vec![0; start].into()));
    write(&mut target, stag, offset, Slices::join(pieces.into_iter()).unwrap());
    target.send(b"written");
    assert_eq!(initiator.message(), b"written");
    assert!(*close(&mut initiator, stag) == bytes[..start]);
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn memory_is_read_into_the_part_of_a_frame() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    target.0.limit_reads(2);
    let bytes = pattern(1 << 20, 9);
    let pieces = bytes.chunks(300_000).map(|part| Slice::from(part.to_vec()));
    let registration = Registration::of_slices(Slices::gather(pieces).unwrap());
    let (stag, offset) = open(&mut initiator, registration);
    let mut ended = Vec::new();
    for number in 0..8_u64 {
        let length = 100_000;
        let (mut frame, from) = (Frame::from(vec![0xee; length + 20]), number * 100_000);
        let id = WorkId(number);
        while let Err(back) = target.0.read(id, frame, 10..length + 10, stag, offset + from) {
            assert_eq!(back.refusal, Refusal::Full, "two at a time");
            frame = back.given;
            ended.push(target.next());
        }
    }
    while ended.len() < 8 {
        ended.push(target.next());
    }
    for (number, event) in ended.into_iter().enumerate() {
        let Event::ReadDone { id, frame } = event else { panic!("{event:?}") };
        assert_eq!(id, WorkId(number as u64));
        let from = number * 100_000;
        assert!(frame[10..100_010] == bytes[from..from + 100_000], "read {number}");
        assert!(frame[..10].iter().chain(&frame[100_010..]).all(|byte| *byte == 0xee));
    }
    assert_eq!(target.0.counts().moved_bytes, 800_000);
    assert!(matches!(initiator.0.deregister(stag), Some(Memory::Slices(_))));
    assert!(initiator.0.deregister(stag).is_none());
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_window_that_cannot_be_is_refused_and_its_memory_comes_back() {
    let Some(address) = address() else { return };
    let (mut initiator, _target) = pair(address, ConnectOptions { registrations_max: 1, ..ConnectOptions::default() });
    let mut beyond = Registration::of_frame(vec![0; 100].into());
    beyond.range = 50..101;
    let mut shared = Registration::of_slices(vec![0; 100].into());
    shared.rights = Rights { remote_write: true, ..Rights::default() };
    for bad in [beyond, shared] {
        let back = initiator.0.register(bad).unwrap_err();
        assert_eq!((back.refusal, back.given.memory.length_bytes()), (Refusal::Range, 100));
    }
    open(&mut initiator, Registration::of_frame(vec![0; 100].into()));
    let back = initiator.0.register(Registration::of_frame(vec![0; 7].into())).unwrap_err();
    assert_eq!((back.refusal, back.given.memory.length_bytes()), (Refusal::Full, 7));
}
