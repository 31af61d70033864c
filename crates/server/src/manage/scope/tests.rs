use std::fs;

use crate::front::hyperscsi::clients::ClientSettings;
use crate::front::iscsi::target_settings::TargetSettings;
use crate::manage::pools::tests::{add, ask, protect, start};
use crate::manage::testing::Kept;
use crate::manage::{ArrayGrowth, Request};

fn within(pools: &[&str], request: Request) -> Request {
    let pools = pools.iter().map(|pool| (*pool).to_owned()).collect();
    Request::InPools { pools, request: Box::new(request) }
}

fn remove(name: &str) -> Request {
    Request::RemoveVolume { name: name.into(), force: true }
}

fn set_target(name: &str) -> Request {
    let settings = TargetSettings { allow: Some(vec!["any".into()]), ..TargetSettings::default() };
    Request::SetTarget { name: name.into(), settings, force: true }
}

#[test]
fn what_is_in_no_pool_is_not_for_who_may_change_what_is_in_pools() {
    let kept = Kept::new("scope", &["own=ram:1M", "a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let mut code = |request: Request| ask(&mut manager, request).map_err(|(code, _)| code);
    for request in [
        remove("own"),
        protect("own", true),
        Request::DeleteVolume { name: "own".into(), force: false, snapshots: false },
        Request::ResizeVolume { name: "own".into(), size: "2M".into() },
        Request::MapVolume { name: "own".into(), lun: Some(9), target: None, force: true },
        Request::Snapshot { volumes: vec!["a".into(), "own".into()], name: "s".into(), protected: false },
        Request::LoadVolume { name: "a".into(), store: Some("file:/etc/shadow".into()) },
        Request::GrowArray(ArrayGrowth { name: "own".into(), add: Vec::new() }),
        Request::GrowArray(ArrayGrowth { name: "a".into(), add: vec!["file:/etc/shadow".into()] }),
        add("b=file:/etc/shadow"),
        add("b=ram:1M"),
        Request::Start { request: Box::new(add("b=/dev/sda")) },
        set_target("own"),
        Request::RemoveTarget { name: "own".into(), force: true },
    ] {
        for pools in [&[][..], &["fast"]] {
            assert_eq!(code(within(pools, request.clone())), Err("not-permitted".into()), "{request:?}");
        }
    }
    for request in [add("b=pool:,size=1M"), protect("a", true), protect("a", false), remove("b")] {
        code(within(&["slow", "fast"], request.clone())).unwrap();
    }
    code(within(&[], set_target("a"))).unwrap();
    let remove_own = Request::RemoveTarget { name: "own".into(), force: true };
    code(remove_own).unwrap();
    let back = Request::AddTarget { name: "own".into(), settings: TargetSettings::default() };
    assert_eq!(code(within(&[], back)), Err("not-permitted".into()), "it would have its volume again");
    assert_eq!(code(within(&["fast"], set_target("a"))), Err("not-permitted".into()), "it belongs to no pool");
    assert_eq!(code(within(&["fast"], remove("none"))), Err("volume-unknown".into()));
}

#[test]
fn the_target_of_a_volume_whose_store_is_away_is_not_for_who_may_change_what_is_in_pools() {
    let kept = Kept::new("scope-missing", &["a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let file = kept.directory.join("far.img");
    let volume = format!("far=file:{},size=1M", file.display());
    let target = Some("iqn.2026-11.org.sanwire:a".to_owned());
    ask(&mut manager, Request::AddVolume { volume, target, renew: false, adopt: false }).unwrap();
    let changes = || [set_target("a"), Request::RemoveTarget { name: "a".into(), force: true }];
    for request in changes() {
        let code = ask(&mut manager, within(&[], request)).map_err(|(code, _)| code);
        assert_eq!(code, Err("not-permitted".into()), "it is there");
    }
    manager.into_target().stop().unwrap();
    fs::rename(&file, kept.directory.join("elsewhere.img")).unwrap();
    let mut manager = start(&kept).unwrap();
    assert!(manager.find("a").is_some() && manager.find("far").is_none());
    for request in changes() {
        let code = ask(&mut manager, within(&[], request.clone())).map_err(|(code, _)| code);
        assert_eq!(code, Err("not-permitted".into()), "{request:?}");
    }
    for request in changes() {
        ask(&mut manager, request).unwrap();
    }
    manager.into_target().stop().unwrap();
}

#[test]
fn who_may_change_one_pool_changes_nothing_in_others() {
    let kept = Kept::new("scope-of-one", &["a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let mut code = |request: Request| ask(&mut manager, within(&["slow"], request)).map_err(|(code, _)| code);
    let client = || "0123456789abcdef0123456789abcdef".to_owned();
    for request in [
        add("b=pool:,size=1M"),
        add("b=pool:fast,size=1M"),
        remove("a"),
        Request::DeleteVolume { name: "a".into(), force: false, snapshots: false },
        Request::PauseClient { client: client() },
        Request::RemoveClient { client: client(), force: false },
        Request::DropSession { session: "1".into() },
        Request::Reload { force: false, dry_run: false, reset: false },
    ] {
        assert_eq!(code(request.clone()), Err("not-permitted".into()), "{request:?}");
    }
    assert!(code(Request::Status).is_ok(), "it may look");
    // Its content is there, and is that of the other pool still.
    assert!(ask(&mut manager, remove("a")).is_ok());
    let delete = Request::DeleteVolume { name: "a".into(), force: false, snapshots: false };
    assert_eq!(
        ask(&mut manager, within(&["slow"], delete.clone())).map_err(|(code, _)| code),
        Err("not-permitted".into())
    );
    assert!(ask(&mut manager, within(&["fast"], delete)).is_ok());
}

#[test]
fn who_manages_is_an_administrators_care() {
    let kept = Kept::new("scope-clients", &["a=ram:1M"]);
    let mut manager = start(&kept).unwrap();
    let id = |digit: &str| digit.repeat(32);
    let add = |digit: &str, manage| {
        let settings = ClientSettings { manage, ..ClientSettings::default() };
        Request::AddClient { id: id(digit), settings, force: false }
    };
    ask(&mut manager, add("a", Some(true))).unwrap();
    ask(&mut manager, add("b", None)).unwrap();
    let mut code = |request: Request| ask(&mut manager, within(&[], request)).map_err(|(code, _)| code);
    let remove = |digit: &str| Request::RemoveClient { client: id(digit), force: false };
    let settings = ClientSettings { name: Some("x".into()), ..ClientSettings::default() };
    let set = |digit: &str| Request::SetClient { client: id(digit), settings: settings.clone(), force: false };
    for request in [remove("a"), set("a"), Request::Start { request: Box::new(remove("a")) }] {
        assert_eq!(code(request.clone()), Err("not-permitted".into()), "{request:?}");
    }
    code(set("b")).unwrap();
    code(remove("b")).unwrap();
    code(remove("c")).unwrap();
    ask(&mut manager, remove("a")).unwrap();
}
