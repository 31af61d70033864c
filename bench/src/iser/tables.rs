//! What was found, as tables and as curves.

use crate::curves::{Curve, Panel};
use crate::report::align;
use crate::sample::{Measure, Row};

use super::plan::{Contender, loads, mtus, ratio, value};

/// What iSER stands beside.
const OTHERS: &[Contender] = &[Contender::Iscsi, Contender::Digests];

/// Whether a table shows iSER in terms of the others, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Columns {
    Contenders,
    Ratios,
}

/// All tables, each with what it shows.
pub(super) fn all(rows: &[Row], depth: u16) -> Vec<(&'static str, String)> {
    use Columns::{Contenders, Ratios};
    let shown = [
        ("operations a second (figure 5.4)", Measure::Iops, 0, Ratios),
        ("MiB/s", Measure::MibPerS, 0, Contenders),
        (
            "the client's processor time, in percent of a processor (figure 5.5)",
            Measure::ClientCpuPercent,
            1,
            Contenders,
        ),
        ("the server's processor time, in percent of a processor", Measure::ServerCpuPercent, 1, Contenders),
        ("the client's processor time, in seconds for a GiB", Measure::ClientCpuSecondsPerGib, 3, Ratios),
        ("the server's processor time, in seconds for a GiB", Measure::ServerCpuSecondsPerGib, 3, Ratios),
        ("copies of each byte by the program that receives it", Measure::CopiesPerByte, 3, Contenders),
    ];
    shown.map(|(title, measure, digits, columns)| (title, table(rows, depth, (measure, digits), columns))).into()
}

/// Loads below each other; contenders beside each other.
fn table(rows: &[Row], depth: u16, (measure, digits): (Measure, usize), columns: Columns) -> String {
    let others = if columns == Columns::Ratios { OTHERS } else { &[] };
    let cell = |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
    let mut header = vec!["MTU".to_owned(), "load".to_owned()];
    header.extend(Contender::ALL.map(|contender| contender.name().to_owned()));
    header.extend(others.iter().map(|other| format!("iSER / {}", other.name())));
    let mut lines = vec![header];
    for mtu in mtus(rows) {
        for load in loads(depth) {
            let values = Contender::ALL.map(|contender| value(rows, mtu, contender, &load, measure));
            if values.iter().all(Option::is_none) {
                continue;
            }
            let mut line = vec![mtu.to_string(), load.name()];
            line.extend(values.map(|value| cell(value, digits)));
            line.extend(others.iter().map(|other| cell(ratio(rows, mtu, *other, &load, measure), 2)));
            lines.push(line);
        }
    }
    align(&lines, 2)
}

/// What the thesis' figures show, for each link and direction.
pub(super) fn panels(rows: &[Row], depth: u16) -> Vec<Panel> {
    let mut panels = vec![];
    for mtu in mtus(rows) {
        for is_write in [false, true] {
            let direction = if is_write { "writes" } else { "reads" };
            for (what, measure) in [
                ("operations a second", Measure::Iops),
                ("client, % of a processor", Measure::ClientCpuPercent),
                ("MiB/s", Measure::MibPerS),
                ("client, CPU seconds for a GiB", Measure::ClientCpuSecondsPerGib),
            ] {
                let loads = || loads(depth).filter(|load| load.is_write == is_write);
                let curve = |contender: Contender| Curve {
                    name: contender.name(),
                    values: loads().map(|load| value(rows, mtu, contender, &load, measure)).collect(),
                };
                panels.push(Panel {
                    title: format!("MTU {mtu}, {direction}: {what}"),
                    curves: Contender::ALL.map(curve).into(),
                });
            }
        }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::super::plan::SIZES;
    use super::*;
    use crate::load::Load;

    #[test]
    fn tables_and_curves_show_what_was_measured() {
        let load = Load::sequential(64 << 10, 8, false).name();
        let rows = [("iSCSI", 80.0), ("iSCSI digests", 50.0), ("iSER", 60.0)]
            .map(|(contender, iops)| Row::of_iops(contender, &load, &[iops]));
        let tables = all(&rows, 8);
        let lines: Vec<&str> = tables[0].1.lines().collect();
        assert_eq!(lines.len(), 2, "sizes that were not measured have no line: {lines:?}");
        let cells: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(cells, ["1500", "64K", "sequential", "read", "qd8", "80", "50", "60", "0.75", "1.20"]);
        let panels = panels(&rows, 8);
        assert_eq!(panels.len(), 8);
        let curve = &panels[0].curves[2];
        assert_eq!((curve.name, curve.values.len(), curve.values[7]), ("iSER", SIZES.len(), Some(60.0)));
        assert!(panels[4].curves.iter().all(|curve| curve.values.iter().all(Option::is_none)), "no writes");
    }
}
