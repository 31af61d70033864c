//! Answers as tables for people.

use std::time::Duration;

use sanwire_core::Size;
use sanwire_server::{
    Answer, ClientStatus, CopyProgress, CopyTerms, Deviation, JobState, JobStatus, Origin, PortState, Status,
};

use super::dvds::{show_dvd, show_dvds};
use super::pools::{show_pools, show_snapshots};
use super::sessions::{show_commands, show_sessions};
use super::standing::{show_configuration, show_links, show_reservations};
use super::statistics::show_statistics;
use super::told::{show_audit, show_events};
use crate::output;

/// What people are shown; `is_wide`: with all that there is, and not only what fits on a screen.
pub(super) fn table_of(answer: &Answer, is_wide: bool) -> String {
    match answer {
        Answer::Status(status) => show_status(status),
        Answer::Sessions(sessions) => show_sessions(sessions, is_wide),
        Answer::ConfigurationFile(tables) => tables.join("\n"),
        Answer::Commands(commands) => show_commands(commands),
        Answer::Links(links) => show_links(links),
        Answer::Configuration(configuration) => show_configuration(configuration),
        Answer::Reservations(reservations) => show_reservations(reservations),
        Answer::Clients(clients) => show_clients(clients, is_wide),
        Answer::Statistics(statistics) => show_statistics(statistics, is_wide),
        Answer::Metrics(metrics) => metrics.as_str().to_owned(),
        Answer::Jobs(jobs) => show_jobs(jobs),
        Answer::Events(events) => format!("{}cursor {}\n", show_events(events), events.cursor),
        Answer::Job(job) => show_job(job),
        Answer::Pools(pools) => show_pools(pools),
        Answer::Snapshots(snapshots) => show_snapshots(snapshots),
        Answer::Dvds(volumes) => show_dvds(volumes),
        Answer::Dvd(dvd) => show_dvd(dvd),
        Answer::Page(page) => table_of(&page.answer, is_wide),
        Answer::Audit(told) => format!("{}cursor {}\n", show_audit(told), told.cursor),
        Answer::CopyTerms(terms) => show_copy_terms(terms),
        Answer::Link(link) => format!("{link}\n"),
        Answer::Changed(lines) if lines.is_empty() => "nothing differs\n".into(),
        Answer::Changed(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
    }
}

fn show_copy_terms(terms: &CopyTerms) -> String {
    let CopyTerms { client, refused, urls } = terms;
    let may = refused.as_deref().unwrap_or("allowed");
    let client = client.as_deref().unwrap_or("none");
    format!("direct copies  {may}\nclient id      {client}\nreached by     {}\n", urls.join(" "))
}

fn show_jobs(jobs: &[JobStatus]) -> String {
    let rows: Vec<_> = jobs
        .iter()
        .map(|job| {
            let JobStatus { id, by, begun, .. } = job;
            [id.to_string(), job_state(job).to_owned(), job.what(), by.clone(), begun.clone(), job_news(job)]
        })
        .collect();
    output::table(["JOB", "STATE", "REQUEST", "BY", "BEGUN", ""], &rows)
}

fn show_job(job: &JobStatus) -> String {
    let (id, request, state) = (job.id, job.what(), job_state(job));
    let mut text = format!("job {id} ({request}) is {state}: {}\n", job_news(job));
    if job.state == JobState::Running {
        text.push_str(&format!("it goes on; `sanwire ctl job {id} --wait` waits for its end\n"));
    }
    text
}

fn job_state(job: &JobStatus) -> &'static str {
    match job.state {
        JobState::Running => "running",
        JobState::Done => "done",
        JobState::Refused => "refused",
    }
}

/// What it does, has changed, or why it was refused.
fn job_news(job: &JobStatus) -> String {
    if let (Some(CopyProgress { done_bytes, total_bytes, .. }), Some(what)) = (job.copy.as_deref(), &job.progress) {
        return format!("{what}: {} of {}", Size(*done_bytes), Size(*total_bytes));
    }
    let said = job.progress.as_ref().or(job.refused.as_ref());
    said.cloned().unwrap_or_else(|| job.changed.join("; "))
}

