//! Layers of volumes in files of a directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use sanwire_snapshot::{LayerId, Shelf};
use sanwire_store::{OpenError, Store};

use crate::file::{FileOptions, FileStore};

/// What says how the layers belong together.
const CATALOGUE: &str = "catalogue.json";
const NEW_CATALOGUE: &str = "catalogue.json.new";

/// What is written to a layer as soon as it is there.
const HEADER_BYTES: u64 = 4096;

/// A directory that has a sparse file for each layer, `ID.layer`, and their catalogue. What is made there is for its owner only.
#[derive(Debug)]
pub struct LayerDirectory {
    path: PathBuf,
    direct: bool,
    /// It is locked: nobody else has the directory meanwhile.
    _lock: File,
}

impl LayerDirectory {
    /// This directory, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made; [`io::ErrorKind::WouldBlock`]: somebody else has it.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        LayerDirectory::with_direct(path, false)
    }

    /// The same; `direct`: its layers are used past the page cache.
    ///
    /// # Errors
    /// As there.
    pub fn with_direct(path: impl Into<PathBuf>, direct: bool) -> io::Result<Self> {
        let path = path.into();
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => sync(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let lock = File::open(&path)?;
        lock.try_lock()?;
        Ok(LayerDirectory { path, direct, _lock: lock })
    }

    /// What was kept last in a directory, for who only looks: it is not locked.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn kept_in(path: &Path) -> io::Result<Option<Vec<u8>>> {
        match fs::read(path.join(CATALOGUE)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn file(&self, layer: LayerId) -> PathBuf {
        self.path.join(format!("{layer}.layer"))
    }

    fn open_file(&self, layer: LayerId, size_bytes: Option<u64>) -> io::Result<FileStore> {
        // Whatever the block of the volume: its own are multiples of this one.
        let block_bytes = Some(FileOptions::BLOCK_BYTES);
        let options = FileOptions { size_bytes, block_bytes, direct: self.direct, ..FileOptions::default() };
        FileStore::open(self.file(layer), &options).map_err(|error| match error {
            OpenError::Locked { .. } => io::Error::new(io::ErrorKind::WouldBlock, error),
            OpenError::Io { ref source, .. } => io::Error::new(source.kind(), error),
            error => io::Error::other(error),
        })
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl Shelf for LayerDirectory {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        let path = self.file(layer);
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let store = self.open_file(layer, Some(length_bytes))?;
        // Its length, and its name; and room for what it says first.
        let file = OpenOptions::new().write(true).open(&path)?;
        match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, HEADER_BYTES.min(length_bytes)) {
            Err(Errno::OPNOTSUPP) | Ok(()) => file.sync_all()?,
            Err(errno) => {
                drop(store);
                let _ = fs::remove_file(&path);
                return Err(errno.into());
            }
        }
        sync(&self.path)?;
        Ok(Arc::new(store))
    }

    fn open(&self, layer: LayerId) -> io::Result<Arc<dyn Store>> {
        Ok(Arc::new(self.open_file(layer, None)?))
    }

    fn remove(&self, layer: LayerId) -> io::Result<()> {
        match fs::remove_file(self.file(layer)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        LayerDirectory::kept_in(&self.path)
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        let path = self.path.join(CATALOGUE);
        if fs::read(&path).is_ok_and(|kept| kept == catalogue) {
            // Whoever wrote it may not have made it stable.
            File::open(&path)?.sync_all()?;
            return sync(&self.path);
        }
        let new = self.path.join(NEW_CATALOGUE);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(catalogue)?;
        file.sync_all()?;
        fs::rename(new, path)?;
        sync(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use sanwire_snapshot::{Origin, SnapshotError, Tree};
    use sanwire_store::{Outcome, Request};

    use super::*;
    use crate::blocking;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sanwire-layers-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const GIB: u64 = 1 << 30;

    fn write(store: &dyn Store, offset_bytes: u64, byte: u8) {
        let write = Request::Write { offset_bytes, data: vec![byte; 4096].into() };
        assert!([write, Request::Flush].into_iter().all(|request| blocking::run(store, request).is_ok()));
    }

    fn byte(store: &dyn Store, offset_bytes: u64) -> u8 {
        let read = Request::Read { offset_bytes, buffer: vec![9; 4096].into() };
        let Ok(Outcome::Read(frame)) = blocking::run(store, read) else { panic!("it can be read") };
        assert!(frame.iter().all(|byte| *byte == frame[0]));
        frame[0]
    }

    fn made(scratch: &Scratch) -> Tree {
        let shelf = Arc::new(LayerDirectory::new(&scratch.0).unwrap());
        let origin = Origin::Empty { length_bytes: GIB, block_bytes: 4096, layer: LayerId([1; 16]) };
        Tree::create(shelf, "v", origin, &mut blocking::perform).unwrap()
    }

    fn opened(scratch: &Scratch) -> Result<Tree, SnapshotError> {
        let shelf = LayerDirectory::new(&scratch.0).map_err(SnapshotError::Load)?;
        Tree::open(Arc::new(shelf), None)
    }

    #[test]
    fn a_volume_of_layers_in_files_is_sparse_its_owner_s_and_there_again() {
        let scratch = Scratch::new("again");
        let tree = made(&scratch);
        let store = tree.volume("v", &mut blocking::perform).unwrap();
        write(&store, GIB / 2, 1);
        let prepared = tree.prepare("v", LayerId([2; 16]), &mut blocking::perform).unwrap();
        let hold = tree.hold("v").unwrap();
        tree.take(prepared, Some("s"), 0, &hold, &mut blocking::perform).unwrap();
        drop(hold);
        write(&store, GIB / 2, 2);
        assert!(store.space().unwrap().used_bytes < 1 << 20, "{:?}", store.space());
        for file in fs::read_dir(&scratch.0).unwrap() {
            let metadata = file.unwrap().metadata().unwrap();
            assert_eq!((metadata.permissions().mode() & 0o777, metadata.blocks() < 2048), (0o600, true));
        }
        drop((store, tree));

        let tree = opened(&scratch).unwrap();
        tree.clone_volume(("v", "s"), "c", LayerId([3; 16]), &mut blocking::perform).unwrap();
        let [v, c] = ["v", "c"].map(|name| tree.volume(name, &mut blocking::perform).unwrap());
        assert_eq!([&v, &c].map(|store| byte(store, GIB / 2)), [2, 1]);
        assert_eq!([&v, &c].map(|store| byte(store, 0)), [0, 0]);
        let other = LayerDirectory::new(&scratch.0).map_err(|error| error.kind());
        assert_eq!(other.map(drop), Err(io::ErrorKind::WouldBlock), "somebody else has it");
        drop((v, c));
        tree.remove("c").unwrap();
        tree.forget("v", "s").unwrap();
        assert!(tree.is_untidy());
        assert_eq!(tree.tidy(&mut blocking::perform).unwrap(), None);
        // The last one is written, and merged only when it is asked for.
        tree.volume("v", &mut blocking::perform).unwrap();
        let settling = tree.prepare_settle("v", 16 << 20, &mut blocking::perform).unwrap().unwrap();
        tree.settle(settling, &tree.hold("v").unwrap(), || Ok(()), &mut blocking::perform).unwrap();
        assert_eq!(byte(&tree.volume("v", &mut blocking::perform).unwrap(), GIB / 2), 2);
        let files = fs::read_dir(&scratch.0).unwrap().count();
        assert_eq!((files, tree.layers().len()), (2, 2), "a layer and the catalogue");
    }

    #[test]
    fn a_damaged_layer_is_refused_by_name() {
        let scratch = Scratch::new("damaged");
        let tree = made(&scratch);
        write(&tree.volume("v", &mut blocking::perform).unwrap(), 0, 1);
        drop(tree);
        let path = scratch.0.join(format!("{}.layer", LayerId([1; 16])));
        let whole = fs::read(&path).map(|bytes| bytes[..16384].to_vec()).unwrap();
        for (at, says) in [(20, "the sector at byte 0 is damaged"), (4096 + 130, "the sector at byte 4096 is damaged")]
        {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let mut file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all(&bytes).unwrap();
            let opened = opened(&scratch).and_then(|tree| tree.volume("v", &mut blocking::perform));
            let text = opened.unwrap_err().to_string();
            assert!(text.contains(says) && text.contains(&LayerId([1; 16]).to_string()), "{text}");
        }
        fs::write(scratch.0.join(CATALOGUE), "{\"version\": 1}").unwrap();
        assert!(matches!(opened(&scratch), Err(SnapshotError::Catalogue(_))));
        fs::write(scratch.0.join(CATALOGUE), "{\"version\": 9}").unwrap();
        let text = opened(&scratch).unwrap_err().to_string();
        assert!(text.contains("version 9"), "{text}");
    }
}
