//! `file:PATH`, a regular file or a block device; the absolute path of a block device; and `pool:[POOL]`, a file in a directory of the server.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sanwire_store::kind::{
    self, Backing, ContentOptions, Likeness, Opened, Place, PoolFile, PoolPlace, Rewritten, StoreKind,
};
use sanwire_store::{Expectation, OpenError, SpecError, VolumeName, Written};

use crate::file::{FileOptions, FileStore};

struct FileKind;

struct DeviceKind;

struct PoolKind;

/// Makes them known, for all volumes that are read from now on. To be called before other kinds are registered, in whose messages they
/// come first; once more does nothing.
pub fn register() {
    kind::register(&FileKind);
    kind::register(&PoolKind);
    kind::register(&DeviceKind);
}

#[derive(Clone, Debug)]
struct FileBacking {
    /// Empty where a pool has it.
    path: PathBuf,
    options: FileOptions,
    pool: Option<PoolPlace>,
    /// Where that has it, once somebody has said so.
    in_pool: Option<PoolFile>,
}

impl FileBacking {
    fn path(&self) -> &Path {
        self.in_pool.as_ref().map_or(&self.path, |file| &file.path)
    }

    fn open_file(&self, is_locked: bool, expected: Option<&Expectation<'_>>) -> Result<Opened, OpenError> {
        let options = FileOptions { is_locked, ..self.options.clone() };
        Ok(match expected {
            None => (Arc::new(FileStore::open(self.path(), &options)?), None),
            Some(expected) => {
                let (store, known) = FileStore::open_volume(self.path(), &options, expected)?;
                (Arc::new(store), known)
            }
        })
    }
}

impl PartialEq for FileBacking {
    /// In a pool the same is meant wherever the pool's directory is.
    fn eq(&self, other: &Self) -> bool {
        let is_same_place = self.pool == other.pool && (self.pool.is_some() || self.path == other.path);
        is_same_place && self.options == other.options
    }
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
        Ok(Arc::new(FileBacking {
            path: written.place().into(),
            options: options_with_size(written)?,
            pool: None,
            in_pool: None,
        }))
    }
}

impl StoreKind for PoolKind {
    fn words(&self) -> &'static [&'static str] {
        &["pool"]
    }

    fn form(&self) -> &'static str {
        "pool:[POOL]"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["size", "grow", "direct"]
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let (pool, snapshot) = match written.place().split_once('/') {
            Some((pool, snapshot)) => (pool, Some(snapshot)),
            None => (written.place(), None),
        };
        let is_name = |text: &str| text.parse::<VolumeName>().is_ok();
        let is_snapshot =
            |text: &str| text.split_once('@').is_some_and(|(volume, snapshot)| is_name(volume) && is_name(snapshot));
        if !(pool.is_empty() || is_name(pool)) || !snapshot.is_none_or(is_snapshot) {
            return Err(written.is_no_store());
        }
        if snapshot.is_some() && !written.is_read_only() {
            return Err(SpecError::NotHere {
                key: "readonly=false",
                reason: "a snapshot stays as it is: add readonly",
            });
        }
        let pool = Some(pool).filter(|pool| !pool.is_empty()).map(str::to_owned);
        let place = PoolPlace { pool, snapshot: snapshot.map(str::to_owned) };
        let options = options_with_size(written)?;
        Ok(Arc::new(FileBacking { path: PathBuf::new(), options, pool: Some(place), in_pool: None }))
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
        Ok(Arc::new(FileBacking { path: written.place().into(), options, pool: None, in_pool: None }))
    }
}

fn options_with_size(written: &Written<'_>) -> Result<FileOptions, SpecError> {
    let size_bytes = written.size("size")?;
    let grow = written.flag("grow")?;
    if grow && size_bytes.is_none() {
        return Err(SpecError::NotHere { key: "grow", reason: "it needs size=, the length to grow to" });
    }
    Ok(FileOptions { size_bytes, grow, only_block_device: false, ..options(written)? })
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
    fn open(&self, expected: Option<&Expectation<'_>>) -> Result<Opened, OpenError> {
        let FileBacking { options, pool, in_pool, .. } = self;
        match (pool, in_pool) {
            (Some(PoolPlace { pool, .. }), None) => Err(OpenError::NoPool { pool: pool.clone() }),
            (_, Some(PoolFile { content: Some(content), .. })) => {
                let FileOptions { block_bytes, direct, read_only, .. } = *options;
                let options = ContentOptions { block_bytes, direct, read_only, expected };
                content.open(&options, &mut |is_locked| self.open_file(is_locked, expected))
            }
            _ => self.open_file(false, expected),
        }
    }

    fn place(&self) -> Place<'_> {
        // Where a pool has it only the server knows.
        if self.path().as_os_str().is_empty() { Place::Nowhere } else { Place::File(self.path()) }
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let Some(other) = (other as &dyn Any).downcast_ref::<Self>() else { return Likeness::Other };
        let FileOptions { size_bytes, grow, .. } = self.options;
        let sized = FileBacking { options: FileOptions { size_bytes, grow, ..other.options.clone() }, ..other.clone() };
        match sized == *self {
            true if *other == *self => Likeness::Same,
            true => Likeness::OtherSize,
            false => Likeness::Other,
        }
    }

    fn size_bytes(&self) -> Option<u64> {
        self.options.size_bytes
    }

    fn check_length(&self, length_bytes: u64) -> Result<(), OpenError> {
        self.options.check_length(self.path(), length_bytes)
    }

    fn resized(&self, size_bytes: u64) -> Option<Rewritten> {
        self.options.size_bytes?;
        Some(Rewritten { store: None, keys: vec![("size", size_bytes.to_string()), ("grow", true.to_string())] })
    }

    fn pool(&self) -> Option<&PoolPlace> {
        self.pool.as_ref()
    }

    fn pool_file(&self) -> Option<&PoolFile> {
        self.in_pool.as_ref()
    }

    fn in_file(&self, file: PoolFile) -> Option<Arc<dyn Backing>> {
        self.pool.as_ref()?;
        Some(Arc::new(FileBacking { in_pool: Some(file), ..self.clone() }))
    }

    fn absolute(&self) -> Option<Rewritten> {
        if self.pool.is_some() {
            return None;
        }
        let absolute = std::path::absolute(&self.path).ok()?;
        let store = absolute.to_str().filter(|_| !self.options.only_block_device)?;
        Some(Rewritten { store: Some(format!("file:{store}")), keys: Vec::new() })
    }
}
