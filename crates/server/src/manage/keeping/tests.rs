use std::fs;

use super::super::slow::Step;
use super::super::testing::{Kept, any_port, config, go_on, work};
use super::super::{AccessChange, PortState, Request, Status, TargetStatus};
use super::*;
use crate::front::hyperscsi::clients::ClientSettings;
use crate::front::iscsi::target_settings::TargetSettings;

fn add(volume: &str) -> Request {
    Request::AddVolume { volume: volume.into(), target: None, renew: false, adopt: false }
}

fn load(name: &str, store: &str) -> Request {
    Request::LoadVolume { name: name.into(), store: Some(store.into()) }
}

fn status(manager: &mut Manager) -> Status {
    match manager.execute(Request::Status) {
        Ok(Answer::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

fn names(manager: &mut Manager) -> Vec<String> {
    status(manager).volumes.into_iter().map(|volume| volume.name).collect()
}

const RELOAD: Request = Request::Reload { force: false, dry_run: false, reset: false };

fn lines(manager: &mut Manager, request: Request) -> Vec<String> {
    match manager.execute(request) {
        Ok(Answer::Changed(lines)) => lines,
        other => panic!("{other:?}"),
    }
}

/// A drive with a disc of two blocks, another disc of three, and a disk.
fn drive(label: &str) -> (Kept, String) {
    let mut kept = Kept::new(label, &["a=ram:1M"]);
    let image = |name: &str, blocks: usize| {
        let path = kept.directory.join(name);
        fs::write(&path, vec![0; blocks * 2048]).unwrap();
        format!("file:{}", path.display())
    };
    let (first, second) = (image("first.iso", 2), image("second.iso", 3));
    kept.configured.push(format!("cd0={first},type=optical"));
    (kept, second)
}

#[test]
fn a_disc_that_is_gone_keeps_nothing_else_from_being_served() {
    let (kept, second) = drive("disc-gone");
    let mut manager = kept.start().unwrap();
    lines(&mut manager, load("cd0", &second));
    drop(manager);
    let (there, aside) = (kept.directory.join("second.iso"), kept.directory.join("aside.iso"));
    fs::rename(&there, &aside).unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["a"]);
    assert_eq!(status(&mut manager).missing[0].name, "cd0");
    fs::rename(&aside, &there).unwrap();
    lines(&mut manager, RELOAD);
    assert_eq!(names(&mut manager), ["a", "cd0"]);
    assert_eq!(status(&mut manager).volumes[1].size_bytes, 3 * 2048);
    drop(manager);
    fs::remove_file(&there).unwrap();
    let mut manager = kept.start().unwrap();
    lines(&mut manager, Request::RemoveVolume { name: "cd0".into(), force: false });
    drop(manager);
    assert_eq!(names(&mut kept.start().unwrap()), ["a"], "it is not sought any more");
}

#[test]
fn a_disc_stays_in_when_it_cannot_be_kept_which_one_follows() {
    let (kept, second) = drive("disc-full");
    let mut manager = kept.start().unwrap();
    kept.fill_disk();
    assert!(matches!(manager.execute(load("cd0", &second)), Err(ManageError::Keep { .. })));
    let (_, unit) = manager.find("cd0").unwrap();
    let disc = second.parse::<sanwire_store::StoreSpec>().unwrap().open().unwrap();
    assert!(matches!(unit.load(Some(disc)), Err(sanwire_device::MediumError::NotEjected)), "nothing was changed");
}

#[test]
fn a_size_that_is_refused_is_never_kept() {
    let kept = Kept::new("refused-size", &["a=ram:1M", "b=null:1M"]);
    let mut manager = kept.start().unwrap();
    kept.fill_disk();
    for (name, size) in [("a", "512K"), ("a", "1048577"), ("b", "0")] {
        let refused = manager.execute(Request::ResizeVolume { name: name.into(), size: size.into() });
        assert!(matches!(refused, Err(ManageError::Resize { .. })), "{name} {size}: {refused:?}");
    }
}

#[test]
fn a_reload_that_cannot_be_kept_does_not_say_that_nothing_was_changed() {
    let mut kept = Kept::new("reload-full", &["a=ram:1M"]);
    kept.configured.push("b=ram:1M".into());
    let wanted = kept.config();
    kept.configured.pop();
    let mut manager = Manager::start(kept.config(), Box::new(move || Ok(wanted.clone()))).unwrap();
    lines(&mut manager, Request::MapVolume { name: "a".into(), lun: Some(9), target: None, force: false });
    kept.fill_disk();
    let told = lines(&mut manager, RELOAD);
    assert_eq!(names(&mut manager), ["b", "a"]);
    assert!(told.iter().any(|line| line.contains("cannot be kept")), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("nothing was changed")), "{told:?}");
}

#[test]
fn a_target_that_comes_back_has_the_state_that_is_kept_of_it() {
    let wires = ["hs-ip:127.0.0.1:1", "iscsi:127.0.0.1:1"].map(|wire| any_port(wire.parse().unwrap())).to_vec();
    let config = ServerConfig { wires, ..config(&["a=ram:1M"]) };
    let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    let target = "iqn.2026-11.org.sanwire:a".to_owned();
    let state = PortState::Standby;
    lines(&mut manager, Request::SetAccessState(AccessChange { group: 1, state, target: Some(target.clone()) }));
    let before = status(&mut manager);
    lines(&mut manager, Request::UnmapVolume { name: "a".into(), target: target.clone(), force: false });
    assert_eq!(status(&mut manager).targets, []);
    lines(&mut manager, Request::MapVolume { name: "a".into(), lun: None, target: Some(target), force: false });
    let after = status(&mut manager);
    let [before, after] = [before, after].map(|status| {
        let targets: Vec<_> =
            status.targets.into_iter().map(|TargetStatus { units, groups, .. }| (units, groups)).collect();
        (targets, status.deviations)
    });
    assert_eq!(after, before, "as it will after a restart");
    manager.into_target().stop().unwrap();
}

#[test]
fn the_revision_grows_with_each_change_of_clients_too() {
    let kept = Kept::new("revision", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let id = "a1".repeat(16);
    let settings = ClientSettings { name: Some("alice".into()), ..ClientSettings::default() };
    let of_alice = || id.clone();
    let mut before = status(&mut manager).revision;
    for request in [
        Request::AddClient { id: of_alice(), settings: settings.clone(), force: false },
        Request::SetClient { client: of_alice(), settings, force: false },
        Request::RemoveClient { client: of_alice(), force: false },
        Request::ResetClient { client: of_alice(), force: false },
        add("b=ram:1M"),
    ] {
        let shown = format!("{request:?}");
        lines(&mut manager, request);
        let after = status(&mut manager).revision;
        assert!(after > before, "{shown}");
        before = after;
    }
}

/// Only what a request names is looked at, and what is kept is the same as if everything had been.
#[test]
fn what_is_kept_of_one_change_is_what_differs_as_a_whole() {
    let wires = ["hs-ip:127.0.0.1:1", "iscsi:127.0.0.1:1"].map(|wire| any_port(wire.parse().unwrap())).to_vec();
    let config = ServerConfig { wires, ..config(&["a=ram:1M", "b=ram:1M", "c=null:1M"]) };
    let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    let mut state = 1_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let targets = ["iqn.2026-11.org.sanwire:a", "iqn.2026-11.org.sanwire:d", "iqn.2026-11.org.example:more"];
    let mut done = [0; 6];
    for _ in 0..400 {
        let (name, target, kind) = (["a", "b", "c", "d", "e"][below(5)], targets[below(3)], below(6));
        let (volume, lun, is_placed) = (name.to_owned(), Some(below(8) as u16), below(2) == 0);
        let request = match kind {
            0 => {
                let target = is_placed.then(|| target.to_owned());
                Request::AddVolume { volume: format!("{name}=ram:1M"), target, renew: false, adopt: false }
            }
            1 => Request::RemoveVolume { name: volume, force: true },
            2 => Request::MapVolume {
                name: volume,
                lun: lun.filter(|_| is_placed),
                target: Some(target.into()),
                force: true,
            },
            3 => Request::MapVolume { name: volume, lun, target: None, force: true },
            4 => Request::UnmapVolume { name: volume, target: target.into(), force: true },
            _ => Request::SetVolume { name: volume, security: Some("none".into()), protected: None, owners: None },
        };
        done[kind] += usize::from(manager.execute(request).is_ok());
        let whole = manager.kept.changes_to(manager.volumes.values(), &manager.target.exports());
        assert_eq!(*manager.kept.changes(), whole);
    }
    assert!(done.iter().all(|done| *done > 5), "{done:?}");
    manager.into_target().stop().unwrap();
}

/// Only what a request names is looked at, and what is kept is the same as if everything had been.
#[test]
fn what_is_kept_of_targets_is_what_differs_as_a_whole() {
    let wires = ["hs-ip:127.0.0.1:1", "iscsi:127.0.0.1:1"].map(|wire| any_port(wire.parse().unwrap())).to_vec();
    let config = ServerConfig { wires, ..config(&["a=ram:1M", "b=ram:1M"]) };
    let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    let settings = |alias: &str| TargetSettings { alias: Some(alias.to_owned()), ..TargetSettings::default() };
    let nobody = || TargetSettings { allow: Some(Vec::new()), ..TargetSettings::default() };
    let mut state = 7_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut done = [0; 7];
    for round in 0..400 {
        let (name, volume, kind) = (["a", "b", "new"][below(3)], ["a", "b"][below(2)], below(7));
        let full = TargetNodeConfig::name_of(name).unwrap().to_string();
        let request = match kind {
            0 => Request::AddTarget { name: name.into(), settings: nobody() },
            1 => {
                let settings = settings(["a", "b", "c"][below(3)]);
                Request::SetTarget { name: name.into(), settings, force: false }
            }
            2 => Request::SetTarget { name: name.into(), settings: nobody(), force: true },
            3 => Request::RemoveTarget { name: name.into(), force: true },
            4 => Request::MapVolume { name: volume.into(), lun: None, target: Some(full), force: true },
            5 => Request::UnmapVolume { name: volume.into(), target: full, force: true },
            _ => add("c=ram:1M"),
        };
        done[kind] += usize::from(manager.execute(request.clone()).is_ok());
        if round % 40 == 39 {
            _ = manager.execute(Request::RemoveVolume { name: "c".into(), force: true });
        }
        let whole = manager.kept.changes_to(manager.volumes.values(), &manager.target.exports());
        assert_eq!(*manager.kept.changes(), whole, "{round}: {request:?}");
        let (merged, notes) = kept::merge(&manager.kept.configured, &whole);
        assert_eq!(by_name(merged.exports), by_name(manager.target.exports()), "{round}: {request:?} {notes:?}");
    }
    assert!(done.iter().all(|done| *done > 5), "{done:?}");
    manager.into_target().stop().unwrap();
}

fn by_name(mut exports: Vec<TargetNodeConfig>) -> Vec<TargetNodeConfig> {
    exports.sort_by(|one, other| one.name.cmp(&other.name));
    exports
}

/// So many changes that one more is added to the file.
fn add_many(manager: &mut Manager) {
    (0..200).for_each(|number| drop(lines(manager, add(&format!("n{number}=null:1M")))));
}

/// What it has added last may be in memory only, which nobody was told: from now on it is what there is.
#[test]
fn what_a_run_that_was_killed_has_added_is_written_anew_at_the_next_start() {
    let kept = Kept::new("killed", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    add_many(&mut manager);
    let killed = fs::read(kept.changes()).unwrap();
    manager.into_target().stop().unwrap();
    assert!(killed.starts_with(b"{\"sanwire\":3,"), "changes are added to it");
    let torn = &killed[..killed.len() - 3];
    fs::write(kept.changes(), torn).unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager).len(), 200, "the last one is not there");
    let renewed = fs::read(kept.changes()).unwrap();
    assert_ne!(renewed, torn);
    drop(manager);
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager).len(), 200);
    manager.into_target().stop().unwrap();
}

