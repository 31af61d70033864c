//! Volumes made of layers, with a crash before each step.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sanwire_store::{Outcome, Request, Store, VolumeSpec};
use sanwire_store_file::blocking;

use crate::pools::catalogue::SnapshotId;
use crate::pools::testing::{ALL, Copied};
use crate::pools::{Pool, PoolConfig, PoolError};

pub(in crate::pools) const BLOCK: usize = 4096;

/// A directory with a pool whose snapshots are layers, until the test ends.
pub(in crate::pools) struct Place(pub(in crate::pools) PathBuf);

impl Place {
    pub(in crate::pools) fn new(label: &str) -> Place {
        sanwire_store_file::register();
        Place(std::env::temp_dir().join(format!("sanwire-layered-{label}-{}", std::process::id())))
    }

    /// Two volumes of three blocks, of which one has a snapshot and holds something else since: `a` is 3, 4, 1 and was 1, 1, 1; `b` is 2, 2, 2.
    pub(in crate::pools) fn fill(&self) {
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir_all(&self.0).unwrap();
        fs::write(self.0.join("a.img"), vec![1; 3 * BLOCK]).unwrap();
        fs::write(self.0.join("b.img"), vec![2; 3 * BLOCK]).unwrap();
        let (pool, _) = self.open(ALL);
        take(&pool, &["a@first"]).unwrap();
        let store = serve(&pool, "a");
        write(&store, 0, 3);
        write(&store, 1, 4);
    }

    /// Opens the pool; so many steps after that the power fails.
    pub(in crate::pools) fn open(&self, steps: usize) -> (Arc<Pool>, Copied) {
        let files = Copied::default();
        let pool = self.open_with(&files);
        files.fail_after(steps, 0);
        (pool, files)
    }

    fn open_with(&self, files: &Copied) -> Arc<Pool> {
        let config: PoolConfig = format!("p={},snapshots=layers", self.0.display()).parse().unwrap();
        Arc::new(Pool::open_with(&config, None, Box::new(files.clone())).unwrap())
    }

