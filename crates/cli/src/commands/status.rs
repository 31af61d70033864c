//! `sanwire status`: how the attachments of this host are.

use std::thread;
use std::time::Duration;

use sanwire_attach::{NbdClients, Record, Registry};
use sanwire_core::{Durations, Size};
use sanwire_initiator::{ConnectionLook, OpDurations, VolumeLooker};
use serde_json::{Value, json};

use super::device;
use super::info::link_to_json;
use super::ls::attachment_json;
use crate::args::StatusArgs;
use crate::output;

/// How long an attachment has to tell how it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long its connection has to tell that.
pub(super) const CONNECTION_PATIENCE: Duration = Duration::from_secs(1);

/// What an attachment tells of itself.
pub(super) fn teller(
    connection: impl Fn() -> Option<ConnectionLook> + Send + 'static,
    volume: VolumeLooker,
    clients: Option<NbdClients>,
) -> impl Fn() -> Value + Send + 'static {
    move || {
        let ((counts, lost), look) = (volume.look(), connection());
        let away_for = look.as_ref().and_then(|look| look.away_for);
        let state = match (&lost, &look) {
            (Some(_), _) => "lost",
            (None, Some(look)) if look.is_failing => "failing",
            (None, Some(_)) if away_for.is_some() => "waiting",
            (None, Some(_)) => "live",
            (None, None) => "unknown",
        };
        json!({
            "state": state,
            "away_seconds": away_for.map(|time| time.as_secs_f64()),
            "why": lost.map(|error| error.to_string()),
            "links": look.iter().flat_map(|look| &look.links).map(link_to_json).collect::<Vec<_>>(),
            "operations": counts.operations,
            "read_bytes": counts.read_bytes,
            "written_bytes": counts.written_bytes,
            "durations": durations(&volume.durations()),
            "nbd_clients": clients.as_ref().map(NbdClients::count),
        })
    }
}

/// How many operations took less than each bound in seconds; the last one, with all of them, has none.
fn durations(of_classes: &OpDurations) -> Vec<(Option<f64>, u64)> {
    let mut all = Durations::default();
    of_classes.iter().for_each(|(_, durations)| all.add(durations));
    let bounded = all.up_to().map(|(bound_us, count)| (Some(bound_us as f64 / 1e6), count));
    bounded.chain([(None, all.count())]).collect()
}

/// What the attachments of this host tell of themselves now, for programs.
pub(super) fn of_this_host() -> anyhow::Result<Vec<Value>> {
    let records = Registry::open(device::helper)?.list()?;
    Ok(records.iter().map(|record| joined(record, told(record))).collect())
}

/// Shows how the attachments of this host are.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<()> {
    let records = Registry::open(device::helper)?.list()?;
    let look = || -> Vec<Value> { records.iter().map(told).collect() };
    let before = args.rate.map(|period| (period, look()));
    if let Some((period, _)) = &before {
        thread::sleep(*period);
    }
    let now = look();
    if args.json {
        let all: Vec<Value> = records.iter().zip(now).map(|(record, told)| joined(record, told)).collect();
        return Ok(output::print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?);
    }
    Ok(output::print(&table(&records, &now, before.as_ref().map(|(period, before)| (*period, &before[..]))))?)
}

/// What an attachment tells now; of one that does not answer, that.
fn told(record: &Record) -> Value {
    record.look(PATIENCE).unwrap_or_else(|| json!({ "state": "unknown" }))
}

/// An attachment for programs, with its state.
pub(super) fn joined(record: &Record, told: Value) -> Value {
    let mut all = attachment_json(record);
    if let (Value::Object(all), Value::Object(told)) = (&mut all, told) {
        all.extend(told);
    }
    all
}

/// Its state for people: `waiting 12 s`.
pub(super) fn state_of(told: &Value) -> String {
    let state = told["state"].as_str().unwrap_or("unknown");
    let away = told["away_seconds"].as_f64().map(|seconds| format!(" {seconds:.0} s"));
    format!("{state}{}", away.unwrap_or_default())
}

/// The state of an attachment for people.
pub(super) fn state(record: &Record) -> String {
    state_of(&told(record))
}

fn table(records: &[Record], now: &[Value], before: Option<(Duration, &[Value])>) -> String {
    let row = |at: usize| {
        let told = &now[at];
        let links = told["links"].as_array().map_or(&[][..], Vec::as_slice);
        let live = links.iter().filter(|link| link["state"] == "live").count();
        let links = if links.is_empty() { "-".to_owned() } else { format!("{live} of {} live", links.len()) };
        let amount = |key: &str| {
            let now = told[key].as_u64().unwrap_or_default();
            match before {
                None => now as f64,
                Some((period, before)) => {
                    let grown = now.saturating_sub(before[at][key].as_u64().unwrap_or_default());
                    grown as f64 / period.as_secs_f64()
                }
            }
        };
        let per_second = if before.is_some() { "/s" } else { "" };
        let bytes = |key| format!("{}{per_second}", Size(amount(key) as u64));
        [
            records[at].volume.clone(),
            state_of(told),
            links,
            format!("{:.0}{per_second}", amount("operations")),
            bytes("read_bytes"),
            bytes("written_bytes"),
            told["why"].as_str().unwrap_or_default().to_owned(),
        ]
    };
    let rows: Vec<_> = (0..records.len()).map(row).collect();
    output::table(["VOLUME", "STATE", "LINKS", "OPERATIONS", "READ", "WRITTEN", ""], &rows)
}

#[cfg(test)]
mod tests {
    use sanwire_attach::Kind;

    use super::*;

    #[test]
    fn people_see_for_how_long_a_server_is_away_and_what_is_done_in_a_second() {
        let kind = Kind::Nbd { socket: None, url: "nbd://x".into() };
        let record = Record {
            pid: 7,
            pid_started: 1,
            volume: "hs+ip://box/disk".into(),
            name: None,
            identity: None,
            kind,
            status: None,
            control: None,
        };
        let told = |operations: u64| {
            json!({
                "state": "waiting", "away_seconds": 12.3, "links": [{"state": "live"}, {"state": "silent"}],
                "operations": operations, "read_bytes": operations << 20, "written_bytes": 0,
            })
        };
        let records = [record];
        let shown = table(&records, &[told(30)], Some((Duration::from_secs(2), &[told(10)])));
        assert!(shown.contains("hs+ip://box/disk  waiting 12 s  1 of 2 live  10/s        10 MiB/s  0 B/s"), "{shown}");
        let all = joined(&records[0], told(1));
        assert_eq!(
            (&all["url"], &all["away_seconds"], &all["pid"]),
            (&"hs+ip://box/disk".into(), &12.3.into(), &7.into())
        );
        assert!(table(&records, &[json!({ "state": "unknown" })], None).contains("unknown"));
    }
}
