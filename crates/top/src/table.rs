//! Rows of numbers, for the screen and for programs.

use std::cmp::Ordering;
use std::time::Duration;

use sanwire_core::Size;
use serde_json::{Map, Value, json};

/// What stands in a place of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number of things.
    Count(f64),
    /// Bytes.
    Bytes(f64),
    /// Bytes in a second.
    BytesPerSecond(f64),
    /// A time in seconds.
    Seconds(f64),
    /// Of 1.
    Share(f64),
    /// Nothing is known.
    Unknown,
}

impl Cell {
    /// One that may not be known.
    pub(crate) fn known(value: Option<f64>, cell: impl FnOnce(f64) -> Cell) -> Cell {
        value.map_or(Cell::Unknown, cell)
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) if *count < 10.0 && count.fract() > 0.0 => format!("{count:.1}"),
            Cell::Count(count) => format!("{count:.0}"),
            Cell::Bytes(bytes) => Size(*bytes as u64).to_string(),
            Cell::BytesPerSecond(bytes) => format!("{}/s", Size(*bytes as u64)),
            Cell::Seconds(seconds) => format!("{:.1?}", Duration::from_secs_f64(seconds.max(0.0))),
            Cell::Share(share) => format!("{:.1} %", 100.0 * share),
            Cell::Unknown => "-".to_owned(),
        }
    }

    /// For programs: bytes and seconds.
    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => json!(text),
            Cell::Count(number)
            | Cell::Bytes(number)
            | Cell::BytesPerSecond(number)
            | Cell::Seconds(number)
            | Cell::Share(number) => json!(number),
            Cell::Unknown => Value::Null,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Cell::Text(_) | Cell::Unknown => None,
            Cell::Count(number)
            | Cell::Bytes(number)
            | Cell::BytesPerSecond(number)
            | Cell::Seconds(number)
            | Cell::Share(number) => Some(*number),
        }
    }

    /// Words by their letters, numbers from the highest on, what is not known last.
    pub(crate) fn order(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Text(one), Cell::Text(other)) => one.cmp(other),
            _ => {
                let number = |cell: &Cell| cell.number().unwrap_or(f64::NEG_INFINITY);
                number(other).total_cmp(&number(self))
            }
        }
    }
}

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// For people.
    pub head: &'static str,
    /// For programs.
    pub key: &'static str,
}

/// A row: as many cells as there are columns.
#[derive(Clone, PartialEq, Debug)]
pub struct Row(pub Vec<Cell>);

impl Row {
    /// By which it is known: its first cell.
    pub(crate) fn name(&self) -> String {
        self.0.first().map(Cell::text).unwrap_or_default()
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.0.iter().any(|cell| matches!(cell, Cell::Text(words) if words.contains(text)))
    }
}

/// A table.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Its columns.
    pub columns: &'static [Column],
    /// Its rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// For programs: an object for each row.
    #[must_use]
    pub fn json(&self) -> Value {
        let object = |row: &Row| {
            let fields = self.columns.iter().zip(&row.0).map(|(column, cell)| (column.key.to_owned(), cell.json()));
            Value::Object(fields.collect::<Map<_, _>>())
        };
        self.rows.iter().map(object).collect()
    }
}
