use serde_json::json;

use super::*;
use crate::allow::AllowList;
use crate::front::iscsi::target_node::TargetNodeConfig;

fn target() -> TargetNodeConfig {
    TargetNodeConfig::new("iqn.2026-11.org.example:disk".parse().unwrap(), AllowList::default())
}

fn settings(json: serde_json::Value) -> TargetSettings {
    serde_json::from_value(json).unwrap()
}

fn set(json: serde_json::Value) -> Result<TargetNodeConfig, TargetSettingsError> {
    target().with(&settings(json))
}

fn user(name: &str, secret: &str) -> serde_json::Value {
    json!({ "user": name, "secret": secret })
}

const LONG: &str = "correct horse battery";

#[test]
fn what_is_set_is_told_without_secrets_and_what_is_not_said_stays() {
    let all = json!({
        "alias": "the disk", "allow": ["10.0.0.0/8", "iqn.1993-08.org.debian:*"], "chap": [user("host", LONG)],
        "mutual_chap": user("storage", "another secret"), "chap_algorithms": ["sha256", "sha3-256"],
        "portal_groups": [1, 7], "require_digests": true, "redirect": "10.0.0.2:99,2", "redirect_for_good": true,
    });
    let first = set(all.clone()).unwrap();
    let terms = serde_json::to_value(first.terms()).unwrap();
    let mut told = all.clone();
    (told["chap"], told["mutual_chap"]) = (json!(["host"]), json!("storage"));
    assert_eq!(terms, told);
    let second = first.clone().with(&settings(json!({ "alias": "", "redirect": "", "no_mutual_chap": true }))).unwrap();
    assert_eq!((&*second.alias, &second.redirect, &second.authentication.mutual), ("", &None, &None));
    assert_eq!(second.authentication.users, first.authentication.users);
    // All that was set, one after the other, makes the same of a target that nothing was set of.
    let again = target().with(second.set.as_ref().unwrap()).unwrap();
    assert_eq!(again, second);
    let shown = format!("{} {second:?} {:?}", second.set.as_ref().unwrap().shown(), settings(all));
    assert!(shown.contains("chap host") && !shown.contains("horse") && !shown.contains("another secret"), "{shown}");
}

#[test]
fn what_cannot_be_is_refused() {
    let many = |count: usize| vec!["any"; count];
    for (wrong, part) in [
        (json!({ "allow": ["nobody!"] }), "'nobody!' names nobody"),
        (json!({ "allow": many(257) }), "at most 256 rules"),
        (json!({ "alias": "a\nb" }), "an alias has 1 to 255 bytes"),
        (json!({ "alias": "x".repeat(256) }), "an alias has 1 to 255 bytes"),
        (json!({ "chap": [user("", LONG)] }), "the name of a CHAP user has 1 to 255 bytes"),
        (json!({ "chap": [user("host", "short")] }), "CHAP user host: the secret is too short"),
        (json!({ "chap": [user("host", &"x".repeat(1025))] }), "CHAP user host: the secret is too long"),
        (json!({ "chap": [user("host", LONG), user("host", "another secret")] }), "host stands there twice"),
        (json!({ "chap": [user("host", LONG)], "mutual_chap": user("storage", LONG) }), "each direction needs another"),
        (json!({ "mutual_chap": user("storage", LONG), "no_mutual_chap": true }), "either set or dropped"),
        (json!({ "chap": [user("host", LONG)], "chap_algorithms": ["rot13"] }), "'rot13' is no algorithm"),
        (json!({ "chap_algorithms": ["sha256"] }), "nobody is asked for CHAP"),
        (json!({ "portal_groups": [1, 0] }), "a tag from 1 to 65535"),
        (json!({ "redirect": "10.0.0" }), "'10.0.0' is no portal"),
        (json!({ "redirect_for_good": true }), "give redirect too"),
    ] {
        let refusal = set(wrong).unwrap_err().to_string();
        assert!(refusal.contains(part) && !refusal.contains(LONG), "{refusal}");
    }
    let most = set(json!({ "allow": many(256), "alias": "x".repeat(255), "chap": [user(&"x".repeat(255), LONG)] }));
    assert_eq!(most.unwrap().allow.rules().len(), 256);
    for unknown in
        [json!({ "aliass": "" }), json!({ "chap": [{ "user": "host" }] }), json!({ "portal_groups": [65536] })]
    {
        assert!(serde_json::from_value::<TargetSettings>(unknown).is_err());
    }
}

