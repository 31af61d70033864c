use std::fs;

use super::super::access::PortState;
use super::super::pools::tests::{ask, pool, start as start_with_pools};
use super::super::testing::{Kept, any_port, config, go_on, work};
use super::super::{Answer, Status};
use super::*;
use crate::config::ServerConfig;
use crate::front::hyperscsi::clients::ClientSettings;
use crate::pools::testing::copy_files;

const ALICE: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";
const TARGET: &str = "iqn.2026-11.org.sanwire:a";

fn on(revision: u64, request: Request) -> Request {
    Request::IfRevision { revision, request: Box::new(request) }
}

fn add(volume: &str) -> Request {
    Request::AddVolume { volume: volume.into(), target: None, renew: false, adopt: false }
}

fn remove(name: &str) -> Request {
    Request::RemoveVolume { name: name.into(), force: false }
}

fn resize(name: &str, size: &str) -> Request {
    Request::ResizeVolume { name: name.into(), size: size.into() }
}

fn map(name: &str) -> Request {
    Request::MapVolume { name: name.into(), lun: None, target: Some(TARGET.into()), force: false }
}

fn unmap(name: &str) -> Request {
    Request::UnmapVolume { name: name.into(), target: TARGET.into(), force: false }
}

fn set_client() -> Request {
    let settings = ClientSettings { read_only: Some(true), ..ClientSettings::default() };
    Request::SetClient { client: ALICE.into(), settings, force: false }
}

fn add_client() -> Request {
    Request::AddClient { id: ALICE.into(), settings: ClientSettings::default(), force: false }
}

