//! The content of volumes, with a crash before each step.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::pools::catalogue::SnapshotId;
use crate::pools::pool::CATALOGUE;
use crate::pools::testing::{ALL, Copied};
use crate::pools::{Pool, PoolConfig, PoolError};

/// A directory with a pool, until the test ends.
struct Place(PathBuf);

impl Place {
    fn new(label: &str) -> Place {
        let directory = std::env::temp_dir().join(format!("sanwire-contents-{label}-{}", std::process::id()));
        Place(directory)
    }

    /// Two volumes, of which one has a snapshot and holds something else since.
    fn fill(&self) {
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir_all(&self.0).unwrap();
        self.put("a", 1, 4096);
        self.put("b", 2, 4096);
        let (pool, _) = self.open(ALL).unwrap();
        let first = id("a@first");
        pool.capture(&first).and_then(|()| pool.commit(&[first], false)).unwrap();
        self.put("a", 3, 8192);
    }

    fn put(&self, content: &str, byte: u8, length: usize) {
        fs::write(self.0.join(format!("{content}.img")), vec![byte; length]).unwrap();
    }

    /// Opens the pool; so many steps after that the power fails.
    fn open(&self, steps: usize) -> Result<(Pool, Copied), PoolError> {
        let config: PoolConfig = format!("p={}", self.0.display()).parse().unwrap();
        let files = Copied::default();
        let pool = Pool::open_with(&config, None, Box::new(files.clone()))?;
        files.fail_after(steps, 0);
        Ok((pool, files))
    }

    /// Opens the pool where there is no room at all for what it keeps.
    fn open_without_room(&self) -> (Pool, Copied) {
        let config: PoolConfig = format!("p={}", self.0.display()).parse().unwrap();
        let files = Copied::default();
        files.has_no_room.store(true, Ordering::Relaxed);
        (Pool::open_with(&config, None, Box::new(files.clone())).unwrap(), files)
    }

    /// What stands in the file of its catalogue.
    fn catalogue(&self) -> String {
        fs::read_to_string(self.0.join(CATALOGUE)).unwrap()
    }

    /// Opens the pool again, and settles it.
    fn reopen(&self) -> Pool {
        let (pool, _) = self.open(ALL).unwrap();
        pool.settle(|volume| ["a", "b"].contains(&volume));
        pool
    }

