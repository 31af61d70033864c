//! What all shards together have counted.

use std::collections::BTreeMap;

use sanwire_core::quota::{self, Quota, Usage};
use sanwire_core::{Movement, Rdma};
use sanwire_device::LogicalUnit;
use sanwire_engine::VolumeCount;
use sanwire_store::RemoteCount;

use super::response::{
    ConnectionStatistics, DataStatistics, QuotaStatistics, RdmaStatistics, RemoteStatistics, Statistics,
    VolumeStatistics,
};
use super::{AuditLog, Manager};
use crate::counting::{ConnectionCount, Counted};

impl Manager {
    pub(super) fn statistics(&self, counted: &[Counted]) -> Statistics {
        let disks = self.target.units().iter();
        let volumes = disks.iter().map(|(_, disk)| of_volume(disk, &Manager::sum_of(counted, disk)));
        let mut connections: Vec<_> = counted.iter().flat_map(connections).collect();
        connections.sort_by_key(ConnectionStatistics::page_place);
        Statistics {
            volumes: volumes.collect(),
            connections,
            dropped: counted.iter().fold(BTreeMap::new(), add),
            quotas: self.quotas(counted),
        }
    }

    /// How the quotas are used that somebody keeps.
    pub(super) fn quotas(&self, counted: &[Counted]) -> Vec<QuotaStatistics> {
        let audited = self.audit.iter().flat_map(AuditLog::usages);
        let disks = self.target.units().iter();
        let of_volumes = disks.iter().flat_map(|(_, disk)| disk.quotas());
        let of_server: Vec<Usage> =
            audited.chain(self.jobs.usages()).chain(self.target.usages()).chain(of_volumes).collect();
        quotas(counted.iter().flat_map(|shard| &shard.quotas).chain(&of_server))
    }

    /// What all shards together have counted of a volume.
    pub(super) fn sum_of(counted: &[Counted], disk: &LogicalUnit) -> VolumeCount {
        let mut sum = VolumeCount::default();
        for Counted { volumes, .. } in counted {
            let at = volumes.binary_search_by_key(&disk.slot(), |(slot, _)| *slot).ok();
            at.and_then(|at| volumes.get(at)).into_iter().for_each(|(_, count)| sum.add(count));
        }
        sum
    }
}

/// The quotas that somebody keeps, in the order of all there are.
fn quotas<'a>(usages: impl Iterator<Item = &'a Usage>) -> Vec<QuotaStatistics> {
    let mut sums: Vec<Usage> = Vec::new();
    for usage in usages {
        match sums.iter_mut().find(|sum| sum.quota == usage.quota) {
            Some(sum) => sum.add(usage),
            None => sums.push(*usage),
        }
    }
    let of = |quota: &Quota| sums.iter().find(|sum| sum.quota == quota).copied();
    quota::ALL.iter().filter_map(|quota| of(quota)).map(of_quota).collect()
}

fn of_quota(Usage { quota, limit, most, refused }: Usage) -> QuotaStatistics {
    QuotaStatistics {
        holder: quota.holder.name().to_owned(),
        name: quota.name.to_owned(),
        limit,
        unit: quota.unit.name().to_owned(),
        most,
        refused,
    }
}

fn of_volume(disk: &LogicalUnit, count: &VolumeCount) -> VolumeStatistics {
    let durations = count.all_durations();
    VolumeStatistics {
        name: disk.identity().name().to_owned(),
        commands: count.commands(),
        read_bytes: count.read_bytes,
        written_bytes: count.written_bytes,
        errors: count.errors(),
        store_errors: disk.store_errors().all().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        remote: disk.store().remote().map(of_remote),
        latency_mean_us: durations.sum_us.checked_div(durations.count()).unwrap_or(0),
        latency_median_us: durations.within_us(0.5),
        latency_p99_us: durations.within_us(0.99),
        latency_max_us: durations.max_us,
    }
}

fn of_remote(count: RemoteCount) -> RemoteStatistics {
    let RemoteCount { is_reachable, times_gone, reconnects, requests } = count;
    RemoteStatistics { reachable: is_reachable, times_gone, reconnects, requests }
}

fn connections(counted: &Counted) -> impl Iterator<Item = ConnectionStatistics> {
    counted.connections.iter().map(|connection| {
        let (count, packets) = (connection.commands, connection.packets.clone().unwrap_or_default());
        ConnectionStatistics {
            wire: connection.wire.to_owned(),
            client: connection.principal.clone(),
            address: connection.address.clone(),
            session: format!("{:x}", connection.nexus.0),
            shard: counted.shard,
            commands: count.commands,
            read_bytes: count.read_bytes,
            written_bytes: count.written_bytes,
            errors: count.errors,
            sent_bytes: connection.bytes.sent,
            received_bytes: connection.bytes.received,
            sent_packets: packets.sent,
            received_packets: packets.received,
            resent_packets: packets.resent,
            timeouts: packets.timeouts,
            window_out_packets: packets.window_out,
            window_in_packets: packets.window_in,
            round_trip_us: packets.round_trip.and_then(|time| u64::try_from(time.as_micros()).ok()),
            data: connection.movement.map(|movement| of_data(movement, connection)),
        }
    })
}

fn of_data(movement: Movement, connection: &ConnectionCount) -> DataStatistics {
    let Movement { placed_bytes, direct_bytes, copied_bytes, rdma } = movement;
    let rdma = rdma.map(|Rdma { stags, stags_ever, credits, fpdu_max_bytes, segment_bytes }| RdmaStatistics {
        stags,
        stags_ever,
        credits,
        fpdu_max_bytes,
        segment_bytes,
        adapter: connection.login.as_ref().and_then(|login| login.adapter.clone()),
    });
    DataStatistics { placed_bytes, direct_bytes, copied_bytes, rdma }
}

/// Adds what a shard has counted, by reasons: they are keys like others.
fn add(mut sum: BTreeMap<String, u64>, shard: &Counted) -> BTreeMap<String, u64> {
    for (reason, count) in &shard.dropped {
        *sum.entry(reason_key(reason)).or_default() += count;
    }
    sum
}

/// A reason for which something was dropped, as programs are told it: the same word in statistics and metrics.
pub(super) fn reason_key(reason: &str) -> String {
    reason.replace(' ', "_")
}
