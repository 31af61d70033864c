use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sanwire_core::{Instant, Movement, NexusId, Rdma};
use sanwire_engine::{Meter, NexusCount, VolumeCount, VolumeCounters};
use sanwire_scsi::{Cdb, Reply, Task, operation_code};

use super::super::testing::{any_port, config};
use super::super::{Answer, Request};
use super::wires::portals;
use super::*;
use crate::channel::PortalPath;
use crate::config::ServerConfig;
use crate::counting::{ConnectionCount, PacketCount, User, Uses};
use crate::front::TallyFamily;
use crate::past_uses::Host;
use crate::streams::{ByteCount, PortalCount};
use crate::wire::Wire;

fn start(mut config: ServerConfig) -> Manager {
    config.name = "box \"1\"\n\\".into();
    Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap()
}

#[test]
fn every_layer_is_in_the_text_that_prometheus_reads() {
    let mut config = config(&["a=ram:1M", "b=ram:2M"]);
    config.wires.push(any_port("iscsi:0.0.0.0:1".parse().unwrap()));
    let mut manager = start(config);
    let Ok(Answer::Metrics(metrics)) = manager.execute(Request::Metrics) else { panic!("the metrics") };
    let text = metrics.as_str();
    let [wire, portal] = manager.target().wires() else { panic!("two wires") };
    for line in [
        "sanwire_server_info{name=\"box \\\"1\\\"\\n\\\\\"} 1",
        "# TYPE sanwire_volume_size_bytes gauge",
        "sanwire_volume_size_bytes{volume=\"b\"} 2097152",
        "# TYPE sanwire_volume_commands counter",
        "sanwire_volume_commands_total{volume=\"a\",operation=\"read\"} 0",
        "sanwire_volume_allocated_bytes{volume=\"a\"} 0",
        "sanwire_volume_clients{volume=\"a\"} 0",
        "sanwire_volume_stall_seconds_total{volume=\"a\"} 0",
        "sanwire_audit_write_errors_total 0",
        "# TYPE process_cpu_seconds counter",
        &format!("sanwire_wire_up{{wire=\"{wire}\"}} 1"),
        &format!("sanwire_wire_packets_total{{wire=\"{wire}\",direction=\"in\"}} 0"),
        &format!("sanwire_wire_connections{{wire=\"{portal}\"}} 0"),
        &format!("sanwire_wire_connections{{wire=\"{wire}\"}} 0"),
        &format!("sanwire_wire_up{{wire=\"{portal}\"}} 1"),
        &format!("sanwire_wire_bytes_total{{wire=\"{portal}\",direction=\"in\"}} 0"),
        &format!("sanwire_wire_kernel_dropped_packets_total{{wire=\"{wire}\"}} 0"),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    let begins = |begin: &str| text.lines().any(|line| line.starts_with(begin));
    for begin in [
        "sanwire_quota_refused_total{holder=",
        "sanwire_shard_busy_seconds_total{shard=\"0\"} 0.",
        "sanwire_shard_memory_bytes{shard=\"0\",state=\"free\"} ",
        "process_resident_memory_bytes ",
        "process_max_fds ",
        // Of a build that nobody has told it, `unknown`.
        concat!("sanwire_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",commit=\""),
    ] {
        assert!(begins(begin), "{begin}\n{text}");
    }
    let uuid = format!("{:032x}", u128::from_be_bytes(manager.find("a").unwrap().1.identity().uuid()));
    let info = format!("volume=\"a\",uuid=\"{uuid}\",store=\"ram:1M\",security=\"none\",block=\"512\"");
    assert!(begins(&format!("sanwire_volume_info{{{info}}} 1")), "{info}\n{text}");
    manager.into_target().stop().unwrap();
}

/// What the page says stands there, and what stands there it says: but for what other parts of the program add.
#[test]
fn the_page_names_every_metric() {
    let mut config = config(&["a=ram:1M"]);
    config.wires.push(any_port("iscsi:127.0.0.1:1".parse().unwrap()));
    config.metrics_of_clients = true;
    let manager = start(config);
    let families = manager.families(&manager.target().count(), &PoolsNow::default());
    let told: BTreeSet<&str> = families.iter().map(|family| family.name.trim_start_matches("sanwire_")).collect();
    let page = include_str!("../../../../../docs/output.md");
    let (_, page) = page.split_once("## Metrics").unwrap();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let named: BTreeSet<&str> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| name.strip_suffix("_total").unwrap_or(name))
        .filter(|name| {
            let of_others = ["http_", "attachment_", "rdma_"];
            !name.contains(' ') && !of_others.iter().any(|begin| name.starts_with(begin))
        })
        .collect();
    assert_eq!(named.difference(&told).collect::<Vec<_>>(), Vec::<&&str>::new(), "only in docs/output.md");
    assert_eq!(told.difference(&named).collect::<Vec<_>>(), Vec::<&&str>::new(), "not in docs/output.md");
    manager.into_target().stop().unwrap();
}

