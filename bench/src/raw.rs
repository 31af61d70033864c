//! The wires against what a link carries: HDSP beside our iSCSI and a plain TCP stream by the size of blocks, as in the HDSP
//! paper's figures 5 and 6; HyperSCSI beside the bare link; ATA over Ethernet beside vblade; a mirror beside one file;
//! and a mirror over two links beside what these carry.

mod carried;
mod frames;
mod mirror;
mod mirror_links;
mod sizes;

use anyhow::Result;

use crate::curves;
use crate::report::{Outcome, Section};
use crate::run::Settings;
use crate::servers::Files;

/// All of it, one section after the other.
///
/// # Errors
/// When a server does not come up.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let sizes = sizes::measure(settings, files)?;
    let picture = curves::draw(
        "HDSP, iSCSI and TCP by the size of blocks",
        &sizes::BLOCKS_KIB.map(|kib| format!("{kib}K")),
        &sizes::panels(&sizes.rows, settings.args.sequential_depth),
    );
    let sections = vec![
        sizes,
        frames::measure(settings, files)?,
        mirror::measure(settings, files)?,
        mirror_links::measure(settings, files)?,
    ];
    Ok(Outcome { picture: Some(picture), ..Section::all("raw", sections) })
}
