//! What is counted of volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_core::Lun;
use sanwire_device::LogicalUnit;
use sanwire_engine::{FailureKind, Operation, VolumeCount};

use super::super::Manager;
use super::{Family, Labels, Placed, Sample, label_of, place_of};
use crate::counting::{Counted, Uses};

/// A volume with all that is known of it.
struct Row {
    place: u64,
    labels: Labels,
    unit: Arc<LogicalUnit>,
    sum: VolumeCount,
    clients: u64,
    in_flight: u64,
}

/// Operations that are told of each volume; the others only where there were any.
const ALWAYS_TOLD: [Operation; 2] = [Operation::Read, Operation::Write];

impl Manager {
    pub(super) fn of_volumes(&self, counted: &[Counted]) -> Vec<Family> {
        let (clients, in_flight) = (clients_by_slot(counted), in_flight_by_slot(counted));
        let row = |(lun, unit): (Lun, Arc<LogicalUnit>)| {
            let of = |counts: &BTreeMap<u16, u64>| counts.get(&unit.slot()).copied().unwrap_or_default();
            let (clients, in_flight) = (of(&clients), of(&in_flight));
            let sum = Manager::sum_of(counted, &unit);
            Row { place: place_of(lun), labels: label_of(&unit), unit, sum, clients, in_flight }
        };
        let rows: Vec<Row> = self.target.units().iter().into_iter().map(row).collect();
        let mut families = vec![self.infos(&rows)];
        families.extend(gauges(&rows));
        families.extend(counters(&rows));
        families
    }

    fn infos(&self, rows: &[Row]) -> Family {
        let levels = self.target.view().levels;
        let sample = |row: &Row| {
            let identity = row.unit.identity();
            let uuid = format!("{:032x}", u128::from_be_bytes(identity.uuid()));
            let store = self.volumes.get(identity.name()).map_or("", |volume| volume.spec.store_text());
            let security = levels.of(Lun::new(row.place as u16)).to_string();
            let block = row.unit.store().geometry().block_bytes.to_string();
            let labels = row.labels.with("uuid", &uuid).with("store", store);
            (row.place, labels.with("security", &security).with("block", &block), Sample::Gauge(1))
        };
        Family { name: "sanwire_volume_info", help: "What the volume is", samples: rows.iter().map(sample).collect() }
    }
}

/// How many clients have used each volume in the sessions that there are: a client with several sessions counts once.
fn clients_by_slot(counted: &[Counted]) -> BTreeMap<u16, u64> {
    let mut uses = BTreeMap::<&str, Uses>::new();
    for user in counted.iter().flat_map(|shard| &shard.users) {
        uses.entry(user.host.owner()).or_default().merge(&user.uses);
    }
    let mut clients = BTreeMap::new();
    uses.values().flat_map(Uses::slots).for_each(|slot| *clients.entry(slot).or_default() += 1);
    clients
}

fn in_flight_by_slot(counted: &[Counted]) -> BTreeMap<u16, u64> {
    let mut sum = BTreeMap::new();
    for (slot, count) in counted.iter().flat_map(|shard| &shard.in_flight) {
        *sum.entry(*slot).or_default() += count;
    }
    sum
}

fn gauges(rows: &[Row]) -> Vec<Family> {
    let of = |name, help, value: &dyn Fn(&Row) -> Option<u64>| {
        let samples = rows.iter().filter_map(|row| Some((row.place, row.labels.clone(), Sample::Gauge(value(row)?))));
        Family { name, help, samples: samples.collect() }
    };
    let reserved = |row: &Row| row.unit.reserved();
    vec![
        of("sanwire_volume_size_bytes", "The length of the volume", &|row| {
            Some(row.unit.store().geometry().length_bytes)
        }),
        of("sanwire_volume_allocated_bytes", "What its blocks take, where the store can tell", &|row| {
            row.unit.store().space().map(|space| space.used_bytes)
        }),
        of("sanwire_volume_read_only", "Whether writes are refused", &|row| {
            Some(row.unit.store().geometry().read_only.into())
        }),
        of("sanwire_volume_clients", "Clients that have used it in the sessions that they have", &|row| {
            Some(row.clients)
        }),
        of("sanwire_volume_in_flight_commands", "Commands that have come and are not over", &|row| Some(row.in_flight)),
        of("sanwire_volume_waiting_commands", "Commands that wait for the store", &|row| {
            Some(row.unit.stalls().waiting().into())
        }),
        of("sanwire_volume_registrations", "Persistent registrations, where there are any", &|row| {
            Some(reserved(row).0 as u64).filter(|count| *count > 0)
        }),
        of("sanwire_volume_reserved", "Whether it is reserved for some initiators", &|row| {
            Some(reserved(row).1.into()).filter(|is_reserved| *is_reserved > 0)
        }),
    ]
}

fn counters(rows: &[Row]) -> Vec<Family> {
    let of = |name, help, value: &dyn Fn(&Row) -> Sample| Family {
        name,
        help,
        samples: rows.iter().map(|row| (row.place, row.labels.clone(), value(row))).collect(),
    };
    let each = |name, help, samples: &dyn Fn(&Row) -> Vec<Placed>| Family {
        name,
        help,
        samples: rows.iter().flat_map(samples).collect(),
    };
    vec![
        each("sanwire_volume_commands", "Commands that have ended", &|row| {
            let told = Operation::ALL.into_iter().zip(row.sum.operations);
            let told = told.filter(|(operation, count)| *count > 0 || ALWAYS_TOLD.contains(operation));
            told.map(|(operation, count)| (row.place, of_operation(row, operation), Sample::Counter(count))).collect()
        }),
        of("sanwire_volume_read_bytes", "Bytes that were read", &|row| Sample::Counter(row.sum.read_bytes)),
        of("sanwire_volume_written_bytes", "Bytes that were written", &|row| Sample::Counter(row.sum.written_bytes)),
        of("sanwire_volume_stall_seconds", "For how long commands have waited for the store", &|row| {
            Sample::Seconds(row.unit.stalls().stalled().as_secs_f64())
        }),
        each("sanwire_volume_errors", "Commands that failed or were aborted", &|row| {
            let told = FailureKind::ALL.into_iter().zip(row.sum.failures).filter(|(_, count)| *count > 0);
            told.map(|(kind, count)| (row.place, row.labels.with("kind", kind.name()), Sample::Counter(count)))
                .collect()
        }),
        each("sanwire_volume_command_duration_seconds", "From a command's arrival to its answer", &|row| {
            let told = Operation::ALL.into_iter().filter_map(|operation| {
                let durations = row.sum.durations(operation)?.clone();
                Some((row.place, of_operation(row, operation), Sample::Durations(Box::new(durations))))
            });
            told.collect()
        }),
    ]
}

fn of_operation(row: &Row, operation: Operation) -> Labels {
    row.labels.with("operation", operation.name())
}
