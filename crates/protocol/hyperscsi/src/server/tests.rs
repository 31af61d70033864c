//! Both ends in memory: what a server does as clients come and go.

mod addresses;
mod answers;
mod capacity;
mod caps;
mod forgers;
mod guesses;
mod handshakes;
mod memory;
mod offers;
mod pauses;
mod places;
mod receipts;
mod refusals;
mod sessions;
mod shards;
mod storms;
mod strangers;
mod tally;
mod timers;
mod windows;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{ClientId, Instant, LinkId, Lun, Path, Peer};
use sanwire_scsi::build;

use super::connection::Request;
use super::{Admission, CommandHandle, LinkLimits, Server, ServerConfig};
use crate::wire::command::{Answer, Ask, RequestHead};
use crate::wire::flow::Window;
use crate::wire::{Protection, Tag};
use crate::{
    Client, ClientConfig, ClientEvent, CommandId, DesiredOptions, Failure, Identity, Order, Psk, Recovery, ServerEvent,
};

const LINK: LinkLimits = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 1024 };

fn path(port: u16) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(([127, 0, 0, 1], port).into()) }
}

fn server() -> Server {
    server_for(Box::new(|_, _| true))
}

fn server_for(admission: Box<dyn Admission>) -> Server {
    Server::new(config_for(admission))
}

fn config_for(admission: Box<dyn Admission>) -> ServerConfig {
    ServerConfig {
        name: "server".into(),
        identity: Identity::from_private([1; 32]).unwrap(),
        psk: [0; 32],
        admission,
        levels: Box::new(|_| Protection::Checksum),
        compressible: Box::new(|_| true),
        memory: Region::new(1 << 20).unwrap(),
        links: vec![LINK],
        addresses: Vec::new(),
        shard: 0,
        shards: 1,
        instance: 1,
        keep_alive: Duration::from_secs(5),
        rekey_interval: Duration::from_secs(3600),
        session_idle_max: Duration::from_secs(60),
        commands_max: 64,
        transfer_max_bytes: 1 << 20,
        recovery: Recovery::default(),
        seed: [2; 32],
    }
}

fn client(number: u8) -> Client {
    client_knowing(number, [0; 32])
}

fn id(number: u8) -> ClientId {
    Identity::from_private([10 + number; 32]).unwrap().client_id()
}

fn client_knowing(number: u8, psk: Psk) -> Client {
    let config = ClientConfig { psk, seed: [number ^ (psk[0] << 4); 32], ..client_config(number) };
    Client::new(config, Instant::ZERO)
}

fn client_config(number: u8) -> ClientConfig {
    ClientConfig {
        name: "client".into(),
        identity: Identity::from_private([10 + number; 32]).unwrap(),
        psk: [0; 32],
        server_key: None,
        path: path(1),
        server_name: String::new(),
        link: LINK,
        commands_max: 64,
        transfer_max_bytes: 1 << 20,
        protection_min: Protection::Checksum,
        wishes: DesiredOptions::default(),
        recovery: Recovery::default(),
        connect_patience: Duration::from_secs(5),
        reconnect_patience: Some(Duration::from_secs(60)),
        seed: [number; 32],
    }
}

/// Carries packets until neither end has more to say.
fn exchange(server: &mut Server, clients: &mut [Client], now: Instant) {
    let bytes = |packet: &sanwire_buffer::Packet| packet.to_vec();
    loop {
        let mut is_quiet = true;
        for (index, client) in clients.iter_mut().enumerate() {
            while let Some((_, packet)) = client.poll_transmit(now) {
                server.handle_input(path(100 + index as u16), &bytes(&packet), now);
                is_quiet = false;
            }
        }
        while let Some((to, packet)) = server.poll_transmit(now) {
            let index = (0..clients.len()).find(|index| path(100 + *index as u16) == to).unwrap();
            clients[index].handle_input(path(1), &bytes(&packet), now);
            is_quiet = false;
        }
        if is_quiet {
            return;
        }
    }
}

fn inward(server: &Server) -> Vec<Window> {
    server.connections.values().map(|connection| connection.channel.windows().inward).collect()
}

