use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::*;
use crate::derived;
use crate::events::EventFilter;
use crate::manage::response::{Status, VolumeStatus};
use crate::manage::testing::{Kept, go_on, work};
use crate::wall_time::written_seconds;

mod ending;
mod ends;
mod lasting;
mod owners;
mod races;
mod reloads;
mod together;

/// A server with a disk of 16 MiB in a file, which it knows again.
fn kept(label: &str) -> Kept {
    derived::register();
    let mut kept = Kept::new(label, &[]);
    kept.configured = vec![format!("disk=file:{},size=16M", kept.directory.join("disk.img").display())];
    kept
}

/// The same, and more volumes in the configuration.
fn kept_with(label: &str, volumes: &[&str]) -> Kept {
    let mut kept = kept(label);
    kept.configured.extend(volumes.iter().map(|volume| (*volume).to_owned()));
    kept
}

/// The server with a volume that is not served in the clear, as targets do.
fn with_a_secret(kept: &Kept) -> Manager {
    let mut config = kept.config();
    config.exports.retain(|export| !export.units.values().any(|volume| volume == "secret"));
    Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap()
}

fn new(parent: &str, name: &str) -> NewDvd {
    NewDvd { parent: parent.into(), name: name.into(), principals: vec!["any".into()], ..NewDvd::default() }
}

fn create(manager: &mut Manager, new: NewDvd) -> Result<Answer, ManageError> {
    manager.execute(Request::CreateDvd(new))
}

fn lines(answer: Result<Answer, ManageError>) -> Vec<String> {
    match answer.unwrap() {
        Answer::Changed(lines) => lines,
        other => panic!("{other:?}"),
    }
}

fn remove(name: &str, force: bool) -> Request {
    Request::RemoveVolume { name: name.into(), force }
}

fn revoke(name: &str) -> Request {
    Request::RevokeDvd { name: name.into() }
}

