//! What every layer counts, in the text that Prometheus reads (OpenMetrics).
//!
//! Nothing is kept for it: the shards are asked for their plain numbers when somebody wants to know. The names begin with
//! `sanwire_`; seconds and bytes are the units; what is counted only grows, until the server ends.

mod stores;
mod text;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sanwire_core::{Lun, NexusId, quota};
use sanwire_device::LogicalUnit;
use sanwire_engine::VolumeCount;

use self::stores::of_stores;
pub use self::text::MetricsText;
use self::text::{Family, Labels, Placed, Sample};
use super::Manager;
use super::deviations::deviations;
use super::response::QuotaStatistics;
use crate::counting::{ConnectionCount, Counted, WireCount};
use crate::sessions::page_place;
use crate::streams::{ByteCount, PortalCount};
use crate::wire::Wire;

/// Microseconds in a second.
const SECOND_US: f64 = 1e6;

impl Manager {
    /// All metrics, as text.
    pub(super) fn metrics(&self, counted: &[Counted]) -> MetricsText {
        let mut families = self.of_server();
        families.extend(self.of_volumes(counted));
        families.extend(of_stores(&self.target.units().iter()));
        families.extend(of_wires(counted, self.target.wires()));
        families.extend(of_sessions(counted));
        families.extend(of_each_session(counted));
        families.extend(of_quotas(&self.quotas(counted)));
        MetricsText::of(families)
    }

    fn of_server(&self) -> Vec<Family> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let running = self.jobs.list().iter().filter(|job| job.ended.is_none()).count() as u64;
        let gauge =
            |name, help, labels: Labels, value| Family { name, help, samples: vec![(0, labels, Sample::Gauge(value))] };
        let events = vec![(0, Labels::new(), Sample::Counter(self.target.events().count()))];
        let revision = self.target.revisions().look().server();
        let deviations = deviations(&self.kept.changes(), self.target.clients()).len() as u64;
        vec![
            gauge("build_info", "The version of the program", vec![("version", version)], 1),
            gauge("server_info", "The name of the server", vec![("name", self.name.clone())], 1),
            gauge("revision", "Rises with each change of what is served", vec![], revision),
            gauge("deviations", "Things that differ from the configuration", vec![], deviations),
            gauge(
                "missing_volumes",
                "Volumes that should be served and cannot be opened",
                vec![],
                self.kept.missing.len() as u64,
            ),
            gauge("jobs_running", "Changes that take long and go on", vec![], running),
            Family { name: "events", help: "What has happened, as `ctl events` tells", samples: events },
        ]
    }

    fn of_volumes(&self, counted: &[Counted]) -> Vec<Family> {
        let disks = self.target.units().iter();
        let gauge = |name, help, value: &dyn Fn(&LogicalUnit) -> u64| {
            let samples = disks.iter().map(|(lun, disk)| (place_of(*lun), label_of(disk), Sample::Gauge(value(disk))));
            Family { name, help, samples: samples.collect() }
        };
        let sums = disks.iter().map(|(lun, disk)| (place_of(*lun), label_of(disk), Manager::sum_of(counted, disk)));
        let sums: Vec<_> = sums.collect();
        let of = |name, help, value: &dyn Fn(&VolumeCount) -> Option<Sample>| {
            let samples = sums.iter().filter_map(|(place, labels, sum)| Some((*place, labels.clone(), value(sum)?)));
            Family { name, help, samples: samples.collect() }
        };
        let counter = |count| Some(Sample::Counter(count));
        vec![
            gauge("volume_size_bytes", "The length of the volume", &|disk| disk.store().geometry().length_bytes),
            gauge("volume_read_only", "Whether writes are refused", &|disk| disk.store().geometry().read_only.into()),
            gauge("volume_waiting_commands", "Commands that wait for the store", &|disk| {
                disk.stalls().waiting().into()
            }),
            of("volume_commands", "Commands that have ended", &|sum| counter(sum.commands)),
            of("volume_read_bytes", "Bytes that were read", &|sum| counter(sum.read_bytes)),
            of("volume_written_bytes", "Bytes that were written", &|sum| counter(sum.written_bytes)),
            of("volume_errors", "Commands that failed or were aborted", &|sum| counter(sum.errors)),
            of("volume_command_duration_seconds", "From a command's arrival to its answer", &|sum| {
                (sum.commands > 0).then(|| durations(sum))
            }),
        ]
    }
}

fn place_of(volume: Lun) -> u64 {
    volume.number().into()
}

