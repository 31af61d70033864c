//! Volumes that are derived together.

use super::*;
use crate::config::ServerConfig;
use crate::manage::testing::{any_port, config};

fn list(dvds: Vec<NewDvd>) -> Request {
    Request::CreateDvds(NewDvds { dvds })
}

fn many(count: usize) -> Vec<NewDvd> {
    (0..count).map(|number| NewDvd { regions: vec!["0+1M".into()], ..new("disk", &format!("d{number}")) }).collect()
}

/// What one that is refused leaves as it was.
fn all(manager: &mut Manager) -> (Vec<String>, Vec<String>) {
    let status = status(manager);
    let targets = status.targets.into_iter().map(|target| format!("{} {:?}", target.name, target.units));
    (status.volumes.into_iter().map(|volume| volume.name).collect(), targets.collect())
}

#[test]
fn a_list_is_derived_as_one_change_and_there_after_a_restart() {
    let kept = kept("dvd-together");
    let mut manager = kept.start().unwrap();
    let rehearsed = Request::DryRun { request: list(many(3)).into() };
    assert_eq!(
        lines(manager.execute(rehearsed)),
        ["3 volumes (d0, d1, d2) would be derived, and served, if all of them can be opened"]
    );
    assert_eq!(names(&mut manager), ["disk"]);
    let told = lines(manager.execute(list(many(300))));
    assert_eq!(told, ["300 volumes (d0, d1, d2, d3, d4, d5, d6, d7, ...) are derived, and served"]);
    assert_eq!(events(&manager).len(), 300);
    let luns: Vec<u16> = status(&mut manager).volumes.iter().map(|volume| volume.lun).collect();
    assert_eq!(luns, (0..301).collect::<Vec<_>>());
    // That is long enough for a change to be added to.
    let length = || fs::metadata(kept.changes()).unwrap().len();
    let before = length();
    let added = lines(manager.execute(list(vec![new("d7", "part")])));
    assert_eq!(added, ["volume part is derived, and served"]);
    assert!(length() > before && length() < before + 512, "{before} {}", length());
    let id = volume(&mut manager, "d299").id;
    lines(manager.execute(revoke("d8")));
    // Writing all that is kept counts as much as looking at a thousand volumes.
    let visits = crate::visits::during(|| _ = lines(create(&mut manager, new("disk", "late"))));
    assert!(visits < 1024, "{visits}");
    let was = all(&mut manager);
    let killed = kept.directory.join("killed.json");
    fs::copy(kept.changes(), &killed).unwrap();
    manager.into_target().stop().unwrap();
    // As after an end in order, and as after none.
    for is_killed in [false, true] {
        if is_killed {
            fs::copy(&killed, kept.changes()).unwrap();
        }
        let mut manager = kept.start().unwrap();
        assert_eq!(all(&mut manager), was, "{is_killed}");
        assert_eq!(volume(&mut manager, "d299").id, id, "it is the same disk");
        manager.into_target().stop().unwrap();
        assert!(fs::read_to_string(kept.changes()).unwrap().starts_with("{\"sanwire\":1,"), "earlier programs read it");
    }
}

