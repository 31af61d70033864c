//! What the attachments of this host have told of themselves.

use serde_json::Value;

/// An attachment, as `sanwire status --json` shows it.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Attachment {
    pub(crate) url: String,
    /// The device, the file or the address at which it is used.
    pub(crate) place: String,
    pub(crate) state: String,
    pub(crate) away_seconds: Option<f64>,
    pub(crate) why: String,
    pub(crate) operations: f64,
    pub(crate) read_bytes: f64,
    pub(crate) written_bytes: f64,
    /// Operations that took no longer than each bound in seconds, by the order of the bounds.
    pub(crate) buckets: Vec<(f64, f64)>,
    pub(crate) paths: Vec<Path>,
}

/// A link of an attachment.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Path {
    pub(crate) peer: String,
    pub(crate) state: String,
    pub(crate) bytes_per_second: f64,
    pub(crate) packets: f64,
    pub(crate) resent: f64,
    pub(crate) timeouts: f64,
    pub(crate) round_trip_seconds: Option<f64>,
}

impl Attachment {
    /// Reads what was told; what it does not know is passed over, for the attachment may be of another version.
    #[must_use]
    pub fn of(told: &Value) -> Attachment {
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| told[key].as_f64().unwrap_or_default();
        let places = ["name", "device", "file", "nbd_url"];
        let array = |key: &str| told[key].as_array().map_or(&[][..], Vec::as_slice);
        let bucket = |pair: &Value| {
            let count = pair[1].as_f64()?;
            // The last one has no bound.
            Some((pair[0].as_f64().unwrap_or(f64::INFINITY), count))
        };
        Attachment {
            url: text("url"),
            place: places.iter().find_map(|key| told[*key].as_str()).unwrap_or_default().to_owned(),
            state: text("state"),
            away_seconds: told["away_seconds"].as_f64(),
            why: text("why"),
            operations: number("operations"),
            read_bytes: number("read_bytes"),
            written_bytes: number("written_bytes"),
            buckets: array("durations").iter().filter_map(bucket).collect(),
            paths: array("links").iter().map(Path::of).collect(),
        }
    }
}

impl Path {
    fn of(told: &Value) -> Path {
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| told[key].as_f64().unwrap_or_default();
        Path {
            peer: text("peer"),
            state: text("state"),
            bytes_per_second: number("bytes_per_second"),
            packets: number("sent_packets"),
            resent: number("resent_packets"),
            timeouts: number("timeouts"),
            round_trip_seconds: told["round_trip_us"].as_f64().map(|us| us / 1e6),
        }
    }
}
