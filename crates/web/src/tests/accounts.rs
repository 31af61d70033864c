//! Who is let in, and as what.

use std::thread;
use std::time::Instant;

use sanwire_server::{Request, WebLinkError};
use serde_json::json;

use super::requests::answer;
use super::{Fixture, Reply, fixture};

pub(super) const PASSWORD: &str = "correct horse battery";

/// An API with an administrator, who is logged in: its cookie.
pub(super) fn with_administrator() -> (Fixture, String) {
    let web = fixture(answer);
    let link = web.web.links()(None).unwrap();
    let (_, code) = link.split_once("/#code=").unwrap();
    let body = json!({ "code": code, "name": "root", "password": PASSWORD }).to_string();
    let made = web.ask_by_tcp("POST", "/api/v1/bootstrap", "", &body);
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(web.ask_by_tcp("POST", "/api/v1/bootstrap", "", &body).code(), (401, "login-refused".into()));
    let cookie = cookie(&made);
    (web, cookie)
}

/// The headers of a page of the server itself.
pub(super) fn cookie(reply: &Reply) -> String {
    let text = reply.header("set-cookie").unwrap();
    assert!(text.contains("HttpOnly; SameSite=Strict") && text.contains("Max-Age=43200"), "{text}");
    let (cookie, _) = text.split_once(';').unwrap();
    format!("Cookie: a=b; {cookie}\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\n")
}

pub(super) fn log_in(web: &Fixture, name: &str, password: &str) -> Reply {
    web.ask_by_tcp("POST", "/api/v1/session", "", &json!({ "name": name, "password": password }).to_string())
}

#[test]
fn the_first_administrator_comes_by_a_link() {
    let (web, cookie) = with_administrator();
    let session = web.ask_by_tcp("GET", "/api/v1/session", &cookie, "").json();
    assert_eq!(session, json!({ "name": "root", "role": "administrator" }));
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/volumes", &cookie, "").status, 200);
    assert_eq!(log_in(&web, "root", "another one!").code(), (401, "login-refused".into()));
    assert_eq!(log_in(&web, "nobody", PASSWORD).code(), (401, "login-refused".into()));
    assert_eq!(log_in(&web, "root", PASSWORD).status, 201);
    assert_eq!(web.ask_by_tcp("DELETE", "/api/v1/session", &cookie, "").status, 200);
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/volumes", &cookie, "").status, 401);
    let noted = web.desk.noted.lock().unwrap().join("\n");
    for part in [
        "root is an administrator",
        "is refused a log-in by HTTP as a user that is not there",
        "user root at 127.0.0.1",
    ] {
        assert!(noted.contains(part), "{noted}");
    }
    assert!(!noted.contains(PASSWORD));
}

#[test]
fn a_change_by_a_cookie_comes_from_a_page_of_the_server() {
    let (web, cookie) = with_administrator();
    let body = json!({ "name": "n", "store": "ram:1M" }).to_string();
    let ask = |headers: &str| web.ask_by_tcp("POST", "/api/v1/volumes", headers, &body);
    assert_eq!(ask(&cookie).status, 201);
    let plain = cookie.replace("Sec-Fetch-Site: same-origin\r\n", "");
    assert_eq!(ask(&plain).code(), (403, "origin-foreign".into()));
    assert_eq!(ask(&cookie.replace("same-origin", "cross-site")).code(), (403, "origin-foreign".into()));
    let form = cookie.replace("application/json", "text/plain");
    assert_eq!(web.ask_by_tcp("DELETE", "/api/v1/volumes/v1", &form, "").code().0, 415);
}

