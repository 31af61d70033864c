//! The wires by which clients come: whether each is there, and what has passed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::metrics::{portals, wires};
use super::slow::Step;
use super::{Answer, Manager};
use crate::counting::{Counted, WireCount};
use crate::front::wire_name;
use crate::opener::receive_paths;
use crate::streams::PortalCount;
use crate::wire::Wire;

/// A wire as it is now, over all shards.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LinkStatus {
    /// Which: as it is configured.
    pub link: String,
    /// The protocol, as of sessions.
    #[schema(schema_with = wire_name)]
    pub wire: String,
    /// Whether it is there: its interface, or the address on which it listens, and the RDMA adapter of that if it goes by one.
    pub up: bool,
    /// Of raw Ethernet: by which socket of the kernel packets come, and who copies them.
    pub receive_path: Option<String>,
    /// Connections that have passed their logins; of packets, those with a link there. Null of a protocol without connections.
    pub connections: Option<u64>,
    /// Bytes that have come: of packets without link headers.
    pub received_bytes: u64,
    /// Bytes that went.
    pub sent_bytes: u64,
    /// Of packets, how many; zero of TCP, as what follows.
    pub received_packets: u64,
    /// Packets that went.
    pub sent_packets: u64,
    /// Packets that came, and for which the kernel had no room.
    pub kernel_dropped_packets: u64,
    /// Packets that the link did not take.
    pub unsent_packets: u64,
    /// Packets that were truncated, or not for this station.
    pub filtered_packets: u64,
}

impl Manager {
    /// Asks the shards what has passed by each wire.
    pub(super) fn links(&self) -> Step {
        self.count(|manager, counted| Answer::Links(manager.links_of(&counted)))
    }

    fn links_of(&self, counted: &[Counted]) -> Vec<LinkStatus> {
        let (counts, portals) = (wires(counted), portals(counted, self.target.wires()));
        let mut paths = receive_paths(&self.target.openers);
        let link = |wire: &Wire| {
            let name = wire.to_string();
            let none = || WireCount { wire: name.clone(), is_up: false, ports: Default::default(), connections: 0 };
            let packets = counts.iter().find(|count| count.wire == name).cloned().unwrap_or_else(none);
            let portal = portals.get(&name);
            let PortalCount { connections, bytes } = portal.copied().unwrap_or_default();
            LinkStatus {
                wire: wire.protocol().to_owned(),
                up: self.target.takes_connections(wire).unwrap_or(packets.is_up),
                receive_path: paths.remove(&name),
                connections: match portal {
                    Some(_) => Some(connections),
                    None => wire.is_for_clients().then_some(packets.connections),
                },
                received_bytes: packets.ports.received_bytes + bytes.received,
                sent_bytes: packets.ports.sent_bytes + bytes.sent,
                received_packets: packets.ports.received,
                sent_packets: packets.ports.sent,
                kernel_dropped_packets: packets.ports.kernel_drops,
                unsent_packets: packets.ports.send_errors,
                filtered_packets: packets.ports.filtered,
                link: name,
            }
        };
        self.target.wires().iter().map(link).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::manage::testing::{any_port, config};
    use crate::manage::{Answer, Manager, Request};

    #[test]
    fn each_wire_is_a_link_that_is_there_or_not() {
        let mut config = config(&["a=ram:1M"]);
        config.wires.push(any_port("iscsi:127.0.0.1:1".parse().unwrap()));
        let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
        let links = match manager.execute(Request::Links) {
            Ok(Answer::Links(links)) => links,
            other => panic!("{other:?}"),
        };
        let told: Vec<_> = links.iter().map(|link| (&*link.wire, link.up, link.connections)).collect();
        assert_eq!(told, [("hyperscsi", true, Some(0)), ("iscsi", true, Some(0))]);
        let wires: Vec<String> = manager.target().wires().iter().map(ToString::to_string).collect();
        assert_eq!(links.into_iter().map(|link| link.link).collect::<Vec<_>>(), wires);
        manager.into_target().stop().unwrap();
    }
}
