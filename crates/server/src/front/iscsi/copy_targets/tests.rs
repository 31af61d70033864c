use sanwire_core::Lun;
use sanwire_device::UnitOptions;
use sanwire_iscsi::{Authentication, ChapSecret};
use sanwire_scsi::vpd::{DesignatorKind, TargetPort};
use sanwire_scsi::{DeviceIdentification, Identity};
use sanwire_store::RamStore;

use super::*;
use crate::allow::AllowList;
use crate::announce::Announced;
use crate::front::iscsi::target_node::TargetNodeConfig;

const FAR: &str = "192.0.2.9";
const ASKING: NexusId = NexusId(1);

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

fn identity(volume: &str) -> Identity {
    let mut uuid = [0; 16];
    uuid.iter_mut().zip(volume.bytes()).for_each(|(place, byte)| *place = byte);
    Identity::new(volume, uuid).unwrap()
}

fn volumes(names: &[&str]) -> LogicalUnits {
    let units = LogicalUnits::new();
    for (name, number) in names.iter().zip(0..) {
        let store = Arc::new(RamStore::new(1 << 20, 512));
        units.add(lun(number), LogicalUnit::new(identity(name), store, UnitOptions::default()).unwrap()).unwrap();
    }
    units
}

/// The target of a volume, for those that the rules name.
fn target(volume: &str, rules: &[&str]) -> TargetNodeConfig {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    TargetNodeConfig::of_volume(volume, AllowList::new(rules)).unwrap()
}

fn user(secret: &str) -> Credential {
    Credential { name: "host".into(), secret: ChapSecret::new(secret.as_bytes().to_vec()).unwrap() }
}

fn with_users(config: TargetNodeConfig, users: &[&Credential]) -> TargetNodeConfig {
    let users = users.iter().map(|user| (*user).clone()).collect();
    TargetNodeConfig { authentication: Authentication { users, ..Authentication::default() }, ..config }
}

fn naa(volume: &str) -> Designator {
    let page = DeviceIdentification::parse(&identity(volume).to_page(&TargetPort::default())).unwrap();
    let bytes = page.naa().unwrap().to_be_bytes().to_vec();
    Designator { kind: DesignatorKind::Naa, association: 0, bytes }
}

/// The targets, of which one initiator uses the first.
struct World {
    volumes: LogicalUnits,
    exports: Arc<TargetNodes>,
}

