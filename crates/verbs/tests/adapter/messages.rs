//! Messages.

use sanwire_buffer::{Head, Slice, Slices};
use sanwire_iser::QueuePair;
use sanwire_iwarp::{Closed, Event, Order, Refusal, SendKind, WorkId};
use sanwire_verbs::{ConnectOptions, Transport};

use crate::ends::{MESSAGE_BYTES, MESSAGES, UNASKED, address, message, pair};

#[test]
#[ignore = "takes an RDMA adapter"]
fn messages_arrive_as_they_were_sent_and_in_their_order() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    let lengths = [1, 76, 128, 4096, MESSAGE_BYTES - 1, MESSAGE_BYTES];
    let bytes = |number: usize| vec![number as u8; lengths[number % lengths.len()]];
    for round in 0..200 {
        (0..lengths.len()).for_each(|number| initiator.send(&bytes(round + number)));
        for number in 0..lengths.len() {
            assert_eq!(target.message(), bytes(round + number));
        }
        target.send(&bytes(round));
        assert_eq!(initiator.message(), bytes(round));
    }
    assert!(initiator.rests() && target.rests(), "a connection that is idle wakes nobody");
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_message_is_its_head_and_all_pieces_of_its_data() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    let pieces = [vec![1; 10], vec![2; 3000], vec![3; 1]];
    let data = Slices::join(pieces.clone().into_iter().map(Slice::from));
    let order = Order::Send { kind: SendKind::default(), head: Head::from(vec![9; 48]), data };
    initiator.0.order(order, Some(WorkId(1))).map_err(|refused| refused.refusal).unwrap();
    assert_eq!(target.message(), [vec![9; 48], pieces.concat()].concat());
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn both_ends_know_the_mtu_of_their_path() {
    let Some(address) = address() else { return };
    let (initiator, target) = pair(address, ConnectOptions::default());
    let [told, other] = [&initiator, &target].map(|end| end.0.counts().segment_bytes);
    assert_eq!(told, other);
    let may_tell_none = initiator.0.adapter().is_some_and(|adapter| adapter.transport == Transport::Iwarp);
    assert!(told.map_or(may_tell_none, |bytes| bytes.is_power_of_two() && (256..=4096).contains(&bytes)), "{told:?}");
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn orders_that_find_no_room_come_back_and_find_it_later() {
    let Some(address) = address() else { return };
    let options = ConnectOptions { orders_max: 4, ..ConnectOptions::default() };
    let (mut initiator, mut target) = pair(address, options);
    let (mut refused, mut told) = (0, 0);
    for number in 0..MESSAGES as u64 {
        while let Err(back) = initiator.0.order(message(&number.to_be_bytes()), Some(WorkId(number))) {
            assert_eq!(back.refusal, Refusal::Full);
            refused += 1;
            match initiator.event() {
                // That of `pair`.
                Event::Sent(UNASKED) => {}
                Event::Sent(id) => {
                    assert_eq!(id, WorkId(told));
                    told += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(refused > 0, "there is room for 4 only");
    for number in 0..MESSAGES as u64 {
        assert_eq!(target.message(), number.to_be_bytes());
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn what_was_ordered_is_sent_before_the_connection_ends() {
    let Some(address) = address() else { return };
    let (mut initiator, mut target) = pair(address, ConnectOptions::default());
    (0..20).for_each(|number| target.send(&[number; 500]));
    target.0.disconnect();
    assert!(!target.0.is_established());
    for number in 0..20 {
        assert_eq!(initiator.message(), [number; 500]);
    }
    assert!(matches!(target.next(), Event::Closed(Closed::ByUs)));
    assert!(matches!(initiator.next(), Event::Closed(Closed::ByPeer)));
    assert!(initiator.0.poll_event().is_none() && target.0.poll_event().is_none(), "nothing follows");
    let back = initiator.0.order(message(&[1]), None).unwrap_err();
    assert_eq!(back.refusal, Refusal::NotConnected);
}
