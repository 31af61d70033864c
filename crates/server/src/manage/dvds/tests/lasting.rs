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

const RELOAD: Request = Request::Reload { force: false, dry_run: false, reset: false };
const FORCED: Request = Request::Reload { force: true, dry_run: false, reset: false };

#[test]
fn what_stood_on_a_volume_that_is_not_configured_any_more_comes_again_with_it() {
    let mut kept = kept("dvd-lost");
    let wanted = NewDvd { regions: vec!["1M+1M".into()], ..new("disk", "cam") };
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, wanted.clone()));
    lines(create(&mut manager, new("cam", "part")));
    let [cam, part] = ["cam", "part"].map(|name| uuid(&manager, name));
    let state = remembered(&kept, &cam);
    manager.into_target().stop().unwrap();
    let configured = std::mem::replace(&mut kept.configured, vec!["other=ram:1M".into()]);
    for request in [RELOAD, FORCED] {
        let mut manager = kept.start().unwrap();
        assert_eq!(names(&mut manager), ["other"]);
        let missing = status(&mut manager).missing;
        let reason = |name: &str| missing.iter().find(|missing| missing.name == name).unwrap().reason.clone();
        assert!(reason("cam").contains("disk, from which it is derived, is not configured any more"), "{missing:?}");
        assert!(reason("part").contains("cam, from which it is derived, is not served"), "{missing:?}");
        lines(manager.execute(request));
        assert_eq!(status(&mut manager).missing.len(), 2, "nobody has said that they are to go");
        manager.into_target().stop().unwrap();
    }
    assert!(state.exists());
    kept.configured = configured.clone();
    let mut manager = kept.start().unwrap();
    assert_eq!((uuid(&manager, "cam"), uuid(&manager, "part")), (cam.clone(), part));
    assert!(state.exists() && status(&mut manager).missing.is_empty());
    manager.into_target().stop().unwrap();
    // Also when its parent comes again while the server runs.
    kept.configured = vec!["other=ram:1M".into()];
    let mut manager = reloads::reloading(&kept, configured);
    lines(manager.execute(RELOAD));
    assert_eq!((names(&mut manager).len(), uuid(&manager, "cam")), (3, cam), "{:?}", status(&mut manager).missing);
    manager.into_target().stop().unwrap();
    // Who revokes it has it forgotten.
    let mut manager = kept.start().unwrap();
    lines(manager.execute(revoke("cam")));
    assert!(!state.exists() && status(&mut manager).missing.is_empty());
    manager.into_target().stop().unwrap();
}

#[test]
fn what_stood_on_a_volume_that_goes_with_force_is_forgotten() {
    let kept = kept_with("dvd-forced", &["other=ram:1M"]);
    let mut manager = reloads::reloading(&kept, vec!["other=ram:1M".into()]);
    lines(create(&mut manager, new("disk", "cam")));
    let state = remembered(&kept, &uuid(&manager, "cam"));
    lines(manager.execute(FORCED));
    assert!(!state.exists() && status(&mut manager).missing.is_empty());
    manager.into_target().stop().unwrap();
}

#[test]
fn one_that_is_configured_is_another_one_than_what_a_crash_has_left_of_a_revoked_one() {
    let mut kept = kept("dvd-crashed");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    let first = uuid(&manager, "cam");
    let state = remembered(&kept, &first);
    let directory = kept.directory.join("state");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let copied = std::process::Command::new("cp").args(["-a", "--"]).arg(from).arg(to).status().unwrap();
        assert!(copied.success());
    };
    // As the server leaves it that crashes when the end of the volume is kept, and nothing is forgotten yet.
    let before = kept.directory.join("before");
    copy(&directory, &before);
    lines(manager.execute(revoke("cam")));
    let changes = fs::read(kept.changes()).unwrap();
    manager.into_target().stop().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    copy(&before, &directory);
    fs::write(kept.changes(), changes).unwrap();
    assert!(state.exists());
    kept.configured.push("cam=dvd:disk,principal=any".into());
    let mut manager = kept.start().unwrap();
    let second = uuid(&manager, "cam");
    assert!(second != first && !state.exists());
    assert!(status(&mut manager).deviations.is_empty());
    manager.into_target().stop().unwrap();
    let manager = kept.start().unwrap();
    assert_eq!(uuid(&manager, "cam"), second, "it is forgotten once");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_derived_volume_that_is_wrong_keeps_no_other_one_from_being_served() {
    let mut kept = kept_with("dvd-wrong", &["good=dvd:disk,region=0+1M,principal=any"]);
    let module = kept.directory.join("none.wasm");
    kept.configured.extend([
        "far=dvd:disk,region=99G+1M,principal=any".to_owned(),
        format!("judged=dvd:disk,principal=any,program={}", module.display()),
        "below=dvd:far,principal=any".to_owned(),
    ]);
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk", "good"]);
    let missing = status(&mut manager).missing;
    assert_eq!(missing.len(), 3, "{missing:?}");
    let Ok(Answer::Dvds(told)) = manager.execute(Request::Dvds { parent: None }) else { panic!("a list") };
    let told: Vec<_> = told.iter().map(|dvd| (&*dvd.name, dvd.missing.is_some(), dvd.size_bytes)).collect();
    assert_eq!(told, [("good", false, 1 << 20), ("far", true, 1 << 20), ("judged", true, 0), ("below", true, 0)]);
    let Ok(Answer::Dvd(far)) = manager.execute(Request::Dvd { name: "far".into() }) else { panic!("one") };
    assert!(far.volume.missing.is_some_and(|reason| reason.contains("volume far")), "{:?}", far.volume.derived);
    let derived = far.volume.derived.unwrap();
    assert_eq!((derived.regions[0].offset_bytes, &derived.principals[..]), (99 << 30, &["any".to_owned()][..]));
    manager.into_target().stop().unwrap();
}

