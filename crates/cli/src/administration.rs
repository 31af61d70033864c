//! Managing a running server: from the words of the command line to a request, and from the answer to tables.

use std::thread;
use std::time::Duration;

use sanwire_core::Size;
use sanwire_server::{
    Answer, ClientSettings, ClientStatus, ConnectionStatistics, Deviation, Events, JobState, JobStatus, Origin,
    PortState, QuotaStatistics, Request, Response, Secret, Statistics, Status,
};

use crate::args::{self, ManageCommand, SettingsArgs};
use crate::config::read_password;
use crate::{keys, output};

/// How soon it is asked again whether a job is over, or something has happened.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What is asked. Passwords are made secrets of here: the server never learns them.
fn request(command: &ManageCommand) -> anyhow::Result<Request> {
    Ok(match command {
        ManageCommand::Status => Request::Status,
        ManageCommand::Sessions => Request::Sessions,
        ManageCommand::Statistics => Request::Statistics,
        ManageCommand::Metrics => Request::Metrics,
        ManageCommand::Jobs => Request::Jobs,
        ManageCommand::Events { since, .. } => Request::Events { since: since.clone(), wait: false },
        ManageCommand::Job { id, wait } => Request::Job { id: *id, wait: *wait },
        ManageCommand::AddVolume { volume, target, renew, adopt } => {
            args::check_volume(volume)?;
            Request::AddVolume { volume: volume.clone(), target: target.clone(), renew: *renew, adopt: *adopt }
        }
        ManageCommand::RemoveVolume { name, force } => Request::RemoveVolume { name: name.clone(), force: *force },
        ManageCommand::ResizeVolume { name, size } => {
            Request::ResizeVolume { name: name.clone(), size: size.0.to_string() }
        }
        ManageCommand::EjectVolume { name, force } => Request::EjectVolume { name: name.clone(), force: *force },
        ManageCommand::LoadVolume { name, store } => Request::LoadVolume { name: name.clone(), store: store.clone() },
        ManageCommand::SetVolume { name, security } => {
            Request::SetVolume { name: name.clone(), security: security.to_string() }
        }
        ManageCommand::MapVolume { name, lun, target, force } => {
            Request::MapVolume { name: name.clone(), lun: *lun, target: target.clone(), force: *force }
        }
        ManageCommand::UnmapVolume { name, target, force } => {
            Request::UnmapVolume { name: name.clone(), target: target.clone(), force: *force }
        }
        ManageCommand::Clients => Request::Clients,
        ManageCommand::AddClient { id, settings, force } => {
            Request::AddClient { id: id.to_string(), settings: client_settings(settings)?, force: *force }
        }
        ManageCommand::SetClient { client, settings, force } => {
            Request::SetClient { client: client.clone(), settings: client_settings(settings)?, force: *force }
        }
        ManageCommand::RemoveClient { client, force } => {
            Request::RemoveClient { client: client.clone(), force: *force }
        }
        ManageCommand::ResetClient { client, force } => Request::ResetClient { client: client.clone(), force: *force },
        ManageCommand::PauseClient { client } => Request::PauseClient { client: client.clone() },
        ManageCommand::ResumeClient { client } => Request::ResumeClient { client: client.clone() },
        ManageCommand::DropClient { client } => Request::DropClient { client: client.clone() },
        ManageCommand::SetAccessState { group, state, target } => {
            Request::SetAccessState { group: *group, state: (*state).into(), target: target.clone() }
        }
        ManageCommand::Reload { force, dry_run } => Request::Reload { force: *force, dry_run: *dry_run },
    })
}

fn client_settings(args: &SettingsArgs) -> anyhow::Result<ClientSettings> {
    let psk = match (&args.own_password_file, &args.own_secret_file) {
        (Some(file), _) => Some(keys::psk(&read_password(file)?)?),
        (None, file) => file.as_deref().map(keys::secret).transpose()?,
    };
    Ok(ClientSettings {
        name: args.name.clone(),
        psk: psk.map(Secret),
        no_password: args.no_own_password,
        manage: args.manage,
        read_only: args.read_only,
        lock_media: args.lock_media,
        volumes: args.volumes.clone(),
        weight: args.weight,
        cap_bytes_per_second: args.cap.map(|cap| cap.0),
        window_packets: args.window,
        compression: args.compression,
        transfer_max_bytes: args.max_transfer.map(|size| u32::try_from(size.0).unwrap_or(u32::MAX)),
        priority: args.priority,
    })
}

