use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_iscsi::{ChapSecret, Credential};

use super::*;
use crate::allow::AllowList;
use crate::announce::Announced;

const FAR: &str = "192.0.2.9";

fn name(text: &str) -> IscsiName {
    format!("iqn.2026-11.org.sanwire:{text}").parse().unwrap()
}

fn portal(address: &str, group_tag: u16) -> Portal {
    Portal { address: address.parse().unwrap(), group_tag, carrier: PortalCarrier::Tcp }
}

fn user(name: &str) -> Credential {
    Credential { name: name.into(), secret: ChapSecret::new(b"twelve bytes".to_vec()).unwrap() }
}

fn target(label: &str, rules: &[&str]) -> TargetNodeConfig {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let config = TargetNodeConfig::of_volume(label, AllowList::new(rules)).unwrap();
    TargetNodeConfig { units: std::collections::BTreeMap::new(), ..config }
}

fn exports(portals: &[(&str, u16)], configs: Vec<TargetNodeConfig>) -> Arc<TargetNodes> {
    exports_at(portals.iter().map(|(address, tag)| portal(address, *tag)).collect(), configs)
}

fn exports_at(portals: Vec<Portal>, configs: Vec<TargetNodeConfig>) -> Arc<TargetNodes> {
    let exports = TargetNodes::new(Authentication::default(), portals, Announced::default());
    exports.replace(configs, &LogicalUnits::new()).unwrap();
    exports
}

#[test]
fn only_who_may_use_a_target_finds_it() {
    let secret = Authentication { users: vec![user("admin")], ..Authentication::default() };
    let configs = vec![
        target("here", &[]),
        target("all", &["any"]),
        target("named", &["iqn.2026-11.org.sanwire:host-*"]),
        target("near", &["10.0.0.0/8"]),
        TargetNodeConfig { authentication: secret, ..target("secret", &[]) },
    ];
    let exports = exports(&[("0.0.0.0:3260", 1)], configs);
    for (initiator, peer, expected) in [
        ("host-1", FAR, &["all", "named", "secret"][..]),
        ("other", FAR, &["all", "secret"]),
        ("other", "10.9.8.7", &["all", "near", "secret"]),
        ("other", "127.0.0.1", &["all", "here", "secret"]),
    ] {
        let (initiator, peer, portal) = (name(initiator), peer.parse().unwrap(), portal("10.0.0.1:3260", 1));
        let found: Vec<IscsiName> =
            exports.visible(&initiator, peer, &portal).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, expected.iter().map(|label| name(label)).collect::<Vec<_>>(), "{initiator} at {peer}");
        for label in ["here", "all", "named", "near", "secret"] {
            let entry = exports.target(&name(label), &initiator, peer, &portal).map(drop);
            let allowed = if expected.contains(&label) { Ok(()) } else { Err(LoginRefusal::Forbidden) };
            assert_eq!(entry, allowed, "{initiator} at {peer} to {label}");
        }
    }
    let far = FAR.parse().unwrap();
    let nobody = exports.target(&name("nobody"), &name("other"), far, &portal("10.0.0.1:3260", 1));
    assert_eq!(nobody.map(drop), Err(LoginRefusal::NotFound));
    let secret = exports.target(&name("secret"), &name("other"), far, &portal("10.0.0.1:3260", 1)).unwrap();
    assert!(exports.permits_user(secret.id, (&name("other"), far), "admin"));
    assert!(!exports.permits_user(secret.id, (&name("other"), far), "root"));
}

#[test]
fn portals_are_told_as_they_are_reached() {
    let portals = [("0.0.0.0:3260", 1), ("[::]:3261", 1), ("127.0.0.1:3262", 1), ("10.0.0.5:3260", 2)];
    let configs = vec![target("all", &["any"]), TargetNodeConfig { group_tags: vec![2], ..target("two", &["any"]) }];
    let exports = exports(&portals, configs);
    let told = |at: Portal| -> Vec<Vec<String>> {
        let list = exports.visible(&name("host"), FAR.parse().unwrap(), &at);
        list.into_iter().map(|(_, addresses)| addresses).collect()
    };
    assert_eq!(told(portal("10.0.0.1:3260", 1)), [vec!["10.0.0.1:3260,1", "10.0.0.5:3260,2"], vec!["10.0.0.5:3260,2"]]);
    assert_eq!(told(portal("[2001:db8::1]:3261", 1))[0], ["[2001:db8::1]:3261,1", "10.0.0.5:3260,2"]);
    assert!(told(portal("127.0.0.1:3262", 1))[0].contains(&"127.0.0.1:3262,1".to_owned()));
    let refused = exports.target(&name("two"), &name("host"), FAR.parse().unwrap(), &portal("10.0.0.1:3260", 1));
    assert_eq!(refused.map(drop), Err(LoginRefusal::NotFound), "not through this group");
}

