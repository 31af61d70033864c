//! What goes wrong.

use std::net::SocketAddr;

use sanwire_buffer::{Frame, Slice};
use sanwire_iser::QueuePair;
use sanwire_iwarp::{Closed, Event, Memory, Order, Refusal, Registration, Rights, WorkId};
use sanwire_verbs::{ConnectOptions, Connector, ListenOptions, Listener};

use crate::ends::{End, MESSAGE_BYTES, address, connect, meanwhile, message, pair, request};

/// How the connection ends; what is told before that does not matter.
fn end_of(end: &mut End) -> Closed {
    loop {
        if let Event::Closed(closed) = end.next() {
            return closed;
        }
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_key_opens_nothing_once_its_window_is_closed() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    let registration = Registration::of_frame(vec![0xee; 4096].into());
    let (stag, offset) = initiator.0.register(registration).map_err(|refused| refused.refusal).unwrap();
    let Some(Memory::Frame(frame)) = initiator.0.deregister(stag) else { panic!("no frame") };
    let data = Slice::from(vec![1; 4096]).into();
    target.0.order(Order::Write { stag, offset, data }, Some(WorkId(1))).map_err(|refused| refused.refusal).unwrap();
    let (event, _) = meanwhile(&mut initiator, || end_of(&mut target));
    assert!(matches!(event, Event::Terminated(_) | Event::Closed(_)), "{event:?}");
    assert!(frame.iter().all(|byte| *byte == 0xee));
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_key_opens_no_byte_beyond_its_window_and_only_for_its_purpose() {
    let Some(address) = address() else { return };
    for (beyond, remote_write) in [(1, true), (0, false)] {
        let (mut initiator, mut target) = pair(address, ConnectOptions::default());
        let mut registration = Registration::of_frame(vec![0xee; 8192].into());
        registration.range = 0..4096;
        registration.rights = Rights { remote_write, remote_read: !remote_write, ..Rights::default() };
        let (stag, offset) = initiator.0.register(registration).map_err(|refused| refused.refusal).unwrap();
        let order = Order::Write { stag, offset: offset + beyond, data: Slice::from(vec![1; 4096]).into() };
        target.0.order(order, Some(WorkId(1))).map_err(|refused| refused.refusal).unwrap();
        meanwhile(&mut initiator, || end_of(&mut target));
        let Some(Memory::Frame(frame)) = initiator.0.deregister(stag) else { panic!("no frame") };
        assert!(frame[4096..].iter().all(|byte| *byte == 0xee));
        assert!(remote_write || frame.iter().all(|byte| *byte == 0xee));
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_message_that_is_too_long_ends_the_connection() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    initiator.send(&vec![7; MESSAGE_BYTES + 64]);
    let (event, _) = meanwhile(&mut target, || end_of(&mut initiator));
    assert!(matches!(event, Event::Terminated(_) | Event::Closed(_)), "{event:?}");
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn an_end_that_is_dropped_is_missed_at_once_and_keeps_nothing() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    let (stag, offset) = initiator
        .0
        .register(Registration::of_slices(vec![5; 1 << 20].into()))
        .map_err(|refused| refused.refusal)
        .unwrap();
    for number in 0..4 {
        let frame = Frame::from(vec![0; 1 << 20]);
        target.0.read(WorkId(number), frame, 0..1 << 20, stag, offset).map_err(|refused| refused.refusal).unwrap();
    }
    drop(initiator);
    let closed = end_of(&mut target);
    assert!(matches!(closed, Closed::ByPeer | Closed::Lost | Closed::Terminated), "{closed:?}");
    let back = target.0.read(WorkId(9), Frame::from(vec![0; 10]), 0..10, stag, offset).unwrap_err();
    assert_eq!((back.refusal, back.given.len()), (Refusal::NotConnected, 10));
    assert!(target.0.order(message(&[1]), None).is_err());
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn where_nobody_listens_is_said_so() {
    let Some(address) = address() else { return };
    let mut nobody = connect(SocketAddr::new(address.ip(), 9), ConnectOptions::default());
    let closed = end_of(&mut nobody);
    let trouble = nobody.0.trouble().unwrap();
    assert_eq!(closed, Closed::Refused, "{trouble}");
    assert!(trouble.contains("nobody") && trouble.contains(":9 "), "{trouble}");
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn an_address_to_which_no_adapter_leads_is_said_so() {
    let Some(_) = address() else { return };
    let peer = "127.0.0.1:3260".parse().unwrap();
    let trouble = match Connector::default().connect(peer) {
        Ok(connection) => {
            let mut end = End(connection);
            assert_eq!(end_of(&mut end), Closed::Lost);
            end.0.trouble().unwrap()
        }
        Err(error) => error.to_string(),
    };
    assert!(trouble.contains("no RDMA adapter"), "{trouble}");
    let bound = Listener::bind("192.0.2.1:3260".parse().unwrap(), ListenOptions::default());
    assert!(bound.err().unwrap().to_string().contains("192.0.2.1:3260"));
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_request_can_be_refused_or_left_and_others_come() {
    let Some(address) = address() else { return };
    let mut listener = Listener::bind(address, ListenOptions::default()).unwrap();
    let mut refused = connect(listener.local_address(), ConnectOptions::default());
    let (event, mut target) = meanwhile(&mut refused, || {
        let (mut target, _) = request(&mut listener);
        target.0.reject(&[1, 2, 3, 4]).unwrap();
        target
    });
    assert!(matches!(event, Event::Rejected(_)), "{event:?}; {:?}", refused.0.trouble());
    assert_eq!((end_of(&mut refused), end_of(&mut target)), (Closed::Refused, Closed::Refused));
    assert!(target.0.accept(&[]).is_err() && target.0.reject(&[]).is_err());

    let mut left = connect(listener.local_address(), ConnectOptions::default());
    let (event, _) = meanwhile(&mut left, || drop(request(&mut listener)));
    assert!(matches!(event, Event::Rejected(_) | Event::Closed(_)), "{event:?}");

    let mut taken = connect(listener.local_address(), ConnectOptions::default());
    let (event, _target) = meanwhile(&mut taken, || {
        let (mut target, _) = request(&mut listener);
        target.0.accept(&[0x80, 0, 0, 0]).unwrap();
        target
    });
    assert!(matches!(event, Event::Connected(_)), "{event:?}");
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_listener_can_be_had_again_at_once() {
    let Some(address) = address() else { return };
    let mut listener = Listener::bind(address, ListenOptions::default()).unwrap();
    let address = listener.local_address();
    for _ in 0..3 {
        let mut initiator = connect(address, ConnectOptions::default());
        let (event, target) = meanwhile(&mut initiator, || {
            let (mut target, _) = request(&mut listener);
            target.0.accept(&[0x80, 0, 0, 0]).unwrap();
            target
        });
        assert!(matches!(event, Event::Connected(_)), "{event:?}");
        // The server has gone, with all that it had.
        drop((listener, target));
        assert_ne!(end_of(&mut initiator), Closed::ByUs);
        listener = Listener::bind(address, ListenOptions::default()).unwrap();
    }
}
