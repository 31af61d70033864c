//! What a server has counted, read from its metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_server::{Event, SessionStatus};

use crate::attachments::Attachment;

/// What a server, or the attachments of a host, have said of themselves at one moment.
#[derive(Clone, Default, Debug)]
pub struct Sample {
    /// When, since whatever moment: only differences count.
    pub at: Duration,
    /// What the server has counted.
    pub numbers: Numbers,
    /// Its sessions.
    pub sessions: Vec<SessionStatus>,
    /// The events since the sample before.
    pub events: Vec<Event>,
    /// The attachments of this host.
    pub attachments: Vec<Attachment>,
}

/// What a server has counted until now.
#[derive(Clone, Default, Debug)]
pub struct Numbers {
    pub(crate) server: String,
    pub(crate) version: String,
    pub(crate) volumes: BTreeMap<String, VolumeNumbers>,
    pub(crate) wires: BTreeMap<String, WireNumbers>,
    pub(crate) shards: BTreeMap<String, ShardNumbers>,
    /// HyperSCSI sessions, by their numbers.
    pub(crate) links: BTreeMap<String, LinkNumbers>,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct VolumeNumbers {
    pub(crate) size_bytes: f64,
    pub(crate) allocated_bytes: Option<f64>,
    pub(crate) clients: f64,
    pub(crate) in_flight: f64,
    pub(crate) waiting: f64,
    pub(crate) commands: f64,
    pub(crate) read_bytes: f64,
    pub(crate) written_bytes: f64,
    pub(crate) errors: f64,
    /// Reads, writes and flushes that took no longer than each bound, by the order of the bounds.
    pub(crate) buckets: Vec<(f64, f64)>,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct WireNumbers {
    /// Nothing of what has no state of its own.
    pub(crate) is_up: Option<f64>,
    pub(crate) received_bytes: f64,
    pub(crate) sent_bytes: f64,
    pub(crate) packets: f64,
    pub(crate) dropped: f64,
    pub(crate) connections: Option<f64>,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct ShardNumbers {
    pub(crate) busy_seconds: f64,
    pub(crate) sessions: f64,
    pub(crate) used_bytes: f64,
    pub(crate) free_bytes: f64,
    pub(crate) dropped: f64,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct LinkNumbers {
    pub(crate) packets: f64,
    pub(crate) resent: f64,
    pub(crate) timeouts: f64,
    pub(crate) round_trip_seconds: Option<f64>,
}

/// A line of the text: its name, its labels, its value.
struct Line<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Line<'a>> {
        let (series, value) = line.strip_prefix("sanwire_")?.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let Some((name, labels)) = series.split_once('{') else {
            return Some(Line { name: series, labels: Vec::new(), value });
        };
        Some(Line { name, labels: labels_of(labels.strip_suffix('}')?)?, value })
    }

    fn label(&self, key: &str) -> &str {
        self.labels.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| value)
    }

    fn is_in(&self) -> bool {
        self.label("direction") == "in"
    }
}

fn labels_of(mut rest: &str) -> Option<Vec<(&str, String)>> {
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (key, quoted) = rest.split_once("=\"")?;
        let (mut value, mut letters) = (String::new(), quoted.char_indices());
        let end = loop {
            match letters.next()? {
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (at, '"') => break at,
                (_, letter) => value.push(letter),
            }
        };
        labels.push((key, value));
        rest = &quoted[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(labels)
}

impl Numbers {
    /// Reads the text of `sanwire ctl metrics`. What it does not know is passed over: the server may be newer.
    #[must_use]
    pub fn parse(text: &str) -> Numbers {
        let mut numbers = Numbers::default();
        text.lines().filter_map(Line::parse).for_each(|line| numbers.take(&line));
        numbers
    }

    fn take(&mut self, line: &Line<'_>) {
        match line.name.split('_').next() {
            Some("volume") => take_volume(self.volumes.entry(line.label("volume").to_owned()).or_default(), line),
            Some("wire") => take_wire(self.wires.entry(line.label("wire").to_owned()).or_default(), line),
            Some("shard" | "dropped") => {
                take_shard(self.shards.entry(line.label("shard").to_owned()).or_default(), line)
            }
            Some("session") if ["hyperscsi", "hdsp", "visa"].contains(&line.label("protocol")) => {
                take_link(self.links.entry(line.label("session").to_owned()).or_default(), line);
            }
            _ if line.name == "server_info" => line.label("name").clone_into(&mut self.server),
            _ if line.name == "build_info" => line.label("version").clone_into(&mut self.version),
            _ => {}
        }
    }
}

fn take_volume(volume: &mut VolumeNumbers, line: &Line<'_>) {
    let value = line.value;
    match line.name {
        "volume_size_bytes" => volume.size_bytes = value,
        "volume_allocated_bytes" => volume.allocated_bytes = Some(value),
        "volume_clients" => volume.clients = value,
        "volume_in_flight_commands" => volume.in_flight = value,
        "volume_waiting_commands" => volume.waiting = value,
        "volume_commands_total" => volume.commands += value,
        "volume_read_bytes_total" => volume.read_bytes = value,
        "volume_written_bytes_total" => volume.written_bytes = value,
        "volume_errors_total" => volume.errors += value,
        "volume_command_duration_seconds_bucket" => {
            let bound = line.label("le").replace("+Inf", "inf").parse().unwrap_or(f64::INFINITY);
            match volume.buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, count)) => *count += value,
                None => volume.buckets.push((bound, value)),
            }
        }
        _ => {}
    }
}

