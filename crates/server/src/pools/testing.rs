//! Pools on file systems that share no blocks.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use sanwire_snapshot::{LayerId, Shelf};
use sanwire_store::Store;
use sanwire_store_file::LayerDirectory;

use super::below::KeptBelow;
use super::catalogue::Catalogue;
use super::files::{Files, Reflink, layer_directory, zero_behind};
use super::reserve::RESERVE;
use crate::kept::StateFile;

thread_local! {
    static COPIES: RefCell<Option<Copied>> = const { RefCell::new(None) };
}

/// From now on pools that this thread opens copy their files: these, together.
pub(crate) fn copy_files() -> Copied {
    let files = Copied::default();
    COPIES.set(Some(files.clone()));
    files
}

/// How such a pool does that.
pub(super) fn copied() -> Option<Box<Copied>> {
    COPIES.with_borrow(|files| files.clone().map(Box::new))
}

/// How many steps there are before one that fails, when all do.
pub(crate) const ALL: usize = usize::MAX;

/// Files that are copied, until some step fails.
#[derive(Clone, Debug)]
pub(crate) struct Copied {
    /// So many steps are done before.
    pub(crate) left: Arc<AtomicUsize>,
    /// And so many after it: none where the power fails.
    pub(crate) after: Arc<AtomicUsize>,
    has_failed: Arc<AtomicBool>,
    /// Whether there is no room for the catalogue but what is reserved.
    pub(crate) is_full: Arc<AtomicBool>,
    pub(crate) hang: Arc<Hang>,
    /// Whether there is no room at all for anything that is kept.
    pub(crate) has_no_room: Arc<AtomicBool>,
    /// How much of the file system is taken, in percent; 0: what really is.
    pub(crate) taken_percent: Arc<AtomicU8>,
    /// Whether no file can have a second name.
    pub(crate) has_no_links: Arc<AtomicBool>,
    unstable: Arc<Mutex<Vec<Unstable>>>,
}

/// What a failure of the power may take back: nothing has made it stable.
#[derive(Debug)]
enum Unstable {
    /// The file has a name.
    Made(PathBuf),
    /// It holds something.
    Written(PathBuf),
    /// It has another name than before.
    Renamed(PathBuf, PathBuf),
}

/// Steps that wait, as on a disk that does not answer.
#[derive(Default, Debug)]
pub(crate) struct Hang {
    /// The name of those, and how many of them wait.
    state: Mutex<(Option<&'static str>, usize)>,
    changed: Condvar,
}

impl Hang {
    /// From now on steps of this name wait; `None`: all go on.
    pub(crate) fn at(&self, step: Option<&'static str>) {
        self.state.lock().unwrap().0 = step;
        self.changed.notify_all();
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().unwrap().1
    }

    fn pass(&self, step: &'static str) {
        let mut state = self.state.lock().unwrap();
        if state.0 != Some(step) {
            return;
        }
        state.1 += 1;
        state = self.changed.wait_while(state, |(hanging, _)| *hanging == Some(step)).unwrap();
        state.1 -= 1;
    }
}

impl Default for Copied {
    fn default() -> Copied {
        let (after, has_failed, is_full, hang, has_no_room, taken_percent) = Default::default();
        let (has_no_links, unstable, left) = (Arc::default(), Arc::default(), Arc::new(AtomicUsize::new(ALL)));
        Copied { left, after, has_failed, is_full, hang, has_no_room, taken_percent, has_no_links, unstable }
    }
}

impl Copied {
    /// From now on so many steps are done, one fails, and then as many as this before the next one does.
    pub(crate) fn fail_after(&self, left: usize, after: usize) {
        self.after.store(after, Ordering::Relaxed);
        self.left.store(left, Ordering::Relaxed);
    }

    /// Whether there was a step that failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// The power fails, and takes back all that is not stable: snapshots and clones that were made, and names.
    pub(crate) fn lose_unstable(&self) {
        for change in self.unstable().drain(..).rev() {
            match change {
                Unstable::Written(path) if path.exists() => fs::write(path, "").unwrap(),
                Unstable::Made(path) if path.exists() => fs::remove_file(path).unwrap(),
                Unstable::Renamed(from, to) if to.exists() => fs::rename(to, from).unwrap(),
                _ => {}
            }
        }
    }

    fn unstable(&self) -> MutexGuard<'_, Vec<Unstable>> {
        self.unstable.lock().unwrap()
    }

