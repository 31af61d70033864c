//! The wires against what a link carries: HDSP beside our iSCSI and a plain TCP stream by the size of blocks, as in the HDSP
//! paper's figures 5 and 6; HyperSCSI beside the bare link; ATA over Ethernet beside vblade; and a mirror beside one member.

mod frames;
mod mirror;
mod picture;
mod sizes;

use anyhow::Result;

use crate::report::{Outcome, Verdict};
use crate::run::Settings;
use crate::sample::Row;
use crate::servers::Files;

/// What contenders on one bed gave.
struct Section {
    rows: Vec<Row>,
    verdicts: Vec<Verdict>,
    /// Each with what it shows.
    tables: Vec<(&'static str, String)>,
}

/// All of it, one section after the other.
///
/// # Errors
/// When a server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let sizes = sizes::measure(settings, files)?;
    let picture = picture::draw(&sizes::panels(&sizes.rows, settings.args.sequential_depth));
    let mut outcome = Outcome { part: "raw", picture: Some(picture), ..Outcome::default() };
    let mut tables = vec![];
    for section in [sizes, frames::measure(settings, files)?, mirror::measure(settings, files)?] {
        if !section.rows.is_empty() {
            tables.extend(section.tables.into_iter().map(|(title, table)| format!("{title}\n{table}")));
        }
        outcome.rows.extend(section.rows);
        outcome.verdicts.extend(section.verdicts);
    }
    outcome.table = tables.join("\n");
    Ok(outcome)
}
