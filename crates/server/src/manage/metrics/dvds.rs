//! What was done with derived volumes, by all their principals together.

use std::sync::Arc;

use sanwire_core::Lun;
use sanwire_device::{LogicalUnit, PrincipalUsage};

use super::{Family, Labels, Sample, label_of, place_of};

/// A derived volume, with what was counted since it was opened.
struct Row {
    place: u64,
    labels: Labels,
    sum: PrincipalUsage,
    not_admitted: u64,
}

pub(super) fn of_dvds(units: &[(Lun, Arc<LogicalUnit>)]) -> Vec<Family> {
    let row = |(lun, unit): &(Lun, Arc<LogicalUnit>)| {
        let (sum, not_admitted) = unit.derived()?.sum();
        Some(Row { place: place_of(*lun), labels: label_of(unit), sum, not_admitted })
    };
    let rows: Vec<Row> = units.iter().filter_map(row).collect();
    let of = |name, help, count: fn(&Row) -> u64| {
        let sample = |row: &Row| (row.place, row.labels.clone(), Sample::Counter(count(row)));
        Family { name, help, samples: rows.iter().map(sample).collect() }
    };
    let refused = |row: &Row| {
        let PrincipalUsage { refused_region, refused_operation, refused_program, refused_expired, .. } = row.sum;
        let counts = [
            ("not-admitted", row.not_admitted),
            ("operation", refused_operation),
            ("region", refused_region),
            ("program", refused_program),
            ("expired", refused_expired),
        ];
        counts.map(|(reason, count)| (row.place, row.labels.with("reason", reason), Sample::Counter(count)))
    };
    vec![
        of("sanwire_dvd_commands", "Commands of principals that were executed or refused", |row| row.sum.commands),
        of("sanwire_dvd_read_bytes", "Bytes that principals have read", |row| row.sum.read_bytes),
        of("sanwire_dvd_written_bytes", "Bytes that principals have written", |row| row.sum.written_bytes),
        Family {
            name: "sanwire_dvd_refused",
            help: "Commands that were refused, by reason",
            samples: rows.iter().flat_map(refused).collect(),
        },
    ]
}
