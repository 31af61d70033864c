//! Who uses what, and how much of it.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use sanwire_core::Size;
use sanwire_server::{Answer, CommandStatus, Request, SessionStatus};

use crate::args::SessionsArgs;
use crate::output;

/// What is asked of the sessions.
pub(super) fn request(args: &SessionsArgs) -> Request {
    args.volume.clone().map_or(Request::Sessions, |name| Request::VolumeSessions { name })
}

/// The commands that take longest.
pub(super) fn show_commands(commands: &[CommandStatus]) -> String {
    let row = |command: &CommandStatus| {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let age = Duration::from_millis(command.age_ms);
        [
            command.operation.clone(),
            number(command.lba),
            number(command.blocks.map(u64::from)),
            format!("{:.3} s", age.as_secs_f64()),
            command.waits_for.word().to_owned(),
            command.session.clone(),
            command.client.clone(),
            format!("{} {}", command.wire, command.address),
        ]
    };
    let heads = ["OPERATION", "LBA", "BLOCKS", "AGE", "WAITS FOR", "SESSION", "CLIENT", "AT"];
    output::table(heads, &commands.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn show_sessions(sessions: &[SessionStatus]) -> String {
    let row = |session: &SessionStatus| {
        [
            session.id.clone(),
            client_of(session),
            format!("{} {}", session.wire, session.address),
            session.connections.to_string(),
            session.target.clone().unwrap_or_default(),
            volumes_of(session),
            Size(session.read_bytes).to_string(),
            Size(session.written_bytes).to_string(),
            session.since.clone(),
            session.security.clone(),
            if session.paused { "paused".to_owned() } else { String::new() },
        ]
    };
    let heads =
        ["SESSION", "CLIENT", "AT", "CONNECTIONS", "TARGET", "USES", "READ", "WRITTEN", "SINCE", "SECURITY", ""];
    output::table(heads, &sessions.iter().map(row).collect::<Vec<_>>())
}

/// What people call the client, or what it is known by.
pub(super) fn client_of(session: &SessionStatus) -> String {
    session.name.clone().unwrap_or_else(|| session.client.clone())
}

/// The volumes that it has used.
pub(super) fn volumes_of(session: &SessionStatus) -> String {
    let others = session.volumes - session.volume_names.len().min(session.volumes);
    let more = (others > 0).then(|| format!("and {others} more"));
    let volumes: Vec<&str> = session.volume_names.iter().map(String::as_str).chain(more.as_deref()).collect();
    volumes.join(",")
}

/// Prints what each session has done in a second, measured for so long.
pub(super) fn show_rates(args: &SessionsArgs, ask: impl Fn(&Request) -> anyhow::Result<Answer>) -> anyhow::Result<()> {
    let (period, request) = (args.rate.unwrap_or_default(), request(args));
    let look = || match ask(&request)? {
        Answer::Sessions(sessions) => Ok((Instant::now(), sessions)),
        _ => anyhow::bail!("the server's answer cannot be read: is it another version?"),
    };
    let (begun, before) = look()?;
    thread::sleep(period);
    let (ended, after) = look()?;
    Ok(output::print(&rates(&before, &after, ended - begun))?)
}

fn rates(before: &[SessionStatus], after: &[SessionStatus], period: Duration) -> String {
    let before: BTreeMap<&str, &SessionStatus> = before.iter().map(|session| (&*session.id, session)).collect();
    let row = |session: &SessionStatus| {
        let former = before.get(&*session.id);
        let rate = |count: &dyn Fn(&SessionStatus) -> u64| {
            let grown = count(session) - former.map_or(0, |former| count(former)).min(count(session));
            grown as f64 / period.as_secs_f64().max(f64::MIN_POSITIVE)
        };
        let bytes = |count: &dyn Fn(&SessionStatus) -> u64| format!("{}/s", Size(rate(count) as u64));
        [
            session.id.clone(),
            client_of(session),
            format!("{} {}", session.wire, session.address),
            volumes_of(session),
            format!("{:.0}", rate(&|session| session.commands)),
            bytes(&|session| session.read_bytes),
            bytes(&|session| session.written_bytes),
            format!("{:.0}", rate(&|session| session.errors)),
        ]
    };
    let heads = ["SESSION", "CLIENT", "AT", "USES", "COMMANDS/S", "READ", "WRITTEN", "ERRORS/S"];
    output::table(heads, &after.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_was_done_in_between() {
        let session = |id: &str, commands, read_bytes| SessionStatus {
            id: id.into(),
            wire: "iscsi".into(),
            client: "iqn.x:host".into(),
            revision: 1,
            name: None,
            port: String::new(),
            target: None,
            address: "10.0.0.2:1".into(),
            connections: 1,
            volumes: 18,
            volume_names: vec!["a".into(), "b".into()],
            since: String::new(),
            security: "none".into(),
            paused: false,
            commands,
            read_bytes,
            written_bytes: 0,
            errors: 0,
            shard: 0,
        };
        let (before, after) = ([session("1", 10, 0)], [session("1", 30, 2 << 20), session("2", 4, 0)]);
        let shown = rates(&before, &after, Duration::from_secs(2));
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(lines[1], ["1", "iqn.x:host", "iscsi 10.0.0.2:1", "a,b,and 16 more", "10", "1 MiB/s", "0 B/s", "0"]);
        assert_eq!(lines[2][4], "2");
    }
}
