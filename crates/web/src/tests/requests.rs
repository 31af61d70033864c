//! What requests lead to, and what is refused before.

use std::io::{Read, Write};
use std::net::TcpStream;

use sanwire_server::{
    Answer, Asker, Collections, Events, JobState, JobStatus, Refusal, Request, Response, Status, VolumeStatus,
};
use serde_json::json;

use super::{Fixture, exchange, fixture, request};
use crate::limits::LISTENERS_MAX;

pub(super) fn volume(lun: u16) -> VolumeStatus {
    serde_json::from_value(json!({
        "id": "0", "revision": 7 + lun, "name": format!("v{lun}"), "origin": "file", "lun": lun,
        "size_bytes": 4096, "block_bytes": 512, "read_only": false, "security": "none",
    }))
    .unwrap()
}

pub(super) fn status() -> Answer {
    Answer::Status(Status {
        name: "box".into(),
        revision: 5,
        run: Box::default(),
        collections: Collections::default(),
        deviations: vec![],
        missing: vec![],
        wires: vec!["hs-ip:127.0.0.1".into()],
        volumes: (0..3).map(volume).collect(),
        targets: vec![],
        groups: vec![],
    })
}

pub(super) fn job(state: JobState, id: u64) -> JobStatus {
    JobStatus {
        id,
        request: json!({}),
        by: "x".into(),
        state,
        progress: None,
        copy: None,
        begun: "now".into(),
        ended: None,
        changed: vec!["a line".into()],
        refused: Some("no".into()).filter(|_| state == JobState::Refused),
        code: Some("volume-exists".into()).filter(|_| state == JobState::Refused),
    }
}

/// Answers as a server does that has three volumes.
pub(crate) fn answer(request: &Request) -> Response {
    Response::Done(match request {
        Request::Status => status(),
        Request::Events { .. } => {
            Answer::Events(Events { events: vec![], cursor: "1:0".into(), gone: None, restarted: false })
        }
        Request::Start { .. } => Answer::Changed(vec!["a line".into()]),
        Request::Metrics => Answer::Metrics(serde_json::from_value(json!("# EOF\n")).unwrap()),
        request => return Response::Refused(refusal("defect", &format!("{request:?}"))),
    })
}

fn refusal(code: &'static str, reason: &str) -> Refusal {
    Refusal { code: code.into(), reason: reason.into() }
}

pub(super) fn usual() -> Fixture {
    fixture(answer)
}

#[test]
fn a_list_comes_in_pages_and_an_item_with_its_revision() {
    let web = usual();
    let page = web.get("/api/v1/volumes?limit=2").json();
    assert_eq!((&page["items"][1]["name"], &page["next"], &page["total"]), (&json!("v1"), &json!("1"), &json!(3)));
    let page = web.get("/api/v1/volumes?limit=2&after=1").json();
    assert_eq!((&page["items"][0]["name"], &page["next"]), (&json!("v2"), &json!(null)));
    let item = web.get("/api/v1/volumes/v1");
    assert_eq!((item.status, item.header("etag")), (200, Some("\"8\"")));
    assert_eq!(web.get("/api/v1/volumes/none").code(), (404, "volume-unknown".into()));
    assert_eq!(web.get("/api/v1/volumes?limt=2").code(), (400, "request-invalid".into()));
    assert_eq!(web.get("/api/v1/volumes/%FF").code(), (400, "request-invalid".into()));
    assert_eq!(web.get("/api/v1/nothing").code(), (404, "resource-unknown".into()));
    assert_eq!(web.ask("PUT", "/api/v1/volumes", "", "").code(), (405, "method-unknown".into()));
}

#[test]
fn a_stale_tag_is_refused_also_where_nothing_would_be_changed() {
    let web = fixture(|request| match request {
        Request::Reload { dry_run: true, .. } => Response::Done(Answer::Changed(vec![])),
        request => answer(request),
    });
    let same = r#"{"size":"4K"}"#;
    for (tag, is_stale) in [("7", true), ("8", false), ("*", false)] {
        let tag = if tag == "*" { tag.to_owned() } else { format!("\"{tag}\"") };
        let put = web.ask("PUT", "/api/v1/volumes/v1", &format!("If-Match: {tag}\r\n"), same);
        assert_eq!(put.status == 412, is_stale, "{tag}: {}", put.json());
        assert!(!is_stale || put.code().1 == "revision-stale");
    }
    let now = format!("\"{}\"", web.get("/api/v1/server").json()["revision"]);
    for (tag, is_stale) in [("\"1\"", true), (&*now, false)] {
        let dry = web.ask("POST", "/api/v1/server/reload?dry-run=true", &format!("If-Match: {tag}\r\n"), "{}");
        assert_eq!(dry.status == 412, is_stale, "{tag}: {}", dry.json());
    }
    assert!(web.asked().iter().all(|request| !request.is_change()), "{:?}", web.asked());
}

