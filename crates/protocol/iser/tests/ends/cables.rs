//! Connections by adapters in memory.

use std::collections::{BTreeMap, VecDeque};

use sanwire_iscsi::{ClientConfig, ConnectionId};
use sanwire_iser::{initiator_by, target_by};
use sanwire_sim::random::Random;
use sanwire_sim::rdma::{Adapter, AdapterPlan, Cable, Pace, connect_by};

use super::world::World;

pub struct Cables {
    random: Random,
    /// The initiator's, and the target's.
    pub adapters: [Adapter; 2],
    open: BTreeMap<ConnectionId, Cable>,
    /// The target closes these when all is sent.
    pub closing: Vec<ConnectionId>,
    /// The client has logged out of these.
    parting: Vec<ConnectionId>,
}

impl World {
    /// One in which all adapters are like that.
    pub fn by_adapters(plans: [AdapterPlan; 2], config: ClientConfig, seed: u64) -> Self {
        let (random, open) = (Random::new(seed), BTreeMap::new());
        let adapters = plans.map(Adapter::new);
        let cables = Cables { random, adapters, open, closing: Vec::new(), parting: Vec::new() };
        let mut world = World::new(config, usize::MAX);
        world.cables = Some(cables);
        world
    }

    pub fn open_cable(&mut self, connection: ConnectionId) {
        let Some(cables) = &mut self.cables else { return };
        let (ours, theirs, cable) = connect_by(&cables.adapters, Pace::ByTurns, cables.random.u64());
        cables.open.insert(connection, cable);
        self.wires.insert(connection, VecDeque::new());
        self.host.open_over(connection, target_by(Box::new(theirs)), self.now);
        self.client.connected_over(connection, initiator_by(Box::new(ours)), self.now);
    }

    /// The client has given it up, or has logged out and waits for the target to end it.
    pub fn close_cable(&mut self, connection: ConnectionId) {
        self.wires.remove(&connection);
        self.cables.iter_mut().for_each(|cables| cables.parting.push(connection));
    }

    pub fn cut_cable(&mut self, connection: ConnectionId) {
        let Some(cables) = &mut self.cables else { return };
        // A client that does not notice it waits longer than it has patience to connect.
        let is_noticed_by = cables.random.choose(&[[true, true], [true, false]]);
        cables.open.get(&connection).into_iter().for_each(|cable| cable.cut(is_noticed_by));
    }

    /// A turn of every cable, and whoever has something to tell, most of the time; whether anything moved.
    pub fn step_cables(&mut self) -> bool {
        let Some(cables) = &mut self.cables else { return false };
        let mut moved = false;
        for (connection, cable) in cables.open.clone() {
            moved |= cable.turn();
            let is_late = self.cables.as_mut().is_some_and(|cables| cables.random.chance(300_000));
            moved |= cable.is_ready(0) || cable.is_ready(1);
            if cable.is_ready(1) && !is_late {
                self.host.ready(connection, self.now);
                self.drain();
            }
            if cable.is_ready(0) && !is_late {
                self.client.filled(connection, 0, self.now);
                assert!(self.client.poll_transmit(connection).is_none(), "an adapter has no packets");
                self.drain();
            }
        }
        self.close_cables() | moved
    }

    /// Ends what both ends are done with; whether that was anything.
    fn close_cables(&mut self) -> bool {
        let Some(cables) = &mut self.cables else { return false };
        let (sent, closing): (Vec<_>, Vec<_>) =
            cables.closing.drain(..).partition(|connection| self.host.is_all_sent(*connection));
        cables.closing = closing;
        let (parted, parting): (Vec<_>, Vec<_>) =
            cables.parting.drain(..).partition(|connection| self.client.is_parted(*connection));
        cables.parting = parting;
        sent.iter().for_each(|connection| self.host.lose(*connection, self.now));
        parted.iter().for_each(|connection| self.client.connection_lost(*connection, self.now));
        let (host, wires) = (&self.host, &self.wires);
        let is_open = |connection: &ConnectionId| host.ends.contains_key(connection) || wires.contains_key(connection);
        cables.open.retain(|connection, _| is_open(connection) || cables.parting.contains(connection));
        !sent.is_empty() || !parted.is_empty()
    }
}
