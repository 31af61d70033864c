//! What a part found, as text: tables, and how far the targets are reached.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::sample::{Measure, Row, Spread};

/// What came of one part of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The part's name: `iscsi`.
    pub(crate) part: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
    /// The rows as text.
    pub(crate) table: String,
    /// What else was measured; null when that is nothing.
    pub(crate) idle: Value,
    /// The table as a drawing, in SVG.
    pub(crate) picture: Option<String>,
}

impl Outcome {
    /// The block that `docs/benchmarks.md` shows.
    pub(crate) fn block(&self) -> String {
        let block = format!("{}\n{}", self.table, targets(&self.verdicts));
        format!("```text\n{}\n```\n", block.trim_end())
    }

    /// For the results file.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "part": self.part,
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            "idle": self.idle,
            "targets": self.verdicts.iter().map(Verdict::to_json).collect::<Vec<_>>(),
        })
    }
}

/// What contenders on one bed gave.
#[derive(Default)]
pub(crate) struct Section {
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
    /// Each with what it shows.
    pub(crate) tables: Vec<(&'static str, String)>,
}

impl Section {
    /// All of a part: the tables below each other.
    pub(crate) fn all(part: &'static str, sections: Vec<Section>) -> Outcome {
        let mut outcome = Outcome { part, ..Outcome::default() };
        let mut tables = vec![];
        // Of a section of which nothing was wanted there is nothing to tell.
        for section in sections.into_iter().filter(|it| !it.rows.is_empty() || !it.verdicts.is_empty()) {
            tables.extend(section.tables.into_iter().map(|(title, table)| format!("{title}\n{table}")));
            outcome.rows.extend(section.rows);
            outcome.verdicts.extend(section.verdicts);
        }
        outcome.table = tables.join("\n");
        outcome
    }
}

/// A target and what was measured of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    pub(crate) target: String,
    pub(crate) measured: f64,
    pub(crate) bound: f64,
    pub(crate) is_at_most: bool,
}

impl Verdict {
    pub(crate) fn at_least(target: String, measured: f64, bound: f64) -> Self {
        Verdict { target, measured, bound, is_at_most: false }
    }

    pub(crate) fn at_most(target: String, measured: f64, bound: f64) -> Self {
        Verdict { target, measured, bound, is_at_most: true }
    }

    pub(crate) fn is_met(&self) -> bool {
        if self.is_at_most { self.measured <= self.bound } else { self.measured >= self.bound }
    }

    fn to_json(&self) -> Value {
        json!({ "target": self.target, "measured": self.measured, "bound": self.bound, "is_met": self.is_met() })
    }
}

/// What a part has found that has no contenders, a line each.
#[derive(Default)]
pub(crate) struct Found {
    lines: Vec<[String; 2]>,
    verdicts: Vec<Verdict>,
    numbers: serde_json::Map<String, serde_json::Value>,
}

impl Found {
    /// Adds a line, which is said at once, and what the value may be at the most.
    pub(crate) fn add(&mut self, what: &str, value: f64, unit: &str, bound: Option<f64>) {
        println!("{what}: {value:.2} {unit}");
        self.lines.push([what.to_owned(), format!("{value:.2} {unit}")]);
        self.numbers.insert(what.to_owned(), json!({ "value": value, "unit": unit }));
        self.verdicts.extend(bound.map(|bound| Verdict::at_most(format!("{what}, {unit}"), value, bound)));
    }

    /// All of it below a title, and the numbers for the results file.
    pub(crate) fn section(self, title: &'static str) -> (Section, Value) {
        let Outcome { verdicts, table, idle, .. } = self.outcome("");
        (Section { rows: vec![], verdicts, tables: vec![(title, table)] }, idle)
    }

    /// All of it.
    pub(crate) fn outcome(self, part: &'static str) -> Outcome {
        let lines: Vec<Vec<String>> = self.lines.into_iter().map(Vec::from).collect();
        Outcome {
            part,
            verdicts: self.verdicts,
            table: align(&lines, 1),
            idle: self.numbers.into(),
            ..Outcome::default()
        }
    }
}

/// A column of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) measure: Measure,
    pub(crate) digits: usize,
    /// The smallest and the largest round too, or the one in the middle only.
    pub(crate) has_range: bool,
}

