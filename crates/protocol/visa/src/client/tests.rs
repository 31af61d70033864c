//! What a client tells of its connections.

use sanwire_core::{ClientId, LinkId, Peer};
use sanwire_scsi::Cdb;

use super::*;
use crate::testing::{LINK, client, exchange, server};
use crate::{Ask, Doorkeeper, LinkLimits, ServerEvent};

struct Open;

impl Doorkeeper for Open {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }
}

/// What is told of it makes its driver close what has carried it, and so the new one.
#[test]
fn a_worn_connection_is_followed_by_another_one_and_nothing_is_lost() {
    for is_stream in [false, true] {
        let link = LinkLimits { is_stream, ..LINK };
        let path = Path { link: LinkId(0), peer: Peer::Udp(([10, 0, 0, 1], crate::PORT).into()) };
        let mut now = Instant::from_nanos(1_000_000_000);
        let (mut server, mut client) = (server(link, Open), client(link, path, now));
        exchange(&mut client, &mut server, path, now);
        let cdb = Cdb::new(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]).unwrap();
        let order =
            Order { lun: Lun::default(), ask: Ask::Command(cdb), is_repeatable: true, data_out: None, data_in: None };
        client.order(order, now).unwrap();
        exchange(&mut client, &mut server, path, now);
        let first = client.live.as_mut().map(|live| live.channel.wear());
        assert!(first.is_some() && client.poll_event().is_some());
        let end = now + Duration::from_secs(5);
        while let Some(at) = [client.poll_timeout(), server.poll_timeout()].into_iter().flatten().min()
            && at <= end
        {
            now = now.max(at);
            client.handle_timeout(now);
            server.handle_timeout(now);
            exchange(&mut client, &mut server, path, now);
        }
        let told: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
        assert!(matches!(told[..], [ClientEvent::Connected { resumed: true, .. }]), "{told:?}");
        assert!(client.live.as_ref().is_some_and(|live| !live.channel.is_worn()) && client.in_transit() == 1);
        let mut commands = 0;
        while let Some(event) = server.poll_event() {
            commands += u32::from(matches!(event, ServerEvent::Command { .. }));
            assert!(!matches!(event, ServerEvent::Hangup { .. } | ServerEvent::SessionClosed { .. }));
        }
        assert_eq!((commands, server.sessions()), (1, 1));
    }
}
