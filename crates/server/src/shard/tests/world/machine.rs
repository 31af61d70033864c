//! A client's end of a wire, or jobs that copy.

use sanwire_core::Instant;
use sanwire_sim::workload::{Given, Initiator, Told};

use super::copier::Copier;

/// The client of a world.
pub(super) enum Machine {
    Stream(Box<sanwire_iscsi::Client>),
    Packets(Box<sanwire_hyperscsi::Client>),
    Copies(Box<Copier>),
}

/// The number of a command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Id {
    Stream(sanwire_iscsi::CommandId),
    Packets(sanwire_hyperscsi::CommandId),
    Copies(u64),
}

impl Machine {
    pub(super) fn as_stream(&mut self) -> Option<&mut sanwire_iscsi::Client> {
        match self {
            Machine::Stream(client) => Some(client),
            Machine::Packets(_) | Machine::Copies(_) => None,
        }
    }

    pub(super) fn as_packets(&mut self) -> Option<&mut sanwire_hyperscsi::Client> {
        match self {
            Machine::Stream(_) | Machine::Copies(_) => None,
            Machine::Packets(client) => Some(client),
        }
    }

    pub(super) fn as_copier(&mut self) -> Option<&mut Copier> {
        match self {
            Machine::Copies(copier) => Some(copier),
            Machine::Stream(_) | Machine::Packets(_) => None,
        }
    }

    /// For a failure's message.
    pub(super) fn describe(&self) -> String {
        match self {
            Machine::Stream(client) => format!("iSCSI: {:?}", client.server().map(|info| info.connections)),
            Machine::Packets(client) => {
                format!("HyperSCSI: connected {}, {:?}", client.server().is_some(), client.counters())
            }
            Machine::Copies(copier) => copier.describe(),
        }
    }
}

/// The same for an end that numbers its commands otherwise; `None`: it cannot abort what is not its own.
fn given<Own>(given: Given<Id>, own: impl Fn(Id) -> Option<Own>) -> Option<Given<Own>> {
    Some(match given {
        Given::Command(cdb, data_out, data_in) => Given::Command(cdb, data_out, data_in),
        Given::Abort(id) => Given::Abort(own(id)?),
        Given::Reset => Given::Reset,
        Given::Manage(request, room) => Given::Manage(request, room),
    })
}

fn told<Own, Failure: std::fmt::Debug>(told: Told<Own, Failure>, id_of: impl Fn(Own) -> Id) -> Told<Id, String> {
    match told {
        Told::Connected => Told::Connected,
        Told::Answered { id, is_good, is_management, sense, data_in } => {
            Told::Answered { id: id_of(id), is_good, is_management, sense, data_in }
        }
        Told::Failed { id, is_in_doubt } => Told::Failed { id: id_of(id), is_in_doubt },
        Told::GivenUp(failure) => Told::GivenUp(format!("{failure:?}")),
        Told::OutOfPatience => Told::OutOfPatience,
        Told::Other => Told::Other,
    }
}

impl Initiator for Machine {
    type Id = Id;
    type Failure = String;

    fn give(&mut self, wanted: Given<Id>, now: Instant) -> Option<Id> {
        match self {
            Machine::Stream(client) => {
                let own = |id| if let Id::Stream(id) = id { Some(id) } else { None };
                client.give(given(wanted, own)?, now).map(Id::Stream)
            }
            Machine::Packets(client) => {
                let own = |id| if let Id::Packets(id) = id { Some(id) } else { None };
                client.give(given(wanted, own)?, now).map(Id::Packets)
            }
            Machine::Copies(copier) => {
                let own = |id| if let Id::Copies(id) = id { Some(id) } else { None };
                copier.give(given(wanted, own)?).map(Id::Copies)
            }
        }
    }

    fn next_told(&mut self) -> Option<Told<Id, String>> {
        match self {
            Machine::Stream(client) => client.next_told().map(|event| told(event, Id::Stream)),
            Machine::Packets(client) => client.next_told().map(|event| told(event, Id::Packets)),
            Machine::Copies(copier) => copier.next_told().map(|event| told(event, Id::Copies)),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Machine::Stream(client) => client.poll_timeout(),
            Machine::Packets(client) => client.poll_timeout(),
            Machine::Copies(_) => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Machine::Stream(client) => client.handle_timeout(now),
            Machine::Packets(client) => client.handle_timeout(now),
            Machine::Copies(_) => {}
        }
    }

    fn disconnect(&mut self, now: Instant) {
        match self {
            Machine::Stream(client) => client.disconnect(now),
            Machine::Packets(client) => client.disconnect(now),
            Machine::Copies(copier) => copier.disconnect(),
        }
    }
}
