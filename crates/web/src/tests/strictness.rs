//! What nobody would read, and what could be read in two ways, is refused.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use sanwire_server::{Answer, JobState, Request, Response};
use serde_json::json;

use super::accounts::{PASSWORD, cookie, log_in, with_administrator};
use super::requests::{answer, job};
use super::{exchange, fixture, request};
use crate::limits::{LISTENERS_MAX, LISTENERS_OF_ACCOUNT_MAX, MANAGED_MAX};

#[test]
fn what_an_operation_does_not_read_is_refused() {
    let web = fixture(answer);
    let document = web.get("/api/v1/openapi.json").json();
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let place: String = path
                .split('/')
                .map(|part| if part.starts_with('{') { "1" } else { part })
                .collect::<Vec<_>>()
                .join("/");
            let place = if place.starts_with('/') { place } else { format!("/{place}") };
            let method = method.to_ascii_uppercase();
            let has_body = !operation["requestBody"].is_null();
            let refused = web.ask(&method, &format!("{place}?nonsense=1"), "", if has_body { "{}" } else { "" });
            assert_eq!(refused.code(), (400, "request-invalid".into()), "{method} {path}");
            if !has_body {
                assert_eq!(
                    web.ask(&method, &place, "", "{}").code(),
                    (400, "request-invalid".into()),
                    "{method} {path}"
                );
            }
            count += 1;
        }
    }
    assert!(count > 30 && web.asked().is_empty(), "{count}: {:?}", web.asked());
}

#[test]
fn a_condition_that_a_change_does_not_read_is_refused() {
    let web = fixture(answer);
    let document = web.get("/api/v1/openapi.json").json();
    let (mut with, mut without) = (0, 0);
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "get") {
            let place: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect();
            let ask = |headers: &str| web.ask(&method.to_ascii_uppercase(), &place.join("/"), headers, "");
            for unread in ["If-None-Match: *\r\n", "If-Unmodified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n"] {
                assert_eq!(ask(unread).code(), (400, "request-invalid".into()), "{method} {path}");
            }
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            if parameters.into_iter().any(|parameter| parameter["name"] == "If-Match") {
                with += 1;
                continue;
            }
            // A session of HTTP is that of who asks, and nothing that others change.
            let is_of_item = method != "post" && path != "/api/v1/session";
            assert!(!is_of_item, "{method} {path} takes no condition");
            let refused = ask("If-Match: \"8\"\r\n");
            assert_eq!(refused.code(), (400, "request-invalid".into()), "{method} {path}");
            assert!(refused.body.contains("If-Match"), "{refused:?}");
            without += 1;
        }
    }
    assert!(with > 20 && without > 5 && web.asked().is_empty(), "{with}, {without}: {:?}", web.asked());
    assert_eq!(web.ask("GET", "/api/v1/volumes/v1", "If-None-Match: \"8\"\r\n", "").status, 200);
}

