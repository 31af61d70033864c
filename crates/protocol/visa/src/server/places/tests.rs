//! Places for sessions: what one client takes is taken from nobody else.

use sanwire_buffer::Head;
use sanwire_core::quota::{
    Account, COMMAND_NUMBERS_OF_SESSION, SESSIONS, SESSIONS_OF_ADDRESS, SESSIONS_OF_CLIENT, SESSIONS_OF_NETWORK,
    SLOTS_OF_CLIENT,
};
use sanwire_core::{LinkId, Path, Protection};
use sanwire_exchange::succession;

use super::*;
use crate::server::session::{Kept, ReplyTo, Unit};
use crate::server::{Doorkeeper, ServerEvent};
use crate::testing::{LINK, client, exchange, server};
use crate::{ClientEvent, Failure};

/// Lets in everybody, and lists one.
struct Door(ClientId);

impl Doorkeeper for Door {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn is_listed(&self, client: ClientId) -> bool {
        client == self.0
    }
}

const LISTED: ClientId = ClientId([0xee; 16]);

fn host(number: u32) -> Peer {
    Peer::Udp((number.to_be_bytes(), 1).into()).host()
}

fn id(number: u32) -> ClientId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    ClientId(id)
}

/// A session that nobody is connected with.
fn add(server: &mut Server, (client, number): (ClientId, u64), host: Peer, now: Instant) -> NexusId {
    let (nexus, memory) = (NexusId(1_000_000 + server.sessions.len() as u64), server.config.memory.clone());
    server.take_in(nexus, Session::new((client, number), host, memory, now));
    nexus
}

fn closed(server: &mut Server) -> Vec<NexusId> {
    let events = std::iter::from_fn(|| server.poll_event());
    let closed = events.filter_map(|event| match event {
        ServerEvent::SessionClosed { nexus, .. } => Some(nexus),
        _ => None,
    });
    closed.collect()
}

/// The number of a program's first session.
fn run(number: u64) -> u64 {
    succession::first(number << 32)
}

#[test]
fn a_full_shard_ends_no_session_of_another_and_takes_back_those_it_has() {
    let mut server = server(LINK, Door(LISTED));
    for number in 0..SESSIONS.limit as u32 {
        add(&mut server, (id(number), 0), host(number), Instant::ZERO);
    }
    assert!(!server.make_place((id(999_999), 0), host(999_999)));
    assert!(!server.make_place((LISTED, 0), host(1)));
    assert_eq!(closed(&mut server), []);
    assert!(server.make_place((id(7), 0), host(7)), "it goes on");
    // Its own has been away for a while.
    assert!(server.make_place((id(7), run(1)), host(7)));
    assert_eq!(closed(&mut server), [NexusId(1_000_007)]);
}

#[test]
fn a_client_without_places_ends_its_own_session_that_was_away_for_longest() {
    let mut server = server(LINK, Door(LISTED));
    for number in 0..SESSIONS_OF_CLIENT.limit {
        let nexus = add(&mut server, (id(1), run(number)), host(1), Instant::from_nanos(1000 - number));
        // All but three are connected.
        if number < SESSIONS_OF_CLIENT.limit - 3 {
            server.sessions.get_mut(&nexus).unwrap().connection = Some(number as u32);
        }
    }
    assert!(server.make_place((id(1), run(5000)), host(1)));
    assert_eq!(closed(&mut server), [NexusId(1_000_000 + SESSIONS_OF_CLIENT.limit - 1)]);
    assert!(server.make_place((id(2), 0), host(1)), "another client has its own");
}

/// They end when it begins.
#[test]
fn a_client_that_has_all_its_places_can_replace_a_session_of_its_own() {
    let mut server = server(LINK, Door(LISTED));
    for number in 0..SESSIONS_OF_CLIENT.limit {
        let nexus = add(&mut server, (id(1), run(number)), host(1), Instant::ZERO);
        server.sessions.get_mut(&nexus).unwrap().connection = Some(number as u32);
    }
    assert!(!server.make_place((id(1), run(5000)), host(1)), "another program has no place");
    assert!(server.make_place((id(1), succession::successor(run(3))), host(1)));
    assert_eq!(closed(&mut server), []);
}

#[test]
fn keys_without_number_from_one_address_or_network_leave_places_for_others() {
    let mut server = server(LINK, Door(LISTED));
    for number in 0..SESSIONS_OF_ADDRESS.limit as u32 {
        add(&mut server, (id(number), 0), host(1), Instant::ZERO);
    }
    let elsewhere = (id(999_999), 0);
    assert!(!server.make_place(elsewhere, host(1)) && server.make_place(elsewhere, host(2)));
    assert!(server.make_place((LISTED, 0), host(1)), "it does not wait for those of its address");
    // One of them goes on from elsewhere, another one ends.
    for nexus in [NexusId(1_000_000), NexusId(1_000_001)] {
        server.close_session(nexus, SessionEnd::Closed);
    }
    assert!(server.make_place(elsewhere, host(1)));
    let neighbour = |number: u32| Peer::Udp(((0x2001_0db8_u128 << 96 | u128::from(number)).to_be_bytes(), 1).into());
    for number in 0..SESSIONS_OF_NETWORK.limit as u32 {
        add(&mut server, (id(10_000 + number), 0), neighbour(number).host(), Instant::ZERO);
    }
    assert!(!server.make_place(elsewhere, neighbour(9999).host()));
}

/// A command was answered, and nothing is known of those before it.
fn remember_a_span(session: &mut Session) {
    let to = ReplyTo { tag: 0, protection: Protection::Checksum };
    let unit = Unit { lun: None, protection: Protection::Checksum };
    session.commands.ask((1023, 0), (to, None), unit, &mut Account::new(&COMMAND_NUMBERS_OF_SESSION));
    let kept = Kept { head: Head::new(), data: None, protection: Protection::Checksum, is_bulk_read: false };
    session.commands.answer(1023, kept, None);
}

#[test]
fn what_is_remembered_for_a_client_that_is_away_is_bounded() {
    let mut server = server(LINK, Door(LISTED));
    let ends = 12;
    for number in 0..ends {
        let nexus = add(&mut server, (id(1), run(number)), host(1), Instant::from_nanos(number));
        remember_a_span(server.sessions.get_mut(&nexus).unwrap());
    }
    server.bound_slots(id(1));
    let slots: usize = server.sessions.values().map(|session| session.commands.slots()).sum();
    assert!(slots as u64 <= SLOTS_OF_CLIENT.limit && !server.sessions.is_empty(), "{slots}");
    assert_eq!(closed(&mut server), [NexusId(1_000_000), NexusId(1_000_001)], "they were away for longest");
}

#[test]
fn who_has_no_place_hears_so_and_what_was_taken_is_told() {
    let (mut server, path) =
        (server(LINK, Door(LISTED)), Path { link: LinkId(0), peer: Peer::Udp(([0, 0, 0, 1], 1).into()) });
    for number in 0..SESSIONS_OF_ADDRESS.limit as u32 {
        add(&mut server, (id(number), 0), host(1), Instant::ZERO);
    }
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut client = client(LINK, path, now);
    while let Some(at) = client.poll_timeout() {
        now = now.max(at);
        client.handle_timeout(now);
        exchange(&mut client, &mut server, path, now);
    }
    let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
    assert!(matches!(events[..], [ClientEvent::GivenUp(Failure::Full)]), "{events:?}");
    let usage = server.quotas().find(|usage| *usage.quota == SESSIONS_OF_ADDRESS).unwrap();
    assert!(usage.refused > 0);
}
