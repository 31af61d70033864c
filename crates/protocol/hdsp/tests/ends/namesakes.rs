//! Two servers of one name and one password, with the same disk, on one link.

use std::time::Duration;

use sanwire_core::{Instant, Path};
use sanwire_hdsp::wire::ErrorCode;
use sanwire_hdsp::{Client, ClientEvent, Server};
use sanwire_security::keys::Identity;

use crate::world::{Door, Habits, World, client, namesake, path, server};

/// Where the client asks for its server.
const EVERYBODY: u8 = 255;
/// Where it finds the servers.
const STATIONS: [u8; 2] = [11, 12];
/// Where they find it.
const CLIENT: u8 = 1;

fn keys() -> [[u8; 32]; 2] {
    [2, 7].map(|number| *Identity::from_private([number; 32]).unwrap().public())
}

struct Namesakes {
    door: Door,
    /// `None`: it is switched off.
    servers: [Option<Server>; 2],
    client: Client,
    now: Instant,
}

impl Namesakes {
    fn new(server_key: Option<[u8; 32]>) -> Self {
        let habits = Habits { server_key, ..Habits::default() };
        let World { door, memory, now, .. } = World::new(habits);
        let servers = [server(&door, 1, &memory), namesake(&door, [7; 32], &memory)].map(Some);
        Namesakes { door, servers, client: client(habits, 1, vec![path(EVERYBODY)], now), now }
    }

    /// Whether anything was sent.
    fn exchange(&mut self) -> bool {
        let mut is_any = false;
        let places = STATIONS.map(path);
        while let Some((to, packet)) = self.client.poll_transmit(self.now) {
            is_any = true;
            for (server, place) in self.servers.iter_mut().zip(places) {
                if let Some(server) = server.as_mut().filter(|_| to == place || to == path(EVERYBODY)) {
                    server.handle_input(path(CLIENT), &packet.head, self.now);
                }
            }
        }
        for (server, place) in self.servers.iter_mut().zip(places) {
            let Some(server) = server else { continue };
            while let Some((to, packet)) = server.poll_transmit(self.now) {
                is_any = true;
                assert_eq!(to, path(CLIENT));
                self.client.handle_input(place, &packet.head, self.now);
            }
            while server.poll_event().is_some() {}
        }
        is_any
    }

    /// Lets time pass; gives what the client tells.
    fn wait(&mut self, time: Duration) -> Vec<ClientEvent> {
        let (until, mut events) = (self.now + time, Vec::new());
        loop {
            while self.exchange() {}
            events.extend(std::iter::from_fn(|| self.client.poll_event()));
            let servers = self.servers.iter().flatten().filter_map(Server::poll_timeout);
            let next = self.client.poll_timeout().into_iter().chain(servers).min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.servers.iter_mut().flatten().for_each(|server| server.handle_timeout(self.now));
        }
        self.now = until;
        events
    }
}

/// Of each connection that the client has told of: where it leads, and whose it is.
fn connections(events: &[ClientEvent]) -> Vec<(Path, [u8; 32])> {
    let connection = |event: &ClientEvent| match event {
        ClientEvent::Connected(server) => Some((server.path, server.key)),
        _ => None,
    };
    events.iter().filter_map(connection).collect()
}

#[test]
fn a_client_stays_with_the_server_that_it_has_and_knows_another_one_for_another() {
    let mut world = Namesakes::new(None);
    let events = world.wait(Duration::from_secs(30));
    let [(station, key)] = connections(&events)[..] else { panic!("{events:?}") };
    assert!(!events.iter().any(|event| matches!(event, ClientEvent::Disconnected)), "{events:?}");
    let place = STATIONS.iter().position(|other| path(*other) == station).expect("one of both");
    assert_eq!(key, keys()[place]);
    // What it has answered before nobody else has: commands are held until the disk was looked at.
    world.servers[place] = None;
    let events = world.wait(Duration::from_secs(30));
    assert_eq!(connections(&events), [(path(STATIONS[1 - place]), keys()[1 - place])]);
    assert!(events.iter().any(|event| matches!(event, ClientEvent::Forgotten)), "{events:?}");
}

#[test]
fn a_client_that_knows_the_key_is_told_that_of_the_other_server_and_never_takes_it() {
    let [right, other] = keys();
    let mut world = Namesakes::new(Some(right));
    let mut events = world.wait(Duration::from_secs(30));
    assert_eq!(connections(&events), [(path(STATIONS[0]), right)]);
    // The right one is gone: who answers now is told, and is not it.
    world.servers[0] = None;
    events.extend(world.wait(Duration::from_secs(30)));
    assert_eq!(connections(&events).len(), 1, "{events:?}");
    let is_told = |event: &ClientEvent| matches!(event, ClientEvent::OtherServer { key } if *key == other);
    assert!(events.iter().any(is_told) && !world.client.is_connected(), "{events:?}");
    assert_eq!(world.servers[1].as_ref().map(Server::sessions), Some(0));
}

/// Anybody can say of himself that he has no such volume.
#[test]
fn a_client_whose_server_is_away_does_not_take_the_word_of_another_one_that_its_volume_is_gone() {
    let mut world = Namesakes::new(None);
    let events = world.wait(Duration::from_secs(30));
    let [(station, _)] = connections(&events)[..] else { panic!("{events:?}") };
    let place = STATIONS.iter().position(|other| path(*other) == station).expect("one of both");
    let away = world.servers[place].take();
    let disk = world.door.disk.lock().unwrap().take();
    let events = world.wait(Duration::from_secs(30));
    let is_refused = |event: &ClientEvent| matches!(event, ClientEvent::Refused(ErrorCode::NoSuchDisk));
    let is_gone = |event: &ClientEvent| matches!(event, ClientEvent::VolumeGone);
    assert!(events.iter().any(is_refused) && !events.iter().any(is_gone), "{events:?}");
    world.servers[place] = away;
    let events = world.wait(Duration::from_secs(30));
    assert!(events.iter().any(is_gone), "its own one says so, too: {events:?}");
    *world.door.disk.lock().unwrap() = disk;
    assert_eq!(connections(&world.wait(Duration::from_secs(5))).len(), 1, "it is sought on");
}
