mod targets;

use std::collections::BTreeMap;

use sanwire_core::Lun;
use sanwire_iscsi::{ChapSecret, Credential};

use super::*;
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::derived;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::manage::testing::config;

/// A configuration in which each volume has a target of its own.
fn configured(volumes: &[&str]) -> ServerConfig {
    config(volumes)
}

/// The configuration as it was changed while the server ran.
struct Running(ServerConfig);

impl Running {
    fn of(volumes: &[&str]) -> Running {
        sanwire_store_file::register();
        Running(configured(volumes))
    }

    fn add(mut self, volume: &str, lun: u16) -> Running {
        let (spec, lun) = (volume.parse().unwrap(), Lun::new(lun).unwrap());
        self.0.volumes.push(VolumeConfig { lun, spec, origin: Origin::Management });
        self
    }

    fn remove(mut self, name: &str) -> Running {
        self.0.volumes.retain(|volume| *volume.spec.name != *name);
        self.0.exports.iter_mut().for_each(|export| export.units.retain(|_, volume| volume != name));
        self.0.exports.retain(|export| !export.units.is_empty());
        self
    }

    fn edit(mut self, name: &str, change: impl Fn(VolumeConfig) -> VolumeConfig) -> Running {
        let edit = |volume: VolumeConfig| if *volume.spec.name == *name { change(volume) } else { volume };
        self.0.volumes = self.0.volumes.into_iter().map(edit).collect();
        self
    }

    fn resize(self, name: &str, size_bytes: u64) -> Running {
        self.edit(name, |volume| VolumeConfig { spec: volume.spec.clone().with_size(size_bytes), ..volume })
    }

    fn renumber(self, name: &str, lun: u16) -> Running {
        self.edit(name, |volume| VolumeConfig { lun: Lun::new(lun).unwrap(), ..volume })
    }

    fn map(mut self, target: &str, lun: u16, name: &str) -> Running {
        let lun = Lun::new(lun).unwrap();
        let like = TargetNodeConfig::of_volume(name, self.0.allow.clone()).unwrap();
        let exports = &mut self.0.exports;
        let at = exports.iter().position(|export| export.name.as_str() == target).unwrap_or_else(|| {
            let (name, units) = (target.parse().unwrap(), BTreeMap::new());
            exports.push(TargetNodeConfig { name, units, ..like });
            exports.len() - 1
        });
        exports[at].units.retain(|_, volume| volume != name);
        exports[at].units.insert(lun, name.to_owned());
        self
    }

    /// What is kept, through a file.
    fn changes(&self, configured: &ServerConfig) -> Changes {
        let changes = difference(configured, &self.0.volumes, &self.0.exports);
        let text = serde_json::to_string(&changes).unwrap();
        assert_eq!(serde_json::from_str::<Changes>(&text).unwrap(), changes, "{text}");
        changes
    }
}

/// Volumes as `NUMBER TEXT`, targets as `NAME NUMBER=VOLUME...`.
fn shown(config: &ServerConfig) -> Vec<String> {
    let mut volumes: Vec<String> =
        config.volumes.iter().map(|volume| format!("{} {}", volume.lun.number(), volume.spec)).collect();
    let mut targets: Vec<String> = config
        .exports
        .iter()
        .map(|export| {
            let units: Vec<String> =
                export.units.iter().map(|(lun, volume)| format!("{}={volume}", lun.number())).collect();
            format!("{} ({}) {}", export.name, export.alias, units.join(" "))
        })
        .collect();
    volumes.sort();
    targets.sort();
    volumes.into_iter().chain(targets).collect()
}

/// What a server is to be after the configuration was edited to `edited`, and the notes.
fn after(before: &[&str], running: Running, edited: &[&str]) -> (Vec<String>, Vec<String>) {
    let changes = running.changes(&configured(before));
    let (merged, notes) = merge(&configured(edited), &changes);
    (shown(&merged).into_iter().filter(|line| !line.starts_with("iqn")).collect(), notes)
}

const VOLUMES: [&str; 3] = ["a=ram:1M", "b=file:/srv/b,size=1M", "c=ram:1M,security=none"];
const BOTH: &str = "iqn.2026-11.org.example:both";

#[test]
fn a_restart_brings_back_exactly_what_was_there() {
    let run = || Running::of(&VOLUMES);
    for running in [
        run(),
        run().add("d=file:/srv/d\\,1,size=3G,readonly", 3).map(BOTH, 7, "d").map("iqn.2026-11.org.sanwire:d", 0, "d"),
        run().remove("a").remove("c"),
        run().remove("a").add("a=null:4M", 9).map(BOTH, 0, "a"),
        run().resize("a", 2 << 20).resize("b", 4 << 20).renumber("a", 1).renumber("b", 0),
        run().renumber("c", 200).add("d=ram:1M", 2).resize("d", 8 << 20),
        run().map(BOTH, 1, "a").map(BOTH, 0, "b").map("iqn.2026-11.org.sanwire:a", 4, "c"),
        run().map("iqn.2026-11.org.sanwire:a", 5, "a").map("iqn.2026-11.org.sanwire:a", 0, "b"),
    ] {
        let changes = running.changes(&configured(&VOLUMES));
        let (merged, notes) = merge(&configured(&VOLUMES), &changes);
        assert_eq!((shown(&merged), notes), (shown(&running.0), Vec::new()));
        assert_eq!(Running(merged).changes(&configured(&VOLUMES)), changes, "and once more");
    }
}

