//! What happens, as Server-Sent Events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use sanwire_server::{Answer, EventFilter, EventResult, EventTopic, Events, Request};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::unexpected;
use crate::app::App;
use crate::caller::Caller;
use crate::events::Listener;
use crate::extract::Query;
use crate::problem::Problem;

/// A stream says so often that it lives.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The longest cursor, in bytes.
const CURSOR_MAX_BYTES: usize = 64;

/// The longest part of a client's name, id or address, and the longest name of a volume, by which events are chosen.
const NAME_MAX_BYTES: usize = 256;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(events))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Only events about these, separated by commas: `volumes`, `sessions`, `refusals`, `links`, `jobs`, `configuration`.
    #[param(
        pattern = "^(volumes|sessions|refusals|links|jobs|configuration)(,(volumes|sessions|refusals|links|jobs|configuration))*$"
    )]
    topics: Option<String>,
    /// Only events about clients whose id, name or address has this in it.
    #[param(max_length = 256)]
    client: Option<String>,
    /// Only events about the volume of this name.
    #[param(max_length = 256)]
    volume: Option<String>,
    /// Only events that have ended so: as they should, or refused (also what has failed, or is gone).
    #[param(inline)]
    result: Option<EventResult>,
    /// What happened after this cursor, where the header Last-Event-ID cannot be given.
    #[param(max_length = 64)]
    since: Option<String>,
    /// Whether the stream goes on with what happens; else it ends with what has happened.
    #[serde(default = "yes")]
    #[param(default = true)]
    follow: bool,
}

fn yes() -> bool {
    true
}

/// A message of the stream, as browsers give it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is written as text: this describes it")]
pub(crate) struct EventMessage {
    /// What has happened, as in `Event`; or `gap`.
    event: String,
    /// A cursor: the stream goes on behind it.
    id: String,
    /// The `Event`, or the `Gap`, as JSON.
    data: String,
}

/// Events that a listener has missed.
#[derive(Serialize, ToSchema)]
pub(crate) struct Gap {
    /// The first and the last number between which events are gone; null: the server was started again.
    #[schema(value_type = Option<Vec<u64>>)]
    gone: Option<(u64, u64)>,
    /// Whether the cursor was that of an earlier run of the server.
    restarted: bool,
}

const TOPICS: [(&str, EventTopic); 6] = [
    ("volumes", EventTopic::Volumes),
    ("sessions", EventTopic::Sessions),
    ("refusals", EventTopic::Refusals),
    ("links", EventTopic::Links),
    ("jobs", EventTopic::Jobs),
    ("configuration", EventTopic::Configuration),
];

/// What happens
///
/// As Server-Sent Events (`text/event-stream`), which go on without end: `event` says what has happened, `data` is it as JSON, and `id` is a
/// cursor. Who connects again with the last `id` as Last-Event-ID is told all that happened since; an event `gap` says that some of
/// it is gone. Without a cursor the stream begins with what is kept.
#[utoipa::path(get, path = "/events", tag = "monitoring", params(EventsQuery, ("Last-Event-ID" = Option<String>, Header, description = "What happened after this cursor.")),
    responses((status = 200, description = "The events.", body = EventMessage, content_type = "text/event-stream")))]
async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Result<Response, Problem> {
    let topics = query.topics.as_deref().map(read_topics).transpose()?.unwrap_or_default();
    for (name, text) in [("client", &query.client), ("volume", &query.volume)] {
        if text.as_ref().is_some_and(|text| text.len() > NAME_MAX_BYTES) {
            return Err(Problem::invalid(format!("{name}: use at most {NAME_MAX_BYTES} bytes")));
        }
    }
    let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?").to_owned());
    let cursor = last.or(query.since);
    if cursor.as_ref().is_some_and(|cursor| cursor.len() > CURSOR_MAX_BYTES) {
        return Err(Problem::invalid("that is no cursor: give back what `id` said"));
    }
    caller.check(&Request::Events { since: None, filter: EventFilter::default(), wait: false })?;
    let filter = EventFilter { topics, client: query.client, volume: query.volume, result: query.result };
    let listener = app.news.listen(&caller.asker)?;
    let (ready, follows) = (VecDeque::new(), query.follow);
    let stream = Stream { app, caller, listener, filter, cursor, ready, has_begun: false, follows };
    let body = Body::from_stream(stream::unfold(stream, async |mut stream| {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(text), stream))
    }));
    Ok(([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], body).into_response())
}

fn read_topics(text: &str) -> Result<Vec<EventTopic>, Problem> {
    let read = |word: &str| TOPICS.iter().find(|(name, _)| *name == word).map(|(_, topic)| *topic);
    let topics: Option<Vec<_>> = text.split(',').map(read).collect();
    topics.ok_or_else(|| {
        let names: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
        Problem::invalid(format!("topics: use {}, separated by commas", names.join(", ")))
    })
}

/// One stream.
struct Stream {
    app: Arc<App>,
    caller: Caller,
    listener: Listener,
    filter: EventFilter,
    cursor: Option<String>,
    /// What is to be sent.
    ready: VecDeque<String>,
    has_begun: bool,
    /// Whether it goes on when there is nothing more.
    follows: bool,
}

impl Stream {
    /// The next piece of text; `None` when the server ends, or when there is no more for who does not wait.
    async fn next(&mut self) -> Option<String> {
        if !std::mem::replace(&mut self.has_begun, true) {
            // The client sees that the stream is there before anything happens.
            return Some(": events\n\n".to_owned());
        }
        loop {
            if let Some(text) = self.ready.pop_front() {
                return Some(text);
            }
            self.listener.look();
            let request = Request::Events { since: self.cursor.clone(), filter: self.filter.clone(), wait: false };
            let tell = |answer| match answer {
                Answer::Events(events) => Ok(told(events)),
                _ => Err(unexpected()),
            };
            let (texts, cursor) = self.app.look(&self.caller, request, tell).await.ok()?;
            self.cursor = Some(cursor);
            self.ready.extend(texts);
            if !self.ready.is_empty() {
                continue;
            }
            if !self.follows {
                return None;
            }
            match timeout(PING_INTERVAL, self.listener.wait()).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(_) => return Some(": ping\n\n".to_owned()),
            }
        }
    }
}

/// What has happened, as it is sent, and the cursor of what follows.
fn told(Events { events, cursor, gone, restarted }: Events) -> (Vec<String>, String) {
    let run = cursor.split_once(':').map_or("", |(run, _)| run);
    let has_gap = gone.is_some() || restarted;
    let gap = has_gap.then(|| {
        let before = events.first().map_or(0, |event| event.number - 1);
        written("gap", &format!("{run}:{before}"), &Gap { gone, restarted })
    });
    let texts = events.iter().map(|event| {
        let name = serde_json::to_value(event).ok();
        let name = name.as_ref().and_then(|event| event["event"].as_str()).unwrap_or("event");
        written(name, &format!("{run}:{}", event.number), event)
    });
    (gap.into_iter().chain(texts).collect(), cursor)
}

fn written(name: &str, id: &str, data: &impl Serialize) -> String {
    let mut text = String::new();
    // JSON has no line ends.
    let data = serde_json::to_string(data).unwrap_or_default();
    let _ = write!(text, "event: {name}\nid: {id}\ndata: {data}\n\n");
    text
}
