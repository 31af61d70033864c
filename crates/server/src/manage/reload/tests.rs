use std::fs;

use super::super::Request;
use super::super::testing::{Kept, config, go_on, work_until};
use super::*;
use crate::config::ServerConfig;
use crate::visits;

const MANY: usize = 10_000;

/// Visits for each of that many volumes, at the most.
const VISITS_EACH: usize = 8;

const RELOAD: Request = Request::Reload { force: false, dry_run: false, reset: false };

/// A server of the first volume, with a configuration to be read again that has all of them.
fn growing(volumes: &[String]) -> (Manager, ServerConfig) {
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let wanted = config(&volumes);
    let again = wanted.clone();
    (Manager::start(config(&volumes[..1]), Box::new(move || Ok(again.clone()))).unwrap(), wanted)
}

fn many() -> Vec<String> {
    (0..=MANY).map(|number| format!("v{number}=null:1M")).collect()
}

fn reload(manager: &mut Manager) -> Vec<String> {
    match manager.execute(RELOAD) {
        Ok(Answer::Changed(lines)) => lines,
        other => panic!("{other:?}"),
    }
}

fn are_served(manager: &Manager) -> bool {
    let units = manager.target.units().iter();
    let is_named = |(at, (lun, unit)): (usize, &(_, Arc<LogicalUnit>))| {
        let lun: sanwire_core::Lun = *lun;
        usize::from(lun.number()) == at && unit.identity().name() == format!("v{at}")
    };
    units.len() == MANY + 1 && units.iter().enumerate().all(is_named)
}

#[test]
fn a_reload_with_ten_thousand_new_volumes_looks_at_each_a_few_times() {
    let (mut manager, _) = growing(&many());
    let visits = visits::during(|| assert_eq!(reload(&mut manager).len(), 2 * MANY, "volumes, and their targets"));
    assert!(are_served(&manager));
    assert!(visits <= VISITS_EACH * MANY, "{visits}");
}

#[test]
fn ten_thousand_volumes_that_are_there_again_are_served_as_one_change() {
    let (mut manager, wanted) = growing(&many());
    let missing = |volume: &VolumeConfig| MissingVolume {
        volume: volume.clone(),
        units: Vec::new(),
        reason: "its store is away".to_owned(),
    };
    manager.kept.missing = wanted.volumes[1..].iter().map(missing).collect();
    let visits = visits::during(|| assert_eq!(reload(&mut manager).len(), 2 * MANY));
    assert!(are_served(&manager) && manager.kept.missing.is_empty());
    assert!(visits <= VISITS_EACH * MANY, "{visits}");
}

/// Until the reload is over, what is kept beside the former configuration makes the same of the new one after a restart.
#[test]
fn a_reload_writes_what_is_kept_once() {
    let mut kept = Kept::new("reload-once", &["a=null:1M"]);
    let mut manager = {
        kept.configured = vec!["a=null:2M".to_owned()];
        let wanted = kept.config();
        kept.configured = vec!["a=null:1M".to_owned()];
        Manager::start(kept.config(), Box::new(move || Ok(wanted.clone()))).unwrap()
    };
    let lun = Some(9);
    manager.execute(Request::MapVolume { name: "a".into(), lun, target: None, force: false }).unwrap();
    let written = || fs::read_to_string(kept.changes()).unwrap();
    let before = written();
    let step = manager.begin(RELOAD).unwrap();
    let longer = work_until(&mut manager, step, "making volumes stable, and longer");
    assert_eq!(written(), before, "it is not as it is to be yet");
    assert!(matches!(go_on(&mut manager, longer), Ok(Step::Done(_))));
    assert_ne!(written(), before);
    drop(manager);
    kept.configured = vec!["a=null:2M".to_owned()];
    let manager = kept.start().unwrap();
    let (lun, unit) = manager.find("a").unwrap();
    assert_eq!((lun.number(), unit.store().geometry().length_bytes), (9, 2 << 20));
}