#[test]
fn what_could_not_be_derived_otherwise_is_what_it_was_when_it_comes_again() {
    let mut kept = kept_with("dvd-undone", &["cam=dvd:disk,region=0+1M,principal=any"]);
    let manager = kept.start().unwrap();
    let first = uuid(&manager, "cam");
    let state = remembered(&kept, &first);
    manager.into_target().stop().unwrap();
    let good = std::mem::replace(&mut kept.configured[1], "cam=dvd:disk,region=99G+1M,principal=any".into());
    let manager = kept.start().unwrap();
    assert!(manager.find("cam").is_none() && state.exists(), "somebody has mistyped");
    manager.into_target().stop().unwrap();
    kept.configured[1] = good;
    let manager = kept.start().unwrap();
    assert_eq!(uuid(&manager, "cam"), first);
    assert!(state.exists());
    manager.into_target().stop().unwrap();
}

#[test]
fn what_nobody_has_any_more_of_programs_is_removed_at_the_start() {
    let kept = kept("dvd-litter");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    let state = remembered(&kept, &uuid(&manager, "cam"));
    let litter = remembered(&kept, &"7".repeat(32));
    let directory = kept.directory.join("state/programs-test.d");
    let files = ["gone.wasm", "cam.wasm", "notes.txt"].map(|name| directory.join(name));
    files.iter().for_each(|file| fs::write(file, b"x").unwrap());
    manager.into_target().stop().unwrap();
    let manager = kept.start().unwrap();
    assert!(state.exists() && !litter.exists());
    assert_eq!(files.map(|file| file.exists()), [false, true, true], "what is not its own stays");
    manager.into_target().stop().unwrap();
    fs::write(kept.directory.join("state/volumes/damaged.json"), b"{").unwrap();
    let litter = remembered(&kept, &"7".repeat(32));
    kept.start().unwrap().into_target().stop().unwrap();
    assert!(litter.exists(), "it may be that of what cannot be read");
}

#[test]
fn a_damaged_record_of_a_former_one_does_not_block_a_name() {
    let kept = kept("dvd-damaged");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    let records = kept.directory.join("state/volumes");
    let written = |file: &PathBuf| fs::read_to_string(file).unwrap().contains("\"cam\"");
    let file = fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().path()).find(written).unwrap();
    lines(manager.execute(revoke("cam")));
    fs::write(file, b"{").unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    manager.into_target().stop().unwrap();
}

#[test]
fn what_has_ended_does_not_begin_again_by_an_earlier_clock() {
    let until = soon(3600);
    let kept = kept_with("dvd-clock", &[&format!("fixed=dvd:disk,principal=any,until={until}")]);
    kept.start().unwrap().into_target().stop().unwrap();
    // The server has seen a later time; its host was switched on with an earlier one.
    fs::write(kept.directory.join("state/time-test.txt"), format!("{}\n", soon(7200))).unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk"]);
    let missing = status(&mut manager).missing;
    assert!(missing[0].reason.contains("clock is earlier, but this server has seen"), "{missing:?}");
    assert!(manager.sought().is_empty() && manager.may_turn_back());
    lines(manager.execute(RELOAD));
    assert_eq!(names(&mut manager), ["disk", "fixed"], "who reloads says that the clock is right");
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk", "fixed"], "and has said so to the next start");
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
    let kept = kept_with("dvd-longer", &[&format!("fixed=dvd:disk,principal=any,until={}", soon(3600))]);
    let after = [kept.configured[0].clone(), format!("fixed=dvd:disk,principal=any,until={}", soon(7200))];
    let mut manager = reloads::reloading(&kept, after.into());
    let id = uuid(&manager, "fixed");
    let state = remembered(&kept, &id);
    // As if it had ended when 1970 began.
    manager.expiry.put("fixed", Some(1), false);
    manager.expire();
    assert_eq!(names(&mut manager), ["disk"]);
    lines(manager.execute(Request::Reload { force: false, dry_run: false, reset: false }));
    assert_eq!(uuid(&manager, "fixed"), id, "hosts find the disk that they know");
    assert!(state.exists(), "what was written once stays so");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_volume_that_is_not_configured_any_more_while_it_is_missing_is_forgotten() {
    let kept = kept_with("dvd-dropped", &[&format!("fixed=dvd:disk,principal=any,until={}", soon(3600))]);
    let mut manager = reloads::reloading(&kept, vec![kept.configured[0].clone()]);
    let state = remembered(&kept, &uuid(&manager, "fixed"));
    // As if it had ended when 1970 began.
    manager.expiry.put("fixed", Some(1), false);
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
