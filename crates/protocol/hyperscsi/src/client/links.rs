//! Further links of the connection, and where a lost server is sought.

use std::collections::BTreeMap;

use sanwire_core::{Instant, LinkId, Path};

use super::{Client, State};
use crate::channel::LinkStatus;
use crate::server::LinkLimits;

impl Client {
    /// The links of the connection.
    #[must_use]
    pub fn links(&self) -> Vec<LinkStatus> {
        match &self.state {
            State::Connected(connected) => connected.channel.links().collect(),
            _ => Vec::new(),
        }
    }

    /// Uses another path to the server too, by this end of ours, in this connection and all later ones, as soon and as long as it works.
    /// The path of a link that is silent is joined anew: our end of it may have another address than before.
    pub fn join(&mut self, path: Path, own: LinkLimits, now: Instant) {
        let is_first = self.server().is_some_and(|server| server.path == path);
        if !is_first && !self.paths.iter().any(|(known, _)| *known == path) {
            self.paths.push((path, own));
        }
        if let State::Connected(connected) = &mut self.state {
            connected.channel.join(path, own, self.random.u64(), now);
        }
    }

    pub(super) fn join_all(&mut self, now: Instant) {
        if let State::Connected(connected) = &mut self.state {
            for (path, own) in &self.paths {
                connected.channel.join(*path, *own, self.random.u64(), now);
            }
        }
    }

    /// Uses a path no longer for new connections: its end here is gone.
    pub fn forget(&mut self, path: Path) {
        self.paths.retain(|(known, _)| *known != path);
        if let State::Connected(connected) = &mut self.state {
            connected.channel.give_up_joining(path);
        }
    }

    /// Packets that all our ends together could take at once.
    pub(super) fn capacity_packets(&self) -> u32 {
        let ends: BTreeMap<LinkId, u32> =
            self.paths.iter().map(|(path, own)| (path.link, own.receive_capacity_packets)).collect();
        ends.values().fold(self.config.link.receive_capacity_packets, |sum, packets| sum.saturating_add(*packets))
    }

    /// The way of the next attempt: the configured one first, then the others in turn.
    pub(super) fn path_of_attempt(&mut self) -> Path {
        let at = self.attempts % (self.paths.len() + 1);
        self.attempts += 1;
        at.checked_sub(1).map_or(self.config.path, |at| self.paths[at].0)
    }
}