#[test]
fn a_list_of_which_one_is_refused_changes_nothing() {
    let kept = kept_with("dvd-together-refused", &["other=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let before = all(&mut manager);
    let with = |more: NewDvd| list(many(3).into_iter().chain([more]).collect());
    let beyond = NewDvd { regions: vec!["15M+2M".into()], ..new("disk", "x") };
    let target = NewDvd { target: Some("iqn.2026-11.org.example:none".into()), ..new("disk", "x") };
    let program = NewDvd { program: Some("AA==".into()), ..new("disk", "x") };
    for (request, code, part) in [
        (list(Vec::new()), "list-invalid", "give 1 to 1000"),
        (list(many(1001)), "list-invalid", "1001 volumes"),
        (with(new("disk", "d1")), "list-invalid", "two volumes of the list are called d1"),
        (with(new("d1", "x")), "list-invalid", "derived from d1 of the same list"),
        (with(program), "list-invalid", "has a program"),
        (with(new("disk", "x,y")), "volume-text-invalid", "volume 4 of the list"),
        (with(new("disk", "other")), "volume-exists", "other"),
        (with(new("nobody", "x")), "derivation-invalid", "nobody"),
        (with(target), "target-unknown", "example:none"),
        (with(beyond), "derivation-invalid", "behind the end"),
    ] {
        let error = manager.execute(request).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(part), "{}: {error}", error.code());
        assert_eq!(all(&mut manager), before, "{error}");
    }
    kept.fill_disk();
    let error = manager.execute(list(many(3))).unwrap_err();
    assert_eq!((error.code(), all(&mut manager)), ("not-kept", before));
    fs::remove_dir(kept.changes().with_extension("json.new")).unwrap();
    lines(manager.execute(list(many(3))));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_list_on_a_condition_that_does_not_hold_any_more_is_taken_back() {
    let kept = kept("dvd-together-condition");
    let mut manager = kept.start().unwrap();
    let revision = status(&mut manager).collections.volumes;
    let request = Request::IfRevision { revision, request: list(many(3)).into() };
    let opening = work(manager.begin(request.clone()).unwrap());
    let busy = manager.execute(list(many(1))).unwrap_err();
    assert_eq!(busy.code(), "volume-busy", "{busy}");
    lines(create(&mut manager, new("disk", "other")));
    let Err(error) = go_on(&mut manager, opening) else { panic!("it is served") };
    assert_eq!((error.code(), names(&mut manager)), ("revision-stale", vec!["disk".to_owned(), "other".to_owned()]));
    assert_eq!(manager.execute(request).unwrap_err().code(), "revision-stale");
    lines(manager.execute(list(many(3))));
    manager.into_target().stop().unwrap();
}

#[test]
fn targets_get_what_is_derived_together_and_keep_it() {
    derived::register();
    let kept = Kept::new("dvd-together-targets", &["disk=ram:16M"]);
    let wires = ["hs-ip:127.0.0.1:1", "iscsi:127.0.0.1:1"].map(|wire| any_port(wire.parse().unwrap())).to_vec();
    let state_directory = Some(kept.directory.join("state"));
    let config = ServerConfig { wires, state_directory, ..config(&["disk=ram:16M"]) };
    let start = || {
        let config = config.clone();
        Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap()
    };
    let mut manager = start();
    let shared = || Some("iqn.2026-11.org.sanwire:disk".to_owned());
    let secret = NewDvd { principals: vec!["chap:nobody".into()], ..new("disk", "secret") };
    let two = [new("disk", "a"), NewDvd { target: shared(), ..new("disk", "b") }];
    let more = [NewDvd { target: shared(), ..new("disk", "c") }, secret];
    let told = lines(manager.execute(list(two.into_iter().chain(more).collect())));
    assert!(told[0].contains("; 1 of them not over iSCSI: no target of disk knows the secret of nobody"), "{told:?}");
    let units = |manager: &mut Manager| -> Vec<_> {
        let targets = status(manager).targets.into_iter();
        targets.map(|target| (target.name.rsplit(':').next().unwrap().to_owned(), target.units)).collect()
    };
    let unit = |lun: u16, name: &str| (lun, name.to_owned());
    let before = units(&mut manager);
    let expected =
        [("a".to_owned(), vec![unit(0, "a")]), ("disk".to_owned(), vec![unit(0, "disk"), unit(1, "b"), unit(2, "c")])];
    assert_eq!(before, expected);
    manager.into_target().stop().unwrap();
    let mut manager = start();
    assert_eq!(units(&mut manager), before);
    manager.into_target().stop().unwrap();
}

#[test]
fn the_audit_log_says_of_each_volume_of_a_list_whom_it_admits() {
    let kept = kept("dvd-together-audit");
    let mut manager = kept.start().unwrap();
    let dvds = many(300).into_iter().map(|new| NewDvd { principals: vec![format!("key:{:032x}", 7)], ..new });
    let by = Asker::Process { uid: 1, pid: 1 };
    let response = manager.handle(&by, list(dvds.collect()));
    assert!(matches!(response, Response::Done(_)), "{response:?}");
    let audit = fs::read_to_string(kept.directory.join("state/audit-test.jsonl")).unwrap();
    assert_eq!(audit.matches(&format!("\"key:{:032x}\"", 7)).count(), 300);
    assert!(audit.lines().count() > 1 && audit.lines().all(|line| line.contains(r#""result":"done""#)), "{audit}");
    manager.handle(&by, list(many(300)));
    let audit = fs::read_to_string(kept.directory.join("state/audit-test.jsonl")).unwrap();
    assert_eq!(audit.matches(r#""result":"refused""#).count(), 1, "what was refused is told in short");
    manager.into_target().stop().unwrap();
}
