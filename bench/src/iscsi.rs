//! iSCSI: Sanwire and tgt in turns, both on the loopback of a network namespace of their own.
//!
//! Client and server go where the scheduler puts them: tgt's threads and our shards use both processors of a small machine.

mod idle;
mod judge;
mod plan;
mod servers;

use anyhow::Result;

pub(crate) use idle::{Idle, measure_idle};
pub(crate) use judge::judge;

use crate::link::Link;
use crate::process::Host;
use crate::sample::Row;
use crate::servers::Files;
use crate::{Settings, take_turns};
use servers::Bed;

/// The loopback's.
const MTU_BYTES: u32 = 65_536;

/// All rounds.
///
/// # Errors
/// When a server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Vec<Row>> {
    let link = Link::loopback()?;
    let bed = Bed::new(Host { link: &link, processors: None }, settings, files)?;
    let turns = plan::jobs(settings.args.quick).into_iter().map(|job| (job.row(&bed), job)).collect();
    bed.fill()?;
    take_turns(settings, "iSCSI", turns, |job| job.measure(&bed))
}
