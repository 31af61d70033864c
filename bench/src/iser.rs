//! iSER beside iSCSI, both ends ours, on one link: operations and processor time by the size of requests, as in figures 5.4 and 5.5 of
//! the thesis "iSCSI over RDMA", which ends at 64 KiB; and how often each byte of data is copied.
//!
//! iSER always has CRCs (those of its FPDUs), so iSCSI with digests is what it is held against. iSCSI without them stands beside.

mod judge;
mod plan;
mod tables;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bed::Bed;
use crate::curves;
use crate::idle_sessions::{Idle, measure_idle};
use crate::link::Link;
use crate::load::{Load, line, read_sanwire};
use crate::report::{Outcome, Section};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Row, Sample};
use crate::servers::{Files, VOLUME_BYTES, Wire, fill_volume, start_sanwire};
use plan::{Contender, SIZES, WIRES, loads, size_name};

const VOLUME: &str = "ram";
/// Where nothing is asked of it.
const IDLE_WIRE: Wire = Wire::Iser("127.0.0.1:3260");

/// All rounds on every link, and the idle server.
///
/// # Errors
/// When a server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let mut rows = vec![];
    for &mtu_bytes in &settings.args.mtu {
        rows.extend(measure_link(settings, files, mtu_bytes)?);
    }
    let volume = format!("{VOLUME}=ram:{VOLUME_BYTES}");
    let is_wanted = settings.args.only.is_empty();
    let idle = is_wanted.then(|| {
        measure_idle(settings, files, &IDLE_WIRE.url(VOLUME), |host, sanwire, files| {
            start_sanwire(host, sanwire, files, &[IDLE_WIRE], &[volume], &[])
        })
    });
    let idle = idle.transpose()?;
    let depth = settings.args.sequential_depth;
    let picture = (!rows.is_empty()).then(|| {
        let sizes = SIZES.map(size_name);
        curves::draw("iSER and iSCSI by the size of requests", &sizes, &tables::panels(&rows, depth))
    });
    let verdicts = judge::judge(&rows, depth, idle.as_ref());
    let section = Section { verdicts, tables: tables::all(&rows, depth), rows };
    let numbers = idle.as_ref().map_or(Value::Null, Idle::to_json);
    Ok(Outcome { picture, idle: numbers, ..Section::all("iser", vec![section]) })
}

fn measure_link(settings: &Settings, files: &Files, mtu_bytes: u32) -> Result<Vec<Row>> {
    let link = Link::new(mtu_bytes)?;
    let bed = Bed::new(settings, &link, files, &WIRES, &[format!("{VOLUME}=ram:{VOLUME_BYTES}")])?;
    fill_volume(&bed.host, &settings.programs[0], files, &WIRES[0].url(VOLUME))?;
    let turns = loads(settings.args.sequential_depth)
        .flat_map(|load| Contender::ALL.map(|contender| (row(&bed, mtu_bytes, contender, &load), (contender, load))));
    take_single_turns(settings, &format!("MTU {mtu_bytes}"), turns.collect(), |(contender, load)| {
        measure_one(&bed, *contender, load).map(Some)
    })
}

/// Its row, without samples.
fn row(bed: &Bed, mtu_bytes: u32, contender: Contender, load: &Load) -> Row {
    let command = line(&contender.client(bed, load, VOLUME));
    Row { mtu_bytes, contender: contender.name().into(), load: load.name(), command, samples: vec![] }
}

fn measure_one(bed: &Bed, contender: Contender, load: &Load) -> Result<Sample> {
    let client = contender.client(bed, load, VOLUME);
    if !load.is_write {
        return bed.measure(&client, read_sanwire);
    }
    let before = received(&bed.metrics()?, contender)?;
    let sample = bed.measure(&client, read_sanwire)?;
    let after = received(&bed.metrics()?, contender)?;
    let [data, copied] = [0, 1].map(|which| after[which].saturating_sub(before[which]) as f64);
    Ok(Sample { copies_per_byte: (data > 0.0).then(|| copied / data), ..sample })
}

/// Bytes of data that the server has received, and copies of bytes that it has made of them.
fn received(metrics: &str, contender: Contender) -> Result<[u64; 2]> {
    let count = |family: &str| -> Result<u64> {
        let name = format!("sanwire_iscsi_{family}_bytes_total{{transport=\"{}\"}} ", contender.transport());
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name)).with_context(|| format!("no {name}"))?;
        Ok(value.trim().parse()?)
    };
    Ok([count("data")?, count("copied")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_has_received_is_read_from_the_metrics() {
        let metrics = "sanwire_iscsi_data_bytes_total{transport=\"TCP\"} 100\n\
                       sanwire_iscsi_data_bytes_total{transport=\"RDMA\"} 50\n\
                       sanwire_iscsi_copied_bytes_total{transport=\"TCP\"} 90\n\
                       sanwire_iscsi_copied_bytes_total{transport=\"RDMA\"} 5\n";
        assert_eq!(received(metrics, Contender::Iser).unwrap(), [50, 5]);
        assert_eq!(received(metrics, Contender::Digests).unwrap(), [100, 90]);
        assert!(received("", Contender::Iser).is_err());
    }
}