#[test]
fn a_field_that_stands_there_twice_is_refused() {
    let (web, _) = with_administrator();
    let body = format!(r#"{{"name":"x","role":"viewer","role":"administrator","password":"{PASSWORD}"}}"#);
    assert_eq!(web.ask("POST", "/api/v1/users", "", &body).code(), (400, "request-invalid".into()));
    assert_eq!(web.get("/api/v1/users").json()["total"], 1);
}

#[test]
fn what_is_wrong_with_a_body_is_told_without_what_stands_in_it() {
    let web = fixture(answer);
    for body in
        [r#"{"name":"x","role":"hunter2 hunter2"}"#, r#"{"hunter2":1}"#, r#"{"name":{"hunter2":1},"role":"viewer"}"#]
    {
        let refused = web.ask("POST", "/api/v1/tokens", "", body);
        assert_eq!(refused.code(), (400, "request-invalid".into()));
        assert!(!refused.body.contains("hunter2"), "{refused:?}");
    }
}

#[test]
fn an_empty_condition_is_none_that_could_be_met() {
    let web = fixture(answer);
    for tag in ["", ",", "\"+8\"", "*, *"] {
        let refused = web.ask("PATCH", "/api/v1/volumes/v1", &format!("If-Match: {tag}\r\n"), r#"{"size":"1G"}"#);
        assert_eq!(refused.code(), (400, "request-invalid".into()), "{tag:?}");
    }
    assert_eq!(web.ask("PATCH", "/api/v1/volumes/v1", "If-Match: *\r\n", r#"{"size":"1G"}"#).status, 200);
}

#[test]
fn a_name_that_leads_elsewhere_in_a_path_is_refused() {
    let web = fixture(answer);
    for name in [".", ".."] {
        let user = json!({ "name": name, "role": "viewer", "password": PASSWORD }).to_string();
        assert_eq!(web.ask("POST", "/api/v1/users", "", &user).code(), (422, "account-invalid".into()));
    }
}

#[test]
fn who_has_no_account_sends_little() {
    let web = fixture(answer);
    let long = json!({ "name": "x".repeat(4000), "password": PASSWORD }).to_string();
    assert_eq!(web.ask_by_tcp("POST", "/api/v1/session", "", &long).code(), (413, "request-too-long".into()));
    let chunked = "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n";
    let text = request("POST", "/api/v1/session", chunked, "") + &format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    let refused = exchange(TcpStream::connect(web.port()).unwrap(), &text);
    assert_eq!(refused.code(), (413, "request-too-long".into()));
}

#[test]
fn a_change_of_nothing_is_none() {
    let (web, root) = with_administrator();
    let before = web.desk.noted.lock().unwrap().len();
    assert_eq!(web.ask_by_tcp("PATCH", "/api/v1/users/root", &root, "{}").code(), (400, "request-invalid".into()));
    assert_eq!(web.desk.noted.lock().unwrap().len(), before);
}

#[test]
fn who_changes_the_own_password_again_and_again_waits() {
    let (web, _) = with_administrator();
    let user = json!({ "name": "eve", "role": "viewer", "password": PASSWORD }).to_string();
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user).status, 201);
    let eve = cookie(&log_in(&web, "eve", PASSWORD));
    // Each is refused after it was counted, so that the session goes on.
    let statuses: Vec<u16> =
        (0..8).map(|_| web.ask_by_tcp("PATCH", "/api/v1/users/eve", &eve, r#"{"password":"short"}"#).status).collect();
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(log_in(&web, "root", PASSWORD).status, 201);
}

#[test]
fn a_cookie_of_another_server_of_this_host_shuts_nobody_out() {
    let (web, root) = with_administrator();
    let name = format!("sanwire-{}", web.port().port());
    assert!(root.contains(&format!("{name}=")), "{root}");
    let ask = |headers: &str| web.ask_by_tcp("GET", "/api/v1/session", headers, "");
    assert_eq!(ask(&root.replace("a=b", &format!("{name}=bogus"))).json()["name"], "root");
    let user = json!({ "name": "eve", "role": "viewer", "password": PASSWORD }).to_string();
    assert_eq!(web.ask("POST", "/api/v1/users", "", &user).status, 201);
    let eve = cookie(&log_in(&web, "eve", PASSWORD));
    let session = eve.split(&format!("{name}=")).nth(1).unwrap().split("\r\n").next().unwrap();
    let two = ask(&root.replace("a=b", &format!("{name}={session}")));
    assert_eq!(two.code(), (400, "request-invalid".into()), "nobody works in the session of another");
}

#[test]
fn one_account_does_not_take_all_listeners() {
    let web = fixture(answer);
    let token = |name: &str| {
        let made = web.ask("POST", "/api/v1/tokens", "", &json!({ "name": name, "role": "viewer" }).to_string()).json();
        format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap())
    };
    let (one, another) = (token("one"), token("another"));
    let listen = |headers: &str| {
        let mut stream = TcpStream::connect(web.port()).unwrap();
        stream.write_all(request("GET", "/api/v1/events", headers, "").as_bytes()).unwrap();
        let mut text = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut text).unwrap();
        (stream, text.ends_with(b"200"))
    };
    let listeners: Vec<_> = (0..LISTENERS_MAX).map(|_| listen(&one)).collect();
    assert_eq!(listeners.iter().filter(|(_, is_told)| *is_told).count(), LISTENERS_OF_ACCOUNT_MAX);
    assert!(listen(&another).1);
}

/// A door that is shut until somebody opens it.
#[derive(Default)]
struct Door(Mutex<bool>, Condvar, AtomicUsize);

impl Door {
    fn pass(&self) {
        self.2.fetch_add(1, Ordering::SeqCst);
        drop(self.1.wait_while(self.0.lock().unwrap(), |is_open| !*is_open).unwrap());
    }

    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

#[test]
fn those_with_accounts_do_not_keep_root_waiting() {
    let door = Arc::new(Door::default());
    let own = Arc::clone(&door);
    let web = fixture(move |request| {
        if matches!(request, Request::Jobs) {
            own.pass();
        }
        answer(request)
    });
    let made = web.ask("POST", "/api/v1/tokens", "", r#"{"name":"m","role":"viewer"}"#).json();
    let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    thread::scope(|scope| {
        for _ in 0..MANAGED_MAX {
            scope.spawn(|| web.ask_by_tcp("GET", "/api/v1/jobs", &token, ""));
        }
        while door.2.load(Ordering::SeqCst) < MANAGED_MAX {
            thread::yield_now();
        }
        assert_eq!(web.get("/api/v1/volumes").status, 200);
        assert_eq!(web.ask_by_tcp("GET", "/readyz", "", "").status, 200);
        door.open();
    });
}

#[test]
fn a_change_that_was_begun_is_told_although_nobody_can_look_at_it() {
    let (others, change) = (Arc::new(Door::default()), Arc::new(Door::default()));
    let doors = (Arc::clone(&others), Arc::clone(&change));
    let web = fixture(move |request| match request {
        Request::Jobs => {
            doors.0.pass();
            answer(request)
        }
        Request::Start { .. } => {
            doors.1.pass();
            Response::Done(Answer::Job(job(JobState::Running, 7)))
        }
        _ => Response::Done(Answer::Job(job(JobState::Running, 7))),
    });
    let made = web.ask("POST", "/api/v1/tokens", "", r#"{"name":"m","role":"operator"}"#).json();
    let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let wait = |door: &Door, count| {
        while door.2.load(Ordering::SeqCst) < count {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let look = || _ = scope.spawn(|| web.ask_by_tcp("GET", "/api/v1/jobs", &token, ""));
        (1..MANAGED_MAX).for_each(|_| look());
        wait(&others, MANAGED_MAX - 1);
        let begun = scope.spawn(|| web.ask_by_tcp("DELETE", "/api/v1/volumes/v1", &token, ""));
        wait(&change, 1);
        // This one has the place of the change once it is begun.
        look();
        (0..8).for_each(|_| assert_eq!(web.get("/healthz").status, 200));
        change.open();
        let begun = begun.join().unwrap();
        assert_eq!((begun.status, begun.header("location")), (202, Some("/api/v1/jobs/7")));
        others.open();
    });
}
