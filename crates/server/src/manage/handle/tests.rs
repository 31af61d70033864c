use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::testing::{Kept, Silent};
use super::super::{JobState, JobStatus};
use super::*;
use crate::server::Server;

const BY: Asker = Asker::Signal { signal: "test" };
const RELOAD: Request = Request::Reload { force: false, dry_run: false, reset: false };

fn desk(kept: &Kept) -> ManagementHandle {
    ManagementHandle::new(kept.start().unwrap())
}

fn end(desk: &ManagementHandle) {
    desk.end().map(Server::stop).unwrap().unwrap();
}

fn add(volume: &str) -> Request {
    Request::AddVolume { volume: volume.into(), target: None, renew: false, adopt: false }
}

fn remove(name: &str) -> Request {
    Request::RemoveVolume { name: name.into(), force: false }
}

fn code(response: Response) -> String {
    match response {
        Response::Refused(refusal) => refusal.code.into(),
        done => panic!("{done:?}"),
    }
}

/// The newest job, once there is one that does this.
fn job(desk: &ManagementHandle, progress: &str) -> JobStatus {
    loop {
        let Response::Done(Answer::Jobs(mut jobs)) = desk.handle(&BY, Request::Jobs) else { panic!("the jobs") };
        match jobs.pop() {
            Some(job) if job.progress.as_deref().is_some_and(|now| now.contains(progress)) => return job,
            _ => thread::yield_now(),
        }
    }
}

/// Everything else that somebody may want meanwhile is done.
fn serves_others(desk: &ManagementHandle) {
    let (name, force) = ("a".to_owned(), false);
    for request in [
        Request::Status,
        Request::Statistics,
        Request::Clients,
        Request::Sessions,
        add("b=ram:1M"),
        Request::ResizeVolume { name: name.clone(), size: "2M".into() },
        Request::SetVolume { name: name.clone(), security: Some("hash".into()), protected: None, owners: None },
        Request::MapVolume { name, lun: Some(9), target: None, force },
        Request::AddClient { id: "a1".repeat(16), settings: Default::default(), force },
        Request::ResetClient { client: "a1".repeat(16), force },
        Request::Reload { force, dry_run: true, reset: false },
        remove("b"),
    ] {
        let shown = format!("{request:?}");
        let response = desk.handle(&BY, request);
        assert!(matches!(response, Response::Done(_)), "{shown}: {response:?}");
    }
}

#[test]
fn a_store_that_does_not_answer_keeps_no_other_request_waiting() {
    let mut kept = Kept::new("silent", &[]);
    kept.configured.push(format!("a=file:{},size=1M", kept.directory.join("a.img").display()));
    let (silent, desk) = (Silent::new(&kept), desk(&kept));
    // Volumes with a target of their own are not guarded.
    let unmap = Request::UnmapVolume { name: "a".into(), target: "iqn.2026-11.org.sanwire:a".into(), force: false };
    assert!(matches!(desk.handle(&BY, unmap), Response::Done(_)));
    thread::scope(|scope| {
        let (volume, handle) = (silent.volume("slow"), desk.clone());
        let adding = scope.spawn(move || handle.handle(&BY, add(&volume)));
        let job = job(&desk, "opening the store of slow");
        assert_eq!((job.state, job.request["do"].as_str()), (JobState::Running, Some("add-volume")));
        serves_others(&desk);
        assert!(matches!(desk.handle(&BY, RELOAD), Response::Done(_)));
        for request in [add("slow=ram:1M"), remove("slow")] {
            assert_eq!(code(desk.handle(&BY, request)), "volume-busy");
        }
        assert!(!adding.is_finished());
        silent.give_up();
        assert_eq!(code(adding.join().unwrap()), "volume-not-opened");
        let over = desk.handle(&BY, Request::Job { id: job.id, wait: true });
        let Response::Done(Answer::Job(over)) = over else { panic!("{over:?}") };
        assert_eq!((over.state, over.code.as_deref()), (JobState::Refused, Some("volume-not-opened")));
    });
    assert!(matches!(desk.handle(&BY, add("slow=ram:1M")), Response::Done(_)), "its name is free again");
    end(&desk);
}

