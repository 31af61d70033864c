//! Which request each change of content leads to, and what lists of it look like.

use sanwire_server::{
    Answer, ArrayGrowth, AuditLines, AuditQuery, AuditResult, Clearing, CopyOrder, DvdEnd, MemberReplacement, NewDvd,
    NewDvds, PortState, Request, Response, TargetSettings,
};
use serde_json::json;

use super::{Fixture, fixture};

/// Answers as a server does with a pool, and a snapshot there.
fn with_pool() -> Fixture {
    fixture(|request| {
        let pool = json!({
            "revision": 11, "name": "fast", "directory": "/srv/fast", "default": true, "size_bytes": 9, "available_bytes": 8,
            "provisioned_bytes": 7, "limit_bytes": null, "largest_bytes": 6, "volumes": 1, "snapshots": 1, "reflink": true,
        });
        let snapshot = json!({
            "revision": 12, "volume": "v0", "name": "monday", "pool": "fast", "made": "now", "size_bytes": 4096, "protected": true,
        });
        Response::Done(match request {
            Request::Pools => serde_json::from_value(json!({ "pools": [pool] })).unwrap(),
            Request::Snapshots { .. } => serde_json::from_value(json!({ "snapshots": [snapshot] })).unwrap(),
            Request::Audit(_) => {
                let lines = vec![json!({ "time": "now", "result": "done" })];
                Answer::Audit(AuditLines { lines, cursor: "1-2:3".into(), more: true, gone: false })
            }
            request => return super::requests::answer(request),
        })
    })
}

fn derived(name: &str) -> NewDvd {
    NewDvd { parent: "v0".into(), name: name.into(), principals: vec!["any".into()], ..NewDvd::default() }
}

fn alias(text: &str) -> TargetSettings {
    TargetSettings { alias: Some(text.into()), ..TargetSettings::default() }
}

