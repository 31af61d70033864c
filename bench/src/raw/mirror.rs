//! What a mirror of two costs beside one of its members, all files in memory.

use anyhow::Result;

use crate::bed::{self, Bed, MTU_BYTES};
use crate::link::{End, Link};
use crate::load::{Load, read_sanwire};
use crate::process::Host;
use crate::report::{Column, Section, table};
use crate::rounds::take_single_turns;
use crate::run::Settings;
use crate::sample::{Measure, compare};
use crate::servers::{Files, Wire};

const ARRAY: &str = "pair";
const ONE: &str = "one file";
const MIRROR: &str = "mirror of two";

const COLUMNS: [Column; 5] = [
    Column::IOPS,
    Column::MIB_PER_S_RANGED,
    Column::LATENCY_P50_US,
    Column::SERVER_US_RANGED,
    Column::plain("times one file", Measure::Share, 2),
];

/// All rounds.
///
/// # Errors
/// When the array cannot be made, or the server does not come up.
pub(super) fn measure(settings: &Settings, files: &Files) -> Result<Section> {
    let link = Link::new(MTU_BYTES)?;
    let members = [files.image("first.img")?, files.image("second.img")?].map(|path| format!("file:{path}"));
    let host = Host { link: &link, processors: settings.processors };
    let create = ["array", "create", ARRAY, "--mirror", &members[0], &members[1], "--force"];
    host.run(End::Server, &settings.programs[0], &create)?;
    let volumes = [
        format!("one=file:{},security=none", files.image("sanwire.img")?),
        format!("two=array:{ARRAY},member={},security=none", members[0]),
    ];
    let bed = Bed::new(settings, &link, files, &[Wire::Ethernet], &volumes)?;
    let depth = settings.args.sequential_depth;
    let loads = [
        Load::random_write(4096, 32),
        Load::random_read(4096, 32),
        Load::sequential(512 << 10, depth, true),
        Load::sequential(512 << 10, depth, false),
    ];
    let jobs = loads.into_iter().flat_map(|load| {
        [(ONE, "one"), (MIRROR, "two")].map(|(contender, volume)| {
            let client = bed.client(&load, volume, "");
            (bed::row(contender, &load, &client), client)
        })
    });
    let turns = jobs.collect();
    let mut rows = take_single_turns(settings, "mirror", turns, |client| bed.measure(client, read_sanwire).map(Some))?;
    compare(&mut rows, ONE);
    let tables = vec![("a mirror of two files in tmpfs beside one, by HS/eth at MTU 9000", table(&rows, &COLUMNS))];
    Ok(Section { rows, verdicts: vec![], tables })
}
