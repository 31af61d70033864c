//! Targets are set and removed while initiators have sessions with them.

use sanwire_server::{AllowList, ChapUser, Request, SetSecret, TargetSettings};

use super::initiator::Said;
use super::usage::{Managed, TARGET};

const NEW: &str = "iqn.2026-11.org.sanwire:new";

fn set(settings: TargetSettings, force: bool) -> Request {
    Request::SetTarget { name: TARGET.into(), settings, force }
}

fn allow(rule: &str) -> TargetSettings {
    TargetSettings { allow: Some(vec![rule.into()]), ..TargetSettings::default() }
}

fn remove(name: &str, force: bool) -> Request {
    Request::RemoveTarget { name: name.into(), force }
}

fn users(name: &str) -> TargetSettings {
    let user = ChapUser { user: name.into(), secret: SetSecret("correct horse battery".into()) };
    TargetSettings { chap: Some(vec![user]), ..TargetSettings::default() }
}

#[test]
fn a_target_with_a_session_is_removed_by_force_only_and_its_session_ends() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    let refused = managed.ask(remove(TARGET, false)).unwrap_err();
    let in_use = format!("iSCSI target {TARGET} is in use by initiator iqn.2026-11.org.sanwire:test at 127.0.0.1");
    assert!(refused.starts_with(&in_use) && refused.ends_with("or add --force"), "{refused}");
    assert_eq!(initiator.read(0, 0), 0, "it goes on");
    managed.ask(remove(TARGET, true)).expect("that is meant");
    assert_eq!(initiator.hear(), Said::End);
    managed.ask(Request::AddTarget { name: TARGET.into(), settings: TargetSettings::default() }).unwrap();
    let initiator = managed.login();
    drop(initiator);
    super::wait_until("the session is over", || managed.manager.target().sessions().is_empty());
    managed.ask(remove(TARGET, false)).expect("nobody is there");
}

#[test]
fn a_target_that_was_just_made_is_logged_in_to() {
    let mut managed = Managed::new();
    managed.ask(Request::AddTarget { name: "new".into(), settings: TargetSettings::default() }).unwrap();
    let map = Request::MapVolume { name: "prompt".into(), lun: Some(0), target: Some(NEW.into()), force: false };
    managed.ask(map).unwrap();
    let portal = managed.manager.target().wires().iter().find_map(sanwire_server::Wire::portal).unwrap().0;
    let mut initiator = super::Initiator::login(portal, NEW, 2);
    assert_eq!(initiator.read(0, 0), 0);
}

#[test]
fn who_may_not_use_a_target_any_more_is_kept_while_it_uses_it_and_ends_by_force() {
    for keeps_out in
        [allow("192.0.2.0/24"), users("root"), TargetSettings { portal_groups: Some(vec![9]), ..users("root") }]
    {
        let mut managed = Managed::new();
        let mut initiator = managed.login();
        assert_eq!(initiator.read(0, 0), 0);
        let refused = managed.ask(set(keeps_out.clone(), false)).unwrap_err();
        assert!(refused.contains("is in use by initiator"), "{keeps_out:?} {refused}");
        for stays in
            [allow("iqn.2026-11.org.sanwire:*"), TargetSettings { alias: Some("x".into()), ..Default::default() }]
        {
            managed.ask(set(stays, false)).expect("it may use it on");
        }
        assert_eq!(initiator.read(0, 0), 0, "it goes on");
        managed.ask(set(keeps_out, true)).expect("that is meant");
        assert_eq!(initiator.hear(), Said::End);
    }
}

#[test]
fn who_has_only_looked_around_is_kept_out_at_once() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    managed.ask(set(allow("192.0.2.0/24"), false)).expect("it has used nothing");
    assert_eq!(initiator.hear(), Said::End);
}

#[test]
fn a_reload_keeps_out_who_may_not_use_a_target_any_more() {
    let mut managed = Managed::new();
    let mut initiator = managed.login();
    assert_eq!(initiator.read(0, 0), 0);
    let reload = |force, dry_run| Request::Reload { force, dry_run, reset: false };
    managed.configured.lock().unwrap().exports[0].allow = AllowList::new(vec!["192.0.2.0/24".parse().unwrap()]);
    let would = managed.ask(reload(false, true)).unwrap();
    assert!(would.iter().any(|line| line.contains("is in use by initiator")), "{would:?}");
    let refused = managed.ask(reload(false, false)).unwrap_err();
    assert!(refused.contains("nothing was reloaded") && refused.contains("may not use it then"), "{refused}");
    assert_eq!(initiator.read(0, 0), 0, "it goes on");
    managed.ask(reload(true, false)).expect("that is meant");
    assert_eq!(initiator.hear(), Said::End);
}
