//! What those who help want to know of a server, in one document.
//!
//! It is put together of answers that anybody may ask for who may manage the server: none of them tells a secret, and each is read as it
//! is read alone, in pages where it must be.

use std::fmt::Display;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::audit::AuditQuery;
use super::{Answer, Request, SCHEMA};
use crate::events::{EventFilter, Events};
use crate::wall_time::written_seconds;

/// More events than a server keeps come in no more answers.
const ANSWERS_OF_EVENTS_MAX: u32 = 64;

/// What those who help want to know of a server.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SupportBundle {
    /// The version of what stands here, as in the output of `ctl --json`.
    pub schema: u32,
    /// When it was made, as in RFC 3339.
    pub made: String,
    /// Parts that are not here, and why.
    #[schema(value_type = Object)]
    pub absent: Map<String, Value>,
    /// The answers, under the names that they have in the output of `ctl --json`.
    #[serde(flatten)]
    pub parts: Map<String, Value>,
}

impl SupportBundle {
    /// That of the server that is asked so.
    ///
    /// # Errors
    /// Why the server cannot be asked at all. A part that it refuses is left out, and named.
    pub fn gather<E: Display>(mut ask: impl FnMut(Request) -> Result<Answer, E>) -> Result<Self, E> {
        let made = written_seconds(SystemTime::now());
        let mut bundle = SupportBundle { schema: SCHEMA, made, absent: Map::new(), parts: Map::new() };
        bundle.put("status", ask(Request::Status)?);
        for request in questions() {
            let name = request.name();
            bundle.put_or_note(&name, ask(request));
        }
        let events = all_events(&mut ask).map(Answer::Events);
        bundle.put_or_note("events", events);
        Ok(bundle)
    }

    fn put_or_note(&mut self, name: &str, answer: Result<Answer, impl Display>) {
        match answer {
            Ok(answer) => self.put(name, answer),
            Err(error) => _ = self.absent.insert(name.to_owned(), error.to_string().into()),
        }
    }

    fn put(&mut self, name: &str, answer: Answer) {
        match serde_json::to_value(answer) {
            Ok(Value::Object(answer)) => self.parts.extend(answer),
            Ok(_) => _ = self.absent.insert(name.to_owned(), "it has no name".into()),
            Err(error) => _ = self.absent.insert(name.to_owned(), error.to_string().into()),
        }
    }
}

/// What is asked beside the status and the events.
fn questions() -> impl Iterator<Item = Request> {
    let audit = Request::Audit(AuditQuery { newest: true, ..AuditQuery::default() });
    [
        Request::Configuration,
        Request::Sessions,
        Request::Clients,
        Request::Links,
        Request::Statistics,
        Request::Jobs,
        Request::Pools,
        Request::Snapshots { volume: None },
        Request::Dvds { parent: None },
        Request::Metrics,
        audit,
    ]
    .into_iter()
}

/// All that are kept.
fn all_events<E>(ask: &mut impl FnMut(Request) -> Result<Answer, E>) -> Result<Events, E> {
    let mut all = Events { events: Vec::new(), cursor: String::new(), gone: None, restarted: false };
    for _ in 0..ANSWERS_OF_EVENTS_MAX {
        let since = (!all.cursor.is_empty()).then(|| all.cursor.clone());
        let answer = ask(Request::Events { since, filter: EventFilter::default(), wait: false })?;
        let Answer::Events(Events { events, cursor, gone, .. }) = answer else { break };
        let is_end = events.is_empty();
        all = Events { cursor, gone: all.gone.or(gone), ..all };
        all.events.extend(events);
        if is_end {
            break;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manage::testing::config;
    use crate::manage::{ManageError, Manager};

    /// The parts that a bundle of a server has.
    const PARTS: [&str; 13] = [
        "audit",
        "clients",
        "configuration",
        "dvds",
        "events",
        "jobs",
        "links",
        "metrics",
        "pools",
        "sessions",
        "snapshots",
        "statistics",
        "status",
    ];

    #[test]
    fn a_bundle_has_all_parts_or_says_why_not() {
        let mut manager = Manager::start(config(&["a=ram:1M"]), Box::new(|| Ok(config(&[])))).unwrap();
        let mut events = 0;
        let bundle = SupportBundle::gather(|request| {
            events += u32::from(matches!(request, Request::Events { .. }));
            manager.execute(request)
        });
        let bundle = serde_json::to_value(bundle.unwrap()).unwrap();
        // A server in a test has no audit log.
        let missing: Vec<&str> = PARTS.into_iter().filter(|part| bundle.get(part).is_none()).collect();
        assert_eq!(missing, ["audit"], "{bundle}");
        assert!(bundle["absent"]["audit"].as_str().unwrap().contains("no audit log"), "{bundle}");
        assert_eq!((&bundle["schema"], &bundle["status"]["volumes"][0]["name"]), (&SCHEMA.into(), &"a".into()));
        assert!(bundle["status"]["host"]["kernel"].is_string() && bundle["metrics"].is_string());
        assert!((1..ANSWERS_OF_EVENTS_MAX).contains(&events));
        manager.into_target().stop().unwrap();
    }

    #[test]
    fn a_server_that_cannot_be_asked_gives_no_bundle() {
        let refused = SupportBundle::gather(|request| Err::<Answer, _>(ManageError::NotForOwners(request.name())));
        assert!(refused.unwrap_err().to_string().contains("not status"));
    }
}
