//! The clients of both wires, as a driver's session knows them.

use sanwire_core::{Instant, Lun, Protection};
use sanwire_hyperscsi::ClientEvent;
use sanwire_hyperscsi::wire::command::Ask;
use sanwire_sim::hyperscsi::wire::Packets;
use sanwire_sim::iscsi::wire::Streams;
use sanwire_sim::workload::Initiator;
use sanwire_sim::world::Wire;

use crate::session::{Event, Order, OrderId, ServerInfo, Wish, hyperscsi, iscsi};

/// A wire whose clients drivers have; worlds are run by several threads, one at a time.
pub(in super::super) trait DrivenWire:
    Wire<Client: Driven + Initiator<Id: Send, Failure: Send> + Send, Host: Send, Plan: Send, Fault: Send, Event: Send>
    + Send
    + 'static
{
    /// Packets, or PDUs, that all ends have sent so far.
    fn sent(&self) -> u64;
}

/// A client's end of a protocol, as a session passes calls to it.
pub(in super::super) trait Driven {
    fn next_event(&mut self) -> Option<Event>;
    fn take_order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order>;
    fn in_transit(&self) -> usize;
    fn hold_after_restart(&mut self);
    fn release(&mut self);
    fn abandon(&mut self, lun: Lun);
    fn withdraw(&mut self, id: OrderId);
    fn server(&self) -> Option<ServerInfo>;
    fn protection(&self, lun: Lun) -> Option<Protection>;
    fn wish(&mut self, wish: Wish, now: Instant);
}

/// The calls that both ends know by the same names.
macro_rules! pass_on {
    ($protocol:ident) => {
        fn in_transit(&self) -> usize {
            self.in_transit()
        }

        fn hold_after_restart(&mut self) {
            self.hold_after_restart();
        }

        fn release(&mut self) {
            self.release();
        }

        fn abandon(&mut self, lun: Lun) {
            self.abandon(lun, $protocol::Failure::InDoubt);
        }

        fn withdraw(&mut self, id: OrderId) {
            self.withdraw(id.0);
        }
    };
}

impl DrivenWire for Packets {
    fn sent(&self) -> u64 {
        self.stats.packets
    }
}

impl Driven for sanwire_hyperscsi::Client {
    pass_on!(sanwire_hyperscsi);

    fn next_event(&mut self) -> Option<Event> {
        loop {
            match self.poll_event()? {
                ClientEvent::Addresses(_) => {}
                ClientEvent::Options(agreed) => return hyperscsi::changed(self, &agreed),
                event => return hyperscsi::translate(event),
            }
        }
    }

    fn take_order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order> {
        let Order { lun, cdb, is_repeatable, data_out, data_in } = order;
        let order = sanwire_hyperscsi::Order { lun, ask: Ask::Command(cdb), is_repeatable, data_out, data_in };
        match self.order(order, now) {
            Ok(id) => Ok(OrderId(id.number())),
            Err(sanwire_hyperscsi::Order { lun, data_out, data_in, .. }) => {
                Err(Order { lun, cdb, is_repeatable, data_out, data_in })
            }
        }
    }

    fn server(&self) -> Option<ServerInfo> {
        self.server().map(hyperscsi::server_info)
    }

    fn protection(&self, lun: Lun) -> Option<Protection> {
        self.protection(lun)
    }

    fn wish(&mut self, Wish { wishes, protection_min }: Wish, now: Instant) {
        self.wish(wishes, protection_min, now).expect("few options of others");
    }
}

impl DrivenWire for Streams {
    fn sent(&self) -> u64 {
        self.traffic.pdus.values().sum()
    }
}

impl Driven for sanwire_iscsi::Client {
    pass_on!(sanwire_iscsi);

    fn next_event(&mut self) -> Option<Event> {
        std::iter::from_fn(|| self.poll_event()).find_map(iscsi::translate)
    }

    fn take_order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order> {
        let Order { lun, cdb, is_repeatable, data_out, data_in } = order;
        match self.order(sanwire_iscsi::Order { lun, cdb, is_repeatable, data_out, data_in }, now) {
            Ok(id) => Ok(OrderId(id.number())),
            Err(sanwire_iscsi::Order { lun, cdb, is_repeatable, data_out, data_in }) => {
                Err(Order { lun, cdb, is_repeatable, data_out, data_in })
            }
        }
    }

    fn server(&self) -> Option<ServerInfo> {
        self.server().map(iscsi::server_info)
    }

    fn protection(&self, _: Lun) -> Option<Protection> {
        None
    }

    /// Over iSCSI it changes nothing.
    fn wish(&mut self, _: Wish, _: Instant) {}
}
