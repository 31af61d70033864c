//! Whose the store below layers is, and what is known of it.

use super::*;

/// Pools that have this one alone.
fn pools_of(place: &Directory) -> Pools {
    let config: PoolConfig = format!("p={}", place.0.display()).parse().unwrap();
    Pools::open(std::slice::from_ref(&config), None).unwrap()
}

fn pool_of(pools: &Pools) -> &Arc<Pool> {
    pools.iter().next().unwrap()
}

fn spec(text: &str) -> VolumeSpec {
    text.parse().unwrap()
}

fn config(pools: &Pools, text: &str) -> VolumeConfig {
    let spec = pools.place(spec(text)).unwrap();
    VolumeConfig { lun: Default::default(), spec, origin: crate::config::Origin::Management }
}

/// Waits until nothing is to be copied any more.
fn settle(pool: &Arc<Pool>, volume: &str) {
    let family = pool.family(volume, Default::default()).unwrap();
    wait_until("what nobody needs stays", || !family.tree.is_untidy());
}

#[test]
fn a_new_volume_of_a_name_takes_nothing_from_the_clones_of_the_former_one() {
    let (place, _) = empty("renewed");
    vat::fill("renewed-new", &[4, 4, 4]);
    let pools = pools_of(&place);
    let pool = pool_of(&pools);
    drop(over(pool, "renewed"));
    take(pool, &["a@first"]).unwrap();
    pool.make_clone(&id("a@first"), "c").unwrap();
    delete(pool, "a").unwrap();
    let renewed = "a=vat:renewed-new,layers=p";
    assert_eq!(bytes(&open_as(pool, renewed).unwrap()), [4, 4, 4]);
    let refused = pools.check_not_below(&spec("x=vat:renewed")).unwrap_err().to_string();
    assert!(refused.contains("volume c in pool p"), "{refused}");
    drop(pools);
    let pools = pools_of(&place);
    let config = |text| config(&pools, text);
    pools.settle(&[config(renewed), config("c=pool:p")], None).unwrap();
    let pool = pool_of(&pools);
    assert_eq!(bytes(&serve(pool, "c")), [1, 1, 1]);
    assert_eq!(bytes(&open_as(pool, renewed).unwrap()), [4, 4, 4]);
    assert!(pools.check_not_below(&spec("x=vat:renewed")).is_err());
}

#[test]
fn a_clone_with_the_name_of_its_source_is_not_that() {
    // Whichever step of the deletion fails, once, or for ever.
    for after in [0, ALL] {
        for steps in 0.. {
            let (place, below) = empty("namesake");
            let (pool, files) = place.open(ALL);
            drop(over(&pool, "namesake"));
            take(&pool, &["a@first"]).unwrap();
            pool.make_clone(&id("a@first"), "c").unwrap();
            write(&serve(&pool, "c"), 0, 7);
            files.fail_after(steps, after);
            let (is_deleted, has_failed) = (delete(&pool, "a").is_ok(), files.has_failed());
            files.fail_after(ALL, ALL);
            let pool = if after == 0 {
                drop(pool);
                place.open(ALL).0
            } else {
                pool
            };
            if !is_deleted {
                delete(&pool, "a").unwrap();
            }
            make_namesake(&pool);
            drop(pool);
            for _ in 0..2 {
                check_namesake(&place, &below);
            }
            if !has_failed {
                assert!(is_deleted && steps > 5, "{steps}");
                break;
            }
        }
    }
}

/// Makes a clone of `c` that has the name of its source, and removes `c`.
fn make_namesake(pool: &Arc<Pool>) {
    take(pool, &["c@x"]).unwrap();
    pool.make_clone(&id("c@x"), "a").unwrap();
    assert!(why(open_as(pool, "a=vat:namesake,layers=p")).contains("has content of a volume called a"));
    delete(pool, "c").unwrap();
}

/// The clone is served, and its store stays as it is.
fn check_namesake(place: &Directory, below: &Arc<dyn Store>) {
    let (pool, _) = place.open(ALL);
    let clone = serve(&pool, "a");
    settle(&pool, "a");
    write(&clone, 1, 8);
    assert_eq!((bytes(below), &bytes(&clone)[..3]), (vec![1, 1, 1], &[7, 8, 1][..]));
    clone.resize(4 * BLOCK as u64).unwrap();
    take(&pool, &["a@y"]).and_then(|()| pool.delete_snapshot(&id("a@y"))).unwrap();
    settle(&pool, "a");
    assert_eq!((bytes(below), bytes(&clone)), (vec![1, 1, 1], vec![7, 8, 1, 0]));
}

#[test]
fn what_was_only_asked_for_changes_nothing() {
    let (place, _) = empty("asked");
    vat::fill("asked-other", &[4, 4, 4]);
    let pools = pools_of(&place);
    let pool = pool_of(&pools);
    drop(over(pool, "asked"));
    take(pool, &["a@first"]).unwrap();
    pool.make_clone(&id("a@first"), "c").unwrap();
    drop(pools);
    let pools = pools_of(&place);
    let pool = pool_of(&pools);
    let other = pools.place(spec("a=vat:asked-other,layers=p")).unwrap();
    assert!(pools.check_not_below(&spec("x=vat:asked")).is_err());
    assert_eq!(bytes(&serve(pool, "c")), [1, 1, 1]);
    settle(pool, "c");
    drop(other);
}