    /// A file, or the names in a directory, are stable.
    fn is_stable(&self, path: &Path) {
        self.unstable().retain(|change| match change {
            Unstable::Written(file) => file != path,
            Unstable::Made(name) | Unstable::Renamed(_, name) => name.parent() != Some(path),
        });
    }

    fn check_room(&self) -> io::Result<()> {
        if self.has_no_room.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn step(&self) -> io::Result<()> {
        let step = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.has_failed.store(true, Ordering::Relaxed);
                self.left.store(self.after.load(Ordering::Relaxed), Ordering::Relaxed);
                Err(io::Error::other("this step fails"))
            }
        }
    }
}

impl Files for Copied {
    fn space(&self, directory: &Path) -> io::Result<(u64, u64)> {
        match self.taken_percent.load(Ordering::Relaxed) {
            0 => Reflink.space(directory),
            percent => Ok((100 - u64::from(percent), 100)),
        }
    }

    fn can_share(&self, _directory: &Path) -> bool {
        true
    }

    fn can_link(&self, _directory: &Path) -> bool {
        !self.has_no_links.load(Ordering::Relaxed)
    }

    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.hang.pass("copy");
        self.step()?;
        // It is not whole before all of it is.
        let content = fs::read(from)?;
        self.unstable().extend([Unstable::Made(to.to_owned()), Unstable::Written(to.to_owned())]);
        fs::write(to, &content[..content.len() / 2])?;
        self.step()?;
        fs::write(to, content)
    }

    fn replace(&self, from: &Path, onto: &Path) -> io::Result<()> {
        self.hang.pass("replace");
        self.step()?;
        let content = fs::read(from)?;
        let mut file = OpenOptions::new().write(true).open(onto)?;
        file.write_all(&content[..content.len() / 2])?;
        self.step()?;
        file.write_all(&content[content.len() / 2..])?;
        zero_behind(&file, content.len() as u64, file.metadata()?.len())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.hang.pass("sync");
        self.step()?;
        File::open(path)?.sync_all()?;
        self.is_stable(path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        fs::rename(from, to)?;
        let mut unstable = self.unstable();
        for change in &mut *unstable {
            match change {
                Unstable::Written(path) if path == from => *path = to.to_owned(),
                _ => {}
            }
        }
        unstable.push(Unstable::Renamed(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.hang.pass("remove");
        self.step()?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn make(&self, path: &Path, length_bytes: u64) -> io::Result<()> {
        self.hang.pass("make");
        self.step()?;
        File::create_new(path)?.set_len(length_bytes)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::create_dir_all(path)
    }

    fn link(&self, file: &Path, name: &Path) -> io::Result<()> {
        self.step()?;
        fs::hard_link(file, name)
    }

    fn keep_below(&self, directory: &Path, kept: &KeptBelow) -> io::Result<()> {
        self.step()?;
        kept.save(directory)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::remove_dir_all(path)
    }

    fn layers(&self, path: &Path, direct: bool) -> io::Result<Arc<dyn Shelf>> {
        Ok(Arc::new(Stepped { files: self.clone(), layers: layer_directory(path, direct)? }))
    }

    fn save(&self, file: &StateFile, catalogue: &Catalogue) -> io::Result<()> {
        self.hang.pass("save");
        self.step()?;
        let reserved = file.path().with_file_name(RESERVE).metadata().map_or(0, |metadata| metadata.len());
        if self.is_full.load(Ordering::Relaxed) && reserved > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.check_room()?;
        catalogue.save(file)?;
        // It may stand there although it is said that it does not, and without what else was done in its directory.
        self.step()?;
        file.path().parent().into_iter().for_each(|directory| self.is_stable(directory));
        Ok(())
    }
}

/// Layers in files, of which some step fails.
#[derive(Debug)]
struct Stepped {
    files: Copied,
    layers: LayerDirectory,
}

impl Shelf for Stepped {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        self.files.step()?;
        self.files.check_room()?;
        let made = self.layers.create(layer, length_bytes)?;
        self.files.step()?;
        Ok(made)
    }

    fn open(&self, layer: LayerId) -> io::Result<Arc<dyn Store>> {
        self.layers.open(layer)
    }

    fn remove(&self, layer: LayerId) -> io::Result<()> {
        self.files.step()?;
        self.layers.remove(layer)
    }

    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        self.layers.load()
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        self.files.step()?;
        if self.load()?.as_deref() != Some(catalogue) {
            self.files.check_room()?;
        }
        self.layers.keep(catalogue)?;
        // It may stand there although it is said that it does not.
        self.files.step()
    }
}
