//! The store of a volume that is made of layers.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use sanwire_buffer::{Frame, Slices};
use sanwire_store::{
    Allocation, Capabilities, Completion, CompletionQueue, ErrorKind, Geometry, GrowingGeometry, Outcome, RemoteCount,
    Request, ResizeError, Space, Started, Store, StoreError,
};

use crate::LayerId;
use crate::format::{GROUP_BLOCKS, Layout};
use crate::gate::Gate;
use crate::layer::{Flushes, Perform, Source, Top};
use crate::losses::{Losses, lost};
use crate::map::Map;
use crate::pieces::{cleared, read_pieces};
use crate::view::{Table, View};

/// A volume made of a base and layers over it.
///
/// A request for blocks that lie side by side in one layer is passed on to its store, with its place changed; others are cut, and their
/// parts go on side by side. Writes go to the last layer. Requests of several shards go on together, and none waits for another one,
/// but for flushes that have something to say about the map, and for writes while a snapshot is made.
#[derive(Clone, Debug)]
pub struct SnapshotStore(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) view: ArcSwap<View>,
    pub(crate) geometry: GrowingGeometry,
    pub(crate) gate: Gate,
    /// Held by those who change the length, or need it to stay.
    lengths: Mutex<()>,
    /// Nobody knows which layer is the last one at the next start.
    is_stopped: AtomicBool,
}

/// A write, or a flush, that is under way.
struct Pass(Arc<Inner>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}

/// A write that is under way: what becomes true when it has ended well.
struct Change {
    pass: Pass,
    view: Arc<View>,
    top: Arc<Top>,
    slot: u32,
    /// How often the layer had lost something when it began.
    losses: u64,
    range: (u64, u64),
}

impl Change {
    fn new(pass: Pass, range: (u64, u64)) -> Self {
        let view = pass.0.view.load_full();
        let (top, slot) = {
            let table = view.table.load();
            (Arc::clone(&table.top), table.top_slot)
        };
        let losses = top.losses.count();
        Change { pass, view, top, slot, losses, range }
    }

    /// Takes room for what is to be said of it.
    fn reserve(&self, completions: &CompletionQueue) -> Started {
        let (first, count) = self.view.blocks(self.range);
        // Of what is there already something was said.
        if count == 0 || self.view.index.run(first, count) == (self.slot, count) {
            return Started::Done(Ok(Outcome::Done));
        }
        let groups = ((first / GROUP_BLOCKS) as u32, ((first + count - 1) / GROUP_BLOCKS) as u32 + 1);
        self.top.reserve(groups, completions)
    }

    fn perform(self, request: Request, completions: &CompletionQueue) -> Started {
        match request {
            Request::Write { data, .. } => self.begin(completions, |offset_bytes, from, length_bytes| {
                let from = from as usize;
                Request::Write { offset_bytes, data: data.slice(from..from + length_bytes as usize) }
            }),
            Request::Discard { .. } if self.top.source.store.geometry().discards => {
                self.begin(completions, |offset_bytes, _, length_bytes| Request::Discard { offset_bytes, length_bytes })
            }
            _ => self.begin(completions, |offset_bytes, _, length_bytes| Request::WriteZeroes {
                offset_bytes,
                length_bytes,
            }),
        }
    }

    fn end(self, end: Completion) -> Started {
        let Change { pass, view, top, slot, losses, range: (offset_bytes, length_bytes) } = self;
        let is_kept = end.is_err() || view.mark((&top, slot), losses, offset_bytes, length_bytes);
        drop(pass);
        Started::Done(if is_kept { end } else { Err(lost(offset_bytes)) })
    }

    /// Begins it: `make` says what the store of the layer is asked for bytes that begin so far into the range, and lie there.
    fn begin(self, completions: &CompletionQueue, make: impl Fn(u64, u64, u64) -> Request) -> Started {
        let (offset_bytes, length_bytes) = self.range;
        let source = Arc::clone(&self.top.source);
        let part =
            |from: u64, length: u64| source.start(offset_bytes + from, (completions, ()), |at| make(at, from, length));
        if source.reach_bytes(offset_bytes) >= length_bytes {
            return part(0, length_bytes).then(completions, move |end, _| self.end(end));
        }
        let (mut parts, mut from) = (Vec::new(), 0);
        while from < length_bytes {
            let length = source.reach_bytes(offset_bytes + from).min(length_bytes - from);
            if length == 0 {
                let beyond = StoreError::new(ErrorKind::OutOfRange, offset_bytes + from);
                parts.push(Started::Done(Err(beyond)));
                break;
            }
            parts.push(part(from, length));
            from += length;
        }
        Started::join(parts, completions, move |ends, _| {
            self.end(ends.into_iter().find(Result::is_err).unwrap_or(Ok(Outcome::Done)))
        })
    }
}