fn counted(shard: usize, volumes: Vec<(u16, VolumeCount)>) -> Counted {
    Counted {
        shard,
        volumes,
        in_flight: BTreeMap::new(),
        busy: Duration::ZERO,
        memory_bytes: (0, 0),
        connections: Vec::new(),
        sessions: Vec::new(),
        links: Vec::new(),
        users: Vec::new(),
        tallies: Vec::new(),
        dropped: vec![("too old", 1), ("unknown", 2), ("too old", 3)],
        quotas: Vec::new(),
        wires: Vec::new(),
        portals: Vec::new(),
    }
}

static TALLIED: TallyFamily = TallyFamily { name: "sanwire_protocol_things", help: "Things", label: "sort" };

#[test]
fn a_portal_of_all_addresses_has_the_connections_of_its_own_family() {
    let wires = ["iscsi:[::]:3260", "iscsi:0.0.0.0:3260"].map(|wire| wire.parse::<Wire>().unwrap());
    let at = |local: &str, connections| {
        let count = PortalCount { connections, ..PortalCount::default() };
        ((local.parse().unwrap(), PortalPath::Tcp), count)
    };
    let counts = vec![at("192.0.2.1:3260", 1), at("[2001:db8::1]:3260", 2), at("[::ffff:192.0.2.2]:3260", 4)];
    let of_all = [Counted { portals: counts, ..counted(0, Vec::new()) }];
    let served = portals(&of_all, &wires);
    assert_eq!(wires.map(|wire| served[&wire.to_string()].connections), [2, 5]);
}

/// Adapters have other ports than TCP.
#[test]
fn a_portal_by_adapters_at_the_address_and_port_of_one_by_tcp_has_its_own_connections() {
    let wires = ["iser:10.0.0.1", "iser:10.0.0.1,path=rdma"].map(|wire| wire.parse::<Wire>().unwrap());
    let at = |path, connections| {
        let count = PortalCount { connections, ..PortalCount::default() };
        (("10.0.0.1:3260".parse().unwrap(), path), count)
    };
    let of_all = [Counted { portals: vec![at(PortalPath::Rdma, 1), at(PortalPath::Tcp, 2)], ..counted(0, Vec::new()) }];
    let served = portals(&of_all, &wires);
    assert_eq!(wires.map(|wire| served[&wire.to_string()].connections), [2, 1]);
}

