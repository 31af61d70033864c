use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_device::Progress;
use sanwire_scsi::{Cdb, Task};

use crate::manage::capturing::{Rollback, UnusedCheck};
use crate::manage::pools::tests::{add, ask, configured, pool, protect, start, status};
use crate::manage::testing::Kept;
use crate::manage::{Answer, ManageError, Manager, Request};
use crate::pools::testing::{ALL, copy_files};
use crate::records::Record;

fn snapshot(volumes: &[&str], name: &str) -> Request {
    let volumes = volumes.iter().map(|volume| (*volume).to_owned()).collect();
    Request::Snapshot { volumes, name: name.into(), protected: false }
}

fn rollback(snapshot: &str, keep: Option<&str>) -> Request {
    Request::Rollback { snapshot: snapshot.into(), force: false, keep: keep.map(str::to_owned) }
}

fn clone(snapshot: &str, name: &str) -> Request {
    Request::Clone { snapshot: snapshot.into(), name: name.into(), target: None }
}

fn delete(name: &str, snapshots: bool) -> Request {
    Request::DeleteVolume { name: name.into(), force: false, snapshots }
}

fn delete_snapshot(snapshot: &str) -> Request {
    Request::DeleteSnapshot { snapshot: snapshot.into() }
}

/// The snapshots, as `VOLUME@NAME`.
fn snapshots(manager: &mut Manager) -> Vec<String> {
    match ask(manager, Request::Snapshots { volume: None }) {
        Ok(Answer::Snapshots(list)) => list.iter().map(|one| format!("{}@{}", one.volume, one.name)).collect(),
        other => panic!("{other:?}"),
    }
}

/// The code with which something is refused.
#[track_caller]
fn code(manager: &mut Manager, request: Request) -> String {
    ask(manager, request).unwrap_err().0
}

/// The first byte of a volume's file.
fn first(kept: &Kept, content: &str) -> u8 {
    fs::read(kept.directory.join(format!("fast/{content}.img"))).unwrap()[0]
}

fn put(kept: &Kept, volume: &str, byte: u8) {
    let file = fs::OpenOptions::new().write(true).open(kept.directory.join(format!("fast/{volume}.img"))).unwrap();
    file.write_all_at(&[byte], 0).unwrap();
}

