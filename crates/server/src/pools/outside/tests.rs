//! Volumes over stores that are not in the pool, with a crash before each step.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sanwire_store::{OpenError, ResizeError, Store};

use super::*;
use crate::pools::config::PoolConfig;
use crate::pools::layered::DIRECTORY;
use crate::pools::layered::tests::{BLOCK, Place as Directory, bytes, id, names, open, serve, take, write};
use crate::pools::testing::ALL;

mod foreseen;
mod owner;
mod trouble;
#[path = "vat.rs"]
mod vat;

/// A pool that is empty, and a vat of three blocks that hold 1.
fn empty(label: &str) -> (Directory, Arc<dyn Store>) {
    let place = Directory::new(label);
    let _ = fs::remove_dir_all(&place.0);
    fs::create_dir_all(&place.0).unwrap();
    (place, vat::fill(label, &[1, 1, 1]))
}

/// Opens a volume as it is written, in the pool `p`.
fn open_as(pool: &Arc<Pool>, text: &str) -> Result<Arc<dyn Store>, OpenError> {
    let spec: VolumeSpec = text.parse().unwrap();
    let file = pool.file_of(&spec.name, spec.below_layers());
    spec.in_pool("p", file).store.open()
}

/// Opens `a`, the volume over the vat with the name of the test.
fn over(pool: &Arc<Pool>, label: &str) -> Arc<dyn Store> {
    open_as(pool, &format!("a=vat:{label},layers=p")).unwrap()
}

/// What a refusal says, with its causes.
fn why(refused: Result<Arc<dyn Store>, OpenError>) -> String {
    let error = refused.expect_err("it was opened");
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Waits until something is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let give_up_at = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < give_up_at, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn delete(pool: &Pool, volume: &str) -> Result<(), PoolError> {
    pool.begin_to_delete(volume, true).and_then(|()| pool.delete(volume))
}

#[test]
fn a_store_is_only_read_from_the_first_snapshot_until_the_last_one_is_gone() {
    let (place, below) = empty("life");
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "life");
    write(&store, 0, 2);
    assert_eq!(bytes(&below), [2, 1, 1], "without a snapshot it is written there");
    take(&pool, &["a@first"]).unwrap();
    write(&store, 1, 3);
    assert_eq!((bytes(&below), bytes(&store)), (vec![2, 1, 1], vec![2, 3, 1]));
    pool.make_clone(&id("a@first"), "c").unwrap();
    write(&serve(&pool, "c"), 2, 7);
    take(&pool, &["a@second"]).unwrap();
    write(&store, 0, 4);
    drop((store, pool));
    let (pool, _) = place.open(ALL);
    assert_eq!(names(&pool), ["a@first", "a@second"]);
    assert_eq!(bytes(&serve(&pool, "c")), [2, 1, 7], "a clone is served without its source");
    let store = over(&pool, "life");
    assert_eq!(bytes(&store), [4, 3, 1]);
    for (snapshot, expected) in [("a@first", [2, 1, 1]), ("a@second", [2, 3, 1])] {
        assert_eq!(bytes(&serve(&pool, snapshot)), expected, "{snapshot}");
    }
    pool.begin_rollback(&id("a@first"), None).and_then(|()| pool.roll_back(&id("a@first"))).unwrap();
    assert_eq!((bytes(&store), bytes(&below)), (vec![2, 1, 1], vec![2, 1, 1]));
    write(&store, 2, 9);
    delete(&pool, "c").unwrap();
    pool.delete_snapshot(&id("a@first")).and_then(|()| pool.delete_snapshot(&id("a@second"))).unwrap();
    wait_until("nothing is merged back", || bytes(&below) == [2, 1, 9]);
    drop((store, pool));
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "life");
    write(&store, 0, 5);
    assert_eq!((bytes(&store), bytes(&below)), (vec![5, 1, 9], vec![5, 1, 9]));
    // It stays what it holds.
    drop(store);
    delete(&pool, "a").unwrap();
    assert_eq!(bytes(&below), [5, 1, 9]);
    assert_eq!(fs::read_dir(place.0.join(DIRECTORY)).unwrap().count(), 0);
    assert!(!place.0.join("a.img").exists());
}

