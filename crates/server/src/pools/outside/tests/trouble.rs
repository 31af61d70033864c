//! Stores that are not what they were, or fail.

use std::os::unix::fs::FileExt;
use std::sync::mpsc;

use sanwire_store::ErrorKind;

use super::*;

/// Where the layers of `a` are.
fn layers_of(pool: &Pool) -> std::path::PathBuf {
    pool.families_directory().join(&pool.catalogue().layered["a"])
}

/// A snapshot is there, and it is kept how the store below it is.
fn take_sealed(pool: &Pool) {
    take(pool, &["a@first"]).unwrap();
    let seal = layers_of(pool).join("base.seal");
    wait_until("nothing is said of the store", || seal.exists());
}

#[test]
fn a_file_that_somebody_has_written_to_and_made_longer_is_not_what_it_was() {
    let grows = format!(",size={},grow", 5 * BLOCK);
    for (label, keys, at, length, is_it) in [
        ("file-longer", "", None, 5, true),
        ("file-grown", &*grows, None, 3, true),
        ("file-written", "", Some(0), 5, false),
        ("file-written-and-grown", &*grows, Some(1), 3, false),
    ] {
        let (place, _) = empty(label);
        let path = place.0.join("disk");
        fs::write(&path, vec![1; 3 * BLOCK]).unwrap();
        let own = |keys: &str| format!("a=file:{}{keys},block=4096,layers=p", path.display());
        let (pool, _) = place.open(ALL);
        let store = open_as(&pool, &own("")).unwrap();
        take_sealed(&pool);
        write(&store, 0, 3);
        drop((store, pool));
        let file = fs::File::options().write(true).open(&path).unwrap();
        at.into_iter().for_each(|block: usize| file.write_all_at(&[6; BLOCK], (block * BLOCK) as u64).unwrap());
        // To set the length that it has would change its time.
        if length > 3 {
            file.set_len((length * BLOCK) as u64).unwrap();
        }
        let (pool, _) = place.open(ALL);
        let opened = open_as(&pool, &own(keys));
        match is_it {
            true => assert_eq!(bytes(&opened.unwrap())[..3], [3, 1, 1], "{label}"),
            false => assert!(why(opened).contains("a mixture"), "{label}"),
        }
    }
}

#[test]
fn a_store_that_is_shorter_takes_the_place_of_another_one_without_layers() {
    let (place, _) = empty("shorter");
    let (pool, _) = place.open(ALL);
    drop(over(&pool, "shorter"));
    if !crate::pools::family::is_marked(&place.0.join("a.img")) {
        return;
    }
    vat::fill("shorter-now", &[4, 4]);
    drop(pool);
    for _ in 0..2 {
        let (pool, _) = place.open(ALL);
        assert_eq!(bytes(&open_as(&pool, "a=vat:shorter-now,layers=p").unwrap()), [4, 4]);
        assert_eq!(fs::metadata(place.0.join("a.img")).unwrap().len(), 2 * BLOCK as u64);
    }
}

#[test]
fn a_file_that_is_put_there_while_a_store_is_opened_stays() {
    let (place, below) = empty("putting");
    let (pool, files) = place.open(ALL);
    let path = place.0.join("a.img");
    files.hang.at(Some("make"));
    thread::scope(|scope| {
        let opening = scope.spawn(|| open_as(&pool, "a=vat:putting,layers=p").map(drop));
        wait_until("no file is made", || files.hang.waiting() == 1);
        fs::write(&path, vec![8; BLOCK]).unwrap();
        files.hang.at(None);
        assert!(opening.join().unwrap().is_err());
    });
    assert_eq!(fs::read(&path).unwrap(), vec![8; BLOCK]);
    assert!(pool.catalogue().layered.is_empty());
    assert_eq!(fs::read_dir(place.0.join(DIRECTORY)).unwrap().count(), 0, "nothing is left");
    fs::remove_file(&path).unwrap();
    assert_eq!((bytes(&over(&pool, "putting")), bytes(&below)), (vec![1; 3], vec![1; 3]));
}

#[test]
fn of_two_first_openings_of_a_volume_one_makes_it() {
    let (place, _) = empty("twice");
    let (pool, files) = place.open(ALL);
    let families = || fs::read_dir(place.0.join(DIRECTORY)).map_or(0, Iterator::count);
    files.hang.at(Some("save"));
    thread::scope(|scope| {
        let first = scope.spawn(|| open_as(&pool, "a=vat:twice,layers=p").map(drop));
        wait_until("nothing is kept", || files.hang.waiting() == 1);
        let other = scope.spawn(|| open_as(&pool, "a=vat:twice,layers=p"));
        wait_until("the other one has no layers", || families() == 2);
        files.hang.at(None);
        first.join().unwrap().unwrap();
        assert!(why(other.join().unwrap()).contains("has content of a volume called a"));
    });
    assert_eq!(families(), 1);
    assert_eq!(bytes(&over(&pool, "twice")), [1, 1, 1]);
}