impl SnapshotStore {
    pub(crate) fn new(view: View) -> Self {
        let top = Arc::clone(&view.table.load().top.source);
        let below = top.store.geometry();
        let block_bytes = view.block_bytes();
        let geometry = Geometry {
            length_bytes: top.length_bytes(),
            block_bytes,
            physical_block_bytes: below.physical_block_bytes.max(block_bytes),
            // A longer write may be cut where a layer's map lies between.
            atomic_write_bytes: if below.atomic_write_bytes >= block_bytes { block_bytes } else { 0 },
            ..below
        };
        let (view, geometry) = (ArcSwap::from_pointee(view), GrowingGeometry::new(geometry));
        let (gate, lengths, is_stopped) = (Gate::default(), Mutex::default(), AtomicBool::new(false));
        SnapshotStore(Arc::new(Inner { view, geometry, gate, lengths, is_stopped }))
    }

    /// The same of a snapshot, which is never written.
    pub(crate) fn of_snapshot(view: View, length_bytes: u64) -> Self {
        let store = SnapshotStore::new(view);
        let geometry = Geometry { length_bytes, read_only: true, discards: false, ..store.geometry() };
        let Ok(inner) = Arc::try_unwrap(store.0) else { unreachable!("nobody else has it yet") };
        SnapshotStore(Arc::new(Inner { geometry: GrowingGeometry::new(geometry), ..inner }))
    }

    /// Whether nobody has it but whoever asks.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether both are the same.
    pub(crate) fn is(&self, other: &SnapshotStore) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes stable what was written; what was held, too.
    pub(crate) fn flush(&self, perform: Perform<'_>) -> Result<(), StoreError> {
        sanwire_store::run(&Flushes(self.written()), Request::Flush, perform).map(drop)
    }

    /// The layer that is written.
    pub(crate) fn written(&self) -> Arc<Top> {
        Arc::clone(&self.0.view.load().table.load().top)
    }

    /// Its flushes that have failed.
    pub(crate) fn losses(&self) -> Arc<Losses> {
        Arc::clone(&self.written().losses)
    }

    /// Whether writes and flushes fail from now on. To be said while they are held; once none can be lost any more, at any time.
    pub(crate) fn stop(&self, is_stopped: bool) {
        self.0.is_stopped.store(is_stopped, Ordering::Release);
    }

    /// What is written from now on goes to another layer. Writes are held.
    pub(crate) fn begin_layer(&self, source: Arc<Source>) {
        let view = self.0.view.load();
        let mut table = Table::clone(&view.table.load());
        table.top_slot = table.slots.len() as u32;
        table.slots.push(Arc::clone(&source));
        table.top = Top::new(source, Some(Map::default()), &table.top.losses);
        view.table.store(Arc::new(table));
    }

    /// The blocks of a layer are in another one now, below it.
    pub(crate) fn redirect(&self, upper: LayerId, lower: &Arc<Source>) {
        self.0.view.load().table.rcu(|table| table.with(upper, lower));
    }

    /// The same for the layer that was written, with what is written from now on. Writes are held.
    pub(crate) fn settle(&self, target: &Arc<Top>) {
        let view = self.0.view.load();
        let mut table = {
            let table = view.table.load();
            table.with(table.top.source.id, &target.source)
        };
        table.top = Arc::clone(target);
        view.table.store(Arc::new(table));
    }

    /// Bytes of memory that it takes to know where blocks are, whatever was written. For each TiB in which something was written since
    /// the first layer: 64 MiB, and where blocks of several layers lie side by side 32 MiB for two layers, and up to 512 MiB for
    /// hundreds. For each that was written since the last layer: 32 MiB, and as much again until that is flushed. With blocks of
    /// 512 bytes all but the first is eight times as much.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let view = self.0.view.load();
        let map_bytes = view.table.load().top.map.as_ref().map_or(0, |map| map.memory_bytes());
        view.index.memory_bytes() + map_bytes
    }

    fn read(&self, offset_bytes: u64, buffer: Frame, completions: &CompletionQueue) -> Started {
        let view = self.0.view.load();
        let length_bytes = buffer.len() as u64;
        let (table, piece) = view.piece(offset_bytes, length_bytes);
        if piece.length_bytes < length_bytes {
            return read_pieces(view.pieces(offset_bytes, length_bytes), buffer, completions);
        }
        match piece.source {
            Some(source) => {
                source.start(offset_bytes, (completions, table), |offset_bytes| Request::Read { offset_bytes, buffer })
            }
            None => Started::Done(Ok(Outcome::Read(cleared(buffer)))),
        }
    }

    fn change(&self, pass: Pass, request: Request, completions: &CompletionQueue) -> Started {
        let range = request.range_bytes();
        if self.0.is_stopped.load(Ordering::Acquire) {
            return Started::Done(Err(stopped(range.0)));
        }
        if let Request::Flush = request {
            let top = self.written();
            return top.flush(completions).then(completions, move |end, _| {
                drop(pass);
                Started::Done(top.losses.tell(end))
            });
        }
        let change = Change::new(pass, range);
        let reserved = change.reserve(completions);
        if let Started::Done(Ok(_)) = reserved {
            return change.perform(request, completions);
        }
        reserved.then(completions, move |end, completions| match end {
            Ok(_) => change.perform(request, completions),
            failed => Started::Done(failed),
        })
    }

    fn allocation(&self, offset_bytes: u64, length_bytes: u64, completions: &CompletionQueue) -> Started {
        let (table, piece) = self.0.view.load().piece(offset_bytes, length_bytes);
        let length_bytes = piece.length_bytes;
        match piece.source {
            Some(source) => source.start(offset_bytes, (completions, table), |offset_bytes| Request::Allocation {
                offset_bytes,
                length_bytes,
            }),
            None => Started::Done(Ok(Outcome::Allocated(Allocation { is_mapped: false, length_bytes }))),
        }
    }

    fn top(&self) -> Arc<Source> {
        Arc::clone(&self.written().source)
    }

    fn base(&self) -> Option<Arc<Source>> {
        self.0.view.load().table.load().slots.first().cloned()
    }
}

