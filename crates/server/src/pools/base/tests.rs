use std::fs::File;
use std::time::{Duration, SystemTime};

use sanwire_store::{RamStore, Request};
use sanwire_store_file::blocking;

use super::*;
use crate::pools::layered::DIRECTORY;
use crate::pools::layered::tests::{BLOCK, Place, holds, id, names, open, serve, take};
use crate::pools::seal::SEAL;
use crate::pools::testing::Copied;
use crate::pools::{Pool, PoolError};

#[test]
fn what_was_sealed_is_known_again_and_nothing_else_is_taken_for_it() {
    let directory = std::env::temp_dir().join(format!("sanwire-seal-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("base");
    fs::write(&path, [1; 4096]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let look = Look::File(path.clone());
    let is_known = || match Seal::checked(&directory, &look).unwrap() {
        (seal, None) => Ok(seal.is_there()),
        (_, Some(why)) => Err(why),
    };
    assert!(!is_known().unwrap(), "nothing is said of it");
    let seal = Seal::none(&directory);
    seal.put(&look).unwrap();
    assert!(is_known().unwrap());
    let written = file.metadata().unwrap().modified().unwrap();
    for (changed, is_it) in [
        (written + Duration::from_millis(3), false),
        (SystemTime::UNIX_EPOCH, false),
        (written - Duration::from_nanos(file.metadata().unwrap().mtime_nsec() as u64), true),
        (written, true),
    ] {
        file.set_modified(changed).unwrap();
        assert_eq!(is_known().is_ok(), is_it, "{changed:?}");
    }
    // Who writes through it says so first.
    let store = Over::new(Guard(Arc::clone(&seal)), Arc::new(RamStore::new(4096, 512)) as Arc<dyn Store>);
    assert!(blocking::run(&store, Request::Flush).is_ok() && is_known().unwrap());
    assert!(blocking::run(&store, Request::Discard { offset_bytes: 0, length_bytes: 512 }).is_ok());
    assert!(!is_known().unwrap() && !directory.join(SEAL).exists());
    seal.put(&look).unwrap();
    file.set_len(8192).unwrap();
    assert!(is_known().is_ok(), "its volume has grown");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_is_below_the_layers_is_not_exchanged_under_them() {
    let place = Place::new("below");
    place.fill();
    let below = place.0.join("a.img");
    drop(place.reopen());
    let before = fs::read(&below).unwrap();
    let wait_for_seal = |pool: &Arc<Pool>| {
        let store = serve(pool, "a");
        let id = pool.catalogue().layered["a"].clone();
        let seal = pool.families_directory().join(id).join("base.seal");
        while !seal.exists() {
            std::thread::yield_now();
        }
        drop(store);
        seal
    };
    let seal = wait_for_seal(&place.reopen());
    assert!(holds(&place.reopen(), "a", &[3, 4, 1]), "nobody wrote to it");
    // What was put aside once comes back, into the same file.
    fs::write(&below, vec![6; before.len()]).unwrap();
    let pool = place.reopen();
    let refused = open(&pool, "a", "").map(drop).unwrap_err();
    let mut text = refused.to_string();
    let mut source = std::error::Error::source(&refused);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    assert!(text.contains("a mixture") && text.contains("base.seal"), "{text}");
    assert!(open(&pool, "b", "").is_ok());
    assert!(take(&pool, &["a@second"]).is_err() && pool.make_clone(&id("a@first"), "c").is_err() && !pool.has("c"));
    drop(pool);
    fs::write(&below, before).unwrap();
    fs::remove_file(&seal).unwrap();
    let pool = place.reopen();
    assert!(holds(&pool, "a", &[3, 4, 1]), "the administrator has said so");
    wait_for_seal(&pool);
    // What is merged into it is no exchange.
    pool.delete_snapshot(&id("a@first")).unwrap();
    drop(pool);
    for _ in 0..2 {
        assert!(holds(&place.reopen(), "a", &[3, 4, 1]));
    }
}

#[test]
fn a_volume_over_something_else_can_be_deleted() {
    let place = Place::new("below-gone");
    place.fill();
    let pool = place.reopen();
    pool.make_clone(&id("a@first"), "c").unwrap();
    let store = serve(&pool, "a");
    let seal = pool.families_directory().join(&pool.catalogue().layered["a"]).join("base.seal");
    while !seal.exists() {
        std::thread::yield_now();
    }
    drop((store, pool));
    fs::write(place.0.join("a.img"), vec![6; 3 * BLOCK]).unwrap();
    let pool = place.reopen();
    assert!(["a", "c"].iter().all(|volume| open(&pool, volume, "").is_err()));
    for volume in ["a", "c"] {
        pool.begin_to_delete(volume, true).and_then(|()| pool.delete(volume)).unwrap();
    }
    drop(pool);
    assert_eq!(fs::read_dir(place.0.join(DIRECTORY)).unwrap().count(), 0);
}

#[test]
fn a_file_system_without_second_names_has_no_layers() {
    let place = Place::new("no-links");
    place.fill();
    fs::create_dir_all(place.0.join("other")).unwrap();
    fs::write(place.0.join("other/a.img"), vec![1; BLOCK]).unwrap();
    let config = format!("p={},snapshots=layers", place.0.join("other").display()).parse().unwrap();
    let files = Copied::default();
    files.has_no_links.store(true, Ordering::Relaxed);
    let pool = Arc::new(Pool::open_with(&config, None, Box::new(files)).unwrap());
    assert!(holds(&pool, "a", &[1]), "it is served from its file");
    assert!(matches!(take(&pool, &["a@one"]), Err(PoolError::NoLinks(_))));
    drop(pool);
    let pool = Pool::open_with(&config, None, Box::new(super::super::files::Reflink)).unwrap();
    assert!(pool.can_link() && !place.0.join("other/.sanwire-probe.a").exists());
}

#[test]
fn a_volume_whose_layers_cannot_be_opened_can_be_deleted_when_nobody_else_needs_them() {
    let place = Place::new("unopened");
    place.fill();
    let pool = place.reopen();
    pool.make_clone(&id("a@first"), "c").unwrap();
    let directory = pool.families_directory().join(&pool.catalogue().layered["a"]);
    drop(pool);
    fs::write(directory.join("catalogue.json"), "damaged").unwrap();
    let pool = place.reopen();
    assert!(["a", "c"].iter().all(|volume| open(&pool, volume, "").is_err()) && open(&pool, "b", "").is_ok());
    let delete = |volume| pool.begin_to_delete(volume, true).and_then(|()| pool.delete(volume));
    assert!(pool.delete_snapshot(&id("a@first")).is_err());
    assert!(delete("c").is_err() && directory.exists(), "the other one needs them");
    assert!(delete("a").and_then(|()| delete("c")).is_ok() && !directory.exists());
    assert!(!pool.has("a") && !pool.has("c") && names(&pool).is_empty());
}