#[test]
fn roles_bound_what_users_and_tokens_may() {
    let (web, root) = with_administrator();
    let token = |role: &str| {
        let made = web.ask_by_tcp("POST", "/api/v1/tokens", &root, &json!({ "name": role, "role": role }).to_string());
        assert_eq!(made.status, 201);
        let made = made.json();
        let text = made["token"].as_str().unwrap();
        assert!(text.starts_with("swt_") && text.len() == 68, "{text}");
        (format!("Authorization: Bearer {text}\r\n"), made["id"].as_str().unwrap().to_owned())
    };
    let [metrics, viewer, operator] = ["metrics", "viewer", "operator"].map(token);
    let ask = |headers: &str, method: &str, path: &str, body: &str| web.ask_by_tcp(method, path, headers, body).status;
    let [resize, add] = [r#"{"size":"1G"}"#, r#"{"name":"n","store":"ram:1M"}"#];
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(ask(&metrics.0, "GET", path, ""), 200, "{path}");
    }
    for path in ["volumes", "sessions", "events", "events?follow=false", "clients", "statistics", "server", "users"] {
        assert_eq!(ask(&metrics.0, "GET", &format!("/api/v1/{path}"), ""), 403, "{path}");
    }
    assert_eq!(ask(&metrics.0, "PATCH", "/api/v1/volumes/v1", resize), 403);
    assert_eq!(ask(&viewer.0, "GET", "/metrics", ""), 200);
    assert_eq!(ask(&viewer.0, "GET", "/api/v1/volumes", ""), 200);
    assert_eq!(ask(&viewer.0, "PATCH", "/api/v1/volumes/v1", resize), 403);
    assert_eq!(ask(&operator.0, "PATCH", "/api/v1/volumes/v1", resize), 200);
    assert_eq!(ask(&operator.0, "POST", "/api/v1/volumes", add), 403);
    let resize_in_pools = Request::InPools {
        pools: vec![],
        request: Box::new(Request::ResizeVolume { name: "v1".into(), size: "1G".into() }),
    };
    assert_eq!(web.asked().last(), Some(&Request::Start { request: Box::new(resize_in_pools) }));
    let manages = r#"{"id":"0123456789abcdef0123456789abcdef","settings":{"manage":true}}"#;
    assert_eq!(ask(&operator.0, "POST", "/api/v1/clients", manages), 403);
    for path in ["/api/v1/users", "/api/v1/tokens"] {
        assert_eq!(ask(&operator.0, "GET", path, ""), 403);
    }
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/tokens", &root, "").json()["total"], 3);
    assert_eq!(ask(&root, "DELETE", &format!("/api/v1/tokens/{}", viewer.1), ""), 200);
    assert_eq!(ask(&viewer.0, "GET", "/api/v1/volumes", ""), 401);
    assert_eq!(ask("Authorization: Basic eDp5\r\n", "GET", "/healthz", ""), 401);
}

#[test]
fn a_token_may_be_limited_to_pools() {
    let (web, root) = with_administrator();
    let make = |body: serde_json::Value| web.ask_by_tcp("POST", "/api/v1/tokens", &root, &body.to_string());
    let made = make(json!({ "name": "csi", "role": "operator", "pools": ["fast"] })).json();
    let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    assert_eq!(web.ask_by_tcp("DELETE", "/api/v1/volumes/v1?content=delete", &token, "").status, 200);
    let delete = Request::DeleteVolume { name: "v1".into(), force: false, snapshots: false };
    let in_pools = Request::InPools { pools: vec!["fast".into()], request: Box::new(delete) };
    assert_eq!(web.asked().last(), Some(&Request::Start { request: Box::new(in_pools) }));
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/tokens", &root, "").json()["items"][0]["pools"], json!(["fast"]));
    for body in [
        json!({ "name": "a", "role": "administrator", "pools": ["fast"] }),
        json!({ "name": "a", "role": "operator", "pools": [""] }),
        json!({ "name": "a", "role": "operator", "pools": vec!["p"; 65] }),
    ] {
        assert_eq!(make(body).code(), (422, "account-invalid".into()));
    }
}

#[test]
fn a_token_that_does_not_hold_is_written_down_but_not_each_time() {
    let (web, _) = with_administrator();
    for _ in 0..30 {
        assert_eq!(web.ask_by_tcp("GET", "/api/v1/volumes", "Authorization: Bearer swt_0\r\n", "").status, 401);
    }
    let noted = web.desk.noted.lock().unwrap();
    let lines = noted.iter().filter(|line| line.contains("is refused a token by HTTP")).count();
    assert!((1..=12).contains(&lines), "{lines}");
}

#[test]
fn a_link_is_for_the_first_administrator_or_for_a_user() {
    let (web, root) = with_administrator();
    let link = web.web.links();
    assert_eq!(link(None), Err(WebLinkError::Begun));
    assert_eq!(link(Some("eve")), Err(WebLinkError::NoUser("eve".into())));
    let user = json!({ "name": "eve", "role": "viewer", "password": PASSWORD }).to_string();
    assert_eq!(web.ask_by_tcp("POST", "/api/v1/users", &root, &user).status, 201);
    let made = link(Some("eve")).unwrap();
    let (_, code) = made.split_once("/#code=").unwrap();
    let begin = |name: &str| json!({ "code": code, "name": name, "password": "another one!" }).to_string();
    let refused = web.ask_by_tcp("POST", "/api/v1/bootstrap", "", &begin("root"));
    assert_eq!(refused.code(), (401, "login-refused".into()));
    let done = web.ask_by_tcp("POST", "/api/v1/bootstrap", "", &begin("eve"));
    assert_eq!((done.status, done.json()["role"].clone()), (201, json!("viewer")));
    assert_eq!(log_in(&web, "eve", "another one!").status, 201);
}