#[test]
fn a_reload_that_waits_for_a_store_keeps_no_other_request_waiting() {
    let mut kept = Kept::new("silent-reload", &["a=ram:1M"]);
    let silent = Silent::new(&kept);
    let before = kept.config();
    kept.configured.push(silent.volume("slow"));
    let after = kept.config();
    let strip = |mut config: crate::ServerConfig| {
        config.exports.clear();
        config
    };
    let (before, after) = (strip(before), strip(after));
    let desk = ManagementHandle::new(Manager::start(before, Box::new(move || Ok(after.clone()))).unwrap());
    let Response::Done(Answer::Job(job)) = desk.handle(&BY, Request::Start { request: Box::new(RELOAD) }) else {
        panic!("it takes long")
    };
    self::job(&desk, "opening volumes");
    serves_others(&desk);
    assert_eq!(code(desk.handle(&BY, RELOAD)), "reload-busy");
    silent.give_up();
    let over = desk.handle(&BY, Request::Job { id: job.id, wait: true });
    let Response::Done(Answer::Job(over)) = over else { panic!("{over:?}") };
    assert_eq!(over.code.as_deref(), Some("volume-not-opened"));
    end(&desk);
}

#[test]
fn a_server_ends_also_while_a_store_does_not_answer() {
    let kept = Kept::new("silent-end", &["a=ram:1M"]);
    let (silent, desk) = (Silent::new(&kept), desk(&kept));
    let start = |request| Request::Start { request: Box::new(request) };
    let started = desk.handle(&BY, start(add(&silent.volume("slow"))));
    assert!(matches!(started, Response::Done(Answer::Job(_))), "{started:?}");
    assert!(matches!(desk.handle(&BY, start(add("b=ram:1M"))), Response::Done(Answer::Changed(_) | Answer::Job(_))));
    assert_eq!(code(desk.handle(&BY, start(start(Request::Jobs)))), "request-invalid");
    end(&desk);
    assert_eq!(code(desk.handle(&BY, Request::Status)), "stopping");
    silent.give_up();
}

#[test]
fn a_pool_that_hangs_keeps_no_other_request_waiting_and_lets_the_server_end() {
    let files = crate::pools::testing::copy_files();
    let kept = Kept::new("hanging-pool", &["a=ram:1M", "p=pool:,size=1M", "q=pool:,size=1M", "r=pool:,size=1M"]);
    let desk = ManagementHandle::new(super::super::pools::tests::start(&kept).unwrap());
    let unmap = Request::UnmapVolume { name: "a".into(), target: "iqn.2026-11.org.sanwire:a".into(), force: false };
    assert!(matches!(desk.handle(&BY, unmap), Response::Done(_)));
    let snapshot =
        |volume: &str| Request::Snapshot { volumes: vec![volume.into()], name: "s".into(), protected: false };
    assert!(matches!(desk.handle(&BY, snapshot("q")), Response::Done(_)));
    files.hang.at(Some("save"));
    let protect = Request::SetVolume { name: "p".into(), security: None, protected: Some(true), owners: None };
    let changes = [protect, Request::DeleteSnapshot { snapshot: "q@s".into() }, snapshot("r")];
    for (request, progress) in
        changes.into_iter().zip(["writing the catalogue", "deleting q@s", "taking the snapshot r@s"])
    {
        let started = desk.handle(&BY, Request::Start { request: Box::new(request) });
        assert!(matches!(started, Response::Done(Answer::Job(_))), "{started:?}");
        job(&desk, progress);
    }
    while files.hang.waiting() == 0 {
        thread::yield_now();
    }
    serves_others(&desk);
    let server = desk.end_within(Duration::ZERO).unwrap();
    files.hang.at(None);
    server.stop().unwrap();
}

#[test]
fn a_pool_that_does_not_tell_how_it_is_is_not_asked_by_ever_more() {
    let kept = Kept::new("asked-pool", &["a=pool:,size=1M"]);
    let mut manager = super::super::pools::tests::start(&kept).unwrap();
    let pool = manager.target().pools().iter().next().cloned().unwrap();
    let asking: Vec<_> = std::iter::from_fn(|| pool.begin_to_ask()).take(100).collect();
    assert!(asking.len() < 100);
    assert_eq!(code(manager.handle(&BY, Request::Pools)), "store-silent");
    assert!(matches!(manager.handle(&BY, Request::Metrics), Response::Done(_)), "the others are told");
    drop(asking);
    assert!(matches!(manager.handle(&BY, Request::Pools), Response::Done(_)));
    manager.into_target().stop().unwrap();
}

