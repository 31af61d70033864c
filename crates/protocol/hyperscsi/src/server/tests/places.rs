//! Places for sessions: what one client takes is taken from nobody else.

use std::net::Ipv6Addr;
use std::time::Duration;

use sanwire_buffer::Head;
use sanwire_core::quota::{
    Account, COMMAND_NUMBERS_OF_SESSION, SESSIONS, SESSIONS_OF_ADDRESS, SESSIONS_OF_CLIENT, SESSIONS_OF_NETWORK,
    SLOTS_OF_CLIENT,
};
use sanwire_core::{ClientId, Instant, NexusId, Peer};

use super::world::{MS, World};
use super::{ListsOne, client, client_config, exchange, id, path, server, server_for};
use crate::server::session::{Kept, ReplyTo, Session, Unit};
use crate::wire::command::UnitTerms;
use crate::wire::{Protection, Tag};
use crate::{Client, ClientConfig, ClientEvent, Failure, Server, ServerEvent};

/// A program of client 1 with a session of its own.
fn program(number: u8) -> Client {
    Client::new(ClientConfig { seed: [100 + number; 32], ..client_config(1) }, Instant::ZERO)
}

/// Lets time pass until all of them are connected, or have given up.
fn settle(server: &mut Server, clients: &mut [Client], mut now: Instant) -> Instant {
    while clients.iter().any(|client| client.server().is_none() && client.poll_timeout().is_some()) {
        now += 10 * MS;
        clients.iter_mut().for_each(|client| client.handle_timeout(now));
        server.handle_timeout(now);
        exchange(server, clients, now);
    }
    now
}

/// Sessions of strangers from other addresses, as many as there is room for; `source` of each may say where it is.
fn fill(server: &mut Server, count: u64, source: impl Fn(u32) -> Peer) {
    for number in 0..count as u32 {
        let (nexus, mut bytes) = (NexusId(1_000_000 + u64::from(number)), [0; 16]);
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let session = Session::new(
            (ClientId(bytes), 0),
            nexus,
            source(number).host(),
            server.config.memory.clone(),
            Instant::ZERO,
        );
        server.take_in(session);
    }
}

fn elsewhere(number: u32) -> Peer {
    Peer::Udp((number.to_be_bytes(), 1).into())
}

fn closed(server: &mut Server) -> usize {
    std::iter::from_fn(|| server.poll_event())
        .filter(|event| matches!(event, ServerEvent::SessionClosed { .. }))
        .count()
}

fn is_full(client: &mut Client) -> bool {
    std::iter::from_fn(|| client.poll_event()).any(|event| matches!(event, ClientEvent::GivenUp(Failure::Full)))
}

/// Connected sessions of a client that does not say where it is, as many as are wanted.
fn fill_own(server: &mut Server, client: ClientId, count: u64) {
    for number in 0..count {
        let nexus = NexusId(2_000_000 + number);
        let memory = server.config.memory.clone();
        let mut session = Session::new((client, number << 32), nexus, path(100).peer.host(), memory, Instant::ZERO);
        session.connection = Some(number as u32);
        server.take_in(session);
    }
}

/// Each of which a program of its own may use, by the one key of its host.
#[test]
fn a_client_may_use_256_volumes_by_sessions_of_their_own_and_still_look_around() {
    let mut server = server();
    fill_own(&mut server, id(1), 256);
    let mut late = [program(1)];
    settle(&mut server, &mut late, Instant::ZERO);
    assert!(late[0].server().is_some());
}

#[test]
fn who_is_refused_as_full_learns_how_many_sessions_there_may_be() {
    let text = Failure::Full.to_string();
    assert!(text.contains(&format!("a client has {} at most", SESSIONS_OF_CLIENT.limit)), "{text}");
}

#[test]
fn one_key_takes_its_own_places_and_no_others() {
    let mut server = server();
    fill_own(&mut server, id(1), SESSIONS_OF_CLIENT.limit - 8);
    let mut programs: Vec<Client> = (0..9).map(program).collect();
    let now = settle(&mut server, &mut programs, Instant::ZERO);
    let refused: Vec<bool> = programs.iter_mut().map(is_full).collect();
    assert_eq!(refused.iter().filter(|is_full| **is_full).count(), 1);
    assert_eq!((server.connections(), server.sessions.len() as u64), (8, SESSIONS_OF_CLIENT.limit));
    let usage = server.quotas().into_iter().find(|usage| *usage.quota == SESSIONS_OF_CLIENT).unwrap();
    assert_eq!(usage.most, Some(SESSIONS_OF_CLIENT.limit));
    programs.push(client(2));
    exchange(&mut server, &mut programs, now);
    assert!(programs.pop().unwrap().server().is_some(), "another client");
}

#[test]
fn a_client_without_places_ends_its_own_session_that_was_away_for_longest() {
    let mut server = server();
    fill_own(&mut server, id(1), SESSIONS_OF_CLIENT.limit - 3);
    let mut programs: Vec<Client> = (0..3).map(program).collect();
    let mut now = settle(&mut server, &mut programs, Instant::ZERO);
    // The first two are cut off, one after the other.
    for program in &programs[..2] {
        now += MS;
        let nexus = server.by_client[&(id(1), program.session())];
        let connection = server.sessions[&nexus].connection.unwrap();
        server.drop_connection(connection, now);
    }
    while server.poll_event().is_some() {}
    programs.push(program(3));
    exchange(&mut server, &mut programs, now);
    assert!(programs[3].server().is_some());
    assert_eq!(closed(&mut server), 1);
    let left: Vec<bool> =
        (0..2).map(|index| server.by_client.contains_key(&(id(1), programs[index].session()))).collect();
    assert_eq!(left, [false, true]);
}

