//! One layer of a volume: its store, and what it needs while it is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sanwire_store::{
    Completion, CompletionQueue, Geometry, KernelOp, Outcome, Request, Started, Store, StoreError, layer::Over,
    layer::SplitLayer,
};

use crate::catalogue::Seal;
use crate::format::{Bits, Damage, Header, Layout, RECORD_BYTES, decode_map, encode_map};
use crate::losses::Losses;
use crate::map::Map;
use crate::turns::Turns;
use crate::{LayerId, SnapshotError};

/// Does what a store leaves to the kernel, and waits for it.
pub type Perform<'a> = &'a mut dyn FnMut(KernelOp) -> Completion;

/// Where blocks of a volume lie: a layer, or what is below all layers.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) id: LayerId,
    pub(crate) store: Arc<dyn Store>,
    /// `None`: below all layers, where each byte has its own place, and all are there.
    pub(crate) layout: Option<Layout>,
    parent: LayerId,
    /// The last one that its header has on the medium.
    generation: AtomicU64,
    /// Below all layers: so many bytes of the store are part of volumes, whatever is behind them.
    base_bytes: AtomicU64,
}

impl Source {
    /// What is below all layers: so many bytes of this store.
    pub(crate) fn base(store: Arc<dyn Store>, length_bytes: u64) -> Arc<Self> {
        let (id, parent, generation) = (LayerId::BASE, LayerId::BASE, AtomicU64::new(0));
        let base_bytes = AtomicU64::new(length_bytes);
        Arc::new(Source { id, store: whole_ranges(store), layout: None, parent, generation, base_bytes })
    }

    /// So many bytes of the store, which has them, are part of volumes from now on, where it is below all layers.
    pub(crate) fn reach_to(&self, length_bytes: u64) {
        self.base_bytes.fetch_max(length_bytes, Ordering::AcqRel);
    }

    /// Makes an empty layer in a store that reads as zeroes.
    pub(crate) fn create(
        store: Arc<dyn Store>,
        header: Header,
        perform: Perform<'_>,
    ) -> Result<Arc<Self>, SnapshotError> {
        let layout = Some(Layout::new(header.block_bytes));
        let Header { id, parent, generation, .. } = header;
        let generation = AtomicU64::new(generation);
        let source =
            Source { id, store: whole_ranges(store), layout, parent, generation, base_bytes: AtomicU64::new(0) };
        source.write_header(&header, perform)?;
        source.run(Request::Flush, perform)?;
        Ok(Arc::new(source))
    }

    /// Opens the layer that is in a store.
    pub(crate) fn open(
        store: Arc<dyn Store>,
        id: LayerId,
        (block_bytes, seal): (u32, Seal),
        perform: Perform<'_>,
    ) -> Result<Arc<Self>, SnapshotError> {
        let damaged = |source| SnapshotError::Damaged { layer: id, source };
        let header = Header::decode(&read_record(&*store, 0, perform).map_err(|source| SnapshotError::at(id, source))?);
        let header = header.map_err(damaged)?;
        if (header.id, header.block_bytes) != (id, block_bytes) {
            return Err(damaged(Damage::Foreign { offset_bytes: 0 }));
        }
        let length_bytes = store.geometry().length_bytes;
        if length_bytes < seal.length_bytes {
            return Err(damaged(Damage::Cut { length_bytes, whole_bytes: seal.length_bytes }));
        }
        if header.generation < seal.generation {
            return Err(damaged(Damage::Older));
        }
        let Header { parent, generation, .. } = header;
        let (layout, generation) = (Some(Layout::new(block_bytes)), AtomicU64::new(generation));
        let base_bytes = AtomicU64::new(0);
        Ok(Arc::new(Source { id, store: whole_ranges(store), layout, parent, generation, base_bytes }))
    }

    /// Says what it is; what it was before is then told from it, once that is stable.
    fn write_header(&self, header: &Header, perform: Perform<'_>) -> Result<(), SnapshotError> {
        self.run(Request::Write { offset_bytes: 0, data: header.encode().into() }, perform).map(drop)
    }

    /// Begins another generation of what it holds: it has it when a flush has ended well.
    pub(crate) fn write_generation(&self, perform: Perform<'_>) -> Result<u64, SnapshotError> {
        let Source { id, parent, .. } = *self;
        let generation = self.generation.load(Ordering::Acquire).saturating_add(1);
        if let Some(layout) = self.layout {
            self.write_header(&Header { id, parent, block_bytes: layout.block_bytes(), generation }, perform)?;
        }
        Ok(generation)
    }

