//! What HyperSCSI counts in its own words.

use sanwire_hyperscsi::Server;

use crate::front::{Tally, TallyFamily, TallyOf};

static HANDSHAKES: TallyFamily =
    TallyFamily { name: "sanwire_hyperscsi_handshakes", help: "How handshakes have ended", label: "result" };
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
    for (link, tally) in server.link_tallies() {
        let counts = [(&REKEYS, tally.rekeys), (&RESENT, tally.resent_packets), (&TIMEOUTS, tally.timeouts)];
        tallies.extend(counts.map(|(family, count)| Tally { family, of: TallyOf::Link(link), count }));
    }
    tallies
}
