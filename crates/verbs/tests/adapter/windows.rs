//! Windows of the adapter's own (memory windows of type 2), where it has any: rxe has, siw has not.

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_iser::QueuePair;
use sanwire_iwarp::{Event, Memory, Message, Order, Refusal, Registration, SendKind, Stag, WorkId};
use sanwire_verbs::{ConnectOptions, Connector, ListenOptions, Listener, Opening};

use crate::ends::{End, address, meanwhile, pair, pair_by};

/// By windows even where those hold only against an other end that is honest.
fn by_windows() -> ConnectOptions {
    ConnectOptions { opening: Opening::ByWindows, ..ConnectOptions::default() }
}

/// An initiator's end whose adapter has windows, and a target's.
fn ends(options: ConnectOptions) -> Option<(End, End)> {
    let (initiator, target) = pair(address()?, options);
    if !initiator.0.invalidates() {
        println!("not tested: the adapter has no memory windows");
        return None;
    }
    Some((initiator, target))
}

fn open(end: &mut End, registration: Registration) -> (Stag, u64) {
    end.0.register(registration).map_err(|refused| refused.refusal).unwrap()
}

/// Tells the other end of something, with which windows are bound.
fn tell(end: &mut End, other: &mut End) {
    end.send(b"command");
    assert_eq!(other.message(), b"command");
}

fn write(end: &mut End, (stag, offset): (Stag, u64), bytes: Vec<u8>) {
    let order = Order::Write { stag, offset, data: Slice::from(bytes).into() };
    end.0.order(order, Some(WorkId(7))).map_err(|refused| refused.refusal).unwrap();
}

/// Answers, and ends a key.
fn answer(end: &mut End, stag: Stag) {
    let kind = SendKind { solicited: true, invalidate: Some(stag) };
    let order = Order::Send { kind, head: vec![1].into(), data: None };
    end.0.order(order, Some(WorkId(8))).map_err(|refused| refused.refusal).unwrap();
}

fn ended(end: &mut End) -> Option<Stag> {
    match end.next() {
        Event::Message(Message { invalidated, .. }) => {
            end.0.expect_messages(crate::ends::MESSAGES, crate::ends::MESSAGE_BYTES);
            invalidated
        }
        other => panic!("{other:?}"),
    }
}