    /// It has this generation.
    pub(crate) fn has_generation(&self, generation: u64) {
        if self.layout.is_some() {
            self.generation.store(generation, Ordering::Release);
        }
    }

    /// What it is at least, from now on.
    pub(crate) fn seal(&self) -> Seal {
        let generation = self.generation.load(Ordering::Acquire);
        let length_bytes = self.layout.map_or_else(|| self.length_bytes(), |_| self.store.geometry().length_bytes);
        Seal { generation, length_bytes }
    }

    /// Has its store do a request, in the store's own offsets.
    pub(crate) fn run(&self, request: Request, perform: Perform<'_>) -> Result<Outcome, SnapshotError> {
        sanwire_store::run(&*self.store, request, perform).map_err(|source| SnapshotError::at(self.id, source))
    }

    /// How long a volume is that has all of its blocks here.
    pub(crate) fn length_bytes(&self) -> u64 {
        match self.layout {
            None => self.base_bytes.load(Ordering::Acquire),
            Some(layout) => layout.volume_bytes(self.store.geometry().length_bytes),
        }
    }

    /// Where a byte of the volume lies in the store.
    pub(crate) fn at(&self, offset_bytes: u64) -> u64 {
        self.layout.map_or(offset_bytes, |layout| layout.data_at(offset_bytes))
    }

    /// How many bytes from one of the volume on lie side by side; none: it has no place for that one.
    pub(crate) fn reach_bytes(&self, offset_bytes: u64) -> u64 {
        match self.layout {
            None => self.length_bytes().saturating_sub(offset_bytes),
            Some(layout) => layout.group_bytes() - offset_bytes % layout.group_bytes(),
        }
    }

    /// Begins a request for bytes of the volume that lie side by side; `make` is told where they are. If they are in a layer, `kept` is
    /// dropped when it has ended.
    pub(crate) fn start<T: Send + Sync + 'static>(
        &self,
        offset_bytes: u64,
        (completions, kept): (&CompletionQueue, T),
        make: impl FnOnce(u64) -> Request,
    ) -> Started {
        let at = self.at(offset_bytes);
        let started = self.store.start(make(at), completions);
        if self.layout.is_none() {
            return started;
        }
        started.then(completions, move |end, _| {
            drop(kept);
            Started::Done(end.map_err(|error| moved(error, at, offset_bytes)))
        })
    }

    /// What it takes, where its store can tell.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        self.store.space().map(|space| space.used_bytes)
    }

    /// Makes zeroes of some bytes of the store, and gives back their space where it can.
    pub(crate) fn clear(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        perform: Perform<'_>,
    ) -> Result<(), SnapshotError> {
        let clear = match self.store.geometry().discards {
            true => Request::Discard { offset_bytes, length_bytes },
            false => Request::WriteZeroes { offset_bytes, length_bytes },
        };
        self.run(clear, perform).map(drop)
    }

    /// Says of a group that these blocks are no longer here. They have to be stable elsewhere, and nobody looks for them here.
    pub(crate) fn clear_map(&self, group: u32, gone: &Bits, perform: Perform<'_>) -> Result<(), SnapshotError> {
        let Some(layout) = self.layout else { return Ok(()) };
        let mut left = self.read_map(group, perform)?;
        left.remove(gone);
        let data = encode_map(self.id, group, &left).into();
        self.run(Request::Write { offset_bytes: layout.map_at(group), data }, perform).map(drop)
    }

    /// Tells of each group in which the layer has something.
    pub(crate) fn read_maps(&self, perform: Perform<'_>, mut each: impl FnMut(u32, Bits)) -> Result<(), SnapshotError> {
        let Some(layout) = self.layout else { return Ok(()) };
        let end_bytes = self.store.geometry().length_bytes;
        let mut group = 0;
        while layout.map_at(group) < end_bytes {
            let at = layout.map_at(group);
            // Most stores of layers know where nothing was ever written.
            let ask = Request::Allocation { offset_bytes: at, length_bytes: end_bytes - at };
            match self.run(ask, perform)? {
                Outcome::Allocated(hole) if !hole.is_mapped && hole.length_bytes >= RECORD_BYTES as u64 => {
                    let stride_bytes = layout.map_at(1) - layout.map_at(0);
                    let room_bytes = hole.length_bytes - RECORD_BYTES as u64;
                    group += 1 + u32::try_from(room_bytes / stride_bytes).unwrap_or(u32::MAX - group - 1);
                }
                _ => {
                    let bits = self.read_map(group, perform)?;
                    if bits != Bits::default() {
                        each(group, bits);
                    }
                    group += 1;
                }
            }
        }
        Ok(())
    }

    /// Which blocks of a group the layer has.
    pub(crate) fn read_map(&self, group: u32, perform: Perform<'_>) -> Result<Bits, SnapshotError> {
        let Some(layout) = self.layout else { return Ok(Bits::default()) };
        let at = layout.map_at(group);
        let record = read_record(&*self.store, at, perform).map_err(|source| SnapshotError::at(self.id, source))?;
        decode_map(self.id, group, at, &record).map_err(|source| SnapshotError::Damaged { layer: self.id, source })
    }
}