#[test]
fn who_only_looks_never_waits_for_one_who_changes_something() {
    let kept = Kept::new("looks", &["a=ram:1M"]);
    let desk = desk(&kept);
    let changing = desk.lock();
    for request in [Request::Status, Request::Jobs] {
        assert!(matches!(desk.handle(&BY, request), Response::Done(_)));
    }
    drop(changing);
    end(&desk);
}

/// The revision that a page of this answer has.
fn page_revision(desk: &ManagementHandle, request: &str) -> u64 {
    let json = format!(r#"{{"do": "page", "request": {{"do": "{request}"}}}}"#);
    match desk.handle_json_within(&BY, json.as_bytes(), 1 << 20) {
        Response::Done(Answer::Page(page)) => page.revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_says_of_what_it_lists_whether_that_has_changed() {
    let kept = Kept::new("page-revisions", &["a=ram:1M"]);
    let desk = desk(&kept);
    let client = || "a1".repeat(16);
    let add_client = Request::AddClient { id: client(), settings: Default::default(), force: false };
    let open = Request::Start { request: Box::new(RELOAD) };
    let changes = [
        (
            Request::ResizeVolume { name: "a".into(), size: "2M".into() },
            ["statistics", "status", "metrics"],
            ["clients", "sessions", "sessions"],
        ),
        (add_client, ["clients", "status", "status"], ["sessions", "statistics", "metrics"]),
        (open, ["jobs"; 3], ["sessions", "clients", "statistics"]),
    ];
    for (request, changed, others) in changes {
        let read = |names: [&str; 3]| names.map(|name| page_revision(&desk, name));
        let (shown, before) = (format!("{request:?}"), (read(changed), read(others)));
        match desk.handle(&BY, request) {
            Response::Done(Answer::Job(job)) => drop(desk.handle(&BY, Request::Job { id: job.id, wait: true })),
            Response::Done(_) => {}
            refused => panic!("{refused:?}"),
        }
        let after = (read(changed), read(others));
        assert!(before.0.iter().zip(after.0).all(|(before, after)| after > *before), "{shown}: {before:?} {after:?}");
        assert_eq!(after.1, before.1, "{shown}");
    }
    end(&desk);
}

#[test]
fn pages_of_what_sessions_do_fit_together_while_these_come_and_go() {
    let kept = Kept::new("page-sessions", &["a=ram:1M"]);
    let desk = desk(&kept);
    for answer in ["sessions", "clients", "statistics", "metrics"] {
        let before = page_revision(&desk, answer);
        // Whatever begins or ends a session tells so; here there is none to do it.
        desk.0.revisions.session_changed("somebody", true);
        assert_eq!(page_revision(&desk, answer), before, "{answer}");
    }
    end(&desk);
}

#[test]
fn nothing_is_begun_with_in_pages_or_twice() {
    let kept = Kept::new("start-page", &["a=ram:1M"]);
    let desk = desk(&kept);
    let wrapped = |request| Request::Start { request: Box::new(request) };
    let page = Request::Page { request: Box::new(RELOAD), from: 0 };
    for request in [wrapped(page), wrapped(wrapped(RELOAD))] {
        assert_eq!(code(desk.handle(&BY, request)), "request-invalid");
    }
    end(&desk);
}

#[test]
fn pages_of_sessions_from_before_and_after_a_restart_do_not_belong_together() {
    let kept = Kept::new("page-restart", &["a=ram:1M"]);
    let page = |desk: &ManagementHandle| {
        let request = Request::Page { request: Box::new(Request::Sessions), from: 0 };
        match desk.handle_json(&BY, &serde_json::to_vec(&request).unwrap()) {
            Response::Done(Answer::Page(page)) => page,
            other => panic!("{other:?}"),
        }
    };
    let before = desk(&kept);
    let mut first = page(&before);
    before.handle(&BY, add("b=ram:1M"));
    assert!(first.append(page(&before)), "those of one run do");
    end(&before);
    let after = desk(&kept);
    assert!(!first.append(page(&after)));
    end(&after);
}

#[test]
fn what_is_no_request_is_refused_without_what_it_says() {
    let kept = Kept::new("no-request", &["a=ram:1M"]);
    let desk = desk(&kept);
    let reason = |json: &str| match desk.handle_json(&BY, json.as_bytes()) {
        Response::Refused(refusal) => refusal.reason,
        done => panic!("{done:?}"),
    };
    let client = |rest: &str| format!(r#"{{"do": "add-client", "id": "a1", {rest}}}"#);
    let wrapped = |json: &str| format!(r#"{{"do": "if-revision", "revision": 7, "request": {json}}}"#);
    for secret in ["4242", "abab, expected abab", "4242`, expected one of `4242"] {
        for wrong in [
            client(&format!(r#""settings": "{secret}""#)),
            client(&format!(r#""settings": {{"psk": "{secret}"}}"#)),
            client(&format!(r#""settings": {{"psk": ["{secret}"]}}"#)),
            client(r#""settings": {"psk": 4242}"#),
            client(&format!(r#""settings": {{"{secret}": 4242}}"#)),
            client(&format!(r#""settings": {{"compression": "{secret}"}}"#)),
            client(&format!(r#""force": "{secret}""#)),
            client(&format!(r#""psk": "{secret}""#)),
            format!(r#"{{"do": "{secret}"}}"#),
            format!(r#""{secret}""#),
            secret.to_owned(),
        ] {
            for wrong in [wrapped(&wrong), wrong] {
                let told = reason(&wrong);
                assert!(!told.contains("abab") && !told.contains("4242"), "{wrong}: {told}");
                assert!(told.starts_with("this is no request: "), "{told}");
            }
        }
    }
    for (json, told) in [
        (r#"{"do": "remove-volume"}"#, "missing field `name`"),
        (r#"{"do": "remove-volume", "name": 7}"#, "invalid type, expected a string"),
        (r#"{"do": "remove-volume", "nmae": "a"}"#, "unknown field, expected `name` or `force`"),
        (r#"{"do": "remove-volumes"}"#, "unknown variant, expected one of `status`"),
        (r#"{"do": "add-client", "id": "a1", "settings": {"psk": "ab"}}"#, "a secret is 64 hexadecimal digits"),
        (r#"{"do": "#, "EOF while parsing a value at line 1"),
    ] {
        assert!(reason(json).contains(told), "{json}: {}", reason(json));
    }
    end(&desk);
}

#[test]
fn few_wait_for_what_takes_long_and_the_others_are_told_that_it_goes_on() {
    let kept = Kept::new("waiters", &["a=ram:1M"]);
    let (silent, desk) = (Silent::new(&kept), desk(&kept));
    thread::scope(|scope| {
        for number in 0..WAITERS_MAX {
            let (volume, desk) = (silent.volume(&format!("slow{number}")), desk.clone());
            scope.spawn(move || desk.handle(&BY, add(&volume)));
        }
        while Arc::strong_count(&desk.0.waiters) <= WAITERS_MAX {
            thread::yield_now();
        }
        let told = desk.handle(&BY, add(&silent.volume("more")));
        let Response::Done(Answer::Job(job)) = told else { panic!("{told:?}") };
        let told = desk.handle(&BY, Request::Job { id: job.id, wait: true });
        assert!(matches!(told, Response::Done(Answer::Job(JobStatus { state: JobState::Running, .. }))), "{told:?}");
        assert_eq!(code(desk.handle(&BY, Request::Job { id: 999, wait: true })), "job-unknown");
        silent.give_up();
    });
    end(&desk);
}

#[test]
fn a_disk_that_does_not_take_the_audit_log_keeps_only_those_waiting_whose_lines_these_are() {
    let kept = Kept::new("slow-audit", &["a=ram:1M"]);
    let desk = desk(&kept);
    let log = kept.directory.join("state/audit-test.jsonl");
    // Who opens a pipe that nobody reads waits.
    mknodat(CWD, &log, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let size = |desk: &ManagementHandle| match desk.handle(&BY, Request::Status) {
        Response::Done(Answer::Status(status)) => status.volumes[0].size_bytes,
        other => panic!("{other:?}"),
    };
    thread::scope(|scope| {
        let handle = desk.clone();
        let slow =
            scope.spawn(move || handle.handle(&BY, Request::ResizeVolume { name: "a".into(), size: "2M".into() }));
        while size(&desk) != 2 << 20 {
            thread::yield_now();
        }
        for request in
            [Request::Statistics, Request::Clients, Request::Reload { force: false, dry_run: true, reset: false }]
        {
            assert!(matches!(desk.handle(&BY, request), Response::Done(_)));
        }
        assert!(!slow.is_finished(), "it is not answered before it is written down");
        let text = std::io::read_to_string(std::fs::File::open(&log).unwrap()).unwrap();
        assert!(text.contains("resize-volume"), "{text}");
        assert!(matches!(slow.join().unwrap(), Response::Done(_)));
    });
    end(&desk);
}
