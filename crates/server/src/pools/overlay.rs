//! What volumes of a pool hold, as it is opened to be served: in their files, or in layers.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Weak};

use sanwire_buffer::Slices;
use sanwire_snapshot::{SnapshotError, SnapshotStore};
use sanwire_store::kind::{BelowLayers, ContentOptions, OpenFile, Opened, PoolContent, PoolFile};
use sanwire_store::{
    Acceptance, Capabilities, CompletionQueue, Copies, ErrorKind, Expectation, Geometry, Known, OpenError, RemoteCount,
    Request, ResizeError, Space, Started, Store, StoreError,
};
use sanwire_store_file::FileOptions;
use sanwire_store_file::blocking::perform;

use super::catalogue::SnapshotId;
use super::family::{FamilyError, FamilyOptions, Use, is_stand_in, is_unmarked, mark};
use super::layered::Way;
use super::outside::not_begun;
use super::{Pool, PoolError};
use crate::records::fnv1a_128;

/// A volume of a pool, or a snapshot.
#[derive(Debug)]
struct Content {
    /// Not for longer than the server has it.
    pool: Weak<Pool>,
    content: String,
    /// The store below its layers, where that is not in the pool.
    below: Option<BelowLayers>,
}

impl Pool {
    /// Where a volume or snapshot is; `below`: the store below its layers, where that is not in the pool.
    pub(super) fn file_of(self: &Arc<Self>, content: &str, below: Option<&BelowLayers>) -> PoolFile {
        let path = self.path_of(content);
        let content = Content { pool: Arc::downgrade(self), content: content.to_owned(), below: below.cloned() };
        PoolFile { path, content: Some(Arc::new(content)) }
    }
}

impl PoolContent for Content {
    fn open(&self, options: &ContentOptions<'_>, file: &mut OpenFile<'_>) -> Result<Opened, OpenError> {
        let pool = self.pool.upgrade().ok_or_else(|| OpenError::NoPool { pool: None })?;
        match self.content.parse::<SnapshotId>() {
            Ok(id) => open_snapshot(&pool, &id, options, file),
            Err(_)
                if self.below.is_some()
                    || pool.is_layered(&self.content)
                    || !options.read_only && pool.way() == Some(Way::Layers) =>
            {
                open_layers(&pool, (&self.content, self.below.as_ref()), options, file)
            }
            Err(_) => {
                let at = pool.path_of(&self.content);
                pool.check_mark(&self.content).map_err(|error| failed(&at.display().to_string(), error))?;
                file(false)
            }
        }
    }
}

/// A snapshot is another disk each time that one of its name is taken.
fn open_snapshot(
    pool: &Pool,
    id: &SnapshotId,
    options: &ContentOptions<'_>,
    file: &mut OpenFile<'_>,
) -> Result<Opened, OpenError> {
    let gone = |source: PoolError| failed(&id.to_string(), source);
    let record = pool.record(id).map_err(gone)?;
    let identity = |expected: &Expectation<'_>| {
        let fallback = u128::from_be_bytes(expected.fallback);
        fnv1a_128(format!("sanwire snapshot\0{fallback:032x}\0{}", record.made).as_bytes()).to_be_bytes()
    };
    if !record.layered {
        let (store, known) = file(false)?;
        let known = known.zip(options.expected).map(|(known, expected)| match known.uuid == expected.fallback {
            true => Known { uuid: identity(expected), ..known },
            false => known,
        });
        return Ok((store, known));
    }
    let at = pool.path_of(&id.to_string());
    let family_options = FamilyOptions { acceptance: Acceptance::default(), ..family_options(options) };
    let family = pool.family(&id.volume, family_options).map_err(|error| not_opened(&at, error))?;
    family.check_below().map_err(|error| not_opened(&at, error))?;
    let use_of = family.begin_view(id);
    let store = family.tree.view(&id.volume, &id.name, &mut perform).map_err(|error| not_opened(&at, error.into()))?;
    // Whatever block the volume has: nobody says that of a snapshot.
    let of_layers = store.geometry().block_bytes;
    let block_bytes = options.block_bytes.map_or(of_layers, |block_bytes| block_bytes.max(of_layers));
    let volume = LayeredVolume::new(store, None, use_of, block_bytes, &at)?;
    let known = options.expected.map(|expected| Known {
        uuid: identity(expected),
        is_marked: false,
        length_bytes: volume.geometry().length_bytes,
        device: None,
    });
    Ok((Arc::new(volume), known))
}