/// A store that takes ranges of any length.
fn whole_ranges(store: Arc<dyn Store>) -> Arc<dyn Store> {
    match store.capabilities().range_max_bytes {
        Some(_) => Arc::new(Over::new(SplitLayer, store)),
        None => store,
    }
}

fn read_record(store: &dyn Store, offset_bytes: u64, perform: Perform<'_>) -> Result<Vec<u8>, StoreError> {
    if store.geometry().length_bytes < offset_bytes + RECORD_BYTES as u64 {
        return Ok(Vec::new());
    }
    match sanwire_store::run(store, Request::Read { offset_bytes, buffer: vec![0; RECORD_BYTES].into() }, perform)? {
        Outcome::Read(frame) => Ok(frame.to_vec()),
        _ => Ok(Vec::new()),
    }
}

/// The same error at the place of the volume.
fn moved(error: StoreError, at: u64, offset_bytes: u64) -> StoreError {
    StoreError { offset_bytes: offset_bytes + error.offset_bytes.saturating_sub(at), ..error }
}

/// The layer of a volume that is written.
#[derive(Debug)]
pub(crate) struct Top {
    pub(crate) source: Arc<Source>,
    /// `None`: it is what is below all layers, which has no map.
    pub(crate) map: Option<Map>,
    pub(crate) turns: Turns,
    /// Those of the volume.
    pub(crate) losses: Arc<Losses>,
    /// How many of them were before all that stands here.
    losses_before: u64,
    is_doubtful: AtomicBool,
}

impl Top {
    pub(crate) fn new(source: Arc<Source>, map: Option<Map>, losses: &Arc<Losses>) -> Arc<Self> {
        let (losses, losses_before) = (Arc::clone(losses), losses.count());
        let (turns, is_doubtful) = (Turns::default(), AtomicBool::new(false));
        Arc::new(Top { source, map, turns, losses, losses_before, is_doubtful })
    }

    /// Some of it may be lost since it was in use before.
    pub(crate) fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Release);
    }

    /// A flush has failed: what was written since the last one may be lost.
    pub(crate) fn lose(&self) {
        match &self.map {
            Some(map) => map.lose(&self.losses),
            None => self.losses.add(),
        }
    }

    /// Whether one has, so that nobody knows what the medium holds.
    pub(crate) fn has_lost(&self) -> bool {
        self.is_doubtful.load(Ordering::Acquire) || self.losses.count() != self.losses_before
    }

    /// Begins to write the map of a group.
    pub(crate) fn write_map(&self, group: u32, bits: &Bits, completions: &CompletionQueue) -> Started {
        let Some(layout) = self.source.layout else { return Started::Done(Ok(Outcome::Done)) };
        let data = encode_map(self.source.id, group, bits).into();
        self.source.store.start(Request::Write { offset_bytes: layout.map_at(group), data }, completions)
    }
}

/// A layer for those who flush it outside the requests of its volume.
#[derive(Debug)]
pub(crate) struct Flushes(pub(crate) Arc<Top>);

impl Store for Flushes {
    fn geometry(&self) -> Geometry {
        self.0.source.store.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match request {
            Request::Flush => self.0.flush(completions),
            request => self.0.source.store.start(request, completions),
        }
    }
}
