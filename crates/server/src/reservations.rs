//! Where reservations are kept through restarts: a file for each volume.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sanwire_device::{ReservationKeeper, Saved};
use sanwire_store::kind::Place;

use crate::persist::{read_file, replace_file};

/// The directory of the records, in the server's state directory.
const DIRECTORY: &str = "reservations";

/// The record of one volume: `reservations/UUID` in the state directory. It is replaced as a whole.
#[derive(Debug)]
pub(crate) struct FileKeeper {
    state: PathBuf,
    name: String,
    /// Whether the last record could not be kept.
    is_failing: Arc<AtomicBool>,
}

/// What keeps a volume's reservations: nothing for those in memory, which no restart survives either.
pub(crate) fn keeper(place: Place<'_>, state: Option<&Path>, uuid: [u8; 16]) -> Option<Arc<dyn ReservationKeeper>> {
    match place {
        Place::Memory => None,
        Place::File(_) | Place::Elsewhere(_) | Place::Volume(_) | Place::Nowhere => {
            Some(Arc::new(FileKeeper::new(state?, uuid)))
        }
    }
}

impl FileKeeper {
    /// The record of the volume with this uuid.
    pub(crate) fn new(state: &Path, uuid: [u8; 16]) -> Self {
        let name = format!("{:032x}", u128::from_be_bytes(uuid));
        FileKeeper { state: state.to_owned(), name, is_failing: Arc::default() }
    }

    /// Forgets what was reserved of a volume that nobody serves any more.
    pub(crate) fn forget(&self) {
        // One that stays is of a volume that does not come again.
        let _ = std::fs::remove_file(self.path());
    }

    fn directory(&self) -> PathBuf {
        self.state.join(DIRECTORY)
    }

    fn path(&self) -> PathBuf {
        self.directory().join(&self.name)
    }
}

impl ReservationKeeper for FileKeeper {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        read_file(&self.path())
    }

    /// On a thread of its own: a shard has others to serve.
    fn save(&self, record: Vec<u8>, saved: Saved) {
        let (path, is_failing) = (self.path(), Arc::clone(&self.is_failing));
        let work = move || {
            let result = replace_file(&path, &record);
            note(&is_failing, &path, result.as_ref().err());
            saved.tell(result.is_ok());
        };
        if let Err(error) = thread::Builder::new().name("reservations".into()).spawn(work) {
            note(&self.is_failing, &self.path(), Some(&error));
        }
    }

    fn place(&self) -> String {
        self.path().display().to_string()
    }
}

/// Logs that records cannot be kept any more, or can again: not each time, as initiators may order as often as they like.
fn note(is_failing: &AtomicBool, path: &Path, error: Option<&io::Error>) {
    if !is_news(is_failing, error.is_some()) {
        return;
    }
    let place = path.display();
    match error {
        Some(error) => tracing::error!(
            "reservations cannot be kept in {place}: {error}; until they can be, orders of initiators to keep them are refused"
        ),
        None => tracing::warn!("reservations can be kept in {place} again"),
    }
}

fn is_news(is_failing: &AtomicBool, fails: bool) -> bool {
    is_failing.swap(fails, Ordering::Relaxed) != fails
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A directory that goes with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sanwire-reservations-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Whether it was kept, in the end.
    fn save(keeper: &FileKeeper, record: &[u8]) -> bool {
        let (sender, told) = std::sync::mpsc::channel();
        keeper.save(record.to_vec(), Saved::new(move |is_kept| sender.send(is_kept).unwrap()));
        told.recv().unwrap()
    }

    #[test]
    fn a_record_is_replaced_whole_and_private() {
        let directory = Directory::new("whole");
        let keeper = FileKeeper::new(&directory.0.join("state"), [0x0a; 16]);
        assert_eq!(keeper.load().unwrap(), None, "there has been none");
        assert!(save(&keeper, b"a longer record"));
        assert!(save(&keeper, b"second"));
        assert_eq!(keeper.load().unwrap().unwrap(), b"second");
        assert!(keeper.place().ends_with("/state/reservations/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"), "{}", keeper.place());
        let kept: Vec<_> = fs::read_dir(keeper.directory()).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(kept.len(), 1, "nothing is left beside");
        assert_eq!(kept[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let another = FileKeeper::new(&directory.0.join("state"), [0x0b; 16]);
        assert_eq!(another.load().unwrap(), None);
    }

    #[test]
    fn a_place_that_cannot_be_is_an_error() {
        let directory = Directory::new("error");
        fs::write(directory.0.join(DIRECTORY), b"a file").unwrap();
        let keeper = FileKeeper::new(&directory.0, [1; 16]);
        assert!(keeper.load().is_err() && !save(&keeper, b"record"));
    }

    #[test]
    fn who_orders_again_and_again_what_cannot_be_kept_fills_no_log() {
        let directory = Directory::new("lines");
        fs::write(directory.0.join(DIRECTORY), b"a file").unwrap();
        let keeper = FileKeeper::new(&directory.0, [3; 16]);
        assert!(!save(&keeper, b"record"));
        assert!(!is_news(&keeper.is_failing, true), "it was told of");
        fs::remove_file(directory.0.join(DIRECTORY)).unwrap();
        assert!(save(&keeper, b"record"));
        assert!(!is_news(&keeper.is_failing, false), "that it can be kept again, too");
    }

    /// What a crash may leave: the old record, and one that was not finished beside it.
    #[test]
    fn an_unfinished_record_is_not_taken_for_one() {
        let directory = Directory::new("unfinished");
        let keeper = FileKeeper::new(&directory.0, [2; 16]);
        assert!(save(&keeper, b"old"));
        fs::write(keeper.directory().join(format!("{}.new", keeper.name)), b"ne").unwrap();
        assert_eq!(keeper.load().unwrap().unwrap(), b"old");
        assert!(save(&keeper, b"new"));
        assert_eq!(keeper.load().unwrap().unwrap(), b"new");
    }
}