/// Asks the server, and prints what it says.
///
/// # Errors
/// Why it was refused, or could not be asked.
pub(crate) fn run(
    command: &ManageCommand,
    (no_wait, as_json): (bool, bool),
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    if let ManageCommand::Events { follow: true, since } = command {
        return follow(since.clone(), as_json, ask);
    }
    Ok(output::print(&show(&pursue(command, no_wait, ask)?, as_json)?)?)
}

/// Prints what has happened, and what happens, until that fails.
fn follow(
    mut since: Option<String>,
    as_json: bool,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    loop {
        let Answer::Events(told) = ask(&Request::Events { since, wait: true })? else {
            anyhow::bail!("the server's answer cannot be read: is it another version?")
        };
        if as_json {
            let lines = told.events.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
            output::print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        } else {
            output::print(&show_events(&told))?;
        }
        if told.events.is_empty() {
            // The server may have let too many others wait to let this one.
            thread::sleep(ASK_AGAIN);
        }
        since = Some(told.cursor);
    }
}

/// Asks for a request what it comes to. Whoever wants to wait for a job asks again until it is over.
///
/// # Errors
/// Why it was refused.
fn pursue(
    command: &ManageCommand,
    no_wait: bool,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<Answer> {
    let request = request(command)?;
    let is_awaited = matches!(command, ManageCommand::Job { wait: true, .. });
    let request = if no_wait && request.is_change() { Request::Start { request: request.into() } } else { request };
    loop {
        match ask(&request)? {
            // The server may have let too many others wait to let this one.
            Answer::Job(JobStatus { state: JobState::Running, .. }) if is_awaited => thread::sleep(ASK_AGAIN),
            Answer::Job(JobStatus { refused: Some(reason), .. }) if is_awaited => anyhow::bail!(reason),
            answer => return Ok(answer),
        }
    }
}

/// What was done.
///
/// # Errors
/// Why it was refused.
pub(crate) fn answer_of(response: Response) -> anyhow::Result<Answer> {
    match response {
        Response::Done(answer) => Ok(answer),
        Response::Refused(refusal) => anyhow::bail!(refusal.reason),
    }
}

/// The answer as tables, or as JSON.
fn show(answer: &Answer, as_json: bool) -> anyhow::Result<String> {
    Ok(if as_json { format!("{}\n", serde_json::to_string_pretty(answer)?) } else { table_of(answer) })
}

fn table_of(answer: &Answer) -> String {
    match answer {
        Answer::Status(status) => show_status(status),
        Answer::Sessions(sessions) => {
            let rows: Vec<_> = sessions
                .iter()
                .map(|session| {
                    let port = format!("{},{}", session.initiator, session.isid);
                    [port, session.target.clone(), session.tsih.to_string(), session.shard.to_string()]
                })
                .collect();
            output::table(["INITIATOR", "TARGET", "TSIH", "SHARD"], &rows)
        }
        Answer::Clients(clients) => show_clients(clients),
        Answer::Statistics(statistics) => show_statistics(statistics),
        Answer::Metrics(text) => text.clone(),
        Answer::Jobs(jobs) => show_jobs(jobs),
        Answer::Events(events) => format!("{}cursor {}\n", show_events(events), events.cursor),
        Answer::Job(job) => show_job(job),
        Answer::Page(page) => table_of(&page.answer),
        Answer::Changed(lines) if lines.is_empty() => "nothing differs\n".into(),
        Answer::Changed(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
    }
}

fn show_events(told: &Events) -> String {
    let mut text = String::new();
    if told.restarted {
        text.push_str("the server was started again since: what happened before is gone\n");
    }
    if let Some((first, last)) = told.gone {
        text.push_str(&format!("of the events {first} to {last} some are gone: there were too many\n"));
    }
    text.extend(told.events.iter().map(|event| format!("{} {}\n", event.time, event.what)));
    text
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
            [volume.lun.to_string(), volume.name.clone(), size, mode.to_owned(), security, waiting, origin]
        })
        .collect();
    let mut tables = vec![output::table(["LUN", "VOLUME", "SIZE", "MODE", "SECURITY", "WAITING", "SAID BY"], &volumes)];
    let units = status.targets.iter().flat_map(|target| target.units.iter().map(|unit| (&target.name, unit)));
    let units: Vec<_> =
        units.map(|(target, (lun, volume))| [target.clone(), lun.to_string(), volume.clone()]).collect();
    if !units.is_empty() {
        tables.push(output::table(["TARGET", "LUN", "VOLUME"], &units));
    }
    tables.push(output::table(["PORTS OF", "GROUP", "STATE"], &groups(status)));
    let missing: Vec<_> = status.missing.iter().map(|volume| [volume.name.clone(), volume.reason.clone()]).collect();
    if !missing.is_empty() {
        tables.push(output::table(["NOT SERVED", "WHY"], &missing));
    }
    if !status.deviations.is_empty() {
        tables.push(show_deviations(&status.deviations));
    }
    let wires: String = status.wires.iter().map(|wire| format!("\n  on {wire}")).collect();
    format!("{}{wires}\n\n{}", status.name, tables.join("\n"))
}