#[test]
fn what_is_not_known_any_more_of_a_store_is_what_its_volume_says() {
    for damage in [Some("{"), None] {
        let (place, below) = empty("lost");
        vat::fill("lost-other", &[5, 5, 5]);
        let config: PoolConfig = format!("p={}", place.0.display()).parse().unwrap();
        let open = || Pools::open(std::slice::from_ref(&config), None).unwrap();
        let pools = open();
        let store = over(pools.iter().next().unwrap(), "lost");
        take_sealed(pools.iter().next().unwrap());
        write(&store, 0, 3);
        let note = layers_of(pools.iter().next().unwrap()).join("below.json");
        drop((store, pools));
        damage.map_or_else(|| fs::remove_file(&note), |text| fs::write(&note, text)).unwrap();
        let pools = open();
        let pool = pools.iter().next().unwrap();
        assert!(why(self::open(pool, "a", "")).contains("with layers="));
        let spec = |text: &str| text.parse::<VolumeSpec>().unwrap();
        let own = pools.place(spec("a=vat:lost,layers=p")).unwrap();
        let own = VolumeConfig { lun: Default::default(), spec: own, origin: crate::config::Origin::CommandLine };
        pools.settle(&[own], None).unwrap();
        assert!(pools.check_not_below(&spec("x=vat:lost")).is_err(), "the configuration says so");
        assert!(why(open_as(pool, "a=vat:lost-other,layers=p")).contains("a mixture"));
        let family = pool.catalogue().layered["a"].clone();
        wait_until("somebody has it", || !pool.is_open(&family));
        assert_eq!(bytes(&over(pool, "lost")), [3, 1, 1]);
        drop(pools);
        let pools = open();
        assert_eq!(bytes(&serve(pools.iter().next().unwrap(), "a")), [3, 1, 1], "it is known again");
        assert!(pools.check_not_below(&spec("x=vat:lost")).is_err());
        assert_eq!(bytes(&below), [1, 1, 1]);
    }
}

#[test]
fn what_cannot_be_copied_back_now_is_when_the_store_is_there_again() {
    let (place, below) = empty("returning");
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "returning");
    take(&pool, &["a@first"]).unwrap();
    write(&store, 1, 3);
    vat::fail_writes("returning", 5);
    pool.delete_snapshot(&id("a@first")).unwrap();
    wait_until("nothing is merged back", || bytes(&below) == [1, 3, 1]);
    assert_eq!(vat::failing("returning"), 0);
}

#[test]
fn a_block_that_cannot_be_read_keeps_nothing_away_that_does_not_need_it() {
    let place = Directory::new("unreadable");
    let _ = fs::remove_dir_all(&place.0);
    fs::create_dir_all(&place.0).unwrap();
    // Longer than what is read at once.
    const BLOCKS: usize = (2 << 20) / BLOCK;
    let below = vat::fill("unreadable", &[1; BLOCKS]);
    let (pool, _) = place.open(ALL);
    drop(over(&pool, "unreadable"));
    take_sealed(&pool);
    drop(pool);
    vat::fail_reads("unreadable", Some(ErrorKind::Gone));
    let (pool, _) = place.open(ALL);
    let refused = open_as(&pool, "a=vat:unreadable,layers=p");
    assert!(matches!(refused, Err(OpenError::Elsewhere { is_away: true, .. })), "{refused:?}");
    vat::fail_reads("unreadable", Some(ErrorKind::Unreadable));
    drop(over(&pool, "unreadable"));
    drop(pool);
    write(&below, BLOCKS - 1, 6);
    let (pool, _) = place.open(ALL);
    assert!(why(open_as(&pool, "a=vat:unreadable,layers=p")).contains("a mixture"), "the rest is compared");
}

