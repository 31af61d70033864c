//! `file:PATH`, a regular file or a block device, and the absolute path of a block device.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use sanwire_store::kind::{self, Backing, Likeness, Place, Rewritten, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, Written};

use crate::file::{FileOptions, FileStore};

struct FileKind;

struct DeviceKind;

/// Makes both known, for all volumes that are read from now on. To be called before other kinds are registered, in whose messages they
/// come first; once more does nothing.
pub fn register() {
    kind::register(&FileKind);
    kind::register(&DeviceKind);
}

#[derive(PartialEq, Debug)]
struct FileBacking {
    path: PathBuf,
    options: FileOptions,
}

impl StoreKind for FileKind {
    fn words(&self) -> &'static [&'static str] {
        &["file"]
    }

    fn form(&self) -> &'static str {
        "file:PATH"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["size", "grow", "direct"]
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        if written.place().is_empty() {
            return Err(written.is_no_store());
        }
        let size_bytes = written.size("size")?;
        let grow = written.flag("grow")?;
        if grow && size_bytes.is_none() {
            return Err(SpecError::NotHere { key: "grow", reason: "it needs size=, the length to grow to" });
        }
        let options = FileOptions { size_bytes, grow, only_block_device: false, ..options(written)? };
        Ok(Arc::new(FileBacking { path: written.place().into(), options }))
    }
}

impl StoreKind for DeviceKind {
    fn words(&self) -> &'static [&'static str] {
        &[]
    }

    fn form(&self) -> &'static str {
        "the absolute path of a block device"
    }

    fn takes_paths(&self) -> bool {
        true
    }

    fn keys(&self) -> &'static [&'static str] {
        &["direct"]
    }

    fn lacks(&self, key: &str) -> &'static str {
        match key {
            "size" | "grow" => "a block device has the size it has (a file is file:PATH)",
            _ => "stores of its kind have no such key",
        }
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let options = FileOptions { only_block_device: true, ..options(written)? };
        Ok(Arc::new(FileBacking { path: written.place().into(), options }))
    }
}

fn options(written: &Written<'_>) -> Result<FileOptions, SpecError> {
    Ok(FileOptions {
        read_only: written.is_read_only(),
        direct: written.flag("direct")?,
        block_bytes: written.block_bytes(),
        ..FileOptions::default()
    })
}

impl Backing for FileBacking {
    fn open(&self, expected: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        let FileBacking { path, options } = self;
        Ok(match expected {
            None => (Arc::new(FileStore::open(path, options)?), None),
            Some(expected) => {
                let (store, known) = FileStore::open_volume(path, options, expected)?;
                (Arc::new(store), known)
            }
        })
    }

    fn place(&self) -> Place<'_> {
        Place::File(&self.path)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let Some(other) = (other as &dyn Any).downcast_ref::<Self>() else { return Likeness::Other };
        let FileOptions { size_bytes, grow, .. } = self.options;
        let sized = FileBacking {
            path: other.path.clone(),
            options: FileOptions { size_bytes, grow, ..other.options.clone() },
        };
        match sized == *self {
            true if *other == *self => Likeness::Same,
            true => Likeness::OtherSize,
            false => Likeness::Other,
        }
    }

    fn size_bytes(&self) -> Option<u64> {
        self.options.size_bytes
    }

    fn resized(&self, size_bytes: u64) -> Option<Rewritten> {
        self.options.size_bytes?;
        Some(Rewritten { store: None, keys: vec![("size", size_bytes.to_string()), ("grow", true.to_string())] })
    }

    fn absolute(&self) -> Option<Rewritten> {
        let absolute = std::path::absolute(&self.path).ok()?;
        let store = absolute.to_str().filter(|_| !self.options.only_block_device)?;
        Some(Rewritten { store: Some(format!("file:{store}")), keys: Vec::new() })
    }
}
