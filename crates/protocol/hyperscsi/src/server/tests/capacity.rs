//! Each end of a link takes so many packets at once.

use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, LinkId, Lun, Path};
use sanwire_scsi::{Reply, build};

use super::world::bytes;
use super::{LINK, client, exchange, path, server};
use crate::wire::command::Ask;
use crate::{Client, LinkLimits, Order, Server, ServerEvent};

/// The client's second link, as it sees it.
const THERE: Path = Path { link: LinkId(1), peer: path_of(1) };

const fn path_of(port: u16) -> sanwire_core::Peer {
    let host = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    sanwire_core::Peer::Udp(std::net::SocketAddr::new(host, port))
}

/// Carries packets by both links, at moment after moment; those to the client only if `passes` says so, which is told the link.
fn carry(
    server: &mut Server,
    client: &mut Client,
    moments: impl Iterator<Item = Instant>,
    passes: &mut dyn FnMut(bool, &Packet) -> bool,
) {
    for now in moments {
        client.handle_timeout(now);
        while let Some((way, packet)) = client.poll_transmit(now) {
            server.handle_input(path(if way == THERE { 200 } else { 100 }), &bytes(&packet), now);
        }
        server.handle_timeout(now);
        while let Some((to, packet)) = server.poll_transmit(now) {
            let is_second = to == path(200);
            if passes(is_second, &packet) {
                client.handle_input(if is_second { THERE } else { path(1) }, &bytes(&packet), now);
            }
        }
    }
}

#[test]
fn no_link_carries_more_at_once_than_its_ends_take_and_all_of_them_count() {
    let mut server = server();
    server.config.links = vec![LinkLimits { receive_capacity_packets: 24, ..LINK }];
    let mut clients = [client(1)];
    let mut now = Instant::ZERO;
    exchange(&mut server, &mut clients, now);
    let inward = |server: &Server| server.connection_statuses()[0].1.windows.inward.in_flight_packets();
    assert_eq!(inward(&server), 24);
    let [mut client] = clients;
    client.join(THERE, LinkLimits { receive_capacity_packets: 3, ..LINK }, now);
    let second = (0..1000).map(|ms| Instant::ZERO + Duration::from_millis(ms));
    carry(&mut server, &mut client, second, &mut |_, _| true);
    now += Duration::from_secs(1);
    assert_eq!((client.links().len(), inward(&server)), (2, 48), "what both links take at the server");

    // The server has much to say, and hears nothing.
    let (data_in, ask) = (Some(vec![0; 1 << 20].into()), Ask::Command(build::test_unit_ready()));
    client.order(Order { lun: Lun::default(), ask, is_repeatable: true, data_out: None, data_in }, now).unwrap();
    let mut under_way = [0; 2];
    for _ in 0..10 {
        carry(&mut server, &mut client, std::iter::repeat_n(now, 10), &mut |is_second, packet| {
            let is_data = packet.head[4] == 0x01;
            under_way[usize::from(is_second)] += usize::from(is_data);
            !is_data
        });
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Command { handle, .. } = event {
                server.reply(handle, Reply::good(Some(vec![2; 1 << 20].into())), now);
            }
        }
    }
    assert!(under_way[0] > 3 && (1..=3).contains(&under_way[1]), "{under_way:?}");
}