/// The answer to a discovery does not say how a portal is spoken to: Linux' initiator tries iSCSI wherever it was told of a portal by
/// iSCSI, and iSER wherever by iSER.
#[test]
fn a_portal_tells_of_those_that_are_spoken_to_as_it_is() {
    let by = |carrier, address: &str| Portal { carrier, ..portal(address, 1) };
    let (iser, by_adapter) =
        (|address: &str| by(PortalCarrier::Iwarp, address), |address: &str| by(PortalCarrier::Adapter, address));
    let portals = vec![
        portal("10.0.0.1:3260", 1),
        iser("10.0.0.1:3261"),
        iser("10.0.0.2:3261"),
        by_adapter("10.0.0.1:3260"),
        by_adapter("10.0.0.3:3260"),
    ];
    let exports = exports_at(portals, vec![target("all", &["any"])]);
    let told = |at: Portal| exports.visible(&name("host"), FAR.parse().unwrap(), &at).remove(0).1;
    assert_eq!(told(portal("10.0.0.1:3260", 1)), ["10.0.0.1:3260,1"]);
    assert_eq!(told(iser("10.0.0.1:3261")), ["10.0.0.1:3261,1", "10.0.0.2:3261,1"]);
    assert_eq!(told(by_adapter("10.0.0.3:3260")), ["10.0.0.1:3260,1", "10.0.0.3:3260,1"]);
}

