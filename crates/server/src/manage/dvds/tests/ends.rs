//! Derived volumes that get another end while they are used.

use super::reloads::reloading;
use super::*;

/// That a volume ends then.
pub(super) fn end(name: &str, until: Option<&str>) -> Request {
    Request::SetDvd(DvdEnd { name: name.into(), until: until.map(str::to_owned) })
}

fn left(manager: &mut Manager, name: &str) -> Option<u64> {
    volume(manager, name).derived.unwrap().seconds_left
}

fn refused(manager: &mut Manager, request: Request) -> String {
    let rehearsed = manager.execute(Request::DryRun { request: request.clone().into() }).unwrap_err();
    let error = manager.execute(request).unwrap_err();
    assert_eq!(rehearsed.code(), error.code());
    error.to_string()
}

#[test]
fn an_end_is_moved_either_way_and_never_beyond_the_parents() {
    let kept = kept("dvd-ends");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    lines(create(&mut manager, new("cam", "part")));
    let revision = volume(&mut manager, "cam").revision;
    let told = lines(manager.execute(Request::DryRun { request: end("cam", Some("2h")).into() }));
    assert!(told[0].starts_with("volume cam would end at 20") && told[0].ends_with("Z then"), "{told:?}");
    assert_eq!((left(&mut manager, "cam"), volume(&mut manager, "cam").revision), (None, revision));
    let told = lines(manager.execute(end("cam", Some("2h"))));
    assert!(told[0].starts_with("volume cam ends at 20") && told[0].ends_with("Z now"), "{told:?}");
    assert!(volume(&mut manager, "cam").revision > revision);
    for name in ["cam", "part"] {
        let left = left(&mut manager, name).unwrap();
        assert!((7100..=7200).contains(&left), "{name}: {left}");
    }
    let told = lines(manager.execute(end("part", Some("1h"))));
    assert!(told[0].starts_with("volume part ends at "), "{told:?}");
    let error = refused(&mut manager, end("part", Some("3h")));
    assert!(error.contains("after cam, from which it is derived and which ends at "), "{error}");
    let error = create(&mut manager, NewDvd { until: Some("3h".into()), ..new("cam", "more") }).unwrap_err();
    assert!(error.to_string().contains("after cam, from which it is derived"), "{error}");
    lines(manager.execute(end("cam", Some("30m"))));
    assert!(left(&mut manager, "part").unwrap() <= 1800, "it ends with that, though its own time is later");
    lines(manager.execute(end("cam", None)));
    assert_eq!(left(&mut manager, "cam"), None);
    assert!((3500..=3600).contains(&left(&mut manager, "part").unwrap()), "and has kept that");
    assert_eq!(lines(manager.execute(end("cam", None))), [""; 0], "it is so already");
    lines(manager.execute(end("cam", Some("2h"))));
    let told = lines(manager.execute(end("part", None)));
    assert!(told[0].starts_with("volume part ends with cam now, at 20"), "{told:?}");
    for (request, part) in [
        (end("cam", Some("soon")), "invalid until 'soon'"),
        (end("cam", Some("2001-01-01T00:00:00Z")), "2001-01-01T00:00:00.000Z is over"),
        (end("disk", None), "not derived"),
        (end("nobody", None), "nobody"),
    ] {
        let error = refused(&mut manager, request);
        assert!(error.contains(part), "{error}");
    }
    let told = events(&manager);
    let told: Vec<_> = told.iter().filter(|line| line.contains(" ends ")).collect();
    assert_eq!(told.len(), 6, "{told:?}");
    assert_eq!(*told[3], "volume cam, which is derived from disk, ends when it is revoked now");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_new_end_is_kept_and_holds_until_the_configuration_gives_another_one() {
    let mut kept = kept_with("dvd-ends-kept", &["fixed=dvd:disk,principal=10.0.0.9,until=2100-01-31T18:00:00Z"]);
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, NewDvd { until: Some("1h".into()), ..new("fixed", "cam") }));
    let id = volume(&mut manager, "fixed").id;
    lines(manager.execute(end("fixed", Some("2h"))));
    lines(manager.execute(end("cam", Some("90m"))));
    let is_changed =
        |manager: &mut Manager| status(manager).deviations.iter().any(|deviation| deviation.name == "fixed");
    assert!(is_changed(&mut manager));
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert!(left(&mut manager, "fixed").unwrap() <= 7200 && left(&mut manager, "cam").unwrap() > 3600);
    assert_eq!((volume(&mut manager, "fixed").id, is_changed(&mut manager)), (id.clone(), true));
    // What is changed so that a volume outlasts that on which it stands stops no start.
    lines(manager.execute(end("fixed", Some("45m"))));
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    assert_eq!(names(&mut manager), ["disk", "fixed", "cam"]);
    assert!(left(&mut manager, "cam").unwrap() <= 2700);
    manager.into_target().stop().unwrap();
    kept.configured[1] = "fixed=dvd:disk,principal=10.0.0.9,until=2100-02-28T18:00:00Z".into();
    let mut manager = kept.start().unwrap();
    assert!(left(&mut manager, "fixed").unwrap() > 1 << 30, "who has edited it since wants that");
    assert!(!is_changed(&mut manager) && volume(&mut manager, "fixed").id == id);
    manager.into_target().stop().unwrap();
}