#[test]
fn what_the_server_starts_with_says_where_the_store_is_now() {
    let (place, _) = empty("letters");
    let pools = pools_of(&place);
    drop(over(pool_of(&pools), "letters"));
    take(pool_of(&pools), &["a@first"]).unwrap();
    pool_of(&pools).make_clone(&id("a@first"), "c").unwrap();
    drop(pools);
    let vat = vat::take_away("letters");
    vat::put_back("letters-now", vat);
    vat::fill("letters", &[5, 5, 5]);
    let pools = pools_of(&place);
    let config = |text| config(&pools, text);
    pools.settle(&[config("c=pool:p"), config("a=vat:letters-now,layers=p")], None).unwrap();
    // Another disk has the place that it had.
    pools.check_not_below(&spec("x=vat:letters")).unwrap();
    assert!(pools.check_not_below(&spec("x=vat:letters-now")).is_err());
    assert_eq!(bytes(&serve(pool_of(&pools), "c")), [1, 1, 1]);
}

#[test]
fn all_layers_over_a_store_are_asked_for() {
    for _ in 0..8 {
        let (place, _) = empty("several");
        let pools = pools_of(&place);
        let pool = pool_of(&pools);
        drop(over(pool, "several"));
        drop(open_as(pool, "b=vat:several,layers=p").unwrap());
        take(pool, &["b@first"]).unwrap();
        for text in ["y=vat:several", "a=vat:several,layers=p"] {
            let refused = pools.check_not_below(&spec(text).in_pool("p", pool.file_of("a", None)));
            assert!(refused.is_err_and(|error| error.to_string().contains("layers of volume b")), "{text}");
        }
    }
}

#[test]
fn a_volume_of_which_its_pool_knows_the_store_shares_that_with_nobody() {
    let (place, _) = empty("shared");
    let pools = pools_of(&place);
    drop(over(pool_of(&pools), "shared"));
    let (own, data) = (config(&pools, "a=pool:p"), config(&pools, "data=vat:shared"));
    wait_until("somebody has it", || pools.check_not_below(&data.spec).is_ok());
    let refused = pools.check_alone(&own.spec, [data.clone()].iter()).unwrap_err().to_string();
    assert!(refused.contains("is served as volume data"), "{refused}");
    assert!(pools.check_alone(&data.spec, [own.clone()].iter()).is_err());
    assert!(pools.place_all(&mut [data, own.clone()]).is_err(), "in one configuration");
    pools.check_alone(&own.spec, [own.clone(), config(&pools, "data=vat:other")].iter()).unwrap();
}

#[test]
fn what_is_a_part_of_a_store_is_not_written_below_layers() {
    let (place, _) = empty("part");
    vat::fill("part+more", &[1, 1, 1]);
    let pools = pools_of(&place);
    let pool = pool_of(&pools);
    drop(over(pool, "part"));
    take(pool, &["a@first"]).unwrap();
    assert!(pools.check_not_below(&spec("y=vat:other+part")).is_err());
    assert!(pools.check_part("vat:part").is_err());
    pools.check_part("vat:more").unwrap();
    drop(open_as(pool, "b=vat:part+more,layers=p").unwrap());
    take(pool, &["b@first"]).unwrap();
    assert!(pools.check_not_below(&spec("y=vat:more")).is_err());
    let whole = config(&pools, "b=vat:part+more,layers=p");
    assert!(pools.check_alone(&spec("y=vat:more"), [whole].iter()).is_err());
}

#[test]
fn what_is_accepted_of_a_clone_is_not_accepted_of_the_store() {
    let (place, _) = empty("accepted");
    let file = place.0.join("disk");
    fs::write(&file, vec![1; 3 * BLOCK]).unwrap();
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    let own = format!("a=file:{},block=4096,layers=p", file.display());
    let (pool, _) = place.open(ALL);
    let open = |pool: &Arc<Pool>, text: &str, acceptance| {
        let spec: VolumeSpec = text.parse().unwrap();
        let expected = Expectation {
            name: &spec.name,
            known: None,
            known_below: None,
            is_kept: true,
            acceptance,
            fresh: [1; 16],
            fallback: [2; 16],
        };
        let file = pool.file_of(&spec.name, spec.below_layers());
        spec.clone().in_pool("p", file).store.open_volume(&expected).map(|(store, _)| store)
    };
    drop(open(&pool, &own, Acceptance::Known).unwrap());
    if rustix::fs::getxattr(&file, sanwire_store::VOLUME_MARK, &mut [0; 256]).is_err() {
        return;
    }
    take(&pool, &["a@first"]).and_then(|()| pool.make_clone(&id("a@first"), "c")).unwrap();
    let seal = pool.families_directory().join(&pool.catalogue().layered["a"]).join("base.seal");
    drop(serve(&pool, "c"));
    wait_until("nothing is said of the store", || seal.exists());
    drop(pool);
    fs::remove_file(&file).unwrap();
    fs::write(&file, vec![4; 3 * BLOCK]).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
    let (pool, _) = place.open(ALL);
    for acceptance in [Acceptance::Known, Acceptance::Adopted, Acceptance::Renewed] {
        let refused = open(&pool, "c=pool:p", acceptance);
        assert!(matches!(refused, Err(OpenError::Replaced { .. })), "{acceptance:?}: {refused:?}");
    }
    assert_eq!(bytes(&open(&pool, &own, Acceptance::Adopted).unwrap()), [4, 4, 4]);
}
