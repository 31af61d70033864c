use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use crate::config::ServerConfig;
use crate::derived;
use crate::events::EventFilter;
use crate::front::hyperscsi::clients::{ClientSettings, Secret};
use crate::manage::testing::{Kept, any_port, config};
use crate::manage::{Request, Status, TargetStatus};

const OWN: &str = "iqn.2026-11.org.sanwire:a";
const NEW: &str = "iqn.2026-11.org.sanwire:new";
const SECRET: &str = "correct horse battery";

fn settings(json: serde_json::Value) -> TargetSettings {
    serde_json::from_value(json).unwrap()
}

fn chap() -> serde_json::Value {
    json!({ "chap": [{ "user": "host", "secret": SECRET }] })
}

fn add(name: &str, json: serde_json::Value) -> Request {
    Request::AddTarget { name: name.into(), settings: settings(json) }
}

fn set(name: &str, json: serde_json::Value) -> Request {
    Request::SetTarget { name: name.into(), settings: settings(json), force: false }
}

fn remove(name: &str) -> Request {
    Request::RemoveTarget { name: name.into(), force: false }
}

fn map(volume: &str, target: &str) -> Request {
    Request::MapVolume { name: volume.into(), lun: None, target: Some(target.into()), force: false }
}

fn unmap(volume: &str, target: &str) -> Request {
    Request::UnmapVolume { name: volume.into(), target: target.into(), force: false }
}

const RELOAD: Request = Request::Reload { force: false, dry_run: false, reset: false };
const RESET: Request = Request::Reload { force: false, dry_run: false, reset: true };

#[track_caller]
fn lines(manager: &mut Manager, request: Request) -> Vec<String> {
    match manager.execute(request) {
        Ok(Answer::Changed(lines)) => lines,
        other => panic!("{other:?}"),
    }
}

fn code(manager: &mut Manager, request: Request) -> &'static str {
    manager.execute(request).map(drop).map_or_else(|error| error.code(), |()| "done")
}

