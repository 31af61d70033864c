//! How HDSP's connections are, and what was counted of them.

use sanwire_hdsp::{ConnectionStatus as Status, Server};

use crate::counting::PacketCount;
use crate::front::{CarriedFamilies, ConnectionStatus, LinkState, Tally, TallyFamily};

static HANDSHAKES: TallyFamily =
    TallyFamily { name: "sanwire_hdsp_handshakes", help: "How handshakes have ended", label: "result" };

static CARRIED: CarriedFamilies = CarriedFamilies::new("sanwire_hdsp_written_bytes", "sanwire_hdsp_read_bytes");

static WINDOWS: TallyFamily = TallyFamily {
    name: "sanwire_hdsp_window_changes",
    help: "How often a client was told to send less, for want of memory, or that it may send more",
    label: "to",
};

pub(super) fn of(server: &Server) -> Vec<Tally> {
    let (counters, handshakes) = (server.counters(), server.handshakes());
    let results = [
        ("established", handshakes.accepted),
        ("wrong password", handshakes.wrong_password),
        ("refused", handshakes.refused),
        ("too soon after a wrong password", counters.throttled),
        ("too many at once", counters.crowded),
    ];
    let handshakes = results.into_iter().map(|(result, count)| HANDSHAKES.named(result, count));
    let carried = CARRIED.tallies(server.written(), server.answered());
    let windows = server.window_changes();
    let windows = [("smaller", windows.shrunk), ("larger", windows.grown)];
    handshakes.chain(carried).chain(windows.map(|(to, count)| WINDOWS.named(to, count))).collect()
}

/// All connections, each of one link.
pub(super) fn connections(server: &Server) -> Vec<ConnectionStatus> {
    let status = |Status { nexus, protection, window_packets, traffic, .. }| ConnectionStatus {
        nexus,
        links: 1,
        security: protection.to_string(),
        login: None,
        packets: Some(PacketCount {
            sent: traffic.sent_packets,
            received: traffic.received_packets,
            resent: traffic.resent_packets,
            timeouts: traffic.timeouts,
            window_out: traffic.window_packets,
            window_in: window_packets,
            round_trip: traffic.round_trip,
        }),
        movement: None,
    };
    server.connections().map(status).collect()
}

pub(super) fn links(server: &Server) -> Vec<LinkState> {
    let state = |status: Status| LinkState {
        nexus: status.nexus,
        path: status.path,
        is_up: true,
        round_trip: status.traffic.round_trip,
    };
    server.connections().map(state).collect()
}