#[test]
fn what_is_as_configured_is_not_kept() {
    assert!(Running::of(&VOLUMES).changes(&configured(&VOLUMES)).is_empty());
    let back = Running::of(&VOLUMES).resize("a", 2 << 20).resize("a", 1 << 20).renumber("b", 4).renumber("b", 1);
    assert!(back.changes(&configured(&VOLUMES)).is_empty());
}

#[test]
fn an_edited_configuration_holds_for_what_was_edited_and_says_so() {
    let changed = || Running::of(&["a=ram:1M", "b=ram:1M"]).resize("a", 4 << 20);
    let (volumes, notes) = after(&["a=ram:1M", "b=ram:1M"], changed(), &["a=ram:8M", "b=ram:1M"]);
    assert_eq!(volumes, ["0 a=ram:8M", "1 b=ram:1M"]);
    assert!(notes.len() == 1 && notes[0].contains("the size of volume a"), "{notes:?}");
    // Another word of the same volume leaves its size.
    let (volumes, notes) = after(&["a=ram:1M", "b=ram:1M"], changed(), &["a=ram:1M,removable", "b=ram:1M"]);
    assert_eq!((volumes, notes.len()), (vec!["0 a=ram:4194304,removable=true".into(), "1 b=ram:1M".into()], 0));
    // What was written into the file, as an administrator does who wants it to stay, is no conflict.
    let (volumes, notes) = after(&["a=ram:1M"], Running::of(&["a=ram:1M"]).resize("a", 4 << 20), &["a=ram:4M"]);
    assert_eq!((volumes, notes.len()), (vec!["0 a=ram:4M".into()], 0));
    let added = || Running::of(&["a=ram:1M"]).add("z=ram:1M", 5);
    assert_eq!(after(&["a=ram:1M"], added(), &["a=ram:1M", "z=ram:1M"]).1, Vec::<String>::new());
    let (volumes, notes) = after(&["a=ram:1M"], added(), &["a=ram:1M", "z=ram:2M"]);
    assert_eq!((volumes, notes.len()), (vec!["0 a=ram:1M".into(), "5 z=ram:2M".into()], 1));
}

#[test]
fn a_removed_volume_stays_away_until_its_configuration_is_edited() {
    let removed = || Running::of(&["a=ram:1M", "b=ram:1M"]).remove("a");
    let before = ["a=ram:1M", "b=ram:1M"];
    assert_eq!(after(&before, removed(), &["b=ram:1M", "a=ram:1M"]).0, ["0 b=ram:1M"], "its place is no word about it");
    assert_eq!(after(&before, removed(), &["b=ram:1M"]), (vec!["0 b=ram:1M".into()], Vec::new()));
    let (volumes, notes) = after(&before, removed(), &["a=ram:2M", "b=ram:1M"]);
    assert_eq!((volumes, notes.len()), (vec!["0 a=ram:2M".into(), "1 b=ram:1M".into()], 1));
    let changed = Running::of(&before).resize("a", 2 << 20);
    let (volumes, notes) = after(&before, changed, &["b=ram:1M"]);
    assert_eq!((volumes, notes.len()), (vec!["0 b=ram:1M".into()], 1), "gone from the file");
}

#[test]
fn numbers_stay_with_those_that_were_given_them() {
    let running = Running::of(&["a=ram:1M"]).add("z=ram:1M", 1);
    let (volumes, _) = after(&["a=ram:1M"], running, &["a=ram:1M", "b=ram:1M", "c=ram:1M"]);
    assert_eq!(volumes, ["0 a=ram:1M", "1 z=ram:1M", "2 c=ram:1M", "3 b=ram:1M"].map(String::from).to_vec());
}

#[test]
fn units_of_targets_follow_the_configuration_where_it_was_edited() {
    let before = configured(&["a=ram:1M", "b=ram:1M"]);
    let own = "iqn.2026-11.org.sanwire:a";
    let changes = Running::of(&["a=ram:1M", "b=ram:1M"]).map(own, 3, "a").map(own, 1, "b").changes(&before);
    let mut edited = before.clone();
    edited.exports[0].units = BTreeMap::from([(Lun::new(1).unwrap(), "a".to_owned())]);
    let (merged, notes) = merge(&edited, &changes);
    let units: Vec<_> = merged.exports[0].units.iter().map(|(lun, volume)| (lun.number(), volume.as_str())).collect();
    assert_eq!(units, [(0, "b"), (1, "a")], "the number is taken now: {notes:?}");
    assert_eq!(notes.len(), 2);
}