impl World {
    fn new(configs: Vec<TargetNodeConfig>) -> World {
        let names: Vec<String> = configs.iter().flat_map(|config| config.units.values().cloned()).collect();
        let volumes = volumes(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let first = configs.first().cloned();
        let exports = TargetNodes::new(Authentication::default(), Vec::new(), Announced::default());
        exports.replace(configs, &volumes).unwrap();
        let world = World { volumes, exports };
        first.iter().for_each(|first| world.come(ASKING, world.guest(first)));
        world
    }

    fn guest(&self, config: &TargetNodeConfig) -> Guest {
        Guest {
            target: self.exports.table().by_name(&config.name).unwrap().id,
            initiator: "iqn.2026-11.org.example:host".parse().unwrap(),
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            credential: None,
            peer: FAR.parse().unwrap(),
            group_tag: 1,
        }
    }

    fn come(&self, nexus: NexusId, guest: Guest) {
        self.exports.guests().came(nexus, guest);
    }

    /// The volume of this name as a copy of the initiator finds it, and as whom it uses it.
    fn reach(&self, volume: &str) -> Option<(String, NexusId)> {
        let found = Neighbours::new(&Arc::downgrade(&self.exports)).find(ASKING, &naa(volume))?;
        Some((found.unit.identity().name().to_owned(), found.nexus))
    }

    fn reaches(&self, volume: &str) -> bool {
        self.reach(volume).is_some_and(|(name, _)| name == volume)
    }
}

#[test]
fn a_copy_reaches_the_targets_that_the_initiator_may_use_and_no_others() {
    let world = World::new(vec![
        target("a", &["any"]),
        target("by-name", &["iqn.2026-11.org.example:*"]),
        target("for-others", &["iqn.2026-11.org.stranger:*"]),
        target("near", &["10.0.0.0/8"]),
        target("local", &[]),
        TargetNodeConfig { group_tags: vec![2], ..target("portal-2", &["any"]) },
        TargetNodeConfig { redirect: Some(("192.0.2.1".into(), true)), ..target("redirected", &["any"]) },
    ]);
    for (volume, is_reached) in [
        ("a", true),
        ("by-name", true),
        ("for-others", false),
        ("near", false),
        ("local", false),
        ("portal-2", false),
        ("redirected", false),
        ("nowhere", false),
    ] {
        assert_eq!(world.reaches(volume), is_reached, "{volume}");
    }
    world.exports.guests().left(ASKING);
    assert!(!world.reaches("a"), "whose session is over reaches nothing");
}

#[test]
fn a_target_with_a_secret_is_reached_by_who_has_shown_to_know_that_secret() {
    let (own, other) = (user("twelve bytes of his"), user("twelve bytes of others"));
    let world = World::new(vec![
        with_users(target("a", &["any"]), &[&own]),
        with_users(target("b", &["any"]), &[&other, &own]),
        with_users(target("c", &["any"]), &[&other]),
        with_users(target("d", &[]), &[&own]),
    ]);
    let secrets = |world: &World| ["a", "b", "c", "d"].map(|volume| world.reaches(volume));
    assert_eq!(secrets(&world), [true, false, false, false], "who has shown nothing");
    let guest = Guest { credential: Some(own), ..world.guest(&target("a", &[])) };
    world.come(ASKING, guest);
    assert_eq!(secrets(&world), [true, true, false, true], "a user of the same name with another secret is another");
}

#[test]
fn a_copy_uses_a_unit_as_the_session_that_its_initiator_has_there() {
    let (a, b) = (target("a", &["any"]), target("b", &["any"]));
    let world = World::new(vec![a.clone(), b.clone()]);
    let at_b = |nexus| Some(("b".to_owned(), NexusId(nexus)));
    assert_eq!(world.reach("b"), at_b(ASKING.0), "without one, as the session of the copy");
    let there = world.guest(&b);
    world.come(NexusId(2), Guest { initiator: "iqn.2026-11.org.example:other".parse().unwrap(), ..there.clone() });
    world.come(NexusId(3), Guest { credential: Some(user("twelve bytes")), ..there.clone() });
    assert_eq!(world.reach("b"), at_b(ASKING.0), "not as others");
    world.come(NexusId(4), Guest { isid: Isid([0x80, 0, 0, 0, 0, 9]), ..there.clone() });
    assert_eq!(world.reach("b"), at_b(4));
    world.come(NexusId(5), there);
    assert_eq!(world.reach("b"), at_b(5), "best as the same port");
    world.come(NexusId(6), world.guest(&a));
    assert_eq!(world.reach("a"), Some(("a".to_owned(), ASKING)), "its own units as itself");
}

#[test]
fn what_changes_while_the_server_runs_holds_for_copies_at_once() {
    let (a, b) = (target("a", &["any"]), target("b", &["any"]));
    let world = World::new(vec![a.clone(), b.clone()]);
    assert!(world.reaches("b"));
    let closed = TargetNodeConfig { allow: AllowList::new(vec!["iqn.x:*".parse().unwrap()]), ..b.clone() };
    world.exports.replace(vec![a.clone(), closed], &world.volumes).unwrap();
    assert!(!world.reaches("b"), "the rules");
    world.exports.replace(vec![a.clone(), b], &world.volumes).unwrap();
    assert!(world.reaches("b"));
    let disk = Arc::downgrade(&world.volumes.remove(lun(1)).unwrap());
    world.exports.replace(vec![a], &world.volumes).unwrap();
    assert!(!world.reaches("b") && world.reaches("a"));
    assert_eq!(disk.strong_count(), 0, "nothing holds a volume that is gone");
    let neighbours = Neighbours::new(&Arc::downgrade(&world.exports));
    let units = Arc::downgrade(&world.exports.table().iter().next().unwrap().units);
    drop(world);
    assert!(units.upgrade().is_none() && neighbours.find(ASKING, &naa("a")).is_none(), "nor the targets one another");
}

#[test]
fn a_disk_of_several_targets_is_one_and_two_disks_of_one_name_are_none() {
    let shared = TargetNodeConfig { units: BTreeMap::from([(lun(3), "b".to_owned())]), ..target("c", &["any"]) };
    let world = World::new(vec![target("a", &["any"]), target("b", &["any"])]);
    world.exports.replace(vec![target("a", &["any"]), target("b", &["any"]), shared], &world.volumes).unwrap();
    assert!(world.reaches("b"));
    let twin = Identity::new("d", identity("b").uuid()).unwrap();
    let store = Arc::new(RamStore::new(1 << 20, 512));
    world.volumes.add(lun(9), LogicalUnit::new(twin, store, UnitOptions::default()).unwrap()).unwrap();
    let configs = ["a", "b", "d"].map(|volume| target(volume, &["any"])).to_vec();
    world.exports.replace(configs, &world.volumes).unwrap();
    assert_eq!(world.reach("b"), None);
}

#[test]
fn of_many_targets_only_those_are_asked_that_may_have_the_unit() {
    let names: Vec<String> = (0..300).map(|number| format!("volume-{number:03}")).collect();
    let mut configs: Vec<_> = names.iter().map(|name| target(name, &["any"])).collect();
    let second = BTreeMap::from([(lun(1), names[7].clone())]);
    configs.push(TargetNodeConfig { units: second, ..target("second", &["any"]) });
    let world = World { volumes: volumes(&names.iter().map(String::as_str).collect::<Vec<_>>()), ..World::new(vec![]) };
    world.exports.replace(configs.clone(), &world.volumes).unwrap();
    let asked = |volume: &str| world.exports.with_designated(&world.exports.table(), &naa(volume)).len();
    let having = |volume: &str| world.exports.with_volume(volume).len();
    assert_eq!([&names[6], &names[7]].map(|name| (asked(name), having(name))), [(1, 1), (2, 2)]);
    configs.truncate(7);
    world.exports.replace(configs, &world.volumes).unwrap();
    assert_eq!([&names[6], &names[7]].map(|name| (asked(name), having(name))), [(1, 1), (0, 0)]);
}