#[test]
fn a_reload_leaves_a_new_end_as_it_is_unless_it_is_to_forget_it() {
    let kept = kept_with("dvd-ends-reload", &["fixed=dvd:disk,principal=any"]);
    let mut manager = reloading(&kept, kept.configured.clone());
    let unit = manager.find("fixed").unwrap().1;
    lines(manager.execute(end("fixed", Some("2h"))));
    let reload = |reset| Request::Reload { force: false, dry_run: false, reset };
    lines(manager.execute(reload(false)));
    assert!(!unit.is_revoked() && left(&mut manager, "fixed").is_some());
    drop(unit);
    lines(manager.execute(reload(true)));
    assert_eq!(left(&mut manager, "fixed"), None);
    manager.into_target().stop().unwrap();
}

#[test]
fn who_renews_in_time_keeps_it_and_who_does_not_comes_too_late() {
    let kept = kept("dvd-ends-renewed");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, NewDvd { until: Some(soon(60)), ..new("disk", "cam") }));
    lines(create(&mut manager, NewDvd { until: Some(soon(60)), ..new("disk", "late") }));
    let revisions = |manager: &mut Manager| {
        let told = status(manager);
        (told.revision, told.collections, told.volumes.into_iter().map(|volume| volume.revision).collect::<Vec<_>>())
    };
    let before = revisions(&mut manager);
    let longer = soon(240);
    lines(manager.execute(end("cam", Some(&longer))));
    assert_eq!(events(&manager).len(), 2, "that is no event");
    assert_eq!(revisions(&mut manager), before, "and no reason to look again for who has looked");
    assert!(fs::read_to_string(kept.changes()).unwrap().contains(&longer), "it is kept all the same");
    // A minute later, by a clock that was set back.
    let later = std::time::Instant::now() + Duration::from_secs(61);
    let overdue = manager.expiry.overdue(super::super::expiring::now_unix_ms(), later);
    assert_eq!(overdue, ["late"]);
    manager.end_overdue(&overdue);
    let error = refused(&mut manager, end("late", Some("2h")));
    assert!(error.contains("its time was over at"), "{error}");
    manager.expire();
    assert_eq!(names(&mut manager), ["disk", "cam"]);
    assert_eq!(manager.execute(end("late", Some("2h"))).unwrap_err().code(), "volume-unknown");
    let by = Asker::Process { uid: 1, pid: 1 };
    manager.handle(&by, end("cam", Some("2h")));
    let audit = fs::read_to_string(kept.directory.join("state/audit-test.jsonl")).unwrap();
    assert!(audit.contains(r#""do":"set-dvd","name":"cam","until":"2h""#), "{audit}");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_short_time_is_over_when_it_is_though_the_clock_was_set_back() {
    let kept = kept_with("dvd-ends-back", &["fixed=dvd:disk,principal=any"]);
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, NewDvd { until: Some(soon(60)), ..new("disk", "cam") }));
    lines(create(&mut manager, new("cam", "part")));
    lines(create(&mut manager, NewDvd { until: Some("2h".into()), ..new("disk", "long") }));
    lines(manager.execute(end("fixed", Some("60s"))));
    // A minute later, by a clock that says what it has said before.
    let later = std::time::Instant::now() + Duration::from_secs(61);
    let overdue = manager.expiry.overdue(super::super::expiring::now_unix_ms(), later);
    assert_eq!(overdue, ["cam", "fixed", "part"]);
    manager.end_overdue(&overdue);
    manager.expire();
    assert_eq!(names(&mut manager), ["disk", "long"]);
    assert!(manager.sought().is_empty(), "it does not come again by that clock");
    let told = events(&manager);
    assert_eq!(told.iter().filter(|line| line.contains("was over at")).count(), 3, "{told:?}");
    manager.into_target().stop().unwrap();
}

#[test]
fn an_end_that_cannot_be_kept_stays_as_it_was() {
    let kept = kept("dvd-ends-full");
    let mut manager = kept.start().unwrap();
    lines(create(&mut manager, new("disk", "cam")));
    kept.fill_disk();
    assert_eq!(manager.execute(end("cam", Some("2h"))).unwrap_err().code(), "not-kept");
    assert_eq!(left(&mut manager, "cam"), None);
    fs::remove_dir(kept.changes().with_extension("json.new")).unwrap();
    manager.into_target().stop().unwrap();
}

#[test]
fn what_is_not_said_is_no_wish() {
    let request = |json: &str| Request::from_json(json.as_bytes());
    assert_eq!(request(r#"{"do":"set-dvd","name":"cam","until":null}"#).unwrap(), end("cam", None));
    assert_eq!(request(r#"{"do":"set-dvd","name":"cam","until":"2h"}"#).unwrap(), end("cam", Some("2h")));
    for json in [r#"{"do":"set-dvd","name":"cam"}"#, r#"{"do":"set-dvd","name":"cam","until":null,"x":1}"#] {
        assert_eq!(request(json).unwrap_err().code, "request-invalid", "{json}");
    }
}
