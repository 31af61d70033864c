//! Targets that were made, set and removed by themselves.

use serde_json::json;

use super::{BTreeMap, Changed, Changes, Lun, Running, ServerConfig, TargetNodeConfig, configured, merge, with_users};
use crate::derived;
use crate::front::iscsi::target_settings::TargetSettings;
use crate::kept::removed;

const OWN: &str = "iqn.2026-11.org.sanwire:a";
const NEW: &str = "iqn.2026-11.org.example:new";

fn settings(json: serde_json::Value) -> TargetSettings {
    serde_json::from_value(json).unwrap()
}

impl Running {
    fn set(mut self, name: &str, json: serde_json::Value) -> Running {
        let target: TargetNodeConfig = match self.0.exports.iter().position(|export| export.name.as_str() == name) {
            Some(at) => self.0.exports.remove(at),
            None => TargetNodeConfig::new(name.parse().unwrap(), self.0.allow.clone()),
        };
        self.0.exports.push(target.with(&settings(json)).unwrap());
        self
    }

    /// What is kept when this target was removed.
    fn changes_without(mut self, name: &str, before: &ServerConfig) -> Changes {
        self.0.exports.retain(|export| export.name.as_str() != name);
        let mut changes = self.changes(before);
        let gone = before.exports.iter().find(|export| export.name.as_str() == name);
        changes.target_settings.extend(gone.map(|gone| (name.to_owned(), removed(gone))));
        changes
    }
}

fn target<'a>(config: &'a ServerConfig, name: &str) -> Option<&'a TargetNodeConfig> {
    config.exports.iter().find(|export| export.name.as_str() == name)
}

fn sorted(config: &ServerConfig) -> BTreeMap<String, TargetNodeConfig> {
    config.exports.iter().map(|export| (export.name.to_string(), export.clone())).collect()
}

#[test]
fn a_restart_brings_back_targets_as_they_were_set() {
    let volumes = ["a=ram:1M", "b=ram:1M"];
    let before = configured(&volumes);
    let chap = json!({ "chap": [{ "user": "host", "secret": "correct horse battery" }] });
    let run = || Running::of(&volumes);
    for running in [
        run().set(NEW, json!({})),
        run().set(NEW, json!({ "alias": "new", "allow": ["any"] })).map(NEW, 3, "b"),
        run().set(OWN, chap.clone()).set(OWN, json!({ "require_digests": true })).map(OWN, 4, "b"),
        run().set(NEW, chap).set(NEW, json!({ "redirect": "10.0.0.2", "redirect_for_good": true })),
        run().map(NEW, 0, "a").set(NEW, json!({ "portal_groups": [2] })),
    ] {
        let changes = running.changes(&before);
        let (merged, notes) = merge(&before, &changes);
        assert_eq!((sorted(&merged), notes), (sorted(&running.0), Vec::new()));
        assert_eq!(Running(merged).changes(&before), changes, "and once more");
    }
}

#[test]
fn a_target_that_was_removed_stays_away_until_its_configuration_is_edited() {
    let volumes = ["a=ram:1M", "b=ram:1M"];
    let before = configured(&volumes);
    let changes = Running::of(&volumes).map(OWN, 7, "b").changes_without(OWN, &before);
    let (merged, notes) = merge(&before, &changes);
    assert!(target(&merged, OWN).is_none() && notes.is_empty(), "{notes:?}");

    let edit = |edit: &dyn Fn(&mut TargetNodeConfig)| {
        let mut edited = before.clone();
        edit(&mut edited.exports[0]);
        let (merged, notes) = merge(&edited, &changes);
        (target(&merged, OWN).cloned(), edited.exports[0].clone(), notes)
    };
    let one_more = |target: &mut TargetNodeConfig| _ = target.units.insert(Lun::new(1).unwrap(), "b".into());
    let for_all = |target: &mut TargetNodeConfig| target.group_tags = vec![2];
    for (served, edited, notes) in [edit(&one_more), edit(&for_all)] {
        assert_eq!(served, Some(edited), "it is there with all its units");
        assert!(notes.len() == 1 && notes[0].contains("was removed by ctl"), "{notes:?}");
    }
    let (merged, notes) = merge(&ServerConfig { exports: Vec::new(), ..before.clone() }, &changes);
    assert!(target(&merged, OWN).is_none() && notes.is_empty(), "gone from the file, too: {notes:?}");
}

