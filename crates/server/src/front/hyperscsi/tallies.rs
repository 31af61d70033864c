//! What HyperSCSI counts in its own words, and how its connections and their links are.

use sanwire_hyperscsi::{LinkStatus, Server};

use crate::counting::PacketCount;
use crate::front::{CarriedFamilies, ConnectionStatus, LinkState, Tally, TallyFamily, TallyOf};

static HANDSHAKES: TallyFamily =
    TallyFamily { name: "sanwire_hyperscsi_handshakes", help: "How handshakes have ended", label: "result" };
static CARRIED: CarriedFamilies =
    CarriedFamilies::new("sanwire_hyperscsi_written_bytes", "sanwire_hyperscsi_read_bytes");
static REKEYS: TallyFamily = TallyFamily {
    name: "sanwire_hyperscsi_rekeys",
    help: "How often a connection has got new keys, by the wire of its handshake",
    label: "wire",
};
static RESENT: TallyFamily = TallyFamily {
    name: "sanwire_hyperscsi_resent_packets",
    help: "Packets with data that were sent again, also of connections that are gone",
    label: "wire",
};
static TIMEOUTS: TallyFamily = TallyFamily {
    name: "sanwire_hyperscsi_timeouts",
    help: "How often nothing was acknowledged in time, also of connections that are gone",
    label: "wire",
};

pub(super) fn of(server: &Server) -> Vec<Tally> {
    // Those that did not come so far.
    let counters = server.counters();
    let others = [("too soon after a wrong password", counters.throttled), ("too many at once", counters.crowded)];
    let results = server.handshakes().results().into_iter().chain(others);
    let mut tallies: Vec<Tally> = results.map(|(result, count)| HANDSHAKES.named(result, count)).collect();
    tallies.extend(CARRIED.tallies(server.written(), server.answered()));
    for (link, tally) in server.link_tallies() {
        let counts = [(&REKEYS, tally.rekeys), (&RESENT, tally.resent_packets), (&TIMEOUTS, tally.timeouts)];
        tallies.extend(counts.map(|(family, count)| Tally { family, of: TallyOf::Link(link), count }));
    }
    tallies
}

/// The links of all connections.
pub(super) fn links(server: &Server) -> Vec<LinkState> {
    let state = |(nexus, link): (_, LinkStatus)| {
        let LinkStatus { path, is_live: is_up, round_trip, .. } = link;
        LinkState { nexus, path, is_up, round_trip }
    };
    server.link_statuses().map(state).collect()
}

/// All connections.
pub(super) fn connections(server: &Server) -> Vec<ConnectionStatus> {
    let statuses = server.connection_statuses().into_iter();
    let count = statuses.map(|(_, status)| ConnectionStatus {
        nexus: status.nexus,
        links: status.links,
        security: status.protection.to_string(),
        login: None,
        packets: Some(PacketCount {
            sent: status.sent_packets,
            received: status.received_packets,
            resent: status.resent_packets,
            timeouts: status.timeouts,
            window_out: status.windows.outward.in_flight_packets(),
            window_in: status.windows.inward.in_flight_packets(),
            round_trip: status.round_trip,
        }),
        movement: None,
    });
    count.collect()
}