#[test]
fn a_volume_that_is_added_is_there_or_can_be_added_again_whichever_step_fails() {
    for after in [0, ALL] {
        for steps in 0.. {
            let (place, below) = empty("added");
            let (pool, files) = place.open(steps);
            files.fail_after(steps, after);
            let added = open_as(&pool, "a=vat:added,layers=p").map(drop);
            drop(pool);
            let (pool, _) = place.open(ALL);
            assert!(pool.has("a") || added.is_err(), "after {steps} steps");
            let store = over(&pool, "added");
            write(&store, 0, 2);
            take(&pool, &["a@first"]).unwrap();
            write(&store, 1, 3);
            assert_eq!((bytes(&store), bytes(&below)), (vec![2, 3, 1], vec![2, 1, 1]));
            drop((store, pool));
            let families = fs::read_dir(place.0.join(DIRECTORY)).unwrap().count();
            assert_eq!(families, 1, "something is left after {steps} steps of what had failed, then {after}");
            if !files.has_failed() {
                assert!(added.is_ok() && steps > 5, "{steps}");
                break;
            }
        }
    }
}

#[test]
fn what_is_done_with_snapshots_is_done_or_not_whichever_step_fails() {
    type Deed = fn(&Arc<Pool>) -> Result<(), PoolError>;
    let deeds: [(&str, Deed); 4] = [
        ("taken", |pool| take(pool, &["a@second"])),
        ("cloned", |pool| pool.make_clone(&id("a@first"), "c")),
        ("back", |pool| pool.begin_rollback(&id("a@first"), None).and_then(|()| pool.roll_back(&id("a@first")))),
        ("forgotten", |pool| pool.delete_snapshot(&id("a@first"))),
    ];
    for (label, deed) in deeds {
        for after in [0, ALL] {
            for steps in 0.. {
                let (place, below) = empty(label);
                let (pool, _) = place.open(ALL);
                let store = over(&pool, label);
                take(&pool, &["a@first"]).unwrap();
                write(&store, 0, 3);
                drop((store, pool));
                let (pool, files) = place.open(steps);
                files.fail_after(steps, after);
                let is_done = deed(&pool).is_ok();
                drop(pool);
                let (pool, _) = place.open(ALL);
                pool.settle(|volume| volume == "a");
                let (now, snapshots) = (bytes(&over(&pool, label)), names(&pool));
                let is_there = match label {
                    "taken" => snapshots == ["a@first", "a@second"],
                    "cloned" => pool.has("c"),
                    "back" => now == [1, 1, 1],
                    _ => snapshots.is_empty(),
                };
                // Clones that nobody serves are gone.
                assert!(is_there || !is_done || label == "cloned", "{label} after {steps}");
                assert!(now == [3, 1, 1] || label == "back" && is_there, "{label} after {steps}: {now:?}");
                if snapshots.contains(&"a@first".to_owned()) {
                    assert_eq!(bytes(&serve(&pool, "a@first")), [1, 1, 1]);
                    assert_eq!(bytes(&below), [1, 1, 1], "{label} after {steps}");
                }
                drop(pool);
                if !files.has_failed() {
                    assert!(is_done && steps > 3, "{label}: {steps}");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_store_that_somebody_has_written_to_is_not_taken_for_what_it_was() {
    let (place, below) = empty("written");
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "written");
    take(&pool, &["a@first"]).unwrap();
    write(&store, 0, 3);
    let seal = pool.families_directory().join(&pool.catalogue().layered["a"]).join("base.seal");
    wait_until("nothing is said of the store", || seal.exists());
    drop((store, pool));
    write(&below, 2, 6);
    let (pool, _) = place.open(ALL);
    let text = why(open_as(&pool, "a=vat:written,layers=p"));
    assert!(text.contains("vat:written") && text.contains("a mixture") && text.contains("base.seal"), "{text}");
    assert!(open(&pool, "a@first", "").is_err() && take(&pool, &["a@second"]).is_err());
    write(&below, 2, 1);
    drop(pool);
    let (pool, _) = place.open(ALL);
    assert_eq!(bytes(&over(&pool, "written")), [3, 1, 1]);
}

#[test]
fn another_store_takes_the_place_of_one_only_without_layers() {
    let (place, _) = empty("moved");
    let (pool, _) = place.open(ALL);
    drop(over(&pool, "moved"));
    vat::fill("moved-other", &[4, 4, 4]);
    let other = "a=vat:moved-other,layers=p";
    assert_eq!(bytes(&open_as(&pool, other).unwrap()), [4, 4, 4], "nothing lies over the one before");
    take(&pool, &["a@first"]).unwrap();
    write(&open_as(&pool, other).unwrap(), 0, 5);
    let seal = pool.families_directory().join(&pool.catalogue().layered["a"]).join("base.seal");
    wait_until("nothing is said of the store", || seal.exists());
    drop(pool);
    let (pool, _) = place.open(ALL);
    assert!(why(open_as(&pool, "a=vat:moved,layers=p")).contains("a mixture"));
    drop(pool);
    // The same store at another place.
    vat::put_back("moved-there", vat::take_away("moved-other"));
    let (pool, _) = place.open(ALL);
    assert!(matches!(open(&pool, "a", ""), Err(OpenError::Elsewhere { is_away: true, .. })));
    assert_eq!(bytes(&open_as(&pool, "a=vat:moved-there,layers=p").unwrap()), [5, 4, 4]);
    drop(pool);
    let (pool, _) = place.open(ALL);
    assert_eq!(bytes(&serve(&pool, "a")), [5, 4, 4], "it is remembered");
    drop(pool);
    vat::fill("moved-there", &[4, 4]);
    let (pool, _) = place.open(ALL);
    assert!(open(&pool, "a", "").is_err(), "it is shorter");
}

#[test]
fn a_store_that_its_owner_makes_longer_shows_nothing_of_that_under_layers() {
    let (place, _) = empty("longer");
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "longer");
    let refused = store.resize(4 * BLOCK as u64);
    assert!(matches!(refused, Err(ResizeError::Fixed(_))) && !store.capabilities().grows, "{refused:?}");
    take(&pool, &["a@first"]).unwrap();
    write(&store, 0, 2);
    let refused = store.resize(4 * BLOCK as u64);
    assert!(matches!(refused, Err(ResizeError::Fixed(_))) && !store.capabilities().grows, "{refused:?}");
    pool.make_clone(&id("a@first"), "c").unwrap();
    let clone = serve(&pool, "c");
    clone.resize(4 * BLOCK as u64).unwrap();
    assert_eq!(bytes(&clone), [1, 1, 1, 0], "it has room of its own");
    drop((store, clone, pool));
    let vat = vat::take_away("longer");
    vat.resize(5 * BLOCK as u64).unwrap();
    vat::put_back("longer", Arc::clone(&vat));
    let below = vat as Arc<dyn Store>;
    (3..5).for_each(|block| write(&below, block, 8));
    let (pool, _) = place.open(ALL);
    assert_eq!(bytes(&over(&pool, "longer")), [2, 1, 1]);
    assert_eq!(bytes(&serve(&pool, "c")), [1, 1, 1, 0]);
    delete(&pool, "c").and_then(|()| pool.delete_snapshot(&id("a@first"))).unwrap();
    let store = over(&pool, "longer");
    wait_until("nothing is merged back", || bytes(&below) == [2, 1, 1, 8, 8]);
    drop(store);
    drop(pool);
    let (pool, _) = place.open(ALL);
    assert_eq!(bytes(&over(&pool, "longer")), [2, 1, 1, 8, 8], "as any volume on a disk that is longer now");
}

#[test]
fn what_was_cloned_is_never_written_to_the_store_of_its_source() {
    let (place, below) = empty("clones");
    let (pool, _) = place.open(ALL);
    drop(over(&pool, "clones"));
    take(&pool, &["a@first"]).unwrap();
    pool.make_clone(&id("a@first"), "c").unwrap();
    write(&serve(&pool, "c"), 0, 7);
    delete(&pool, "a").unwrap();
    for _ in 0..2 {
        let family = pool.family("c", Default::default()).unwrap();
        wait_until("what nobody needs stays", || !family.tree.is_untidy());
        drop(family);
        assert_eq!((bytes(&below), bytes(&serve(&pool, "c"))), (vec![1, 1, 1], vec![7, 1, 1]));
    }
    drop(pool);
    let (pool, _) = place.open(ALL);
    let clone = serve(&pool, "c");
    write(&clone, 1, 8);
    take(&pool, &["c@one"]).and_then(|()| pool.delete_snapshot(&id("c@one"))).unwrap();
    let family = pool.family("c", Default::default()).unwrap();
    wait_until("what nobody needs stays", || !family.tree.is_untidy());
    assert_eq!((bytes(&below), bytes(&clone)), (vec![1, 1, 1], vec![7, 8, 1]));
}

#[test]
fn what_is_readonly_can_be_cloned_and_stays_what_it_is() {
    let (place, below) = empty("golden");
    let (pool, _) = place.open(ALL);
    let golden = open_as(&pool, "a=vat:golden,readonly,layers=p").unwrap();
    assert!(golden.geometry().read_only);
    take(&pool, &["a@first"]).unwrap();
    for clone in ["c", "d"] {
        pool.make_clone(&id("a@first"), clone).unwrap();
        write(&serve(&pool, clone), 1, 5);
    }
    assert_eq!((bytes(&golden), bytes(&below)), (vec![1, 1, 1], vec![1, 1, 1]));
    drop(golden);
    delete(&pool, "d").and_then(|()| pool.delete_snapshot(&id("a@first"))).unwrap();
    drop(pool);
    let (pool, _) = place.open(ALL);
    assert_eq!((bytes(&serve(&pool, "c")), bytes(&below)), (vec![1, 5, 1], vec![1, 1, 1]));
}

#[test]
fn a_store_that_is_away_keeps_only_what_is_made_of_it_from_being_served() {
    let (place, _) = empty("away");
    fs::write(place.0.join("b.img"), vec![2; BLOCK]).unwrap();
    let (pool, _) = place.open(ALL);
    drop(over(&pool, "away"));
    take(&pool, &["a@first", "b@first"]).unwrap();
    pool.make_clone(&id("a@first"), "c").unwrap();
    drop(pool);
    let vat = vat::take_away("away");
    let (pool, _) = place.open(ALL);
    for text in ["a=vat:away,layers=p", "c=pool:p", "x=pool:p/a@first,readonly"] {
        let spec: VolumeSpec = text.parse().unwrap();
        let content = spec.pool().and_then(|place| place.snapshot.clone()).unwrap_or_else(|| spec.name.to_string());
        let file = pool.file_of(&content, spec.below_layers());
        let opened = spec.in_pool("p", file).store.open();
        assert!(matches!(opened, Err(OpenError::Elsewhere { is_away: true, .. })), "{text}: {opened:?}");
    }
    assert_eq!(bytes(&serve(&pool, "b")), [2]);
    vat::put_back("away", vat);
    assert_eq!((bytes(&over(&pool, "away")), bytes(&serve(&pool, "c"))), (vec![1; 3], vec![1; 3]));
}

#[test]
fn a_volume_of_the_pool_is_not_taken_for_one_over_another_store() {
    let (place, _) = empty("taken");
    fs::write(place.0.join("a.img"), vec![2; BLOCK]).unwrap();
    let (pool, _) = place.open(ALL);
    assert!(why(open_as(&pool, "a=vat:taken,layers=p")).contains("has content of a volume called a"));
    assert_eq!(bytes(&serve(&pool, "a")), [2]);
    drop(pool);
    let config: PoolConfig = format!("p={},limit=12K", place.0.display()).parse().unwrap();
    let pool = Arc::new(Pool::open(&config, None).unwrap());
    let text = why(open_as(&pool, "e=vat:taken,layers=p"));
    assert!(text.contains("has a limit") && !pool.has("e"), "{text}");
}

#[test]
fn what_is_below_layers_is_no_other_volume() {
    let (place, _) = empty("alone");
    let config: PoolConfig = format!("p={}", place.0.display()).parse().unwrap();
    let pools = Pools::open(std::slice::from_ref(&config), None).unwrap();
    let spec = |text: &str| pools.place(text.parse().unwrap()).unwrap();
    let own = spec("a=vat:alone,layers=p");
    let plain = spec("b=vat:alone");
    pools.check_not_below(&own).and_then(|()| pools.check_not_below(&plain)).unwrap();
    let store = own.store.open().unwrap();
    let other = spec("b=vat:alone,layers=p");
    assert!([&plain, &other].into_iter().all(|spec| pools.check_not_below(spec).is_err()), "it is served");
    pools.check_not_below(&own).unwrap();
    let pool = pools.iter().next().unwrap();
    take(pool, &["a@first"]).unwrap();
    drop(store);
    let refused = pools.check_not_below(&plain).unwrap_err().to_string();
    assert!(refused.contains("vat:alone is below the layers of volume a in pool p"), "{refused}");
    pools.check_not_below(&spec("b=vat:other")).unwrap();
    pool.delete_snapshot(&id("a@first")).unwrap();
    let store = own.store.open().unwrap();
    let family = pool.family("a", Default::default()).unwrap();
    wait_until("layers stay", || family.tree.layers_count() == 0);
    drop((store, family));
    wait_until("nothing is over it any more", || pools.check_not_below(&plain).is_ok());
    let [one, other] = ["a=vat:alone,layers=p", "b=vat:alone"].map(|text| VolumeConfig {
        lun: Default::default(),
        spec: text.parse().unwrap(),
        origin: crate::config::Origin::Management,
    });
    assert!(pools.check_alone(&one.spec, [one.clone(), other].iter()).is_err());
    assert!(pools.check_alone(&one.spec, [one.clone()].iter()).is_ok());
}
