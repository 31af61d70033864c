//! A client's end of HyperSCSI, as a world drives it.

use sanwire_core::{Instant, LinkId, Path};
use sanwire_hyperscsi::wire::command::{Answer, Ask, Function};
use sanwire_hyperscsi::{Client, ClientEvent, CommandId, Failure, LinkLimits, Order};
use sanwire_scsi::{Sense, Status};

use crate::workload::{Given, Initiator, Told};

/// What a client's further links take at once.
const CAPACITY_PACKETS: u32 = 256;

impl Initiator for Client {
    type Id = CommandId;
    type Failure = Failure;

    fn give(&mut self, given: Given<CommandId>, now: Instant) -> Option<CommandId> {
        let is_repeatable = given.is_repeatable();
        let manage = |function, task| (Ask::Manage { function, task }, None, None);
        let (ask, data_out, data_in) = match given {
            Given::Command(cdb, data_out, data_in) => (Ask::Command(cdb), data_out, data_in),
            Given::Abort(task) => manage(Function::AbortTask, task.number()),
            Given::Reset => manage(Function::LogicalUnitReset, 0),
            Given::Manage(request, room) => (Ask::Administer, Some(request), Some(room)),
        };
        self.order(Order { lun: sanwire_core::Lun::default(), ask, is_repeatable, data_out, data_in }, now).ok()
    }

    fn next_told(&mut self) -> Option<Told<CommandId, Failure>> {
        Some(match self.poll_event()? {
            ClientEvent::Connected { .. } => Told::Connected,
            ClientEvent::Lost { .. } | ClientEvent::Options(_) | ClientEvent::WishRefused(_) => Told::Other,
            ClientEvent::Addresses(addresses) => {
                for (link, address) in addresses.into_iter().enumerate() {
                    let path = Path { link: LinkId(link as u8), peer: address.peer };
                    // As soon as can be.
                    let packet_max_bytes = address.packet_max_bytes;
                    let own = LinkLimits { packet_max_bytes, receive_capacity_packets: CAPACITY_PACKETS };
                    self.join(path, own, Instant::ZERO);
                }
                Told::Other
            }
            ClientEvent::OutOfPatience(_) => Told::OutOfPatience,
            ClientEvent::GivenUp(failure) => Told::GivenUp(failure),
            ClientEvent::Completed { id, answer, data_in, data_in_bytes } => {
                let (is_good, is_management, sense) = match answer {
                    Answer::Command { status, sense } => (status == Status::Good, false, Sense::parse(&sense)),
                    Answer::Managed { done } => (done, true, None),
                    Answer::Administered => (data_in_bytes > 0, true, None),
                };
                let data_in = data_in.map(|frame| (frame, data_in_bytes));
                Told::Answered { id, is_good, is_management, sense, data_in }
            }
            ClientEvent::Failed { id, failure, .. } => Told::Failed { id, is_in_doubt: failure == Failure::InDoubt },
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Client::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        Client::handle_timeout(self, now);
    }

    fn disconnect(&mut self, now: Instant) {
        Client::disconnect(self, now);
    }
}
