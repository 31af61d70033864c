//! Who was let in stays no longer than the account, the password and the code by which they came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

use super::accounts::{PASSWORD, cookie, log_in, with_administrator};
use super::requests::answer;
use super::streams::with_log;
use super::{Fixture, Reply, exchange, fixture, request};

fn user(name: &str, role: &str) -> String {
    json!({ "name": name, "role": role, "password": PASSWORD }).to_string()
}

/// A new token of that role: its header, and its number.
fn token(web: &Fixture, role: &str) -> (String, String) {
    let made = web.ask("POST", "/api/v1/tokens", "", &json!({ "name": role, "role": role }).to_string()).json();
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (format!("Authorization: Bearer {}\r\n", text("token")), text("id"))
}

/// Sends the head of a request, and waits until its body is waited for.
fn begin(web: &Fixture, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(web.port()).unwrap();
    let whole = request(method, path, &format!("{headers}Expect: 100-continue\r\n"), body);
    let (head, _) = whole.split_once("\r\n\r\n").unwrap();
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
    let mut text = [0; 25];
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

/// Has the desk stop at the first such line: who sends lets it go on.
fn stop_at(web: &Fixture, wanted: &'static str) -> (Receiver<()>, Sender<()>) {
    let ((reached, is_there), (go, going)) = (mpsc::channel(), mpsc::channel());
    let once = Mutex::new(Some((reached, going)));
    let stop = move |line: &str| {
        let first = if line.contains(wanted) { once.lock().unwrap().take() } else { None };
        if let Some((reached, going)) = first {
            let _: (_, Result<(), _>) = (reached.send(()), going.recv());
        }
    };
    *web.desk.on_note.lock().unwrap() = Some(Arc::new(stop));
    (is_there, go)
}

#[test]
fn an_administrator_who_is_removed_while_a_request_comes_changes_nothing() {
    let (web, _) = with_administrator();
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user("mallory", "administrator")).status, 201);
    let mallory = cookie(&log_in(&web, "mallory", PASSWORD)).replace("Content-Type: application/json\r\n", "");
    let (token, id) = token(&web, "administrator");
    let begun = |headers: &str, path: &str, body: &str| (begin(&web, "POST", path, headers, body), body.to_owned());
    let volume = r#"{"name":"n","store":"ram:1M"}"#;
    let requests = [
        begun(&mallory, "/api/v1/users", &user("m2", "administrator")),
        begun(&mallory, "/api/v1/tokens", r#"{"name":"m3","role":"administrator"}"#),
        begun(&mallory, "/api/v1/volumes", volume),
        begun(&token, "/api/v1/users", &user("m4", "administrator")),
        begun(&token, "/api/v1/volumes", volume),
    ];
    assert_eq!(web.ask("DELETE", "/api/v1/users/mallory", "", "").status, 200);
    assert_eq!(web.ask("DELETE", &format!("/api/v1/tokens/{id}"), "", "").status, 200);
    for (stream, body) in requests {
        assert_eq!(exchange(stream, &body).code(), (401, "unauthenticated".into()), "{body}");
    }
    let names = |path: &str| web.get(path).json()["items"].clone();
    let users = names("/api/v1/users");
    assert_eq!((users.as_array().map(Vec::len), &users[0]["name"]), (Some(1), &json!("root")), "{users}");
    assert_eq!((names("/api/v1/tokens"), web.asked()), (json!([]), vec![]));
}

#[test]
fn a_role_counts_as_it_is_when_the_body_has_come() {
    let (web, _) = with_administrator();
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user("eve", "administrator")).status, 201);
    let eve = cookie(&log_in(&web, "eve", PASSWORD)).replace("Content-Type: application/json\r\n", "");
    let body = user("m2", "administrator");
    let stream = begin(&web, "POST", "/api/v1/users", &eve, &body);
    assert_eq!(web.ask("PATCH", "/api/v1/users/eve", "", r#"{"role":"operator"}"#).status, 200);
    assert_eq!(exchange(stream, &body).code(), (403, "not-permitted".into()));
}

#[test]
fn tokens_of_a_user_who_is_removed_hold_on_and_are_named() {
    let (web, _) = with_administrator();
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user("ann", "administrator")).status, 201);
    let ann = cookie(&log_in(&web, "ann", PASSWORD));
    let made = web.ask_by_tcp("POST", "/api/v1/tokens", &ann, r#"{"name":"csi","role":"viewer"}"#).json();
    let told = web.ask("DELETE", "/api/v1/users/ann", "", "").json();
    let line = format!(
        "token csi ({}), which it has made, holds on: remove it if nobody uses it",
        made["id"].as_str().unwrap()
    );
    assert_eq!(told["changed"], json!(["user ann is gone", line]));
    let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/volumes", &token, "").status, 200);
}