#[test]
fn a_full_server_ends_no_session_of_another_and_takes_back_those_it_has() {
    let mut world = World::new();
    fill(&mut world.server, SESSIONS.limit - 1, elsewhere);
    let mut stranger = [client(2)];
    settle(&mut world.server, &mut stranger, world.now);
    assert!(is_full(&mut stranger[0]));
    assert_eq!((world.server.sessions.len() as u64, closed(&mut world.server)), (SESSIONS.limit, 0));
    // The connected one loses its connection, and comes back.
    let id = *world.server.connections.keys().next().unwrap();
    world.server.drop_connection(id, world.now);
    world.order(0);
    world.run(Duration::from_secs(5), &mut |_| false);
    assert_eq!(world.come(), [0]);
    assert_eq!((world.server.connections(), closed(&mut world.server)), (1, 0));
}

#[test]
fn keys_without_number_from_one_address_leave_places_for_other_addresses() {
    let mut server = server();
    let here = path(100).peer;
    fill(&mut server, SESSIONS_OF_ADDRESS.limit, |_| here);
    let mut clients = [client(1)];
    settle(&mut server, &mut clients, Instant::ZERO);
    assert!(is_full(&mut clients[0]));
    let Server { places, sessions, .. } = &mut server;
    sessions.values_mut().take(1).for_each(|session| places.count(session, Some(elsewhere(7).host())));
    let mut clients = [client(2)];
    exchange(&mut server, &mut clients, Instant::ZERO + Duration::from_secs(10));
    assert!(clients[0].server().is_some());
}

/// A host of one network of IPv6.
fn neighbour(number: u32) -> Peer {
    Peer::Udp((Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(number)), 1).into())
}

#[test]
fn the_many_hosts_of_a_network_have_more_places_than_one_host() {
    let mut server = server();
    fill(&mut server, SESSIONS_OF_NETWORK.limit - 1, neighbour);
    let could =
        |server: &Server, number| server.could_have_place(server.applicant((id(1), 1), neighbour(number).host()));
    assert!(could(&server, 9999));
    fill(&mut server, SESSIONS_OF_NETWORK.limit, neighbour);
    assert!(!could(&server, 9999));
    let mut server = super::server();
    fill(&mut server, SESSIONS_OF_ADDRESS.limit, |_| neighbour(7));
    assert!(could(&server, 600) && !could(&server, 7));
}

#[test]
fn a_listed_client_has_its_place_whoever_is_at_its_address() {
    let mut server = server_for(Box::new(ListsOne));
    fill(&mut server, SESSIONS_OF_ADDRESS.limit, |_| path(100).peer);
    let mut clients = [client(1)];
    settle(&mut server, &mut clients, Instant::ZERO);
    assert!(clients[0].server().is_some());
}

/// Nothing between the first and the last was ever asked.
fn remember_a_span(session: &mut Session) {
    let terms = UnitTerms { protection: Protection::Checksum, is_compressible: false };
    let unit = Unit { lun: None, terms };
    let to = ReplyTo { tag: Tag::default(), protection: Protection::Checksum, is_local: false };
    for number in [0, 1023] {
        session.ask((number, 0), to, unit, &mut Account::new(&COMMAND_NUMBERS_OF_SESSION));
    }
    for number in [0, 1023] {
        session.answer(number, Kept { head: Head::new(), data: None, is_compressible: false, is_bulk_read: false });
    }
}

#[test]
fn what_is_remembered_for_a_client_that_is_away_is_bounded() {
    let mut server = server();
    let mut programs: Vec<Client> = (0..12).map(program).collect();
    let mut now = settle(&mut server, &mut programs, Instant::ZERO);
    server.sessions.values_mut().for_each(remember_a_span);
    let ids: Vec<u32> = server.connections.keys().copied().collect();
    for id in ids {
        now += MS;
        server.drop_connection(id, now);
    }
    let slots: usize = server.sessions.values().map(Session::slots).sum();
    assert!(slots as u64 <= SLOTS_OF_CLIENT.limit, "{slots}");
    assert_eq!(server.sessions.len(), 10, "those that were away for the least time");
}

#[test]
fn a_session_of_which_nothing_is_remembered_makes_no_room_for_what_is() {
    let mut server = server();
    let mut programs: Vec<Client> = (0..13).map(program).collect();
    let mut now = settle(&mut server, &mut programs, Instant::ZERO);
    let ids: Vec<u32> = server.connections.keys().copied().collect();
    let (idle, busy) = ids.split_at(1);
    let idle_nexus = server.connections[&idle[0]].nexus;
    for session in server.sessions.values_mut().filter(|session| session.nexus != idle_nexus) {
        remember_a_span(session);
    }
    for id in idle.iter().chain(busy) {
        now += MS;
        server.drop_connection(*id, now);
    }
    assert!(server.sessions.contains_key(&idle_nexus), "it is away for longest, and has nothing to give");
    assert!(server.sessions.len() < programs.len());
}