fn show_status(status: &Status) -> String {
    let volumes: Vec<_> = status
        .volumes
        .iter()
        .map(|volume| {
            let mode = if volume.read_only { "ro" } else { "rw" };
            let waiting = if volume.waiting == 0 { "-".into() } else { volume.waiting.to_string() };
            let size = Size(volume.size_bytes).to_string();
            let origin = origin_name(volume.origin).to_owned();
            let security = volume.security.clone();
            let used = volume.used_bytes.map_or_else(|| "-".to_owned(), |bytes| Size(bytes).to_string());
            let (lun, name, store) = (volume.lun.to_string(), volume.name.clone(), volume.store.clone());
            [lun, name, size, used, store, mode.to_owned(), security, waiting, origin]
        })
        .collect();
    let head = ["LUN", "VOLUME", "SIZE", "USED", "STORE", "MODE", "SECURITY", "WAITING", "ORIGIN"];
    let mut tables = vec![output::table(head, &volumes)];
    let units = status.targets.iter().flat_map(|target| target.units.iter().map(|unit| (&target.name, unit)));
    let units: Vec<_> =
        units.map(|(target, (lun, volume))| [target.clone(), lun.to_string(), volume.clone()]).collect();
    if !units.is_empty() {
        tables.push(output::table(["TARGET", "LUN", "VOLUME"], &units));
    }
    tables.push(output::table(["TARGET", "PORT GROUP", "ALUA STATE"], &groups(status)));
    let missing: Vec<_> = status.missing.iter().map(|volume| [volume.name.clone(), volume.reason.clone()]).collect();
    if !missing.is_empty() {
        tables.push(output::table(["NOT SERVED", "WHY"], &missing));
    }
    if !status.deviations.is_empty() {
        tables.push(show_deviations(&status.deviations));
    }
    let path = |wire: &String| status.run.receive_paths.get(wire).map_or(String::new(), |path| format!(" by {path}"));
    let wires: String = status.wires.iter().map(|wire| format!("\n  on {wire}{}", path(wire))).collect();
    // A server of an older version does not tell it.
    let since = (!status.run.version.is_empty()).then(|| {
        let up = humantime::format_duration(Duration::from_secs(status.run.uptime_seconds));
        format!(", version {}, up {up}", status.run.version)
    });
    format!("{}{}{wires}\n\n{}", status.name, since.unwrap_or_default(), tables.join("\n"))
}

pub(super) fn origin_name(origin: Origin) -> &'static str {
    match origin {
        Origin::File => "file",
        Origin::CommandLine => "command line",
        Origin::Default => "default",
        Origin::Management => "ctl",
    }
}

/// What differs from file and command line.
pub(super) fn show_deviations(deviations: &[Deviation]) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    let row = |deviation: &Deviation| {
        let Deviation { resource, name, configured, now } = deviation;
        // `-` would look as if `allow` still counted for it.
        let is_removed_client = resource == "client" && now.is_none();
        let now = if is_removed_client { "removed: refused, whatever allow says".to_owned() } else { shown(now) };
        [resource.clone(), name.clone(), shown(configured), now]
    };
    let rows: Vec<_> = deviations.iter().map(row).collect();
    output::table(["CHANGED BY CTL", "NAME", "CONFIGURED", "NOW"], &rows)
}

/// The groups of ports: HyperSCSI's where it is served, and those of the iSCSI targets.
fn groups(status: &Status) -> Vec<[String; 3]> {
    let is_hyperscsi = status.wires.iter().any(|wire| wire.starts_with("hs-"));
    let own = is_hyperscsi.then_some(("hyperscsi", &status.groups));
    let of_targets = status.targets.iter().map(|target| (target.name.as_str(), &target.groups));
    let named = own.into_iter().chain(of_targets);
    let rows = named.flat_map(|(name, groups)| {
        groups.iter().map(move |group| [name.to_owned(), group.group.to_string(), state_name(group.state).to_owned()])
    });
    rows.collect()
}

pub(super) fn state_name(state: Option<PortState>) -> &'static str {
    state.map_or("transitioning", PortState::name)
}

fn show_clients(clients: &[ClientStatus], is_wide: bool) -> String {
    let rows: Vec<_> = clients
        .iter()
        .map(|ClientStatus { client, has_password, addresses, origin, .. }| {
            let mode = if client.read_only { "ro" } else { "rw" };
            let rights = if client.manage { format!("{mode},manage") } else { mode.to_owned() };
            let volumes: Vec<String> = client.volumes.iter().map(ToString::to_string).collect();
            let limit = |limit: Option<String>| limit.filter(|_| is_wide).unwrap_or_else(|| "-".into());
            [
                client.id.to_string(),
                client.name.clone(),
                origin_name(*origin).to_owned(),
                rights,
                volumes.join(","),
                if *has_password { "own" } else { "server's" }.to_owned(),
                limit(Some(client.weight.to_string())),
                limit(client.cap_bytes_per_second.map(|cap| format!("{}/s", Size(cap)))),
                limit(client.window_packets.map(|packets| packets.to_string())),
                limit(client.transfer_max_bytes.map(|bytes| Size(bytes.into()).to_string())),
                limit(client.compression.map(|compression| compression.to_string())),
                limit(client.priority.map(|priority| priority.to_string())),
                limit(Some(addresses.join(" "))),
            ]
        })
        .collect();
    let head = [
        "CLIENT",
        "NAME",
        "SOURCE",
        "MAY",
        "VOLUMES",
        "PASSWORD",
        "WEIGHT",
        "CAP",
        "WINDOW",
        "TRANSFER",
        "COMPRESSION",
        "PRIORITY",
        "CONNECTED FROM",
    ];
    output::narrow_table(head, &rows)
}

