//! Which derived volumes come again, and as whom.

use std::path::PathBuf;

use super::*;
use crate::config::ServerConfig;

/// Where the program of a volume keeps what it remembers; something is there.
fn remembered(kept: &Kept, id: &str) -> PathBuf {
    let directory = kept.directory.join("state/programs-test.d");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join(format!("{}.state", id.replace('-', "")));
    fs::write(&file, b"remembered").unwrap();
    file
}

fn uuid(manager: &Manager, name: &str) -> String {
    format!("{:032x}", u128::from_be_bytes(manager.find(name).unwrap().1.identity().uuid()))
}

/// The server without iSCSI targets, which would carry what is protected in the clear.
fn over_hyperscsi(kept: &Kept) -> Manager {
    let config = ServerConfig { exports: Vec::new(), ..kept.config() };
    Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap()
}

#[test]
fn a_revoked_volume_stays_away_when_the_level_of_its_parent_is_edited() {
    let mut kept = kept_with("dvd-revoked", &["cam=dvd:disk,principal=any"]);
    let mut manager = over_hyperscsi(&kept);
    lines(manager.execute(revoke("cam")));
    manager.into_target().stop().unwrap();
    kept.configured[0].push_str(",security=hash");
    assert_eq!(kept.config().volumes[1].spec.security, "hash".parse().ok(), "it rises with that");
    let mut manager = over_hyperscsi(&kept);
    assert_eq!(names(&mut manager), ["disk"]);
    lines(manager.execute(Request::Reload { force: false, dry_run: false, reset: false }));
    assert_eq!(names(&mut manager), ["disk"]);
    manager.into_target().stop().unwrap();
    kept.configured[1] = "cam=dvd:disk,region=1M+1M,principal=any".into();
    let mut manager = over_hyperscsi(&kept);
    assert_eq!(names(&mut manager), ["disk", "cam"], "somebody wants it so");
    manager.into_target().stop().unwrap();
}

#[test]
fn what_was_derived_from_another_volume_of_that_name_is_not_served() {
    let mut kept = kept_with("dvd-replaced", &["fixed=dvd:disk,principal=any", "memory=ram:1M"]);
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    lines(create(&mut manager, new("cam", "part")));
    lines(create(&mut manager, new("memory", "short")));
    let [fixed, short] = ["fixed", "short"].map(|name| uuid(&manager, name));
    manager.into_target().stop().unwrap();
    kept.configured[0] = format!("disk=file:{},size=16M", kept.directory.join("other.img").display());
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk", "fixed", "memory", "short"]);
    assert_ne!(uuid(&manager, "fixed"), fixed, "who writes the configuration knows what disk is");
    assert_ne!(uuid(&manager, "short"), short, "what is in memory is another volume at each start");
    let missing = status(&mut manager).missing;
    let reason = |name: &str| missing.iter().find(|missing| missing.name == name).unwrap().reason.clone();
    assert!(reason("cam").contains("disk is another volume than the one from which it was derived"), "{missing:?}");
    assert!(reason("part").contains("cam, from which it is derived, is not served"), "{missing:?}");
    lines(manager.execute(revoke("cam")));
    lines(create(&mut manager, new("disk", "cam")));
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert!(names(&mut manager).contains(&"cam".to_owned()), "the same disk as before");
    manager.into_target().stop().unwrap();
}

#[test]
fn what_stood_on_a_volume_that_is_not_configured_any_more_is_forgotten() {
    let mut kept = kept("dvd-lost");
    let wanted = NewDvd { regions: vec!["1M+1M".into()], ..new("disk", "cam") };
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, wanted.clone()));
    let first = uuid(&manager, "cam");
    let state = remembered(&kept, &first);
    manager.into_target().stop().unwrap();
    let configured = std::mem::replace(&mut kept.configured, vec!["other=ram:1M".into()]);
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["other"]);
    assert!(!state.exists());
    manager.into_target().stop().unwrap();
    kept.configured = configured;
    kept.configured.push("cam=dvd:disk,region=1M+1M,principal=any".into());
    let manager = kept.start().unwrap();
    assert_ne!(uuid(&manager, "cam"), first);
    manager.into_target().stop().unwrap();
}

#[test]
fn a_new_volume_is_another_one_whatever_a_crash_has_left_of_one_of_its_name() {
    let kept = kept("dvd-left");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    let (first, records) = (uuid(&manager, "cam"), kept.directory.join("state/volumes"));
    let contents = || -> Vec<_> {
        let files = fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().path());
        files.map(|file| (file.clone(), fs::read(file).unwrap())).collect()
    };
    let before = contents();
    lines(manager.execute(revoke("cam")));
    // As when the server had crashed before it was forgotten.
    before.iter().for_each(|(file, content)| fs::write(file, content).unwrap());
    let state = remembered(&kept, &first);
    lines(create(&mut manager, new("disk", "cam")));
    assert_ne!(uuid(&manager, "cam"), first);
    assert!(!state.exists());
    manager.into_target().stop().unwrap();
}