#[test]
fn a_change_is_a_request_on_the_condition_of_its_tag() {
    let web = usual();
    let made = web.ask("POST", "/api/v1/volumes", "", r#"{"name":"n","store":"ram:1M"}"#);
    assert_eq!((made.status, made.header("location")), (201, Some("/api/v1/volumes/n")));
    assert_eq!(made.json(), json!({ "changed": ["a line"] }));
    let changed = web.ask("PATCH", "/api/v1/volumes/v1", "If-Match: \"8\"\r\n", r#"{"size":"1G"}"#);
    assert_eq!(changed.status, 200);
    let resize = Request::ResizeVolume { name: "v1".into(), size: "1G".into() };
    let on_condition = Request::IfRevision { revision: 8, request: Box::new(resize) };
    assert_eq!(web.asked()[1], Request::Start { request: Box::new(on_condition) });
    let by = web.desk.asked.lock().unwrap()[0].0.clone();
    assert!(matches!(by, Asker::Process { pid, .. } if pid == i32::try_from(std::process::id()).unwrap()), "{by:?}");
    for body in ["{}", r#"{"size":"1G","lun":1}"#, r#"{"sise":"1G"}"#, "[", ""] {
        let refused = web.ask("PATCH", "/api/v1/volumes/v1", "Content-Type: application/json\r\n", body);
        assert_eq!(refused.code(), (400, "request-invalid".into()), "{body}");
    }
    let untyped = web.ask("PATCH", "/api/v1/volumes/v1", "Content-Type: text/plain\r\n", r#"{"size":"1G"}"#);
    assert_eq!(untyped.code(), (415, "content-type-unsupported".into()));
    let weak = web.ask("DELETE", "/api/v1/volumes/v1", "If-Match: W/\"8\"\r\n", "");
    assert_eq!(weak.code(), (400, "request-invalid".into()));
    assert_eq!(web.asked().len(), 2, "nothing of that was asked");
}

#[test]
fn what_takes_long_is_a_job() {
    let web = fixture(|request| {
        Response::Done(Answer::Job(match request {
            Request::Start { request } if matches!(**request, Request::RemoveVolume { .. }) => {
                job(JobState::Running, 1)
            }
            Request::Start { request } if matches!(**request, Request::AddVolume { .. }) => job(JobState::Running, 2),
            Request::Start { .. } => job(JobState::Running, 3),
            Request::Job { id: 1, .. } => job(JobState::Done, 1),
            Request::Job { id: 2, .. } => job(JobState::Refused, 2),
            _ => job(JobState::Running, 3),
        }))
    });
    let quick = web.ask("DELETE", "/api/v1/volumes/a", "", "");
    assert_eq!((quick.status, quick.json()), (200, json!({ "changed": ["a line"] })));
    let refused = web.ask("POST", "/api/v1/volumes", "", r#"{"name":"n","store":"ram:1M"}"#);
    assert_eq!(refused.code(), (409, "volume-exists".into()));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    let slow = web.ask("POST", "/api/v1/clients/a/drop", "Prefer: respond-async\r\n", "");
    assert_eq!((slow.status, slow.header("location")), (202, Some("/api/v1/jobs/3")));
    assert_eq!(slow.json()["state"], "running");
}

#[test]
fn who_has_not_shown_who_they_are_may_see_that_the_server_lives() {
    let web = usual();
    let ask = |path: &str| web.ask_by_tcp("GET", path, "", "");
    assert_eq!(ask("/healthz").body, "ok\n");
    assert_eq!(ask("/readyz").body, "ready\n");
    assert_eq!(ask("/openapi.json").json()["info"]["title"], "Sanwire");
    assert_eq!(ask("/api/v1/openapi.json").json()["info"]["title"], "Sanwire");
    assert_eq!(ask("/api/v1/volumes").code(), (401, "unauthenticated".into()));
    assert!(ask("/api/v1/volumes").header("www-authenticate").is_some());
    let change = web.ask_by_tcp("POST", "/api/v1/volumes", "", r#"{"name":"n","store":"ram:1M"}"#);
    assert_eq!(change.code(), (401, "unauthenticated".into()));
    assert_eq!(web.asked(), []);
}

#[test]
fn a_page_elsewhere_reaches_nothing() {
    let web = usual();
    let ask = |headers: &str| web.ask_by_tcp("GET", "/healthz", headers, "");
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:1", "box", "Box:5674"] {
        assert_eq!(ask(&format!("Host: {host}\r\n")).status, 200, "{host}");
    }
    for host in ["evil.example", "box.evil.example", "127.0.0.1.evil.example:80"] {
        assert_eq!(ask(&format!("Host: {host}\r\n")).code(), (421, "host-unknown".into()), "{host}");
    }
    assert_eq!(ask("Host:\r\n").status, 400);
    let two = ask("Host: box\r\nHost: evil.example\r\n");
    assert_eq!(two.code(), (400, "request-invalid".into()), "the other one would count for somebody else");
    let by = |url: &str, host: &str| web.ask_by_tcp("GET", url, &format!("Host: {host}\r\n"), "");
    assert_eq!(by("http://box/healthz", "box").status, 200);
    assert_eq!(by("http://evil.example/healthz", "evil.example").code(), (421, "host-unknown".into()));
    for (url, host) in [("http://evil.example/healthz", "box"), ("http://box/healthz", "evil.example")] {
        assert_eq!(by(url, host).code(), (400, "request-invalid".into()), "{url}, {host}");
    }
    assert_eq!(ask("Host: box\r\nOrigin: http://box\r\nSec-Fetch-Site: same-origin\r\n").status, 200);
    for headers in ["Origin: http://evil.example", "Origin: null", "Origin: http://box:1", "Sec-Fetch-Site: cross-site"]
    {
        assert_eq!(ask(&format!("Host: box\r\n{headers}\r\n")).code(), (403, "origin-foreign".into()), "{headers}");
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let web = usual();
    let body = format!("{{\"name\":\"{}\",\"store\":\"ram:1M\"}}", "x".repeat(512 << 10));
    assert_eq!(web.ask("POST", "/api/v1/volumes", "", &body).code(), (413, "request-too-long".into()));
    let headers = format!("X-Long: {}\r\n", "x".repeat(64 << 10));
    assert_eq!(web.ask("GET", "/healthz", &headers, "").status, 431);
    let nested = "[".repeat(60_000);
    assert_eq!(web.ask("POST", "/api/v1/volumes", "", &nested).code(), (400, "request-invalid".into()));
    assert_eq!(exchange(TcpStream::connect(web.port()).unwrap(), "nonsense\r\n\r\n").status, 400);
    assert_eq!(web.get("/healthz").status, 200, "it goes on");
}

#[test]
fn a_desk_that_panics_hurts_one_request_only() {
    let web = fixture(|request| match request {
        Request::Jobs => panic!("that was meant"),
        request => answer(request),
    });
    assert_eq!(web.get("/api/v1/jobs").code(), (500, "defect".into()));
    assert_eq!(web.get("/api/v1/volumes").status, 200);
}

#[test]
fn listeners_are_bounded_and_their_places_come_back() {
    let web = usual();
    let listen = || {
        let mut stream = std::os::unix::net::UnixStream::connect(web.socket()).unwrap();
        stream.write_all(request("GET", "/api/v1/events", "", "").as_bytes()).unwrap();
        let mut text = [0; 12];
        stream.read_exact(&mut text).unwrap();
        (stream, String::from_utf8_lossy(&text).into_owned())
    };
    let listeners: Vec<_> = (0..LISTENERS_MAX).map(|_| listen()).collect();
    assert!(listeners.iter().all(|(_, text)| text == "HTTP/1.1 200"));
    assert_eq!(web.get("/api/v1/events").code(), (503, "listeners-too-many".into()));
    assert_eq!(web.get("/api/v1/volumes").status, 200);
    drop(listeners);
    while listen().1 != "HTTP/1.1 200" {
        std::thread::yield_now();
    }
    assert_eq!(web.get("/api/v1/events?topics=nonsense").code(), (400, "request-invalid".into()));
}
