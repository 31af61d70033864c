//! What was counted, as tables for people.

use sanwire_core::Size;
use sanwire_server::{
    ConnectionStatistics, DataStatistics, QuotaStatistics, RdmaStatistics, RemoteStatistics, Statistics,
    VolumeStatistics,
};

use super::sessions::named;
use crate::output;

pub(super) fn show_statistics(statistics: &Statistics, is_wide: bool) -> String {
    let dropped: Vec<_> =
        statistics.dropped.iter().map(|(reason, count)| [reason_in_words(reason), count.to_string()]).collect();
    format!(
        "{}\n{}{}\n{}\n{}{}\n{}",
        show_volumes(&statistics.volumes, is_wide),
        show_stores(&statistics.volumes),
        show_connections(&statistics.connections, is_wide),
        show_packets(&statistics.connections, is_wide),
        show_rdma(&statistics.connections, is_wide),
        output::table(["DROPPED BECAUSE", "PACKETS"], &dropped),
        show_quotas(&statistics.quotas)
    )
}

/// What a key of the reasons says.
fn reason_in_words(key: &str) -> String {
    // Keys stay as they are: programs rely on them.
    if key == "guarded_too_little" { "protected too little".into() } else { key.replace('_', " ") }
}

fn show_volumes(volumes: &[VolumeStatistics], is_wide: bool) -> String {
    let row = |volume: &VolumeStatistics| {
        let us = |time_us: u64| format!("{time_us} us");
        let wide = |time_us: u64| if is_wide { us(time_us) } else { String::new() };
        [
            volume.name.clone(),
            volume.commands.to_string(),
            Size(volume.read_bytes).to_string(),
            Size(volume.written_bytes).to_string(),
            volume.errors.to_string(),
            wide(volume.latency_mean_us),
            us(volume.latency_median_us),
            us(volume.latency_p99_us),
            wide(volume.latency_max_us),
        ]
    };
    let head = ["VOLUME", "COMMANDS", "READ", "WRITTEN", "ERRORS", "MEAN", "MEDIAN", "P99", "MAX"];
    output::narrow_table(head, &volumes.iter().map(row).collect::<Vec<_>>())
}

/// The stores that have failed, and those that are elsewhere; nothing when there is none.
fn show_stores(volumes: &[VolumeStatistics]) -> String {
    let row = |volume: &VolumeStatistics| {
        let VolumeStatistics { name, store_errors, remote, .. } = volume;
        let errors: Vec<_> = store_errors.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let errors = if errors.is_empty() { "-".into() } else { errors.join(", ") };
        let of_remote = |value: fn(&RemoteStatistics) -> String| remote.as_ref().map_or("-".into(), value);
        let is_worth_a_row = !store_errors.is_empty() || remote.is_some();
        is_worth_a_row.then(|| {
            [
                name.clone(),
                of_remote(|remote| if remote.reachable { "there" } else { "gone" }.into()),
                of_remote(|remote| remote.times_gone.to_string()),
                of_remote(|remote| remote.reconnects.to_string()),
                of_remote(|remote| remote.requests.to_string()),
                errors,
            ]
        })
    };
    let rows: Vec<_> = volumes.iter().filter_map(row).collect();
    let head = ["STORE OF", "IS", "TIMES GONE", "RECONNECTED", "UNDER WAY", "ERRORS"];
    if rows.is_empty() { String::new() } else { output::table(head, &rows) + "\n" }
}

/// What commands of connections came to, over whichever wire.
fn show_connections(connections: &[ConnectionStatistics], is_wide: bool) -> String {
    let row = |connection: &ConnectionStatistics| {
        [
            named(&connection.client, is_wide),
            connection.address.clone(),
            // People know iSCSI by RDMA by another name.
            if rdma_of(connection).is_some() { "iser".to_owned() } else { connection.wire.clone() },
            connection.commands.to_string(),
            Size(connection.read_bytes).to_string(),
            Size(connection.written_bytes).to_string(),
            connection.errors.to_string(),
        ]
    };
    let head = ["CLIENT", "FROM", "OVER", "COMMANDS", "READ", "WRITTEN", "ERRORS"];
    output::table(head, &connections.iter().map(row).collect::<Vec<_>>())
}

/// How the packets of connections are doing, where there are any.
fn show_packets(connections: &[ConnectionStatistics], is_wide: bool) -> String {
    let row = |connection: &ConnectionStatistics| {
        let wide = |count: String| if is_wide { count } else { String::new() };
        [
            named(&connection.client, is_wide),
            wide(connection.address.clone()),
            connection.sent_packets.to_string(),
            connection.received_packets.to_string(),
            connection.resent_packets.to_string(),
            connection.timeouts.to_string(),
            wide(connection.window_out_packets.to_string()),
            wide(connection.window_in_packets.to_string()),
            connection.round_trip_us.map_or_else(|| "not yet".into(), |time_us| format!("{time_us} us")),
        ]
    };
    let rows: Vec<_> = connections.iter().filter(|connection| connection.sent_packets > 0).map(row).collect();
    let head =
        ["CLIENT", "FROM", "SENT", "RECEIVED", "SENT AGAIN", "TIMEOUTS", "WINDOW OUT", "WINDOW IN", "ROUND TRIP"];
    output::narrow_table(head, &rows)
}