fn close(end: &mut End, stag: Stag) -> Frame {
    match end.0.deregister(stag) {
        Some(Memory::Frame(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_window_to_a_region_or_to_other_memory_is_written_to_and_read_from() {
    let Some((mut initiator, mut target)) = ends(by_windows()) else { return };
    let adapter = QueuePair::adapter(&initiator.0).unwrap();
    assert!(adapter.contains("memory windows"), "{adapter}");
    let region = Region::new(4 << 20).unwrap();
    for frame in [region.frame(100_000).unwrap(), Frame::from(vec![0; 100_000])] {
        let mut registration = Registration::of_frame(frame);
        registration.range = 100..90_100;
        let window = open(&mut initiator, registration);
        tell(&mut initiator, &mut target);
        write(&mut target, window, vec![7; 90_000]);
        answer(&mut target, window.0);
        assert_eq!(ended(&mut initiator), Some(window.0));
        let frame = close(&mut initiator, window.0);
        assert!(frame[100..90_100].iter().all(|byte| *byte == 7) && frame[90_100..].iter().all(|byte| *byte == 0));
    }
    let mut lent = region.frame(50_000).unwrap();
    lent.fill(9);
    for data in [lent.freeze(), Slice::from(vec![9; 50_000])] {
        let (stag, offset) = open(&mut initiator, Registration::of_slices(data.into()));
        tell(&mut initiator, &mut target);
        let frame = Frame::from(vec![0; 50_000]);
        target.0.read(WorkId(3), frame, 0..50_000, stag, offset).map_err(|refused| refused.refusal).unwrap();
        let Event::ReadDone { frame, .. } = target.next() else { panic!("no data") };
        assert!(frame.iter().all(|byte| *byte == 9));
        answer(&mut target, stag);
        assert_eq!(ended(&mut initiator), Some(stag));
        assert!(initiator.0.deregister(stag).is_some());
    }
    assert_eq!((initiator.0.counts().registered, initiator.0.counts().registered_ever), (0, 4));
}

/// A window is used again when its key has ended, under another key each time; one that nobody has ended is given back at once.
#[test]
#[ignore = "takes an RDMA adapter"]
fn many_windows_follow_each_other_whoever_ends_them() {
    let Some((mut initiator, mut target)) = ends(by_windows()) else { return };
    let region = Region::new(4 << 20).unwrap();
    let mut before = Stag(0);
    for round in 0..600_u32 {
        let window = open(&mut initiator, Registration::of_frame(region.frame(4096).unwrap()));
        assert_ne!(window.0, before);
        before = window.0;
        tell(&mut initiator, &mut target);
        write(&mut target, window, vec![round as u8; 4096]);
        if round % 8 == 0 {
            target.send(b"answer");
            assert_eq!(initiator.message(), b"answer");
        } else {
            answer(&mut target, window.0);
            assert_eq!(ended(&mut initiator), Some(window.0));
        }
        assert!(close(&mut initiator, window.0).iter().all(|byte| *byte == round as u8), "{round}");
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn windows_that_are_closed_before_anybody_was_told_cost_nothing() {
    let options = ConnectOptions { orders_max: 8, ..by_windows() };
    let Some((mut initiator, mut target)) = ends(options) else { return };
    let region = Region::new(1 << 20).unwrap();
    let frame = || Registration::of_frame(region.frame(4096).unwrap());
    for _ in 0..20 {
        let windows: Vec<_> = (0..7).map(|_| open(&mut initiator, frame())).collect();
        let back = initiator.0.register(frame()).unwrap_err();
        assert_eq!(back.refusal, Refusal::Full, "all that wait go with one order");
        windows[1..].iter().for_each(|window| drop(close(&mut initiator, window.0)));
        tell(&mut initiator, &mut target);
        write(&mut target, windows[0], vec![5; 4096]);
        answer(&mut target, windows[0].0);
        assert_eq!(ended(&mut initiator), Some(windows[0].0));
        assert!(close(&mut initiator, windows[0].0).iter().all(|byte| *byte == 5));
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn the_key_of_another_connection_and_one_that_has_ended_open_nothing() {
    let Some(address) = address() else { return };
    let mut listener = Listener::bind(address, ListenOptions::default()).unwrap();
    let connector = Connector::new(by_windows());
    let region = Region::new(1 << 20).unwrap();
    let (mut honest, mut its_target) = pair_by(&mut listener, &connector);
    if !honest.0.invalidates() {
        return println!("not tested: the adapter has no memory windows");
    }
    let mut frame = region.frame(4096).unwrap();
    frame.fill(0xee);
    let window = open(&mut honest, Registration::of_frame(frame));
    tell(&mut honest, &mut its_target);
    // Both initiators are of one protection domain.
    let (mut other, mut hostile) = pair_by(&mut listener, &connector);
    write(&mut hostile, window, vec![1; 4096]);
    let (event, _) = meanwhile(&mut other, || while !matches!(hostile.next(), Event::Closed(_)) {});
    assert!(matches!(event, Event::Terminated(_) | Event::Closed(_)), "{event:?}");

    answer(&mut its_target, window.0);
    assert_eq!(ended(&mut honest), Some(window.0));
    write(&mut its_target, window, vec![2; 4096]);
    let (event, _) = meanwhile(&mut honest, || while !matches!(its_target.next(), Event::Closed(_)) {});
    assert!(matches!(event, Event::Terminated(_) | Event::Closed(_)), "{event:?}");
    assert!(close(&mut honest, window.0).iter().all(|byte| *byte == 0xee));
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn an_end_that_is_dropped_with_windows_lets_go_of_their_memory() {
    let Some((mut initiator, mut target)) = ends(by_windows()) else { return };
    let region = Region::new(1 << 20).unwrap();
    let windows: Vec<_> =
        (0..5).map(|_| open(&mut initiator, Registration::of_frame(region.frame(8192).unwrap()))).collect();
    tell(&mut initiator, &mut target);
    write(&mut target, windows[0], vec![1; 8192]);
    drop(initiator);
    assert_eq!(region.free_bytes(), 1 << 20);
}
