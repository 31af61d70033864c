//! What has happened and who has changed what, a line each; and going on with it.

use std::thread;
use std::time::{Duration, SystemTime};

use sanwire_server::{
    Answer, AuditLines, AuditQuery, AuditResult, EventFilter, EventResult, EventTopic, Events, Request,
};
use serde_json::Value;

use super::ASK_AGAIN;
use crate::args::{AuditArgs, EventsArgs, ResultArg, TopicArg};
use crate::failure::misuse;
use crate::output;

/// How soon the audit log is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

fn other_answer() -> anyhow::Error {
    anyhow::anyhow!("the server's answer cannot be read: is it another version?")
}

pub(super) fn show_events(told: &Events) -> String {
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

/// A line for each change, and for what was refused.
pub(super) fn show_audit(told: &AuditLines) -> String {
    let gone = "what followed the cursor is not there any more: this begins with the oldest line that is\n";
    let line = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let details = line["details"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let details: Vec<&str> = details.collect();
        let asked = match &line["request"] {
            Value::Null => String::new(),
            Value::String(request) => request.clone(),
            request => request.to_string(),
        };
        let by: Vec<String> = match &line["by"] {
            Value::Object(by) => by.iter().map(|(key, value)| format!("{key} {}", plain(value))).collect(),
            other => vec![plain(other)],
        };
        format!("{} {} {}: {asked} {}\n", text("time"), text("result"), by.join(", "), details.join("; "))
    };
    let gone = told.gone.then_some(gone.to_owned());
    gone.into_iter().chain(told.lines.iter().map(line)).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What is asked of the events.
pub(super) fn events_request(args: &EventsArgs, since: Option<String>, wait: bool) -> Request {
    let topics = args.topic.iter().map(|topic| match topic {
        TopicArg::Volumes => EventTopic::Volumes,
        TopicArg::Sessions => EventTopic::Sessions,
        TopicArg::Refusals => EventTopic::Refusals,
        TopicArg::Links => EventTopic::Links,
        TopicArg::Jobs => EventTopic::Jobs,
        TopicArg::Configuration => EventTopic::Configuration,
    });
    let result = args.result.map(|result| match result {
        ResultArg::Done => EventResult::Done,
        ResultArg::Refused => EventResult::Refused,
    });
    let filter =
        EventFilter { topics: topics.collect(), client: args.client.clone(), volume: args.volume.clone(), result };
    Request::Events { since, filter, wait }
}

/// What is asked of the audit log.
///
/// # Errors
/// When `--since` says no moment.
pub(super) fn audit_query(args: &AuditArgs) -> anyhow::Result<AuditQuery> {
    let result = args.result.map(|result| match result {
        ResultArg::Done => AuditResult::Done,
        ResultArg::Refused => AuditResult::Refused,
    });
    let (since, from) = match &args.since {
        Some(cursor) if cursor.contains('-') && cursor.split(':').count() == 2 => (Some(cursor.clone()), None),
        Some(moment) => (None, Some(moment_of(moment)?)),
        None => (None, None),
    };
    Ok(AuditQuery { since, from, who: args.who.clone(), result, ..AuditQuery::default() })
}

/// A moment, or how long it is past, as the audit log writes moments.
fn moment_of(text: &str) -> anyhow::Result<String> {
    let ago = humantime::parse_duration(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    let at = ago.or_else(|| humantime::parse_rfc3339_weak(text).ok());
    let at = at.or_else(|| humantime::parse_rfc3339_weak(&format!("{text} 00:00:00")).ok());
    let at = at.ok_or_else(|| {
        misuse(format!("'{text}' is no moment: use 2026-11-23, 2026-11-23T18:00:00Z, 2h or a cursor"))
    })?;
    Ok(sanwire_server::written_millis(at))
}

/// Prints what has happened, and what happens, until that fails or nobody reads it.
pub(super) fn follow_events(
    args: &EventsArgs,
    as_json: bool,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    let mut since = args.since.clone();
    loop {
        let Answer::Events(told) = ask(&events_request(args, since, true))? else { return Err(other_answer()) };
        let text = if as_json { lines_of(&told)? } else { show_events(&told) };
        if !output::print_while_read(&text)? {
            return Ok(());
        }
        if told.events.is_empty() {
            // The server may have let too many others wait to let this one.
            thread::sleep(ASK_AGAIN);
        }
        since = Some(told.cursor);
    }
}

/// Each event as a line of JSON; before them one that says that some were missed.
fn lines_of(told: &Events) -> serde_json::Result<String> {
    let is_missed = told.gone.is_some() || told.restarted;
    let missed = is_missed.then(|| serde_json::json!({ "gone": told.gone, "restarted": told.restarted }).to_string());
    let events = told.events.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(missed.into_iter().chain(events).map(|line| format!("{line}\n")).collect())
}

/// Prints the lines of the audit log, and where to go on; or goes on with those that come.
pub(super) fn audit(
    args: &AuditArgs,
    as_json: bool,
    ask: impl Fn(&Request) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    let mut query = audit_query(args)?;
    loop {
        let Answer::Audit(told) = ask(&Request::Audit(query.clone()))? else { return Err(other_answer()) };
        let text = if as_json { audit_lines(&told) } else { show_audit(&told) };
        if !output::print_while_read(&text)? {
            return Ok(());
        }
        if !told.more && !args.follow {
            return if as_json { Ok(()) } else { Ok(output::print(&format!("cursor {}\n", told.cursor))?) };
        }
        if !told.more {
            thread::sleep(LOOK_AGAIN);
        }
        query.since = Some(told.cursor);
    }
}

/// Each line as it stands in the log.
fn audit_lines(told: &AuditLines) -> String {
    let gone = told.gone.then(|| serde_json::json!({ "gone": true }).to_string());
    gone.into_iter().chain(told.lines.iter().map(Value::to_string)).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(since: &str) -> AuditArgs {
        AuditArgs { follow: false, since: Some(since.into()), who: None, result: Some(ResultArg::Refused) }
    }

    #[test]
    fn the_audit_log_is_asked_from_a_cursor_or_a_moment_on() {
        let query = audit_query(&args("1f-2c:77")).unwrap();
        assert_eq!(
            (query.since.as_deref(), query.from, query.result),
            (Some("1f-2c:77"), None, Some(AuditResult::Refused))
        );
        for moment in ["2026-11-23", "2026-11-23T00:00:00Z", "2026-11-23 00:00:00"] {
            let query = audit_query(&args(moment)).unwrap();
            assert_eq!((query.since, query.from.as_deref()), (None, Some("2026-11-23T00:00:00.000Z")), "{moment}");
        }
        assert!(audit_query(&args("2h")).unwrap().from.is_some_and(|from| from.starts_with("20")));
        assert_eq!(audit_query(&args("60years")).unwrap().from.as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert!(audit_query(&args("yesterday")).unwrap_err().to_string().contains("use 2026-11-23"));
    }

    #[test]
    fn a_line_of_the_audit_log_says_when_what_by_whom_and_why() {
        let line = serde_json::json!({
            "time": "2026-11-23T18:00:00.000Z", "by": {"uid": 0, "pid": 7}, "result": "refused",
            "request": {"do": "remove-volume", "name": "a"}, "details": ["no volume called a is served"],
        });
        let told = AuditLines { lines: vec![line], cursor: "1-2:3".into(), more: false, gone: true };
        let shown = show_audit(&told);
        assert!(shown.starts_with("what followed the cursor is not there any more"), "{shown}");
        assert!(
            shown.ends_with(
                "2026-11-23T18:00:00.000Z refused pid 7, uid 0: {\"do\":\"remove-volume\",\"name\":\"a\"} no volume called a is served\n"
            ),
            "{shown}"
        );
    }
}
