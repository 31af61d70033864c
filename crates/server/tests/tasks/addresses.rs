//! Clients that go on from another address: whether they may is asked by the address that they have, not the one that they had.

use sanwire_hyperscsi::random;
use sanwire_server::{AllowList, Answer, Asker, Manager, Request, Response, ServerConfig};

use super::hyperscsi::{Driver, connect};
use super::{config, wait_until};

const FIRST: &str = "127.0.0.1";
const SECOND: &str = "127.0.0.2";

fn allowing(addresses: &[&str], config: &ServerConfig) -> ServerConfig {
    let rules = addresses.iter().map(|address| address.parse().unwrap()).collect();
    ServerConfig { allow: AllowList::new(rules), ..config.clone() }
}

/// A server that lets in a client from either address, which has moved from the first to the second, and then only one that has
/// `allowed`.
fn after_a_move(allowed: &'static str) -> (Manager, Driver) {
    let config = allowing(&[FIRST, SECOND], &config());
    let narrower = allowing(&[allowed], &config);
    let mut manager = Manager::start(config, Box::new(move || Ok(narrower.clone()))).unwrap();
    let mut client = connect(super::hyperscsi_address(manager.target()), random().unwrap());
    client.lose_connection();
    client.move_to([127, 0, 0, 2]);
    assert!(client.is_resumed());
    assert!(matches!(
        manager.handle(
            &Asker::Signal { signal: "SIGHUP" },
            Request::Reload { force: false, dry_run: false, reset: false }
        ),
        Response::Done(_)
    ));
    (manager, client)
}

fn connections(manager: &mut Manager) -> usize {
    match manager.handle(&Asker::Signal { signal: "SIGHUP" }, Request::Statistics) {
        Response::Done(Answer::Statistics(statistics)) => statistics.connections.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_has_moved_is_dropped_when_its_new_address_may_not_connect_any_more() {
    let (mut manager, _client) = after_a_move(FIRST);
    wait_until("it is dropped", || connections(&mut manager) == 0);
}

#[test]
fn a_client_that_has_moved_stays_when_its_former_address_may_not_connect_any_more() {
    let (mut manager, mut client) = after_a_move(SECOND);
    client.hears_nothing_else();
    assert_eq!(connections(&mut manager), 1);
}
