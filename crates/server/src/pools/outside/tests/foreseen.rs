//! What a start would refuse is known without one.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::*;
use crate::pools::obstacles_of_layers;

/// All files below a directory, with when they were changed and what they hold.
fn all(directory: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let changed = path.symlink_metadata().unwrap().modified().unwrap();
        if path.is_dir() {
            found.extend(all(&path));
        }
        found.insert(path.clone(), (changed, fs::read(&path).unwrap_or_default()));
    }
    found
}

#[test]
fn what_a_start_would_refuse_about_layers_is_told_and_nothing_is_touched() {
    let (place, _) = empty("foreseen");
    let [disk, link, other, other_link] =
        ["disk", "link", "other", "other-link"].map(|name| place.0.join(name).display().to_string());
    for file in [&disk, &other] {
        fs::write(file, vec![1; 3 * BLOCK]).unwrap();
    }
    symlink(&disk, &link).unwrap();
    symlink(&other, &other_link).unwrap();
    fs::write(place.0.join("b.img"), vec![7; BLOCK]).unwrap();
    let over = |name: &str, file: &str| format!("{name}=file:{file},block=4096,layers=p");
    let plain = |name: &str, file: &str| format!("{name}=file:{file},block=4096");
    let pools: [PoolConfig; 1] = [format!("p={},snapshots=layers", place.0.display()).parse().unwrap()];
    let obstacles = |volumes: &[String]| {
        let volumes: Vec<VolumeSpec> = volumes.iter().map(|volume| volume.parse().unwrap()).collect();
        let before = all(&place.0);
        let lines = obstacles_of_layers(&pools, &volumes);
        assert_eq!(all(&place.0), before);
        lines
    };
    let (pool, _) = place.open(ALL);
    drop(open_as(&pool, &over("a", &disk)).unwrap());
    let both = [over("a", &disk), plain("x", &link)];
    let lines = obstacles(&both);
    assert!(
        lines.len() == 1 && lines[0].contains("volume x: ") && lines[0].contains("is served as volume a"),
        "{lines:?}"
    );
    assert_eq!(obstacles(&both[1..]), [""; 0], "there are no layers");
    let store = open_as(&pool, &over("a", &disk)).unwrap();
    take(&pool, &["a@first"]).unwrap();
    pool.make_clone(&id("a@first"), "c").unwrap();
    let seal = pool.families_directory().join(&pool.catalogue().layered["a"]).join("base.seal");
    wait_until("nothing is said of the store", || seal.exists());
    // Also while a server uses the pool.
    let rows = [
        (vec![over("a", &disk)], ""),
        (vec!["a=pool:p".into(), "c=pool:p".into(), plain("y", &other)], ""),
        (vec![over("d", &other)], ""),
        (vec![plain("x", &disk)], "is below the layers of volume a in pool p"),
        (vec![plain("x", &link)], "is below the layers of volume a in pool p"),
        (vec![over("x", &link)], "is below the layers of volume a in pool p"),
        (vec![over("c", &other)], "has content of a volume called c"),
        (vec![over("b", &other)], "has content of a volume called b"),
        (vec![over("d", &other), plain("y", &other_link)], "is served as volume d"),
        (vec![plain("y", &other_link), over("d", &other)], "is served as volume y"),
    ];
    for (volumes, words) in rows {
        let lines = obstacles(&volumes);
        let is_told = if words.is_empty() { lines.is_empty() } else { lines.len() == 1 && lines[0].contains(words) };
        assert!(is_told, "{volumes:?}: {lines:?}");
    }
    drop((store, pool));
    fs::File::options().write(true).open(&disk).unwrap().write_all_at(&[6; BLOCK], 0).unwrap();
    let lines = obstacles(&[over("a", &disk)]);
    assert!(lines.len() == 1 && lines[0].contains("volume a: ") && lines[0].contains("a mixture"), "{lines:?}");
}
