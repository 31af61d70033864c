//! How connections of TCP begin: who gets a place, and whom that concerns.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sanwire_io::Waker;
use sanwire_io::tcp::Listener;
use sanwire_visa::discovery;
use sanwire_visa::framing::framed;

use super::*;
use crate::budget::Budget;
use crate::front::Caller;
use crate::front::visa::PORT;
use crate::front::visa::tests::{clients, key, peer};
use crate::login_listener::{self, FrontDeskParts, LoginAccounts, Portal};
use crate::management_queue::ManagementQueue;
use crate::messages::{Mailbox, ShardMessage};
use crate::registry::Registry;

const SECOND: Duration = Duration::from_secs(1);

/// How a connection from there begins that says this, of a client with this key, where these rules hold.
fn caller(from: SocketAddr) -> Caller {
    Caller { portal: (peer(1, PORT), 1), peer: from, queue_pair: None }
}

fn greeted(clients: &Arc<Clients>, from: SocketAddr, number: u8) -> LoginOutcome {
    let greetings = Greetings { front: 4, clients: Arc::clone(clients), shards: 3 };
    let mut phase = greetings.begin(caller(from), [0; 32], Instant::ZERO);
    if phase.poll_timeout().is_some_and(|at| at <= Instant::ZERO) {
        phase.handle_timeout(Instant::ZERO);
    } else {
        phase.handle_input(&framed(discovery(key(number).client_id(), "", 5)).to_vec(), Instant::ZERO);
    }
    phase.poll_outcome().unwrap()
}

#[test]
fn who_is_not_allowed_is_refused_before_it_takes_a_place() {
    let named = key(2).client_id().to_string();
    for (rules, host, number, is_passed) in [
        (&["any"][..], 3, 5, true),
        (&["10.0.0.3"], 3, 5, true),
        (&["10.0.0.3"], 4, 5, false),
        (&[&named], 3, 2, true),
        (&[&named], 3, 5, false),
    ] {
        let outcome = greeted(&clients(rules), peer(host, 4000), number);
        assert_eq!(matches!(outcome, LoginOutcome::Passed(_)), is_passed, "{rules:?} {host} {number}");
        if let LoginOutcome::Refused(reason) = outcome {
            assert!(reason.contains("not allowed"), "{reason}");
        }
    }
}

/// Nobody has said anything yet: a connection that nobody can have is over at once.
#[test]
fn who_comes_from_where_nobody_may_come_is_not_waited_for() {
    let clients = clients(&["10.0.0.3"]);
    let greetings = Greetings { front: 4, clients, shards: 1 };
    let begin = |host| greetings.begin(caller(peer(host, 4000)), [0; 32], Instant::ZERO);
    assert_eq!(begin(4).poll_timeout(), Some(Instant::ZERO));
    assert_eq!(begin(3).poll_timeout(), Some(Instant::ZERO + 10 * SECOND));
}

/// Those of iSCSI's that have shown nothing have 64.
#[test]
fn clients_that_only_a_rule_permits_have_places_for_their_connections() {
    let (clients, registry) = (clients(&["any"]), Registry::new(3, &Budget::new(1 << 20)));
    for number in 1..=65 {
        let LoginOutcome::Passed(newcomer) = greeted(&clients, peer(number, 4000), number) else { panic!("{number}") };
        assert!(registry.place(&newcomer).is_ok(), "{number}");
    }
}

#[test]
fn a_newcomer_wakes_no_shard_but_its_own() {
    let clients = clients(&["any"]);
    let (mailboxes, mail): (Vec<_>, Vec<_>) = (0..3).map(|_| Mailbox::new(Waker::new().unwrap())).unzip();
    let listener = Listener::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let (address, budget) = (listener.local_address().unwrap(), Budget::new(1 << 20));
    let (stop, waker) = (Arc::new(AtomicBool::new(false)), Waker::new().unwrap());
    let desk = FrontDeskParts {
        portals: vec![Portal {
            listener: Some(listener.into()),
            group_tag: 1,
            logins: Arc::new(Greetings { front: 4, clients, shards: 3 }),
        }],
        registry: Arc::new(Registry::new(3, &budget)),
        inbox: ManagementQueue::new().0,
        budget,
        accounts: Arc::new(LoginAccounts::new(&budget)),
        shards: mailboxes.into(),
        waker: waker.clone(),
        stop: Arc::clone(&stop),
    };
    let thread = thread::spawn(move || login_listener::run(desk));
    let client = key(5).client_id();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&framed(discovery(client, "", 5)).to_vec()).unwrap();
    let own = steering_word(client) as usize % 3;
    let admitted = mail[own].recv_timeout(10 * SECOND);
    stop.store(true, Ordering::Release);
    waker.wake();
    thread.join().unwrap();
    assert!(matches!(admitted, Ok(ShardMessage::Admit(_))));
    assert!(mail.iter().all(|mail| mail.try_recv().is_err()), "nothing else");
}