fn status(manager: &mut Manager) -> Status {
    match manager.execute(Request::Status) {
        Ok(Answer::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

fn target(manager: &mut Manager, name: &str) -> Option<TargetStatus> {
    status(manager).targets.into_iter().find(|target| target.name == name)
}

fn units(manager: &mut Manager, name: &str) -> Option<Vec<(u16, String)>> {
    target(manager, name).map(|target| target.units)
}

fn served(config: ServerConfig) -> Manager {
    let wires = ["hs-ip:127.0.0.1:1", "iscsi:127.0.0.1:1"].map(|wire| any_port(wire.parse().unwrap())).to_vec();
    let config = ServerConfig { wires, ..config };
    Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap()
}

#[test]
fn a_target_is_made_set_filled_emptied_and_removed() {
    let mut manager = served(config(&["a=ram:1M"]));
    let made = lines(&mut manager, add("new", json!({ "alias": "mine" })));
    assert!(made[0].starts_with(&format!("target {NEW} is there: alias 'mine'")), "{made:?}");
    assert_eq!(units(&mut manager, NEW), Some(vec![]));
    lines(&mut manager, map("a", NEW));
    let revision = target(&mut manager, NEW).unwrap().revision;
    lines(&mut manager, set("new", json!({ "allow": ["10.0.0.0/8"], "portal_groups": [1] })));
    let after = target(&mut manager, NEW).unwrap();
    assert!(after.revision > revision);
    assert_eq!((&*after.terms.alias, after.terms.allow.len(), after.units.len()), ("mine", 1, 1));
    lines(&mut manager, unmap("a", NEW));
    assert_eq!(units(&mut manager, NEW), Some(vec![]), "it stays");
    lines(&mut manager, map("a", NEW));
    let told = lines(&mut manager, remove("new"));
    assert_eq!(told[0], format!("target {NEW} is gone; volumes stay: a"));
    assert_eq!((units(&mut manager, NEW), status(&mut manager).volumes.len()), (None, 1));
    assert_eq!(status(&mut manager).deviations, []);
    let events = manager.target.events().read(None, &EventFilter::default(), std::time::Duration::ZERO).events;
    let told: Vec<String> =
        events.iter().map(|event| event.what.to_string()).filter(|what| what.contains(NEW)).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    manager.into_target().stop().unwrap();
}

#[test]
fn what_is_wrong_is_refused_with_a_code_and_changes_nothing() {
    let mut manager = served(config(&["a=ram:1M"]));
    let before = status(&mut manager);
    for (request, wanted) in [
        (add(OWN, json!({})), "target-exists"),
        (add("IQN.2026-11.ORG.SANWIRE:A", json!({})), "target-exists"),
        (add("", json!({})), "target-name-invalid"),
        (add("a b", json!({})), "target-name-invalid"),
        (add(&format!("iqn.2026-11.org.x:{}", "n".repeat(300)), json!({})), "target-name-invalid"),
        (add("new", json!({ "allow": ["?!"] })), "target-invalid"),
        (set("new", json!({ "alias": "x" })), "target-unknown"),
        (set(OWN, json!({})), "target-invalid"),
        (set(OWN, json!({ "chap": [{ "user": "host", "secret": "short" }] })), "target-invalid"),
        (remove("new"), "target-unknown"),
        (Request::IfRevision { revision: 1, request: Box::new(add("new", json!({}))) }, "revision-stale"),
        (Request::IfRevision { revision: 1, request: Box::new(set(OWN, json!({ "alias": "x" }))) }, "revision-stale"),
        (Request::IfRevision { revision: 1, request: Box::new(remove("a")) }, "revision-stale"),
    ] {
        assert_eq!(code(&mut manager, request.clone()), wanted, "{request:?}");
    }
    assert_eq!((status(&mut manager), manager.kept.changes().is_empty()), (before, true));
    let on_condition = |revision, request| Request::IfRevision { revision, request: Box::new(request) };
    let now = status(&mut manager).collections.targets;
    assert_eq!(code(&mut manager, on_condition(now, add("new", json!({})))), "done");
    let now = target(&mut manager, NEW).unwrap().revision;
    assert_eq!(code(&mut manager, on_condition(now, remove(NEW))), "done");
    manager.into_target().stop().unwrap();
}

#[test]
fn what_is_only_rehearsed_is_told_and_not_done() {
    let mut manager = served(config(&["a=ram:1M"]));
    let before = status(&mut manager);
    let mut told = |request| match manager.execute(Request::DryRun { request: Box::new(request) }) {
        Ok(Answer::Changed(lines)) => lines[0].clone(),
        Ok(other) => panic!("{other:?}"),
        Err(error) => error.code().to_owned(),
    };
    assert_eq!(told(add("new", json!({}))), format!("target {NEW} would be there: no settings of its own"));
    assert_eq!(told(add("a", json!({}))), "target-exists");
    assert_eq!(told(set("a", chap())), format!("target {OWN} would be set: chap host"));
    let would = told(remove("a"));
    assert_eq!(
        would,
        format!("target {OWN} would go, until it is added again or its configuration is edited; volumes stay: a")
    );
    assert_eq!(status(&mut manager), before);
    manager.into_target().stop().unwrap();
}

#[test]
fn no_target_is_open_beside_a_password_unless_that_is_said() {
    let mut manager = served(ServerConfig { psk: [7; 32], exports: Vec::new(), ..config(&["a=ram:1M"]) });
    assert_eq!(code(&mut manager, add("new", json!({ "allow": ["any"] }))), "target-open");
    assert_eq!(code(&mut manager, map("a", NEW)), "target-open");
    assert_eq!(code(&mut manager, add("new", chap())), "done");
    assert_eq!(code(&mut manager, map("a", NEW)), "done", "it is guarded");
    assert_eq!(code(&mut manager, add("meant", json!({ "chap": [] }))), "done");
    manager.into_target().stop().unwrap();

    let mut manager = served(ServerConfig { exports: Vec::new(), ..config(&["a=ram:1M"]) });
    assert_eq!(code(&mut manager, add("new", json!({}))), "done");
    let client = ClientSettings { psk: Some(Secret([1; 32])), ..ClientSettings::default() };
    let add_client = || Request::AddClient { id: "a1".repeat(16), settings: client.clone(), force: false };
    assert_eq!(code(&mut manager, add_client()), "target-open");
    assert_eq!(code(&mut manager, set("new", chap())), "done");
    assert_eq!(code(&mut manager, add_client()), "done");
    manager.into_target().stop().unwrap();
}

#[test]
fn what_was_set_is_there_after_a_restart_and_a_reload_and_is_forgotten_by_a_reset() {
    let kept = Kept::new("targets", &["a=ram:1M", "b=ram:1M"]);
    let first_line = || fs::read_to_string(kept.changes()).unwrap().lines().next().unwrap().to_owned();
    let mut manager = kept.start().unwrap();
    lines(&mut manager, map("b", OWN));
    assert!(first_line().starts_with("{\"sanwire\":1,"), "an earlier version reads it");
    lines(&mut manager, add("new", chap()));
    lines(&mut manager, map("b", NEW));
    lines(&mut manager, set("a", json!({ "allow": ["any"], "alias": "mine" })));
    lines(&mut manager, remove("b"));
    assert!(first_line().starts_with("{\"sanwire\":2,"), "an earlier version would understand a part of it");
    assert_eq!(fs::metadata(kept.changes()).unwrap().permissions().mode() & 0o777, 0o600);
    let targets = status(&mut manager).targets.into_iter().map(|target| TargetStatus { revision: 0, ..target });
    let (targets, deviations): (Vec<_>, _) = (targets.collect(), status(&mut manager).deviations);
    assert!(deviations.iter().filter(|deviation| deviation.resource == "target").count() == 3, "{deviations:?}");
    assert!(!format!("{deviations:?} {targets:?}").contains("horse"));
    let again = |manager: &mut Manager| {
        let now = status(manager).targets.into_iter().map(|target| TargetStatus { revision: 0, ..target });
        assert_eq!((now.collect::<Vec<_>>(), status(manager).deviations), (targets.clone(), deviations.clone()));
    };
    assert_eq!(lines(&mut manager, RELOAD), Vec::<String>::new(), "nothing differs");
    again(&mut manager);
    drop(manager);
    let mut manager = kept.start().unwrap();
    again(&mut manager);
    let user = manager.target.exports().into_iter().find(|export| export.name.as_str() == NEW).unwrap();
    assert_eq!(user.terms().chap, ["host"]);
    lines(&mut manager, RESET);
    assert_eq!(status(&mut manager).deviations, []);
    assert_eq!((units(&mut manager, NEW), target(&mut manager, OWN).unwrap().terms.alias), (None, "a".to_owned()));
    assert_eq!(units(&mut manager, "iqn.2026-11.org.sanwire:b"), Some(vec![(0, "b".into())]));
    assert!(first_line().starts_with("{\"sanwire\":1,"));
    let aside = kept.changes().with_extension("json.old");
    assert_eq!(fs::metadata(aside).unwrap().permissions().mode() & 0o777, 0o600, "secrets are there, too");
}

#[test]
fn a_target_that_is_configured_and_was_removed_comes_back_when_it_is_added() {
    let kept = Kept::new("targets-back", &["a=ram:1M", "b=ram:1M"]);
    let mut manager = kept.start().unwrap();
    lines(&mut manager, remove("a"));
    drop(manager);
    let mut manager = kept.start().unwrap();
    assert_eq!(units(&mut manager, OWN), None);
    lines(&mut manager, add("a", json!({})));
    assert_eq!(units(&mut manager, OWN), Some(vec![(0, "a".into())]));
    assert!(manager.kept.changes().is_empty(), "{:?}", manager.kept.changes());
    lines(&mut manager, remove("a"));
    lines(&mut manager, map("b", OWN));
    assert_eq!(units(&mut manager, OWN), Some(vec![(0, "b".into())]), "a volume is mapped there again");
    drop(manager);
    let mut manager = kept.start().unwrap();
    assert_eq!(units(&mut manager, OWN), Some(vec![(0, "b".into())]));
    lines(&mut manager, set("a", json!({ "alias": "x" })));
    lines(&mut manager, set("a", json!({ "alias": "a" })));
    assert!(manager.kept.changes().target_settings.is_empty(), "it is as it is configured");
}

#[test]
fn a_change_that_cannot_be_kept_is_not_made() {
    let kept = Kept::new("targets-full", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let before = status(&mut manager);
    kept.fill_disk();
    for request in [add("new", json!({})), set("a", chap()), remove("a")] {
        assert_eq!(code(&mut manager, request), "not-kept");
    }
    assert_eq!(status(&mut manager), before);
}

#[test]
fn there_are_as_many_targets_as_there_may_be() {
    let mut manager = served(ServerConfig { exports: Vec::new(), ..config(&["a=null:1M"]) });
    let full: Vec<TargetNodeConfig> = (0..TARGETS_MAX)
        .map(|number| {
            let name = format!("iqn.2026-11.org.example:{number}").parse().unwrap();
            TargetNodeConfig::new(name, Default::default())
        })
        .collect();
    manager.target.set_exports(full).unwrap();
    assert_eq!(code(&mut manager, add("new", json!({}))), "targets-too-many");
    assert_eq!(code(&mut manager, set("iqn.2026-11.org.example:0", json!({ "alias": "x" }))), "done");
    manager.into_target().stop().unwrap();
}

/// Who gets another secret, or none any more, at the target of a volume gets that at those of what is derived from it, too.
#[test]
fn the_users_of_a_derived_volume_follow_those_of_its_parent() {
    derived::register();
    let mut manager = served(config(&["disk=ram:4M"]));
    let (disk, cam) = ("iqn.2026-11.org.sanwire:disk", "iqn.2026-11.org.sanwire:cam");
    let users = |secret: &str| json!({ "chap": [{ "user": "alice", "secret": secret }] });
    lines(&mut manager, set("disk", users(SECRET)));
    let add_cam = Request::AddVolume {
        volume: "cam=dvd:disk,principal=chap:alice".into(),
        target: None,
        renew: false,
        adopt: false,
    };
    lines(&mut manager, add_cam);
    let node = |manager: &Manager, name: &str| manager.target.target_node(&name.parse().unwrap()).unwrap();
    let same_users = |manager: &Manager| {
        assert_eq!(node(manager, cam).authentication.users, node(manager, disk).authentication.users);
        assert_eq!(node(manager, cam).units.len(), 1);
    };
    same_users(&manager);
    lines(&mut manager, set("disk", users("another secret")));
    same_users(&manager);
    lines(&mut manager, set("cam", json!({ "alias": "the camera" })));
    lines(&mut manager, set("disk", users("yet another secret")));
    same_users(&manager);
    assert_eq!(node(&manager, cam).alias, "the camera");
    lines(&mut manager, remove("cam"));
    lines(&mut manager, add("cam", json!({})));
    lines(&mut manager, map("cam", cam));
    same_users(&manager);
    lines(&mut manager, set("disk", json!({ "chap": [{ "user": "bob", "secret": SECRET }] })));
    let here = "127.0.0.1".parse().unwrap();
    let may_use = |manager: &Manager| {
        let initiator = "iqn.1993-08.org.debian:01:a".parse().unwrap();
        node(manager, cam).allow.permits_initiator(&initiator, here, true)
    };
    assert!(!may_use(&manager), "nobody knows alice any more");
    lines(&mut manager, set("disk", users(SECRET)));
    same_users(&manager);
    lines(&mut manager, remove("disk"));
    assert!(!may_use(&manager));
    manager.into_target().stop().unwrap();
}