#[cfg(test)]
mod tests {
    use sanwire_server::{Collections, GroupStatus, HostStatus, RunStatus, TargetStatus, TargetTerms, VolumeStatus};

    use super::super::show;
    use super::*;
    use crate::args::Form;

    #[test]
    fn a_status_has_no_table_without_rows() {
        let groups = |state| vec![GroupStatus { group: 1, state }];
        let mut status = Status {
            name: "box".into(),
            run: Box::new(RunStatus {
                version: "0.1.0".into(),
                started: "2026-11-23T18:00:00Z".into(),
                uptime_seconds: 3723,
                receive_paths: [("hdsp:lan0".to_owned(), "AF_PACKET".to_owned())].into(),
                host: HostStatus::default(),
            }),
            wires: vec!["hs-ip:127.0.0.1:5674".into(), "hdsp:lan0".into()],
            revision: 1,
            collections: Collections::default(),
            deviations: Vec::new(),
            missing: Vec::new(),
            volumes: vec![VolumeStatus {
                revision: 1,
                id: "0".repeat(32),
                origin: Origin::CommandLine,
                name: "disk0".into(),
                lun: 0,
                size_bytes: 1 << 30,
                store: "file:/srv/disk0.img".into(),
                used_bytes: Some(1 << 20),
                block_bytes: 512,
                read_only: false,
                waiting: 0,
                security: "hash".into(),
                protected: false,
                pool: None,
                owners: Vec::new(),
                derived: None,
                missing: None,
            }],
            targets: vec![TargetStatus {
                revision: 1,
                name: "iqn.x:disk0".into(),
                terms: TargetTerms::default(),
                units: vec![(0, "disk0".into())],
                groups: groups(None),
            }],
            groups: groups(Some(PortState::Standby)),
        };
        let expected = "box, version 0.1.0, up 1h 2m 3s\n  on hs-ip:127.0.0.1:5674\n  on hdsp:lan0 by AF_PACKET\n\nLUN  VOLUME  SIZE   USED   STORE                MODE  SECURITY  WAITING  ORIGIN\n0    disk0   1 GiB  1 MiB  file:/srv/disk0.img  rw    hash      -        command line\n\n\
                        TARGET       LUN  VOLUME\niqn.x:disk0  0    disk0\n\n\
                        TARGET       PORT GROUP  ALUA STATE\nhyperscsi    1           standby\niqn.x:disk0  1           transitioning\n";
        assert_eq!(show(&Answer::Status(status.clone()), Form::Narrow).unwrap(), expected);
        status.targets.clear();
        let expected = "box, version 0.1.0, up 1h 2m 3s\n  on hs-ip:127.0.0.1:5674\n  on hdsp:lan0 by AF_PACKET\n\nLUN  VOLUME  SIZE   USED   STORE                MODE  SECURITY  WAITING  ORIGIN\n0    disk0   1 GiB  1 MiB  file:/srv/disk0.img  rw    hash      -        command line\n\n\
                        TARGET     PORT GROUP  ALUA STATE\nhyperscsi  1           standby\n";
        assert_eq!(show(&Answer::Status(status.clone()), Form::Narrow).unwrap(), expected);
        let (resource, name) = ("volume".to_owned(), "disk1".to_owned());
        status.deviations = vec![Deviation { resource, name, configured: None, now: Some("ram:1M".into()) }];
        let shown = show(&Answer::Status(status), Form::Narrow).unwrap();
        assert!(
            shown.ends_with("CHANGED BY CTL  NAME   CONFIGURED  NOW\nvolume          disk1  -           ram:1M\n"),
            "{shown}"
        );
        assert_eq!(show(&Answer::Changed(Vec::new()), Form::Narrow).unwrap(), "nothing differs\n");
    }
}
