//! Copies to other servers in a shard: an initiator within the server. A job of the management gives commands through a nexus that is its
//! asker's, and whoever else may order what is ordered here: reservations, derivations, programs and counters take it for what it is, and it
//! reaches nothing but the two units of its copy. It has no wire.

mod session;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use sanwire_buffer::{Region, Shortage};
use sanwire_core::quota::Usage;
use sanwire_core::{ClientId, Instant, NexusId, SessionEnd};
use sanwire_device::NexusPorts;
use sanwire_scsi::Reply;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;

pub(crate) use self::session::{Copiers, CopySession, CopyTaker, Dropped};
use self::session::{Ended, Opening, Order, Orders};
use super::{
    ConnectionStatus, FrontBuilder, FrontEnd, FrontEvent, FrontParts, ManageOutcome, NewNexus, NexusSelection,
    NexusView,
};
use crate::command::CommandRef;
use crate::error::StartError;
use crate::writes::writer;

/// What the shard calls it.
pub(super) const NAME: &str = "copy";

/// The target port of copies.
const COPY_PORT: TargetPort = TargetPort { relative_id: 0xffed, group: 1, port_name: None, device_name: None };

/// What a session has of the memory for sure: for each of its commands a piece.
const MEMORY_BYTES: usize = 2 << 20;

struct Session {
    answers: Sender<Ended>,
    /// Whose it is.
    owner: String,
}

/// The initiator in one shard.
pub(crate) struct Copies {
    /// Its place among the front ends.
    front: u8,
    orders: Arc<Orders>,
    memory: Region,
    sessions: BTreeMap<NexusId, Session>,
    events: VecDeque<FrontEvent>,
    is_ending: bool,
}

/// Prepares that of a shard.
pub(crate) fn open(parts: &FrontParts<'_>) -> Result<FrontBuilder, StartError> {
    let (orders, memory) = (parts.copiers.orders(parts.shard), parts.memory.clone());
    let (sessions, events, is_ending) = (BTreeMap::new(), VecDeque::new(), false);
    Ok(Box::new(move |front| Box::new(Copies { front, orders, memory, sessions, events, is_ending })))
}

impl Copies {
    /// What the shard is to know of an order, if anything.
    fn take(&mut self, order: Order) -> Option<FrontEvent> {
        match order {
            // Its job learns that nobody answers.
            Order::Open(_) if self.is_ending => None,
            Order::Open(opening) => Some(self.opened(*opening)),
            Order::Begin { nexus, number, task } => self
                .sessions
                .contains_key(&nexus)
                .then_some(FrontEvent::Command { command: CommandRef { front: self.front, nexus, number }, task }),
            Order::Close(nexus) => self.closed(nexus, SessionEnd::Closed),
        }
    }

    fn opened(&mut self, Opening { nexus, terms, answers }: Opening) -> FrontEvent {
        let CopyTaker { units, principal, who, address } = terms;
        // Whoever is no client has no name that reservations know: such a job has one of its own, as long as it goes on.
        let mut own = [0; 16];
        own[8..].copy_from_slice(&nexus.0.to_be_bytes());
        let client = principal.client.unwrap_or(ClientId(own));
        let owner = client.to_string();
        self.sessions.insert(nexus, Session { answers, owner: owner.clone() });
        FrontEvent::NexusOpened(Box::new(NewNexus {
            nexus,
            ports: Arc::new(NexusPorts {
                initiator: TransportId::hyperscsi(client),
                target: COPY_PORT,
                principal: principal.clone(),
            }),
            writer: writer(&[b"copy", &own]),
            port: format!("{owner},copy-{:x}", nexus.0),
            target: None,
            memory: self.memory.share(MEMORY_BYTES),
            line: format!("a copy begins for {who}"),
            view: NexusView {
                units,
                who: format!("a copy for {who}"),
                principal,
                address,
                is_read_only: false,
                weight: 1,
                locks_media: false,
            },
            // Its asker's other sessions go on beside it.
            ends_own: false,
        }))
    }

    fn closed(&mut self, nexus: NexusId, end: SessionEnd) -> Option<FrontEvent> {
        self.sessions.remove(&nexus)?;
        Some(FrontEvent::NexusClosed { nexus, session: None, is_for_good: true, end })
    }
}

impl FrontEnd for Copies {
    fn name(&self) -> &'static str {
        NAME
    }

    fn poll_event(&mut self, _now: Instant) -> Option<FrontEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(order) = self.orders.take() {
            if let Some(event) = self.take(order) {
                return Some(event);
            }
        }
        None
    }

    fn events_waiting(&self) -> usize {
        self.events.len() + self.orders.len()
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn reply(&mut self, command: CommandRef, reply: Option<Reply>, _now: Instant) {
        if let Some(session) = self.sessions.get(&command.nexus) {
            // A job that is over wants nothing more.
            let _ = session.answers.send((command.number, reply));
        }
    }

    fn managed(&mut self, _request: CommandRef, _outcome: ManageOutcome, _now: Instant) {}

    fn withdrawn(&mut self, command: CommandRef, now: Instant) {
        self.reply(command, None, now);
    }

    /// A session has few commands, and none of them brings more data than one piece.
    fn hold_back(&mut self, _commands: &[CommandRef], _now: Instant) {}

    fn is_starved(&self) -> bool {
        false
    }

    fn starving(&self) -> Box<dyn Iterator<Item = (NexusId, &Region)> + '_> {
        Box::new(std::iter::empty())
    }

    fn relieve(&mut self, _shortage: &Shortage, _now: Instant) {}

    fn drop_nexuses(&mut self, selection: &NexusSelection, _now: Instant) {
        let is_meant = |(nexus, session): &(&NexusId, &Session)| match selection {
            NexusSelection::One(id) | NexusSelection::Dropped(id) => *nexus == id,
            NexusSelection::Of(principal) => session.owner == *principal,
            NexusSelection::With(_) => false,
        };
        let meant: Vec<NexusId> = self.sessions.iter().filter(is_meant).map(|(nexus, _)| *nexus).collect();
        for nexus in meant {
            let event = self.closed(nexus, SessionEnd::Dropped);
            self.events.extend(event);
        }
    }

    fn shut_down(&mut self, _now: Instant) {
        self.is_ending = true;
        let all: Vec<NexusId> = self.sessions.keys().copied().collect();
        for nexus in all {
            let event = self.closed(nexus, SessionEnd::Dropped);
            self.events.extend(event);
        }
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        let status = |nexus: &NexusId| ConnectionStatus {
            nexus: *nexus,
            links: 0,
            security: String::new(),
            login: None,
            packets: None,
            movement: None,
        };
        self.sessions.keys().map(status).collect()
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn quotas(&self) -> Vec<Usage> {
        Vec::new()
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.orders.close();
    }
}
