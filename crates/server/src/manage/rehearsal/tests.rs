use crate::front::hyperscsi::clients::ClientSettings;
use crate::manage::pools::tests::{add, ask, protect, start, status};
use crate::manage::testing::Kept;
use crate::manage::{Answer, Manager, Request};
use crate::pools::testing::copy_files;

fn rehearse(manager: &mut Manager, request: Request) -> Result<Vec<String>, String> {
    let request = Request::DryRun { request: Box::new(request) };
    assert!(!request.is_change());
    match ask(manager, request) {
        Ok(Answer::Changed(lines)) => Ok(lines),
        Ok(other) => panic!("{other:?}"),
        Err((code, _)) => Err(code),
    }
}

fn remove(name: &str) -> Request {
    Request::RemoveVolume { name: name.into(), force: false }
}

fn delete(name: &str) -> Request {
    Request::DeleteVolume { name: name.into(), force: false, snapshots: false }
}

fn resize(name: &str, size: &str) -> Request {
    Request::ResizeVolume { name: name.into(), size: size.into() }
}

#[test]
fn what_is_only_rehearsed_is_told_and_not_done() {
    let kept = Kept::new("rehearsal", &["own=ram:1M", "a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let revision = |manager: &mut Manager| match ask(manager, Request::Status) {
        Ok(Answer::Status(status)) => (status.revision, status.volumes),
        other => panic!("{other:?}"),
    };
    let before = revision(&mut manager);
    let mut told = |request| rehearse(&mut manager, request);
    let line = |line: &str| Ok(vec![line.to_owned()]);
    assert_eq!(told(remove("own")), line("volume own would not be served any more; its content would stay"));
    assert_eq!(told(delete("a")), line("the content of volume a would be deleted"));
    assert_eq!(told(resize("a", "2M")), line("volume a would have 2 MiB, and has 1 MiB"));
    assert_eq!(told(resize("a", "1M")), Ok(vec![]));
    for _ in 0..2 {
        let added = told(add("b=pool:,size=1M")).unwrap();
        assert!(added[0].starts_with("volume b would be served, if "), "{added:?}");
    }
    for (request, code) in [
        (remove("none"), "volume-unknown"),
        (delete("own"), "volume-not-in-pool"),
        (delete("none"), "volume-unknown"),
        (resize("a", "1K"), "resize-refused"),
        (resize("a", "much"), "size-invalid"),
        (add("a=ram:1M"), "volume-exists"),
        (add("b=pool:,size=1G"), "pool-full"),
        (protect("a", true), "request-invalid"),
        (Request::Jobs, "request-invalid"),
    ] {
        assert_eq!(told(request.clone()), Err(code.into()), "{request:?}");
    }
    assert_eq!(revision(&mut manager), before);
    // And then it is done in earnest: nothing was left held.
    for request in [resize("a", "2M"), delete("a"), remove("own"), add("b=pool:,size=1M")] {
        ask(&mut manager, request).unwrap();
    }
}

#[test]
fn snapshots_rollbacks_and_clones_are_told_and_not_done() {
    copy_files();
    let kept = Kept::new("rehearsal-content", &["a=pool:,size=1M", "b=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let take =
        |name: &str| Request::Snapshot { volumes: vec!["a".into(), "b".into()], name: name.into(), protected: false };
    let rollback = |snapshot: &str, keep: Option<&str>| Request::Rollback {
        snapshot: snapshot.into(),
        force: false,
        keep: keep.map(str::to_owned),
    };
    let clone =
        |snapshot: &str, name: &str| Request::Clone { snapshot: snapshot.into(), name: name.into(), target: None };
    let delete = |snapshot: &str| Request::DeleteSnapshot { snapshot: snapshot.into() };
    let keep = |protected| Request::SetSnapshot { snapshot: "a@one".into(), protected };
    ask(&mut manager, take("one")).unwrap();
    ask(&mut manager, keep(true)).unwrap();
    let list = |manager: &mut Manager| ask(manager, Request::Snapshots { volume: None });
    let before = (list(&mut manager), status(&mut manager).revision);
    for (request, expected) in [
        (take("two"), Ok("the snapshot a@two, b@two would be taken")),
        (take("one"), Err("snapshot-exists")),
        (keep(false), Ok("snapshot a@one would not be protected any more")),
        (delete("b@one"), Ok("snapshot b@one would be deleted")),
        (delete("a@one"), Err("content-protected")),
        (delete("a@two"), Err("snapshot-unknown")),
        (clone("a@one", "b"), Err("volume-exists")),
        (clone("a@two", "c"), Err("snapshot-unknown")),
        (rollback("a@two", None), Err("snapshot-unknown")),
        (rollback("a@one", Some("one")), Err("snapshot-exists")),
        (rollback("a@one", None), Ok("volume a would hold what the snapshot a@one does")),
        (
            rollback("a@one", Some("two")),
            Ok("volume a would hold what the snapshot a@one does, and what it holds would become the snapshot a@two"),
        ),
    ] {
        let told = rehearse(&mut manager, request.clone());
        assert_eq!(told, expected.map(|line| vec![line.to_owned()]).map_err(str::to_owned), "{request:?}");
    }
    let told = rehearse(&mut manager, clone("a@one", "c")).unwrap();
    assert!(
        told[0].starts_with("volume c would be served") && told[0].ends_with("the snapshot a@one does"),
        "{told:?}"
    );
    assert_eq!((list(&mut manager), status(&mut manager).revision), before);
    assert!(!kept.directory.join("fast/c.img").exists());
    // And then it is done in earnest: nothing was left held.
    for request in [take("two"), rollback("a@one", None), clone("a@one", "c"), delete("b@one")] {
        ask(&mut manager, request).unwrap();
    }
    manager.into_target().stop().unwrap();
}

#[test]
fn changes_of_clients_and_targets_are_told_and_not_done() {
    let kept = Kept::new("rehearsal-rest", &["a=ram:1M", "b=ram:1M"]);
    let mut manager = start(&kept).unwrap();
    let (id, target) = ("a1".repeat(16), "iqn.2026-11.org.sanwire:a".to_owned());
    let named = |name: &str| ClientSettings { name: Some(name.to_owned()), ..ClientSettings::default() };
    let add = |settings| Request::AddClient { id: id.clone(), settings, force: false };
    let set = |settings| Request::SetClient { client: id.clone(), settings, force: false };
    let (remove, reset) = (
        Request::RemoveClient { client: id.clone(), force: false },
        Request::ResetClient { client: id.clone(), force: false },
    );
    let map = |name: &str, lun, target: Option<&String>| Request::MapVolume {
        name: name.into(),
        lun,
        target: target.cloned(),
        force: false,
    };
    let unmap = |name: &str| Request::UnmapVolume { name: name.into(), target: target.clone(), force: false };
    let before = status(&mut manager);
    for (request, begins) in [
        (add(named("alice")), Ok("client alice (a1")),
        (add(named("al ice")), Err("client-invalid")),
        (set(named("alice")), Err("client-unknown")),
        (remove.clone(), Ok("client a1")),
        (map("b", None, Some(&target)), Ok("volume b would be logical unit 1 of")),
        (map("b", Some(0), Some(&target)), Err("lun-taken")),
        (map("b", Some(0), None), Err("lun-taken")),
        (map("b", Some(7), None), Ok("volume b would be logical unit 7, and is 1")),
        (map("b", None, None), Err("lun-or-target-missing")),
        (map("z", Some(7), None), Err("volume-unknown")),
        (unmap("a"), Ok("volume a would be no logical unit of")),
        (unmap("b"), Err("mapping-unknown")),
    ] {
        match (rehearse(&mut manager, request.clone()), begins) {
            (Ok(told), Ok(begins)) => assert!(told[0].starts_with(begins), "{request:?}: {told:?}"),
            (told, expected) => {
                let expected = expected.map(|line| vec![line.to_owned()]).map_err(str::to_owned);
                assert_eq!(told, expected, "{request:?}");
            }
        }
    }
    let after = status(&mut manager);
    assert_eq!((after.revision, after.targets, after.volumes), (before.revision, before.targets, before.volumes));
    assert!(matches!(ask(&mut manager, Request::Clients), Ok(Answer::Clients(clients)) if clients.is_empty()));
    // And then it is done in earnest: nothing was left held.
    for request in [add(named("alice")), set(named("bob")), reset, map("b", None, Some(&target)), unmap("a")] {
        ask(&mut manager, request).unwrap();
    }
    manager.into_target().stop().unwrap();
}

#[test]
fn who_may_not_do_it_may_not_rehearse_it() {
    let kept = Kept::new("rehearsal-scope", &["own=ram:1M"]);
    let mut manager = start(&kept).unwrap();
    let request = Request::DryRun { request: Box::new(remove("own")) };
    let within = Request::InPools { pools: Vec::new(), request: Box::new(request) };
    assert_eq!(ask(&mut manager, within).map_err(|(code, _)| code), Err("not-permitted".into()));
}
