//! Streams of events.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sanwire_server::{Answer, Event, EventFilter, EventResult, EventTopic, Events, Happening, Request, Response};

use super::{Fixture, fixture, request};

/// A log of events as the server's, of which only the last ones are kept.
#[derive(Default)]
pub(super) struct Log {
    last: Mutex<u64>,
    news: Condvar,
}

const KEPT: u64 = 4;

impl Log {
    pub(super) fn note(&self) {
        *self.last.lock().unwrap() += 1;
        self.news.notify_all();
    }

    fn read(&self, since: Option<&str>, filter: &EventFilter, wait: bool) -> Response {
        let own = since.and_then(|since| since.strip_prefix("1:")).and_then(|number| number.parse::<u64>().ok());
        let after = own.unwrap_or(0);
        let mut last = self.last.lock().unwrap();
        if wait && *last <= after {
            last = self.news.wait_timeout(last, Duration::from_secs(60)).unwrap().0;
        }
        let gone = last.saturating_sub(KEPT);
        let events: Vec<Event> =
            (after.max(gone) + 1..=*last).map(event).filter(|event| admits(filter, event)).collect();
        let gone = (own.is_some() && gone > after).then_some((after + 1, gone));
        let cursor = format!("1:{}", *last);
        Response::Done(Answer::Events(Events { events, cursor, gone, restarted: since.is_some() && own.is_none() }))
    }
}

fn admits(filter: &EventFilter, event: &Event) -> bool {
    let is_volume = matches!(event.what, Happening::VolumeAdded { .. });
    let topic = if is_volume { EventTopic::Volumes } else { EventTopic::Links };
    filter.topics.is_empty() || filter.topics.contains(&topic)
}

fn event(number: u64) -> Event {
    let volume = format!("v{number}");
    let what = if number % 2 == 1 { Happening::VolumeAdded { volume } } else { Happening::LinkLost { wire: volume } };
    Event { number, time: "now".into(), what }
}

pub(super) fn with_log() -> (Fixture, Arc<Log>) {
    let log = Arc::new(Log::default());
    let own = Arc::clone(&log);
    let web = fixture(move |request| match request {
        Request::Events { since, filter, wait } => own.read(since.as_deref(), filter, *wait),
        request => panic!("{request:?}"),
    });
    (web, log)
}

fn listen(web: &Fixture, path: &str, headers: &str) -> impl Iterator<Item = String> {
    let mut stream = UnixStream::connect(web.socket()).unwrap();
    stream.write_all(request("GET", path, headers, "").as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.filter_map(|line| line.strip_prefix("id: ").or(line.strip_prefix("event: ")).map(str::to_owned))
}

fn next(lines: &mut impl Iterator<Item = String>) -> (String, String) {
    (lines.next().unwrap(), lines.next().unwrap())
}

#[test]
fn who_listens_is_told_what_happens_and_goes_on_where_it_was() {
    let (web, log) = with_log();
    log.note();
    let mut lines = listen(&web, "/api/v1/events", "");
    assert_eq!(next(&mut lines), ("volume-added".into(), "1:1".into()));
    log.note();
    assert_eq!(next(&mut lines), ("link-lost".into(), "1:2".into()));
    drop(lines);
    log.note();
    let mut lines = listen(&web, "/api/v1/events", "Last-Event-ID: 1:1\r\n");
    assert_eq!(next(&mut lines), ("link-lost".into(), "1:2".into()));
    assert_eq!(next(&mut lines), ("volume-added".into(), "1:3".into()));
}

#[test]
fn only_what_a_listener_wants_is_told() {
    let (web, log) = with_log();
    let mut lines = listen(&web, "/api/v1/events?topics=links,jobs", "");
    (0..4).for_each(|_| log.note());
    assert_eq!(next(&mut lines), ("link-lost".into(), "1:2".into()));
    assert_eq!(next(&mut lines), ("link-lost".into(), "1:4".into()));
}

#[test]
fn what_a_listener_has_missed_is_a_gap() {
    let (web, log) = with_log();
    (0..KEPT + 3).for_each(|_| log.note());
    let mut lines = listen(&web, "/api/v1/events", "Last-Event-ID: 1:1\r\n");
    assert_eq!(next(&mut lines), ("gap".into(), "1:3".into()));
    assert_eq!(next(&mut lines), ("link-lost".into(), "1:4".into()));
    let mut lines = listen(&web, "/api/v1/events?since=9:1", "");
    assert_eq!(next(&mut lines), ("gap".into(), "1:3".into()));
}

#[test]
fn a_stream_that_follows_nothing_ends_with_what_has_happened() {
    let (web, log) = with_log();
    (0..2).for_each(|_| log.note());
    let told = web.get("/api/v1/events?follow=false");
    assert_eq!((told.status, told.header("content-type")), (200, Some("text/event-stream")));
    let numbers: Vec<&str> = told.body.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(numbers, ["1:1", "1:2"]);
    let rest = web.get("/api/v1/events?follow=false&since=1:2");
    assert!(!rest.body.contains("id:"), "{rest:?}");
    assert_eq!(web.get("/api/v1/events?follow=maybe").code(), (400, "request-invalid".into()));
}

#[test]
fn events_are_chosen_by_client_volume_and_result_as_by_topic() {
    let (web, _log) = with_log();
    let all = EventFilter::default();
    // Who follows the events for all streams asks for all of them, whenever it likes.
    let filters = || {
        let chosen = web.asked().into_iter().filter_map(|request| match request {
            Request::Events { filter, .. } if filter != all => Some(filter),
            _ => None,
        });
        chosen.collect::<Vec<_>>()
    };
    let asked = |query: &str| {
        let reply = web.get(&format!("/api/v1/events?follow=false&{query}"));
        assert_eq!(reply.status, 200, "{query}: {reply:?}");
        filters().pop().expect("a filter")
    };
    assert_eq!(asked("client=host-7"), EventFilter { client: Some("host-7".into()), ..all.clone() });
    assert_eq!(asked("volume=a%26b"), EventFilter { volume: Some("a&b".into()), ..all.clone() });
    assert_eq!(asked("result=refused"), EventFilter { result: Some(EventResult::Refused), ..all.clone() });
    let (topics, result) = (vec![EventTopic::Volumes], Some(EventResult::Done));
    assert_eq!(
        asked("topics=volumes&result=done&volume=v"),
        EventFilter { topics, client: None, volume: Some("v".into()), result }
    );
    let count = filters().len();
    let long = "x".repeat(257);
    for query in ["result=lost".to_owned(), format!("client={long}"), format!("volume={long}"), "clients=a".into()] {
        let refused = web.get(&format!("/api/v1/events?{query}"));
        assert_eq!(refused.code(), (400, "request-invalid".into()), "{query}");
    }
    assert_eq!(filters().len(), count, "nothing of that was asked");
}