fn take_wire(wire: &mut WireNumbers, line: &Line<'_>) {
    match line.name {
        "wire_up" => wire.is_up = Some(line.value),
        "wire_bytes_total" if line.is_in() => wire.received_bytes = line.value,
        "wire_bytes_total" => wire.sent_bytes = line.value,
        "wire_packets_total" => wire.packets += line.value,
        "wire_kernel_dropped_packets_total" | "wire_unsent_packets_total" => wire.dropped += line.value,
        "wire_connections" => wire.connections = Some(line.value),
        _ => {}
    }
}

fn take_shard(shard: &mut ShardNumbers, line: &Line<'_>) {
    match (line.name, line.label("state")) {
        ("shard_busy_seconds_total", _) => shard.busy_seconds = line.value,
        ("shard_sessions", _) => shard.sessions += line.value,
        ("shard_memory_bytes", "used") => shard.used_bytes = line.value,
        ("shard_memory_bytes", _) => shard.free_bytes = line.value,
        ("dropped_total", _) => shard.dropped += line.value,
        _ => {}
    }
}

fn take_link(link: &mut LinkNumbers, line: &Line<'_>) {
    match line.name {
        "session_packets_total" => link.packets += line.value,
        "session_resent_packets_total" => link.resent = line.value,
        "session_timeouts_total" => link.timeouts = line.value,
        "session_round_trip_seconds" => link.round_trip_seconds = Some(line.value),
        _ => {}
    }
}

/// What `share` (of 1) of the commands between two samples took at the most, in seconds; `None` when there were none.
pub(crate) fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> Option<f64> {
    let counted = |buckets: &[(f64, f64)], bound| {
        buckets.iter().find(|(known, _)| *known == bound).map_or(0.0, |(_, count)| *count)
    };
    let grown: Vec<(f64, f64)> =
        after.iter().map(|(bound, count)| (*bound, (count - counted(before, *bound)).max(0.0))).collect();
    let wanted = grown.last().map(|(_, all)| all * share).filter(|wanted| *wanted > 0.0)?;
    let at = grown.iter().position(|(_, count)| *count >= wanted)?;
    let (low, fewer) = at.checked_sub(1).map_or((0.0, 0.0), |before| grown[before]);
    let (high, more) = grown[at];
    if high.is_infinite() { Some(low) } else { Some(low + (high - low) * (wanted - fewer) / (more - fewer)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_server_is_read_and_what_is_unknown_is_passed_over() {
        let text = "# HELP x y\nsanwire_server_info{name=\"box \\\"1\\\"\"} 1\nsanwire_volume_size_bytes{volume=\"a\"} 1024\n\
                    sanwire_volume_commands_total{volume=\"a\",operation=\"read\"} 3\nsanwire_volume_commands_total{volume=\"a\",operation=\"write\"} 4\n\
                    sanwire_volume_newer{volume=\"a\"} 4\nprocess_threads 7\nsanwire_wire_bytes_total{wire=\"w\",direction=\"in\"} 5\n\
                    sanwire_dropped_total{shard=\"0\",reason=\"a, b\"} 2\nsanwire_volume_command_duration_seconds_bucket{le=\"+Inf\",volume=\"a\"} 9\nrubbish{\n# EOF\n";
        let numbers = Numbers::parse(text);
        assert_eq!(numbers.server, "box \"1\"");
        let a = &numbers.volumes["a"];
        assert_eq!((a.size_bytes, a.commands, &a.buckets[..]), (1024.0, 7.0, &[(f64::INFINITY, 9.0)][..]));
        assert_eq!((numbers.wires["w"].received_bytes, numbers.shards["0"].dropped), (5.0, 2.0));
    }

    #[test]
    fn a_quantile_is_of_what_was_added_in_between() {
        let before = [(0.001, 100.0), (0.002, 100.0), (f64::INFINITY, 100.0)];
        let after = [(0.001, 100.0), (0.002, 200.0), (f64::INFINITY, 200.0)];
        assert_eq!(quantile(&before, &after, 0.5), Some(0.0015));
        assert_eq!(quantile(&after, &after, 0.5), None);
        assert_eq!(quantile(&[], &[(0.001, 0.0), (f64::INFINITY, 4.0)], 0.99), Some(0.001));
    }
}
