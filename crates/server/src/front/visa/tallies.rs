//! How VISA's connections are, and what was counted of them.

use sanwire_visa::{ConnectionStatus as Status, Mode, Server};

use crate::counting::PacketCount;
use crate::front::{ConnectionStatus, LinkState, Tally, TallyFamily};

static HANDSHAKES: TallyFamily =
    TallyFamily { name: "sanwire_visa_handshakes", help: "How handshakes have ended", label: "result" };

pub(super) fn of(server: &Server) -> Vec<Tally> {
    let (counters, handshakes) = (server.counters(), server.handshakes());
    let results = [
        ("established", handshakes.accepted),
        ("wrong password", handshakes.wrong_password),
        ("refused", handshakes.refused),
        ("too soon after a wrong password", counters.throttled),
        ("too many at once", counters.crowded),
    ];
    results.into_iter().map(|(result, count)| HANDSHAKES.named(result, count)).collect()
}

/// All connections, each of one link.
pub(super) fn connections(server: &Server) -> Vec<ConnectionStatus> {
    let status = |Status { nexus, terms, is_stream, traffic, .. }: Status| {
        let mode = match terms.mode {
            _ if is_stream => ", TCP",
            Mode::Classic => ", classic",
            Mode::Modern => "",
        };
        let check = if terms.is_unchecked { ", no check" } else { "" };
        ConnectionStatus {
            nexus,
            links: 1,
            security: format!("{}{mode}{check}", terms.protection_min),
            login: None,
            packets: Some(PacketCount {
                sent: traffic.sent_packets,
                received: traffic.received_packets,
                resent: traffic.resent_packets,
                timeouts: traffic.timeouts,
                window_out: traffic.window_packets,
                window_in: terms.window_packets_in,
                round_trip: traffic.round_trip,
            }),
            movement: None,
        }
    };
    server.connections().map(status).collect()
}

/// Those of packets: what TCP carries is no link of a wire.
pub(super) fn links(server: &Server) -> Vec<LinkState> {
    let state = |status: Status| LinkState {
        nexus: status.nexus,
        path: status.path,
        is_up: true,
        round_trip: status.traffic.round_trip,
    };
    server.connections().filter(|status| !status.is_stream).map(state).collect()
}
