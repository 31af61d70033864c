//! Many connections, each with timers of its own.

use std::time::Duration;

use sanwire_core::Instant;

use super::{client, exchange, server};
use crate::Client;

const CLIENTS: u8 = 200;

#[test]
fn of_many_connections_only_those_that_are_due_are_visited() {
    let (mut server, mut now) = (server(), Instant::ZERO);
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..CLIENTS {
        clients.push(client(number));
        exchange(&mut server, &mut clients, now);
        now += Duration::from_millis(20);
    }
    assert_eq!(server.connections(), usize::from(CLIENTS));
    let (mut turns, mut visits, end) = (0, server.visits, now + server.config.keep_alive);
    while let Some(at) = server.poll_timeout().filter(|at| *at <= end) {
        now = now.max(at);
        server.handle_timeout(now);
        exchange(&mut server, &mut clients, now);
        turns += 1;
    }
    visits = server.visits - visits;
    assert_eq!(server.connections(), usize::from(CLIENTS));
    // A visit in time, and one that comes too early, for each of few timers; a look at all in each turn would be far more.
    assert!(turns >= usize::from(CLIENTS) && visits <= 8 * usize::from(CLIENTS), "{visits} in {turns} turns");
}