#[test]
fn a_configured_volume_is_the_same_one_when_its_time_is_made_longer() {
    let kept = kept_with("dvd-longer", &[&format!("fixed=dvd:disk,principal=any,until={}", soon(2))]);
    let after = [kept.configured[0].clone(), format!("fixed=dvd:disk,principal=any,until={}", soon(3600))];
    let mut manager = reloads::reloading(&kept, after.into());
    let id = uuid(&manager, "fixed");
    let state = remembered(&kept, &id);
    std::thread::sleep(Duration::from_millis(2100));
    manager.expire();
    assert_eq!(names(&mut manager), ["disk"]);
    lines(manager.execute(Request::Reload { force: false, dry_run: false, reset: false }));
    assert_eq!(uuid(&manager, "fixed"), id, "hosts find the disk that they know");
    assert!(state.exists(), "what was written once stays so");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_volume_that_is_not_configured_any_more_while_it_is_missing_is_forgotten() {
    let kept = kept_with("dvd-dropped", &[&format!("fixed=dvd:disk,principal=any,until={}", soon(2))]);
    let mut manager = reloads::reloading(&kept, vec![kept.configured[0].clone()]);
    let state = remembered(&kept, &uuid(&manager, "fixed"));
    std::thread::sleep(Duration::from_millis(2100));
    manager.expire();
    assert!(state.exists() && status(&mut manager).missing.len() == 1);
    lines(manager.execute(Request::Reload { force: false, dry_run: false, reset: false }));
    assert!(!state.exists() && status(&mut manager).missing.is_empty());
    manager.into_target().stop().unwrap();
}

#[test]
fn a_configured_volume_whose_parent_goes_for_a_while_is_the_same_one_afterwards() {
    let kept = kept_with("dvd-orphan", &["cam=dvd:disk,principal=any"]);
    let mut manager = reloads::reloading(&kept, vec![kept.configured[1].clone()]);
    let state = remembered(&kept, &uuid(&manager, "cam"));
    lines(manager.execute(Request::Reload { force: true, dry_run: false, reset: false }));
    assert!(names(&mut manager).is_empty() && status(&mut manager).missing.len() == 1);
    assert!(state.exists());
    manager.into_target().stop().unwrap();
}

#[test]
fn what_was_derived_under_a_configured_name_is_that_of_who_derived_it() {
    for other in ["file", "memory"] {
        let mut kept = kept_with("dvd-by-ctl", &["cam=dvd:disk,principal=10.0.0.1"]);
        let mut manager = kept.start().unwrap();
        lines(manager.execute(revoke("cam")));
        lines(create(&mut manager, new("disk", "cam")));
        manager.into_target().stop().unwrap();
        kept.configured[0] = match other {
            "file" => format!("disk=file:{},size=16M", kept.directory.join("other.img").display()),
            _ => "disk=ram:16M".into(),
        };
        let mut manager = kept.start().unwrap();
        assert_eq!(names(&mut manager), ["disk"], "{other}");
        let missing = status(&mut manager).missing;
        assert!(
            missing[0].reason.contains("disk is another volume than the one from which it was derived"),
            "{missing:?}"
        );
        manager.into_target().stop().unwrap();
    }
}

#[test]
fn what_cannot_be_kept_is_revoked_all_the_same() {
    let kept = kept("dvd-not-kept");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    lines(create(&mut manager, new("cam", "part")));
    let units = ["cam", "part"].map(|name| manager.find(name).unwrap().1);
    kept.fill_disk();
    let error = manager.execute(remove("disk", true)).unwrap_err();
    assert_eq!(
        (error.code(), names(&mut manager).len()),
        ("not-kept", 3),
        "what is not revoked stays, with all that stands on it"
    );
    let error = manager.execute(revoke("cam")).unwrap_err();
    assert_eq!(error.code(), "not-kept");
    assert!(error.to_string().contains("is revoked, and would be served again when the server starts"), "{error}");
    assert!(units.iter().all(|unit| unit.is_revoked()) && names(&mut manager) == ["disk"]);
    drop(units);
    fs::remove_dir(kept.changes().with_extension("json.new")).unwrap();
    lines(manager.execute(Request::AddVolume { volume: "x=ram:1M".into(), target: None, renew: false, adopt: false }));
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk", "x"], "the next change has kept it");
    manager.into_target().stop().unwrap();
}