fn label_of(volume: &LogicalUnit) -> Labels {
    vec![("volume", volume.identity().name().to_owned())]
}

/// How long commands have taken, by powers of two.
fn durations(sum: &VolumeCount) -> Sample {
    let last = sum.latencies.len() - 1;
    let bound = |place: usize| if place == last { f64::INFINITY } else { (1u64 << place) as f64 / SECOND_US };
    let buckets = sum.latencies.iter().enumerate().map(|(place, count)| (bound(place), *count));
    Sample::Durations(sum.latency_us as f64 / SECOND_US, sum.latencies.iter().sum(), buckets.collect())
}

/// The samples of a wire, those of a direction with its name.
type WireSamples = Vec<(Option<&'static str>, Sample)>;

/// The ports of packets with what the kernel has dropped there, and the portals of connections.
fn of_wires(counted: &[Counted], served: &[Wire]) -> Vec<Family> {
    let mut wires: Vec<WireCount> = Vec::new();
    for wire in counted.iter().flat_map(|shard| &shard.wires) {
        match wires.iter_mut().find(|other| other.wire == wire.wire) {
            Some(sum) => sum.add(wire),
            None => wires.push(wire.clone()),
        }
    }
    let places: BTreeMap<String, u64> = served.iter().map(ToString::to_string).zip(0..).collect();
    let place = |wire: &str| places.get(wire).copied().unwrap_or(places.len() as u64);
    let of = |name, help, value: &dyn Fn(&WireCount) -> WireSamples| {
        let samples = wires.iter().flat_map(|wire| {
            value(wire).into_iter().map(|(direction, sample)| {
                let direction = direction.map(|direction| ("direction", direction.to_owned()));
                (place(&wire.wire), [("wire", wire.wire.clone())].into_iter().chain(direction).collect(), sample)
            })
        });
        Family { name, help, samples: samples.collect() }
    };
    let both = |received, sent| vec![(Some("in"), Sample::Counter(received)), (Some("out"), Sample::Counter(sent))];
    let one = |count| vec![(None, Sample::Counter(count))];
    let portals = portals(counted, served);
    let mut bytes = of("wire_bytes", "Bytes that have passed: of packets without link headers", &|wire| {
        both(wire.ports.received_bytes, wire.ports.sent_bytes)
    });
    let labels = |wire: &String| vec![("wire", wire.clone())];
    for (wire, PortalCount { bytes: ByteCount { received, sent }, .. }) in &portals {
        for (direction, count) in [("in", received), ("out", sent)] {
            let labels = labels(wire).into_iter().chain([("direction", direction.to_owned())]);
            bytes.samples.push((place(wire), labels.collect(), Sample::Counter(*count)));
        }
    }
    let connections = portals.iter().map(|(wire, count)| (place(wire), labels(wire), Sample::Gauge(count.connections)));
    vec![
        bytes,
        Family {
            name: "wire_connections",
            help: "Connections that have passed their logins",
            samples: connections.collect(),
        },
        of("wire_up", "Whether the wire is there", &|wire| vec![(None, Sample::Gauge(wire.is_up.into()))]),
        of("wire_packets", "Packets", &|wire| both(wire.ports.received, wire.ports.sent)),
        of("wire_kernel_dropped_packets", "Packets that came, and for which the kernel had no room", &|wire| {
            one(wire.ports.kernel_drops)
        }),
        of("wire_unsent_packets", "Packets that the link did not take", &|wire| one(wire.ports.send_errors)),
        of("wire_filtered_packets", "Packets that were truncated, or not for this station", &|wire| {
            one(wire.ports.filtered)
        }),
    ]
}

/// What was counted at the portals, by the wires that are served; each of them is there.
fn portals(counted: &[Counted], served: &[Wire]) -> BTreeMap<String, PortalCount> {
    let of_wires = served.iter().filter_map(|wire| Some((wire, wire.portal()?.0)));
    let of_wires: Vec<(&Wire, SocketAddr)> = of_wires.collect();
    let is_at = |portal: SocketAddr, local: SocketAddr| {
        let (portal_ip, local_ip) = (portal.ip().to_canonical(), local.ip().to_canonical());
        // A portal at `[::]` has no connections of IPv4: another one beside it may have these.
        let is_any = portal_ip.is_unspecified() && portal_ip.is_ipv4() == local_ip.is_ipv4();
        portal.port() == local.port() && (portal_ip == local_ip || is_any)
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

/// Sessions of every wire, each for itself.
fn of_each_session(counted: &[Counted]) -> Vec<Family> {
    let connections = counted.iter().flat_map(|shard| &shard.connections);
    // Of a session with several rows each has the commands of all.
    let sessions: BTreeMap<NexusId, &ConnectionCount> = connections.map(|count| (count.nexus, count)).collect();
    let of = |name, help, value: &dyn Fn(&ConnectionCount) -> WireSamples| {
        let samples = sessions.iter().flat_map(|(nexus, count)| {
            value(count).into_iter().map(move |(direction, sample)| {
                let (session, client) = (format!("{:x}", nexus.0), count.principal.clone());
                let labels = [("session", session), ("protocol", count.wire.to_owned()), ("client", client)];
                let direction = direction.map(|direction| ("direction", direction.to_owned()));
                (page_place(*nexus), labels.into_iter().chain(direction).collect(), sample)
            })
        });
        Family { name, help, samples: samples.collect() }
    };
    let one = |count| vec![(None, Sample::Counter(count))];
    let both = |received, sent| vec![(Some("in"), Sample::Counter(received)), (Some("out"), Sample::Counter(sent))];
    vec![
        of("session_commands", "Commands that have ended", &|count| one(count.commands.commands)),
        of("session_read_bytes", "Bytes that were read", &|count| one(count.commands.read_bytes)),
        of("session_written_bytes", "Bytes that were written", &|count| one(count.commands.written_bytes)),
        of("session_errors", "Commands that failed or were aborted", &|count| one(count.commands.errors)),
        of("session_bytes", "Bytes that have passed on its TCP connections", &|count| match &count.packets {
            None => both(count.bytes.received, count.bytes.sent),
            Some(_) => Vec::new(),
        }),
        of("session_packets", "Packets", &|count| {
            count.packets.iter().flat_map(|packets| both(packets.received, packets.sent)).collect()
        }),
        of("session_resent_packets", "Packets with data that were sent again", &|count| {
            count.packets.iter().flat_map(|packets| one(packets.resent)).collect()
        }),
    ]
}

/// Sessions of every wire and what was not taken, by shards.
fn of_sessions(counted: &[Counted]) -> Vec<Family> {
    let (mut sessions, mut dropped) = (Vec::<Placed>::new(), Vec::<Placed>::new());
    for shard in counted {
        let place = shard.shard as u64;
        let mut wires: Vec<(&str, u64)> = Vec::new();
        for session in &shard.sessions {
            match wires.iter_mut().find(|(wire, _)| *wire == session.wire) {
                Some((_, count)) => *count += 1,
                None => wires.push((session.wire, 1)),
            }
        }
        let labels = |wire: &str| vec![("shard", shard.shard.to_string()), ("protocol", wire.to_owned())];
        sessions.extend(wires.into_iter().map(|(wire, count)| (place, labels(wire), Sample::Gauge(count))));
        // Several wires may have the same reason.
        let mut reasons = BTreeMap::<&str, u64>::new();
        shard.dropped.iter().for_each(|(reason, count)| *reasons.entry(reason).or_default() += count);
        let labels = |reason: &str| vec![("shard", shard.shard.to_string()), ("reason", reason.to_owned())];
        dropped.extend(reasons.into_iter().map(|(reason, count)| (place, labels(reason), Sample::Counter(count))));
    }
    vec![
        Family { name: "shard_sessions", help: "Sessions of the shard", samples: sessions },
        Family { name: "dropped", help: "Packets and messages that were not taken", samples: dropped },
    ]
}

/// The limits of what somebody may hold, and who has come up to them.
fn of_quotas(quotas: &[QuotaStatistics]) -> Vec<Family> {
    let of = |name, help, value: &dyn Fn(&QuotaStatistics) -> Sample| {
        let sample = |quota: &QuotaStatistics| {
            let labels = [("holder", &quota.holder), ("quota", &quota.name), ("unit", &quota.unit)];
            let place = quota::ALL.iter().position(|one| one.holder.name() == quota.holder && one.name == quota.name);
            (place.unwrap_or_default() as u64, labels.map(|(key, value)| (key, value.clone())).into(), value(quota))
        };
        Family { name, help, samples: quotas.iter().map(sample).collect() }
    };
    vec![
        of("quota_limit", "What one holder may have", &|quota| Sample::Gauge(quota.limit)),
        of("quota_most", "What one holder has had at the most", &|quota| Sample::Gauge(quota.most.unwrap_or_default())),
        of("quota_refused", "How often something was refused for it", &|quota| Sample::Counter(quota.refused)),
    ]
}

#[cfg(test)]
mod tests;
