//! Handshakes beside others: by several paths, of many clients at once, with forged steps in between.

use std::time::Duration;

use sanwire_core::quota::{HALF_OPENS, HALF_OPENS_OF_SESSION, Quota};
use sanwire_core::{Instant, LinkId, Path, Peer};

use super::world::{MS, bytes};
use super::{LINK, client, client_config, config_for, exchange, path, server};
use crate::handshake::Initiator;
use crate::keys::Randomness;
use crate::server::loose_packet;
use crate::wire::setup::{AdnRequest, Discovery, Refusal, SecondStep, write_adn_reply};
use crate::wire::{Opcode, Prefix};
use crate::{Client, ClientConfig, ClientEvent, Failure, Identity, Server, ServerConfig};

/// A server with two links.
fn on_two_links() -> Server {
    Server::new(ServerConfig { links: vec![LINK, LINK], ..config_for(Box::new(|_, _| true)) })
}

/// Packets on their way, each with the path that it takes and the moment at which it is there.
#[derive(Default)]
pub(super) struct Way(Vec<(Instant, Path, Vec<u8>)>);

impl Way {
    pub(super) fn put(&mut self, at: Instant, path: Path, packet: Vec<u8>) {
        self.0.push((at, path, packet));
    }

    pub(super) fn arrived(&mut self, now: Instant) -> Vec<(Path, Vec<u8>)> {
        self.0.extract_if(.., |(at, ..)| *at <= now).map(|(_, path, packet)| (path, packet)).collect()
    }
}

/// Lets a client look for a server to which several paths lead: what it says before it has an answer goes by all of them, and the ways
/// take this long. The paths of both ends have the same links.
fn seek_everywhere(client: &mut Client, paths: &[Path], delay: Duration, length: Duration) -> Server {
    let (mut server, mut now) = (on_two_links(), Instant::ZERO);
    let (mut there, mut back) = (Way::default(), Way::default());
    while now < Instant::ZERO + length && client.server().is_none() {
        now += MS;
        client.handle_timeout(now);
        server.handle_timeout(now);
        while let Some((to, packet)) = client.poll_transmit(now) {
            let by = if to == path(1) { paths } else { std::slice::from_ref(&to) };
            by.iter().for_each(|by| there.put(now + delay, *by, bytes(&packet)));
        }
        for (by, packet) in there.arrived(now) {
            server.handle_input(by, &packet, now);
        }
        while let Some((by, packet)) = server.poll_transmit(now) {
            back.put(now + delay, by, bytes(&packet));
        }
        for (by, packet) in back.arrived(now) {
            client.handle_input(by, &packet, now);
        }
    }
    server
}

#[test]
fn a_client_that_asks_by_two_links_at_once_is_connected() {
    let by_link = |link| Path { link: LinkId(link), ..path(7) };
    let mut client = client(1);
    let server = seek_everywhere(&mut client, &[by_link(0), by_link(1)], MS, 100 * MS);
    assert!(client.server().is_some(), "{:?}", server.counters());
}

#[test]
fn a_client_of_a_server_with_several_addresses_far_away_is_connected() {
    let mut client = client(1);
    let addresses: Vec<Path> = (5..11).map(path).collect();
    let server = seek_everywhere(&mut client, &addresses, 80 * MS, 500 * MS);
    assert!(client.server().is_some(), "{:?}", server.counters());
    assert_eq!(server.counters().unknown_connection, 0);
}

#[test]
fn a_handshake_that_was_begun_earlier_does_not_replace_the_connection_however_late_it_ends() {
    let (mut server, now) = (server(), Instant::ZERO);
    let mut client = client(1);
    let (_, discovery) = client.poll_transmit(now).unwrap();
    for port in [100, 101] {
        server.handle_input(path(port), &bytes(&discovery), now);
    }
    let answers: Vec<_> = std::iter::from_fn(|| server.poll_transmit(now)).collect();
    assert_eq!(answers.len(), 2);
    client.handle_input(path(1), &bytes(&answers[0].1), now);
    let (_, third) = client.poll_transmit(now).unwrap();
    let (prefix, _, body) =
        Prefix::read(&bytes(&answers[1].1)).map(|(prefix, rest, body)| (prefix, rest, body.to_vec())).unwrap();
    server.handle_input(path(100), &bytes(&third), now);
    assert_eq!(server.connections(), 1);
    let Ok(AdnRequest::Handshake(SecondStep { connection, .. })) = AdnRequest::read(&body) else {
        panic!("a second step")
    };
    let late = loose_packet(Opcode::AdnReply, connection, prefix.number, &write_adn_reply(&[7; 96]));
    server.handle_input(path(101), &bytes(&late), now);
    assert_eq!(server.counters().unknown_connection, 1, "nobody knows it any more");
}

