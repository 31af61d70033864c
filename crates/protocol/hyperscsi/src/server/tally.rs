//! What a server has counted since it began, of connections that are gone too.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use sanwire_core::{Carried, LinkId};

use super::Server;
use super::connection::Connection;

/// How handshakes have ended. Those that were not begun are among [`Counters`](crate::Counters).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Handshakes {
    /// A connection came of it.
    pub established: u64,
    /// Somebody took part in it who does not know the password, or is not the client that he names.
    pub wrong_password: u64,
    /// A step did not verify.
    pub unverified: u64,
    /// One end enforces what the other does not support.
    pub conflicts: u64,
    /// There are too many clients.
    pub full: u64,
}

impl Handshakes {
    /// Every result, in words, and how often it was one.
    #[must_use]
    pub fn results(&self) -> [(&'static str, u64); 5] {
        [
            ("established", self.established),
            ("wrong password", self.wrong_password),
            ("not verified", self.unverified),
            ("conflict of options", self.conflicts),
            ("no room", self.full),
        ]
    }
}

/// What was counted of the connections of a link: their new keys by the link of their handshakes, the rest by the one where it was.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LinkTally {
    /// How often a connection has got new keys.
    pub rekeys: u64,
    /// Data packets that were sent again.
    pub resent_packets: u64,
    /// How often nothing was acknowledged in time.
    pub timeouts: u64,
}

impl AddAssign for LinkTally {
    fn add_assign(&mut self, other: Self) {
        self.rekeys += other.rekeys;
        self.resent_packets += other.resent_packets;
        self.timeouts += other.timeouts;
    }
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) handshakes: Handshakes,
    /// Of connections that are gone.
    gone: BTreeMap<LinkId, LinkTally>,
    /// What their answers have carried.
    answered: Carried,
    /// What the writes of all have brought.
    pub(super) written: Carried,
}

impl Tally {
    /// A connection is gone.
    pub(super) fn close(&mut self, connection: &Connection) {
        add(&mut self.gone, connection);
        self.answered += connection.channel.carried();
    }
}

fn add(links: &mut BTreeMap<LinkId, LinkTally>, connection: &Connection) {
    let channel = &connection.channel;
    links.entry(channel.path().link).or_default().rekeys += connection.rekeys;
    for link in channel.links() {
        let tally = LinkTally { rekeys: 0, resent_packets: link.resent_packets, timeouts: link.timeouts };
        *links.entry(link.path.link).or_default() += tally;
    }
}

impl Server {
    /// How handshakes have ended.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        self.tally.handshakes
    }

    /// What writes have brought. Their packets are put together in memory of its own, so all of it is copied, or decrypted there.
    #[must_use]
    pub fn written(&self) -> Carried {
        self.tally.written
    }

    /// What answers have carried, and again where packets were sent again.
    #[must_use]
    pub fn answered(&self) -> Carried {
        let mut answered = self.tally.answered;
        self.connections.values().for_each(|connection| answered += connection.channel.carried());
        answered
    }

    /// What was counted of the connections that there are and were: of each link, also of one that had none.
    #[must_use]
    pub fn link_tallies(&self) -> BTreeMap<LinkId, LinkTally> {
        let all = (0..).zip(&self.config.links).map(|(number, _)| (LinkId(number), LinkTally::default()));
        let mut links: BTreeMap<_, _> = all.collect();
        self.tally.gone.iter().for_each(|(link, tally)| *links.entry(*link).or_default() += *tally);
        self.connections.values().for_each(|connection| add(&mut links, connection));
        links
    }
}
