//! Pools and the snapshots in them.

use std::collections::BTreeMap;

use super::{Family, Labels, Placed, Sample};
use crate::events::EventLog;
use crate::manage::filling;
use crate::manage::pools::ask;
use crate::pools::{Pool, PoolStatus, Pools, SnapshotsTaken};

/// Pools as they are now.
#[derive(Default, Debug)]
pub(in crate::manage) struct PoolsNow {
    statuses: Vec<PoolStatus>,
    snapshots: BTreeMap<String, SnapshotsTaken>,
}

impl PoolsNow {
    /// Asks their file systems, which may take their time, and tells of those that fill up. What does not answer is left out.
    pub(in crate::manage) fn of(pools: &Pools, events: &EventLog) -> PoolsNow {
        let mut now = PoolsNow::default();
        for pool in pools.iter() {
            let tell = |pool: &Pool, is_default| Ok((pool.status(is_default)?, pool.snapshots_taken()));
            match ask(pools, pool, tell) {
                Ok((status, taken)) => {
                    filling::note(events, pool, &status);
                    now.statuses.push(status);
                    now.snapshots.extend(taken);
                }
                Err(error) => tracing::debug!("a pool has no metrics: {error}"),
            }
        }
        now
    }

    pub(super) fn families(&self) -> Vec<Family> {
        let of_pools = |name, help, value: &dyn Fn(&PoolStatus) -> Option<u64>| {
            let sample = |(place, pool): (u64, &PoolStatus)| {
                Some((place, Labels::of([("pool", &pool.name)]), Sample::Gauge(value(pool)?)))
            };
            Family { name, help, samples: (0..).zip(&self.statuses).filter_map(sample).collect() }
        };
        let of_volumes = |name, help, value: &dyn Fn(&SnapshotsTaken) -> u64| {
            let sample = |(place, (volume, taken)): (u64, (&String, &SnapshotsTaken))| -> Placed {
                (place, Labels::of([("volume", volume)]), Sample::Gauge(value(taken)))
            };
            Family { name, help, samples: (0..).zip(&self.snapshots).map(sample).collect() }
        };
        vec![
            of_pools("sanwire_pool_size_bytes", "The file system of the pool", &|pool| Some(pool.size_bytes)),
            of_pools("sanwire_pool_available_bytes", "What that has left", &|pool| Some(pool.available_bytes)),
            of_pools("sanwire_pool_provisioned_bytes", "What its volumes have together, written or not", &|pool| {
                Some(pool.provisioned_bytes)
            }),
            of_pools("sanwire_pool_limit_bytes", "What they may have, where that is limited", &|pool| pool.limit_bytes),
            of_volumes("sanwire_volume_snapshots", "Snapshots of the volume, where there are any", &|taken| {
                taken.count
            }),
            of_volumes(
                "sanwire_volume_snapshot_allocated_bytes",
                "What their blocks take, those too that they share with the volume",
                &|taken| taken.allocated_bytes,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::pools::tests::{ask, start};
    use super::super::super::testing::Kept;
    use super::super::super::{Answer, Request};

    #[test]
    fn pools_and_snapshots_are_told() {
        crate::pools::testing::copy_files();
        let kept = Kept::new("pool-metrics", &["a=pool:,size=16M", "b=pool:,size=1M"]);
        let mut manager = start(&kept).unwrap();
        for name in ["one", "two"] {
            let snapshot = Request::Snapshot { volumes: vec!["a".into()], name: name.into(), protected: false };
            ask(&mut manager, snapshot).unwrap();
        }
        let Ok(Answer::Metrics(metrics)) = ask(&mut manager, Request::Metrics) else { panic!("the metrics") };
        let text = metrics.as_str();
        for line in [
            "sanwire_pool_provisioned_bytes{pool=\"fast\"} 17825792",
            "sanwire_pool_limit_bytes{pool=\"fast\"} 67108864",
            "sanwire_volume_snapshots{volume=\"a\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        for begin in [
            "sanwire_pool_size_bytes{pool=\"fast\"} ",
            "sanwire_pool_available_bytes{pool=\"fast\"} ",
            "sanwire_volume_snapshot_allocated_bytes{volume=\"a\"} ",
        ] {
            let value = text.lines().find_map(|line| line.strip_prefix(begin)).expect(begin);
            assert!(value.parse::<u64>().unwrap() > 0, "{begin}{value}");
        }
        assert!(!text.contains("sanwire_volume_snapshots{volume=\"b\"}"), "there are none");
        manager.into_target().stop().unwrap();
    }
}