fn status(manager: &mut Manager) -> Status {
    match manager.execute(Request::Status) {
        Ok(Answer::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

fn volume(manager: &mut Manager, name: &str) -> u64 {
    status(manager).volumes.iter().find(|volume| volume.name == name).unwrap().revision
}

fn target(manager: &mut Manager) -> u64 {
    status(manager).targets.iter().find(|target| target.name == TARGET).unwrap().revision
}

fn client(manager: &mut Manager) -> u64 {
    match manager.execute(Request::Clients) {
        Ok(Answer::Clients(clients)) => clients[0].revision,
        other => panic!("{other:?}"),
    }
}

/// Those of [`ALICE`].
fn sessions(manager: &mut Manager) -> u64 {
    manager.target.revisions().sessions_of(ALICE).unwrap()
}

/// Refused for the revision, which the reason says as it is.
fn refuses(manager: &mut Manager, revision: u64, request: Request, present: u64) {
    let shown = format!("{request:?}");
    let before = (status(manager), manager.target.clients().list());
    let error = manager.execute(on(revision, request)).expect_err(&shown);
    assert_eq!(error.code(), "revision-stale", "{shown}: {error}");
    assert!(
        error.to_string().contains(&format!("revision {present} now, not {revision}: it was changed, ")),
        "{error}"
    );
    assert_eq!((status(manager), manager.target.clients().list()), before, "{shown}");
}

/// A server of volumes that have targets of their own.
fn start() -> Manager {
    let wires = ["hs-ip:127.0.0.1:1", "iscsi:127.0.0.1:1"].map(|wire| any_port(wire.parse().unwrap())).to_vec();
    let config = ServerConfig { wires, ..config(&["a=ram:1M", "b=ram:1M,removable"]) };
    Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap()
}

/// How a revision is read, and a change that needs it.
type Case = (fn(&mut Manager) -> u64, Request);

#[test]
fn a_change_on_the_condition_of_a_revision_is_done_once_and_refused_from_then_on() {
    let mut manager = start();
    // As the shard says that has them.
    manager.target.revisions().session_changed(ALICE, true);
    let name = || "b".to_owned();
    let (group, state) = (1, PortState::Standby);
    let cases: Vec<Case> = vec![
        (|manager| status(manager).collections.volumes, add("c=ram:1M")),
        (|manager| volume(manager, "c"), resize("c", "2M")),
        (|manager| volume(manager, "b"), Request::EjectVolume { name: name(), force: false }),
        (|manager| volume(manager, "b"), Request::LoadVolume { name: name(), store: None }),
        (|manager| volume(manager, "b"), Request::MapVolume { name: name(), lun: Some(9), target: None, force: false }),
        (target, map("c")),
        (target, unmap("c")),
        (|manager| status(manager).collections.clients, add_client()),
        (client, set_client()),
        (sessions, Request::PauseClient { client: ALICE.into() }),
        (sessions, Request::ResumeClient { client: ALICE.into() }),
        (
            |manager| status(manager).revision,
            Request::SetAccessState(crate::manage::AccessChange { group, state, target: None }),
        ),
        (
            |manager| status(manager).revision,
            Request::SetAccessState(crate::manage::AccessChange { group, state, target: Some("hyperscsi".into()) }),
        ),
    ];
    for (read, request) in cases {
        let revision = read(&mut manager);
        refuses(&mut manager, revision - 1, request.clone(), revision);
        refuses(&mut manager, revision + 1, request.clone(), revision);
        let shown = format!("{request:?}");
        manager.execute(on(revision, request.clone())).expect(&shown);
        let present = read(&mut manager);
        assert!(present > revision, "{shown}");
        refuses(&mut manager, revision, request, present);
    }
    let revision = volume(&mut manager, "b");
    manager.execute(on(revision, remove("b"))).unwrap();
    let revision = client(&mut manager);
    manager.execute(on(revision, Request::RemoveClient { client: ALICE.into(), force: false })).unwrap();
    manager.into_target().stop().unwrap();
}

#[test]
fn the_sessions_of_others_do_not_count_in_a_condition_on_those_of_one() {
    let mut manager = start();
    let revisions = manager.target.revisions().clone();
    let pause = || Request::PauseClient { client: ALICE.into() };
    assert_eq!(manager.execute(on(7, pause())).unwrap_err().code(), "session-unknown");
    revisions.session_changed(ALICE, true);
    let seen = sessions(&mut manager);
    // As that of who asks in band.
    revisions.session_changed("b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0", true);
    manager.execute(on(seen, pause())).unwrap();
    let seen = sessions(&mut manager);
    revisions.session_changed(ALICE, true);
    let present = sessions(&mut manager);
    refuses(&mut manager, seen, Request::DropClient { client: ALICE.into() }, present);
    manager.into_target().stop().unwrap();
}

#[test]
fn a_change_of_one_thing_leaves_the_revisions_of_others() {
    let mut manager = start();
    let before = status(&mut manager);
    manager.execute(resize("a", "2M")).unwrap();
    let after = status(&mut manager);
    assert!(after.revision > before.revision && after.volumes[0].revision > before.volumes[0].revision);
    assert_eq!((&after.volumes[1], &after.targets), (&before.volumes[1], &before.targets));
    let [before, after] = [before, after].map(|status| status.collections);
    assert!(after.volumes > before.volumes);
    assert_eq!(
        (after.targets, after.clients, after.sessions),
        (before.targets, before.clients, before.sessions),
        "nor those of other collections"
    );
    manager.into_target().stop().unwrap();
}

#[test]
fn what_was_removed_and_added_again_under_its_name_is_not_what_somebody_has_seen() {
    let mut manager = start();
    manager.execute(add_client()).unwrap();
    manager.execute(unmap("a")).unwrap();
    manager.execute(map("a")).unwrap();
    let seen = (volume(&mut manager, "a"), target(&mut manager), client(&mut manager));
    for request in
        [remove("a"), add("a=ram:1M"), Request::RemoveClient { client: ALICE.into(), force: false }, add_client()]
    {
        manager.execute(request).unwrap();
    }
    let now = (volume(&mut manager, "a"), target(&mut manager), client(&mut manager));
    refuses(&mut manager, seen.0, remove("a"), now.0);
    refuses(&mut manager, seen.1, unmap("a"), now.1);
    refuses(&mut manager, seen.2, set_client(), now.2);
    manager.execute(remove("a")).unwrap();
    for (request, code) in [(remove("a"), "volume-unknown"), (unmap("a"), "target-unknown"), (set_client(), "")] {
        let error = manager.execute(on(now.0, request)).unwrap_err();
        assert_eq!(error.code(), if code.is_empty() { "revision-stale" } else { code });
    }
    manager.into_target().stop().unwrap();
}

#[test]
fn no_condition_of_an_earlier_run_fits_after_a_restart() {
    let kept = Kept::new("condition-restart", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    manager.execute(add("b=ram:1M")).unwrap();
    let before = status(&mut manager);
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    for seen in &before.volumes {
        let present = volume(&mut manager, &seen.name);
        refuses(&mut manager, seen.revision, remove(&seen.name), present);
    }
    let present = status(&mut manager).revision;
    refuses(&mut manager, before.revision, Request::Reload { force: false, dry_run: false, reset: false }, present);
}

#[test]
fn of_two_who_want_to_change_the_same_at_one_time_one_is_refused_and_nothing_is_left_of_that() {
    let kept = Kept::new("condition-race", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let image = kept.directory.join("c.img");
    let file = |size: &str| add(&format!("c=file:{},size={size}", image.display()));

    let revision = status(&mut manager).collections.volumes;
    let opening = work(manager.begin(on(revision, file("1M"))).unwrap());
    manager.execute(on(revision, add("b=ram:1M"))).unwrap();
    assert_eq!(go_on(&mut manager, opening).err().unwrap().code(), "revision-stale");
    assert!(manager.find("c").is_none() && !image.exists(), "what was made for it goes with it");
    manager.execute(file("2M")).expect("it is as if it had never been opened");

    let revision = target(&mut manager);
    let looking = work(manager.begin(on(revision, unmap("a"))).unwrap());
    manager.execute(on(revision, map("b"))).unwrap();
    assert_eq!(go_on(&mut manager, looking).err().unwrap().code(), "revision-stale");
    assert_eq!(status(&mut manager).targets[0].units.len(), 2);

    let revision = status(&mut manager).revision;
    let reading =
        work(manager.begin(on(revision, Request::Reload { force: true, dry_run: false, reset: false })).unwrap());
    let opening = work(go_on(&mut manager, reading).unwrap());
    manager.execute(remove("b")).unwrap();
    assert_eq!(go_on(&mut manager, opening).err().unwrap().code(), "revision-stale");
}

#[test]
fn a_volume_that_is_refused_to_be_renewed_or_adopted_is_the_one_that_it_was() {
    let kept = Kept::new("condition-renew", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let image = kept.directory.join("c.img");
    let spec = format!("c=file:{},size=1M", image.display());
    manager.execute(add(&spec)).unwrap();
    let id = |manager: &mut Manager| {
        status(manager).volumes.into_iter().find(|volume| volume.name == "c").map(|volume| volume.id).unwrap()
    };
    let former = id(&mut manager);
    for (renew, adopt) in [(true, false), (false, true)] {
        manager.execute(remove("c")).unwrap();
        let revision = status(&mut manager).collections.volumes;
        let request = Request::AddVolume { volume: spec.clone(), target: None, renew, adopt };
        let opening = work(manager.begin(on(revision, request)).unwrap());
        manager.execute(resize("a", if renew { "2M" } else { "3M" })).unwrap();
        assert_eq!(go_on(&mut manager, opening).err().unwrap().code(), "revision-stale");
        manager.execute(add(&spec)).expect("it is known as before");
        assert_eq!(id(&mut manager), former, "renew: {renew}, adopt: {adopt}");
    }
    manager.execute(remove("c")).unwrap();
    let request = Request::AddVolume { volume: spec, target: None, renew: true, adopt: false };
    manager.execute(request).unwrap();
    assert_ne!(id(&mut manager), former);
}

/// What was made in its place is empty: it would be served as the volume that clients know.
#[test]
fn a_lost_volume_that_is_refused_to_be_renewed_is_still_lost() {
    let kept = Kept::new("condition-lost", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let image = kept.directory.join("c.img");
    let spec = format!("c=file:{},size=1M", image.display());
    manager.execute(add(&spec)).unwrap();
    manager.execute(remove("c")).unwrap();
    let elsewhere = image.with_extension("elsewhere");
    fs::rename(&image, &elsewhere).unwrap();
    let lost = manager.execute(add(&spec)).unwrap_err().to_string();
    let revision = status(&mut manager).collections.volumes;
    let renew = Request::AddVolume { volume: spec.clone(), target: None, renew: true, adopt: false };
    let opening = work(manager.begin(on(revision, renew)).unwrap());
    manager.execute(resize("a", "2M")).unwrap();
    assert_eq!(go_on(&mut manager, opening).err().unwrap().code(), "revision-stale");
    assert_eq!(manager.execute(add(&spec)).unwrap_err().to_string(), lost);
    assert!(!image.exists(), "what was made of it is gone");
    fs::rename(elsewhere, image).unwrap();
    manager.execute(add(&spec)).expect("it is back");
}

#[test]
fn a_condition_stands_in_front_of_one_change_alone() {
    let mut manager = start();
    let revision = status(&mut manager).revision;
    let reload = || Request::Reload { force: false, dry_run: false, reset: false };
    for request in [
        Request::Status,
        Request::Reload { force: false, dry_run: true, reset: false },
        Request::Start { request: Box::new(reload()) },
        on(revision, reload()),
    ] {
        assert_eq!(manager.execute(on(revision, request)).unwrap_err().code(), "request-invalid");
    }
    manager.execute(on(revision, reload())).unwrap();
    let json = br#"{"do": "if-revision", "revision": 7, "request": {"do": "remove-volume", "name": "a"}}"#;
    assert_eq!(serde_json::from_slice::<Request>(json).unwrap(), on(7, remove("a")));
    manager.into_target().stop().unwrap();
}

#[test]
fn snapshots_and_pools_are_changed_on_the_condition_of_what_is_told_of_them() {
    copy_files();
    let kept = Kept::new("conditions-snapshots", &["a=pool:,size=1M"]);
    let mut manager = start_with_pools(&kept).unwrap();
    let take = || Request::Snapshot { volumes: vec!["a".into()], name: "s".into(), protected: false };
    let protect = |protected| Request::SetSnapshot { snapshot: "a@s".into(), protected };
    let delete = || Request::DeleteSnapshot { snapshot: "a@s".into() };
    let now = |manager: &mut Manager| match ask(manager, Request::Snapshots { volume: None }) {
        Ok(Answer::Snapshots(snapshots)) => snapshots[0].revision,
        other => panic!("{other:?}"),
    };
    let code = |manager: &mut Manager, request| ask(manager, request).unwrap_err().0;
    ask(&mut manager, take()).unwrap();
    let first = now(&mut manager);
    ask(&mut manager, on(first, protect(true))).unwrap();
    let second = now(&mut manager);
    assert_ne!(first, second);
    let rehearsed = |request| Request::DryRun { request: Box::new(request) };
    for request in [protect(false), delete(), rehearsed(delete())] {
        assert_eq!(code(&mut manager, on(first, request)), "revision-stale");
    }
    ask(&mut manager, on(second, protect(false))).unwrap();
    ask(&mut manager, on(first, delete())).unwrap();
    assert_eq!(code(&mut manager, on(first, delete())), "snapshot-unknown");
    ask(&mut manager, take()).unwrap();
    assert_eq!(code(&mut manager, on(first, delete())), "revision-stale", "it is another one of that name");

    let of_pool = pool(&mut manager).revision;
    let forget = |name: &str| Request::ForgetPool { name: name.into() };
    assert_eq!(code(&mut manager, on(of_pool + 1, forget("fast"))), "revision-stale");
    assert_eq!(code(&mut manager, on(of_pool, forget("fast"))), "pool-in-use");
    assert_eq!(code(&mut manager, on(of_pool, forget("gone"))), "revision-stale", "what is not there has none");
    manager.into_target().stop().unwrap();
}
