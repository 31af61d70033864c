//! What the stores of volumes have failed with, and how those that are elsewhere are reached.

use std::sync::Arc;

use sanwire_core::Lun;
use sanwire_device::LogicalUnit;
use sanwire_store::RemoteCount;

use super::{Family, Labels, Sample, label_of, place_of};

/// Of each volume whose store has failed, or is elsewhere.
pub(super) fn of_stores(volumes: &[(Lun, Arc<LogicalUnit>)]) -> Vec<Family> {
    let errors = volumes.iter().flat_map(|(lun, unit)| {
        unit.store_errors()
            .all()
            .map(|(kind, count)| (place_of(*lun), label_of(unit).with("kind", kind), Sample::Counter(count)))
    });
    let errors = Family {
        name: "sanwire_volume_store_errors",
        help: "Requests that the store has failed, each time that it was asked",
        samples: errors.collect(),
    };
    let remote =
        volumes.iter().filter_map(|(lun, unit)| Some((place_of(*lun), label_of(unit), unit.store().remote()?)));
    let remote: Vec<(u64, Labels, RemoteCount)> = remote.collect();
    let of = |name, help, value: &dyn Fn(&RemoteCount) -> Sample| Family {
        name,
        help,
        samples: remote.iter().map(|(place, labels, count)| (*place, labels.clone(), value(count))).collect(),
    };
    vec![
        errors,
        of("sanwire_volume_store_up", "Whether a store that is elsewhere can be reached", &|count| {
            Sample::Gauge(count.is_reachable.into())
        }),
        of("sanwire_volume_store_outages", "How often a store that is elsewhere was gone", &|count| {
            Sample::Counter(count.times_gone)
        }),
        of("sanwire_volume_store_reconnects", "How often a store that is elsewhere was there again", &|count| {
            Sample::Counter(count.reconnects)
        }),
        of("sanwire_volume_store_requests", "Requests that a store that is elsewhere has not ended", &|count| {
            Sample::Gauge(count.requests)
        }),
    ]
}