fn status(manager: &mut Manager) -> Status {
    match manager.execute(Request::Status).unwrap() {
        Answer::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

fn names(manager: &mut Manager) -> Vec<String> {
    status(manager).volumes.into_iter().map(|volume| volume.name).collect()
}

fn volume(manager: &mut Manager, name: &str) -> VolumeStatus {
    status(manager).volumes.into_iter().find(|volume| volume.name == name).unwrap()
}

/// What has happened to derived volumes.
fn events(manager: &Manager) -> Vec<String> {
    let (mut all, mut since) = (Vec::new(), None);
    loop {
        let read = manager.target().events().read(since.as_deref(), &EventFilter::default(), Duration::ZERO);
        if read.events.is_empty() {
            break;
        }
        all.extend(read.events);
        since = Some(read.cursor);
    }
    let told = all.into_iter().map(|event| event.what);
    told.filter(|what| {
        matches!(
            what,
            Happening::DvdCreated { .. }
                | Happening::DvdChanged { .. }
                | Happening::DvdRevoked { .. }
                | Happening::DvdExpired { .. }
                | Happening::DvdRefused { .. }
        )
    })
    .map(|what| what.to_string())
    .collect()
}

#[test]
fn a_derived_volume_is_made_told_of_and_revoked() {
    let kept = kept("dvd-life");
    let mut manager = kept.start().unwrap();
    let regions = vec!["4M+1M".into(), "0+512".into()];
    let operations = vec!["read".into(), "write".into()];
    let wanted = NewDvd { regions, operations, until: Some("2h".into()), ..new("disk", "cam") };
    assert_eq!(lines(create(&mut manager, wanted)), ["volume cam is derived from disk, and served"]);
    lines(create(&mut manager, NewDvd { regions: vec!["512+1K".into()], ..new("cam", "part") }));
    let cam = volume(&mut manager, "cam");
    let derived = cam.derived.unwrap();
    assert_eq!((cam.size_bytes, cam.store.as_str(), derived.parent.as_str()), ((1 << 20) + 512, "dvd:disk", "disk"));
    let [first, second] = &derived.regions[..] else { panic!("{derived:?}") };
    assert_eq!((first.offset_bytes, first.length_bytes), (4 << 20, 1 << 20), "in its own order");
    assert_eq!((second.offset_bytes, second.length_bytes), (0, 512));
    assert_eq!(derived.operations, ["read", "write"]);
    assert!((7100..=7200).contains(&derived.seconds_left.unwrap()), "{derived:?}");
    let Ok(Answer::Dvds(all)) = manager.execute(Request::Dvds { parent: None }) else { panic!("a list") };
    assert_eq!(all.iter().map(|dvd| &*dvd.name).collect::<Vec<_>>(), ["cam", "part"]);
    let Ok(Answer::Dvds(of_cam)) = manager.execute(Request::Dvds { parent: Some("cam".into()) }) else {
        panic!("a list")
    };
    assert_eq!(of_cam.len(), 1);
    let Ok(Answer::Dvd(part)) = manager.execute(Request::Dvd { name: "part".into() }) else { panic!("one") };
    assert_eq!((part.volume.name.as_str(), part.used_by.len(), part.not_admitted), ("part", 0, 0));
    assert!(part.volume.derived.unwrap().until.is_some(), "it ends with its parent");
    let unit = Arc::downgrade(&manager.find("cam").unwrap().1);
    assert_eq!(
        lines(manager.execute(revoke("cam"))),
        ["volume part, which was derived from cam, is revoked", "volume cam, which was derived from disk, is revoked"]
    );
    assert!(unit.upgrade().is_none() && names(&mut manager) == ["disk"]);
    assert_eq!(
        events(&manager),
        [
            "volume cam is derived from disk",
            "volume part is derived from cam",
            "volume part, which was derived from cam, is revoked",
            "volume cam, which was derived from disk, is revoked",
        ]
    );
    manager.into_target().stop().unwrap();
}

#[test]
fn what_cannot_be_derived_is_refused_with_a_code() {
    let kept = kept_with("dvd-refused", &["secret=ram:1M,security=hash"]);
    let mut manager = with_a_secret(&kept);
    let region = |region: &str| NewDvd { regions: vec![region.into()], ..new("disk", "cam") };
    let twice = NewDvd { regions: vec!["0+1M".into(), "512K+1M".into()], ..new("disk", "cam") };
    let principal = |who: &str| NewDvd { principals: vec![who.into()], ..new("disk", "cam") };
    for (wanted, code, part) in [
        (new("disk", "disk"), "volume-exists", "choose another name"),
        (new("nobody", "cam"), "derivation-invalid", "there is no volume called nobody"),
        (new("cam", "cam"), "derivation-invalid", "there is no volume called cam"),
        (new("disk", "a b"), "volume-text-invalid", "no volume name"),
        (region("16M+1M"), "derivation-invalid", "volume cam: "),
        (region("15M+2M"), "derivation-invalid", "volume cam: "),
        (region("100+512"), "derivation-invalid", "volume cam: "),
        (region("0+700"), "derivation-invalid", "volume cam: "),
        (region("1M+0"), "volume-text-invalid", "a length above 0"),
        (region("18446744073709551104+1M"), "volume-text-invalid", "below 2^64"),
        (twice, "volume-text-invalid", "no byte in common"),
        (principal("iqn.x"), "volume-text-invalid", "claimed: before an iSCSI name"),
        (NewDvd { principals: Vec::new(), ..new("disk", "cam") }, "volume-text-invalid", "principal"),
        (
            NewDvd { operations: vec!["format".into()], ..new("disk", "cam") },
            "volume-text-invalid",
            "allow-ops 'format'",
        ),
        (
            NewDvd { until: Some("2001-01-01T00:00:00Z".into()), ..new("disk", "cam") },
            "derivation-invalid",
            "was over at 2001",
        ),
        (NewDvd { until: Some("soon".into()), ..new("disk", "cam") }, "volume-text-invalid", "until 'soon'"),
        (
            NewDvd { security: Some("none".into()), ..new("secret", "cam") },
            "derivation-invalid",
            "less than the hash of secret",
        ),
        (NewDvd { owners: vec!["me".into()], ..new("disk", "cam") }, "derivation-invalid", "invalid owner 'me'"),
    ] {
        let rehearsed = manager.execute(Request::DryRun { request: Request::CreateDvd(wanted.clone()).into() });
        let error = create(&mut manager, wanted.clone()).unwrap_err();
        let text = error.to_string();
        assert!(error.code() == code && text.contains(part), "{wanted:?}: {}: {text}", error.code());
        // What only opening it shows is not known before.
        assert!(rehearsed.is_err() || text.starts_with("volume cam: "), "{wanted:?}");
    }
    assert_eq!(names(&mut manager), ["disk", "secret"]);
    for (request, code) in [
        (revoke("disk"), "volume-not-derived"),
        (revoke("nobody"), "volume-unknown"),
        (Request::Dvd { name: "disk".into() }, "volume-not-derived"),
        (Request::Dvds { parent: Some("nobody".into()) }, "volume-unknown"),
    ] {
        assert_eq!(manager.execute(request.clone()).unwrap_err().code(), code, "{request:?}");
    }
    manager.into_target().stop().unwrap();
}

#[test]
fn no_more_than_eight_stand_on_one_another() {
    let kept = kept("dvd-deep");
    let mut manager = kept.start().unwrap();
    let name = |depth: usize| if depth == 0 { "disk".to_owned() } else { format!("d{depth}") };
    for depth in 0..8 {
        lines(create(&mut manager, new(&name(depth), &name(depth + 1))));
    }
    let error = create(&mut manager, new(&name(8), "d9")).unwrap_err();
    assert!(error.to_string().contains("d8, which is itself derived 8 deep"), "{error}");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_parent_is_removed_with_force_only_and_takes_what_is_derived_from_it_along() {
    let kept = kept("dvd-parent");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    lines(create(&mut manager, new("cam", "part")));
    for request in [remove("disk", false), Request::DryRun { request: remove("disk", false).into() }] {
        let error = manager.execute(request).unwrap_err();
        assert_eq!(error.code(), "volume-has-derived");
        assert!(error.to_string().contains("part, cam are derived"), "{error}");
    }
    let would = lines(manager.execute(Request::DryRun { request: remove("disk", true).into() }));
    assert_eq!(would[..2], ["volume part would be revoked", "volume cam would be revoked"]);
    let unit = Arc::downgrade(&manager.find("part").unwrap().1);
    assert_eq!(
        lines(manager.execute(remove("disk", true))),
        [
            "volume part, which was derived from cam, is revoked",
            "volume cam, which was derived from disk, is revoked",
            "volume disk is not served any more",
        ]
    );
    assert!(unit.upgrade().is_none() && names(&mut manager).is_empty());
    manager.into_target().stop().unwrap();
}

#[test]
fn a_restart_keeps_a_derived_volume_and_one_that_is_made_again_is_another_one() {
    let kept = kept_with("dvd-restart", &["fixed=dvd:disk,region=8M+1M,principal=any"]);
    let mut manager = kept.start().unwrap();
    let wanted = NewDvd { regions: vec!["1M+1M".into()], until: Some("2h".into()), ..new("disk", "cam") };
    lines(create(&mut manager, wanted.clone()));
    let [cam, fixed] = ["cam", "fixed"].map(|name| volume(&mut manager, name));
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    let again = volume(&mut manager, "cam");
    assert_eq!((&again.id, &again.derived.unwrap().until), (&cam.id, &cam.derived.unwrap().until), "the same time");
    assert_eq!(volume(&mut manager, "fixed").id, fixed.id);
    lines(manager.execute(revoke("cam")));
    lines(create(&mut manager, wanted));
    assert_ne!(volume(&mut manager, "cam").id, cam.id, "hosts do not take it for the old one");
    lines(manager.execute(revoke("cam")));
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk", "fixed"], "what was revoked does not come again");
    manager.into_target().stop().unwrap();
    let mut kept = kept;
    kept.configured[1] = "fixed=dvd:disk,region=9M+1M,principal=any".into();
    let mut manager = kept.start().unwrap();
    assert_ne!(volume(&mut manager, "fixed").id, fixed.id, "another part is another volume");
    manager.into_target().stop().unwrap();
}

#[test]
fn parents_are_opened_first_and_what_stands_on_nothing_is_missing() {
    let mut kept = kept("dvd-order");
    kept.configured.splice(
        0..0,
        ["part=dvd:cam,region=0+1M,principal=any".into(), "cam=dvd:disk,region=4M+2M,principal=any".into()],
    );
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["part", "cam", "disk"], "numbers are those of the configuration");
    manager.into_target().stop().unwrap();
    kept.configured.pop();
    let mut manager = kept.start().unwrap();
    let missing = status(&mut manager).missing;
    let cam = missing.iter().find(|missing| missing.name == "cam").unwrap();
    assert!(cam.reason.contains("disk, from which it is derived, is not configured"), "{missing:?}");
    manager.into_target().stop().unwrap();
}

/// A time so many seconds from now on.
/// An end that comes while a test waits for it, and not while one that is halted is about something else; with how it is written.
fn near() -> (SystemTime, String) {
    let end = SystemTime::now() + Duration::from_secs(12);
    (end, written_seconds(end))
}

/// Waits until this is over.
fn sleep_past(end: SystemTime) {
    let left = end.duration_since(SystemTime::now()).unwrap_or_default();
    std::thread::sleep(left + Duration::from_millis(100));
}

fn soon(seconds: u64) -> String {
    written_seconds(SystemTime::now() + Duration::from_secs(seconds))
}

#[test]
fn a_derived_volume_is_guarded_as_its_parent_at_least() {
    let kept = kept_with("dvd-level", &["secret=ram:1M,security=hash"]);
    let mut manager = with_a_secret(&kept);
    lines(create(&mut manager, new("secret", "cam")));
    assert_eq!(volume(&mut manager, "cam").security, "hash");
    let secure = |name: &str, level: &str| Request::SetVolume {
        name: name.into(),
        security: Some(level.into()),
        protected: None,
        owners: None,
    };
    for (name, level) in [("cam", "none"), ("secret", "aes-128-gcm")] {
        let error = manager.execute(secure(name, level)).unwrap_err();
        assert!(error.code() == "derivation-invalid" && error.to_string().contains("volume cam: security="), "{error}");
    }
    lines(manager.execute(secure("cam", "aes-128-gcm")));
    lines(manager.execute(secure("secret", "aes-128-gcm")));
    manager.into_target().stop().unwrap();
}