#[test]
fn a_seal_that_is_damaged_says_so() {
    let (place, _) = empty("seal");
    let (pool, _) = place.open(ALL);
    drop(over(&pool, "seal"));
    take_sealed(&pool);
    let seal = layers_of(&pool).join("base.seal");
    drop(pool);
    fs::write(&seal, "{").unwrap();
    let (pool, _) = place.open(ALL);
    let text = why(open_as(&pool, "a=vat:seal,layers=p"));
    assert!(text.contains("is damaged") && text.contains("remove") && text.contains("base.seal"), "{text}");
    fs::remove_file(&seal).unwrap();
    drop(pool);
    let (pool, _) = place.open(ALL);
    assert_eq!(bytes(&over(&pool, "seal")), [1, 1, 1]);
}

#[test]
fn a_store_whose_pool_has_forgotten_all_can_have_layers_again() {
    let (place, below) = empty("forgotten");
    let (pool, _) = place.open(ALL);
    drop(over(&pool, "forgotten"));
    drop(pool);
    fs::remove_file(place.0.join(".sanwire-pool.json")).unwrap();
    fs::remove_dir_all(place.0.join(DIRECTORY)).unwrap();
    let path = place.0.join("a.img");
    if !crate::pools::family::is_marked(&path) {
        return;
    }
    // What holds something is not given up.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[7; BLOCK], 0).unwrap();
    let (pool, _) = place.open(ALL);
    assert!(why(open_as(&pool, "a=vat:forgotten,layers=p")).contains("has content of a volume called a"));
    drop(pool);
    file.set_len(0).and_then(|()| file.set_len(3 * BLOCK as u64)).unwrap();
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "forgotten");
    take(&pool, &["a@first"]).unwrap();
    write(&store, 0, 2);
    assert_eq!((bytes(&store), bytes(&below)), (vec![2, 1, 1], vec![1, 1, 1]));
}

#[test]
fn a_volume_is_not_deleted_while_its_store_holds_a_part_of_it() {
    let (place, below) = empty("halfway");
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "halfway");
    take_sealed(&pool);
    write(&store, 1, 3);
    pool.check_copied_back("a").expect("the store is what it was at the snapshot");
    vat::fail_writes("halfway", usize::MAX);
    pool.delete_snapshot(&id("a@first")).unwrap();
    wait_until("nothing is to be copied", || pool.check_copied_back("a").is_err());
    vat::fail_writes("halfway", 0);
    wait_until("nothing is merged back", || pool.check_copied_back("a").is_ok());
    assert_eq!(bytes(&below), [1, 3, 1]);
}

#[test]
fn a_store_that_hangs_keeps_neither_writes_nor_snapshots_waiting_when_the_last_one_goes() {
    let (place, below) = empty("hangs");
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "hangs");
    take(&pool, &["a@first"]).unwrap();
    write(&store, 0, 2);
    let hang = vat::Hang::of("hangs");
    pool.delete_snapshot(&id("a@first")).unwrap();
    wait_until("nothing is copied back", || hang.waiting() > 0);
    let (tell, told) = mpsc::channel();
    let (of_store, of_pool) = (Arc::clone(&store), Arc::clone(&pool));
    let user = thread::spawn(move || {
        (0..3).for_each(|block| write(&of_store, block, 5));
        tell.send("written").unwrap();
        take(&of_pool, &["a@second"]).unwrap();
        tell.send("taken").unwrap();
    });
    for done in ["written", "taken"] {
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(done), "it waits for a store that hangs");
    }
    user.join().unwrap();
    assert_eq!((hang.waiting(), bytes(&below)), (1, vec![1, 1, 1]));
    write(&store, 1, 6);
    drop(hang);
    assert_eq!(bytes(&store), [5, 6, 5]);
    pool.delete_snapshot(&id("a@second")).unwrap();
    wait_until("nothing is copied back", || bytes(&below) == [5, 6, 5]);
    drop((store, pool));
    let (pool, _) = place.open(ALL);
    assert_eq!(bytes(&over(&pool, "hangs")), [5, 6, 5]);
}

#[test]
fn a_store_is_asked_nothing_by_a_volume_that_goes_back_to_it_and_has_written_nothing() {
    let (place, _) = empty("unasked");
    let (pool, _) = place.open(ALL);
    let store = over(&pool, "unasked");
    take(&pool, &["a@first"]).unwrap();
    let hang = vat::Hang::of("unasked");
    pool.delete_snapshot(&id("a@first")).unwrap();
    let layers = || fs::read_dir(layers_of(&pool)).unwrap().map(|entry| entry.unwrap().path());
    let is_layer = |path: std::path::PathBuf| path.extension().is_some_and(|end| end == "layer");
    wait_until("a layer is left", || !layers().any(is_layer));
    assert_eq!(hang.waiting(), 0);
    drop((hang, store));
}
