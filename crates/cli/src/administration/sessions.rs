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
            format!("{} {}", command.spoken(), command.address),
        ]
    };
    let heads = ["OPERATION", "LBA", "BLOCKS", "AGE", "WAITS FOR", "SESSION", "CLIENT", "AT"];
    output::table(heads, &commands.iter().map(row).collect::<Vec<_>>())
}

/// Characters of an initiator's name in a narrow table. The id of a client stands there whole: people need it for other commands.
const NAME_MAX: usize = 24;

/// All that is known of sessions, or what fits on a screen.
pub(super) fn show_sessions(sessions: &[SessionStatus], is_wide: bool) -> String {
    if is_wide { wide(sessions) } else { narrow(sessions) }
}

fn wide(sessions: &[SessionStatus]) -> String {
    let row = |session: &SessionStatus| {
        [
            session.id.clone(),
            client_of(session),
            format!("{} {}", session.spoken(), session.address),
            session.connections.to_string(),
            session.target.clone().unwrap_or_default(),
            portal_of(session),
            volumes_of(session),
            Size(session.read_bytes).to_string(),
            Size(session.written_bytes).to_string(),
            session.since.clone(),
            security_of(session),
        ]
    };
    let heads =
        ["SESSION", "CLIENT", "AT", "CONNECTIONS", "TARGET", "PORTAL", "USES", "READ", "WRITTEN", "SINCE", "SECURITY"];
    output::narrow_table(heads, &sessions.iter().map(row).collect::<Vec<_>>())
}

/// Where it came in, and by which RDMA adapter.
fn portal_of(session: &SessionStatus) -> String {
    let adapter = session.adapter.as_ref().map(|adapter| format!(" by {adapter}")).unwrap_or_default();
    format!("{}{adapter}", session.portal.as_deref().unwrap_or_default())
}

fn narrow(sessions: &[SessionStatus]) -> String {
    let row = |session: &SessionStatus| {
        [
            session.id.clone(),
            named(&client_of(session), false),
            format!("{} {}", session.spoken(), session.address),
            output::shortened(&volumes_of(session), NAME_MAX),
            day_and_minute(&session.since),
            security_of(session),
        ]
    };
    let heads = ["SESSION", "CLIENT", "AT", "USES", "SINCE", "SECURITY"];
    output::table(heads, &sessions.iter().map(row).collect::<Vec<_>>())
}

/// How it is guarded, by CHAP with the user who has logged in; and whether it waits.
fn security_of(session: &SessionStatus) -> String {
    let security = match &session.user {
        Some(user) => session.security.replacen("chap", &format!("chap {user}"), 1),
        None => session.security.clone(),
    };
    if session.paused { format!("{security}, paused") } else { security }
}

/// `MM-DD HH:MM` of a time as in RFC 3339.
fn day_and_minute(time: &str) -> String {
    match (time.get(5..10), time.get(11..16)) {
        (Some(day), Some(minute)) => format!("{day} {minute}"),
        _ => time.to_owned(),
    }
}

/// A name as tables show it.
pub(super) fn named(client: &str, is_wide: bool) -> String {
    let is_id = client.len() == 32 && client.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_wide || is_id { client.to_owned() } else { output::shortened(client, NAME_MAX) }
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
            format!("{} {}", session.spoken(), session.address),
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

    fn session(id: &str, commands: u64, read_bytes: u64) -> SessionStatus {
        SessionStatus {
            id: id.into(),
            wire: "iscsi".into(),
            client: "iqn.x:host".into(),
            revision: 1,
            name: None,
            port: String::new(),
            target: None,
            portal: None,
            user: None,
            iser_path: None,
            adapter: None,
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
        }
    }

    #[test]
    fn sessions_fit_on_a_screen_and_are_told_whole_where_that_is_wanted() {
        let of_iscsi = SessionStatus {
            client: "iqn.2026-11.org.sanwire:client-19b1c0ffee19b1c0ffee19b1c0ffee19".into(),
            target: Some("iqn.2026-11.org.example:storage.disk-0".into()),
            portal: Some("192.168.1.1:3260,1".into()),
            user: Some("alice".into()),
            address: "192.168.1.10:51234".into(),
            volumes: 1,
            volume_names: vec!["disk0".into()],
            since: "2026-11-23T18:02:03Z".into(),
            security: "chap".into(),
            ..session("8000000000000001", 1, 1)
        };
        let of_iser = SessionStatus { iser_path: Some("tcp".into()), user: None, ..of_iscsi.clone() };
        assert!(show_sessions(&[of_iser], false).contains(" iser 192.168.1.10:51234 "), "people know it by this name");
        let of_hyperscsi = SessionStatus {
            wire: "hyperscsi".into(),
            client: "19b1c0ffee19b1c0ffee19b1c0ffee19".into(),
            address: "02:00:5e:10:00:01".into(),
            volumes: 1,
            volume_names: vec!["disk0".into()],
            since: "2026-11-23T18:02:03Z".into(),
            security: "hash".into(),
            ..session("1a", 1, 1)
        };
        let all = [of_iscsi, of_hyperscsi];
        for (session, row) in all.iter().zip([
            "8000000000000001  iqn.2026-11.…9b1c0ffee19  iscsi 192.168.1.10:51234  disk0  11-23 18:02  chap alice",
            "1a       19b1c0ffee19b1c0ffee19b1c0ffee19  hyperscsi 02:00:5e:10:00:01  disk0  11-23 18:02  hash",
        ]) {
            let shown = show_sessions(std::slice::from_ref(session), false);
            assert_eq!(shown.lines().nth(1), Some(row), "{shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        }
        let [of_iscsi, of_hyperscsi] = all;
        let shown = show_sessions(&[of_iscsi.clone(), SessionStatus { paused: true, ..of_hyperscsi }], true);
        for whole in [
            &*of_iscsi.client,
            "192.168.1.1:3260,1",
            "2026-11-23T18:02:03Z",
            "iqn.2026-11.org.example:storage.disk-0",
            "hash, paused",
        ] {
            assert!(shown.contains(whole), "{whole}: {shown}");
        }
    }

    #[test]
    fn rates_are_of_what_was_done_in_between() {
        let (before, after) = ([session("1", 10, 0)], [session("1", 30, 2 << 20), session("2", 4, 0)]);
        let shown = rates(&before, &after, Duration::from_secs(2));
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(lines[1], ["1", "iqn.x:host", "iscsi 10.0.0.2:1", "a,b,and 16 more", "10", "1 MiB/s", "0 B/s", "0"]);
        assert_eq!(lines[2][4], "2");
    }

    #[test]
    fn people_know_iscsi_by_rdma_by_its_own_name() {
        let mut command = CommandStatus {
            operation: "read".into(),
            lba: Some(8),
            blocks: None,
            age_ms: 1500,
            waits_for: sanwire_server::Waits::Store,
            session: "1f".into(),
            client: "iqn.x:host".into(),
            wire: "iscsi".into(),
            iser_path: None,
            address: "10.0.0.2:1".into(),
        };
        let shown = |command: &CommandStatus| show_commands(std::slice::from_ref(command));
        assert!(shown(&command).contains("  iscsi 10.0.0.2:1\n"), "{}", shown(&command));
        command.iser_path = Some("rdma".into());
        assert!(shown(&command).contains("  iser 10.0.0.2:1"), "{}", shown(&command));
    }
}