    /// Opens the pool again, and settles it.
    pub(in crate::pools) fn reopen(&self) -> Arc<Pool> {
        let (pool, _) = self.open(ALL);
        pool.settle(|volume| ["a", "b"].contains(&volume));
        pool
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(in crate::pools) fn id(text: &str) -> SnapshotId {
    text.parse().unwrap()
}

pub(in crate::pools) fn take(pool: &Pool, names: &[&str]) -> Result<(), PoolError> {
    let ids: Vec<SnapshotId> = names.iter().map(|name| id(name)).collect();
    let taken = ids.iter().try_for_each(|id| pool.prepare(id));
    let taken = taken.and_then(|()| ids.iter().try_for_each(|id| pool.capture(id)));
    taken.and_then(|()| pool.commit(&ids, false)).inspect_err(|_| pool.discard(&ids))
}

pub(in crate::pools) fn names(pool: &Pool) -> Vec<String> {
    pool.snapshots(None).into_iter().map(|snapshot| format!("{}@{}", snapshot.volume, snapshot.name)).collect()
}

/// The store of a volume or snapshot.
pub(in crate::pools) fn serve(pool: &Arc<Pool>, content: &str) -> Arc<dyn Store> {
    open(pool, content, "").unwrap()
}

pub(in crate::pools) fn open(
    pool: &Arc<Pool>,
    content: &str,
    keys: &str,
) -> Result<Arc<dyn Store>, sanwire_store::OpenError> {
    let text = match content.contains('@') {
        true => format!("x=pool:p/{content},readonly{keys}"),
        false => format!("{content}=pool:p{keys}"),
    };
    let spec: VolumeSpec = text.parse().unwrap();
    spec.in_pool("p", pool.file_of(content, None)).store.open()
}

pub(in crate::pools) fn write(store: &Arc<dyn Store>, block: usize, byte: u8) {
    let write = Request::Write { offset_bytes: (block * BLOCK) as u64, data: vec![byte; BLOCK].into() };
    assert!([write, Request::Flush].into_iter().all(|request| blocking::run(&**store, request).is_ok()));
}

/// The first byte of each block.
pub(in crate::pools) fn bytes(store: &Arc<dyn Store>) -> Vec<u8> {
    let buffer = vec![9; store.geometry().length_bytes as usize].into();
    let read = blocking::run(&**store, Request::Read { offset_bytes: 0, buffer });
    let Ok(Outcome::Read(frame)) = read else { panic!("{read:?}") };
    let blocks = frame.chunks(BLOCK);
    blocks.inspect(|block| assert!(block.iter().all(|byte| *byte == block[0]), "torn")).map(|block| block[0]).collect()
}

pub(in crate::pools) fn holds(pool: &Arc<Pool>, content: &str, expected: &[u8]) -> bool {
    bytes(&serve(pool, content)) == expected
}

#[test]
fn a_volume_of_layers_is_what_it_was_also_after_a_restart() {
    let place = Place::new("whole");
    place.fill();
    let pool = place.reopen();
    assert!(holds(&pool, "a", &[3, 4, 1]) && holds(&pool, "a@first", &[1, 1, 1]) && holds(&pool, "b", &[2, 2, 2]));
    take(&pool, &["a@second", "b@second"]).unwrap();
    let served = serve(&pool, "a");
    write(&served, 2, 5);
    pool.begin_rollback(&id("a@first"), None).and_then(|()| pool.roll_back(&id("a@first"))).unwrap();
    assert_eq!(bytes(&served), [1, 1, 1], "who has it open sees it");
    pool.make_clone(&id("a@second"), "c").unwrap();
    write(&serve(&pool, "c"), 0, 7);
    drop(served);
    pool.delete_snapshot(&id("a@second")).unwrap();
    drop(pool);
    let pool = place.reopen();
    assert_eq!(names(&pool), ["a@first", "b@second"]);
    assert!(holds(&pool, "a", &[1, 1, 1]) && holds(&pool, "c", &[7, 4, 1]) && holds(&pool, "b@second", &[2, 2, 2]));
    // What was cloned stays when its source goes.
    pool.begin_to_delete("a", true).and_then(|()| pool.delete("a")).unwrap();
    assert!(!place.0.join("a.img").exists());
    drop(pool);
    let pool = place.reopen();
    assert!(holds(&pool, "c", &[7, 4, 1]));
    fs::write(place.0.join("a.img"), vec![8; BLOCK]).unwrap();
    assert!(holds(&pool, "a", &[8]), "another one of its name");
    take(&pool, &["a@new"]).unwrap();
    for volume in ["a", "b", "c"] {
        pool.begin_to_delete(volume, true).and_then(|()| pool.delete(volume)).unwrap();
    }
    drop(pool);
    assert_eq!(fs::read_dir(place.0.join(super::DIRECTORY)).unwrap().count(), 0, "nothing is left");
}

/// Does something, with the power failing before each of its steps in turn, or with only that step failing; `check` looks at what is there when
/// the pool was opened again, and is told whether it had ended well.
fn fail_everywhere(label: &str, deed: impl Fn(&Arc<Pool>) -> Result<(), PoolError>, check: impl Fn(&Arc<Pool>, bool)) {
    let place = Place::new(label);
    for after in [0, ALL] {
        for steps in 0.. {
            place.fill();
            let (pool, files) = place.open(steps);
            files.fail_after(steps, after);
            let done = deed(&pool).is_ok();
            drop(pool);
            check(&place.reopen(), done);
            // What is there stays.
            let pool = place.reopen();
            check(&pool, done);
            if !files.has_failed() {
                assert!(done && steps > 5, "{steps}");
                break;
            }
            // It can be done now, unless it was.
            let again = deed(&pool).is_ok();
            drop(pool);
            check(&place.reopen(), done || again);
        }
    }
}

#[test]
fn a_group_is_there_as_a_whole_or_not_at_all_whichever_step_fails() {
    let deed = |pool: &Arc<Pool>| take(pool, &["a@second", "b@second"]);
    fail_everywhere("group", deed, |pool, is_done| {
        let is_there = names(pool).len() == 3;
        assert!(is_there || names(pool) == ["a@first"] && !is_done);
        assert!(holds(pool, "a", &[3, 4, 1]) && holds(pool, "b", &[2, 2, 2]) && holds(pool, "a@first", &[1, 1, 1]));
        if is_there {
            assert!(holds(pool, "a@second", &[3, 4, 1]) && holds(pool, "b@second", &[2, 2, 2]));
        }
    });
}

#[test]
fn a_volume_of_layers_is_rolled_back_or_as_it_was_whichever_step_fails() {
    let deed = |pool: &Arc<Pool>| {
        let (first, kept) = (id("a@first"), id("a@kept"));
        let taken = pool.prepare(&kept).and_then(|()| pool.capture(&kept));
        let begun = taken.and_then(|()| pool.begin_rollback(&first, Some(&kept)));
        begun.inspect_err(|_| pool.discard(std::slice::from_ref(&kept)))?;
        pool.roll_back(&first)
    };
    fail_everywhere("rollback", deed, |pool, is_done| {
        let is_back = holds(pool, "a", &[1, 1, 1]);
        assert!(is_back || holds(pool, "a", &[3, 4, 1]) && !is_done);
        assert_eq!(names(pool).contains(&"a@kept".to_owned()), is_back);
        assert!(!is_back || holds(pool, "a@kept", &[3, 4, 1]));
        assert!(holds(pool, "a@first", &[1, 1, 1]));
    });
}

#[test]
fn a_clone_of_layers_is_whole_or_not_there_whichever_step_fails() {
    let deed = |pool: &Arc<Pool>| pool.make_clone(&id("a@first"), "c");
    fail_everywhere("clone", deed, |pool, is_done| {
        assert!(pool.has("c") || !is_done);
        if pool.has("c") {
            assert!(holds(pool, "c", &[1, 1, 1]));
        }
        assert!(holds(pool, "a", &[3, 4, 1]));
    });
}

#[test]
fn what_is_deleted_of_layers_is_gone_or_whole_whichever_step_fails() {
    let deed = |pool: &Arc<Pool>| pool.delete_snapshot(&id("a@first"));
    fail_everywhere("delete-snapshot", deed, |pool, is_done| {
        assert!(names(pool).is_empty() || !is_done);
        assert!(names(pool).is_empty() || holds(pool, "a@first", &[1, 1, 1]));
        assert!(holds(pool, "a", &[3, 4, 1]));
    });
}

#[test]
fn what_was_said_of_layers_is_found_again_where_the_catalogue_of_the_pool_is_lost() {
    let place = Place::new("lost");
    place.fill();
    let pool = place.reopen();
    pool.make_clone(&id("a@first"), "c").unwrap();
    let known = pool.id().to_owned();
    drop(pool);
    fs::remove_file(place.0.join(".sanwire-pool.json")).unwrap();
    let config: PoolConfig = format!("p={},snapshots=none", place.0.display()).parse().unwrap();
    let pool = Arc::new(Pool::open_with(&config, Some(&known), Box::new(Copied::default())).unwrap());
    assert_eq!(names(&pool), ["a@first"]);
    let holds_all = [("a", [3, 4, 1]), ("a@first", [1, 1, 1]), ("c", [1, 1, 1])];
    assert!(holds_all.iter().all(|(content, expected)| holds(&pool, content, expected)));
    assert!(matches!(take(&pool, &["b@x"]), Err(PoolError::NoSharing(_))), "no other volume begins with layers");
    take(&pool, &["a@second"]).unwrap();
    drop(pool);
    // Without its layers a volume is not what is below them.
    fs::rename(place.0.join(super::DIRECTORY), place.0.join("elsewhere")).unwrap();
    let pool = place.reopen();
    assert!(open(&pool, "a", "").is_err() && open(&pool, "b", "").is_ok());
}

#[test]
fn a_volume_of_layers_grows_with_its_file() {
    let place = Place::new("grows");
    place.fill();
    let pool = place.reopen();
    let store = serve(&pool, "a");
    store.resize(5 * BLOCK as u64).unwrap();
    write(&store, 4, 9);
    drop((store, pool));
    let pool = place.reopen();
    assert!(open(&pool, "a", ",size=20480").is_ok_and(|store| bytes(&store) == [3, 4, 1, 0, 9]));
    // A crash has come between both.
    fs::OpenOptions::new().write(true).open(place.0.join("a.img")).unwrap().set_len(6 * BLOCK as u64).unwrap();
    assert!(holds(&pool, "a", &[3, 4, 1, 0, 9, 0]) && holds(&pool, "a@first", &[1, 1, 1]));
    let layers = fs::metadata(place.0.join("a.img")).unwrap().len();
    assert_eq!(layers, 6 * BLOCK as u64);
    assert!(matches!(open(&pool, "a", ",size=1M").map(drop), Err(sanwire_store::OpenError::Size { .. })));
}

#[test]
fn an_older_catalogue_of_the_pool_loses_nothing_that_is_newer() {
    let place = Place::new("older");
    place.fill();
    let catalogue = place.0.join(".sanwire-pool.json");
    let pool = place.reopen();
    let before = fs::read(&catalogue).unwrap();
    take(&pool, &["a@second", "b@first"]).unwrap();
    pool.make_clone(&id("a@second"), "c").unwrap();
    write(&serve(&pool, "c"), 2, 7);
    drop(pool);
    fs::write(&catalogue, before).unwrap();
    let pool = place.reopen();
    assert_eq!(names(&pool), ["a@first", "a@second", "b@first"]);
    assert!(holds(&pool, "a", &[3, 4, 1]) && holds(&pool, "c", &[3, 4, 7]) && holds(&pool, "a@second", &[3, 4, 1]));
    drop(pool);
    // Without any word of its layers what stands for a volume is not served as one.
    fs::remove_file(&catalogue).unwrap();
    fs::rename(place.0.join(super::DIRECTORY), place.0.join("elsewhere")).unwrap();
    let pool = place.reopen();
    let refused = ["a", "b", "c"].map(|volume| open(&pool, volume, "").is_err());
    assert_eq!(refused, [true; 3]);
}

#[test]
fn a_volume_that_is_open_is_neither_opened_again_nor_replaced() {
    let place = Place::new("twice");
    place.fill();
    let pool = place.reopen();
    for volume in ["a", "b"] {
        let served = serve(&pool, volume);
        assert!(matches!(open(&pool, volume, "").map(drop), Err(sanwire_store::OpenError::Locked { .. })));
        assert!(matches!(pool.lock(volume).map(drop), Err(PoolError::Locked(_))));
        drop(served);
        let lock = pool.lock(volume).unwrap();
        assert!(matches!(open(&pool, volume, "").map(drop), Err(sanwire_store::OpenError::Locked { .. })));
        drop(lock);
        assert!(open(&pool, volume, "").is_ok());
    }
}

#[test]
fn a_snapshot_of_the_name_of_one_that_is_gone_is_another_one() {
    let place = Place::new("again");
    place.fill();
    let pool = place.reopen();
    // The family is open all the time.
    let store = serve(&pool, "a");
    let identity = |pool: &Arc<Pool>| {
        let expected = sanwire_store::Expectation {
            name: "x",
            known: None,
            known_below: None,
            is_kept: false,
            acceptance: sanwire_store::Acceptance::Known,
            fresh: [1; 16],
            fallback: [2; 16],
        };
        let spec: VolumeSpec = "x=pool:p/a@first,readonly".parse().unwrap();
        spec.in_pool("p", pool.file_of("a@first", None)).store.open_volume(&expected).unwrap().1.unwrap().uuid
    };
    let before = identity(&pool);
    assert!(holds(&pool, "a@first", &[1, 1, 1]));
    let reader = serve(&pool, "a@first");
    assert!(pool.delete_snapshot(&id("a@first")).is_err(), "it is being read");
    assert_eq!(bytes(&reader), [1, 1, 1]);
    drop(reader);
    drop((store, pool));
    let pool = place.reopen();
    let store = serve(&pool, "a");
    assert!(names(&pool).is_empty(), "it was begun to be deleted");
    write(&store, 2, 8);
    take(&pool, &["a@first"]).unwrap();
    assert!(holds(&pool, "a@first", &[3, 4, 8]) && identity(&pool) != before);
    pool.delete_snapshot(&id("a@first")).unwrap();
    write(&store, 2, 9);
    take(&pool, &["a@first"]).unwrap();
    assert!(holds(&pool, "a@first", &[3, 4, 9]));
}

#[test]
fn what_a_copy_has_left_goes_when_there_is_room_and_its_volume_is_served_then() {
    let place = Place::new("no-room");
    place.fill();
    let pool = place.reopen();
    let left = id("a@left");
    let taken = pool.prepare(&left).and_then(|()| pool.capture(&left));
    taken.and_then(|()| pool.commit_for_now(&left)).unwrap();
    drop(pool);
    let files = Copied::default();
    files.has_no_room.store(true, Ordering::Relaxed);
    let pool = place.open_with(&files);
    assert_eq!(names(&pool), ["a@first"]);
    // What its last layer is from now on could not be kept.
    assert!(open(&pool, "a", "").is_err() && holds(&pool, "a@first", &[1, 1, 1]));
    assert!(pool.end_deletions("a").is_err());
    files.has_no_room.store(false, Ordering::Relaxed);
    pool.end_deletions("a").unwrap();
    assert!(pool.with_begun_deletions().is_empty());
    let store = serve(&pool, "a");
    write(&store, 0, 7);
    assert!(bytes(&store) == [7, 4, 1] && holds(&pool, "a@first", &[1, 1, 1]));
    drop((store, pool));
    let pool = place.reopen();
    assert_eq!(names(&pool), ["a@first"]);
    assert!(holds(&pool, "a", &[7, 4, 1]) && holds(&pool, "a@first", &[1, 1, 1]));
}

#[test]
fn a_volume_takes_writes_again_once_its_layers_can_be_kept() {
    let place = Place::new("doubt");
    let mut was_stopped = false;
    for steps in 0..20 {
        place.fill();
        let (pool, files) = place.open(ALL);
        let store = serve(&pool, "a");
        files.fail_after(steps, 0);
        let _ = take(&pool, &["a@second"]);
        let try_write = || {
            let write = Request::Write { offset_bytes: 0, data: vec![9; BLOCK].into() };
            blocking::run(&*store, write).is_ok()
        };
        was_stopped |= !try_write();
        files.fail_after(ALL, 0);
        // Nobody asks for anything.
        while !try_write() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    assert!(was_stopped);
}