    /// What there is: contents by the names of their files, but for the pool's own.
    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let mut contents = BTreeMap::new();
        for entry in fs::read_dir(&self.0).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !name.starts_with(".sanwire") {
                contents.insert(name.clone(), fs::read(self.0.join(name)).unwrap());
            }
        }
        contents
    }

    fn is(&self, content: &str, bytes: &[(u8, usize)]) -> bool {
        let expected: Vec<u8> = bytes.iter().flat_map(|(byte, length)| vec![*byte; *length]).collect();
        fs::read(self.0.join(format!("{content}.img"))).is_ok_and(|found| found == expected)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn id(text: &str) -> SnapshotId {
    text.parse().unwrap()
}

fn names(pool: &Pool) -> Vec<String> {
    pool.snapshots(None).into_iter().map(|snapshot| format!("{}@{}", snapshot.volume, snapshot.name)).collect()
}

/// Does something, with the power failing before each of its steps in turn, which leaves what was not made stable, or takes it back; `check` looks at what is there when the pool was opened again, and
/// is told whether it had ended well. How many crashes there were.
fn crash_everywhere(
    place: &Place,
    deed: impl Fn(&Pool) -> Result<(), PoolError>,
    check: impl Fn(&Place, &Pool, bool),
) -> usize {
    for steps in 0.. {
        let mut is_over = false;
        for loses_unstable in [false, true] {
            place.fill();
            let (pool, files) = place.open(steps).unwrap();
            let done = deed(&pool).is_ok();
            drop(pool);
            if loses_unstable {
                files.lose_unstable();
            }
            let (pool, _) = place.open(ALL).unwrap();
            pool.settle(|volume| ["a", "b"].contains(&volume));
            check(place, &pool, done);
            let left: Vec<String> = place.contents().into_keys().filter(|name| name.ends_with(".new")).collect();
            assert!(left.is_empty(), "{left:?} after {steps} steps");
            is_over = !files.has_failed();
            assert!(done || !is_over);
        }
        if is_over {
            return steps;
        }
    }
    0
}

#[test]
fn snapshots_of_a_group_are_all_there_or_none_whenever_the_power_fails() {
    let place = Place::new("group");
    let group = [id("a@second"), id("b@second")];
    let take = |pool: &Pool| {
        let taken = group.iter().try_for_each(|id| pool.capture(id)).and_then(|()| pool.commit(&group, false));
        taken.inspect_err(|_| pool.discard(&group))
    };
    let crashes = crash_everywhere(&place, take, |place, pool, is_done| {
        let is_there = names(pool).contains(&"a@second".to_owned());
        assert_eq!(names(pool).contains(&"b@second".to_owned()), is_there);
        assert!(is_there || !is_done);
        if is_there {
            assert!(place.is("a@second", &[(3, 8192)]) && place.is("b@second", &[(2, 4096)]), "each is whole");
        } else {
            assert_eq!(place.contents().len(), 3);
        }
        assert!(place.is("a@first", &[(1, 4096)]) && place.is("a", &[(3, 8192)]));
    });
    assert!(crashes > 8, "{crashes}");
}

#[test]
fn a_snapshot_for_a_while_is_none_after_the_power_has_failed() {
    let place = Place::new("for-a-while");
    let taken = id("a@copy");
    let take = |pool: &Pool| {
        let done = pool.capture(&taken).and_then(|()| pool.commit_for_now(&taken));
        done.inspect_err(|_| pool.discard(std::slice::from_ref(&taken)))
    };
    let crashes = crash_everywhere(&place, take, |place, pool, _| {
        assert_eq!(names(pool), ["a@first"]);
        assert_eq!(place.contents().len(), 3);
        assert!(place.is("a@first", &[(1, 4096)]) && place.is("a", &[(3, 8192)]));
    });
    assert!(crashes > 4, "{crashes}");
    place.fill();
    let (pool, _) = place.open(ALL).unwrap();
    take(&pool).unwrap();
    assert!(matches!(pool.delete_snapshot(&taken), Err(PoolError::Copied(_))));
    assert!(matches!(pool.check_deletion("a", true), Err(PoolError::Copied(_))));
    assert!(matches!(pool.protect_snapshot(&taken, false), Err(PoolError::Copied(_))));
    pool.remove_snapshot(&taken).unwrap();
    assert_eq!(names(&pool), ["a@first"]);
    // That to which a volume is rolled back is needed until it is.
    take(&pool).unwrap();
    pool.begin_rollback(&taken, None).unwrap();
    drop(pool);
    let pool = place.reopen();
    assert!(names(&pool).contains(&"a@copy".to_owned()) && place.is("a", &[(3, 8192)]));
    pool.remove_snapshot(&taken).unwrap();
}

#[test]
fn what_a_copy_has_left_goes_at_the_next_start_unless_somebody_protects_it() {
    let place = Place::new("left");
    let (kept, left) = (id("a@kept"), id("a@left"));
    place.fill();
    let (pool, _) = place.open(ALL).unwrap();
    for id in [&kept, &left] {
        pool.capture(id).and_then(|()| pool.commit_for_now(id)).unwrap();
        pool.release_temporary(id).unwrap();
    }
    assert!(pool.snapshots(None).iter().all(|snapshot| !snapshot.protected));
    assert!(pool.protect_snapshot(&kept, true).unwrap() && !pool.protect_snapshot(&kept, true).unwrap());
    drop(pool);
    let pool = place.reopen();
    assert_eq!(names(&pool), ["a@first", "a@kept"]);
    pool.protect_snapshot(&kept, false).and_then(|_| pool.delete_snapshot(&kept)).unwrap();
}

#[test]
fn a_pool_without_any_room_is_opened_and_is_what_it_is_to_be_when_there_is_some() {
    let place = Place::new("no-room");
    for has_crashed in [true, false] {
        place.fill();
        let (pool, _) = place.open(ALL).unwrap();
        let left = id("a@left");
        pool.capture(&left).and_then(|()| pool.commit_for_now(&left)).unwrap();
        drop(pool);
        let (pool, files) = place.open_without_room();
        assert_eq!(names(&pool), ["a@first"]);
        assert_eq!(place.contents().len(), 3, "what takes the room is gone at once");
        assert!(place.catalogue().contains("temporary"), "{}", place.catalogue());
        let refused = pool.protect_snapshot(&id("a@first"), true);
        assert!(matches!(refused, Err(PoolError::Failed { .. })), "{refused:?}");
        // The next start may find what the file says.
        assert!(matches!(pool.check_new_snapshot(&left), Err(PoolError::SnapshotExists(_))));
        let pool = if has_crashed {
            drop(pool);
            place.reopen()
        } else {
            assert_eq!(pool.with_begun_deletions().into_iter().collect::<Vec<_>>(), ["a"]);
            assert!(pool.end_deletions("a").is_err());
            files.has_no_room.store(false, Ordering::Relaxed);
            pool.end_deletions("a").unwrap();
            pool
        };
        assert!(pool.with_begun_deletions().is_empty() && pool.check_new_snapshot(&left).is_ok());
        assert!(!place.catalogue().contains("left"), "{}", place.catalogue());
        assert!(names(&pool) == ["a@first"] && place.is("a@first", &[(1, 4096)]) && place.is("a", &[(3, 8192)]));
    }
    // A snapshot whose file somebody has taken away is none, and one that was put there is one.
    fs::rename(place.0.join("a@first.img"), place.0.join("b@put.img")).unwrap();
    let (pool, files) = place.open_without_room();
    assert_eq!(names(&pool), ["b@put"]);
    files.has_no_room.store(false, Ordering::Relaxed);
    assert!(pool.protect_snapshot(&id("b@put"), true).unwrap());
    assert!(!place.catalogue().contains("first"), "{}", place.catalogue());
}

#[test]
fn a_snapshot_that_nobody_needs_any_more_goes_when_there_is_room_to_keep_that() {
    let place = Place::new("over");
    place.fill();
    let (pool, files) = place.open(ALL).unwrap();
    let copied = id("a@copied");
    pool.capture(&copied).and_then(|()| pool.commit_for_now(&copied)).unwrap();
    files.has_no_room.store(true, Ordering::Relaxed);
    assert!(pool.remove_snapshot(&copied).is_err() && pool.release_temporary(&copied).is_err());
    assert!(matches!(pool.delete_snapshot(&copied), Err(PoolError::Copied(_))));
    for _ in 0..2 {
        assert_eq!(pool.with_begun_deletions().into_iter().collect::<Vec<_>>(), ["a"]);
        assert!(pool.end_deletions("a").is_err());
    }
    assert!(pool.end_deletions("b").is_ok(), "nothing of it is left");
    files.has_no_room.store(false, Ordering::Relaxed);
    pool.end_deletions("a").unwrap();
    assert!(names(&pool) == ["a@first"] && pool.with_begun_deletions().is_empty());
    assert_eq!(place.contents().len(), 3);
}

#[test]
fn a_rollback_is_brought_to_its_end_whenever_the_power_fails() {
    let place = Place::new("rollback");
    let roll_back = |pool: &Pool| {
        let (first, kept) = (id("a@first"), id("a@kept"));
        pool.capture(&kept)?;
        pool.begin_rollback(&first, Some(&kept))?;
        pool.roll_back(&first)
    };
    let crashes = crash_everywhere(&place, roll_back, |place, pool, is_done| {
        let is_back = place.is("a", &[(1, 4096), (0, 4096)]);
        assert!(is_back || place.is("a", &[(3, 8192)]), "one or the other");
        assert!(is_back || !is_done);
        assert_eq!(names(pool).contains(&"a@kept".to_owned()), is_back, "what was there is kept");
        assert!(!is_back || place.is("a@kept", &[(3, 8192)]));
        assert!(place.is("a@first", &[(1, 4096)]));
    });
    assert!(crashes > 6, "{crashes}");
}

#[test]
fn a_deletion_is_ended_or_did_not_begin_whenever_the_power_fails() {
    let place = Place::new("delete");
    let crashes = crash_everywhere(
        &place,
        |pool| pool.delete_snapshot(&id("a@first")),
        |place, pool, is_done| {
            let is_there = !names(pool).is_empty();
            assert_eq!(place.is("a@first", &[(1, 4096)]), is_there);
            assert!(!is_there || !is_done);
        },
    );
    assert!(crashes > 2, "{crashes}");
    for steps in 0.. {
        place.fill();
        let (pool, _) = place.open(steps).unwrap();
        // Between both the volume is taken out of service.
        let noted = pool.begin_to_delete("a", true).is_ok();
        let deleted = noted && pool.delete("a").is_ok();
        drop(pool);
        let (pool, _) = place.open(ALL).unwrap();
        // It may have come to its end without having said so.
        let is_left = pool.catalogue().deleting.contains("a");
        let gone = pool.settle(|volume| volume == "b" || !noted);
        assert_eq!(place.contents().contains_key("a.img"), !noted, "{steps}");
        assert_eq!(names(&pool).is_empty(), noted);
        assert_eq!(pool.length_bytes("a") == 0, noted);
        assert_eq!(!gone.is_empty(), noted && is_left, "it is said what is gone");
        if deleted {
            break;
        }
    }
    place.fill();
    let (pool, _) = place.open(ALL).unwrap();
    assert!(matches!(pool.begin_to_delete("a", false), Err(PoolError::HasSnapshots { count: 1, .. })));
    pool.protect_snapshot(&id("a@first"), true).unwrap();
    assert!(matches!(pool.begin_to_delete("a", true), Err(PoolError::Protected(_))));
    assert!(matches!(pool.delete_snapshot(&id("a@first")), Err(PoolError::Protected(_))));
    pool.begin_to_delete("b", false).unwrap();
    drop(pool);
    let (pool, _) = place.open(ALL).unwrap();
    assert!(pool.settle(|_| true).is_empty());
    assert!(place.is("b", &[(2, 4096)]), "it is served: its deletion had not begun");
}

#[test]
fn what_is_made_of_a_snapshot_is_whole_or_not_there_whether_the_power_or_one_step_fails() {
    let place = Place::new("clone");
    for (after, loses_unstable) in [(0, false), (0, true), (ALL, false)] {
        for steps in 0.. {
            place.fill();
            let (pool, files) = place.open(steps).unwrap();
            files.fail_after(steps, after);
            let is_made = pool.make_clone(&id("a@first"), "c").is_ok();
            drop(pool);
            if loses_unstable {
                files.lose_unstable();
            }
            let pool = place.reopen();
            let is_there = place.contents().contains_key("c.img");
            assert!(is_there == place.is("c", &[(1, 4096)]) && (is_there || !is_made), "{steps}");
            // Once it was said to be there it stays, served or not.
            drop(pool);
            let _again = place.reopen();
            assert_eq!(place.contents().contains_key("c.img"), is_there);
            if !files.has_failed() {
                assert!(is_made);
                break;
            }
        }
    }
}

#[test]
fn a_file_that_somebody_has_put_there_is_neither_replaced_nor_removed() {
    let place = Place::new("foreign");
    place.fill();
    let (pool, _) = place.open(ALL).unwrap();
    place.put("c", 9, 512);
    assert!(matches!(pool.make_clone(&id("a@first"), "c"), Err(PoolError::ContentExists { .. })));
    place.put("a@x", 9, 512);
    assert!(matches!(pool.capture(&id("a@x")), Err(PoolError::SnapshotExists(_))));
    assert!(place.is("c", &[(9, 512)]) && place.is("a@x", &[(9, 512)]));
    let pipe = place.0.join("a@pipe.img");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    drop(pool);
    let pool = place.open(ALL).unwrap().0;
    assert_eq!(names(&pool), ["a@first", "a@x"]);
    fs::remove_file(pipe).unwrap();
}

#[test]
fn snapshots_of_a_full_pool_can_be_deleted() {
    let place = Place::new("full");
    place.fill();
    let (pool, files) = place.open(ALL).unwrap();
    pool.capture(&id("a@second")).and_then(|()| pool.commit(&[id("a@second")], false)).unwrap();
    files.is_full.store(true, Ordering::Relaxed);
    for name in ["a@first", "a@second"] {
        pool.delete_snapshot(&id(name)).unwrap();
    }
    assert_eq!(names(&pool), Vec::<String>::new());
}

#[test]
fn a_catalogue_that_was_moved_away_is_made_anew_where_there_is_content() {
    let place = Place::new("moved");
    place.fill();
    let config: PoolConfig = format!("p={}", place.0.display()).parse().unwrap();
    let known = place.open(ALL).unwrap().0.id().to_owned();
    fs::remove_file(place.0.join(".sanwire-pool.json")).unwrap();
    let open = || Pool::open_with(&config, Some(&known), Box::new(Copied::default()));
    assert_eq!(names(&open().unwrap()), ["a@first"]);
    fs::remove_dir_all(&place.0).unwrap();
    fs::create_dir_all(&place.0).unwrap();
    assert!(matches!(open(), Err(PoolError::Replaced { .. })));
}

#[test]
fn a_catalogue_that_was_half_written_goes_at_the_next_start() {
    let place = Place::new("half");
    place.fill();
    drop(place.open(ALL).unwrap());
    let half = place.0.join(".sanwire-pool.json.new");
    fs::write(&half, "{").unwrap();
    place.open(ALL).unwrap();
    assert!(!half.exists());
}

#[test]
fn a_catalogue_that_may_have_been_written_is_told_as_uncertain_until_it_is_written_again() {
    let place = Place::new("uncertain");
    place.fill();
    // The directory is made stable before.
    let (pool, files) = place.open(1).unwrap();
    assert!(pool.begin_rollback(&id("a@first"), None).is_err());
    assert!(pool.is_rolling_back("a"), "the next start may do it");
    assert!(!pool.is_rolling_back("b"));
    files.fail_after(ALL, 0);
    pool.protect_snapshot(&id("a@first"), false).unwrap();
    assert!(!pool.is_rolling_back("a"));
}

/// One step fails, and those after it do not: what is cleaned up then must not be what the catalogue lists.
#[test]
fn what_a_failed_step_leaves_is_what_was_told_also_after_the_next_start() {
    let place = Place::new("one-fails");
    let (first, kept) = (id("a@first"), id("a@kept"));
    for steps in 0.. {
        place.fill();
        let (pool, files) = place.open(steps).unwrap();
        files.fail_after(steps, ALL);
        let begun = pool.capture(&kept).and_then(|()| pool.begin_rollback(&first, Some(&kept)));
        let begun = begun.inspect_err(|_| pool.discard(std::slice::from_ref(&kept)));
        let may_be_noted = pool.is_rolling_back("a");
        let done = begun.and_then(|()| pool.roll_back(&first));
        let is_left = pool.is_rolling_back("a");
        let is_refused = done.is_err();
        drop(pool);
        let pool = place.reopen();
        let is_back = place.is("a", &[(1, 4096), (0, 4096)]);
        assert!(is_back || place.is("a", &[(3, 8192)]), "{steps}");
        assert!(may_be_noted || !is_back, "{steps}: nobody was told of a rollback that the next start does");
        assert!(!is_refused || !is_back || is_left, "{steps}: writes would have gone on");
        assert_eq!(names(&pool).contains(&"a@kept".to_owned()), is_back, "{steps}");
        assert!(!is_back || place.is("a@kept", &[(3, 8192)]), "{steps}");
        if !files.has_failed() {
            break;
        }
    }
}

#[test]
fn a_group_whose_file_cannot_be_put_in_place_is_whole() {
    let place = Place::new("one-fails-group");
    let group = [id("a@second"), id("b@second")];
    for steps in 0.. {
        place.fill();
        let (pool, files) = place.open(steps).unwrap();
        files.fail_after(steps, ALL);
        let taken = group.iter().try_for_each(|id| pool.capture(id)).and_then(|()| pool.commit(&group, false));
        let taken = taken.inspect_err(|_| pool.discard(&group)).is_ok();
        assert_eq!(names(&pool).len(), if taken { 3 } else { 1 }, "{steps}");
        if taken && steps % 2 == 0 {
            pool.capture(&id("b@third")).and_then(|()| pool.commit(&[id("b@third")], false)).unwrap();
            pool.begin_rollback(&group[1], None).and_then(|()| pool.roll_back(&group[1])).unwrap();
        }
        drop(pool);
        let pool = place.reopen();
        assert_eq!(names(&pool).contains(&"b@second".to_owned()), taken, "{steps}");
        assert_eq!(place.is("a@second", &[(3, 8192)]), taken);
        assert_eq!(place.is("b@second", &[(2, 4096)]), taken);
        if !files.has_failed() {
            break;
        }
    }
}

#[test]
fn what_a_rollback_needs_is_not_deleted_and_one_that_cannot_be_ended_stops_no_start() {
    let place = Place::new("needed");
    place.fill();
    let first = id("a@first");
    let (pool, files) = place.open(ALL).unwrap();
    pool.capture(&id("a@other")).and_then(|()| pool.commit(&[id("a@other")], false)).unwrap();
    pool.begin_rollback(&first, None).unwrap();
    files.fail_after(1, 0);
    assert!(matches!(pool.roll_back(&first), Err(PoolError::HalfRolledBack { .. })));
    files.fail_after(ALL, 0);
    assert!(matches!(pool.delete_snapshot(&first), Err(PoolError::RollingBack { .. })));
    assert!(matches!(pool.check_new_snapshot(&id("a@mixture")), Err(PoolError::RollingBack { .. })));
    assert!(pool.check_new_snapshot(&id("b@fine")).is_ok());
    drop(pool);
    // Its file is lost by other means.
    fs::remove_file(place.0.join("a@first.img")).unwrap();
    let (pool, _) = place.open(ALL).unwrap();
    assert!(pool.end_rollback("a").is_err() && pool.end_rollback("b").is_ok());
    pool.begin_rollback(&id("a@other"), None).and_then(|()| pool.roll_back(&id("a@other"))).unwrap();
    assert!(pool.end_rollback("a").is_ok() && place.is("a", &[(3, 8192)]));
    pool.begin_rollback(&id("a@other"), None).unwrap();
    pool.begin_to_delete("a", true).and_then(|()| pool.delete("a")).unwrap();
    assert!(!pool.is_rolling_back("a"));
    drop(pool);
    assert_eq!(names(&place.reopen()), Vec::<String>::new());
}

#[test]
fn a_directory_that_was_moved_brings_its_snapshots_along_and_a_thousand_are_deleted_in_any_order() {
    let place = Place::new("many");
    place.fill();
    let (pool, _) = place.open(ALL).unwrap();
    let ids: Vec<SnapshotId> = (0..1000).map(|number| id(&format!("b@{number}"))).collect();
    for id in &ids {
        pool.capture(id).unwrap();
    }
    pool.commit(&ids, false).unwrap();
    drop(pool);
    // Somebody puts one there, and takes one away.
    fs::copy(place.0.join("a.img"), place.0.join("x@copied.img")).unwrap();
    fs::remove_file(place.0.join("b@7.img")).unwrap();
    let (pool, _) = place.open(ALL).unwrap();
    assert_eq!(pool.snapshots(Some("b")).len(), 999);
    assert_eq!(pool.snapshot_bytes(&id("x@copied")).unwrap(), 8192);
    assert!(matches!(pool.snapshot_bytes(&id("b@7")), Err(PoolError::NoSnapshot(_))));
    let order = ids.iter().cycle().step_by(7).take(1000).filter(|id| id.name != "7");
    for id in order {
        assert!(place.is(&id.to_string(), &[(2, 4096)]));
        pool.delete_snapshot(id).unwrap();
    }
    assert_eq!(pool.snapshots(Some("b")), []);
    assert!(place.is("b", &[(2, 4096)]));
}