#[test]
fn a_reconfiguration_under_a_login_storm_shows_each_login_one_whole_configuration() {
    let with = |label: &str| {
        let users = Authentication { users: vec![user(label)], ..Authentication::default() };
        vec![TargetNodeConfig { alias: label.into(), authentication: users, ..target("disk", &[]) }]
    };
    let exports = exports(&[("0.0.0.0:3260", 1)], with("before"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let portal = portal("10.0.0.1:3260", 1);
                while !is_over.load(Ordering::Relaxed) {
                    let found = exports.target(&name("disk"), &name("host"), FAR.parse().unwrap(), &portal).unwrap();
                    assert_eq!(found.alias, found.authentication.users[0].name);
                    exports.visible(&name("host"), FAR.parse().unwrap(), &portal);
                }
            });
        }
        for round in 0..2000 {
            let label = if round % 2 == 0 { "after" } else { "before" };
            let Departures { gone, moved, for_others } = exports.replace(with(label), &LogicalUnits::new()).unwrap();
            assert_eq!((gone.len(), moved.len(), for_others.len()), (0, 0, 1));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn only_sessions_of_those_who_may_not_use_a_target_any_more_are_to_end() {
    use crate::front::iscsi::copy_targets::Guest;
    use sanwire_iscsi::{Isid, TargetId};
    const NOBODY: [u64; 0] = [];
    let guarded = |users: &[&str], rules: &[&str]| {
        let users = users.iter().map(|name| user(name)).collect();
        TargetNodeConfig {
            authentication: Authentication { users, ..Authentication::default() },
            ..target("disk", rules)
        }
    };
    let exports = exports(&[("0.0.0.0:3260", 1), ("0.0.0.0:3261", 2)], vec![guarded(&["admin", "root"], &["any"])]);
    let id = exports.table().by_name(&name("disk")).unwrap().id;
    let guest = |initiator: &str, user_name: &str, group_tag| Guest {
        target: id,
        initiator: name(initiator),
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        credential: (!user_name.is_empty()).then(|| user(user_name)),
        peer: FAR.parse().unwrap(),
        group_tag,
    };
    let guests = [
        guest("a", "admin", 1),
        guest("b", "root", 1),
        guest("b", "root", 2),
        Guest { target: TargetId(99), ..guest("x", "", 1) },
    ];
    guests.into_iter().zip(1..).for_each(|(guest, nexus)| exports.guests().came(NexusId(nexus), guest));
    let outcasts = |config: TargetNodeConfig| {
        let ports = exports.outcasts_of(&config);
        let Departures { for_others, .. } = exports.replace(vec![config], &LogicalUnits::new()).unwrap();
        let ended: Vec<u64> = exports.outcasts(&for_others).into_iter().map(|nexus| nexus.0).collect();
        assert_eq!(ports.len(), ended.len(), "it is known before: {ports:?}");
        ended
    };
    let other_secret = Credential { secret: ChapSecret::new(b"another secret".to_vec()).unwrap(), ..user("admin") };
    let mut rotated = guarded(&["root"], &["any"]);
    rotated.authentication.users.push(other_secret);
    assert_eq!(outcasts(rotated), NOBODY, "who was a user is one");
    assert_eq!(outcasts(TargetNodeConfig { alias: "x".into(), ..guarded(&["admin", "root"], &["any"]) }), NOBODY);
    assert_eq!(outcasts(guarded(&[], &["any"])), NOBODY, "nobody need show anything");
    assert_eq!(outcasts(guarded(&["root"], &["any"])), [1]);
    assert_eq!(outcasts(guarded(&["admin", "root"], &["iqn.2026-11.org.sanwire:a"])), [2, 3]);
    assert_eq!(outcasts(TargetNodeConfig { group_tags: vec![1], ..guarded(&["admin", "root"], &["any"]) }), [3]);
    exports.guests().left(NexusId(3));
    assert_eq!(outcasts(TargetNodeConfig { group_tags: vec![2], ..guarded(&["admin", "root"], &["any"]) }), [1, 2]);
}

/// SPC-5 6.36: REPORT TARGET PORT GROUPS lists the ports that initiators come through.
#[test]
fn each_portal_group_is_a_group_of_one_port() {
    let both = target("both", &[]);
    let second = TargetNodeConfig { group_tags: vec![2], ..target("second", &[]) };
    let portals = [("10.0.0.1:3260", 1), ("10.0.0.2:3260", 1), ("10.0.1.1:3260", 2)];
    let exports = exports(&portals, vec![both.clone(), second.clone()]);
    let groups = |label: &str| {
        let export = exports.table.load().by_name(&name(label)).unwrap().clone();
        let groups = export.units.target_port_groups().into_iter();
        groups.map(|group| (group.id, group.state, group.ports)).collect::<Vec<_>>()
    };
    let (active, standby) = (AccessState::ActiveOptimized, AccessState::Standby);
    assert_eq!(groups("both"), [(1, active, vec![2]), (2, active, vec![3])]);
    assert_eq!(groups("second"), [(2, active, vec![3])]);
    let port = crate::front::iscsi::target_node::iscsi_port(&name("both"), 2);
    assert_eq!((port.group, port.relative_id), (2, 3), "page 83h says the same");

    let set = |group, state, only: Option<&str>| exports.set_access_state(group, state, only.map(name).as_ref());
    assert_eq!(set(1, standby, None), Some(vec![name("both").to_string()]));
    assert_eq!(set(2, standby, Some("second")), Some(vec![name("second").to_string()]));
    assert_eq!((set(2, standby, Some("second")), set(1, standby, Some("second"))), (Some(vec![]), None));
    assert_eq!(groups("both"), [(1, standby, vec![2]), (2, active, vec![3])]);
    exports.replace(vec![both], &LogicalUnits::new()).unwrap();
    assert_eq!(groups("both"), [(1, standby, vec![2]), (2, active, vec![3])], "a reload keeps the states");
}

#[test]
fn an_address_is_known_before_the_name_where_a_rule_may_name_it() {
    let here: IpAddr = "10.1.2.3".parse().unwrap();
    let may = |rules: &[&str], is_local: bool| {
        exports(&[("0.0.0.0:3260", 1)], vec![target("one", rules)]).may_permit(here, is_local)
    };
    for (rules, may_be_served) in [
        (&["iqn.1993-08.org.debian:*"][..], true),
        (&["10.0.0.0/8"], true),
        (&["192.168.0.0/16", "02:00:5e:10:00:01"], false),
        (&["any"], true),
    ] {
        assert_eq!(may(rules, false), may_be_served, "{rules:?}");
    }
    assert!(may(&[], true));
    assert!(!may(&[], false));
    let secret = Authentication { users: vec![user("admin")], ..Authentication::default() };
    let config = TargetNodeConfig { authentication: secret, ..target("secret", &[]) };
    assert!(exports(&[], vec![config]).may_permit(here, false));
    assert!(!exports(&[], Vec::new()).may_permit(here, true), "nobody, where there is no target");
}

/// Each rule beside each other one, asked by its own words.
#[test]
fn whom_a_rule_permits_finds_the_target_by_it_and_nobody_else() {
    let rules = [
        "any",
        "10.0.0.0/8",
        "10.1.2.3",
        "0.0.0.0/0",
        "fe80::/10",
        "::/0",
        "iqn.2026-11.org.sanwire:a",
        "iqn.2026-11.org.sanwire:a*",
        "iqn.*:b?",
        "iqn.2026-1?.org.sanwire:*",
        "eui.*",
        "02:00:5e:10:00:01",
    ];
    let pairs = rules.iter().enumerate().flat_map(|(at, one)| rules[at..].iter().map(move |other| [*one, *other]));
    let lists: Vec<[&str; 2]> = pairs.collect();
    let configs = lists.iter().zip(0..).map(|(list, number)| target(&format!("t{number}"), list)).collect();
    let exports = exports(&[("0.0.0.0:3260", 1), ("[::]:3260", 1)], configs);
    for peer in ["10.1.2.3", "10.9.9.9", "192.168.0.1", "::ffff:10.1.2.3", "fe80::7", "2001:db8::1"] {
        let peer: IpAddr = peer.parse().unwrap();
        let mut anybody = false;
        for initiator in
            ["iqn.2026-11.org.sanwire:a", "iqn.2026-11.org.sanwire:ab", "iqn.2020-01.x:b1", "eui.0123456789abcdef"]
        {
            let initiator: IscsiName = initiator.parse().unwrap();
            let portal = portal("10.0.0.1:3260", 1);
            let found = exports.visible(&initiator, peer, &portal).into_iter().map(|(name, _)| name);
            let table = exports.table();
            let permitted = table.iter().filter(|export| export.permits(&initiator, peer));
            let permitted: Vec<IscsiName> = permitted.map(|export| export.config.name.clone()).collect();
            anybody |= !permitted.is_empty();
            assert_eq!(found.collect::<Vec<_>>(), permitted, "{initiator} at {peer}");
        }
        assert_eq!(exports.may_permit(peer, false), anybody);
    }
}

const MANY: usize = 10_000;

/// Each for an initiator or an address of its own.
fn many() -> Arc<TargetNodes> {
    let rules = |number: usize| {
        let name = format!("iqn.2026-11.org.sanwire:host-{number}");
        let address = format!("10.{}.{}.0/24", number / 250, number % 250);
        if number.is_multiple_of(2) { name } else { address }
    };
    exports(&[("0.0.0.0:3260", 1)], (0..MANY).map(|number| target(&format!("t{number}"), &[&rules(number)])).collect())
}

#[test]
fn a_login_beside_ten_thousand_targets_looks_at_none_of_those_of_others() {
    let exports = many();
    let portal = portal("10.0.0.1:3260", 1);
    let visits = crate::visits::during(|| {
        let found = exports.visible(&name("host-77"), "10.0.77.9".parse().unwrap(), &portal);
        assert_eq!(found.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [name("t77")]);
        let found = exports.visible(&name("host-78"), FAR.parse().unwrap(), &portal);
        assert_eq!(found.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [name("t78")]);
        assert!(exports.visible(&name("stranger"), FAR.parse().unwrap(), &portal).is_empty());
        assert!(exports.may_permit(FAR.parse().unwrap(), false), "it may have a name of those");
    });
    assert!(visits <= 1000, "{visits}");
}

#[test]
fn a_change_of_one_among_ten_thousand_targets_copies_little_of_what_is_known_of_them() {
    let exports = many();
    let (other, gone) = (target("t5000", &["any"]), target("t5001", &[]).name);
    let changes = TargetChanges::from([(other.name.clone(), Some(other)), (gone.clone(), None)]);
    let visits = crate::visits::during(|| {
        exports.change(changes, &LogicalUnits::new()).unwrap();
    });
    assert!(visits <= 1000, "{visits}");
    assert!(exports.table().by_name(&gone).is_none());
    let found = exports.visible(&name("stranger"), FAR.parse().unwrap(), &portal("10.0.0.1:3260", 1));
    assert_eq!(found.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [name("t5000")]);
}
