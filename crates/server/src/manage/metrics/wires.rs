//! What passes by the wires: packets at the ports of all shards, and bytes at portals.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{Family, Labels, Sample, both};
use crate::channel::PortalPath;
use crate::counting::{Counted, WireCount};
use crate::streams::{ByteCount, PortalCount};
use crate::wire::Wire;

/// The samples of a wire, those of a direction with its name.
pub(super) type WireSamples = Vec<(Option<&'static str>, Sample)>;

/// The ports of packets with what the kernel has dropped there, and the portals of connections.
///
/// `takes_connections`: whether they can come to the portal of a wire; `None` for one of packets.
pub(super) fn of_wires(
    counted: &[Counted],
    served: &[Wire],
    takes_connections: impl Fn(&Wire) -> Option<bool>,
) -> Vec<Family> {
    let wires = wires(counted);
    let places: BTreeMap<String, u64> = served.iter().map(ToString::to_string).zip(0..).collect();
    let place = |wire: &str| places.get(wire).copied().unwrap_or(places.len() as u64);
    let of = |name, help, value: &dyn Fn(&WireCount) -> WireSamples| {
        let samples = wires.iter().flat_map(|wire| {
            let labels = Labels::of([("wire", &wire.wire)]);
            value(wire)
                .into_iter()
                .map(move |(direction, sample)| (labels.directed(direction), sample))
                .map(|(labels, sample)| (place(&wire.wire), labels, sample))
        });
        Family { name, help, samples: samples.collect() }
    };
    let one = |count| vec![(None, Sample::Counter(count))];
    let portals = portals(counted, served);
    let mut bytes = of("sanwire_wire_bytes", "Bytes that have passed: of packets without link headers", &|wire| {
        both(wire.ports.received_bytes, wire.ports.sent_bytes)
    });
    let labels = |wire: &String| Labels::of([("wire", wire)]);
    for (wire, PortalCount { bytes: ByteCount { received, sent }, .. }) in &portals {
        for (direction, sample) in both(*received, *sent) {
            bytes.samples.push((place(wire), labels(wire).directed(direction), sample));
        }
    }
    let is_up = |wire: &WireCount| vec![(None, Sample::Gauge(wire.is_up.into()))];
    let mut up = of(
        "sanwire_wire_up",
        "Whether the wire is there: its interface, or the address and the RDMA adapter of a portal",
        &is_up,
    );
    for (wire, is_up) in served.iter().filter_map(|wire| Some((wire, takes_connections(wire)?))) {
        let name = wire.to_string();
        up.samples.push((place(&name), labels(&name), Sample::Gauge(is_up.into())));
    }
    let of_portals = portals.iter().map(|(wire, count)| (wire, count.connections));
    let has_connections =
        |wire: &&WireCount| served.iter().any(|own| own.is_for_clients() && own.to_string() == wire.wire);
    let of_packets = wires.iter().filter(has_connections).map(|wire| (&wire.wire, wire.connections));
    let connections = of_portals.chain(of_packets);
    let connections = connections.map(|(wire, count)| (place(wire), labels(wire), Sample::Gauge(count)));
    vec![
        bytes,
        Family {
            name: "sanwire_wire_connections",
            help: "Connections that have passed their logins; of packets, those with a link there",
            samples: connections.collect(),
        },
        up,
        of("sanwire_wire_packets", "Packets", &|wire| both(wire.ports.received, wire.ports.sent)),
        of("sanwire_wire_kernel_dropped_packets", "Packets that came, and for which the kernel had no room", &|wire| {
            one(wire.ports.kernel_drops)
        }),
        of("sanwire_wire_unsent_packets", "Packets that the link did not take", &|wire| one(wire.ports.send_errors)),
        of("sanwire_wire_filtered_packets", "Packets that were truncated, or not for this station", &|wire| {
            one(wire.ports.filtered)
        }),
    ]
}

/// What was counted of each wire of packets, by all shards together.
pub(in crate::manage) fn wires(counted: &[Counted]) -> Vec<WireCount> {
    let mut wires: Vec<WireCount> = Vec::new();
    for wire in counted.iter().flat_map(|shard| &shard.wires) {
        match wires.iter_mut().find(|other| other.wire == wire.wire) {
            Some(sum) => sum.add(wire),
            None => wires.push(wire.clone()),
        }
    }
    wires
}

/// What was counted at the portals, by the wires that are served; each of them is there.
pub(in crate::manage) fn portals(counted: &[Counted], served: &[Wire]) -> BTreeMap<String, PortalCount> {
    let of_wires = served.iter().filter_map(|wire| Some((wire, (wire.portal()?.0, wire.portal_path()))));
    let of_wires: Vec<(&Wire, (SocketAddr, PortalPath))> = of_wires.collect();
    let is_at = |(portal, portal_path): (SocketAddr, PortalPath), (local, path): (SocketAddr, PortalPath)| {
        let (portal_ip, local_ip) = (portal.ip().to_canonical(), local.ip().to_canonical());
        // A portal at `[::]` has no connections of IPv4: another one beside it may have these.
        let is_any = portal_ip.is_unspecified() && portal_ip.is_ipv4() == local_ip.is_ipv4();
        portal_path == path && portal.port() == local.port() && (portal_ip == local_ip || is_any)
    };
    let mut portals: BTreeMap<String, PortalCount> =
        of_wires.iter().map(|(wire, _)| (wire.to_string(), PortalCount::default())).collect();
    for (local, count) in counted.iter().flat_map(|shard| &shard.portals) {
        if let Some((wire, _)) = of_wires.iter().find(|(_, portal)| is_at(*portal, *local)) {
            *portals.entry(wire.to_string()).or_default() += *count;
        }
    }
    portals
}