/// It can be added to the file that it will be there, and the whole file cannot be written to say that it is not.
#[test]
fn what_could_not_be_served_does_not_come_by_a_restart() {
    let kept = Kept::new("not-served", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    add_many(&mut manager);
    kept.fill_disk();
    let before = fs::metadata(kept.changes()).unwrap().len();
    let target = Some("iqn.2026-11.org.sanwire:a".to_owned());
    let secret = Request::AddVolume { volume: "s=ram:1M,security=hash".into(), target, renew: false, adopt: false };
    let error = manager.execute(secret).unwrap_err();
    assert!(matches!(error, ManageError::TargetNode(_)), "{error}");
    assert!(fs::metadata(kept.changes()).unwrap().len() > before, "it was kept before it was tried");
    fs::remove_dir(kept.changes().with_extension("json.new")).unwrap();
    lines(&mut manager, add("late=ram:1M"));
    drop(manager);
    let mut manager = kept.start().unwrap();
    let there = names(&mut manager);
    assert!(there.contains(&"late".to_owned()) && !there.contains(&"s".to_owned()), "{there:?}");
    manager.into_target().stop().unwrap();
}

#[test]
fn what_takes_long_is_kept_also_when_all_is_written_anew_meanwhile() {
    let kept = Kept::new("meanwhile", &[]);
    let wires = ["hs-ip:127.0.0.1:1", "iscsi:127.0.0.1:1"].map(|wire| any_port(wire.parse().unwrap())).to_vec();
    let disk = format!("a=file:{},size=1M", kept.directory.join("a.img").display());
    let config = ServerConfig { wires, ..config(&[disk.as_str()]) };
    let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    let resizing = manager.begin(Request::ResizeVolume { name: "a".into(), size: "2M".into() }).unwrap();
    let resized = work(resizing);
    let (state, target) = (PortState::Standby, Some("iqn.2026-11.org.sanwire:a".to_owned()));
    lines(&mut manager, Request::SetAccessState(AccessChange { group: 1, state, target }));
    assert!(matches!(go_on(&mut manager, resized), Ok(Step::Done(_))));
    let whole = manager.kept.changes_to(manager.volumes.values(), &manager.target.exports());
    assert!(whole.volumes.contains_key("a"), "{whole:?}");
    assert_eq!(*manager.kept.changes(), whole);
    manager.into_target().stop().unwrap();
}
