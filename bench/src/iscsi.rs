//! iSCSI: Sanwire and tgt in turns, both on the loopback of a network namespace of their own.
//!
//! Client and server go where the scheduler puts them: tgt's threads and our shards use both processors of a small machine.

mod judge;
mod plan;
mod servers;

use anyhow::Result;

use serde_json::Value;

use crate::idle_sessions::{Idle, measure_idle};
use crate::link::Link;
use crate::process::Host;
use crate::report::{OPERATIONS, Outcome, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::Row;
use crate::servers::{Files, fill_volume};
use servers::{Bed, Contender, Store, start_sanwire, url};

/// The loopback's.
const MTU_BYTES: u32 = 65_536;

/// All rounds, and the idle server.
///
/// # Errors
/// When a server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let rows = measure_loaded(settings, files)?;
    let url = url(Contender::Sanwire, Store::Ram);
    let is_wanted = settings.args.only.is_empty();
    let idle = is_wanted.then(|| measure_idle(settings, files, &url, start_sanwire)).transpose()?;
    Ok(Outcome {
        part: "iscsi",
        verdicts: judge::judge(&rows, idle.as_ref()),
        table: table(&rows, &OPERATIONS),
        idle: idle.as_ref().map_or(Value::Null, Idle::to_json),
        rows,
        ..Outcome::default()
    })
}

fn measure_loaded(settings: &Settings, files: &Files) -> Result<Vec<Row>> {
    let link = Link::loopback()?;
    let bed = Bed::new(Host { link: &link, processors: None }, settings, files)?;
    let turns = plan::jobs(settings.args.quick).into_iter().map(|job| (job.row(&bed), job)).collect();
    fill_volume(&bed.host, &bed.program, files, &url(Contender::Sanwire, Store::Ram))?;
    take_single_turns(settings, "iSCSI", turns, |job| job.measure(&bed))
}