#[test]
fn clients_share_what_a_link_takes() {
    let (mut server, mut clients) = (server(), vec![client(1), client(2)]);
    exchange(&mut server, &mut clients[..1], Instant::ZERO);
    assert_eq!(inward(&server), [Window::fitting(1024)]);
    exchange(&mut server, &mut clients, Instant::ZERO);
    assert_eq!(inward(&server), [Window::fitting(512); 2]);
    clients[1].disconnect(Instant::ZERO);
    exchange(&mut server, &mut clients, Instant::ZERO);
    assert_eq!(inward(&server), [Window::fitting(1024)]);
}

#[test]
fn a_server_that_comes_back_late_is_not_asked_what_has_failed() {
    let (mut server, mut clients) = (server(), [client(1)]);
    exchange(&mut server, &mut clients, Instant::ZERO);
    assert!(matches!(clients[0].poll_event(), Some(ClientEvent::Connected { .. })));
    let ready = || Order {
        lun: Lun::default(),
        ask: Ask::Command(build::test_unit_ready()),
        is_repeatable: true,
        data_out: None,
        data_in: None,
    };
    let id = clients[0].order(ready(), Instant::ZERO).unwrap();
    // Nobody carries packets for long.
    let mut now = Instant::ZERO;
    let mut events = Vec::new();
    while now < Instant::ZERO + Duration::from_secs(200) {
        now = clients[0].poll_timeout().unwrap().max(now + Duration::from_millis(1));
        clients[0].handle_timeout(now);
        while clients[0].poll_transmit(now).is_some() {}
        events.extend(std::iter::from_fn(|| clients[0].poll_event()));
    }
    assert!(
        matches!(&events[..], [
            ClientEvent::Lost { announced: false },
            ClientEvent::Failed { id: failed, failure: Failure::NoAnswer, .. },
            ClientEvent::OutOfPatience(Failure::NoAnswer),
        ] if *failed == id),
        "{events:?}"
    );
    assert!(clients[0].order(ready(), now).is_err(), "nobody would wait for its end");
    while events.len() == 3 {
        now = clients[0].poll_timeout().unwrap().max(now + Duration::from_millis(1));
        clients[0].handle_timeout(now);
        exchange(&mut server, &mut clients, now);
        events.extend(std::iter::from_fn(|| clients[0].poll_event()));
    }
    assert!(matches!(events[3], ClientEvent::Connected { .. }));
    while let Some(event) = server.poll_event() {
        assert!(!matches!(event, ServerEvent::Command { .. }), "what has failed was executed");
    }
}

/// A client's secret and the packets of its window.
type Term = (Option<Psk>, Option<u32>);

/// Terms that a test changes while the server runs.
#[derive(Clone, Default)]
struct Terms(Arc<Mutex<BTreeMap<ClientId, Term>>>);

impl Terms {
    fn set(&self, number: u8, psk: Option<Psk>, window: Option<u32>) {
        self.0.lock().unwrap().insert(id(number), (psk, window));
    }
}

impl Admission for Terms {
    fn permits(&self, _: Peer, client: Option<ClientId>) -> bool {
        client.is_none_or(|client| self.0.lock().unwrap().contains_key(&client))
    }

    fn psk(&self, client: ClientId) -> Option<Psk> {
        self.0.lock().unwrap().get(&client)?.0
    }

    fn window_max_packets(&self, client: ClientId) -> Option<u32> {
        self.0.lock().unwrap().get(&client)?.1
    }
}

/// Lists client 1, and lets everybody in.
struct ListsOne;

impl Admission for ListsOne {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn is_listed(&self, client: ClientId) -> bool {
        client == id(1)
    }
}

#[test]
fn a_client_with_a_secret_of_its_own_must_know_that_one() {
    let terms = Terms::default();
    terms.set(1, Some([7; 32]), None);
    terms.set(2, None, None);
    for (number, psk, is_let_in) in [(1, [7; 32], true), (1, [0; 32], false), (2, [7; 32], false), (2, [0; 32], true)] {
        let mut server = server_for(Box::new(terms.clone()));
        exchange(&mut server, &mut [client_knowing(number, psk)], Instant::ZERO);
        assert_eq!(server.connections(), usize::from(is_let_in), "client {number}");
        assert_eq!(server.counters().not_authentic, u64::from(!is_let_in));
    }
}

