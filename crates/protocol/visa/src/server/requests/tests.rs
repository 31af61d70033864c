//! Requests to manage the server: only such as nobody else can read or make, and not more than others may ask.

use sanwire_buffer::Frame;
use sanwire_core::quota::{Account, COMMANDS_OF_SESSION};
use sanwire_core::{ClientId, LinkId, Lun, Path, Peer};
use sanwire_exchange::{CommandId, Order};

use super::*;
use crate::testing::{LINK, client, exchange, server};
use crate::{Client, ClientEvent, Doorkeeper};

struct Open;

impl Doorkeeper for Open {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }
}

const NOW: Instant = Instant::from_nanos(1_000_000_000);

fn path() -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(([10, 0, 0, 1], crate::PORT).into()) }
}

fn connected() -> (Server, Client) {
    let (mut server, mut client) = (server(LINK, Open), client(LINK, path(), NOW));
    exchange(&mut client, &mut server, path(), NOW);
    assert_eq!(server.sessions(), 1);
    (server, client)
}

fn administer(client: &mut Client, json: &[u8]) -> CommandId {
    let (data_out, data_in) = (Some(Slice::from(json.to_vec())), Frame::zeroed(4096));
    let order = Order { lun: Lun::default(), ask: Ask::Administer, is_repeatable: false, data_out, data_in };
    client.order(order, NOW).unwrap()
}

/// How much room there is for each answer to what is asked.
fn asked(server: &mut Server) -> Vec<u32> {
    let events = std::iter::from_fn(|| server.poll_event());
    let rooms = events.filter_map(|event| match event {
        ServerEvent::Administer { room_bytes, .. } => Some(room_bytes),
        _ => None,
    });
    rooms.collect()
}

/// The units of this server want no more than a checksum.
#[test]
fn what_was_guarded_less_than_can_be_manages_nothing() {
    let (mut server, _client) = connected();
    let nexus = *server.sessions.keys().next().unwrap();
    for (number, protection) in (0..).zip(Protection::ALL) {
        let (settled_below, receipts, ask) = (0, 0, Ask::Administer);
        let head = RequestHead { number, settled_below, receipts, lun: [0; 8], data_in_max_bytes: 1 << 30, ask };
        server.handle_request(nexus, Request { tag: 0, head, data: None, protection }, NOW);
        let expected = if protection == Protection::STRONGEST { vec![1 << 16] } else { Vec::new() };
        assert_eq!(asked(&mut server), expected, "{protection}");
    }
    assert_eq!((server.counters().downgrades, server.counters().violations), (4, 0));
}

#[test]
fn what_the_device_is_too_busy_for_is_not_managed_either() {
    let (mut server, mut client) = connected();
    server.accounts.commands = Account::within(&COMMANDS_OF_SESSION, 1);
    let [_, second] = [b"1", b"2"].map(|json| administer(&mut client, json));
    exchange(&mut client, &mut server, path(), NOW);
    assert_eq!(asked(&mut server), [4096]);
    let empty = std::iter::from_fn(|| client.poll_event()).find_map(|event| match event {
        ClientEvent::Completed { id, answer: Answer::Administered, data_in_bytes: 0, .. } => Some(id),
        _ => None,
    });
    assert_eq!(empty, Some(second), "it was not begun");
}
