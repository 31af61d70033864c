use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

/// Directories of pools, until the test ends.
struct Places(PathBuf);

impl Places {
    fn new(label: &str) -> Places {
        sanwire_store_file::register();
        let directory = std::env::temp_dir().join(format!("sanwire-pools-{label}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Places(directory)
    }

    fn pool(&self, text: &str) -> PoolConfig {
        let (name, options) =
            text.split_once(',').map_or((text, String::new()), |(name, rest)| (name, format!(",{rest}")));
        let directory = self.0.join(name);
        fs::create_dir_all(&directory).unwrap();
        format!("{name}={}{options}", directory.display()).parse().unwrap()
    }

    fn open(&self, pools: &[&str]) -> Result<Pools, PoolError> {
        let known = StateFile::new(self.0.join("state/pools.json"), crate::kept::Keeps::POOLS);
        Pools::open(&pools.iter().map(|pool| self.pool(pool)).collect::<Vec<_>>(), Some(&known))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn placed(pools: &Pools, text: &str) -> VolumeSpec {
    pools.place(text.parse().unwrap()).unwrap()
}

#[test]
fn a_volume_that_names_no_pool_stays_where_it_is_when_another_pool_becomes_the_default() {
    let places = Places::new("default");
    let pools = places.open(&["fast,default", "slow"]).unwrap();
    let spec = placed(&pools, "data=pool:,size=1M");
    assert_eq!(spec.to_string(), "data=pool:fast,size=1M");
    let file = places.0.join("fast/data.img");
    drop(spec.store.open().unwrap());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    drop(pools);
    let pools = places.open(&["fast", "slow,default"]).unwrap();
    let again = placed(&pools, "data=pool:,size=1M");
    assert_eq!(again, spec);
    assert_eq!(placed(&pools, "other=pool:,size=1M").to_string(), "other=pool:slow,size=1M");
    let longer = again.with_size(2 << 20);
    assert_eq!(longer.store.backing.place(), sanwire_store::kind::Place::File(&file), "it keeps its place");
    drop(pools);
    fs::write(places.0.join("slow/data.img"), [0; 512]).unwrap();
    let pools = places.open(&["fast", "slow", "third,default"]).unwrap();
    assert!(matches!(pools.place("data=pool:".parse().unwrap()), Err(PoolError::Ambiguous { .. })));
    let nowhere = placed(&pools, "data=pool:fest").store.open().unwrap_err().to_string();
    assert!(nowhere.contains("no pool called fest"), "{nowhere}");
}

/// The file system of its pool was lost, and the others are to be served on.
#[test]
fn a_volume_that_may_be_in_a_pool_of_before_is_not_made_anew_in_another_one() {
    let places = Places::new("absent");
    let pools = places.open(&["fast,default", "slow"]).unwrap();
    fs::write(places.0.join("slow/here.img"), [0; 512]).unwrap();
    drop(placed(&pools, "data=pool:,size=1M").store.open().unwrap());
    drop(pools);
    let pools = places.open(&["slow"]).unwrap();
    let refused = pools.place("data=pool:,size=1M".parse().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("fast"), "{refused}");
    assert_eq!(placed(&pools, "here=pool:").to_string(), "here=pool:slow");
    assert_eq!(placed(&pools, "data=pool:slow,size=1M").to_string(), "data=pool:slow,size=1M", "if that is meant");
}

#[test]
fn the_limit_is_for_all_volumes_of_a_pool_and_the_refusal_tells_what_fits() {
    let places = Places::new("limit");
    let pools = places.open(&["fast,limit=10M"]).unwrap();
    let [a, b] = ["a=pool:fast,size=6M", "b=pool:fast,size=5M"].map(|text| placed(&pools, text));
    let room = pools.take_room(&a).unwrap().unwrap();
    let refused = pools.take_room(&b).err().unwrap().to_string();
    assert!(refused.contains("volume b can have 4 MiB at the most"), "{refused}");
    drop(room);
    pools.take_room(&b).unwrap().unwrap().settle(5 << 20);
    assert!(matches!(pools.take_room(&a), Err(PoolError::Full { largest_bytes, .. }) if largest_bytes == 5 << 20));
    let longer = pools.take_room_of(&b, 10 << 20).unwrap();
    assert!(pools.take_room_of(&a, 1).is_err());
    drop(longer);
    pools.take_room_of(&a, 5 << 20).unwrap().unwrap().settle(5 << 20);
    assert!(pools.take_room(&b).is_ok(), "what is there is served");
    let status = pools.iter().next().unwrap().status(true).unwrap();
    assert_eq!((status.provisioned_bytes, status.largest_bytes, status.volumes), (10 << 20, Some(0), 2));
}

#[test]
fn one_server_uses_a_pool_and_an_empty_mount_point_is_not_taken_for_it() {
    let places = Places::new("own");
    let pools = places.open(&["fast"]).unwrap();
    let id = pools.iter().next().unwrap().id().to_owned();
    drop(pools);
    let moved = places.0.join("away");
    fs::rename(places.0.join("fast"), &moved).unwrap();
    assert!(matches!(places.open(&["fast"]), Err(PoolError::Replaced { .. })), "its file system is not mounted");
    fs::remove_dir_all(places.0.join("fast")).unwrap();
    fs::rename(&moved, places.0.join("fast")).unwrap();
    let pools = places.open(&["fast"]).unwrap();
    assert_eq!(pools.iter().next().unwrap().id(), id);
    let lock = places.0.join("fast/.sanwire-pool.lock");
    let held = crate::kept::FileLock::take(&lock, std::time::Duration::ZERO);
    assert!(matches!(held, Err(crate::kept::LockError::Held { holder: Some(_) })), "{held:?}");
}

#[test]
fn pools_that_do_not_go_together_are_refused() {
    let check = |texts: &[&str]| {
        let pools = texts.iter().map(|text| text.parse()).collect::<Result<Vec<PoolConfig>, _>>()?;
        PoolConfig::check_all(&pools)
    };
    for (texts, part) in [
        (&["a=/x", "a=/y"][..], "two pools are called a"),
        (&["a=/x", "b=/x"], "the same directory"),
        (&["a=/x,default", "b=/y,default"], "both the default"),
        (&["a=x"], "absolute path"),
        (&["a/b=/x"], "no name of a pool"),
        (&["a=/x,limit=much"], "no limit"),
        (&["a=/x,quota=1G"], "is no pool"),
    ] {
        let error = check(texts).unwrap_err().to_string();
        assert!(error.contains(part), "{texts:?}: {error}");
    }
    assert_eq!(check(&["a=/x,limit=1G,default", "b=/y"]), Ok(()));
}

#[test]
fn a_pool_that_is_gone_for_good_is_forgotten_when_that_is_said() {
    let places = Places::new("forgotten");
    drop(places.open(&["fast,default", "slow"]).unwrap());
    let pools = places.open(&["slow"]).unwrap();
    let new = || "data=pool:,size=1M".parse::<VolumeSpec>().unwrap();
    assert!(matches!(pools.place(new()), Err(PoolError::Absent { .. })));
    assert!(matches!(pools.forget("slow"), Err(PoolError::InService(_))));
    assert!(matches!(pools.forget("never"), Err(PoolError::Unknown(_))));
    pools.forget("fast").unwrap();
    assert!(pools.place(new()).is_ok() && matches!(pools.forget("fast"), Err(PoolError::Unknown(_))));
    drop(pools);
    assert!(places.open(&["slow"]).unwrap().place(new()).is_ok(), "also at the next start");
}

#[test]
fn nothing_is_changed_where_another_directory_is_in_the_pool_s_place() {
    let places = Places::new("moved");
    let pools = places.open(&["fast"]).unwrap();
    let spec = placed(&pools, "data=pool:fast,size=1M");
    drop(spec.store.open().unwrap());
    let (here, away) = (places.0.join("fast"), places.0.join("elsewhere"));
    fs::rename(&here, &away).unwrap();
    for is_there in [false, true] {
        if is_there {
            fs::create_dir(&here).unwrap();
        }
        let pool = pools.iter().next().unwrap();
        let refused = [
            pools.take_room(&spec).err(),
            pools.protect(&spec, true).err(),
            pool.capture(&"data@one".parse().unwrap()).err(),
            pool.roll_back(&"data@one".parse().unwrap()).err(),
            pool.begin_to_delete("data", true).err(),
        ];
        assert!(refused.iter().all(|error| matches!(error, Some(PoolError::Moved { .. }))), "{refused:?}");
    }
    assert_eq!(fs::read_dir(&here).unwrap().count(), 0);
    fs::remove_dir(&here).unwrap();
    fs::rename(&away, &here).unwrap();
    pools.protect(&spec, true).unwrap();
    assert!(pools.protects(&spec));
}