#[test]
fn another_secret_holds_from_the_next_handshake_on() {
    let terms = Terms::default();
    terms.set(1, Some([7; 32]), None);
    let (mut server, mut old) = (server_for(Box::new(terms.clone())), vec![client_knowing(1, [7; 32])]);
    exchange(&mut server, &mut old, Instant::ZERO);
    terms.set(1, Some([8; 32]), None);
    server.share_windows(Instant::ZERO);
    exchange(&mut server, &mut old, Instant::ZERO);
    assert_eq!(server.connections(), 1, "who is in stays in");
    server.drop_client(id(1), Instant::ZERO);
    exchange(&mut server, &mut [client_knowing(1, [7; 32])], Instant::ZERO);
    assert_eq!(server.connections(), 0);
    // Who has given a wrong password must wait a moment.
    let later = Instant::ZERO + Duration::from_secs(1);
    exchange(&mut server, &mut [client_knowing(1, [8; 32])], later);
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_client_keeps_within_its_window_also_a_new_one() {
    let terms = Terms::default();
    terms.set(1, None, Some(64));
    let (mut server, mut clients) = (server_for(Box::new(terms.clone())), vec![client(1)]);
    exchange(&mut server, &mut clients, Instant::ZERO);
    let windows = |server: &Server| server.connection_statuses()[0].1.windows;
    assert_eq!((windows(&server).inward, windows(&server).outward), (Window::fitting(64), Window::fitting(64)));
    for (most, packets) in [(Some(8), 8), (Some(5), 5), (None, 1024)] {
        terms.set(1, None, most);
        server.share_windows(Instant::ZERO);
        exchange(&mut server, &mut clients, Instant::ZERO);
        assert_eq!(windows(&server).inward, Window::fitting(packets));
        assert_eq!(windows(&server).outward, Window::fitting(packets));
    }
}

#[test]
fn a_client_that_is_dropped_takes_its_sessions_with_it_and_no_others() {
    let terms = Terms::default();
    terms.set(1, None, None);
    terms.set(2, None, None);
    let (mut server, mut clients) = (server_for(Box::new(terms.clone())), vec![client(1), client(2)]);
    exchange(&mut server, &mut clients, Instant::ZERO);
    while server.poll_event().is_some() {}
    terms.0.lock().unwrap().remove(&id(1));
    server.drop_client(id(1), Instant::ZERO);
    let closed = |event: Option<ServerEvent>| matches!(event, Some(ServerEvent::SessionClosed { .. }));
    assert!(closed(server.poll_event()) && server.poll_event().is_none());
    exchange(&mut server, &mut clients, Instant::ZERO);
    let left: Vec<ClientId> = server.connection_statuses().into_iter().map(|(client, _)| client).collect();
    assert_eq!(left, [id(2)], "the other one goes on, and the dropped one is not served again");
}

#[test]
fn who_is_removed_during_the_handshake_is_not_let_in() {
    let terms = Terms::default();
    terms.set(1, None, None);
    let mut server = server_for(Box::new(terms.clone()));
    let mut client = client(1);
    let bytes = |packet: &sanwire_buffer::Packet| packet.to_vec();
    let (_, discovery) = client.poll_transmit(Instant::ZERO).unwrap();
    server.handle_input(path(100), &bytes(&discovery), Instant::ZERO);
    let (_, answer) = server.poll_transmit(Instant::ZERO).unwrap();
    terms.0.lock().unwrap().clear();
    client.handle_input(path(1), &bytes(&answer), Instant::ZERO);
    exchange(&mut server, &mut [client], Instant::ZERO);
    assert_eq!((server.connections(), server.counters().not_permitted > 0), (0, true));
}

/// A request to manage the server, with room for an answer.
fn administer(client: &mut Client, json: &[u8]) -> CommandId {
    let (data_out, data_in) = (Some(json.to_vec().into()), Some(vec![0; 1 << 16].into()));
    client
        .order(
            Order { lun: Lun::default(), ask: Ask::Administer, is_repeatable: true, data_out, data_in },
            Instant::ZERO,
        )
        .unwrap()
}

fn asked(server: &mut Server) -> Vec<(CommandHandle, Vec<u8>, u32)> {
    let events = std::iter::from_fn(|| server.poll_event());
    let requests = events.filter_map(|event| match event {
        ServerEvent::Administer { handle, request, room_bytes } => {
            Some((handle, request.map_or_else(Vec::new, |json| json.to_vec()), room_bytes))
        }
        _ => None,
    });
    requests.collect()
}

#[test]
fn management_goes_sealed_both_ways_and_in_as_many_packets_as_it_needs() {
    let (mut server, mut clients) = (server(), [client(1)]);
    exchange(&mut server, &mut clients, Instant::ZERO);
    let (request, answer) = ([b'q'; 20_000], [b'a'; 30_000]);
    let id = administer(&mut clients[0], &request);
    let bytes = |packet: &sanwire_buffer::Packet| packet.to_vec();
    let shows = |packet: &[u8]| packet.windows(8).any(|part| part == [b'q'; 8] || part == [b'a'; 8]);
    let mut sealed = 0;
    for _ in 0..200 {
        while let Some((_, packet)) = clients[0].poll_transmit(Instant::ZERO) {
            assert!(!shows(&bytes(&packet)), "nobody else reads it");
            assert!(packet.head.len() <= 1500);
            sealed += usize::from(packet.head[4] == 0x32);
            server.handle_input(path(100), &bytes(&packet), Instant::ZERO);
        }
        for (handle, json, room_bytes) in asked(&mut server) {
            assert_eq!((&json[..], room_bytes), (&request[..], 1 << 16));
            server.administered(handle, Some(answer.to_vec().into()), Instant::ZERO);
        }
        while let Some((_, packet)) = server.poll_transmit(Instant::ZERO) {
            assert!(!shows(&bytes(&packet)));
            clients[0].handle_input(path(1), &bytes(&packet), Instant::ZERO);
        }
    }
    assert!(sealed >= 14, "{sealed}");
    let completed = std::iter::from_fn(|| clients[0].poll_event()).find_map(|event| match event {
        ClientEvent::Completed { id, answer: Answer::Administered, data_in, data_in_bytes } => {
            Some((id, data_in.unwrap()[..data_in_bytes].to_vec()))
        }
        _ => None,
    });
    assert_eq!(completed, Some((id, answer.to_vec())));
    assert_eq!((server.counters().rejected, server.counters().violations), (0, 0));
}

#[test]
fn what_the_device_is_too_busy_for_is_not_managed_either() {
    let (mut server, mut clients) = (server(), [client(1)]);
    exchange(&mut server, &mut clients, Instant::ZERO);
    server.accounts.commands = sanwire_core::quota::Account::within(&sanwire_core::quota::COMMANDS_OF_SESSION, 1);
    let ids = [administer(&mut clients[0], b"1"), administer(&mut clients[0], b"2")];
    exchange(&mut server, &mut clients, Instant::ZERO);
    let requests = asked(&mut server);
    assert_eq!(requests.len(), 1);
    let empty = std::iter::from_fn(|| clients[0].poll_event()).find_map(|event| match event {
        ClientEvent::Completed { id, answer: Answer::Administered, data_in_bytes: 0, .. } => Some(id),
        _ => None,
    });
    assert_eq!(empty, Some(ids[1]), "it was not begun");
}

#[test]
fn a_request_to_manage_that_comes_again_is_answered_from_memory() {
    let (mut server, mut clients) = (server(), [client(1)]);
    exchange(&mut server, &mut clients, Instant::ZERO);
    administer(&mut clients[0], b"once");
    exchange(&mut server, &mut clients, Instant::ZERO);
    let [(handle, ..)] = &asked(&mut server)[..] else { panic!("one request") };
    server.administered(*handle, Some(b"done".to_vec().into()), Instant::ZERO);
    // The answer is lost with the connection.
    while server.poll_transmit(Instant::ZERO).is_some() {}
    let mut now = Instant::ZERO;
    let mut answers = Vec::new();
    while answers.is_empty() && now < Instant::ZERO + Duration::from_secs(60) {
        now = clients[0].poll_timeout().unwrap().max(now + Duration::from_millis(1));
        clients[0].handle_timeout(now);
        server.handle_timeout(now);
        exchange(&mut server, &mut clients, now);
        assert!(asked(&mut server).is_empty(), "it is not done again");
        let completed = std::iter::from_fn(|| clients[0].poll_event());
        answers.extend(completed.filter(|event| matches!(event, ClientEvent::Completed { .. })));
    }
    assert!(matches!(answers[..], [ClientEvent::Completed { data_in_bytes: 4, .. }]), "{answers:?}");
}

#[test]
fn what_came_in_the_open_is_no_management_and_what_came_sealed_is_no_command() {
    let (mut server, mut clients) = (server(), [client(1)]);
    exchange(&mut server, &mut clients, Instant::ZERO);
    let nexus = *server.sessions.keys().next().unwrap();
    for (ask, is_local) in [(Ask::Administer, false), (Ask::Command(build::test_unit_ready()), true)] {
        let head = RequestHead { number: 0, settled_below: 0, receipts: 0, lun: [0; 8], data_in_max_bytes: 512, ask };
        let protection = Protection::STRONGEST;
        let request = Request { tag: Tag::default(), head, data: None, protection, is_local };
        server.handle_request(nexus, path(100), request, Instant::ZERO);
    }
    let is_done = |event| matches!(event, ServerEvent::Administer { .. } | ServerEvent::Command { .. });
    assert!(!std::iter::from_fn(|| server.poll_event()).any(is_done));
    assert_eq!(server.counters().violations, 2);
}

fn links(server: &Server) -> usize {
    server.connections.values().map(|connection| connection.channel.links().count()).sum()
}

#[test]
fn a_path_is_a_link_only_when_both_ends_have_heard_each_other_there() {
    let (now, bytes) = (Instant::ZERO, |packet: &sanwire_buffer::Packet| packet.head.to_vec());
    let (mut server, mut clients) = (server(), [client(1)]);
    exchange(&mut server, &mut clients, now);
    let [client] = &mut clients;
    let there = Path { link: LinkId(1), ..path(1) };
    client.join(there, LINK, now);
    client.handle_timeout(now);
    let (way, join) = client.poll_transmit(now).unwrap();
    let join = bytes(&join);
    assert_eq!(way, there);

    // Somebody flips a bit of it, then sends it in his own name before it arrives, then again.
    let mut forged = join.clone();
    forged[30] ^= 1;
    server.handle_input(path(666), &forged, now);
    assert_eq!((server.counters().rejected, server.poll_transmit(now).is_none()), (1, true));
    server.handle_input(path(666), &join, now);
    let (to, reply) = server.poll_transmit(now).unwrap();
    assert_eq!(to, path(666));
    server.handle_input(path(200), &join, now);
    assert_eq!(server.counters().rejected, 2, "each packet is taken once");
    // What he is answered is sealed for the client, which was not asked there.
    client.handle_input(path(1), &bytes(&reply), now);
    assert_eq!((links(&server), client.links().len()), (1, 1), "he cannot confirm");

    // The client asks again, and is heard.
    let later = now + Duration::from_secs(1);
    client.handle_timeout(later);
    let mut steps = 0;
    while links(&server) == 1 || client.links().len() == 1 {
        client.handle_timeout(later);
        while let Some((way, packet)) = client.poll_transmit(later) {
            let from = if way == there { path(200) } else { path(100) };
            server.handle_input(from, &bytes(&packet), later);
        }
        server.handle_timeout(later);
        while let Some((to, packet)) = server.poll_transmit(later) {
            let from = if to == path(200) { there } else { path(1) };
            client.handle_input(from, &bytes(&packet), later);
        }
        steps += 1;
        assert!(steps < 10, "the path does not become a link");
    }
    assert_eq!((links(&server), client.links().len()), (2, 2));
}