fn origin_name(origin: Origin) -> &'static str {
    match origin {
        Origin::File => "file",
        Origin::CommandLine => "command line",
        Origin::Default => "default",
        Origin::Management => "ctl",
    }
}

/// What differs from file and command line.
fn show_deviations(deviations: &[Deviation]) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    let row = |deviation: &Deviation| {
        let Deviation { resource, name, configured, now } = deviation;
        [resource.clone(), name.clone(), shown(configured), shown(now)]
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

fn state_name(state: Option<PortState>) -> &'static str {
    state.map_or("transitioning", PortState::name)
}

fn show_clients(clients: &[ClientStatus]) -> String {
    let rows: Vec<_> = clients
        .iter()
        .map(|ClientStatus { client, has_password, addresses }| {
            let mode = if client.read_only { "ro" } else { "rw" };
            let rights = if client.manage { format!("{mode},manage") } else { mode.to_owned() };
            let volumes: Vec<String> = client.volumes.iter().map(ToString::to_string).collect();
            let limit = |limit: Option<String>| limit.unwrap_or_else(|| "-".into());
            [
                client.id.to_string(),
                client.name.clone(),
                rights,
                volumes.join(","),
                if *has_password { "own" } else { "server's" }.to_owned(),
                client.weight.to_string(),
                limit(client.cap_bytes_per_second.map(|cap| format!("{}/s", Size(cap)))),
                limit(client.window_packets.map(|packets| packets.to_string())),
                limit(client.transfer_max_bytes.map(|bytes| Size(bytes.into()).to_string())),
                limit(client.compression.map(|compression| compression.to_string())),
                limit(client.priority.map(|priority| priority.to_string())),
                addresses.join(" "),
            ]
        })
        .collect();
    let head = [
        "CLIENT",
        "NAME",
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
    output::table(head, &rows)
}

fn show_statistics(statistics: &Statistics) -> String {
    let volumes: Vec<_> = statistics
        .volumes
        .iter()
        .map(|volume| {
            let us = |time_us: u64| format!("{time_us} us");
            [
                volume.name.clone(),
                volume.commands.to_string(),
                Size(volume.read_bytes).to_string(),
                Size(volume.written_bytes).to_string(),
                volume.errors.to_string(),
                us(volume.latency_mean_us),
                us(volume.latency_median_us),
                us(volume.latency_p99_us),
                us(volume.latency_max_us),
            ]
        })
        .collect();
    let connections: Vec<_> = statistics.connections.iter().map(connection_row).collect();
    let packets: Vec<_> = statistics.connections.iter().filter(|it| it.sent_packets > 0).map(packet_row).collect();
    let volume_head = ["VOLUME", "COMMANDS", "READ", "WRITTEN", "ERRORS", "MEAN", "MEDIAN", "P99", "MAX"];
    let connection_head = ["CLIENT", "FROM", "OVER", "COMMANDS", "READ", "WRITTEN", "ERRORS"];
    let packet_head =
        ["CLIENT", "FROM", "SENT", "RECEIVED", "SENT AGAIN", "TIMEOUTS", "WINDOW OUT", "WINDOW IN", "ROUND TRIP"];
    let dropped: Vec<_> =
        statistics.dropped.iter().map(|(reason, count)| [reason.clone(), count.to_string()]).collect();
    format!(
        "{}\n{}\n{}\n{}\n{}",
        output::table(volume_head, &volumes),
        output::table(connection_head, &connections),
        output::table(packet_head, &packets),
        output::table(["NOT TAKEN", "PACKETS"], &dropped),
        show_quotas(&statistics.quotas)
    )
}

/// What commands of a connection came to, over whichever wire.
fn connection_row(connection: &ConnectionStatistics) -> [String; 7] {
    [
        connection.client.clone(),
        connection.address.clone(),
        connection.wire.clone(),
        connection.commands.to_string(),
        Size(connection.read_bytes).to_string(),
        Size(connection.written_bytes).to_string(),
        connection.errors.to_string(),
    ]
}

/// How the packets of a connection are doing.
fn packet_row(connection: &ConnectionStatistics) -> [String; 9] {
    [
        connection.client.clone(),
        connection.address.clone(),
        connection.sent_packets.to_string(),
        connection.received_packets.to_string(),
        connection.resent_packets.to_string(),
        connection.timeouts.to_string(),
        connection.window_out_packets.to_string(),
        connection.window_in_packets.to_string(),
        connection.round_trip_us.map_or_else(|| "-".into(), |time_us| format!("{time_us} us")),
    ]
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
    use sanwire_server::{GroupStatus, TargetStatus, VolumeStatus};

    use super::*;

    #[test]
    fn a_status_has_no_table_without_rows() {
        let groups = |state| vec![GroupStatus { group: 1, state }];
        let mut status = Status {
            name: "box".into(),
            wires: vec!["hs-ip:127.0.0.1:5674".into()],
            revision: 1,
            deviations: Vec::new(),
            missing: Vec::new(),
            volumes: vec![VolumeStatus {
                id: "0".repeat(32),
                origin: Origin::CommandLine,
                name: "disk0".into(),
                lun: 0,
                size_bytes: 1 << 30,
                block_bytes: 512,
                read_only: false,
                waiting: 0,
                security: "hash".into(),
            }],
            targets: vec![TargetStatus {
                name: "iqn.x:disk0".into(),
                units: vec![(0, "disk0".into())],
                groups: groups(None),
            }],
            groups: groups(Some(PortState::Standby)),
        };
        let expected = "box\n  on hs-ip:127.0.0.1:5674\n\nLUN  VOLUME  SIZE   MODE  SECURITY  WAITING  SAID BY\n0    disk0   1 GiB  rw    hash      -        command line\n\n\
                        TARGET       LUN  VOLUME\niqn.x:disk0  0    disk0\n\n\
                        PORTS OF     GROUP  STATE\nhyperscsi    1      standby\niqn.x:disk0  1      transitioning\n";
        assert_eq!(show(&Answer::Status(status.clone()), false).unwrap(), expected);
        status.targets.clear();
        let expected = "box\n  on hs-ip:127.0.0.1:5674\n\nLUN  VOLUME  SIZE   MODE  SECURITY  WAITING  SAID BY\n0    disk0   1 GiB  rw    hash      -        command line\n\n\
                        PORTS OF   GROUP  STATE\nhyperscsi  1      standby\n";
        assert_eq!(show(&Answer::Status(status.clone()), false).unwrap(), expected);
        let (resource, name) = ("volume".to_owned(), "disk1".to_owned());
        status.deviations = vec![Deviation { resource, name, configured: None, now: Some("ram:1M".into()) }];
        let shown = show(&Answer::Status(status), false).unwrap();
        assert!(
            shown.ends_with("CHANGED BY CTL  NAME   CONFIGURED  NOW\nvolume          disk1  -           ram:1M\n"),
            "{shown}"
        );
        assert_eq!(show(&Answer::Changed(Vec::new()), false).unwrap(), "nothing differs\n");
    }
}
