//! The tables of each screen, made of what has changed between two samples.

use std::collections::BTreeMap;

use sanwire_server::{Event, SessionStatus};

use crate::attachments::{Attachment, Path};
use crate::numbers::{LinkNumbers, Sample, ShardNumbers, VolumeNumbers, WireNumbers, quantile};
use crate::table::{Cell, Column, Row, Table};

macro_rules! columns {
    ($($head:literal $key:literal),* $(,)?) => { &[$(Column { head: $head, key: $key }),*] };
}

const VOLUMES: &[Column] = columns![
    "VOLUME" "volume", "IOPS" "commands_per_second", "READ" "read_bytes_per_second", "WRITTEN" "written_bytes_per_second",
    "P50" "p50_seconds", "P99" "p99_seconds", "UNDER WAY" "in_flight_commands", "WAITING" "waiting_commands",
    "ERRORS/S" "errors_per_second", "CLIENTS" "clients", "SIZE" "size_bytes", "USED" "allocated_bytes",
];

const CLIENTS: &[Column] = columns![
    "CLIENT" "client", "IOPS" "commands_per_second", "READ" "read_bytes_per_second", "WRITTEN" "written_bytes_per_second",
    "ERRORS/S" "errors_per_second", "OVER" "wire", "FROM" "address", "LINKS" "links", "USES" "volumes", "SECURITY" "security",
    "SINCE" "since", "SESSION" "session", "STATE" "state",
];

const LINKS: &[Column] = columns![
    "LINK" "link", "STATE" "state", "IN" "received_bytes_per_second", "OUT" "sent_bytes_per_second",
    "PACKETS/S" "packets_per_second", "LOST/S" "lost_packets_per_second", "TIMEOUTS/S" "timeouts_per_second",
    "ROUND TRIP" "round_trip_seconds", "CONNECTIONS" "connections",
];

const SHARDS: &[Column] = columns![
    "SHARD" "shard", "BUSY" "busy", "SESSIONS" "sessions", "MEMORY USED" "memory_used_bytes", "FREE" "memory_free_bytes",
    "DROPPED/S" "dropped_per_second",
];

const ATTACHMENTS: &[Column] = columns![
    "ATTACHMENT" "url", "IOPS" "operations_per_second", "READ" "read_bytes_per_second", "WRITTEN" "written_bytes_per_second",
    "P50" "p50_seconds", "P99" "p99_seconds", "STATE" "state", "AWAY FOR" "away_seconds", "AS" "place", "WHY" "why",
];

const PATHS: &[Column] = columns![
    "LINK" "link", "STATE" "state", "RATE" "bytes_per_second", "PACKETS/S" "packets_per_second",
    "RESENT/S" "resent_packets_per_second", "TIMEOUTS/S" "timeouts_per_second", "ROUND TRIP" "round_trip_seconds",
];

const EVENTS: &[Column] = columns!["TIME" "time", "EVENT" "event"];

/// Two samples, the later one last.
#[derive(Clone, Copy)]
pub(crate) struct Between<'a> {
    pub(crate) before: &'a Sample,
    pub(crate) after: &'a Sample,
}

