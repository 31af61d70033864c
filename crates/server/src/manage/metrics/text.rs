//! Families of samples as the text of OpenMetrics, and that text in items for pages.

use std::fmt::{self, Write};
use std::rc::Rc;

use sanwire_core::Durations;
use serde::{Deserialize, Serialize};

/// Bits of an item's number below that of its family.
const PLACE_BITS: u32 = 46;

/// Of one name, all that was counted.
#[derive(Debug)]
pub(super) struct Family {
    /// With its prefix.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// What has the same place in another answer tells of the same thing.
    pub(super) samples: Vec<Placed>,
}

/// A sample, and its place in its family: that of a volume, a session, a shard. Several may have one.
pub(super) type Placed = (u64, Labels, Sample);

/// Labels as they stand between the braces. Families of the same things share them.
#[derive(Clone, Debug)]
pub(super) struct Labels(Rc<str>);

impl Labels {
    pub(super) fn none() -> Labels {
        Labels(Rc::from(""))
    }

    pub(super) fn of<const N: usize>(labels: [(&str, &str); N]) -> Labels {
        let mut text = String::new();
        labels.iter().for_each(|(key, value)| add_label(&mut text, key, value));
        Labels(text.into())
    }

    /// These, and a direction, if there is one.
    pub(super) fn directed(&self, direction: Option<&str>) -> Labels {
        direction.map_or_else(|| self.clone(), |direction| self.with("direction", direction))
    }

    /// These and one more.
    pub(super) fn with(&self, key: &str, value: &str) -> Labels {
        let mut text = String::with_capacity(self.0.len() + key.len() + value.len() + 4);
        text.push_str(&self.0);
        add_label(&mut text, key, value);
        Labels(text.into())
    }
}

fn add_label(text: &mut String, key: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(key);
    text.push_str("=\"");
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text.push('"');
}

#[derive(Clone, Debug)]
pub(super) enum Sample {
    Counter(u64),
    Gauge(u64),
    /// A counter of seconds.
    Seconds(f64),
    /// Seconds that also become less.
    SecondsNow(f64),
    Durations(Box<Durations>),
}

impl Sample {
    fn kind(&self) -> &'static str {
        match self {
            Sample::Counter(_) | Sample::Seconds(_) => "counter",
            Sample::Gauge(_) | Sample::SecondsNow(_) => "gauge",
            Sample::Durations(_) => "histogram",
        }
    }

    fn write(&self, text: &mut String, name: &str, Labels(labels): &Labels) -> fmt::Result {
        let labels = Braced(labels);
        match self {
            Sample::Counter(count) => writeln!(text, "{name}_total{labels} {count}"),
            Sample::Seconds(seconds) => writeln!(text, "{name}_total{labels} {seconds}"),
            Sample::Gauge(value) => writeln!(text, "{name}{labels} {value}"),
            Sample::SecondsNow(seconds) => writeln!(text, "{name}{labels} {seconds}"),
            Sample::Durations(durations) => durations.write_histogram(text, name, labels.0),
        }
    }
}

/// Labels with their braces, if there are any.
#[derive(Clone, Copy)]
struct Braced<'a>(&'a str);

impl fmt::Display for Braced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{{{}}}", self.0) }
    }
}

/// Metrics as text, in items. Pages of different answers belong together, whatever has come or gone between them: an item has the same
/// number in each answer that has it.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct MetricsText {
    text: String,
    /// The number of each item, ascending, and where it ends in the text.
    items: Vec<(u64, usize)>,
}

impl MetricsText {
    /// The text of these families, and of others that are text already.
    pub(super) fn of(families: Vec<Family>, parts: &[String]) -> Self {
        let samples: usize = families.iter().map(|family| family.samples.len()).sum();
        let mut all =
            MetricsText { text: String::with_capacity(96 * samples), items: Vec::with_capacity(samples + 64) };
        let end = ((families.len() + parts.len()) as u64) << PLACE_BITS;
        let parts_first = families.len() as u64;
        for (family, Family { name, help, mut samples }) in (0u64..).zip(families) {
            samples.sort_by_key(|(place, ..)| *place);
            let Some((_, _, first)) = samples.first() else { continue };
            // Writing into a string does not fail.
            let _ = write!(all.text, "# HELP {name} {help}.\n# TYPE {name} {}\n", first.kind());
            all.end_item(family << PLACE_BITS);
            for (place, labels, sample) in &samples {
                let _ = sample.write(&mut all.text, name, labels);
                all.end_item((family << PLACE_BITS) + 1 + place);
            }
        }
        for (part, text) in (parts_first..).zip(parts) {
            all.text.push_str(text);
            all.end_item(part << PLACE_BITS);
        }
        all.text.push_str("# EOF\n");
        all.end_item(end);
        all
    }

    fn end_item(&mut self, number: u64) {
        self.items.push((number, self.text.len()));
    }

    #[cfg(test)]
    pub(in crate::manage) fn with(items: impl Iterator<Item = (u64, String)>) -> Self {
        let mut all = MetricsText::default();
        for (number, item) in items {
            all.text.push_str(&item);
            all.items.push((number, all.text.len()));
        }
        all
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The items, each with its number.
    pub(in crate::manage) fn items(&self) -> impl Iterator<Item = (u64, &str)> {
        let starts = [0].into_iter().chain(self.items.iter().map(|(_, end)| *end));
        starts.zip(&self.items).map(|(start, (number, end))| (*number, &self.text[start..*end]))
    }

    /// Keeps the items up to this number of those from another one on.
    pub(in crate::manage) fn keep(&mut self, from: u64, end: u64) {
        let (mut text, mut items) = (String::new(), Vec::new());
        for (number, item) in self.items().filter(|(number, _)| (from..end).contains(number)) {
            text.push_str(item);
            items.push((number, text.len()));
        }
        *self = MetricsText { text, items };
    }

    /// Takes in what follows.
    pub(in crate::manage) fn append(&mut self, next: MetricsText) {
        let start = self.text.len();
        self.text.push_str(&next.text);
        self.items.extend(next.items.into_iter().map(|(number, end)| (number, start + end)));
    }
}

impl PartialEq for MetricsText {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for MetricsText {}

impl From<String> for MetricsText {
    fn from(text: String) -> Self {
        let end = text.len();
        MetricsText { text, items: vec![(0, end)] }
    }
}

impl From<MetricsText> for String {
    fn from(metrics: MetricsText) -> Self {
        metrics.text
    }
}