#[test]
fn users_are_changed_and_the_last_administrator_stays() {
    let (web, root) = with_administrator();
    let ask = |headers: &str, method: &str, path: &str, body: &str| web.ask_by_tcp(method, path, headers, body);
    let user = json!({ "name": "eve", "role": "viewer", "password": PASSWORD }).to_string();
    assert_eq!(ask(&root, "POST", "/api/v1/users", &user).status, 201);
    assert_eq!(ask(&root, "POST", "/api/v1/users", &user).code(), (409, "account-exists".into()));
    let short = json!({ "name": "x", "role": "viewer", "password": "short" }).to_string();
    assert_eq!(ask(&root, "POST", "/api/v1/users", &short).code(), (422, "account-invalid".into()));
    let eve = cookie(&log_in(&web, "eve", PASSWORD));
    assert_eq!(ask(&eve, "PATCH", "/api/v1/users/eve", r#"{"role":"administrator"}"#).status, 403);
    assert_eq!(ask(&eve, "PATCH", "/api/v1/users/root", r#"{"password":"taken over!"}"#).status, 403);
    let own = |old: &str| json!({ "password": "another one!", "old_password": old }).to_string();
    let missing = ask(&eve, "PATCH", "/api/v1/users/eve", r#"{"password":"another one!"}"#);
    assert_eq!(missing.code(), (422, "account-invalid".into()), "whoever finds a page open has no password");
    let wrong = ask(&eve, "PATCH", "/api/v1/users/eve", &own("another one!"));
    assert_eq!(wrong.code(), (403, "not-permitted".into()));
    assert_eq!(ask(&eve, "PATCH", "/api/v1/users/eve", &own(PASSWORD)).status, 200);
    assert_eq!(ask(&eve, "GET", "/api/v1/session", "").status, 401, "its sessions have ended");
    assert_eq!(ask(&root, "DELETE", "/api/v1/users/root", "").code(), (409, "account-last".into()));
    assert_eq!(ask(&root, "PATCH", "/api/v1/users/root", r#"{"role":"viewer"}"#).code(), (409, "account-last".into()));
    assert_eq!(ask(&root, "DELETE", "/api/v1/users/eve", "").status, 200);
    assert_eq!(ask(&root, "DELETE", "/api/v1/users/eve", "").code(), (404, "account-unknown".into()));
}

#[test]
fn a_storm_of_log_ins_is_refused_and_hurts_nobody() {
    let (web, root) = with_administrator();
    let begun = Instant::now();
    // All at once: one after the other they take so long on a busy host that none is refused.
    let codes: Vec<u16> = thread::scope(|scope| {
        let attempts: Vec<_> = (0..20).map(|_| scope.spawn(|| log_in(&web, "root", "a wrong one!").status)).collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
    });
    // Six at once, and one each ten seconds.
    let allowed = 7 + begun.elapsed().as_secs() / 10;
    assert!(codes.iter().filter(|code| **code == 401).count() as u64 <= allowed && codes.contains(&429), "{codes:?}");
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/volumes", &root, "").status, 200, "who is logged in goes on");
}

#[test]
fn what_http_does_is_in_the_metrics() {
    let (web, root) = with_administrator();
    assert_eq!(log_in(&web, "nobody", PASSWORD).status, 401);
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/volumes/v1", &root, "").status, 200);
    assert_eq!(web.ask_by_tcp("BREW", "/coffee", &root, "").status, 404);
    let text = web.web.metrics()();
    for line in [
        "sanwire_http_requests_total{route=\"/api/v1/volumes/{volume}\",method=\"GET\",code=\"200\"} 1",
        "sanwire_http_requests_total{route=\"none\",method=\"other\",code=\"404\"} 1",
        "sanwire_http_logins_total{result=\"done\"} 1",
        "sanwire_http_logins_total{result=\"refused\"} 2",
        "sanwire_http_event_listeners 0",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
}

#[test]
fn a_token_with_a_time_is_refused_after_it_by_a_code_of_its_own() {
    let (web, root) = with_administrator();
    let make = |body: serde_json::Value| web.ask_by_tcp("POST", "/api/v1/tokens", &root, &body.to_string());
    let made = make(json!({ "name": "short", "role": "viewer", "expires_seconds": 2 })).json();
    let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let mut last = web.ask_by_tcp("GET", "/api/v1/volumes", &token, "");
    assert_eq!(last.status, 200);
    let listed = web.ask_by_tcp("GET", "/api/v1/tokens", &root, "").json()["items"][0].clone();
    let [made, expires] =
        ["made", "expires"].map(|key| humantime::parse_rfc3339(listed[key].as_str().unwrap()).unwrap());
    assert_eq!(expires.duration_since(made).unwrap().as_secs(), 2);
    let begun = Instant::now();
    while last.status == 200 && begun.elapsed().as_secs() < 60 {
        last = web.ask_by_tcp("GET", "/api/v1/volumes", &token, "");
    }
    assert_eq!(last.code(), (401, "token-expired".into()));
    assert!(last.header("www-authenticate").is_some());
    assert_eq!(web.ask_by_tcp("POST", "/api/v1/session", &token, "{}").code(), (401, "token-expired".into()));
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/tokens", &root, "").json()["total"], 1, "it is still seen");
    let forever = make(json!({ "name": "long", "role": "viewer", "expires_seconds": null })).json();
    let listed = web.ask_by_tcp("GET", "/api/v1/tokens", &root, "").json();
    let item = listed["items"].as_array().unwrap().iter().find(|item| item["id"] == forever["id"]).unwrap();
    assert_eq!(item["expires"], json!(null));
    for seconds in [json!(0), json!(10_u64.pow(12))] {
        let refused = make(json!({ "name": "a", "role": "viewer", "expires_seconds": seconds }));
        assert_eq!(refused.code(), (422, "account-invalid".into()), "{seconds}");
    }
    for seconds in [json!(-1), json!("1h"), json!(1.5)] {
        let refused = make(json!({ "name": "a", "role": "viewer", "expires_seconds": seconds }));
        assert_eq!(refused.code(), (400, "request-invalid".into()), "{seconds}");
    }
}

#[test]
fn what_is_no_token_of_this_server_proves_nothing() {
    let (web, root) = with_administrator();
    let (other, of_other) = with_administrator();
    let token = |web: &Fixture, headers: &str| {
        let made = web.ask_by_tcp("POST", "/api/v1/tokens", headers, r#"{"name":"t","role":"administrator"}"#).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let (own, foreign) = (token(&web, &root), token(&other, &of_other));
    let session = root.split(&format!("sanwire-{}=", web.port().port())).nth(1).unwrap().split("\r\n").next().unwrap();
    let ask = |authorization: &str| {
        web.ask_by_tcp("GET", "/api/v1/volumes", &format!("Authorization: {authorization}\r\n"), "")
    };
    assert_eq!(ask(&format!("Bearer {own}")).status, 200);
    assert_eq!(ask(&format!("bEARER  {own} ")).status, 200, "as RFC 9110 has it");
    let (cut, secret) = (&own[..own.len() - 1], own.trim_start_matches("swt_"));
    let others = [
        foreign.clone(),
        cut.to_owned(),
        format!("{own}0"),
        format!("{own} {own}"),
        own.to_uppercase(),
        secret.to_owned(),
        session.to_owned(),
        format!("swt_{session}"),
        "swt_".to_owned(),
        String::new(),
        format!("swt_{}", "0".repeat(8000)),
        "swt_\u{fc}".to_owned(),
    ];
    for text in others {
        let refused = ask(&format!("Bearer {text}"));
        assert_eq!(refused.code(), (401, "unauthenticated".into()), "{text}");
        assert!(!refused.body.contains("swt_"), "{refused:?}");
    }
    for authorization in [own.clone(), format!("Basic {own}"), format!("Bearer:{own}"), format!("Token {own}")] {
        assert_eq!(ask(&authorization).code(), (401, "unauthenticated".into()), "{authorization}");
    }
    // A cookie does not make up for it, and the text of a token is none of a session.
    let both = web.ask_by_tcp("GET", "/api/v1/volumes", &format!("{root}Authorization: Bearer {cut}\r\n"), "");
    assert_eq!(both.code(), (401, "unauthenticated".into()));
    for text in [&own, secret] {
        let cookie = format!("Cookie: sanwire-{}={text}\r\n", web.port().port());
        assert_eq!(web.ask_by_tcp("GET", "/api/v1/volumes", &cookie, "").status, 401);
    }
    let noted = web.desk.noted.lock().unwrap().join("\n");
    assert!(!noted.contains(cut) && !noted.contains(&foreign), "{noted}");
}

#[test]
fn a_one_time_link_leads_a_browser_to_a_form_of_its_own() {
    let web = fixture(answer);
    let page = web.ask_by_tcp("GET", "/", "", "");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; connect-src 'self';"), "{policy}");
    // What the policy would refuse is not there.
    assert!(
        !page.body.contains("style=") && !page.body.contains("<script>") && page.body.matches("<script").count() == 1
    );
    let (_, rest) = page.body.split_once("<script src=\"").unwrap();
    let script = web.ask_by_tcp("GET", rest.split('"').next().unwrap(), "", "");
    assert_eq!((script.status, script.header("content-type")), (200, Some("text/javascript; charset=utf-8")));
    for id in script.body.split("getElementById('").skip(1).map(|rest| rest.split('\'').next().unwrap()) {
        assert!(page.body.contains(&format!("id=\"{id}\"")), "{id}");
    }
    assert_eq!(web.ask_by_tcp("GET", "/", "Host: evil.example\r\n", "").code(), (421, "host-unknown".into()));
    assert_eq!(web.ask_by_tcp("POST", "/", "", "").code(), (405, "method-unknown".into()));
    assert_eq!(web.ask_by_tcp("GET", "/index.html", "", "").status, 401);
}

#[test]
fn accounts_change_on_the_condition_of_their_tags_or_are_only_looked_at() {
    let (web, root) = with_administrator();
    let ask = |method: &str, path: &str, headers: &str, body: &str| {
        web.ask_by_tcp(method, &format!("/api/v1{path}"), &format!("{root}{headers}"), body)
    };
    let noted = || web.desk.noted.lock().unwrap().len();
    let user = json!({ "name": "eve", "role": "viewer", "password": PASSWORD }).to_string();
    let before = noted();
    let would = ask("POST", "/users?dry-run=true", "", &user);
    assert_eq!((would.status, would.json()["changed"].clone()), (200, json!(["user eve would be there, as viewer"])));
    assert_eq!((ask("GET", "/users/eve", "", "").code(), noted()), ((404, "account-unknown".into()), before));
    assert_eq!(ask("POST", "/users", "", &user).status, 201);
    assert_eq!(ask("POST", "/users?dry-run=true", "", &user).code(), (409, "account-exists".into()));
    let tag = |path: &str| ask("GET", path, "", "").header("etag").unwrap().to_owned();
    let of = |tag: &str| format!("If-Match: {tag}\r\n");
    let first = tag("/users/eve");
    let (operator, viewer) = (r#"{"role":"operator"}"#, r#"{"role":"viewer"}"#);
    assert_eq!(ask("PATCH", "/users/eve?dry-run=true", &of(&first), operator).status, 200);
    assert_eq!(tag("/users/eve"), first, "it was only looked at");
    assert_eq!(ask("PATCH", "/users/eve", &of(&first), operator).status, 200);
    let second = tag("/users/eve");
    assert_ne!(first, second);
    for (method, path, body) in [
        ("PATCH", "/users/eve", viewer),
        ("PATCH", "/users/eve?dry-run=true", viewer),
        ("DELETE", "/users/eve", ""),
        ("DELETE", "/users/eve?dry-run=true", ""),
    ] {
        assert_eq!(ask(method, path, &of(&first), body).code(), (412, "revision-stale".into()), "{method} {path}");
    }
    let password = json!({ "password": "another one!" }).to_string();
    assert_eq!(ask("PATCH", "/users/eve", &of(&second), &password).status, 200);
    assert_ne!(tag("/users/eve"), second, "a password is a part of it");
    let last = ask("DELETE", "/users/root?dry-run=true", "", "");
    assert_eq!(last.code(), (409, "account-last".into()), "a look finds what a change would");
    let lines = ask("DELETE", "/users/eve?dry-run=true", &of(&tag("/users/eve")), "").json();
    assert_eq!(lines["changed"][0], "user eve would be gone");
    assert_eq!(ask("DELETE", "/users/eve", &of(&tag("/users/eve")), "").status, 200);

    let token = r#"{"name":"csi","role":"viewer"}"#;
    assert_eq!(ask("POST", "/tokens?dry-run=true", "", token).status, 200);
    assert_eq!(ask("GET", "/tokens", "", "").json()["total"], 0);
    let made = ask("POST", "/tokens", "", token).json();
    let path = format!("/tokens/{}", made["id"].as_str().unwrap());
    assert_eq!(ask("DELETE", &path, &of("\"1\""), "").code(), (412, "revision-stale".into()));
    let now = tag(&path);
    assert_eq!(ask("DELETE", &format!("{path}?dry-run=true"), &of(&now), "").status, 200);
    assert_eq!(ask("DELETE", &path, &of(&now), "").status, 200);
    assert_eq!(ask("GET", &path, "", "").status, 404);
}