/// Those of several tables.
impl Column {
    pub(crate) const IOPS: Column = Column::ranged("IOPS med (min-max)", Measure::Iops, 0);
    pub(crate) const MIB_PER_S: Column = Column::plain("MiB/s", Measure::MibPerS, 0);
    pub(crate) const MIB_PER_S_RANGED: Column = Column::ranged("MiB/s med (min-max)", Measure::MibPerS, 0);
    pub(crate) const LATENCY_P50_US: Column = Column::plain("p50 us", Measure::LatencyP50Us, 1);
    pub(crate) const SERVER_US: Column = Column::plain("server us/IO", Measure::ServerCpuUs, 1);
    pub(crate) const SERVER_US_RANGED: Column = Column::ranged("server us/IO", Measure::ServerCpuUs, 2);
    pub(crate) const CLIENT_US: Column = Column::plain("client us", Measure::ClientCpuUs, 1);

    /// The round in the middle only.
    pub(crate) const fn plain(title: &'static str, measure: Measure, digits: usize) -> Column {
        Column { title, measure, digits, has_range: false }
    }

    /// The smallest and the largest round too.
    pub(crate) const fn ranged(title: &'static str, measure: Measure, digits: usize) -> Column {
        Column { title, measure, digits, has_range: true }
    }
}

/// The columns of rows that count operations.
pub(crate) const OPERATIONS: [Column; 5] =
    [Column::IOPS, Column::MIB_PER_S_RANGED, Column::LATENCY_P50_US, Column::SERVER_US_RANGED, Column::CLIENT_US];

/// The rows as text: contender, load, and these columns. With more than one MTU there is a column of that.
pub(crate) fn table(rows: &[Row], columns: &[Column]) -> String {
    let has_mtu = rows.iter().any(|row| Some(row.mtu_bytes) != rows.first().map(|first| first.mtu_bytes));
    let mut header = vec!["contender".to_owned(), "load".to_owned()];
    header.extend(columns.iter().map(|column| column.title.to_owned()));
    let mut lines = vec![header];
    for row in rows {
        let mut line = vec![row.contender.clone(), row.load.clone()];
        line.extend(columns.iter().map(|column| column.cell(row)));
        lines.push(line);
    }
    if has_mtu {
        let mtus = rows.iter().map(|row| row.mtu_bytes.to_string());
        for (line, mtu) in lines.iter_mut().zip(std::iter::once("MTU".to_owned()).chain(mtus)) {
            line.insert(0, mtu);
        }
    }
    align(&lines, if has_mtu { 3 } else { 2 })
}

impl Column {
    fn cell(&self, row: &Row) -> String {
        let Some(Spread { min, median, max }) = row.spread(self.measure) else { return String::new() };
        let digits = self.digits;
        if self.has_range {
            format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
        } else {
            format!("{median:.digits$}")
        }
    }
}

/// Cells below each other: the first `names` columns to the left, numbers to the right.
pub(crate) fn align(lines: &[Vec<String>], names: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < names { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

/// The targets as text.
fn targets(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let word = if verdict.is_met() { "met   " } else { "MISSED" };
        let sign = if verdict.is_at_most { "<=" } else { ">=" };
        let Verdict { target, measured, bound, .. } = verdict;
        let _ = writeln!(text, "{word}  {measured:>8.2} {sign} {bound:<7.2} {target}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_aligned_rows_and_what_was_missed() {
        let row = |mtu_bytes, iops: &[f64]| Row { mtu_bytes, ..Row::of_iops("HS/eth", "reads", iops) };
        let rows = vec![row(9000, &[10.0, 30.0, 20.0]), row(1500, &[5.0])];
        let verdicts = vec![Verdict::at_least("enough".into(), 0.5, 0.75)];
        let table = table(&rows, &OPERATIONS[..1]);
        let outcome = Outcome { part: "x", rows, verdicts, table, ..Outcome::default() };
        let lines: Vec<String> = outcome.block().lines().map(Into::into).collect();
        assert_eq!(
            lines,
            [
                "```text",
                "MTU   contender  load   IOPS med (min-max)",
                "9000  HS/eth     reads          20 (10-30)",
                "1500  HS/eth     reads             5 (5-5)",
                "",
                "MISSED      0.50 >= 0.75    enough",
                "```",
            ]
        );
    }
}