#[test]
fn what_a_volume_held_is_served_again_beside_it_or_in_its_place_also_after_restarts() {
    copy_files();
    let kept = Kept::new("snapshots", &["a=pool:,size=1M,block=4096", "b=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    put(&kept, "a", 1);
    ask(&mut manager, snapshot(&["a", "b"], "one")).unwrap();
    put(&kept, "a", 2);
    ask(&mut manager, clone("a@one", "c")).unwrap();
    ask(&mut manager, rollback("a@one", Some("two"))).unwrap();
    assert_eq!(["a", "a@one", "a@two", "c"].map(|content| first(&kept, content)), [1, 1, 2, 1]);
    let before = status(&mut manager);
    let of = |name: &str| before.volumes.iter().find(|volume| volume.name == name).unwrap().clone();
    assert_eq!((of("c").block_bytes, of("c").size_bytes), (4096, 1 << 20), "as the volume of the snapshot");
    assert_ne!(of("c").id, of("a").id);
    ask(&mut manager, add("old=pool:fast/a@two,readonly")).unwrap();
    manager.into_target().stop().unwrap();
    let mut manager = start(&kept).unwrap();
    let names = ["a", "b", "c", "old"];
    assert_eq!(status(&mut manager).volumes.iter().map(|volume| &*volume.name).collect::<Vec<_>>(), names);
    assert_eq!(snapshots(&mut manager), ["a@one", "a@two", "b@one"]);
    assert_eq!(code(&mut manager, delete_snapshot("a@two")), "snapshot-in-use");
    assert_eq!(code(&mut manager, delete("a", true)), "snapshot-in-use");
    ask(&mut manager, Request::RemoveVolume { name: "old".into(), force: false }).unwrap();
    ask(&mut manager, delete_snapshot("a@one")).unwrap();
    assert_eq!(first(&kept, "c"), 1, "what was made of it stays");
    assert_eq!(pool(&mut manager).provisioned_bytes, 3 << 20);
    ask(&mut manager, delete("c", false)).unwrap();
    assert!(!kept.directory.join("fast/c.img").exists());
    assert_eq!(pool(&mut manager).provisioned_bytes, 2 << 20);
    ask(&mut manager, add("c=pool:,size=2M")).unwrap();
    assert_eq!(first(&kept, "c"), 0, "a new volume of that name");
    manager.into_target().stop().unwrap();
}

#[test]
fn what_is_protected_or_has_snapshots_or_is_elsewhere_is_not_deleted() {
    copy_files();
    let kept = Kept::new("deleting", &["a=pool:,size=1M", "r=ram:1M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, snapshot(&["a"], "one")).unwrap();
    assert_eq!(code(&mut manager, delete("a", false)), "volume-has-snapshots");
    ask(&mut manager, protect("a", true)).unwrap();
    assert_eq!(code(&mut manager, delete("a", true)), "content-protected");
    assert_eq!(code(&mut manager, rollback("a@one", None)), "content-protected");
    ask(&mut manager, protect("a", false)).unwrap();
    let keep = |protected| Request::SetSnapshot { snapshot: "a@one".into(), protected };
    ask(&mut manager, keep(true)).unwrap();
    assert_eq!(code(&mut manager, delete("a", true)), "content-protected");
    assert_eq!(code(&mut manager, delete_snapshot("a@one")), "content-protected");
    ask(&mut manager, keep(false)).unwrap();
    for (request, expected) in [
        (delete("r", false), "volume-not-in-pool"),
        (snapshot(&["r"], "one"), "volume-not-in-pool"),
        (delete("z", false), "volume-unknown"),
        (snapshot(&["a"], "one"), "snapshot-exists"),
        (snapshot(&["a"], "o/ne"), "snapshot-name-invalid"),
        (snapshot(&["a", "a"], "two"), "volume-busy"),
        (snapshot(&[], "two"), "snapshot-name-invalid"),
        (rollback("a@two", None), "snapshot-unknown"),
        (rollback("a@one", Some("one")), "snapshot-exists"),
        (rollback("a", None), "snapshot-name-invalid"),
        (clone("a@one", "r"), "volume-exists"),
        (clone("a@two", "b"), "snapshot-unknown"),
        (delete_snapshot("a@two"), "snapshot-unknown"),
        (Request::Snapshots { volume: Some("z".into()) }, "volume-unknown"),
    ] {
        assert_eq!(code(&mut manager, request.clone()), expected, "{request:?}");
    }
    ask(&mut manager, Request::RemoveVolume { name: "a".into(), force: false }).unwrap();
    assert_eq!(code(&mut manager, clone("a@one", "a")), "volume-busy");
    ask(&mut manager, clone("a@one", "b")).unwrap();
    ask(&mut manager, Request::RemoveVolume { name: "b".into(), force: false }).unwrap();
    assert_eq!(code(&mut manager, clone("a@one", "b")), "content-exists");
    ask(&mut manager, delete("b", false)).unwrap();
    ask(&mut manager, delete("a", true)).unwrap();
    assert_eq!((snapshots(&mut manager), pool(&mut manager).volumes), (Vec::new(), 0));
    manager.into_target().stop().unwrap();
}

#[test]
fn a_clone_that_does_not_fit_or_cannot_be_served_leaves_nothing() {
    copy_files();
    let kept = Kept::new("clone", &["a=pool:,size=40M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, snapshot(&["a"], "one")).unwrap();
    assert_eq!(code(&mut manager, clone("a@one", "b")), "pool-full");
    ask(&mut manager, Request::RemoveVolume { name: "a".into(), force: false }).unwrap();
    ask(&mut manager, delete("a", true)).unwrap();
    ask(&mut manager, add("s=pool:,size=1M")).unwrap();
    ask(&mut manager, snapshot(&["s"], "one")).unwrap();
    kept.fill_disk();
    assert_eq!(code(&mut manager, clone("s@one", "b")), "not-kept");
    assert_eq!(code(&mut manager, delete("s", true)), "not-kept");
    assert!(!kept.directory.join("fast/b.img").exists());
    let left = pool(&mut manager);
    assert_eq!((left.volumes, left.provisioned_bytes, left.snapshots), (1, 1 << 20, 1));
    manager.into_target().stop().unwrap();
}

/// A write of one block, to the first volume.
fn write(lba: u8) -> Task {
    Task {
        lun: Lun::new(0),
        cdb: Cdb::new(&[0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0]).unwrap(),
        data_out: Some(vec![1; 512].into()),
        tells_residual: false,
        data_in_max_bytes: 0,
        may_share: false,
        piece: None,
        receipts: u64::MAX,
    }
}

/// A store that does not end a write has the snapshot refused, and keeps no other write waiting.
#[test]
fn a_store_that_hangs_has_snapshots_and_rollbacks_refused_and_nothing_waits_after_that() {
    copy_files();
    let kept = Kept::new("silent", &["a=pool:,size=1M", "b=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, snapshot(&["a"], "one")).unwrap();
    let memory = Region::new(1 << 20).unwrap();
    let units = manager.target.units().clone();
    let hanging = units.begin(NexusId(1), write(0), &memory, Instant::ZERO);
    assert!(matches!(hanging, Progress::Store(..)), "{hanging:?}");
    let (code, reason) = ask(&mut manager, snapshot(&["a", "b"], "two")).unwrap_err();
    assert!(code == "store-silent" && reason.contains("volume a"), "{code}: {reason}");
    assert_eq!(ask(&mut manager, rollback("a@one", Some("kept"))).unwrap_err().0, "store-silent");
    assert_eq!(snapshots(&mut manager), ["a@one"]);
    let other = units.begin(NexusId(2), write(1), &memory, Instant::ZERO);
    assert!(matches!(other, Progress::Store(..)), "writes go on: {other:?}");
    drop((hanging, other));
    ask(&mut manager, snapshot(&["a", "b"], "two")).unwrap();
    manager.into_target().stop().unwrap();
}

#[test]
fn what_a_rollback_left_of_a_volume_that_was_not_served_lets_no_later_one_run_under_writes() {
    let files = copy_files();
    let kept = Kept::new("stale", &["b=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let remove = Request::RemoveVolume { name: "a".into(), force: false };
    ask(&mut manager, add("a=pool:,size=1M")).unwrap();
    ask(&mut manager, snapshot(&["a"], "one")).unwrap();
    ask(&mut manager, remove).unwrap();
    for steps in 0.. {
        files.fail_after(steps, ALL);
        if ask(&mut manager, rollback("a@one", None)).is_err_and(|(code, _)| code == "rollback-unfinished") {
            break;
        }
    }
    files.fail_after(ALL, ALL);
    ask(&mut manager, add("a=pool:,size=1M")).unwrap();
    let (memory, units) = (Region::new(1 << 20).unwrap(), manager.target.units().clone());
    let lun = status(&mut manager).volumes.iter().find(|volume| volume.name == "a").unwrap().lun;
    let task = Task { lun: Lun::new(lun), ..write(0) };
    let hanging = units.begin(NexusId(1), task, &memory, Instant::ZERO);
    assert!(matches!(hanging, Progress::Store(..)), "{hanging:?}");
    assert_eq!(code(&mut manager, rollback("a@one", None)), "store-silent");
    drop(hanging);
    manager.into_target().stop().unwrap();
}

/// It was looked whether anybody uses the volume before its writes were held.
#[test]
fn who_comes_before_writes_are_held_has_a_rollback_refused_and_goes_on() {
    copy_files();
    let kept = Kept::new("newcomer", &["a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, snapshot(&["a"], "one")).unwrap();
    put(&kept, "a", 2);
    let in_use = || ManageError::InUse { name: "a".to_owned(), users: "somebody".to_owned() };
    let content = manager.content("a").unwrap();
    let check_unused: Option<UnusedCheck> = Some(Box::new(move || Err(in_use())));
    let rollback = Rollback { content, id: "a@one".parse().unwrap(), keep: None, check_unused };
    let (done, stuck) = rollback.run(None, &Arc::new(manager.busy.begin()));
    assert!(matches!(done, Err(ManageError::InUse { .. })) && stuck.is_none());
    let (memory, units) = (Region::new(1 << 20).unwrap(), manager.target.units().clone());
    assert!(matches!(units.begin(NexusId(1), write(1), &memory, Instant::ZERO), Progress::Store(..)));
    assert_eq!(first(&kept, "a"), 2);
    manager.into_target().stop().unwrap();
}

#[test]
fn content_that_somebody_else_has_open_is_neither_copied_nor_replaced_nor_deleted() {
    copy_files();
    let kept = Kept::new("locked", &["b=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, add("a=pool:,size=1M")).unwrap();
    ask(&mut manager, snapshot(&["a"], "one")).unwrap();
    ask(&mut manager, Request::RemoveVolume { name: "a".into(), force: false }).unwrap();
    let file = fs::File::open(kept.directory.join("fast/a.img")).unwrap();
    file.lock().unwrap();
    for request in [snapshot(&["a"], "two"), rollback("a@one", None), delete("a", true)] {
        assert_eq!(code(&mut manager, request.clone()), "volume-in-use", "{request:?}");
    }
    drop(file);
    ask(&mut manager, delete("a", true)).unwrap();
    manager.into_target().stop().unwrap();
}

#[test]
fn a_volume_that_is_not_served_stays_protected_also_when_it_is_added_again() {
    copy_files();
    let kept = Kept::new("stays-protected", &["b=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, add("a=pool:,size=1M")).unwrap();
    ask(&mut manager, snapshot(&["a"], "one")).unwrap();
    ask(&mut manager, protect("a", true)).unwrap();
    ask(&mut manager, Request::RemoveVolume { name: "a".into(), force: false }).unwrap();
    for request in [delete("a", true), rollback("a@one", None)] {
        assert_eq!(code(&mut manager, request), "content-protected");
    }
    ask(&mut manager, add("a=pool:,size=1M")).unwrap();
    assert!(status(&mut manager).volumes.iter().any(|volume| volume.name == "a" && volume.protected));
    ask(&mut manager, protect("a", false)).unwrap();
    ask(&mut manager, delete("a", true)).unwrap();
    manager.into_target().stop().unwrap();
}

#[test]
fn snapshots_in_two_pools_are_all_there_or_none_whichever_step_fails() {
    let files = copy_files();
    let kept = Kept::new("two-pools", &["a=pool:fast,size=1M", "b=pool:slow,size=1M"]);
    let mut config = configured(&kept);
    let slow = kept.directory.join("slow");
    fs::create_dir_all(&slow).unwrap();
    config.pools.push(format!("slow={}", slow.display()).parse().unwrap());
    let mut manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    for steps in 0.. {
        files.fail_after(steps, ALL);
        let done = ask(&mut manager, snapshot(&["a", "b"], "one"));
        files.fail_after(ALL, ALL);
        let left = snapshots(&mut manager);
        if done.is_ok() {
            assert_eq!(left, ["a@one", "b@one"]);
            break;
        }
        assert!(left.is_empty(), "{steps}: {left:?}");
    }
    manager.into_target().stop().unwrap();
}

#[test]
fn those_who_watch_are_told_what_happens_to_content() {
    copy_files();
    let kept = Kept::new("content-events", &["a=pool:,size=1M", "b=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, snapshot(&["a", "b"], "one")).unwrap();
    ask(&mut manager, clone("a@one", "c")).unwrap();
    ask(&mut manager, rollback("a@one", None)).unwrap();
    ask(&mut manager, delete_snapshot("a@one")).unwrap();
    ask(&mut manager, delete("c", false)).unwrap();
    // What is refused has not happened.
    assert!(ask(&mut manager, delete("b", false)).is_err());
    let filter = crate::events::EventFilter { topics: vec![crate::events::EventTopic::Volumes], ..Default::default() };
    let happened = manager.target.events().read(None, &filter, std::time::Duration::ZERO).events;
    let told: Vec<String> = happened.iter().map(|event| event.what.to_string()).collect();
    for line in [
        "snapshot a@one is taken",
        "snapshot b@one is taken",
        "volume c is made of the snapshot a@one",
        "volume a holds what the snapshot a@one does",
        "snapshot a@one is deleted",
        "the content of volume c is deleted",
    ] {
        assert_eq!(told.iter().filter(|told| *told == line).count(), 1, "{line}: {told:?}");
    }
    assert!(told.iter().all(|line| !line.contains("of volume b")), "{told:?}");
    manager.into_target().stop().unwrap();
}

#[test]
fn a_snapshot_whose_deletion_has_failed_can_be_deleted_or_taken_again() {
    let files = copy_files();
    let kept = Kept::new("half-deleted", &["a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    ask(&mut manager, snapshot(&["a"], "one")).unwrap();
    for steps in 0.. {
        put(&kept, "a", steps as u8);
        files.fail_after(steps, ALL);
        let deleted = ask(&mut manager, delete_snapshot("a@one"));
        files.fail_after(ALL, ALL);
        if snapshots(&mut manager).is_empty() {
            ask(&mut manager, snapshot(&["a"], "one")).unwrap();
            assert_eq!(first(&kept, "a@one"), steps as u8);
        }
        if deleted.is_ok() {
            break;
        }
    }
    manager.into_target().stop().unwrap();
    let mut manager = start(&kept).unwrap();
    assert_eq!(snapshots(&mut manager), ["a@one"], "it is not deleted in place of the one before");
    manager.into_target().stop().unwrap();
}

/// Else a crash between the two would have a new volume of that name refused, as one whose file is missing.
#[test]
fn what_is_known_of_a_volume_is_forgotten_before_its_content_is_gone() {
    let files = copy_files();
    let kept = Kept::new("forgotten-first", &["a=pool:,size=1M"]);
    let mut manager = start(&kept).unwrap();
    let (path, state) = (kept.directory.join("fast/a.img"), kept.directory.join("state"));
    let is_known = || Record::new("a", &path, Some(&state)).load().is_ok_and(|known| known.is_some());
    assert!(is_known());
    files.hang.at(Some("remove"));
    let was_known = thread::scope(|scope| {
        let deleting = scope.spawn(|| ask(&mut manager, delete("a", false)));
        while files.hang.waiting() == 0 && !deleting.is_finished() {
            thread::yield_now();
        }
        let was_known = is_known() || !path.exists();
        files.hang.at(None);
        deleting.join().unwrap().unwrap();
        was_known
    });
    assert!(!was_known && !path.exists());
    manager.into_target().stop().unwrap();
}
