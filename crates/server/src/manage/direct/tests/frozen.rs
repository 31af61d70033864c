//! Copies of volumes that can have snapshots, and that somebody uses meanwhile.

use std::sync::atomic::Ordering;
use std::{fs, time};

use sanwire_buffer::Region;
use sanwire_core::{Instant as Moment, NexusId};
use sanwire_device::Progress;
use sanwire_scsi::{Cdb, Status, Task};

use super::held::{Held, begin_held};
use super::*;
use crate::config::ServerConfig;
use crate::error::StartError;
use crate::manage::filling::retry_deletions;
use crate::manage::pools::tests::{add, configured};
use crate::manage::testing::Kept;
use crate::pools::testing::{Copied, copy_files};

const BYTES: usize = 16 * MIB;

/// How snapshots are made.
const WAYS: [&str; 2] = ["reflink", "layers"];

/// The thread of a copy that was under way has the volume until it sees that its server is gone; that of a process would be gone with it.
fn start(config: &ServerConfig) -> Manager {
    let last = time::Instant::now() + Duration::from_secs(60);
    loop {
        let again = config.clone();
        match Manager::start(config.clone(), Box::new(move || Ok(again.clone()))) {
            Err(StartError::Store { source: OpenError::Locked { .. }, .. }) if time::Instant::now() < last => {
                thread::sleep(Duration::from_millis(50));
            }
            started => return started.unwrap(),
        }
    }
}

fn in_pool(kept: &Kept, way: &str) -> ServerConfig {
    let mut config = configured(kept);
    config.pools = config.pools.into_iter().map(|pool| pool.with_snapshots(way).unwrap()).collect();
    config.direct_copies.by = CopyOrderers::Owners;
    config
}

/// What the pool keeps of itself.
fn catalogue(kept: &Kept) -> String {
    fs::read_to_string(kept.directory.join("fast/.sanwire-pool.json")).unwrap()
}

/// A server with one volume, in a pool that makes snapshots in this way.
fn start_in_pool(kept: &Kept, way: &str) -> (Manager, Arc<LogicalUnits>) {
    let (manager, units, _) = start_with_files(kept, way);
    (manager, units)
}

/// The same, with what is done to the files of the pool.
fn start_with_files(kept: &Kept, way: &str) -> (Manager, Arc<LogicalUnits>, Copied) {
    let files = copy_files();
    let manager = start(&in_pool(kept, way));
    let units = Arc::clone(manager.target().units());
    (manager, units, files)
}

fn serve_in_pool(kept: &Kept, way: &str) -> (ManagementHandle, Arc<LogicalUnits>) {
    let (manager, units) = start_in_pool(kept, way);
    (ManagementHandle::new(manager), units)
}

fn kept(test: &str, way: &str) -> Kept {
    Kept::new(&format!("{test}-{way}"), &["disk=pool:,size=16M"])
}

/// The same of a volume that somebody owns.
fn owned(test: &str, way: &str) -> (Kept, Asker) {
    crate::derived::register();
    let client = ClientId([7; 16]);
    let kept = Kept::new(&format!("{test}-{way}"), &[&format!("disk=pool:,size=16M,owner=key:{client}")]);
    let principal = Principal { client: Some(client), ..Principal::default() };
    (kept, Asker::Client { client, address: "10.0.0.9:1".into(), as_owner: Some(principal) })
}

fn fill(units: &LogicalUnits, content: &[u8]) {
    let (_, unit) = units.find_named("disk").unwrap();
    for (at, piece) in content.chunks(MIB).enumerate() {
        write(&**unit.store(), at * MIB, piece);
    }
}

/// Begins with a copy that takes twelve seconds, and waits until it has got somewhere. The server can end meanwhile, as with one that is held up
/// it cannot.
fn begin_slowly(desk: &ManagementHandle, order: CopyOrder) -> u64 {
    let id = begin(desk, CopyOrder { cap_bytes_per_second: Some(1 << 20), ..order }).unwrap();
    while job(desk, id, false).copy.is_none_or(|copy| copy.done_bytes == 0) {
        assert_eq!(job(desk, id, false).state, JobState::Running, "{:?}", job(desk, id, false));
        thread::sleep(Duration::from_millis(5));
    }
    id
}

