//! Receives that the connections of a listener share, where they do: by rxe (RoCE), not by siw (iWARP).

use std::time::{Duration, Instant};

use sanwire_iser::QueuePair;
use sanwire_iwarp::{Closed, Ended, Event, Fault, Message};
use sanwire_verbs::{ConnectOptions, Connector, ListenOptions, Listener};

use crate::ends::{End, MESSAGE_BYTES, MESSAGES, address, pair_by};

/// So many of one that may send [`MESSAGES`], and of others that are there.
fn listener(shared_receives_max: u32) -> Option<(Listener, Connector)> {
    let options = ListenOptions { shared_receives_max, ..ListenOptions::default() };
    Some((Listener::bind(address()?, options).unwrap(), Connector::new(ConnectOptions::default())))
}

/// Ends that share, if they do.
fn pairs<const COUNT: usize>(most: u32) -> Option<[(End, End); COUNT]> {
    let (mut listener, connector) = listener(most)?;
    let pairs = std::array::from_fn(|_| pair_by(&mut listener, &connector));
    let first: &(End, End) = &pairs[0];
    let adapter = QueuePair::adapter(&first.1.0).unwrap();
    if !adapter.contains("shared receives") {
        println!("not tested: connections of {adapter} have receives of their own");
        return None;
    }
    Some(pairs)
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn messages_of_many_connections_come_by_receives_that_they_share() {
    let Some(mut pairs) = pairs::<6>(2048) else { return };
    for round in 0..50_u8 {
        for (number, (initiator, _)) in pairs.iter_mut().enumerate() {
            while initiator.0.poll_event().is_some() {}
            (0..10).for_each(|_| initiator.send(&[round, number as u8]));
        }
        for (number, (_, target)) in pairs.iter_mut().enumerate() {
            (0..10).for_each(|_| assert_eq!(target.message(), [round, number as u8]));
        }
    }
}

/// Who finds no receive tries again, and nothing is lost.
#[test]
#[ignore = "takes an RDMA adapter"]
fn more_messages_than_there_are_receives_wait() {
    let Some(mut pairs) = pairs::<3>(4) else { return };
    for (number, (initiator, _)) in pairs.iter_mut().enumerate() {
        (0..MESSAGES as u8).for_each(|message| initiator.send(&[number as u8, message]));
    }
    let until = Instant::now() + Duration::from_secs(20);
    let mut came = [0; 3];
    while came != [MESSAGES; 3] {
        assert!(Instant::now() < until, "{came:?} of {MESSAGES} messages came");
        for (number, (_, target)) in pairs.iter_mut().enumerate() {
            while let Some(event) = target.0.poll_event() {
                let Event::Message(Message { buffer, .. }) = event else { panic!("{event:?}") };
                assert_eq!(*buffer, [number as u8, came[number] as u8]);
                target.0.expect_messages(MESSAGES, MESSAGE_BYTES);
                came[number] += 1;
            }
        }
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn who_sends_more_than_it_may_loses_its_connection_and_others_keep_theirs() {
    let Some([(mut greedy, mut left), (mut modest, mut kept)]) = pairs(2048) else { return };
    (0..=MESSAGES).for_each(|_| greedy.send(&[1; 100]));
    let mut told = 0;
    let fault = loop {
        match left.next() {
            // Nobody says that more may come.
            Event::Message(Message { .. }) => told += 1,
            Event::Terminated(Ended::ByUs(fault)) => break fault,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((told, fault), (MESSAGES, Fault::NoBuffer));
    assert!(matches!(left.next(), Event::Closed(Closed::Terminated)));
    assert!(left.0.trouble().unwrap().contains("may not"), "{:?}", left.0.trouble());
    for _ in 0..20 {
        modest.send(&[2; 50]);
        assert_eq!(kept.message(), [2; 50]);
    }
    drop(left);
    while !matches!(greedy.next(), Event::Closed(_)) {}
}

/// With no receive to spare: what goes with a connection comes back.
#[test]
#[ignore = "takes an RDMA adapter"]
fn receives_of_connections_that_are_gone_serve_others() {
    let Some((mut listener, connector)) = listener(4) else { return };
    let (mut initiator, mut target) = pair_by(&mut listener, &connector);
    for round in 0..12_u8 {
        let (mut dying, its_target) = pair_by(&mut listener, &connector);
        // Some of them have arrived, and nobody takes them.
        (0..4).for_each(|_| dying.send(&[9; 200]));
        std::thread::sleep(Duration::from_millis(5));
        if round % 2 == 0 {
            drop((its_target, dying))
        } else {
            drop((dying, its_target))
        }
        for _ in 0..8 {
            initiator.send(&[round; 30]);
            assert_eq!(target.message(), [round; 30]);
        }
    }
}

#[test]
#[ignore = "takes an RDMA adapter"]
fn a_listener_that_wants_it_so_has_each_connection_have_its_own() {
    let Some((mut listener, connector)) = listener(0) else { return };
    let (mut initiator, mut target) = pair_by(&mut listener, &connector);
    assert!(!QueuePair::adapter(&target.0).unwrap().contains("shared"));
    initiator.send(b"own");
    assert_eq!(target.message(), b"own");
}

/// rxe keeps the receive of a message that is cut off with its connection: others are posted in their places.
#[test]
#[ignore = "takes an RDMA adapter"]
fn messages_that_never_end_leave_receives_for_others() {
    let Some((mut listener, connector)) = listener(2048) else { return };
    let (mut initiator, mut target) = pair_by(&mut listener, &connector);
    for _ in 0..2 * MESSAGES {
        let (mut dying, its_target) = pair_by(&mut listener, &connector);
        (0..8).for_each(|_| dying.send(&[9; MESSAGE_BYTES]));
        drop((dying, its_target));
    }
    (0..MESSAGES as u8).for_each(|number| initiator.send(&[number; 30]));
    (0..MESSAGES as u8).for_each(|number| assert_eq!(target.message(), [number; 30]));
}