fn open_layers(
    pool: &Pool,
    (volume, below): (&str, Option<&BelowLayers>),
    options: &ContentOptions<'_>,
    file: &mut OpenFile<'_>,
) -> Result<Opened, OpenError> {
    let path = pool.path_of(volume);
    let begin = |below| pool.begin_below(volume, below, options.expected).map_err(|error| not_begun(below, error));
    let _begun = below.map(begin).transpose()?;
    if below.is_none() && !path.metadata().is_ok_and(|metadata| metadata.len() > 0) {
        // It is made, and is then as any other.
        drop(file(false)?);
        if pool.is_layered(volume) {
            mark(&path).map_err(|source| failed(&path.display().to_string(), source))?;
        }
    }
    // First of all: the kernel tells of what was lost before those that are open then.
    let family = pool.family_over(volume, below, family_options(options)).map_err(|error| not_opened(&path, error))?;
    family.check_below().map_err(|error| not_opened(&path, error))?;
    let is_read_only = family.store_elsewhere().is_some_and(|elsewhere| elsewhere.store.geometry().read_only);
    if below.is_some() && is_read_only && !options.read_only && family.tree.layers_count() == 0 {
        let why = "its store is still open for reading only, as it was written before: try again";
        return Err(failed(&path.display().to_string(), std::io::Error::other(why)));
    }
    let use_of = family.begin_use(volume).ok_or_else(|| OpenError::Locked { path: path.clone() })?;
    if below.is_some() && !options.read_only && family.tree.layers_count() == 0 {
        let store = family.store_elsewhere().filter(|elsewhere| elsewhere.is_of(volume));
        let cut = store.map_or(Ok(()), |store| cut_stand_in(&path, store.store.geometry().length_bytes));
        cut.map_err(|source| failed(&path.display().to_string(), source))?;
    }
    let has_base = family.has_base(&path);
    if !has_base && pool.is_layered(volume) && is_unmarked(&path) {
        tracing::warn!(
            "{} was put there: it is not what is served, for volume {volume} is made of layers, and goes on as these are; to have what the \
             file holds, move it elsewhere and serve it as another volume",
            path.display()
        );
    }
    let (file, known) = file(has_base)?;
    let store = family.tree.volume(volume, &mut perform).map_err(|error| not_opened(&path, error.into()))?;
    let block_bytes = options.block_bytes.unwrap_or(store.geometry().block_bytes);
    let opened = LayeredVolume::new(store, Some(file), use_of, block_bytes, &path)?;
    opened.settle_length(&path, below.and_then(|below| below.backing.size_bytes()))?;
    Ok((Arc::new(opened), known))
}

/// What stands for a store, and holds nothing, is no longer than that: another one may have taken its place.
fn cut_stand_in(path: &Path, length_bytes: u64) -> std::io::Result<()> {
    match is_stand_in(path) && path.metadata()?.len() > length_bytes {
        true => File::options().write(true).open(path)?.set_len(length_bytes),
        false => Ok(()),
    }
}

fn family_options(options: &ContentOptions<'_>) -> FamilyOptions {
    FamilyOptions {
        block_bytes: options.block_bytes.unwrap_or(FileOptions::BLOCK_BYTES),
        direct: options.direct,
        acceptance: options.expected.map_or_else(Acceptance::default, |expected| expected.acceptance),
    }
}

fn not_opened(path: &Path, error: FamilyError) -> OpenError {
    let is_locked = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    match error {
        FamilyError::Open(error) => error,
        // Of a server that was killed, or a volume that was taken away, what had begun has not ended.
        FamilyError::Io(error) | FamilyError::Layers(SnapshotError::Open { source: error, .. })
            if is_locked(&error) =>
        {
            OpenError::Locked { path: path.to_owned() }
        }
        FamilyError::Io(error) if is_away(&error) => {
            OpenError::Elsewhere { store: path.display().to_string(), source: Box::new(error), is_away: true }
        }
        error => failed(&path.display().to_string(), error),
    }
}

