use std::fs;

use crate::config::ServerConfig;
use crate::error::StartError;
use crate::events::{EventFilter, Happening, PoolBound};
use crate::manage::testing::Kept;
use crate::manage::{Answer, Asker, Manager, Request, Response, Status};
use crate::pools::PoolStatus;

pub(in crate::manage) const BY: Asker = Asker::Signal { signal: "test" };

/// The configuration, with a pool `fast` of 64 MiB.
pub(in crate::manage) fn configured(kept: &Kept) -> ServerConfig {
    let directory = kept.directory.join("fast");
    fs::create_dir_all(&directory).unwrap();
    let pool = format!("fast={},limit=64M", directory.display()).parse().unwrap();
    ServerConfig { pools: vec![pool], ..kept.config() }
}

pub(in crate::manage) fn start(kept: &Kept) -> Result<Manager, StartError> {
    let config = configured(kept);
    Manager::start(config.clone(), Box::new(move || Ok(config.clone())))
}

pub(in crate::manage) fn ask(manager: &mut Manager, request: Request) -> Result<Answer, (String, String)> {
    match manager.handle(&BY, request) {
        Response::Done(answer) => Ok(answer),
        Response::Refused(refusal) => Err((refusal.code.into_owned(), refusal.reason)),
    }
}

pub(in crate::manage) fn add(volume: &str) -> Request {
    Request::AddVolume { volume: volume.into(), target: None, renew: false, adopt: false }
}

pub(in crate::manage) fn protect(name: &str, protected: bool) -> Request {
    Request::SetVolume { name: name.into(), security: None, protected: Some(protected), owners: None }
}

