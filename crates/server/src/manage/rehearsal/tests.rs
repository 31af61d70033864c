use crate::front::hyperscsi::clients::ClientSettings;
use crate::manage::pools::tests::{add, ask, protect, start, status};
use crate::manage::testing::Kept;
use crate::manage::{Answer, ArrayGrowth, Manager, MemberReplacement, PortState, Request};
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
        (Request::Jobs, "request-invalid"),
    ] {
        assert_eq!(told(request.clone()), Err(code.into()), "{request:?}");
    }
    let visits = crate::visits::during(|| assert!(rehearse(&mut manager, add("b=ram:1M")).is_ok()));
    assert_eq!(visits, 1, "one number is looked at, and no shard hears of it");
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

#[test]
fn settings_media_states_and_sessions_are_told_and_not_done() {
    let kept = Kept::new(
        "rehearsal-standing",
        &["own=ram:1M", "a=pool:,size=1M", "r=ram:1M,removable", "c=none:,type=optical"],
    );
    let mut manager = start(&kept).unwrap();
    // What passes in the clear, over iSCSI, is not guarded otherwise.
    let own = Request::UnmapVolume { name: "own".into(), target: "iqn.2026-11.org.sanwire:own".into(), force: true };
    ask(&mut manager, own).unwrap();
    let before = status(&mut manager);
    let client = "a1".repeat(16);
    let secure_one = |name: &str, security: &str| Request::SetVolume {
        name: name.into(),
        security: Some(security.into()),
        protected: None,
        owners: None,
    };
    let secure = |security: &str| secure_one("own", security);
    let eject = |name: &str| Request::EjectVolume { name: name.into(), force: false };
    let load =
        |name: &str, store: Option<&str>| Request::LoadVolume { name: name.into(), store: store.map(str::to_owned) };
    let state = |state, group, target: Option<&str>| {
        Request::SetAccessState(crate::manage::AccessChange { group, state, target: target.map(str::to_owned) })
    };
    let replace = Request::ReplaceMember(MemberReplacement { name: "own".into(), member: 1, store: "ram:1M".into() });
    let grow = Request::GrowArray(ArrayGrowth { name: "own".into(), add: vec!["ram:1M".into()] });
    let pause = Request::PauseClient { client: client.clone() };
    let pauses = format!("{client} would wait, until it is resumed or the server ends");
    for (request, expected) in [
        (secure("aes-128-gcm"), Ok("volume own would be protected by security aes-128-gcm, and is by none")),
        (secure("much"), Err("security-invalid")),
        (secure_one("r", "aes-128-gcm"), Err("targets-invalid")),
        (protect("a", true), Ok("volume a would be protected: its content neither deleted nor rolled back")),
        (protect("none", true), Err("volume-unknown")),
        (eject("r"), Ok("the medium of r would be out")),
        (eject("own"), Err("medium-refused")),
        (eject("none"), Err("volume-unknown")),
        (load("r", None), Ok("the medium of r would be in")),
        (load("own", None), Err("medium-refused")),
        (load("c", Some("file:/a.iso")), Ok("file:/a.iso would be in c, if it can be opened and is a disc")),
        (load("c", Some("floppy:1")), Err("volume-text-invalid")),
        (load("r", Some("file:/a.iso")), Err("medium-refused")),
        (Request::ScrubVolume { name: "own".into() }, Err("copies-refused")),
        (replace, Err("copies-refused")),
        (grow, Err("copies-refused")),
        (Request::ForgetPool { name: "none".into() }, Err("pool-unknown")),
        (Request::ForgetPool { name: "fast".into() }, Err("pool-in-use")),
        (
            state(PortState::Standby, 1, Some("hyperscsi")),
            Ok("hyperscsi: group 1 would be standby, and is active-optimized"),
        ),
        (state(PortState::Standby, 2, Some("hyperscsi")), Err("port-group-unknown")),
        (Request::DropClient { client: client.clone() }, Err("session-unknown")),
        (Request::DropSession { session: "1f".into() }, Err("session-unknown")),
        (pause.clone(), Ok(&*pauses)),
    ] {
        let told = rehearse(&mut manager, request.clone());
        assert_eq!(told, expected.map(|line| vec![line.to_owned()]).map_err(str::to_owned), "{request:?}");
    }
    let same = state(PortState::ActiveOptimized, 1, Some("hyperscsi"));
    assert_eq!((rehearse(&mut manager, same), rehearse(&mut manager, protect("a", false))), (Ok(vec![]), Ok(vec![])));
    let after = status(&mut manager);
    assert_eq!((after.revision, after.groups, after.volumes), (before.revision, before.groups, before.volumes));
    // And then it is done in earnest: nothing was left held, and what is so is told.
    for request in [secure("aes-128-gcm"), protect("a", true), eject("r"), load("r", None), pause] {
        ask(&mut manager, request).unwrap();
    }
    let resume = Request::ResumeClient { client: client.clone() };
    assert_eq!(rehearse(&mut manager, resume), Ok(vec![format!("{client} would go on")]));
    assert_eq!(rehearse(&mut manager, secure("aes-128-gcm")), Ok(vec![]));
}
