use std::fs;

use super::super::testing::Kept;
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
        Request::SetAccessState { group: 1, state, target: Some("hyperscsi".into()) },
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