fn stopped(offset_bytes: u64) -> StoreError {
    let source = io::Error::other(
        "a change of the volume's layers could not be written, so nobody knows where this would be at the next start",
    );
    StoreError { kind: ErrorKind::Unwritable, offset_bytes, source: Some(source) }
}

impl Store for SnapshotStore {
    fn geometry(&self) -> Geometry {
        self.0.geometry.get()
    }

    fn capabilities(&self) -> Capabilities {
        let top = self.top().store.capabilities();
        let shares = top.shares || self.base().is_some_and(|base| base.store.capabilities().shares);
        let geometry = self.geometry();
        // Longer ranges are many parts.
        let range_max_bytes = Some(Layout::new(geometry.block_bytes).group_bytes());
        Capabilities { geometry, shares, range_max_bytes, grows: top.grows && !geometry.read_only, ..top }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if let Err(error) = self.0.geometry.get().check(&request) {
            return Started::Done(Err(error));
        }
        match request {
            Request::Read { offset_bytes, buffer } => return self.read(offset_bytes, buffer, completions),
            Request::Allocation { offset_bytes, length_bytes } => {
                return self.allocation(offset_bytes, length_bytes, completions);
            }
            Request::Discard { offset_bytes, .. } if !self.0.geometry.get().discards => {
                return Started::Done(Err(StoreError::new(ErrorKind::Unsupported, offset_bytes)));
            }
            _ => {}
        }
        loop {
            if self.0.gate.enter() {
                return self.change(Pass(Arc::clone(&self.0)), request, completions);
            }
            if let Some(pending) = self.0.gate.wait(completions) {
                let store = self.clone();
                return Started::Pending(pending).then(completions, move |end, completions| match end {
                    Ok(_) => store.start(request, completions),
                    end => Started::Done(end),
                });
            }
        }
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
        offset_bytes.checked_add(length_bytes as u64).filter(|end| *end <= self.0.geometry.get().length_bytes)?;
        let (_table, piece) = self.0.view.load().piece(offset_bytes, length_bytes as u64);
        if piece.length_bytes != length_bytes as u64 {
            return None;
        }
        let source = piece.source?;
        source.store.share(source.at(offset_bytes), length_bytes)
    }

    /// What all layers take together, also those that others share.
    fn space(&self) -> Option<Space> {
        let table = self.0.view.load().table.load_full();
        let mut sources: Vec<&Arc<Source>> = table.slots.iter().collect();
        sources.sort_unstable_by_key(|source| source.id);
        sources.dedup_by_key(|source| source.id);
        let spaces = sources.into_iter().filter_map(|source| source.store.space());
        let used_bytes = spaces.map(|space| space.used_bytes).sum();
        Some(Space { used_bytes, available_bytes: table.top.source.store.space()?.available_bytes })
    }

    fn remote(&self) -> Option<RemoteCount> {
        self.base().and_then(|base| base.store.remote())
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.0.resize(length_bytes)
    }
}

impl Inner {
    /// The length stays until this is dropped.
    pub(crate) fn resizing(&self) -> MutexGuard<'_, ()> {
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        let _length = self.resizing();
        self.geometry.check(length_bytes)?;
        if self.geometry.get().read_only {
            return Err(ResizeError::Fixed("it is readonly"));
        }
        let view = self.view.load();
        let top = Arc::clone(&view.table.load().top);
        let Source { store, layout, .. } = &*top.source;
        let store_bytes = layout.map_or(length_bytes, |layout| layout.store_bytes(length_bytes));
        // A disk may be longer by itself.
        let is_so_long = layout.is_none() && store.geometry().length_bytes >= store_bytes;
        let resized = if is_so_long { Ok(()) } else { store.resize(store_bytes) };
        if let Err(ResizeError::Unstable(_)) = &resized {
            // What its store was told then, no flush is told any more.
            top.lose();
        }
        resized?;
        top.source.reach_to(length_bytes);
        view.grow(length_bytes);
        self.geometry.grow(length_bytes);
        Ok(())
    }
}
