//! HyperSCSI beside vblade, tgt and the bare link, on two hosts joined by a veth pair.

mod idle;
mod judge;
mod plan;

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::link::{INTERFACE, Link, SERVER_ADDRESS};
use crate::process::Host;
use crate::rawlink::RawLink;
use crate::report::{OPERATIONS, Outcome, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::Row;
use crate::servers::{self, Files, VOLUME_BYTES, check_interrupted};
use idle::Idle;
use plan::{Bed, Job};

/// All rounds on every link, and the idle ends.
///
/// # Errors
/// When a server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let mut rows = vec![];
    for &mtu_bytes in &settings.args.mtu {
        rows.extend(measure_link(settings, files, mtu_bytes)?);
    }
    let idle = if settings.args.only.is_empty() { Some(measure_idle(settings, files)?) } else { None };
    Ok(Outcome {
        part: "hyperscsi",
        verdicts: judge::judge(&rows, idle.as_ref()),
        table: table(&rows, &OPERATIONS),
        idle: idle.as_ref().map_or(Value::Null, Idle::to_json),
        rows,
        ..Outcome::default()
    })
}

fn measure_link(settings: &Settings, files: &Files, mtu_bytes: u32) -> Result<Vec<Row>> {
    let link = Link::new(mtu_bytes)?;
    let host = Host { link: &link, processors: settings.processors };
    let volumes = [format!("ram=ram:{VOLUME_BYTES}"), format!("tmpfs=file:{}", files.image("sanwire.img")?)];
    let bed = Bed {
        sanwire: servers::start_sanwire(&host, &settings.programs[0], files, &servers::HYPERSCSI, &volumes, &[])?,
        vblade: servers::start_vblade(&host, files, INTERFACE)?,
        tgt: servers::start_tgt(&host, &format!("{SERVER_ADDRESS}:3260"), &[&["-b", &files.image("tgt.img")?]])?,
        programs: settings.programs.clone(),
        raw_link: RawLink::new(settings, &link, mtu_bytes)?,
        client_key: files.path("client.key"),
        mtu_bytes,
        seconds: settings.seconds,
        host,
    };
    let jobs = plan::jobs(mtu_bytes, settings.args.quick, settings.args.sequential_depth);
    let turns = jobs.into_iter().map(|job| (row(&job, &bed), job)).collect();
    servers::fill_volume(&bed.host, &settings.programs[0], files, &servers::Wire::Ethernet.url("ram"))?;
    take_single_turns(settings, &format!("MTU {mtu_bytes}"), turns, |job| job.measure(&bed))
}

fn row(job: &Job, bed: &Bed) -> Row {
    Row {
        mtu_bytes: bed.mtu_bytes,
        contender: job.contender(),
        load: job.load(),
        command: job.command(bed),
        samples: vec![],
    }
}

fn measure_idle(settings: &Settings, files: &Files) -> Result<Idle> {
    check_interrupted(&settings.interrupted)?;
    let time = Duration::from_secs(if settings.args.quick { 5 } else { 20 });
    eprintln!("idle server and attached client: {} s", time.as_secs());
    let link = Link::new(9000)?;
    let host = Host { link: &link, processors: settings.processors };
    Idle::measure(&host, &settings.programs[0], files, time)
}
