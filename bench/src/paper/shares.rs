//! The table: how much of the local disk's speed each contender has.

use crate::bars::{Bar, Group};
use crate::report::align;
use crate::sample::{Measure, Row, median};

use super::Contender;
use super::load::{Load, Zone};

/// What the paper reports of HyperSCSI, iSCSI and NFS over Gigabit Ethernet (section 7), in parts of the local disk.
const PAPER: [(&str, &str, f64); 5] = [
    ("block read", "HS/eth", 0.96),
    ("block read", "iSCSI", 0.82),
    ("file copy", "HS/eth", 0.88),
    ("file copy", "iSCSI", 0.43),
    ("file copy", "NFS", 0.39),
];

/// What the picture shows, and the loads that each group of bars is the mean of.
const GROUPS: [(&str, &[Load]); 5] = [
    ("block read", &[Load::BlockRead]),
    ("file copy", &[Load::Copy]),
    ("IOzone write", &[Load::Zone(Zone::Write), Load::Zone(Zone::Rewrite)]),
    ("IOzone read", &[Load::Zone(Zone::Read), Load::Zone(Zone::Reread)]),
    ("IOzone random", &[Load::Zone(Zone::RandomRead), Load::Zone(Zone::RandomWrite)]),
];

/// What the picture shows.
pub(super) fn groups(rows: &[Row]) -> Vec<Group> {
    let bar = |load: &str, loads: &[Load], contender: Contender| Bar {
        contender: contender.name(),
        share: mean(rows, contender, loads),
        paper: paper(load, contender.name()),
    };
    let group = |(load, loads)| Group { load, bars: remote().map(|contender| bar(load, loads, contender)).collect() };
    GROUPS.into_iter().map(group).collect()
}

/// Loads below each other, contenders beside each other.
pub(super) fn table(rows: &[Row]) -> String {
    let mut header = vec!["part of the local disk".to_owned(), "local MiB/s".to_owned()];
    header.extend(remote().map(|contender| contender.name().to_owned()));
    let mut lines = vec![header];
    for load in Load::ALL {
        let mut line =
            vec![load.name().to_owned(), local(rows, load).map_or_else(String::new, |mib| format!("{mib:.0}"))];
        line.extend(remote().map(|contender| percent(share(rows, contender, load))));
        lines.push(line);
    }
    for load in [Load::BlockRead, Load::Copy] {
        let mut line = vec![format!("{}, the paper's", load.name()), String::new()];
        line.extend(remote().map(|contender| percent(paper(load.name(), contender.name()))));
        lines.push(line);
    }
    align(&lines, 1)
}

fn remote() -> impl Iterator<Item = Contender> {
    Contender::ALL.into_iter().filter(|contender| *contender != Contender::Local)
}

fn local(rows: &[Row], load: Load) -> Option<f64> {
    median(rows, Contender::Local.name(), load.name(), Measure::MibPerS).filter(|speed| *speed > 0.0)
}

fn share(rows: &[Row], contender: Contender, load: Load) -> Option<f64> {
    Some(median(rows, contender.name(), load.name(), Measure::MibPerS)? / local(rows, load)?)
}

/// The geometric mean, as of ratios.
fn mean(rows: &[Row], contender: Contender, loads: &[Load]) -> Option<f64> {
    let product = loads.iter().try_fold(1.0, |product, load| Some(product * share(rows, contender, *load)?))?;
    Some(product.powf(1.0 / loads.len() as f64))
}

fn paper(load: &str, contender: &str) -> Option<f64> {
    let found = PAPER.iter().find(|(its_load, its_contender, _)| *its_load == load && *its_contender == contender);
    found.map(|(_, _, share)| *share)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn shares_are_parts_of_the_local_disk_and_their_mean_is_geometric() {
        let row = |contender: Contender, load: Load, mib_per_s| Row {
            mtu_bytes: 9000,
            contender: contender.name().into(),
            load: load.name().into(),
            command: String::new(),
            samples: vec![Sample { mib_per_s: Some(mib_per_s), ..Sample::default() }],
        };
        let mut rows: Vec<Row> = Load::ALL.into_iter().map(|load| row(Contender::Local, load, 100.0)).collect();
        rows.push(row(Contender::Nfs, Load::Copy, 39.0));
        rows.push(row(Contender::Nfs, Load::Zone(Zone::Read), 10.0));
        rows.push(row(Contender::Nfs, Load::Zone(Zone::Reread), 40.0));
        let nfs = |group: &Group| group.bars.iter().find(|bar| bar.contender == "NFS").and_then(|bar| bar.share);
        let shares: Vec<Option<String>> =
            groups(&rows).iter().map(|group| nfs(group).map(|share| format!("{share:.2}"))).collect();
        assert_eq!(shares, [None, Some("0.39".to_owned()), None, Some("0.20".to_owned()), None]);
        let table = table(&rows);
        assert!(table.lines().any(|line| line.starts_with("file copy ") && line.ends_with("39 %")), "{table}");
    }
}
