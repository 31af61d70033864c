use sanwire_core::ClientId;

use super::*;
use crate::manage::Refusal;

fn log(name: &str) -> AuditLog {
    let path = std::env::temp_dir().join(format!("sanwire-audit-{}-{name}/log.jsonl", std::process::id()));
    AuditLog::new(path)
}

fn remove(log: &AuditLog) {
    fs::remove_dir_all(log.0.path.parent().unwrap()).unwrap();
}

#[test]
fn a_log_that_has_become_long_is_put_aside_and_the_oldest_goes() {
    let log = log("long");
    let by = Asker::Process { uid: 1, pid: 1 };
    log.note(&by, None, &Response::Done(Answer::Changed(vec!["first".into()]))).wait();
    for number in 0..FILES + 2 {
        let file = OpenOptions::new().write(true).open(&log.0.path).unwrap();
        file.set_len(AUDIT_BYTES.limit / FILES - number).unwrap();
        log.note(&by, None, &Response::Done(Answer::Changed(vec![format!("change {number}")]))).wait();
    }
    let directory = log.0.path.parent().unwrap();
    let sizes = fs::read_dir(directory).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    let sizes: Vec<u64> = sizes.collect();
    assert_eq!(sizes.len() as u64, FILES);
    assert!(sizes.iter().sum::<u64>() <= AUDIT_BYTES.limit);
    let newest = fs::read_to_string(&log.0.path).unwrap();
    assert!(newest.contains(&format!("change {}", FILES + 1)) && newest.lines().count() == 1);
    remove(&log);
}

#[test]
fn what_is_left_of_a_line_hides_no_later_one() {
    let log = log("torn");
    let by = Asker::Process { uid: 1, pid: 1 };
    let note = |what: &str| log.note(&by, None, &Response::Done(Answer::Changed(vec![what.to_owned()]))).wait();
    note("first");
    let file = OpenOptions::new().write(true).open(&log.0.path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5).unwrap();
    note("second");
    note("third");
    let text = fs::read_to_string(&log.0.path).unwrap();
    let whole = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let details: Vec<Value> = whole.map(|line| line["details"][0].clone()).collect();
    assert_eq!(details, ["second", "third"]);
    remove(&log);
}

#[test]
fn what_a_request_says_cannot_turn_or_hide_what_is_read() {
    let log = log("turned");
    let by = Asker::Stranger { address: "10.0.0.1:1".into() };
    log.note_offence(&by, &"a\u{202e}b\u{9b}c\u{7f}\n", false, 1).wait();
    let text = fs::read_to_string(&log.0.path).unwrap();
    assert!(text.contains(r"a\u202eb\u009bc\u007f\n") && text.lines().count() == 1, "{text}");
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["details"][0], "a\u{202e}b\u{9b}c\u{7f}\n");
    remove(&log);
}