impl Between<'_> {
    /// What a counter has grown by in a second; one that has begun anew has grown by what it is.
    fn rate(self, before: f64, after: f64) -> f64 {
        let seconds = (self.after.at.saturating_sub(self.before.at)).as_secs_f64();
        let grown = if after < before { after } else { after - before };
        if seconds > 0.0 { grown / seconds } else { 0.0 }
    }

    pub(crate) fn volumes(self) -> Table {
        let none = VolumeNumbers::default();
        let row = |(name, now): (&String, &VolumeNumbers)| {
            let was = self.before.numbers.volumes.get(name).unwrap_or(&none);
            let time = |share| Cell::known(quantile(&was.buckets, &now.buckets, share), Cell::Seconds);
            Row(vec![
                Cell::Text(name.clone()),
                Cell::Count(self.rate(was.commands, now.commands)),
                Cell::BytesPerSecond(self.rate(was.read_bytes, now.read_bytes)),
                Cell::BytesPerSecond(self.rate(was.written_bytes, now.written_bytes)),
                time(0.5),
                time(0.99),
                Cell::Count(now.in_flight),
                Cell::Count(now.waiting),
                Cell::Count(self.rate(was.errors, now.errors)),
                Cell::Count(now.clients),
                Cell::Bytes(now.size_bytes),
                Cell::known(now.allocated_bytes, Cell::Bytes),
            ])
        };
        Table { columns: VOLUMES, rows: self.after.numbers.volumes.iter().map(row).collect() }
    }

    pub(crate) fn clients(self) -> Table {
        let before: BTreeMap<&str, &SessionStatus> =
            self.before.sessions.iter().map(|session| (&*session.id, session)).collect();
        let row = |session: &SessionStatus| {
            let rate = |count: fn(&SessionStatus) -> u64| {
                let was = before.get(&*session.id).map_or(0, |session| count(session));
                self.rate(was as f64, count(session) as f64)
            };
            let more = if session.volumes > session.volume_names.len() { ", ..." } else { "" };
            let state = match (session.paused, session.connections) {
                (true, _) => "paused",
                (false, 0) => "away",
                _ => "live",
            };
            Row(vec![
                Cell::Text(session.name.clone().unwrap_or_else(|| session.client.clone())),
                Cell::Count(rate(|session| session.commands)),
                Cell::BytesPerSecond(rate(|session| session.read_bytes)),
                Cell::BytesPerSecond(rate(|session| session.written_bytes)),
                Cell::Count(rate(|session| session.errors)),
                Cell::Text(session.spoken().to_owned()),
                Cell::Text(session.address.clone()),
                Cell::Count(session.connections as f64),
                Cell::Text(format!("{}{more}", session.volume_names.join(", "))),
                Cell::Text(session.security.clone()),
                Cell::Text(session.since.clone()),
                Cell::Text(session.id.clone()),
                Cell::Text(state.to_owned()),
            ])
        };
        Table { columns: CLIENTS, rows: self.after.sessions.iter().map(row).collect() }
    }

    /// The wires, and the connections of HyperSCSI clients.
    pub(crate) fn links(self) -> Table {
        let wires = self.after.numbers.wires.iter().map(|(name, now)| self.wire(name, now));
        let sessions = self.after.sessions.iter().filter_map(|session| {
            let now = self.after.numbers.links.get(&session.id)?;
            Some(self.link(session, now))
        });
        Table { columns: LINKS, rows: wires.chain(sessions).collect() }
    }

    fn wire(self, name: &str, now: &WireNumbers) -> Row {
        let none = WireNumbers::default();
        let was = self.before.numbers.wires.get(name).unwrap_or(&none);
        let state = now.is_up.map_or("listens", |is_up| if is_up > 0.0 { "up" } else { "away" });
        let of_packets = |was, now_counted| Cell::known(now.is_up.map(|_| self.rate(was, now_counted)), Cell::Count);
        Row(vec![
            Cell::Text(name.to_owned()),
            Cell::Text(state.to_owned()),
            Cell::BytesPerSecond(self.rate(was.received_bytes, now.received_bytes)),
            Cell::BytesPerSecond(self.rate(was.sent_bytes, now.sent_bytes)),
            of_packets(was.packets, now.packets),
            of_packets(was.dropped, now.dropped),
            Cell::Unknown,
            Cell::Unknown,
            Cell::known(now.connections, Cell::Count),
        ])
    }

    fn link(self, session: &SessionStatus, now: &LinkNumbers) -> Row {
        let none = LinkNumbers::default();
        let was = self.before.numbers.links.get(&session.id).unwrap_or(&none);
        let client = session.name.as_ref().unwrap_or(&session.client);
        let state = if session.connections == 0 { "away" } else { "live" };
        Row(vec![
            Cell::Text(format!("{client} at {}", session.address)),
            Cell::Text(state.to_owned()),
            Cell::Unknown,
            Cell::Unknown,
            Cell::Count(self.rate(was.packets, now.packets)),
            Cell::Count(self.rate(was.resent, now.resent)),
            Cell::Count(self.rate(was.timeouts, now.timeouts)),
            Cell::known(now.round_trip_seconds, Cell::Seconds),
            Cell::Count(session.connections as f64),
        ])
    }

    pub(crate) fn attachments(self) -> Table {
        let none = Attachment::default();
        let row = |now: &Attachment| {
            let was = self.attached_before(now).unwrap_or(&none);
            let time = |share| Cell::known(quantile(&was.buckets, &now.buckets, share), Cell::Seconds);
            Row(vec![
                Cell::Text(now.url.clone()),
                Cell::Count(self.rate(was.operations, now.operations)),
                Cell::BytesPerSecond(self.rate(was.read_bytes, now.read_bytes)),
                Cell::BytesPerSecond(self.rate(was.written_bytes, now.written_bytes)),
                time(0.5),
                time(0.99),
                Cell::Text(now.state.clone()),
                Cell::known(now.away_seconds, Cell::Seconds),
                Cell::Text(now.place.clone()),
                Cell::Text(now.why.clone()),
            ])
        };
        Table { columns: ATTACHMENTS, rows: self.after.attachments.iter().map(row).collect() }
    }

    fn attached_before(&self, now: &Attachment) -> Option<&Attachment> {
        self.before.attachments.iter().find(|was| (&was.url, &was.place) == (&now.url, &now.place))
    }

    pub(crate) fn paths(self) -> Table {
        let none = Path::default();
        let rows = self.after.attachments.iter().flat_map(|attachment| {
            let before = self.attached_before(attachment).map_or(&[][..], |was| &was.paths);
            attachment.paths.iter().map(move |now| (attachment, before, now))
        });
        let row = |(attachment, before, now): (&Attachment, &[Path], &Path)| {
            let was = before.iter().find(|was| was.peer == now.peer).unwrap_or(&none);
            Row(vec![
                Cell::Text(format!("{} at {}", attachment.url, now.peer)),
                Cell::Text(now.state.clone()),
                Cell::BytesPerSecond(now.bytes_per_second),
                Cell::Count(self.rate(was.packets, now.packets)),
                Cell::Count(self.rate(was.resent, now.resent)),
                Cell::Count(self.rate(was.timeouts, now.timeouts)),
                Cell::known(now.round_trip_seconds, Cell::Seconds),
            ])
        };
        Table { columns: PATHS, rows: rows.map(row).collect() }
    }

    pub(crate) fn shards(self) -> Table {
        let none = ShardNumbers::default();
        let row = |(name, now): (&String, &ShardNumbers)| {
            let was = self.before.numbers.shards.get(name).unwrap_or(&none);
            Row(vec![
                Cell::Text(name.clone()),
                Cell::Share(self.rate(was.busy_seconds, now.busy_seconds)),
                Cell::Count(now.sessions),
                Cell::Bytes(now.used_bytes),
                Cell::Bytes(now.free_bytes),
                Cell::Count(self.rate(was.dropped, now.dropped)),
            ])
        };
        Table { columns: SHARDS, rows: self.after.numbers.shards.iter().map(row).collect() }
    }
}

/// The newest first.
pub(crate) fn events<'a>(events: impl DoubleEndedIterator<Item = &'a Event>) -> Table {
    let row = |event: &Event| Row(vec![Cell::Text(event.time.clone()), Cell::Text(event.what.to_string())]);
    Table { columns: EVENTS, rows: events.rev().map(row).collect() }
}