/// The snapshots, and whether they are protected.
fn snapshots(desk: &ManagementHandle) -> Vec<(String, bool)> {
    match desk.handle(&BY, Request::Snapshots { volume: None }) {
        Response::Done(Answer::Snapshots(list)) => {
            list.into_iter().map(|one| (format!("{}@{}", one.volume, one.name), one.protected)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_volume_that_is_written_meanwhile_is_copied_as_it_was_at_one_moment() {
    for way in WAYS {
        let kept = kept("frozen", way);
        let (desk, units) = serve_in_pool(&kept, way);
        let before = pattern(1, BYTES);
        fill(&units, &before);
        let far = Held::new(BYTES as u64);
        let url = put(&format!("frozen-{way}"), Arc::clone(&far) as Arc<dyn Store>);
        let id = begin_held(&desk, &far, CopyOrder { verify: true, ..order(&url) });
        let taken = snapshots(&desk);
        assert!(matches!(&taken[..], [(name, true)] if name.starts_with("disk@copy-")), "{way}: {taken:?}");
        fill(&units, &pattern(2, BYTES));
        far.release();
        let done = job(&desk, id, true);
        assert_eq!((done.state, &done.refused), (JobState::Done, &None), "{way}");
        assert!(read(&*far) == before, "{way}: it is a mixture");
        assert_eq!(snapshots(&desk), [], "{way}");
        end(&desk);
    }
}

#[test]
fn the_snapshot_of_a_copy_goes_with_it_however_that_ends() {
    for way in WAYS {
        let kept = kept("frozen-ends", way);
        let (desk, units) = serve_in_pool(&kept, way);
        fill(&units, &pattern(1, BYTES));
        let far = Held::new(BYTES as u64);
        let url = put(&format!("frozen-ends-{way}"), Arc::clone(&far) as Arc<dyn Store>);
        let id = begin_held(&desk, &far, order(&url));
        assert!(matches!(desk.handle(&BY, Request::CancelJob { id }), Response::Done(_)));
        far.release();
        assert_eq!(job(&desk, id, true).code.as_deref(), Some("copy-cancelled"), "{way}");
        assert_eq!(snapshots(&desk), [], "{way}");
        // None is taken for what cannot be copied.
        assert_eq!(copy(&desk, order("hs+ip://10.0.0.1/away")).code.as_deref(), Some("copy-failed"));
        assert_eq!(snapshots(&desk), [], "{way}");
        end(&desk);
    }
}

/// The server has no time for it when it ends, and none at all when it is killed.
#[test]
fn the_snapshot_of_a_copy_that_was_under_way_goes_at_the_next_start_and_no_other_one_does() {
    for way in WAYS {
        let kept = kept("frozen-litter", way);
        let (desk, units) = serve_in_pool(&kept, way);
        fill(&units, &pattern(1, BYTES));
        let own = Request::Snapshot { volumes: vec!["disk".into()], name: "copy-1".into(), protected: false };
        assert!(matches!(desk.handle(&BY, own), Response::Done(_)));
        let url = put(&format!("frozen-litter-{way}"), Arc::new(RamStore::new(BYTES as u64, 512)));
        begin_slowly(&desk, order(&url));
        assert_eq!(snapshots(&desk).len(), 2, "{way}");
        drop(units);
        end(&desk);
        drop(desk);
        assert!(catalogue(&kept).contains("temporary"), "{way}: {}", catalogue(&kept));
        let (desk, _) = serve_in_pool(&kept, way);
        assert_eq!(snapshots(&desk), [("disk@copy-1".to_owned(), false)], "{way}");
        assert!(!catalogue(&kept).contains("temporary"), "{way}: {}", catalogue(&kept));
        end(&desk);
    }
}

/// What is left takes the room that there is not. Volumes with layers are opened when there is some: they write how they begin.
#[test]
fn a_server_without_any_room_starts_and_deletes_what_a_copy_has_left_when_there_is_some() {
    let way = "reflink";
    let kept = kept("frozen-no-room", way);
    let (desk, units) = serve_in_pool(&kept, way);
    let content = pattern(1, BYTES);
    fill(&units, &content);
    let url = put(&format!("frozen-no-room-{way}"), Arc::new(RamStore::new(BYTES as u64, 512)));
    begin_slowly(&desk, order(&url));
    drop(units);
    end(&desk);
    drop(desk);
    let files = copy_files();
    files.has_no_room.store(true, Ordering::Relaxed);
    let manager = start(&in_pool(&kept, way));
    let (busy, pools) = (manager.busy.clone(), manager.target().pools().clone());
    let (_, unit) = manager.target().units().find_named("disk").unwrap();
    let desk = ManagementHandle::new(manager);
    assert!(read(&**unit.store()) == content && snapshots(&desk).is_empty(), "{way}");
    retry_deletions(&pools, &busy);
    assert!(catalogue(&kept).contains("temporary"), "{way}: {}", catalogue(&kept));
    files.has_no_room.store(false, Ordering::Relaxed);
    let last = time::Instant::now() + Duration::from_secs(60);
    while catalogue(&kept).contains("copy-") && time::Instant::now() < last {
        // The server may just be about it itself.
        retry_deletions(&pools, &busy);
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!catalogue(&kept).contains("copy-"), "{way}: {}", catalogue(&kept));
    assert!(read(&**unit.store()) == content, "{way}");
    drop((unit, pools));
    end(&desk);
}

/// A snapshot has none of its own.
#[test]
fn who_reserves_a_volume_that_is_being_copied_ends_the_copy() {
    let kept = kept("frozen-reserved", "reflink");
    let (desk, units) = serve_in_pool(&kept, "reflink");
    fill(&units, &pattern(1, BYTES));
    let far = Held::new(BYTES as u64);
    let url = put("frozen-reserved", Arc::clone(&far) as Arc<dyn Store>);
    let id = begin_held(&desk, &far, CopyOrder { verify: true, ..order(&url) });
    let reserve = Task {
        lun: units.find_named("disk").map(|(lun, _)| lun),
        cdb: Cdb::new(&[0x16, 0, 0, 0, 0, 0]).unwrap(),
        data_out: None,
        tells_residual: false,
        data_in_max_bytes: 0,
        may_share: false,
        piece: None,
        receipts: 0,
    };
    let memory = Region::new(1 << 20).unwrap();
    let reserved = units.begin(NexusId(1), reserve, &memory, Moment::ZERO);
    assert!(matches!(&reserved, Progress::Done(reply) if reply.status == Status::Good), "{reserved:?}");
    far.release();
    let ended = job(&desk, id, true);
    assert_eq!(ended.code.as_deref(), Some("copy-failed"), "{ended:?}");
    assert!(ended.refused.is_some_and(|reason| reason.contains("reserved")));
    assert_eq!(snapshots(&desk), []);
    end(&desk);
}

fn refused(desk: &ManagementHandle, request: Request) -> String {
    match desk.handle(&BY, request) {
        Response::Refused(refusal) => refusal.code.into_owned(),
        other => panic!("{other:?}"),
    }
}

/// What is served from it would be gone at the next start, and whoever could delete it could have another one of its name deleted.
#[test]
fn nobody_serves_the_snapshot_of_a_copy_or_takes_it_away() {
    for way in WAYS {
        let kept = kept("frozen-taken", way);
        let (desk, units) = serve_in_pool(&kept, way);
        let before = pattern(1, BYTES);
        fill(&units, &before);
        let far = Held::new(BYTES as u64);
        let url = put(&format!("frozen-taken-{way}"), Arc::clone(&far) as Arc<dyn Store>);
        let id = begin_held(&desk, &far, order(&url));
        let taken = snapshots(&desk);
        let [(snapshot, true)] = &taken[..] else { panic!("{way}: {taken:?}") };
        let add = add(&format!("look=pool:fast/{snapshot},readonly"));
        assert_eq!(refused(&desk, Request::DryRun { request: Box::new(add.clone()) }), "snapshot-in-use", "{way}");
        assert_eq!(refused(&desk, add), "snapshot-in-use", "{way}");
        let bare = Request::SetSnapshot { snapshot: snapshot.clone(), protected: false };
        assert_eq!(refused(&desk, Request::DryRun { request: Box::new(bare.clone()) }), "snapshot-in-use", "{way}");
        assert_eq!(refused(&desk, bare), "snapshot-in-use", "{way}");
        assert_eq!(refused(&desk, Request::DeleteSnapshot { snapshot: snapshot.clone() }), "snapshot-in-use", "{way}");
        let delete = Request::DeleteVolume { name: "disk".into(), force: true, snapshots: true };
        assert_eq!(refused(&desk, delete), "snapshot-in-use", "{way}");
        far.release();
        let done = job(&desk, id, true);
        assert_eq!((done.state, &done.refused), (JobState::Done, &None), "{way}");
        assert!(read(&*far) == before && snapshots(&desk).is_empty(), "{way}");
        end(&desk);
    }
}

/// Its volume could never be deleted else, nor could it, while the server runs.
#[test]
fn a_snapshot_of_a_copy_that_cannot_be_deleted_when_that_is_over_can_be_later() {
    for way in WAYS {
        let kept = kept("frozen-left", way);
        let (manager, units) = start_in_pool(&kept, way);
        let (busy, desk) = (manager.busy.clone(), ManagementHandle::new(manager));
        fill(&units, &pattern(1, BYTES));
        let far = Held::new(BYTES as u64);
        let url = put(&format!("frozen-left-{way}"), Arc::clone(&far) as Arc<dyn Store>);
        let id = begin_held(&desk, &far, order(&url));
        let hold = busy.hold("disk", "being resized").unwrap();
        assert!(matches!(desk.handle(&BY, Request::CancelJob { id }), Response::Done(_)));
        far.release();
        assert_eq!(job(&desk, id, true).code.as_deref(), Some("copy-cancelled"), "{way}");
        drop(hold);
        let left = snapshots(&desk);
        let [(snapshot, false)] = &left[..] else { panic!("{way}: {left:?}") };
        let delete = Request::DeleteSnapshot { snapshot: snapshot.clone() };
        assert!(matches!(desk.handle(&BY, delete), Response::Done(_)), "{way}");
        assert_eq!(snapshots(&desk), [], "{way}");
        end(&desk);
    }
}

/// Comparing may take hours, and changes nothing of what the volume holds.
#[test]
fn a_volume_whose_copies_are_being_compared_is_copied_and_has_snapshots_and_nothing_else_is_done_to_it() {
    for way in WAYS {
        let kept = kept("frozen-compared", way);
        let (manager, units) = start_in_pool(&kept, way);
        let (busy, desk) = (manager.busy.clone(), ManagementHandle::new(manager));
        let content = pattern(1, BYTES);
        fill(&units, &content);
        let far = Arc::new(RamStore::new(BYTES as u64, 512));
        let url = put(&format!("frozen-compared-{way}"), Arc::clone(&far) as Arc<dyn Store>);
        let hold = busy.hold_compared("disk").unwrap();
        let done = copy(&desk, order(&url));
        assert_eq!((done.state, &done.refused), (JobState::Done, &None), "{way}");
        assert!(read(&*far) == content && snapshots(&desk).is_empty(), "{way}");
        let own = Request::Snapshot { volumes: vec!["disk".into()], name: "own".into(), protected: false };
        assert!(matches!(desk.handle(&BY, own), Response::Done(_)), "{way}");
        let back = Request::Rollback { snapshot: "disk@own".into(), force: true, keep: None };
        assert_eq!(refused(&desk, back), "volume-busy", "{way}");
        let delete = Request::DeleteSnapshot { snapshot: "disk@own".into() };
        assert!(matches!(desk.handle(&BY, delete), Response::Done(_)), "{way}");
        assert_eq!(snapshots(&desk), [], "{way}");
        drop(hold);
        end(&desk);
    }
}

/// Whatever is written to the volume meanwhile takes room there, which is that of others, too.
#[test]
fn the_snapshot_of_an_owner_s_copy_goes_when_its_pool_fills_up_and_that_of_who_manages_the_server_stays() {
    for way in WAYS {
        let (kept, owner) = owned("frozen-room", way);
        let (manager, units, files) = start_with_files(&kept, way);
        let desk = ManagementHandle::new(manager);
        files.taken_percent.store(94, Ordering::Relaxed);
        let content = pattern(1, BYTES);
        fill(&units, &content);
        let far = Arc::new(RamStore::new(BYTES as u64, 512));
        let url = put(&format!("frozen-room-{way}"), Arc::clone(&far) as Arc<dyn Store>);
        // It would take a quarter of a minute.
        let slow = Request::CopyOut(CopyOrder { cap_bytes_per_second: Some(1 << 20), ..order(&url) });
        let started = desk.handle(&owner, Request::Start { request: Box::new(slow) });
        let Response::Done(Answer::Job(begun)) = started else { panic!("{way}: {started:?}") };
        while job(&desk, begun.id, false).copy.is_none_or(|copy| copy.done_bytes == 0) {
            assert_eq!(job(&desk, begun.id, false).state, JobState::Running, "{way}");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(snapshots(&desk).len(), 1, "{way}");
        files.taken_percent.store(95, Ordering::Relaxed);
        let ended = job(&desk, begun.id, true);
        assert_eq!(ended.code.as_deref(), Some("copy-no-room"), "{way}: {ended:?}");
        assert!(ended.refused.is_some_and(|reason| reason.contains("95 % of the file system")), "{way}");
        assert_eq!(snapshots(&desk), [], "{way}");
        // One that begins then may still go another way.
        match desk.handle(&owner, Request::CopyOut(order(&url))) {
            Response::Refused(refusal) => assert_eq!(refusal.code, "copy-no-room", "{way}"),
            other => panic!("{way}: {other:?}"),
        }
        let Response::Done(Answer::Jobs(jobs)) = desk.handle(&BY, Request::Jobs) else { panic!("no jobs") };
        assert!(jobs.last().and_then(|job| job.copy.as_ref()).is_some_and(|copy| copy.way.is_none()), "{way}");
        let done = copy(&desk, order(&url));
        assert_eq!((done.state, &done.refused), (JobState::Done, &None), "{way}");
        assert!(read(&*far) == content && snapshots(&desk).is_empty(), "{way}");
        end(&desk);
    }
}

#[test]
fn who_only_owns_a_volume_is_not_told_where_its_snapshots_are() {
    let (kept, owner) = owned("frozen-owner", "reflink");
    let (desk, _) = serve_in_pool(&kept, "reflink");
    let url = put("frozen-owner", Arc::new(RamStore::new(BYTES as u64, 512)));
    let (pool, moved) = (kept.directory.join("fast"), kept.directory.join("moved"));
    fs::rename(&pool, &moved).unwrap();
    let refused = |by: &Asker| match desk.handle(by, Request::CopyOut(order(&url))) {
        Response::Refused(refusal) => refusal.reason,
        other => panic!("{other:?}"),
    };
    let directory = kept.directory.display().to_string();
    assert!(refused(&BY).contains(&directory));
    let told = refused(&owner);
    assert!(told.contains("log says why") && !told.contains(&directory), "{told}");
    fs::rename(&moved, &pool).unwrap();
    end(&desk);
}
