//! Families of samples as the text of OpenMetrics, and that text in items for pages.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};

/// Bits of an item's number below that of its family.
const PLACE_BITS: u32 = 46;

/// Of one name, all that was counted.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// What has the same place in another answer tells of the same thing.
    pub(super) samples: Vec<Placed>,
}

/// A sample, and its place in its family: that of a volume, a session, a shard. Several may have one.
pub(super) type Placed = (u64, Labels, Sample);

pub(super) type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
pub(super) enum Sample {
    Counter(u64),
    Gauge(u64),
    /// The sum in seconds, how many there were, and how many of them up to each bound, in seconds.
    Durations(f64, u64, Vec<(f64, u64)>),
}

#[derive(Debug)]
struct Metrics(Vec<Family>);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for Family { name, help, samples } in self.0.iter().filter(|family| !family.samples.is_empty()) {
            let metric_type = samples.first().map_or(MetricType::Unknown, |(_, _, sample)| sample.metric_type());
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for (_, labels, sample) in samples {
                if labels.is_empty() {
                    // There is one such sample at the most.
                    sample.encode(family)?;
                    break;
                }
                let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (*key, value.as_str())).collect();
                sample.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl EncodeMetric for Sample {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Sample::Counter(count) => encoder.encode_counter::<NoLabelSet, _, f64>(count, None),
            Sample::Gauge(value) => encoder.encode_gauge(value),
            Sample::Durations(sum, count, buckets) => {
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }
        }
    }

    fn metric_type(&self) -> MetricType {
        match self {
            Sample::Counter(_) => MetricType::Counter,
            Sample::Gauge(_) => MetricType::Gauge,
            Sample::Durations(..) => MetricType::Histogram,
        }
    }
}

impl Sample {
    /// How many lines of the text it takes.
    fn lines(&self) -> usize {
        match self {
            Sample::Counter(_) | Sample::Gauge(_) => 1,
            Sample::Durations(_, _, buckets) => buckets.len() + 2,
        }
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
    pub(super) fn of(mut families: Vec<Family>) -> Self {
        families.iter_mut().for_each(|family| family.samples.sort_by_key(|(place, ..)| *place));
        let mut items = Vec::new();
        for (family, Family { samples, .. }) in (0u64..).zip(&families) {
            if samples.is_empty() {
                continue;
            }
            let first = family << PLACE_BITS;
            // What it is and what it means.
            items.push((first, 2));
            items.extend(samples.iter().map(|(place, _, sample)| (first + 1 + place, sample.lines())));
        }
        let end = (families.len() as u64) << PLACE_BITS;
        let mut registry = Registry::with_prefix("sanwire");
        registry.register_collector(Box::new(Metrics(families)));
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &registry);
        let (mut lines, mut at) = (text.split_inclusive('\n'), 0);
        for (_, size) in &mut items {
            at += lines.by_ref().take(*size).map(str::len).sum::<usize>();
            *size = at;
        }
        items.push((end, text.len()));
        MetricsText { text, items }
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
