//! Which connections have the same share of a server. When one comes or goes, those are visited whose windows are others by that:
//! hardly ever are all.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::ClientId;

use super::turns::{quantum_bytes, scaled, share_of};
use super::weights::Scale;
use crate::channel::Capacity;
use crate::wire::flow::{Window, Windows};

/// What the windows and the turns of a connection follow from: those that have the same are of one class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class {
    pub(super) share: u64,
    /// Packets that our links take at once, and those of the client.
    pub(super) ours_packets: u32,
    pub(super) theirs_packets: u32,
    /// Packets in flight each way, whatever the share.
    pub(super) most_packets: u32,
}

/// What each connection of a class has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    pub(super) windows: Windows,
    pub(super) weight: u16,
    pub(super) quantum_bytes: u64,
}

#[derive(Default, Debug)]
struct Members {
    connections: BTreeSet<u32>,
    /// Those of them that have yet to hear of it.
    new: BTreeSet<u32>,
    grant: Option<Grant>,
}

/// The connections of all clients, by their classes.
#[derive(Default, Debug)]
pub(super) struct Sharing {
    classes: BTreeMap<Class, Members>,
    of_client: BTreeMap<ClientId, Vec<(u32, Class)>>,
    /// Clients whose connections, or whose terms, are others since grants were made last.
    changed: BTreeSet<ClientId>,
    /// Connections that were looked at.
    #[cfg(test)]
    pub(super) visits: usize,
}

impl Sharing {
    /// The connections of a client are others now, or their terms.
    pub(super) fn note(&mut self, client: ClientId) {
        self.changed.insert(client);
    }

    pub(super) fn take_changed(&mut self) -> BTreeSet<ClientId> {
        std::mem::take(&mut self.changed)
    }

    /// These are all connections that a client has now.
    pub(super) fn put(&mut self, client: ClientId, connections: Vec<(u32, Class)>) {
        for (id, class) in self.of_client.remove(&client).unwrap_or_default() {
            let Some(members) = self.classes.get_mut(&class) else { continue };
            members.connections.remove(&id);
            members.new.remove(&id);
            if members.connections.is_empty() {
                self.classes.remove(&class);
            }
        }
        #[cfg(test)]
        {
            self.visits += connections.len();
        }
        for (id, class) in &connections {
            let members = self.classes.entry(*class).or_default();
            members.connections.insert(*id);
            members.new.insert(*id);
        }
        if !connections.is_empty() {
            self.of_client.insert(client, connections);
        }
    }

    /// What connections have from now on: those of classes that have had something else, and new ones.
    pub(super) fn grants(&mut self) -> Vec<(u32, Grant)> {
        let different: BTreeSet<u64> = self.classes.keys().map(|class| class.share).collect();
        let (Some(least), Some(most)) = (different.first(), different.last()) else { return Vec::new() };
        let sum = self.classes.iter().map(|(class, members)| class.share * members.connections.len() as u64).sum();
        let scale = Scale::new(&different);
        let mut grants = Vec::new();
        for (class, members) in &mut self.classes {
            let outward = scaled(class.theirs_packets.min(class.most_packets), class.share, *most);
            let inward = share_of(class.ours_packets, class.share, sum, class.most_packets);
            let grant = Grant {
                windows: Windows { outward: Window::fitting(outward), inward },
                weight: scale.weight(class.share),
                quantum_bytes: quantum_bytes(class.share, *least, *most),
            };
            let new = std::mem::take(&mut members.new);
            let to = if members.grant.replace(grant) == Some(grant) { &new } else { &members.connections };
            grants.extend(to.iter().map(|id| (*id, grant)));
        }
        #[cfg(test)]
        {
            self.visits += grants.len();
        }
        grants
    }
}

impl Class {
    pub(super) fn new(share: u64, capacity: Capacity, most_packets: u32) -> Self {
        Class { share, ours_packets: capacity.ours, theirs_packets: capacity.theirs, most_packets }
    }
}
