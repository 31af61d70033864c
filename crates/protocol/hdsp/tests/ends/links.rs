//! A client whose server is found on two links.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_core::{Instant, LinkId, Path};
use sanwire_hdsp::{Client, ClientEvent, Server};

use crate::world::{Habits, World, client, path, server};

/// The same station on another link.
fn on(link: u8, path: Path) -> Path {
    Path { link: LinkId(link), ..path }
}

/// Both ends, and packets that are on the way: when they arrive, and whether at the server.
struct Links {
    server: Server,
    client: Client,
    now: Instant,
    on_the_way: BTreeMap<(Instant, u64), (bool, Path, Vec<u8>)>,
    sent: u64,
    connected: u32,
    disconnected: u32,
}

impl Links {
    fn new() -> Self {
        let World { door, memory, now, .. } = World::new(Habits::default());
        let places = vec![on(0, path(0)), on(1, path(0))];
        let client = client(Habits::default(), 1, places, now);
        let server = server(&door, 1, &memory);
        Links { server, client, now, on_the_way: BTreeMap::new(), sent: 0, connected: 0, disconnected: 0 }
    }

    fn send(&mut self, is_to_server: bool, to: Path, packet: &[u8]) {
        self.sent += 1;
        // The second link is slower: what the server begins there it begins later.
        let at = self.now + Duration::from_millis(2 + u64::from(to.link.0));
        let from = on(to.link.0, path(if is_to_server { 1 } else { 0 }));
        self.on_the_way.insert((at, self.sent), (is_to_server, from, packet.to_vec()));
    }

    fn drain(&mut self) {
        while let Some((to, packet)) = self.client.poll_transmit(self.now) {
            self.send(true, to, &packet.head);
        }
        while let Some((to, packet)) = self.server.poll_transmit(self.now) {
            self.send(false, to, &packet.head);
        }
        while self.server.poll_event().is_some() {}
        while let Some(event) = self.client.poll_event() {
            self.connected += u32::from(matches!(event, ClientEvent::Connected(_)));
            self.disconnected += u32::from(matches!(event, ClientEvent::Disconnected));
        }
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        self.drain();
        loop {
            let arrives = self.on_the_way.first_key_value().map(|((at, _), _)| *at);
            let ends = self.client.poll_timeout().into_iter().chain(self.server.poll_timeout());
            let Some(next) = ends.chain(arrives).min().filter(|at| *at <= until) else { break };
            self.now = self.now.max(next);
            if arrives == Some(self.now)
                && let Some((_, (is_to_server, from, packet))) = self.on_the_way.pop_first()
            {
                match is_to_server {
                    true => self.server.handle_input(from, &packet, self.now),
                    false => self.client.handle_input(from, &packet, self.now),
                }
            }
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }
}

#[test]
fn a_client_on_two_links_gets_one_connection_and_keeps_it() {
    let mut links = Links::new();
    links.wait(Duration::from_secs(20));
    assert_eq!((links.connected, links.disconnected, links.server.sessions()), (1, 0, 1));
    assert!(links.client.is_connected());
}
