use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::kept::Changed;
use crate::kept::added::tests::Chance;

/// A directory with the file, which is added to from the first change on, gone with the value.
struct Place {
    directory: PathBuf,
    changes: Changes,
    file: ChangesFile,
}

impl Place {
    fn new(label: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("sanwire-changes-{label}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let file = opened(&directory);
        Place { directory, changes: Changes::default(), file }
    }

    /// Makes a change, which is kept.
    fn add(&mut self, edit: Edit) {
        self.changes.apply(edit.clone());
        self.file.add(&edit, &self.changes).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes_if_any().unwrap()
    }

    fn bytes_if_any(&self) -> Option<Vec<u8>> {
        read_file(self.file.path()).unwrap()
    }

    /// What another run finds when the file has these bytes.
    fn found(&self, bytes: &[u8]) -> Result<Option<Changes>, StateError> {
        let beside = self.directory.join("beside");
        fs::create_dir_all(&beside).unwrap();
        let mut file = opened(&beside);
        fs::write(file.path(), bytes).unwrap();
        file.load()
    }

    fn version(&self) -> u32 {
        self.file.file.parts(&self.bytes()).unwrap().version
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn opened(directory: &Path) -> ChangesFile {
    let mut file = ChangesFile::new(directory.join("changes-test.json"));
    (file.added_from_bytes, file.added_min_bytes) = (0, 1500);
    file
}

fn alias(target: &str, alias: &str) -> Edit {
    Edit { targets: BTreeMap::from([(target.to_owned(), Some(alias.to_owned()))]), ..Edit::default() }
}

/// A crash after every byte that is written, also of a whole new file, which is written beside: what is there is all that was kept.
#[test]
fn every_change_that_was_kept_is_there_whenever_the_power_fails() {
    let (mut place, mut chance) = (Place::new("power"), Chance(3));
    let (mut renewed, mut added) = (0, 0);
    for _ in 0..120 {
        let (before, was) = (place.bytes_if_any(), place.changes.clone());
        place.add(chance.edit());
        let (after, is) = (place.bytes(), place.changes.clone());
        assert_eq!(place.found(&after).unwrap(), Some(is.clone()));
        match &before {
            Some(before) if after.starts_with(before) => {
                added += 1;
                for cut in before.len()..after.len() {
                    assert_eq!(place.found(&after[..cut]).unwrap(), Some(was.clone()), "{cut}");
                }
            }
            // Until it is renamed it is not looked at; `persist` says that nothing else is done to the old one.
            _ => {
                renewed += 1;
                let beside = place.directory.join("beside/changes-test.json.new");
                for cut in [0, 1, after.len() / 2, after.len()] {
                    fs::write(&beside, &after[..cut]).unwrap();
                    let found = before.as_ref().map(|before| place.found(before).unwrap());
                    assert_eq!(found.unwrap_or_default(), before.as_ref().map(|_| was.clone()));
                }
                fs::remove_file(beside).unwrap();
            }
        }
    }
    assert!(renewed > 3 && added > 80, "{renewed} {added}");
}

#[test]
fn what_is_added_is_no_more_than_all_there_is_and_takes_no_more_time() {
    let mut place = Place::new("room");
    (place.file.added_from_bytes, place.file.added_min_bytes) = (1000, 100);
    let (mut written, mut before) = (0, 0);
    for number in 0..500 {
        place.add(alias(&format!("iqn.2026-11.org.example:{number}"), "the same for all"));
        let length = place.bytes().len();
        written += if length > before && before > 1000 { length - before } else { length };
        before = length;
    }
    let all = body_of(&place.changes).unwrap().len();
    assert!(before < 3 * all && written < 8 * all, "{before} {written} {all}");
}

#[test]
fn earlier_programs_read_it_while_it_is_small_and_after_an_end_in_order() {
    let mut place = Place::new("versions");
    place.file.added_from_bytes = 200;
    place.add(alias("one", "alias"));
    assert_eq!(place.version(), VERSION);
    for number in 0..9 {
        place.add(alias(&format!("more{number}"), "alias"));
    }
    assert_eq!(place.version(), FOLLOWED);
    let plain = StateFile::new(place.file.path().to_owned(), Keeps::CHANGES);
    assert!(plain.load::<Changes>().is_err(), "its content is not all of it");
    // A run that changes nothing.
    let mut next = opened(&place.directory);
    let changes = next.load().unwrap().unwrap();
    assert_eq!(changes, place.changes);
    next.finish(&changes).unwrap();
    assert_eq!((place.version(), plain.load::<Changes>().unwrap()), (VERSION, Some(changes.clone())));
    let before = place.bytes();
    next.finish(&changes).unwrap();
    assert_eq!(place.bytes(), before);
    let set = Edit {
        target_settings: BTreeMap::from([("one".to_owned(), Some(Changed { configured: None, now: None }))]),
        ..Edit::default()
    };
    place.add(set);
    place.file.finish(&place.changes).unwrap();
    assert_eq!(place.version(), WITH_TARGET_SETTINGS);
}

#[test]
fn what_follows_a_line_that_is_not_whole_is_not_added_to_it() {
    let mut place = Place::new("torn");
    for number in 0..4 {
        place.add(alias(&format!("t{number}"), "alias"));
    }
    let whole = place.bytes();
    fs::write(place.file.path(), &whole[..whole.len() - 3]).unwrap();
    place.file = opened(&place.directory);
    place.changes = place.file.load().unwrap().unwrap();
    assert_eq!(place.changes.targets.len(), 3);
    place.add(alias("late", "alias"));
    let found = place.found(&place.bytes()).unwrap();
    assert_eq!(found.as_ref(), Some(&place.changes));
    assert!(found.unwrap().targets.contains_key("late"));
}

#[test]
fn a_damaged_change_or_content_is_refused_and_nothing_overwritten() {
    let mut place = Place::new("damaged");
    for number in 0..4 {
        place.add(alias(&format!("t{number}"), "alias"));
    }
    let (good, all) = (place.bytes(), Some(place.changes.clone()));
    let head = good.iter().position(|byte| *byte == b'\n').unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        match place.found(&bad) {
            Err(StateError::Damaged { .. } | StateError::Newer { .. }) => {}
            // Its last byte is as if it were not there; white space and a version of one's own are no damage that matters.
            Ok(found) => assert!(at == good.len() - 1 || at < head && found == all, "{at}: {found:?}"),
            Err(other) => panic!("{at}: {other}"),
        }
        let path = place.directory.join("beside/changes-test.json");
        assert_eq!(fs::read(path).unwrap(), bad, "nothing was overwritten");
    }
    let content = StateFile::new(place.file.path().to_owned(), Keeps::CHANGES).parts(&good).unwrap().body.len();
    for cut in 0..head + 1 + content {
        assert!(matches!(place.found(&good[..cut]), Err(StateError::Damaged { .. })), "{cut}");
    }
    let refusal = place.found(&[&good[..good.len() - 2], &b"?\n"[..]].concat()).unwrap_err().to_string();
    assert!(refusal.contains("change 3 behind its content is not as written") && refusal.contains("mv "), "{refusal}");
}

#[test]
fn one_that_was_moved_away_or_changed_is_written_anew() {
    let mut place = Place::new("moved");
    place.add(alias("one", "alias"));
    place.add(alias("two", "alias"));
    fs::rename(place.file.path(), place.directory.join("elsewhere")).unwrap();
    place.add(alias("three", "alias"));
    assert_eq!(place.found(&place.bytes()).unwrap().as_ref(), Some(&place.changes));
    assert_eq!(fs::metadata(place.file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    place.add(alias("four", "alias"));
    let mut longer = place.bytes();
    longer.extend(b"something");
    fs::write(place.file.path(), longer).unwrap();
    place.add(alias("five", "alias"));
    assert_eq!(place.found(&place.bytes()).unwrap().as_ref(), Some(&place.changes));
}

#[test]
fn a_change_that_cannot_be_added_is_not_there() {
    let mut place = Place::new("full");
    place.add(alias("one", "alias"));
    place.add(alias("two", "alias"));
    let before = place.bytes();
    // Nothing can be written by this way to it.
    let end = place.file.end.as_mut().unwrap();
    end.file = File::open(place.directory.join("changes-test.json")).unwrap();
    let edit = alias("three", "alias");
    let mut with = place.changes.clone();
    with.apply(edit.clone());
    place.file.add(&edit, &with).unwrap_err();
    assert_eq!(place.bytes(), before);
    place.add(alias("four", "alias"));
    assert_eq!(place.found(&place.bytes()).unwrap().as_ref(), Some(&place.changes));
}

#[test]
fn a_change_that_was_refused_and_may_be_there_is_taken_away() {
    let mut place = Place::new("refused");
    place.add(alias("one", "alias"));
    place.add(alias("two", "alias"));
    let end = place.file.end.as_mut().unwrap();
    // Nothing can be written by this way to it, nor taken away.
    end.file = File::open(place.directory.join("changes-test.json")).unwrap();
    let (sum, edit) = (end.sum, alias("three", "alias"));
    let mut with = place.changes.clone();
    with.apply(edit.clone());
    place.file.add(&edit, &with).unwrap_err();
    // The part that reached the disk before the write failed.
    let left = [place.bytes(), added::line(&edit, sum).unwrap().0].concat();
    fs::write(place.file.path(), &left).unwrap();
    assert_eq!(place.found(&left).unwrap(), Some(with));
    place.file.take_back(&place.changes).unwrap();
    assert_eq!(place.found(&place.bytes()).unwrap().as_ref(), Some(&place.changes));
    place.add(alias("four", "alias"));
    assert_eq!(place.found(&place.bytes()).unwrap().as_ref(), Some(&place.changes));
}

/// Its directory may not become stable after it has got its name.
#[test]
fn a_file_that_was_refused_and_is_there_is_taken_away() {
    let mut place = Place::new("named");
    place.add(alias("one", "alias"));
    let before = place.bytes();
    let mut with = place.changes.clone();
    with.apply(alias("two", "alias"));
    let content = with_head(FOLLOWED, &body_of(&with).unwrap(), true).unwrap();
    place.file.note_not_put(&content);
    place.file.take_back(&Changes::default()).unwrap();
    assert_eq!(place.bytes(), before, "what was kept still is, and is not written again");
    fs::write(place.file.path(), &content).unwrap();
    place.file.note_not_put(&content);
    place.file.take_back(&place.changes).unwrap();
    assert_eq!(place.bytes(), before);
}

#[test]
fn what_somebody_has_put_in_its_place_or_taken_away_stays_so_at_the_end() {
    let mut place = Place::new("put-back");
    place.add(alias("one", "alias"));
    let backup = place.bytes();
    place.add(alias("two", "alias"));
    fs::write(place.file.path(), &backup).unwrap();
    place.file.finish(&place.changes).unwrap();
    assert_eq!(place.bytes(), backup);
    place.file.replace(&place.changes).unwrap();
    fs::remove_file(place.file.path()).unwrap();
    place.file.finish(&place.changes).unwrap();
    assert_eq!(place.bytes_if_any(), None);
}