#[test]
fn targets_are_made_changed_and_removed() {
    let web = with_pool();
    let made = web.ask("POST", "/api/v1/targets", "", r#"{"name":"new","settings":{"alias":"x"}}"#);
    assert_eq!((made.status, made.header("location")), (201, Some("/api/v1/targets/iqn.2026-11.org.sanwire:new")));
    let changed = web.ask("PATCH", "/api/v1/targets/new", "If-Match: \"8\"\r\n", r#"{"alias":"x"}"#);
    let removed = web.ask("DELETE", "/api/v1/targets/new?force=true", "", "");
    assert_eq!((changed.status, removed.status), (200, 200));
    let set = Request::SetTarget { name: "new".into(), settings: alias("x"), force: false };
    let wanted = [
        Request::AddTarget { name: "new".into(), settings: alias("x") },
        Request::IfRevision { revision: 8, request: Box::new(set) },
        Request::RemoveTarget { name: "new".into(), force: true },
    ];
    assert_eq!(web.asked(), wanted.map(|request| Request::Start { request: Box::new(request) }));
    for body in [r#"{"alias":7}"#, r#"{"aliass":"x"}"#, r#"{"chap":[{"user":"host","secret":"s","more":1}]}"#, ""] {
        let refused = web.ask("PATCH", "/api/v1/targets/new", "Content-Type: application/json\r\n", body);
        assert_eq!(refused.code(), (400, "request-invalid".into()), "{body}");
    }
    let secret = r#"{"chap":[{"user":"host","secret":["correct horse"]}]}"#;
    let refused = web.ask("PATCH", "/api/v1/targets/new", "", secret);
    assert!(refused.status == 400 && !refused.json().to_string().contains("horse"), "{:?}", refused.json());
}

#[test]
fn a_change_of_a_volume_may_be_only_told() {
    let web = with_pool();
    for (method, path, body, wanted) in [
        (
            "POST",
            "/volumes?dry-run=true",
            r#"{"name":"n","store":"ram:1M"}"#,
            Request::AddVolume { volume: "n=ram:1M".into(), target: None, renew: false, adopt: false },
        ),
        (
            "PATCH",
            "/volumes/v0?dry-run=true",
            r#"{"size":"1G"}"#,
            Request::ResizeVolume { name: "v0".into(), size: "1G".into() },
        ),
        ("DELETE", "/volumes/v0?dry-run=true", "", Request::RemoveVolume { name: "v0".into(), force: false }),
        (
            "DELETE",
            "/volumes/v0?content=delete&dry-run=true&force=true",
            "",
            Request::DeleteVolume { name: "v0".into(), force: true, snapshots: false },
        ),
        (
            "POST",
            "/volumes/v0/snapshots?dry-run=true",
            r#"{"name":"s"}"#,
            Request::Snapshot { volumes: vec!["v0".into()], name: "s".into(), protected: false },
        ),
        (
            "POST",
            "/snapshots?dry-run=true",
            r#"{"volumes":["v0"],"name":"s"}"#,
            Request::Snapshot { volumes: vec!["v0".into()], name: "s".into(), protected: false },
        ),
        (
            "PATCH",
            "/volumes/v0/snapshots/s?dry-run=true",
            r#"{"protected":true}"#,
            Request::SetSnapshot { snapshot: "v0@s".into(), protected: true },
        ),
        ("DELETE", "/volumes/v0/snapshots/s?dry-run=true", "", Request::DeleteSnapshot { snapshot: "v0@s".into() }),
        (
            "POST",
            "/volumes/v0/rollback?dry-run=true&force=true",
            r#"{"snapshot":"s"}"#,
            Request::Rollback { snapshot: "v0@s".into(), force: true, keep: None },
        ),
        (
            "POST",
            "/clients?dry-run=true",
            r#"{"id":"a1"}"#,
            Request::AddClient { id: "a1".into(), settings: Default::default(), force: false },
        ),
        ("DELETE", "/clients/alice?dry-run=true", "", Request::RemoveClient { client: "alice".into(), force: false }),
        (
            "POST",
            "/clients/alice/reset?dry-run=true",
            "",
            Request::ResetClient { client: "alice".into(), force: false },
        ),
        (
            "PUT",
            "/targets/iqn.2026-11.org.sanwire:a/units/3?dry-run=true",
            r#"{"volume":"v0"}"#,
            Request::MapVolume {
                name: "v0".into(),
                lun: Some(3),
                target: Some("iqn.2026-11.org.sanwire:a".into()),
                force: false,
            },
        ),
        (
            "POST",
            "/targets?dry-run=true",
            r#"{"name":"new"}"#,
            Request::AddTarget { name: "new".into(), settings: Default::default() },
        ),
        (
            "PATCH",
            "/targets/new?dry-run=true&force=true",
            r#"{"alias":"x"}"#,
            Request::SetTarget { name: "new".into(), settings: alias("x"), force: true },
        ),
        ("DELETE", "/targets/new?dry-run=true", "", Request::RemoveTarget { name: "new".into(), force: false }),
        (
            "PATCH",
            "/volumes/v0?dry-run=true",
            r#"{"protected":true}"#,
            Request::SetVolume { name: "v0".into(), security: None, protected: Some(true), owners: None },
        ),
        (
            "POST",
            "/volumes/v0/eject?force=true&dry-run=true",
            "",
            Request::EjectVolume { name: "v0".into(), force: true },
        ),
        (
            "POST",
            "/volumes/v0/load?dry-run=true",
            r#"{"store":"file:/a"}"#,
            Request::LoadVolume { name: "v0".into(), store: Some("file:/a".into()) },
        ),
        (
            "PUT",
            "/volumes/n?dry-run=true",
            r#"{"pool":"fast","size":"1M"}"#,
            Request::AddVolume { volume: "n=pool:fast,size=1048576".into(), target: None, renew: false, adopt: false },
        ),
        ("POST", "/volumes/v0/scrub?dry-run=true", "", Request::ScrubVolume { name: "v0".into() }),
        (
            "PATCH",
            "/dvds/cam?dry-run=true",
            r#"{"until":"2h"}"#,
            Request::SetDvd(DvdEnd { name: "cam".into(), until: Some("2h".into()) }),
        ),
        (
            "PUT",
            "/volumes/v0/members/2?dry-run=true",
            r#"{"store":"ram:1M"}"#,
            Request::ReplaceMember(MemberReplacement { name: "v0".into(), member: 2, store: "ram:1M".into() }),
        ),
        (
            "POST",
            "/volumes/v0/grow?dry-run=true",
            "{}",
            Request::GrowArray(ArrayGrowth { name: "v0".into(), add: Vec::new() }),
        ),
        ("DELETE", "/pools/fast?dry-run=true", "", Request::ForgetPool { name: "fast".into() }),
        ("DELETE", "/sessions/1f?dry-run=true", "", Request::DropSession { session: "1f".into() }),
        ("POST", "/clients/a/drop?dry-run=true", "", Request::DropClient { client: "a".into() }),
        ("POST", "/clients/a/pause?dry-run=true", "", Request::PauseClient { client: "a".into() }),
        ("POST", "/clients/a/resume?dry-run=true", "", Request::ResumeClient { client: "a".into() }),
        (
            "PUT",
            "/groups/1?dry-run=true",
            r#"{"state":"standby"}"#,
            Request::SetAccessState(sanwire_server::AccessChange { group: 1, state: PortState::Standby, target: None }),
        ),
        (
            "PUT",
            "/targets/iqn.2026-11.x:a/groups/1?dry-run=true",
            r#"{"state":"standby"}"#,
            Request::SetAccessState(sanwire_server::AccessChange {
                group: 1,
                state: PortState::Standby,
                target: Some("iqn.2026-11.x:a".into()),
            }),
        ),
    ] {
        let told = web.ask(method, &format!("/api/v1{path}"), "", body);
        assert_eq!((told.status, told.header("location")), (200, None), "{method} {path}");
        let wanted = Request::DryRun { request: Box::new(wanted) };
        assert_eq!(web.asked().pop(), Some(Request::Start { request: Box::new(wanted) }), "{method} {path}");
    }
}

#[test]
fn each_change_of_content_is_a_request() {
    let web = with_pool();
    let monday = || "v0@monday".to_owned();
    for (method, path, body, status, wanted) in [
        (
            "POST",
            "/snapshots",
            r#"{"volumes":["v0","v1"],"name":"monday"}"#,
            200,
            Request::Snapshot { volumes: vec!["v0".into(), "v1".into()], name: "monday".into(), protected: false },
        ),
        (
            "POST",
            "/volumes/v0/snapshots",
            r#"{"name":"monday","protected":true}"#,
            201,
            Request::Snapshot { volumes: vec!["v0".into()], name: "monday".into(), protected: true },
        ),
        (
            "PATCH",
            "/volumes/v0/snapshots/monday",
            r#"{"protected":false}"#,
            200,
            Request::SetSnapshot { snapshot: monday(), protected: false },
        ),
        ("DELETE", "/volumes/v0/snapshots/monday", "", 200, Request::DeleteSnapshot { snapshot: monday() }),
        (
            "POST",
            "/volumes/v0/rollback?force=true",
            r#"{"snapshot":"monday","keep":"before"}"#,
            200,
            Request::Rollback { snapshot: monday(), force: true, keep: Some("before".into()) },
        ),
        (
            "POST",
            "/volumes",
            r#"{"name":"copy","source":"v0@monday"}"#,
            201,
            Request::Clone { snapshot: monday(), name: "copy".into(), target: None },
        ),
        (
            "PUT",
            "/volumes/new",
            r#"{"pool":"fast","size":"1M"}"#,
            201,
            Request::AddVolume {
                volume: "new=pool:fast,size=1048576".into(),
                target: None,
                renew: false,
                adopt: false,
            },
        ),
        ("POST", "/volumes/v0/scrub", "", 200, Request::ScrubVolume { name: "v0".into() }),
        (
            "POST",
            "/volumes/v0/dvds/batch",
            r#"{"dvds":[{"name":"d0","principals":["any"]},{"name":"d1","parent":"v0","principals":["any"]}]}"#,
            200,
            Request::CreateDvds(NewDvds { dvds: vec![derived("d0"), derived("d1")] }),
        ),
        ("PATCH", "/dvds/cam", r#"{"until":null}"#, 200, Request::SetDvd(DvdEnd { name: "cam".into(), until: None })),
        (
            "PUT",
            "/volumes/v0/members/2",
            r#"{"store":"file:/b"}"#,
            200,
            Request::ReplaceMember(MemberReplacement { name: "v0".into(), member: 2, store: "file:/b".into() }),
        ),
        (
            "POST",
            "/volumes/v0/grow",
            r#"{"add":["file:/c","file:/d"]}"#,
            200,
            Request::GrowArray(ArrayGrowth { name: "v0".into(), add: vec!["file:/c".into(), "file:/d".into()] }),
        ),
        (
            "POST",
            "/volumes/v0/copies",
            r#"{"to":["hs+ip://10.0.0.1/v"],"verify":true}"#,
            200,
            Request::CopyOut(CopyOrder {
                volume: "v0".into(),
                to: vec!["hs+ip://10.0.0.1/v".into()],
                verify: true,
                ..CopyOrder::default()
            }),
        ),
        ("POST", "/jobs/7/cancel", "", 200, Request::CancelJob { id: 7 }),
        ("DELETE", "/sessions/1f", "", 200, Request::DropSession { session: "1f".into() }),
        ("DELETE", "/volumes/v0", "", 200, Request::RemoveVolume { name: "v0".into(), force: false }),
        (
            "DELETE",
            "/volumes/v0?content=delete&snapshots=true",
            "",
            200,
            Request::DeleteVolume { name: "v0".into(), force: false, snapshots: true },
        ),
        (
            "PATCH",
            "/volumes/v0",
            r#"{"protected":true}"#,
            200,
            Request::SetVolume { name: "v0".into(), security: None, protected: Some(true), owners: None },
        ),
    ] {
        let reply = web.ask(method, &format!("/api/v1{path}"), "", body);
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        assert_eq!(web.asked().last(), Some(&Request::Start { request: Box::new(wanted) }), "{method} {path}");
    }
    let wanted = Request::SetDvd(DvdEnd { name: "cam".into(), until: Some("2h".into()) });
    let wanted = Request::IfRevision { revision: 7, request: Box::new(wanted) };
    assert_eq!(web.ask("PATCH", "/api/v1/dvds/cam", "If-Match: \"7\"\r\n", r#"{"until":"2h"}"#).status, 200);
    assert_eq!(web.asked().last(), Some(&Request::Start { request: Box::new(wanted) }));
    // What is not said is no wish that it lasts for ever.
    let refused = web.ask("PATCH", "/api/v1/dvds/cam", "", "{}");
    assert_eq!(refused.code(), (400, "request-invalid".into()));
    let refused = web.ask("DELETE", "/api/v1/volumes/v0?snapshots=true", "", "");
    assert_eq!(refused.code(), (400, "request-invalid".into()));
    let other = web.ask("PUT", "/api/v1/volumes/v0", "", r#"{"pool":"fast","size":"1M"}"#);
    assert_eq!(other.code(), (409, "volume-exists".into()));
}

#[test]
fn pools_and_snapshots_are_told() {
    let web = with_pool();
    assert_eq!(web.get("/api/v1/pools").json()["items"][0]["largest_bytes"], 6);
    let pool = web.get("/api/v1/pools/fast");
    assert_eq!((&pool.json()["directory"], pool.header("etag")), (&json!("/srv/fast"), Some("\"11\"")));
    assert_eq!(web.get("/api/v1/pools/slow").code(), (404, "pool-unknown".into()));
    assert_eq!(web.get("/api/v1/snapshots").json()["items"][0]["name"], "monday");
    assert_eq!(web.get("/api/v1/volumes/v0/snapshots").json()["total"], 1);
    let snapshot = web.get("/api/v1/volumes/v0/snapshots/monday");
    assert_eq!((&snapshot.json()["protected"], snapshot.header("etag")), (&json!(true), Some("\"12\"")));
    let deleted = web.ask("DELETE", "/api/v1/volumes/v0/snapshots/monday", "If-Match: \"12\"\r\n", "");
    assert_eq!(deleted.status, 200);
    let delete = Request::DeleteSnapshot { snapshot: "v0@monday".into() };
    let wanted = Request::IfRevision { revision: 12, request: Box::new(delete) };
    assert_eq!(web.asked().last(), Some(&Request::Start { request: Box::new(wanted) }));
    assert_eq!(web.get("/api/v1/volumes/v0/snapshots/none").code(), (404, "snapshot-unknown".into()));
}

#[test]
fn the_audit_log_is_read_by_cursor_and_filters() {
    let web = with_pool();
    let page = web.get("/api/v1/audit?after=1-2:0&from=2026-11-23T00:00:00Z&who=alice&result=refused&limit=5").json();
    assert_eq!(
        (&page["next"], &page["more"], &page["items"][0]["result"]),
        (&"1-2:3".into(), &true.into(), &"done".into())
    );
    let wanted = AuditQuery {
        since: Some("1-2:0".into()),
        from: Some("2026-11-23T00:00:00Z".into()),
        who: Some("alice".into()),
        result: Some(AuditResult::Refused),
        limit: Some(5),
        newest: false,
    };
    assert_eq!(web.asked(), [Request::Audit(wanted)]);
    for query in ["limit=0", "limit=513", "result=odd", "from=tomorrow", &format!("who={}", "x".repeat(300))] {
        assert_eq!(web.get(&format!("/api/v1/audit?{query}")).code(), (400, "request-invalid".into()), "{query}");
    }
}

#[test]
fn links_reservations_and_the_configuration_are_told() {
    let web = fixture(|request| {
        Response::Done(match request {
            Request::Links => serde_json::from_value(json!({ "links": [{
                "link": "iscsi:127.0.0.1:3260", "wire": "iscsi", "up": true, "receive_path": null, "connections": 3,
                "received_bytes": 1, "sent_bytes": 2, "received_packets": 0, "sent_packets": 0,
                "kernel_dropped_packets": 0, "unsent_packets": 0, "filtered_packets": 0,
            }] }))
            .unwrap(),
            Request::Reservations { name } => serde_json::from_value(json!({ "reservations": {
                "volume": name, "type": "exclusive-access", "generation": 4, "persistent": false, "reserved_by": null,
                "registrants": [{ "initiator": "client a", "target_port": null, "key": "2a", "holder": true }],
            } }))
            .unwrap(),
            Request::Configuration => serde_json::from_value(json!({ "configuration": {
                "revision": 9, "wires": [], "security": "none", "allow": ["any"], "has_password": true, "pools": [],
                "volumes": [], "targets": [], "clients": [], "deviations": [],
            } }))
            .unwrap(),
            Request::ConfigurationFile => Answer::ConfigurationFile(vec!["# a\n".into(), "[[volume]]\n".into()]),
            request => return super::requests::answer(request),
        })
    });
    let file = web.get("/api/v1/server/configuration/file");
    assert_eq!((&*file.body, file.header("content-type")), ("# a\n\n[[volume]]\n", Some("application/toml")));
    let links = web.get("/api/v1/links?limit=1").json();
    assert_eq!((&links["items"][0]["link"], &links["total"]), (&json!("iscsi:127.0.0.1:3260"), &json!(1)));
    let reservations = web.get("/api/v1/volumes/a%20b/reservations").json();
    assert_eq!((&reservations["volume"], &reservations["registrants"][0]["key"]), (&json!("a b"), &json!("2a")));
    let configuration = web.get("/api/v1/server/configuration");
    assert_eq!(
        (configuration.header("etag"), configuration.json()["has_password"].clone()),
        (Some("\"9\""), json!(true))
    );
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/server/configuration", "", "").status, 401);
}

#[test]
fn who_replaces_a_member_is_an_administrator() {
    let web = with_pool();
    let made = web.ask("POST", "/api/v1/tokens", "", r#"{"name":"o","role":"operator"}"#).json();
    let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let ask = |method: &str, path: &str, body: &str| web.ask_by_tcp(method, path, &token, body).status;
    assert_eq!(ask("PUT", "/api/v1/volumes/v0/members/1", r#"{"store":"ram:1M"}"#), 403);
    assert_eq!(ask("PUT", "/api/v1/volumes/v0/members/1?dry-run=true", r#"{"store":"ram:1M"}"#), 403);
    assert_eq!(ask("DELETE", "/api/v1/pools/fast?dry-run=true", ""), 403);
    assert_eq!(ask("POST", "/api/v1/volumes/v0/copies", r#"{"to":["hs+ip://10.0.0.1/v"]}"#), 403, "it leads elsewhere");
    assert_eq!(ask("POST", "/api/v1/volumes/v0/scrub", ""), 200);
}

#[test]
fn a_support_bundle_is_for_administrators_and_names_what_is_not_in_it() {
    let web = with_pool();
    let bundle = web.get("/api/v1/support-bundle").json();
    assert_eq!(
        (&bundle["schema"], &bundle["status"]["name"], &bundle["audit"]["cursor"]),
        (&json!(1), &json!("box"), &json!("1-2:3")),
        "{bundle}"
    );
    // This desk knows nothing of them.
    let absent = bundle["absent"]["statistics"].as_str().unwrap_or_default();
    assert!(absent.contains("Statistics") && bundle.get("statistics").is_none(), "{bundle}");
    for role in ["viewer", "operator"] {
        let made = web.ask("POST", "/api/v1/tokens", "", &json!({ "name": role, "role": role }).to_string()).json();
        let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
        let refused = web.ask_by_tcp("GET", "/api/v1/support-bundle", &token, "");
        assert_eq!(refused.code(), (403, "not-permitted".into()), "{role}");
    }
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/support-bundle", "", "").status, 401);
}

#[test]
fn reservations_are_ended_as_a_whole_or_by_their_key() {
    let web = with_pool();
    let clear = |key: Option<&str>, force| {
        Request::ClearReservations(Clearing { name: "v1".into(), key: key.map(str::to_owned), force })
    };
    let path = "/api/v1/volumes/v1/reservations";
    assert_eq!(web.ask("DELETE", path, "If-Match: \"8\"\r\n", "").status, 200);
    assert_eq!(web.ask("DELETE", &format!("{path}/2a?force=true&dry-run=true"), "", "").status, 200);
    let on_condition = Request::IfRevision { revision: 8, request: Box::new(clear(None, false)) };
    let rehearsed = Request::DryRun { request: Box::new(clear(Some("2a"), true)) };
    let started = [on_condition, rehearsed].map(|request| Request::Start { request: Box::new(request) });
    assert_eq!(web.asked(), started);
    assert_eq!(web.ask("DELETE", &format!("{path}?dry-rum=true"), "", "").status, 400);
    let made = web.ask("POST", "/api/v1/tokens", "", r#"{"name":"v","role":"viewer"}"#).json();
    let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    assert_eq!(web.ask_by_tcp("DELETE", path, &token, "").code(), (403, "not-permitted".into()));
}

#[test]
fn who_uses_a_volume_and_what_takes_longest_there_is_told() {
    let web = fixture(|request| {
        Response::Done(match request {
            Request::Commands { name } if name == "v 1" => serde_json::from_value(json!({ "commands": [{
                "operation": "read", "lba": 8, "blocks": 1, "age_ms": 1500, "waits_for": "store", "session": "1f",
                "client": "a1", "wire": "hyperscsi", "address": "192.0.2.1:1",
            }] }))
            .unwrap(),
            Request::VolumeSessions { .. } => Answer::Sessions(Vec::new()),
            request => return super::requests::answer(request),
        })
    });
    let commands = web.get("/api/v1/volumes/v%201/commands").json();
    assert_eq!((&commands["items"][0]["age_ms"], &commands["items"][0]["session"]), (&json!(1500), &json!("1f")));
    assert_eq!(web.get("/api/v1/volumes/v1/clients").json(), json!({ "items": [], "next": null, "total": 0 }));
    assert_eq!(web.asked().last(), Some(&Request::VolumeSessions { name: "v1".into() }));
}