#[test]
fn an_attempt_that_has_led_to_a_connection_leads_to_no_other() {
    let (mut server, mut clients, now) = (server(), [client(1)], Instant::ZERO);
    let discovery = bytes(&clients[0].poll_transmit(now).unwrap().1);
    server.handle_input(path(100), &discovery, now);
    exchange(&mut server, &mut clients, now);
    assert_eq!(server.connections(), 1);
    // What was late, or comes again by another path or under another number, would say of its commands what held before.
    let (prefix, _, body) = Prefix::read(&discovery).unwrap();
    let renumbered = bytes(&loose_packet(Opcode::DeviceDiscovery, prefix.connection, prefix.number + 1, body));
    for (port, discovery) in [(100, &discovery), (101, &discovery), (100, &renumbered)] {
        server.handle_input(path(port), discovery, now);
        assert!(server.poll_transmit(now).is_none());
    }
}

/// As after the restart of a server.
#[test]
fn many_clients_that_come_at_once_are_all_connected_soon() {
    const CLIENTS: u16 = 200;
    let client = |number: u16| {
        let mut config = client_config(1);
        config.seed[..2].copy_from_slice(&number.to_be_bytes());
        let identity = Identity::from_private(config.seed).unwrap();
        Client::new(ClientConfig { identity, ..config }, Instant::ZERO)
    };
    let far = |number: u16| Path { peer: Peer::Udp(([10, 0, 1, number as u8], 1).into()), ..path(1) };
    let (mut server, mut now) = (server(), Instant::ZERO);
    let mut clients: Vec<Client> = (0..CLIENTS).map(client).collect();
    let mut there = Way::default();
    while now < Instant::ZERO + 1000 * MS && server.connections() < usize::from(CLIENTS) {
        now += MS;
        server.handle_timeout(now);
        for (from, packet) in there.arrived(now) {
            server.handle_input(from, &packet, now);
            while let Some((to, packet)) = server.poll_transmit(now) {
                let number = (0..CLIENTS).find(|number| far(*number) == to).unwrap();
                clients[usize::from(number)].handle_input(path(1), &bytes(&packet), now);
            }
        }
        while server.poll_event().is_some() {}
        for (number, client) in (0..).zip(&mut clients) {
            client.handle_timeout(now);
            while let Some((_, packet)) = client.poll_transmit(now) {
                there.put(now + 2 * MS, far(number), bytes(&packet));
            }
        }
    }
    assert_eq!((server.connections(), server.counters().unknown_connection), (CLIENTS.into(), 0));
}

#[test]
fn refusals_in_the_servers_name_make_no_client_leave() {
    for refusal in [Refusal::NotAuthentic, Refusal::Options] {
        let mut client = client(1);
        let mut now = Instant::ZERO;
        // The server is away, and somebody who hears the client says that it will not have it.
        while now < Instant::ZERO + Duration::from_secs(3) {
            now += MS;
            client.handle_timeout(now);
            while let Some((_, packet)) = client.poll_transmit(now) {
                let (prefix, ..) = Prefix::read(&bytes(&packet)).map(|(prefix, ..)| (prefix,)).unwrap();
                let body = AdnRequest::Refusal(refusal, None).write();
                let forged = loose_packet(Opcode::AdnRequest, prefix.connection, prefix.number, &body);
                client.handle_input(path(1), &bytes(&forged), now);
            }
        }
        assert!(client.poll_event().is_none(), "it goes on to seek after {refusal:?}");
    }
}

#[test]
fn who_refuses_third_steps_in_the_servers_name_while_it_is_silent_makes_no_client_leave() {
    let (mut server, mut client, mut now) = (server(), client(1), Instant::ZERO);
    let mut refused = 0;
    while client.server().is_none() {
        now += MS;
        client.handle_timeout(now);
        server.handle_timeout(now);
        assert!(client.poll_event().is_none(), "it goes on to seek, after {now:?}");
        while let Some((_, packet)) = client.poll_transmit(now) {
            let packet = bytes(&packet);
            let (prefix, ..) = Prefix::read(&packet).map(|(prefix, ..)| (prefix,)).unwrap();
            if prefix.header.opcode != Opcode::AdnReply || now > Instant::ZERO + Duration::from_secs(4) {
                server.handle_input(path(100), &packet, now);
                continue;
            }
            for (refusal, proof) in
                [Refusal::NotAuthentic, Refusal::Options].into_iter().flat_map(|of| [(of, None), (of, Some([7; 16]))])
            {
                let body = AdnRequest::Refusal(refusal, proof).write();
                let forged = loose_packet(Opcode::AdnRequest, prefix.connection, prefix.number, &body);
                client.handle_input(path(1), &bytes(&forged), now);
                refused += 1;
            }
        }
        while let Some((_, packet)) = server.poll_transmit(now) {
            client.handle_input(path(1), &bytes(&packet), now);
        }
    }
    assert!(refused > 20, "{refused} forged");
}