/// Whether a store has gone, perhaps for a while.
fn is_away(error: &std::io::Error) -> bool {
    let source = error.get_ref().and_then(|source| source.downcast_ref::<StoreError>());
    source.is_some_and(|error| error.kind == ErrorKind::Gone)
}

fn failed(store: &str, error: impl std::error::Error + Send + Sync + 'static) -> OpenError {
    OpenError::Elsewhere { store: store.to_owned(), source: Box::new(error), is_away: false }
}

/// A volume of layers that is served, with the file by which it is known.
#[derive(Debug)]
struct LayeredVolume {
    store: SnapshotStore,
    /// `None`: it is a snapshot, which has none.
    file: Option<Arc<dyn Store>>,
    /// It ends after what has the store.
    use_of: Use,
    block_bytes: u32,
}

impl LayeredVolume {
    fn new(
        store: SnapshotStore,
        file: Option<Arc<dyn Store>>,
        use_of: Use,
        block_bytes: u32,
        path: &Path,
    ) -> Result<Self, OpenError> {
        let Geometry { block_bytes: of_layers, length_bytes, .. } = store.geometry();
        if block_bytes < of_layers || !length_bytes.is_multiple_of(u64::from(block_bytes)) {
            // Before its use ends.
            drop(store);
            return Err(OpenError::Blocks { path: path.to_owned(), length_bytes, block_bytes });
        }
        Ok(LayeredVolume { store, file, use_of, block_bytes })
    }

    /// Volume and file are equally long, whatever a crash has left; and as long as is written of a store that is not in the pool.
    fn settle_length(&self, path: &Path, wanted_bytes: Option<u64>) -> Result<(), OpenError> {
        let Some(file) = &self.file else { return Ok(()) };
        let (has_bytes, file_bytes) = (self.store.geometry().length_bytes, file.geometry().length_bytes);
        let not_settled = |source: ResizeError| failed(&path.display().to_string(), source);
        if has_bytes < file_bytes {
            self.store.resize(file_bytes).map_err(not_settled)?;
            self.keep_lengths().map_err(not_settled)?;
        } else if file_bytes < has_bytes && !file.geometry().read_only {
            file.resize(has_bytes).map_err(not_settled)?;
        }
        match wanted_bytes.filter(|wanted| *wanted > self.store.geometry().length_bytes) {
            Some(wanted_bytes) if !self.geometry().read_only => self.resize(wanted_bytes).map_err(not_settled),
            _ => Ok(()),
        }
    }

    fn keep_lengths(&self) -> Result<(), ResizeError> {
        self.use_of.family().tree.keep_lengths().map_err(|error| ResizeError::Unstable(std::io::Error::other(error)))
    }
}

impl Store for LayeredVolume {
    fn geometry(&self) -> Geometry {
        let geometry = self.store.geometry();
        let physical_block_bytes = geometry.physical_block_bytes.max(self.block_bytes);
        Geometry { block_bytes: self.block_bytes, physical_block_bytes, ..geometry }
    }

    fn capabilities(&self) -> Capabilities {
        let below = self.store.capabilities();
        let grows = below.grows && self.use_of.family().may_grow(self.use_of.content());
        Capabilities { geometry: self.geometry(), grows, ..below }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match self.geometry().check(&request) {
            Ok(()) => self.store.start(request, completions),
            Err(error) => Started::Done(Err(error)),
        }
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
        self.store.share(offset_bytes, length_bytes)
    }

    fn space(&self) -> Option<Space> {
        self.store.space()
    }

    fn remote(&self) -> Option<RemoteCount> {
        self.store.remote()
    }

    fn copies(&self) -> Option<&dyn Copies> {
        self.use_of.family().store_elsewhere().and_then(|elsewhere| elsewhere.store.copies())
    }

    fn is_over(&self) -> bool {
        self.use_of.family().store_elsewhere().is_some_and(|elsewhere| elsewhere.store.is_over())
    }

    /// The file first: what is longer than the layers say is made so when the volume is opened.
    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        let (family, content) = (self.use_of.family(), self.use_of.content());
        if !family.may_grow(content) {
            return Err(ResizeError::Fixed("its store, which is below its layers, has a fixed size"));
        }
        family.make_room_below(content, length_bytes)?;
        if let Some(file) = &self.file {
            file.resize(length_bytes)?;
        }
        self.store.resize(length_bytes)?;
        self.keep_lengths()
    }
}