#[test]
fn a_target_is_meant_to_be_open_only_where_that_was_said() {
    assert!(target().is_open() && set(json!({ "alias": "x" })).unwrap().is_open());
    assert!(!set(json!({ "chap": [] })).unwrap().is_open());
    assert!(!set(json!({ "chap": [user("host", LONG)] })).unwrap().is_open());
}

#[test]
fn algorithms_go_with_the_users_and_nothing_is_left_that_cannot_be_set_again() {
    let guarded = set(json!({ "chap": [user("host", LONG)], "chap_algorithms": ["sha256"] })).unwrap();
    let open = guarded.with(&settings(json!({ "chap": [] }))).unwrap();
    assert!(open.authentication.algorithms.is_empty());
    assert_eq!(target().with(open.set.as_ref().unwrap()).unwrap(), open);
}

/// Each thing of a target is looked at for itself: the alias, `allow`, CHAP, and so on.
#[test]
fn a_setting_holds_as_long_as_the_configuration_says_the_same_of_that_thing() {
    let configured = set(json!({ "alias": "old", "chap": [user("host", LONG)] })).unwrap();
    let changed = settings(json!({ "alias": "new", "allow": ["any"], "chap": [user("root", "another secret")] }));
    let before = changed.as_in(&configured);
    let text = serde_json::to_string(&before).unwrap();
    assert!(text.contains("host") && !text.contains("horse"), "a digest: {text}");
    assert_eq!(changed.holding(&before, &configured), (changed.clone(), vec![]));

    let edited = |json: serde_json::Value| configured.clone().with(&settings(json)).unwrap();
    let (holding, overridden) = changed.holding(&before, &edited(json!({ "alias": "other", "require_digests": true })));
    assert_eq!((holding.alias, holding.allow.is_some(), holding.chap.is_some()), (None, true, true));
    assert_eq!(overridden, ["the alias"]);
    let (_, overridden) = changed.holding(&before, &edited(json!({ "alias": "new" })));
    assert_eq!(overridden, Vec::<&str>::new(), "the file says the same now");
    // The name of the user is as it was, and the secret is another one.
    let (holding, overridden) = changed.holding(&before, &edited(json!({ "chap": [user("host", "yet another one")] })));
    assert_eq!((holding.chap, overridden), (None, vec!["CHAP"]));
    // An algorithm belongs to the users.
    let algorithm = settings(json!({ "chap_algorithms": ["sha256"] }));
    let before = algorithm.as_in(&configured);
    let (holding, overridden) = algorithm.holding(&before, &edited(json!({ "chap": [] })));
    assert_eq!((holding.is_empty(), overridden), (true, vec!["CHAP"]));
}

#[test]
fn what_is_so_without_settings_is_known() {
    let configured = set(json!({ "allow": ["any"], "chap": [user("host", LONG)] })).unwrap();
    for (said, is_same) in [
        (json!({ "allow": ["any"] }), true),
        (json!({ "chap": [user("host", LONG)], "alias": "" }), true),
        (json!({ "chap": [user("host", "another secret")] }), false),
        (json!({ "allow": [] }), false),
        (json!({ "redirect": "10.0.0.2" }), false),
    ] {
        assert_eq!(settings(said.clone()).are_those_of(&configured), is_same, "{said}");
    }
}
