//! Sessions of every wire, the shards that have them, and what these have not taken.

use std::collections::BTreeMap;

use sanwire_core::{NexusId, Rdma};

use super::wires::WireSamples;
use super::{Family, Labels, Placed, Sample, both};
use crate::counting::{ConnectionCount, Counted, PacketCount};
use crate::manage::statistics::reason_key;
use crate::sessions::page_place;

/// Sessions of every wire, each for itself.
pub(super) fn of_each_session(counted: &[Counted]) -> Vec<Family> {
    let connections = counted.iter().flat_map(|shard| &shard.connections);
    // Of a session with several rows each has the commands of all.
    let sessions: BTreeMap<NexusId, &ConnectionCount> = connections.map(|count| (count.nexus, count)).collect();
    let labels = sessions.iter().map(|(nexus, count)| {
        let session = format!("{:x}", nexus.0);
        (*nexus, Labels::of([("session", &session), ("protocol", count.wire), ("client", &count.principal)]))
    });
    let labels: BTreeMap<NexusId, Labels> = labels.collect();
    let of = |name, help, value: &dyn Fn(&ConnectionCount) -> WireSamples| {
        let samples = sessions.iter().flat_map(|(nexus, count)| {
            let labels = &labels[nexus];
            let samples = value(count).into_iter();
            samples.map(move |(direction, sample)| (page_place(*nexus), labels.directed(direction), sample))
        });
        Family { name, help, samples: samples.collect() }
    };
    let one = |count| vec![(None, Sample::Counter(count))];
    vec![
        of("sanwire_session_commands", "Commands that have ended", &|count| one(count.commands.commands)),
        of("sanwire_session_read_bytes", "Bytes that were read", &|count| one(count.commands.read_bytes)),
        of("sanwire_session_written_bytes", "Bytes that were written", &|count| one(count.commands.written_bytes)),
        of("sanwire_session_errors", "Commands that failed or were aborted", &|count| one(count.commands.errors)),
        of("sanwire_session_bytes", "Bytes that have passed on its TCP connections", &|count| match &count.packets {
            None => both(count.bytes.received, count.bytes.sent),
            Some(_) => Vec::new(),
        }),
        of("sanwire_session_packets", "Packets", &|count| {
            count.packets.iter().flat_map(|packets| both(packets.received, packets.sent)).collect()
        }),
        of("sanwire_session_resent_packets", "Packets with data that were sent again", &|count| {
            count.packets.iter().flat_map(|packets| one(packets.resent)).collect()
        }),
        of("sanwire_session_timeouts", "How often nothing was acknowledged in time", &|count| {
            count.packets.iter().flat_map(|packets| one(packets.timeouts)).collect()
        }),
        of("sanwire_session_window_packets", "Packets that may be in flight now", &|count| {
            let windows = |packets: &PacketCount| [("in", packets.window_in), ("out", packets.window_out)];
            let sample = |(direction, window): (&'static str, u32)| (Some(direction), Sample::Gauge(window.into()));
            count.packets.iter().flat_map(windows).map(sample).collect()
        }),
        of("sanwire_session_round_trip_seconds", "The round trip of its packets, once it was measured", &|count| {
            let measured = count.packets.as_ref().and_then(|packets| packets.round_trip);
            let sample = measured.map(|time| (None, Sample::SecondsNow(time.as_secs_f64())));
            sample.into_iter().collect()
        }),
        of("sanwire_session_memory_keys", "Keys of its memory (STags) that the server may use now", &|count| {
            rdma(count).map(|rdma| (None, Sample::Gauge(rdma.stags))).into_iter().collect()
        }),
        of("sanwire_session_credits", "Messages that its initiator may send by RDMA now", &|count| {
            rdma(count).map(|rdma| (None, Sample::Gauge(rdma.credits))).into_iter().collect()
        }),
        of("sanwire_session_links", "Its TCP connections, or the links of its HyperSCSI connection", &|count| {
            vec![(None, Sample::Gauge(count.links as u64))]
        }),
    ]
}

/// What a session has of RDMA, if it goes by that.
fn rdma(count: &ConnectionCount) -> Option<Rdma> {
    count.movement.and_then(|movement| movement.rdma)
}

/// Sessions of every wire and what was not taken, by shards.
pub(super) fn of_shards(counted: &[Counted]) -> Vec<Family> {
    let [mut sessions, mut dropped, mut memory, mut busy] = [(); 4].map(|()| Vec::<Placed>::new());
    for shard in counted {
        let place = shard.shard as u64;
        let mut wires: Vec<(&str, u64)> = Vec::new();
        for session in &shard.sessions {
            match wires.iter_mut().find(|(wire, _)| *wire == session.wire) {
                Some((_, count)) => *count += 1,
                None => wires.push((session.wire, 1)),
            }
        }
        let of_shard = Labels::of([("shard", &shard.shard.to_string())]);
        let labels = |wire: &str| of_shard.with("protocol", wire);
        sessions.extend(wires.into_iter().map(|(wire, count)| (place, labels(wire), Sample::Gauge(count))));
        // Several wires may have the same reason.
        let mut reasons = BTreeMap::<String, u64>::new();
        shard.dropped.iter().for_each(|(reason, count)| *reasons.entry(reason_key(reason)).or_default() += count);
        let labels = |reason: &str| of_shard.with("reason", reason);
        dropped.extend(reasons.into_iter().map(|(reason, count)| (place, labels(&reason), Sample::Counter(count))));
        let (used, free) = shard.memory_bytes;
        for (state, bytes) in [("used", used), ("free", free)] {
            memory.push((place, of_shard.with("state", state), Sample::Gauge(bytes)));
        }
        busy.push((place, of_shard, Sample::Seconds(shard.busy.as_secs_f64())));
    }
    vec![
        Family { name: "sanwire_shard_sessions", help: "Sessions of the shard", samples: sessions },
        Family { name: "sanwire_shard_memory_bytes", help: "Its memory for data in transit", samples: memory },
        Family { name: "sanwire_shard_busy_seconds", help: "Processor time of its thread", samples: busy },
        Family { name: "sanwire_dropped", help: "Packets and messages that were not taken", samples: dropped },
    ]
}