/// How the data of an iSER session has come.
fn rdma_of(connection: &ConnectionStatistics) -> Option<(&DataStatistics, &RdmaStatistics)> {
    connection.data.as_ref().and_then(|data| Some((data, data.rdma.as_ref()?)))
}

/// A table of how data was transferred by RDMA, a row for each connection; empty when no connection uses RDMA.
fn show_rdma(connections: &[ConnectionStatistics], is_wide: bool) -> String {
    let row = |connection: &ConnectionStatistics| {
        let (data, rdma) = rdma_of(connection)?;
        Some([
            named(&connection.client, is_wide),
            Size(data.placed_bytes).to_string(),
            Size(data.direct_bytes).to_string(),
            Size(data.copied_bytes).to_string(),
            rdma.stags.to_string(),
            rdma.stags_ever.to_string(),
            rdma.credits.to_string(),
            rdma.adapter.clone().unwrap_or_else(|| "TCP".to_owned()),
            if rdma.adapter.is_some() { "-".to_owned() } else { rdma.fpdu_max_bytes.to_string() },
            rdma.segment_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        ])
    };
    let rows: Vec<_> = connections.iter().filter_map(row).collect();
    let head = [
        "BY RDMA",
        "DATA CAME",
        "IN PLACE",
        "COPIED",
        "STAGS",
        "IN ALL",
        "CREDITS",
        "PATH",
        "FPDU BYTES",
        "MSS OR MTU",
    ];
    if rows.is_empty() { String::new() } else { output::table(head, &rows) + "\n" }
}

fn show_quotas(quotas: &[QuotaStatistics]) -> String {
    let rows: Vec<_> = quotas
        .iter()
        .map(|quota| {
            let amount = |amount: u64| match &quota.unit[..] {
                "bytes" => Size(amount).to_string(),
                "per second" => format!("{amount}/s"),
                "per minute" => format!("{amount}/min"),
                "per day" => format!("{amount}/day"),
                "percent" => format!("{amount} %"),
                _ => amount.to_string(),
            };
            let most = quota.most.map_or_else(|| "-".to_owned(), amount);
            [quota.holder.clone(), quota.name.clone(), amount(quota.limit), most, quota.refused.to_string()]
        })
        .collect();
    output::table(["EACH", "MAY HOLD OR DO", "AT MOST", "MOST SO FAR", "REFUSED"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(rdma: Option<RdmaStatistics>) -> ConnectionStatistics {
        let data = DataStatistics { placed_bytes: 3 << 20, direct_bytes: 2 << 20, copied_bytes: 1 << 20, rdma };
        let known = serde_json::json!({
            "wire": "iscsi", "client": "iqn.x:host", "address": "10.0.0.2:1", "shard": 0, "sent_packets": 0, "received_packets": 0,
            "resent_packets": 0, "timeouts": 0, "window_out_packets": 0, "window_in_packets": 0, "data": data,
        });
        serde_json::from_value(known).expect("a connection")
    }

    #[test]
    fn sessions_of_iser_have_its_name_and_a_table_of_what_there_is_of_rdma() {
        let rdma = RdmaStatistics {
            stags: 2,
            stags_ever: 9,
            credits: 96,
            fpdu_max_bytes: 0,
            segment_bytes: Some(1024),
            adapter: None,
        };
        let adapter = Some("rxe0 (RoCE)".to_owned());
        let by_adapter = connection(Some(RdmaStatistics { adapter, ..rdma.clone() }));
        let over_tcp = connection(Some(RdmaStatistics { fpdu_max_bytes: 65_544, segment_bytes: Some(1448), ..rdma }));
        let plain = connection(None);
        let shown = show_connections(&[by_adapter.clone(), plain.clone()], false);
        let over: Vec<&str> = shown.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)).collect();
        assert_eq!(over, ["iser", "iscsi"], "{shown}");
        let shown = show_rdma(&[by_adapter, over_tcp, plain.clone()], false);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].ends_with("CREDITS  PATH         FPDU BYTES  MSS OR MTU"), "{shown}");
        assert!(lines[1].ends_with("2      9       96       rxe0 (RoCE)  -           1024"), "{shown}");
        assert!(lines[2].ends_with("TCP          65544       1448") && lines[3..] == [""], "{shown}");
        assert_eq!(show_rdma(&[plain], false), "");
    }
}