#[test]
fn nothing_that_was_changed_makes_a_target_open_or_a_volume_pass_in_the_clear() {
    let volumes = ["a=ram:1M", "b=ram:1M"];
    let before = configured(&volumes);
    let changes = Running::of(&volumes).map(BOTH, 0, "a").changes(&before);
    let (merged, notes) = merge(&ServerConfig { psk: [1; 32], ..before.clone() }, &changes);
    assert!(
        merged.exports.iter().all(|export| export.name.as_str() != BOTH) && notes[0].contains("password"),
        "{notes:?}"
    );

    let protected = configured(&["a=ram:1M,security=hash", "b=ram:1M"]);
    let (merged, notes) = merge(&ServerConfig { exports: Vec::new(), ..protected }, &changes);
    assert!(merged.exports.is_empty() && notes.iter().any(|note| note.contains("in the clear")), "{notes:?}");
}

#[test]
fn ten_thousand_numbers_that_were_given_while_the_server_ran_take_one_look_at_each() {
    const MANY: u16 = 10_000;
    let before = configured(&["a=null:1M"]);
    let mut running = Running::of(&["a=null:1M"]).map(BOTH, 0, "a");
    let target = running.0.exports.last_mut().unwrap();
    target.units = (0..MANY).map(|number| (Lun::new(number).unwrap(), format!("v{number}"))).collect();
    let edited = ServerConfig { exports: vec![target.clone()], ..before.clone() };
    let moved = target.units.values().cloned().zip((0..MANY).rev()).map(|(name, lun)| (Lun::new(lun).unwrap(), name));
    target.units = moved.collect();
    let changes = running.changes(&edited);
    let visits = crate::visits::during(|| {
        let (merged, notes) = merge(&edited, &changes);
        assert_eq!((merged.exports[0].units.len(), notes), (usize::from(MANY), Vec::new()));
        assert_eq!(merged.exports[0].units[&Lun::default()], format!("v{}", MANY - 1));
    });
    assert!(visits <= usize::from(MANY), "{visits}");
}

/// A configuration in which disk is a unit of a target that knows the secret of these users.
fn with_users(users: &[&str]) -> ServerConfig {
    let user = |name: &&str| Credential {
        name: (*name).into(),
        secret: ChapSecret::new(format!("the secret of {name}").into_bytes()).unwrap(),
    };
    let mut config = configured(&["disk=ram:4M"]);
    config.exports[0].authentication.users = users.iter().map(user).collect();
    config
}

#[test]
fn targets_of_derived_volumes_know_the_users_of_their_parents_whatever_they_are_called() {
    derived::register();
    let target = |name: &str| format!("iqn.2026-11.org.sanwire:{name}");
    for (parent, child) in [("alpha", "zed"), ("zed", "alpha")] {
        let before = with_users(&["alice"]);
        let mut running = Running(before.clone());
        for (name, of, lun) in [(parent, "disk", 1), (child, parent, 2)] {
            running = running.add(&format!("{name}=dvd:{of},principal=chap:alice"), lun).map(&target(name), 0, name);
        }
        let changes = running.changes(&before);
        let merged = |configured: &ServerConfig| {
            let (merged, notes) = merge(configured, &changes);
            let exports = merged.exports.clone();
            let of = |name: &str| exports.iter().find(|export| export.name.as_str() == target(name)).cloned().unwrap();
            assert_eq!(Running(merged).changes(configured).mappings, changes.mappings, "that they are there is kept");
            ([of(parent), of(child)], notes)
        };
        let (targets, notes) = merged(&before);
        for target in targets {
            assert_eq!(target.authentication.users.len(), 1, "{target:?}");
        }
        assert!(notes.is_empty(), "{notes:?}");
        // Nobody knows alice any more.
        let (targets, notes) = merged(&with_users(&["bob"]));
        let here = "127.0.0.1".parse().unwrap();
        for target in targets {
            let initiator = "iqn.1993-08.org.debian:01:0123456789ab".parse().unwrap();
            assert!(!target.allow.permits_initiator(&initiator, here, true) && !target.is_open(), "{target:?}");
        }
        assert!(notes.len() == 2 && notes[0].contains("knows the secret of alice any more"), "{notes:?}");
    }
}

#[test]
fn a_revoked_volume_stays_away_until_more_of_it_is_edited_than_its_level() {
    derived::register();
    let before = ["disk=ram:1M", "cam=dvd:disk,principal=any"];
    let revoked = || Running::of(&before).remove("cam");
    for edited in [["disk=ram:1M,security=hash", before[1]], ["disk=ram:1M,security=none", before[1]]] {
        let (volumes, notes) = after(&before, revoked(), &edited);
        assert_eq!((volumes.len(), notes.len()), (1, 0), "{volumes:?} {notes:?}");
    }
    let (volumes, notes) = after(&before, revoked(), &[before[0], "cam=dvd:disk,principal=10.0.0.1"]);
    assert_eq!((volumes.len(), notes.len()), (2, 1), "{volumes:?}");
}