fn lines(log: &AuditLog) -> Vec<Value> {
    let text = fs::read_to_string(&log.0.path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_year_of_refusals_leaves_room_for_what_was_changed() {
    const LINE_MAX_BYTES: u64 = 1024;
    let log = log("year");
    let by = Asker::Client {
        client: ClientId([0xff; 16]),
        address: "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535".into(),
        as_owner: None,
    };
    for nasty in ["\u{202e}", "\"", "\\", "日"] {
        log.note_offence(&by, &nasty.repeat(10_000), false, u64::MAX).wait();
        let written = fs::metadata(&log.0.path).unwrap().len();
        assert!(written <= LINE_MAX_BYTES, "{nasty:?}: {written}");
        assert!(lines(&log)[0]["details"][0].as_str().unwrap().ends_with("0000 bytes)"));
        fs::remove_file(&log.0.path).unwrap();
    }
    let lines = (AUDITED_OFFENCES.limit + AUDITED_REFUSALS.limit) * 365;
    assert!(lines * LINE_MAX_BYTES < AUDIT_BYTES.limit * 3 / 4, "{lines} lines");
    remove(&log);
}

#[test]
fn strangers_keep_no_client_out_of_the_log_and_neither_keeps_a_manager_out() {
    let log = log("shares");
    let stranger = Asker::Stranger { address: "10.0.0.1:1".into() };
    let client = Asker::Client { client: ClientId([1; 16]), address: "10.0.0.2:1".into(), as_owner: None };
    let process = Asker::Process { uid: 0, pid: 1 };
    (0..1000).for_each(|_| log.note_offence(&stranger, &"a flood", false, 1).wait());
    (0..1000).for_each(|_| log.note_offence(&client, &"against the rules", true, 1).wait());
    (0..100).for_each(|_| {
        log.note(&process, None, &Response::Refused(Refusal::new("volume-unknown", "there is no such volume"))).wait()
    });
    let count = |reason: &str| lines(&log).iter().filter(|line| line["details"][0] == reason).count();
    let counts = [count("a flood"), count("against the rules"), count("there is no such volume")];
    assert_eq!(counts, [20, 60, 100]);
    let unwritten: u64 = lines(&log).iter().filter_map(|line| line["unwritten"].as_u64()).sum();
    assert_eq!(unwritten, 2 * 1000 - 20 - 60, "all are counted");
    remove(&log);
}

#[test]
fn a_long_request_is_written_in_short_and_says_how_long_it_was() {
    let log = log("long-request");
    let by = Asker::Process { uid: 0, pid: 1 };
    let request = Request::RemoveVolume { name: "v".repeat(60_000), force: false };
    log.note(&by, Some(&request), &Response::Refused(Refusal::new("x", "x".repeat(60_000)))).wait();
    assert!(fs::metadata(&log.0.path).unwrap().len() < 3000);
    let line = &lines(&log)[0];
    let said = [&line["request"], &line["details"][0]].map(|text| text.as_str().unwrap());
    assert!(said[0].contains("vvv... (600") && said[1].ends_with("xxx... (60000 bytes)"), "{said:?}");
    remove(&log);
}

fn read(log: &AuditLog, query: &AuditQuery) -> AuditLines {
    log.read(query).unwrap()
}

/// What all pages from a cursor on say was changed.
fn changes(log: &AuditLog, query: &AuditQuery) -> (Vec<String>, AuditLines) {
    let (mut query, mut changes) = (query.clone(), Vec::new());
    loop {
        let page = read(log, &query);
        changes.extend(page.lines.iter().map(|line| line["details"][0].as_str().unwrap().to_owned()));
        query.since = Some(page.cursor.clone());
        if !page.more {
            return (changes, page);
        }
    }
}

#[test]
fn the_log_is_read_by_pages_and_goes_on_where_it_was_also_when_files_are_put_aside() {
    let log = log("read");
    let by = Asker::Process { uid: 1, pid: 1 };
    let note = |what: &str| log.note(&by, None, &Response::Done(Answer::Changed(vec![what.to_owned()]))).wait();
    assert_eq!(changes(&log, &AuditQuery::default()).0, [] as [&str; 0], "there is no file yet");
    (0..5).for_each(|number| note(&format!("change {number}")));
    let query = AuditQuery { limit: Some(2), ..AuditQuery::default() };
    let first = read(&log, &query);
    assert_eq!((first.lines.len(), first.more, first.gone), (2, true, false));
    let query = AuditQuery { since: Some(first.cursor), ..query };
    rotate(&log.0.path).unwrap();
    (5..8).for_each(|number| note(&format!("change {number}")));
    rotate(&log.0.path).unwrap();
    note("change 8");
    let (all, last) = changes(&log, &query);
    assert_eq!(all, (2..9).map(|number| format!("change {number}")).collect::<Vec<_>>());
    let query = AuditQuery { since: Some(last.cursor), ..query };
    assert_eq!(changes(&log, &query).0, [] as [&str; 0]);
    rotate(&log.0.path).unwrap();
    note("change 9");
    assert_eq!(changes(&log, &query).0, ["change 9"], "it was at the end of a file that was put aside");
    for number in 0..FILES {
        rotate(&log.0.path).unwrap();
        note(&format!("later {number}"));
    }
    let after = read(&log, &query);
    assert!(after.gone && after.lines[0]["details"][0] == "later 0", "the cursor's file is gone: {after:?}");
    for nonsense in ["", "1", "1-2:3", "x-y:z", "0-0:18446744073709551615"] {
        let told = read(&log, &AuditQuery { since: Some(nonsense.into()), ..AuditQuery::default() });
        assert!(told.gone && told.lines.len() == FILES as usize, "{nonsense}: {told:?}");
    }
    remove(&log);
}

#[test]
fn the_log_is_searched_by_who_what_came_of_it_and_when() {
    let log = log("search");
    let process = Asker::Process { uid: 0, pid: 77 };
    let client = Asker::Client { client: ClientId([0xab; 16]), address: "10.0.0.2:1".into(), as_owner: None };
    let done = |what: &str| Response::Done(Answer::Changed(vec![what.to_owned()]));
    log.note(&process, None, &done("one")).wait();
    log.note(&client, None, &done("two")).wait();
    log.note(&client, None, &Response::Refused(Refusal::new("x", "three"))).wait();
    fs::OpenOptions::new().append(true).open(&log.0.path).unwrap().write_all(b"half a li").unwrap();
    let found = |query: AuditQuery| changes(&log, &query).0;
    let who = |who: &str| AuditQuery { who: Some(who.into()), ..AuditQuery::default() };
    assert_eq!(found(AuditQuery::default()), ["one", "two", "three"], "a line that is not whole is not there yet");
    assert_eq!([found(who("77")).len(), found(who("abab")).len(), found(who("10.0.0.2")).len()], [1, 2, 2]);
    assert_eq!(found(AuditQuery { result: Some(AuditResult::Refused), ..who("abab") }), ["three"]);
    assert_eq!(
        found(AuditQuery { from: Some("2999-01-01T00:00:00Z".into()), ..AuditQuery::default() }),
        [] as [&str; 0]
    );
    assert_eq!(found(AuditQuery { from: Some("1999-01-01T00:00:00Z".into()), ..AuditQuery::default() }).len(), 3);
    remove(&log);
}

#[test]
fn the_newest_lines_are_read_also_of_files_that_were_put_aside() {
    let log = log("newest");
    let by = Asker::Process { uid: 1, pid: 1 };
    let note = |what: String| log.note(&by, None, &Response::Done(Answer::Changed(vec![what]))).wait();
    let newest = AuditQuery { newest: true, ..AuditQuery::default() };
    assert_eq!(read(&log, &newest).lines.len(), 0, "there is no file yet");
    (0..4).for_each(|number| note(number.to_string()));
    rotate(&log.0.path).unwrap();
    (4..6).for_each(|number| note(number.to_string()));
    let found = |query: &AuditQuery| {
        let told = read(&log, query);
        assert!(!told.more && !told.gone);
        told.lines.iter().map(|line| line["details"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&newest), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(found(&AuditQuery { limit: Some(3), ..newest.clone() }), ["3", "4", "5"]);
    // What there is no room for is older, and no line is cut.
    let long = "x".repeat(TEXT_MAX_BYTES);
    (0..300).for_each(|number| note(format!("{number} {long}")));
    let lines = found(&newest);
    assert!(lines.len() > 100 && lines.len() < 300, "{}", lines.len());
    assert!(lines.last().unwrap().starts_with("299 ") && lines[0].starts_with(&format!("{} ", 300 - lines.len())));
    remove(&log);
}