pub(in crate::manage) fn status(manager: &mut Manager) -> Status {
    match ask(manager, Request::Status) {
        Ok(Answer::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

pub(in crate::manage) fn pool(manager: &mut Manager) -> PoolStatus {
    match ask(manager, Request::Pools) {
        Ok(Answer::Pools(pools)) => pools.into_iter().next().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Volumes with their pools and whether they are protected.
fn volumes(status: &Status) -> Vec<(&str, Option<&str>, bool)> {
    status.volumes.iter().map(|volume| (&*volume.name, volume.pool.as_deref(), volume.protected)).collect()
}

#[test]
fn a_volume_that_names_a_pool_and_no_path_survives_a_restart_within_the_limit() {
    let kept = Kept::new("pools", &["a=pool:,size=16M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, add("b=pool:,size=32M")).unwrap();
    let (code, reason) = ask(&mut manager, add("c=pool:fast,size=32M")).unwrap_err();
    assert!(code == "pool-full" && reason.contains("16 MiB at the most"), "{code}: {reason}");
    assert!(!kept.directory.join("fast/c.img").exists());
    let grow = |name: &str, size: &str| Request::ResizeVolume { name: name.into(), size: size.into() };
    let (code, reason) = ask(&mut manager, grow("b", "49M")).unwrap_err();
    assert!(code == "pool-full" && reason.contains("48 MiB at the most"), "{code}: {reason}");
    ask(&mut manager, grow("b", "48M")).unwrap();
    let full = pool(&mut manager);
    assert_eq!((full.provisioned_bytes, full.largest_bytes, full.volumes), (64 << 20, Some(0), 2));
    let before = status(&mut manager);
    assert_eq!(volumes(&before), [("a", Some("fast"), false), ("b", Some("fast"), false)]);
    manager.into_target().stop().unwrap();
    let mut manager = start(&kept).unwrap();
    let after = status(&mut manager);
    assert_eq!(volumes(&after), volumes(&before));
    let ids = |status: &Status| status.volumes.iter().map(|volume| volume.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&after), ids(&before));
    assert_eq!(pool(&mut manager).provisioned_bytes, 64 << 20);
    ask(&mut manager, Request::RemoveVolume { name: "b".into(), force: false }).unwrap();
    assert_eq!(pool(&mut manager).provisioned_bytes, 64 << 20, "its content is there");
    assert!(matches!(start(&kept), Err(StartError::State(_) | StartError::Pool(_))), "one server at a time");
    manager.into_target().stop().unwrap();
}

/// What the pool was told of since the cursor, which goes on.
fn filled(manager: &mut Manager, cursor: &mut Option<String>) -> Vec<(PoolBound, u64, u8)> {
    let since = cursor.take();
    let events = Request::Events { since, filter: EventFilter::default(), wait: false };
    let Ok(Answer::Events(events)) = ask(manager, events) else { panic!("the events") };
    *cursor = Some(events.cursor);
    let filled = events.events.into_iter().filter_map(|event| match event.what {
        Happening::PoolFilling { pool, of, available_bytes, percent } => {
            assert_eq!(pool, "fast");
            Some((of, available_bytes, percent))
        }
        _ => None,
    });
    filled.filter(|(of, ..)| *of == PoolBound::Limit).collect()
}

#[test]
fn a_pool_whose_volumes_come_near_to_its_limit_is_told_of_once() {
    let kept = Kept::new("pool-filling", &["a=pool:,size=16M"]);
    let (mut manager, mut cursor) = (start(&kept).unwrap(), None);
    let mut look = |manager: &mut Manager| {
        pool(manager);
        filled(manager, &mut cursor)
    };
    assert_eq!(look(&mut manager), []);
    ask(&mut manager, add("b=pool:,size=42M")).unwrap();
    assert_eq!(look(&mut manager), [(PoolBound::Limit, 6 << 20, 90)]);
    assert_eq!(look(&mut manager), [], "once");
    ask(&mut manager, add("c=pool:,size=6M")).unwrap();
    let Ok(Answer::Metrics(_)) = ask(&mut manager, Request::Metrics) else { panic!("the metrics") };
    assert_eq!(look(&mut manager), [(PoolBound::Limit, 0, 100)], "seen by who asks for metrics, too");
    let delete = |name: &str| Request::DeleteVolume { name: name.into(), force: true, snapshots: false };
    ask(&mut manager, delete("b")).unwrap();
    assert_eq!(look(&mut manager), []);
    ask(&mut manager, add("b=pool:,size=42M")).unwrap();
    assert_eq!(look(&mut manager), [(PoolBound::Limit, 0, 100)], "it was far away");
    manager.into_target().stop().unwrap();
}

#[test]
fn what_is_protected_is_kept_as_long_as_the_configuration_says_the_same() {
    let mut kept = Kept::new("protected", &["a=pool:,size=1M", "b=ram:1M,protected"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, protect("a", true)).unwrap();
    assert_eq!(ask(&mut manager, protect("a", true)), Ok(Answer::Changed(Vec::new())));
    ask(&mut manager, protect("b", false)).unwrap();
    assert_eq!(ask(&mut manager, protect("z", true)).unwrap_err().0, "volume-unknown");
    let neither = Request::SetVolume { name: "a".into(), security: None, protected: None, owners: None };
    assert_eq!(ask(&mut manager, neither).unwrap_err().0, "request-invalid");
    manager.into_target().stop().unwrap();
    let mut manager = start(&kept).unwrap();
    assert_eq!(volumes(&status(&mut manager)), [("a", Some("fast"), true), ("b", None, false)]);
    let reload = |reset| Request::Reload { force: false, dry_run: false, reset };
    ask(&mut manager, reload(true)).unwrap();
    assert_eq!(volumes(&status(&mut manager)), [("a", Some("fast"), false), ("b", None, true)]);
    manager.into_target().stop().unwrap();
    kept.configured = vec!["a=pool:,size=2M,grow,protected".into()];
    let mut manager = start(&kept).unwrap();
    assert_eq!(volumes(&status(&mut manager)), [("a", Some("fast"), true)]);
    manager.into_target().stop().unwrap();
}