#[test]
fn an_edited_configuration_holds_for_what_was_edited_of_a_target() {
    let before = configured(&["a=ram:1M"]);
    let changes = Running::of(&["a=ram:1M"]).set(OWN, json!({ "allow": ["any"], "alias": "mine" })).changes(&before);
    let mut edited = before.clone();
    edited.exports[0].alias = "theirs".into();
    let (merged, notes) = merge(&edited, &changes);
    let own = target(&merged, OWN).unwrap();
    assert_eq!((&*own.alias, own.allow.rules().len()), ("theirs", 1));
    assert!(notes.len() == 1 && notes[0].starts_with(&format!("the alias of target {OWN}")), "{notes:?}");
    assert_eq!(own.set.as_deref(), Some(&settings(json!({ "allow": ["any"] }))), "the other one is forgotten");

    // What was made, and stands in the file now.
    let made = Running::of(&["a=ram:1M"]).set(NEW, json!({ "alias": "mine" })).changes(&before);
    let mut edited = before.clone();
    edited.exports.push(TargetNodeConfig {
        alias: "theirs".into(),
        ..TargetNodeConfig::new(NEW.parse().unwrap(), edited.allow.clone())
    });
    edited.exports[1].redirect = Some(("10.0.0.2".into(), false));
    let (merged, notes) = merge(&edited, &made);
    assert_eq!(target(&merged, NEW), edited.exports.get(1));
    assert!(notes.len() == 1 && notes[0].contains("is in the configuration now"), "{notes:?}");

    // What was set, and does not stand there any more.
    let (merged, notes) = merge(&ServerConfig { exports: Vec::new(), ..before }, &changes);
    assert!(target(&merged, OWN).is_none());
    assert!(notes.len() == 1 && notes[0].contains("is not in the configuration any more"), "{notes:?}");
}

#[test]
fn a_target_with_users_is_served_beside_a_password_and_an_open_one_is_not() {
    let before = configured(&["a=ram:1M"]);
    let chap = json!({ "chap": [{ "user": "host", "secret": "correct horse battery" }] });
    for (set, is_served) in [(chap, true), (json!({ "chap": [] }), true), (json!({ "allow": ["any"] }), false)] {
        let changes = Running::of(&["a=ram:1M"]).set(NEW, set.clone()).map(NEW, 0, "a").changes(&before);
        let (merged, notes) = merge(&ServerConfig { psk: [1; 32], ..before.clone() }, &changes);
        assert_eq!((target(&merged, NEW).is_some(), notes.is_empty()), (is_served, is_served), "{set} {notes:?}");
    }
}

/// The users of its parent are those of its own target, whatever else was set of that.
#[test]
fn the_own_target_of_a_derived_volume_keeps_its_users_when_it_is_set() {
    derived::register();
    let before = with_users(&["alice"]);
    let cam = "iqn.2026-11.org.sanwire:cam";
    let running = Running(before.clone()).add("cam=dvd:disk,principal=chap:alice", 1).map(cam, 0, "cam");
    let changes = running.set(cam, json!({ "alias": "the camera", "allow": ["10.0.0.0/8"] })).changes(&before);
    let (merged, notes) = merge(&before, &changes);
    let own = target(&merged, cam).unwrap();
    assert_eq!((&*own.alias, own.allow.rules().len(), own.authentication.users.len()), ("the camera", 1, 1));
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn files_without_settings_of_targets_are_as_those_of_earlier_versions() {
    let before = configured(&["a=ram:1M"]);
    let plain = Running::of(&["a=ram:1M"]).map(NEW, 0, "a").changes(&before);
    assert!(!serde_json::to_string(&plain).unwrap().contains("target-settings"));
    let set = Running::of(&["a=ram:1M"]).set(NEW, json!({})).changes(&before);
    let change = Changed { configured: None, now: Some(TargetSettings::default()) };
    assert_eq!(set.target_settings, BTreeMap::from([(NEW.to_owned(), change)]));
    assert!(!set.are_within(&plain) && plain.are_within(&plain));
}