#[test]
fn a_password_that_was_typed_as_a_name_is_written_down_nowhere() {
    let (web, _) = with_administrator();
    assert_eq!(log_in(&web, "hunter2-hunter2", PASSWORD).status, 401);
    assert_eq!(log_in(&web, "root", "wrong").status, 401);
    let noted = web.desk.noted.lock().unwrap().join("\n");
    assert!(!noted.contains("hunter2"), "{noted}");
    assert!(noted.contains("a user that is not there") && noted.contains("as \"root\""), "{noted}");
}

#[test]
fn a_stream_of_events_ends_with_the_account_that_listens() {
    let (web, log) = with_log();
    let (token, id) = token(&web, "viewer");
    let mut stream = TcpStream::connect(web.port()).unwrap();
    stream.write_all(request("GET", "/api/v1/events", &token, "").as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    log.note();
    assert!(lines.any(|line| line == "id: 1:1"));
    assert_eq!(web.ask("DELETE", &format!("/api/v1/tokens/{id}"), "", "").status, 200);
    log.note();
    let rest: Vec<String> = lines.filter(|line| line.starts_with("id:")).collect();
    assert_eq!(rest, [""; 0]);
}

#[test]
fn the_code_of_the_first_administrator_ends_with_the_first_administrator() {
    let web = fixture(answer);
    let link = web.web.log_in_link().unwrap().unwrap();
    let (_, code) = link.split_once("/#code=").unwrap();
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user("root", "administrator")).status, 201);
    let body = json!({ "code": code, "name": "root", "password": "taken over!" }).to_string();
    assert_eq!(web.ask_by_tcp("POST", "/api/v1/bootstrap", "", &body).code(), (401, "login-refused".into()));
    assert_eq!(log_in(&web, "root", PASSWORD).status, 201);
    assert_eq!(web.web.log_in_link().unwrap(), None, "there is nobody whom it could make");
}

#[test]
fn a_code_makes_a_user_and_changes_none() {
    let web = fixture(answer);
    let link = web.web.log_in_link().unwrap().unwrap();
    let (_, code) = link.split_once("/#code=").unwrap();
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user("eve", "viewer")).status, 201);
    let body = |name: &str| json!({ "code": code, "name": name, "password": "another one!" }).to_string();
    let taken = web.ask_by_tcp("POST", "/api/v1/bootstrap", "", &body("eve"));
    assert_eq!(taken.code(), (409, "account-exists".into()));
    assert_eq!(web.ask_by_tcp("POST", "/api/v1/bootstrap", "", &body("root")).status, 201, "the code was kept");
    assert_eq!(log_in(&web, "eve", PASSWORD).status, 201);
}

#[test]
fn a_log_in_by_a_password_that_was_changed_meanwhile_begins_nothing() {
    let (web, _) = with_administrator();
    let (is_there, go) = stop_at(&web, "logged in by HTTP");
    let reply: Reply = thread::scope(|scope| {
        let reply = scope.spawn(|| log_in(&web, "root", PASSWORD));
        is_there.recv().unwrap();
        let body = r#"{"password":"another one!"}"#;
        assert_eq!(web.ask("PATCH", "/api/v1/users/root", "", body).status, 200);
        go.send(()).unwrap();
        reply.join().unwrap()
    });
    if reply.status == 201 {
        assert_eq!(web.ask_by_tcp("GET", "/api/v1/session", &cookie(&reply), "").status, 401);
    }
    assert_eq!(log_in(&web, "root", "another one!").status, 201);
}

#[test]
fn a_change_is_carried_through_when_nobody_waits_for_its_end() {
    let (web, _) = with_administrator();
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user("bob", "viewer")).status, 201);
    let bob = cookie(&log_in(&web, "bob", PASSWORD));
    let (is_there, go) = stop_at(&web, "user bob was changed");
    let mut stream = TcpStream::connect(web.port()).unwrap();
    let body = json!({ "password": "another one!", "old_password": PASSWORD }).to_string();
    stream.write_all(request("PATCH", "/api/v1/users/bob", &bob, &body).as_bytes()).unwrap();
    is_there.recv().unwrap();
    drop(stream);
    // The server sees that the client is gone before it goes on with this.
    (0..8).for_each(|_| assert_eq!(web.get("/healthz").status, 200));
    go.send(()).unwrap();
    assert_eq!(web.ask_by_tcp("GET", "/api/v1/session", &bob, "").status, 401, "its sessions have ended");
}

#[test]
fn who_never_had_an_administrator_may_be_changed() {
    let web = fixture(answer);
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user("v", "viewer")).status, 201);
    let own = cookie(&log_in(&web, "v", PASSWORD));
    let body = json!({ "password": "another one!", "old_password": PASSWORD }).to_string();
    assert_eq!(web.ask_by_tcp("PATCH", "/api/v1/users/v", &own, &body).status, 200);
    assert!(web.web.log_in_link().unwrap().is_some(), "nobody can administer by TCP");
    assert_eq!(web.ask("DELETE", "/api/v1/users/v", "", "").status, 200);
}
