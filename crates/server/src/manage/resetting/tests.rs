use std::fs;

use super::super::slow::Step;
use super::super::testing::{Kept, go_on, work_until};
use super::super::wanted::Configuration;
use super::super::{Answer, Request, Status};
use super::*;
use crate::counting::Uses;
use crate::front::hyperscsi::clients::ClientSettings;
use crate::past_uses::Host;

const ALICE: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";
const OWN: &str = "iqn.2026-11.org.sanwire:a";

fn reset(dry_run: bool) -> Request {
    Request::Reload { force: false, dry_run, reset: true }
}

fn map(name: &str, lun: u16, target: Option<&str>) -> Request {
    Request::MapVolume { name: name.into(), lun: Some(lun), target: target.map(str::to_owned), force: false }
}

fn lines(manager: &mut Manager, request: Request) -> Vec<String> {
    match manager.execute(request).unwrap() {
        Answer::Changed(lines) => lines,
        other => panic!("{other:?}"),
    }
}

fn status(manager: &mut Manager) -> Status {
    match manager.execute(Request::Status) {
        Ok(Answer::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

/// Volumes with their numbers, and targets with their units.
type Served = (Vec<(String, u16)>, Vec<(String, Vec<(u16, String)>)>);

fn served(manager: &mut Manager) -> Served {
    let status = status(manager);
    let volumes = status.volumes.into_iter().map(|volume| (volume.name, volume.lun));
    (volumes.collect(), status.targets.into_iter().map(|target| (target.name, target.units)).collect())
}

/// Changes one thing of each kind; `a` and `c` have the numbers of each other then.
fn change(manager: &mut Manager) {
    let state = PortState::Standby;
    for request in [
        Request::AddVolume { volume: "d=ram:1M".into(), target: None, renew: false, adopt: false },
        Request::RemoveVolume { name: "b".into(), force: false },
        map("a", 9, None),
        map("c", 0, None),
        map("a", 2, None),
        map("d", 1, None),
        map("d", 5, Some(OWN)),
        Request::AddClient { id: ALICE.into(), settings: ClientSettings::default(), force: false },
        Request::SetAccessState(crate::manage::AccessChange { group: 1, state, target: Some("hyperscsi".into()) }),
    ] {
        let shown = format!("{request:?}");
        manager.execute(request).expect(&shown);
    }
}

#[test]
fn a_reset_brings_everything_to_what_is_configured_and_puts_aside_what_was_kept() {
    let kept = Kept::new("reset", &["a=ram:1M", "b=ram:1M", "c=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let before = served(&mut manager);
    change(&mut manager);
    let (changed, revision) = (served(&mut manager), status(&mut manager).revision);

    let told = lines(&mut manager, reset(true));
    for part in [
        "volume b would be served",
        "volume d would not be served any more",
        "volume a would be logical unit 0",
        "volume c would be logical unit 2",
        "client a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1, which ctl has changed",
        "access-state group 1 of hyperscsi, which ctl has changed (standby), would be as configured (active-optimized)",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "{part}: {told:#?}");
    }
    assert_eq!((served(&mut manager), status(&mut manager).revision), (changed, revision), "nothing was done");

    let told = lines(&mut manager, reset(false));
    for part in ["volume b is served", "volume d is not served", "volume a is logical unit 0 now", "hyperscsi: group 1"]
    {
        assert!(told.iter().any(|line| line.contains(part)), "{part}: {told:#?}");
    }
    assert_eq!((served(&mut manager), status(&mut manager).deviations), (before.clone(), vec![]));
    assert!(manager.target.clients().list().is_empty() && status(&mut manager).revision > revision);
    let aside = |file: &str| fs::read_to_string(kept.directory.join("state").join(file)).unwrap();
    assert!(aside("changes-test.json.old").contains("\"d\"") && aside("clients-test.json.old").contains(ALICE));
    assert_eq!(lines(&mut manager, Request::Reload { force: false, dry_run: false, reset: false }), [""; 0]);
    manager.into_target().stop().unwrap();

    let mut manager = kept.start().unwrap();
    assert_eq!(
        (served(&mut manager), status(&mut manager).deviations),
        (before, vec![]),
        "nor does a restart know more"
    );
    assert!(manager.target.clients().list().is_empty());
}

#[test]
fn a_reload_without_a_reset_keeps_what_was_changed() {
    let kept = Kept::new("no-reset", &["a=ram:1M", "b=ram:1M", "c=ram:1M"]);
    let mut manager = kept.start().unwrap();
    change(&mut manager);
    let changed = served(&mut manager);
    assert_eq!(lines(&mut manager, Request::Reload { force: false, dry_run: false, reset: false }), [""; 0]);
    assert_eq!(served(&mut manager), changed);
}

#[test]
fn what_cannot_be_made_as_it_is_configured_is_told_and_still_differs() {
    let kept = Kept::new("reset-longer", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    lines(&mut manager, Request::ResizeVolume { name: "a".into(), size: "2M".into() });
    let told = lines(&mut manager, reset(false));
    assert!(told.iter().any(|line| line.contains("not changed: volume a") && line.contains("shorter")), "{told:?}");
    let status = status(&mut manager);
    assert_eq!((status.volumes[0].size_bytes, &*status.deviations[0].name), (2 << 20, "a"));
    manager.into_target().stop().unwrap();
    assert_eq!(self::status(&mut kept.start().unwrap()).volumes[0].size_bytes, 2 << 20, "nothing is cut off");
}

#[test]
fn what_a_reset_has_put_aside_outlasts_another_one_that_finds_only_what_it_has_left() {
    let kept = Kept::new("reset-left", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    lines(&mut manager, Request::ResizeVolume { name: "a".into(), size: "2M".into() });
    lines(&mut manager, add("d=ram:1M"));
    lines(&mut manager, reset(false));
    let aside = || fs::read_to_string(kept.changes().with_extension("json.old")).unwrap();
    let first = aside();
    assert!(first.contains("\"d\"") && status(&mut manager).deviations.len() == 1);
    lines(&mut manager, reset(false));
    assert_eq!(aside(), first);
    manager.into_target().stop().unwrap();
    let mut manager = kept.start().unwrap();
    lines(&mut manager, reset(false));
    assert_eq!(aside(), first, "nor does a restart forget that");
    lines(&mut manager, add("e=ram:1M"));
    lines(&mut manager, reset(false));
    assert!(aside().contains("\"e\""), "there was something new");
}

#[test]
fn a_volume_that_a_reset_would_leave_as_it_is_is_not_told_to_be_as_configured() {
    let kept = Kept::new("reset-stays", &["a=ram:1M", "b=ram:1M", "c=ram:1M"]);
    let mut manager = kept.start().unwrap();
    lines(&mut manager, Request::ResizeVolume { name: "a".into(), size: "2M".into() });
    lines(&mut manager, remove("b"));
    lines(&mut manager, add("b=null:1M"));
    lines(&mut manager, remove("c"));
    let told = lines(&mut manager, reset(true));
    let about = |name: &str| {
        let is_about = |line: &&String| line.starts_with(&format!("volume {name}"));
        told.iter().filter(is_about).map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(
        about("a"),
        ["volume a would stay as long as it is: a volume is never made shorter; remove and add it"],
        "{told:#?}"
    );
    assert_eq!(about("b"), ["volume b would stay as it is: remove and add it"], "{told:#?}");
    assert!(about("c").iter().any(|line| line.contains("would be as configured")), "{told:#?}");
}

#[test]
fn a_number_that_somebody_uses_is_not_taken_away() {
    let kept = Kept::new("reset-used", &["a=ram:1M", "b=ram:1M"]);
    let mut manager = kept.start().unwrap();
    lines(&mut manager, map("a", 7, None));
    let user = |name: &str| {
        let mut uses = Uses::default();
        uses.set(manager.find(name).unwrap().1.slot());
        let host = Host { port: ALICE.into(), who: "somebody".into(), target: None, address: Some("127.0.0.1".into()) };
        User { host, is_read_only: false, uses }
    };
    let users = [user("a"), user("b")];
    let taken = |resets| {
        let configuration = Configuration { configured: kept.config(), resets };
        let mut taken = manager.taken_by(&configuration, &users);
        taken.retain(|line| line.contains("is in use by somebody"));
        taken
    };
    assert_eq!(taken(true), ["volume a is in use by somebody"]);
    assert_eq!(taken(false), [""; 0]);
    let refused = ManageError::TakesAway(taken(true).join(", ")).to_string();
    assert!(refused.ends_with("or add --force"), "which is added to what was asked for: {refused}");
}

#[test]
fn nothing_is_reset_that_could_not_be_put_aside() {
    let kept = Kept::new("reset-aside", &["a=ram:1M", "b=ram:1M", "c=ram:1M"]);
    let mut manager = kept.start().unwrap();
    change(&mut manager);
    let changed = served(&mut manager);
    fs::create_dir(kept.directory.join("state/changes-test.json.old")).unwrap();
    assert_eq!(manager.execute(reset(false)).unwrap_err().code(), "not-kept");
    assert_eq!(served(&mut manager), changed);
}

fn add(volume: &str) -> Request {
    Request::AddVolume { volume: volume.into(), target: None, renew: false, adopt: false }
}

fn remove(name: &str) -> Request {
    Request::RemoveVolume { name: name.into(), force: false }
}

#[test]
fn nothing_that_comes_while_a_reset_opens_volumes_is_taken_away() {
    let kept = Kept::new("reset-race", &["a=ram:1M", "b=ram:1M"]);
    let mut manager = kept.start().unwrap();
    lines(&mut manager, remove("b"));
    let meanwhile = [add("x=ram:1M"), map("a", 7, Some(OWN)), map("a", 9, None)];
    for (request, force) in meanwhile.into_iter().zip([false, true, false]) {
        let step = manager.begin(Request::Reload { force, dry_run: false, reset: true }).unwrap();
        let opened = work_until(&mut manager, step, "opening volumes");
        lines(&mut manager, request);
        let now = served(&mut manager);
        assert_eq!(go_on(&mut manager, opened).err().unwrap().code(), "revision-stale");
        assert_eq!(served(&mut manager), now);
    }
    assert!(manager.find("x").is_some() && manager.find("b").is_none());
    assert!(!kept.changes().with_extension("json.old").exists(), "nothing was put aside either");
    lines(&mut manager, reset(false));
    assert!(manager.find("x").is_none() && manager.find("b").is_some(), "what was there before it began is");
}

#[test]
fn what_a_reset_has_put_aside_stays_until_something_was_changed_again() {
    let kept = Kept::new("reset-twice", &["a=ram:1M", "b=ram:1M", "c=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let aside = || {
        ["changes-test.json.old", "clients-test.json.old"]
            .map(|file| fs::read_to_string(kept.directory.join("state").join(file)).unwrap())
    };
    change(&mut manager);
    lines(&mut manager, reset(false));
    let first = aside();
    assert!(first[0].contains("\"d\"") && first[1].contains(ALICE));
    lines(&mut manager, reset(false));
    assert_eq!(aside(), first);
    lines(&mut manager, add("e=ram:1M"));
    lines(&mut manager, reset(false));
    let [changes, clients] = aside();
    assert!(changes.contains("\"e\"") && !changes.contains("\"d\""));
    assert_eq!(clients, first[1], "none of them was changed");
}

#[test]
fn a_reset_that_is_refused_leaves_what_an_earlier_one_has_put_aside() {
    let mut kept = Kept::new("reset-refused", &[]);
    let image = kept.directory.join("b.img");
    kept.configured = vec!["a=ram:1M".into(), format!("b=file:{},size=1M", image.display())];
    let mut manager = kept.start().unwrap();
    let aside = || fs::read_to_string(kept.changes().with_extension("json.old")).unwrap();
    lines(&mut manager, add("d=ram:1M"));
    lines(&mut manager, reset(false));
    let first = aside();
    lines(&mut manager, add("e=ram:1M"));
    lines(&mut manager, remove("b"));
    let elsewhere = image.with_extension("elsewhere");
    fs::rename(&image, &elsewhere).unwrap();
    assert_eq!(manager.execute(reset(false)).unwrap_err().code(), "volume-not-opened");
    assert!(aside() == first && manager.find("e").is_some(), "nothing was reset");
    fs::rename(elsewhere, image).unwrap();
    lines(&mut manager, reset(false));
    assert!(aside().contains("\"e\"") && manager.find("e").is_none());
}

#[test]
fn a_reset_that_cannot_be_kept_holds_and_is_kept_by_the_next_change_or_reset() {
    for by_change in [false, true] {
        let kept = Kept::new(&format!("reset-full-{by_change}"), &["a=ram:1M", "b=ram:1M", "c=ram:1M"]);
        let mut manager = kept.start().unwrap();
        let (mut before, plain) =
            (served(&mut manager), Request::Reload { force: false, dry_run: false, reset: false });
        change(&mut manager);
        let clients = kept.directory.join("state/clients-test.json");
        let full = [kept.changes().with_extension("json.new"), clients.with_extension("json.new")];
        kept.fill_disk();
        fs::create_dir(&full[1]).unwrap();
        for _ in 0..2 {
            let told = lines(&mut manager, reset(false));
            for file in [&kept.changes(), &clients] {
                let mut about = told.iter().filter(|line| line.contains(&*file.to_string_lossy()));
                let line = about.next().expect("it is told");
                assert!(line.contains("at the next start") && line.ends_with("`reload --reset` again"), "{line}");
                assert_eq!(about.next(), None, "once");
            }
            assert_eq!((served(&mut manager), status(&mut manager).deviations), (before.clone(), vec![]));
        }
        full.iter().for_each(|path| fs::remove_dir(path).unwrap());
        if by_change {
            lines(&mut manager, add("e=ram:1M"));
            before = served(&mut manager);
        } else {
            assert_eq!(lines(&mut manager, reset(false)), [""; 0]);
            assert_eq!(lines(&mut manager, plain), [""; 0]);
        }
        manager.into_target().stop().unwrap();
        let mut manager = kept.start().unwrap();
        assert_eq!(served(&mut manager), before);
        assert_eq!(
            manager.target.clients().list().len(),
            usize::from(by_change),
            "only the file that was written forgets"
        );
    }
}

#[test]
fn a_reset_renumbers_what_it_holds_and_nothing_that_was_renumbered_meanwhile() {
    let kept = Kept::new("reset-held", &["a=ram:1M", "b=ram:1M", "c=ram:1M"]);
    let mut manager = kept.start().unwrap();
    lines(&mut manager, map("a", 9, None));
    lines(&mut manager, remove("b"));
    let step = manager.begin(reset(false)).unwrap();
    let mut next = work_until(&mut manager, step, "making volumes stable, and longer");
    for name in ["a", "b"] {
        assert_eq!(manager.execute(map(name, 8, None)).unwrap_err().code(), "volume-busy", "{name}");
    }
    lines(&mut manager, map("c", 7, None));
    while let Step::Slow(slow) = go_on(&mut manager, next).unwrap() {
        next = slow.run();
    }
    let numbers: Vec<_> = status(&mut manager).volumes.into_iter().map(|volume| (volume.name, volume.lun)).collect();
    assert_eq!(numbers, [("a".into(), 0), ("b".into(), 1), ("c".into(), 7)]);
    let deviations: Vec<String> = status(&mut manager).deviations.into_iter().map(|other| other.name).collect();
    assert_eq!(deviations, ["c"]);
    lines(&mut manager, map("a", 8, None));
}