#[test]
fn a_client_that_is_refused_in_truth_says_why_soon() {
    let (mut server, mut client, mut now) = (server(), super::client_knowing(1, [7; 32]), Instant::ZERO);
    let given_up = loop {
        now += MS;
        client.handle_timeout(now);
        while let Some((_, packet)) = client.poll_transmit(now) {
            server.handle_input(path(100), &bytes(&packet), now);
        }
        while let Some((_, packet)) = server.poll_transmit(now) {
            client.handle_input(path(1), &bytes(&packet), now);
        }
        if let Some(ClientEvent::GivenUp(failure)) = client.poll_event() {
            break failure;
        }
    };
    assert_eq!(given_up, Failure::WrongPassword);
    assert!(now < Instant::ZERO + Duration::from_millis(1100), "after {now:?}");
}

#[test]
fn a_client_begins_anew_at_once_when_the_server_was_restarted_between_its_steps() {
    let (mut server, mut client, mut now) = (server(), client(1), Instant::ZERO);
    let mut restarts = 0;
    while client.server().is_none() {
        now += MS;
        client.handle_timeout(now);
        while let Some((_, packet)) = client.poll_transmit(now) {
            let (prefix, ..) = Prefix::read(&bytes(&packet)).map(|(prefix, ..)| (prefix,)).unwrap();
            if prefix.header.opcode == Opcode::AdnReply && restarts == 0 {
                (server, restarts) = (super::server(), 1);
            }
            server.handle_input(path(100), &bytes(&packet), now);
        }
        while let Some((_, packet)) = server.poll_transmit(now) {
            client.handle_input(path(1), &bytes(&packet), now);
        }
    }
    assert!(restarts == 1 && now < Instant::ZERO + 100 * MS, "after {now:?}");
}

/// A discovery as somebody may send it who has overheard one: as this attempt, with a first step of his own.
fn posed(discovery: &[u8], attempt: u64) -> Vec<u8> {
    let (prefix, _, body) = Prefix::read(discovery).unwrap();
    let (discovery, prologue) = Discovery::read(body).unwrap();
    let (_, first) = Initiator::new(prologue, &mut Randomness::new([attempt as u8; 32])).unwrap();
    let body = Discovery { noise: &first, ..discovery }.write();
    bytes(&loose_packet(Opcode::DeviceDiscovery, prefix.connection, attempt, &body))
}

#[test]
fn one_session_has_few_handshakes_under_way_on_a_path_however_often_it_begins() {
    let mut server = server();
    let discovery = bytes(&client(1).poll_transmit(Instant::ZERO).unwrap().1);
    for attempt in 0..20 {
        server.handle_input(path(100), &posed(&discovery, attempt), Instant::ZERO);
    }
    let usages = server.quotas();
    let of = |quota: &Quota| usages.iter().find(|usage| usage.quota == quota).map(|usage| (usage.most, usage.refused));
    assert_eq!(of(&HALF_OPENS_OF_SESSION), Some((Some(8), 12)));
    assert_eq!(of(&HALF_OPENS), Some((Some(9), 0)), "the ninth is there until the oldest is not");
}

#[test]
fn who_repeats_a_discovery_or_poses_elsewhere_ends_no_handshake_of_the_client() {
    let (mut server, mut clients, now) = (server(), [client(1)], Instant::ZERO);
    let discovery = bytes(&clients[0].poll_transmit(now).unwrap().1);
    server.handle_input(path(100), &discovery, now);
    let (_, answer) = server.poll_transmit(now).unwrap();
    for number in 0..40 {
        server.handle_input(path(1000 + number), &discovery, now);
        server.handle_input(path(2000 + number), &posed(&discovery, number.into()), now);
    }
    while server.poll_transmit(now).is_some() {}
    clients[0].handle_input(path(1), &bytes(&answer), now);
    exchange(&mut server, &mut clients, now);
    assert!(clients[0].server().is_some(), "{:?}", server.counters());
    assert_eq!(server.half_opens.poll_timeout(), None, "those that others began are over with it");
}

#[test]
fn who_poses_first_in_an_attempt_is_not_answered_in_the_clients_place() {
    let (mut server, mut clients, now) = (server(), [client(1)], Instant::ZERO);
    let discovery = bytes(&clients[0].poll_transmit(now).unwrap().1);
    let attempt = Prefix::read(&discovery).unwrap().0.number;
    server.handle_input(path(100), &posed(&discovery, attempt), now);
    server.handle_input(path(100), &discovery, now);
    exchange(&mut server, &mut clients, now);
    assert!(clients[0].server().is_some(), "{:?}", server.counters());
}

#[test]
fn a_handshake_that_nobody_goes_on_with_is_forgotten_in_time() {
    let (mut server, mut client) = (server(), client(1));
    let (_, packet) = client.poll_transmit(Instant::ZERO).unwrap();
    server.handle_input(path(100), &bytes(&packet), Instant::ZERO);
    while server.poll_transmit(Instant::ZERO).is_some() {}
    let over = server.poll_timeout().expect("it is looked after");
    assert!(over <= Instant::ZERO + Duration::from_secs(5));
    server.handle_timeout(over);
    assert!(server.poll_timeout().is_none() && server.half_opens.is_empty());
}
