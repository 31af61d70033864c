//! Both ends in memory: what a server does as clients come and go.

use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, LinkId, Lun, Path, Peer};
use sanwire_scsi::build;

use super::{LinkLimits, Server, ServerConfig};
use crate::wire::command::Ask;
use crate::wire::flow::Window;
use crate::{Client, ClientConfig, ClientEvent, Failure, Identity, Order, Recovery, ServerEvent};

const LINK: LinkLimits = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 1024 };

fn path(port: u16) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(([127, 0, 0, 1], port).into()) }
}

fn server() -> Server {
    Server::new(ServerConfig {
        name: "server".into(),
        identity: Identity::from_private([1; 32]).unwrap(),
        psk: [0; 32],
        admission: Box::new(|_, _| true),
        memory: Region::new(1 << 20).unwrap(),
        links: vec![LINK],
        shard: 0,
        shards: 1,
        instance: 1,
        keep_alive: Duration::from_secs(5),
        session_idle_max: Duration::from_secs(60),
        commands_max: 64,
        transfer_max_bytes: 1 << 20,
        recovery: Recovery::default(),
        seed: [2; 32],
    })
}

fn client(number: u8) -> Client {
    let config = ClientConfig {
        name: "client".into(),
        identity: Identity::from_private([10 + number; 32]).unwrap(),
        psk: [0; 32],
        path: path(1),
        server_name: String::new(),
        link: LINK,
        commands_max: 64,
        transfer_max_bytes: 1 << 20,
        recovery: Recovery::default(),
        connect_patience: Duration::from_secs(5),
        reconnect_patience: Some(Duration::from_secs(60)),
        seed: [number; 32],
    };
    Client::new(config, Instant::ZERO)
}

/// Carries packets until neither end has more to say.
fn exchange(server: &mut Server, clients: &mut [Client], now: Instant) {
    let bytes = |packet: &sanwire_buffer::Packet| [&packet.head[..], packet.payload.as_deref().unwrap_or(&[])].concat();
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
    let order =
        Order { lun: Lun::default(), ask: Ask::Command(build::test_unit_ready()), data_out: None, data_in: None };
    let id = clients[0].order(order, Instant::ZERO).unwrap();
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
