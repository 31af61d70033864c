//! Pools and snapshots as tables.

use sanwire_core::Size;
use sanwire_server::{PoolStatus, SnapshotStatus};

use crate::output;

pub(super) fn show_pools(pools: &[PoolStatus]) -> String {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), |bytes| Size(bytes).to_string());
    let row = |pool: &PoolStatus| {
        [
            pool.name.clone(),
            Size(pool.size_bytes).to_string(),
            Size(pool.available_bytes).to_string(),
            Size(pool.provisioned_bytes).to_string(),
            size(pool.limit_bytes),
            size(pool.largest_bytes),
            pool.volumes.to_string(),
            if pool.reflink { "yes" } else { "no" }.to_owned(),
            pool.directory.display().to_string(),
            if pool.default { "default" } else { "" }.to_owned(),
        ]
    };
    let heads = ["POOL", "SIZE", "AVAILABLE", "PROVISIONED", "LIMIT", "LARGEST", "VOLUMES", "REFLINK", "DIRECTORY", ""];
    output::table(heads, &pools.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn show_snapshots(snapshots: &[SnapshotStatus]) -> String {
    let row = |snapshot: &SnapshotStatus| {
        let SnapshotStatus { volume, name, pool, made, size_bytes, protected, .. } = snapshot;
        let protected = if *protected { "protected" } else { "" };
        [format!("{volume}@{name}"), made.clone(), Size(*size_bytes).to_string(), pool.clone(), protected.to_owned()]
    };
    let heads = ["SNAPSHOT", "TAKEN", "SIZE", "POOL", ""];
    output::table(heads, &snapshots.iter().map(row).collect::<Vec<_>>())
}