/// Two wires that do not take things for the same reason, several shards, and volumes that were used.
#[test]
fn the_text_keeps_to_the_rules_of_openmetrics() {
    let mut config = config(&["a=ram:1M", "b=ram:2M"]);
    config.wires.push(any_port("iscsi:127.0.0.1:1".parse().unwrap()));
    config.shards = 2;
    let mut manager = start(config);
    let Ok(Answer::Metrics(metrics)) = manager.execute(Request::Metrics) else { panic!("the metrics") };
    let text = metrics.as_str();
    check(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (slot, sum) = reads(&manager, "b", &[0, 6, 40]);
    let portal = manager.target().wires()[1].portal().unwrap().0;
    let movement = Movement { rdma: Some(Rdma { stags: 6, credits: 700, ..Rdma::default() }), ..Movement::default() };
    let connection = |nexus, packets: Option<PacketCount>| ConnectionCount {
        nexus: NexusId(nexus),
        wire: if packets.is_some() { "hyperscsi" } else { "iscsi" },
        principal: "iqn.x:\"host\"".into(),
        address: "here".into(),
        links: 1,
        security: "none".into(),
        login: None,
        commands: NexusCount { commands: 5, ..NexusCount::default() },
        bytes: ByteCount { received: 70, sent: 80 },
        movement: packets.is_none().then_some(movement),
        packets,
    };
    let count = |shard: usize, volumes| {
        let packets = PacketCount { sent: 9, ..PacketCount::default() };
        let number = 0x10 + 2 * shard as u64;
        let connections = vec![connection(number, None), connection(number + 1, Some(packets))];
        let at = PortalCount { connections: 1, bytes: ByteCount { received: 70, sent: 80 } };
        let (in_flight, users) = (BTreeMap::from([(slot, 3)]), vec![user("one", slot), user("two", slot)]);
        let tallies = vec![(&TALLIED, "a".to_owned(), 3), (&TALLIED, "b".to_owned(), 4)];
        Counted {
            tallies,
            in_flight,
            users,
            connections,
            portals: vec![((portal, PortalPath::Tcp), at)],
            ..counted(shard, volumes)
        }
    };
    manager.requests.add_part(Box::new(|| "# HELP x_y z.\n# TYPE x_y gauge\nx_y 1\n".to_owned()));
    let metrics =
        manager.metrics(&[count(0, vec![(slot, sum.clone())]), count(1, vec![(slot, sum)])], &PoolsNow::default());
    let text = metrics.as_str();
    check(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    check_items(&metrics);
    for line in [
        "sanwire_volume_command_duration_seconds_bucket{le=\"0.000016\",volume=\"b\",operation=\"read\"} 4",
        "sanwire_volume_command_duration_seconds_bucket{le=\"4.194304\",volume=\"b\",operation=\"read\"} 6",
        "sanwire_volume_command_duration_seconds_sum{volume=\"b\",operation=\"read\"} 0.000092",
        "sanwire_volume_clients{volume=\"b\"} 2",
        "sanwire_volume_in_flight_commands{volume=\"b\"} 6",
        "x_y 1",
        "sanwire_protocol_things_total{sort=\"a\"} 6",
        &format!("sanwire_wire_bytes_total{{wire=\"{}\",direction=\"out\"}} 160", manager.target().wires()[1]),
        &format!("sanwire_wire_connections{{wire=\"{}\"}} 2", manager.target().wires()[1]),
        "sanwire_session_bytes_total{session=\"12\",protocol=\"iscsi\",client=\"iqn.x:\\\"host\\\"\",direction=\"in\"} 70",
        "sanwire_session_packets_total{session=\"11\",protocol=\"hyperscsi\",client=\"iqn.x:\\\"host\\\"\",direction=\"out\"} 9",
        "sanwire_session_commands_total{session=\"13\",protocol=\"hyperscsi\",client=\"iqn.x:\\\"host\\\"\"} 5",
        "sanwire_session_memory_keys{session=\"12\",protocol=\"iscsi\",client=\"iqn.x:\\\"host\\\"\"} 6",
        "sanwire_session_credits{session=\"12\",protocol=\"iscsi\",client=\"iqn.x:\\\"host\\\"\"} 700",
        "sanwire_dropped_total{shard=\"1\",reason=\"too_old\"} 4",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    manager.into_target().stop().unwrap();
}

/// What was counted of reads of a volume that took so long, in microseconds, with its slot.
fn reads(manager: &Manager, volume: &str, durations_us: &[u64]) -> (u16, VolumeCount) {
    let (lun, unit) = manager.find(volume).unwrap();
    let task = Task {
        lun: Some(lun),
        cdb: Cdb::from([operation_code::READ_10, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
        data_out: None,
        tells_residual: false,
        data_in_max_bytes: 512,
        may_share: true,
        piece: None,
        receipts: 0,
    };
    let meter = Meter::start(manager.target().units(), &task, Instant::ZERO);
    let mut counters = VolumeCounters::default();
    for us in durations_us {
        counters.note(&meter, Some(&Reply::good(None)), Instant::ZERO + Duration::from_micros(*us));
    }
    let (slot, sum) = counters.volumes().swap_remove(0);
    assert_eq!(slot, unit.slot());
    (slot, sum)
}

fn user(name: &str, slot: u16) -> User {
    let mut uses = Uses::default();
    uses.set(slot);
    let host = Host { port: name.into(), who: name.into(), target: None, address: None };
    User { host, is_read_only: false, uses }
}

/// Each family begins with an item that says what it is, and each item is one sample, with all of its lines.
fn check_items(metrics: &MetricsText) {
    let items: Vec<(u64, &str)> = metrics.items().collect();
    assert!(items.is_sorted_by_key(|(number, _)| *number), "{items:?}");
    assert_eq!(items.iter().map(|(_, item)| *item).collect::<String>(), metrics.as_str());
    let (end, samples) = items.split_last().unwrap();
    assert_eq!(end.1, "# EOF\n");
    for (number, item) in samples {
        let is_first = number % (1 << 46) == 0;
        if *item == "# HELP x_y z.\n# TYPE x_y gauge\nx_y 1\n" {
            continue;
        }
        let is_whole = match item.lines().count() {
            2 => is_first && item.starts_with("# HELP "),
            1 => !item.starts_with('#'),
            _ => item.contains("_sum{") && item.contains("_count{") && item.contains("le=\"+Inf\""),
        };
        assert!(is_whole && (!is_first || item.starts_with('#')), "{number}: {item}");
    }
}

#[test]
fn the_rules_find_what_is_against_them() {
    let good = "# HELP a b\n# TYPE a counter\na_total{x=\"1,\\\"}\"} 1\na_total{x=\"2\"} 1\n# EOF\n";
    assert_eq!(check(good), Ok(()));
    for (part, other) in [
        ("# EOF\n", ""),
        ("# HELP a b\n", ""),
        ("x=\"2\"", "x=\"1,\\\"}\""),
        ("x=\"2\"", "x=2"),
        ("x=\"2\"", "x=\"2\",x=\"3\""),
        ("a_total{x=\"2\"}", "a{x=\"2\"}"),
        ("} 1", "} one"),
        ("counter", "histogram"),
        ("# EOF\n", "# HELP a b\n# TYPE a counter\n# EOF\n"),
    ] {
        let bad = good.replace(part, other);
        assert!(check(&bad).is_err(), "{bad}");
    }
}

/// Whether a text is what OpenMetrics 1.0 allows, as far as we make use of it; the error says what is not.
fn check(text: &str) -> Result<(), String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the end is missing")?;
    let (mut families, mut samples) = (BTreeSet::new(), BTreeSet::new());
    let mut lines = body.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).ok_or(format!("no HELP: {line}"))?;
        if !is_name(name) || help.is_empty() || !families.insert(name) {
            return Err(format!("a family of this name, again: {line}"));
        }
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).ok_or("no TYPE")?;
        let (mut buckets, mut counts): (Vec<(f64, f64)>, Vec<f64>) = Default::default();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').ok_or(format!("no value: {line}"))?;
            let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
            let (sample, labels) = series.split_once('{').map_or((series, Vec::new()), |(sample, labels)| {
                (sample, labels_of(labels).unwrap_or_else(|| vec![("", "")]))
            });
            let mut keys: Vec<_> = labels.iter().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            keys.dedup();
            if keys.len() != labels.len() || !keys.iter().all(|key| is_name(key)) || !samples.insert(series) {
                return Err(format!("labels: {line}"));
            }
            let suffix = sample.strip_prefix(name).ok_or(format!("another family: {line}"))?;
            match (kind, suffix) {
                ("counter", "_total") | ("histogram", "_sum") if value >= 0.0 => {}
                ("gauge", "") => {}
                ("histogram", "_bucket") => {
                    let le = labels.iter().find(|(key, _)| *key == "le").map(|(_, bound)| bound.replace("+Inf", "inf"));
                    let bound = le.and_then(|bound| bound.parse().ok()).ok_or(format!("no bound: {line}"))?;
                    let is_first = buckets.last().is_none_or(|(bound, _)| *bound == f64::INFINITY);
                    if !is_first && buckets.last().is_some_and(|(last, count)| *last >= bound || *count > value) {
                        return Err(format!("the order of buckets: {line}"));
                    }
                    buckets.push((bound, value));
                }
                ("histogram", "_count") => counts.push(value),
                _ => return Err(format!("no sample of a {kind}: {line}")),
            }
        }
        let all: Vec<f64> =
            buckets.iter().filter(|(bound, _)| *bound == f64::INFINITY).map(|(_, count)| *count).collect();
        if all != counts {
            return Err(format!("the sums of buckets are no counts: {name}"));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// The labels that stand before the closing brace; `None` when they are not well-formed.
fn labels_of(mut rest: &str) -> Option<Vec<(&str, &str)>> {
    let mut labels = Vec::new();
    loop {
        let (key, value) = rest.split_once("=\"")?;
        let mut is_escaped = false;
        let end = value.find(|letter| {
            let is_end = letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        })?;
        labels.push((key, &value[..end]));
        match &value[end + 1..] {
            "}" => return Some(labels),
            more => rest = more.strip_prefix(',')?,
        }
    }
}
