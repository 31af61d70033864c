//! A file system that is full, or nearly so: flushes lack nothing, and what is deleted makes room.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::{BLOCK, Memory, id, kernel, read};
use sanwire_snapshot::{Base, LayerId, Origin, Shelf, SnapshotError, SnapshotStore, Tree};
use sanwire_store::{
    Allocation, Capabilities, CompletionQueue, ErrorKind, Geometry, Outcome, RamStore, Request, ResizeError, Space,
    Started, Store, StoreError,
};

/// What all files have together.
#[derive(Debug)]
struct Pages {
    free: AtomicU64,
    /// The fewest that there ever were.
    fewest: AtomicU64,
}

impl Pages {
    fn take(&self) -> bool {
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1));
        self.fewest.fetch_min(self.free.load(Ordering::Relaxed), Ordering::Relaxed);
        taken.is_ok()
    }
}

/// A sparse file.
#[derive(Debug)]
struct Sparse {
    ram: RamStore,
    pages: Arc<Pages>,
    has: Mutex<BTreeSet<u64>>,
}

impl Sparse {
    fn new(length_bytes: u64, pages: &Arc<Pages>) -> Arc<Self> {
        let (ram, pages, has) = (RamStore::new(length_bytes, BLOCK as u32), Arc::clone(pages), Mutex::default());
        Arc::new(Sparse { ram, pages, has })
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        self.pages.free.fetch_add(self.has.lock().unwrap().len() as u64, Ordering::Relaxed);
    }
}

impl Store for Sparse {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.ram.capabilities()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let (offset_bytes, length_bytes) = request.range_bytes();
        let range = offset_bytes / BLOCK..(offset_bytes + length_bytes).div_ceil(BLOCK);
        let has = &mut *self.has.lock().unwrap();
        let is_filling = matches!(request, Request::Write { .. } | Request::WriteZeroes { .. });
        let mut fits = |page| !has.insert(page) || self.pages.take() || !has.remove(&page);
        if is_filling && !range.clone().all(&mut fits) {
            return Started::Done(Err(StoreError::new(ErrorKind::Full, offset_bytes)));
        }
        match &request {
            Request::Discard { .. } => {
                let gone = range.into_iter().filter(|page| has.remove(page)).count();
                self.pages.free.fetch_add(gone as u64, Ordering::Relaxed);
            }
            Request::Allocation { .. } => {
                let is_mapped = has.contains(&range.start);
                let same = range.clone().take_while(|page| has.contains(page) == is_mapped).count() as u64;
                let allocation = Allocation { is_mapped, length_bytes: same * BLOCK };
                return Started::Done(Ok(Outcome::Allocated(allocation)));
            }
            _ => {}
        }
        self.ram.start(request, completions)
    }

    fn space(&self) -> Option<Space> {
        let used_bytes = self.has.lock().unwrap().len() as u64 * BLOCK;
        Some(Space { used_bytes, available_bytes: Some(self.pages.free.load(Ordering::Relaxed) * BLOCK) })
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.ram.resize(length_bytes)
    }
}

#[derive(Debug)]
struct Disk {
    pages: Arc<Pages>,
    layers: Mutex<BTreeMap<LayerId, Arc<Sparse>>>,
    memory: Memory,
}

impl Disk {
    fn new(pages: u64) -> Arc<Self> {
        let pages = Arc::new(Pages { free: AtomicU64::new(pages), fewest: AtomicU64::new(pages) });
        Arc::new(Disk { pages, layers: Mutex::default(), memory: Memory::default() })
    }

    fn free(&self) -> u64 {
        self.pages.free.load(Ordering::Relaxed)
    }

    /// From now on there are so many.
    fn leave(&self, pages: u64) {
        self.pages.free.store(pages, Ordering::Relaxed);
        self.pages.fewest.store(pages, Ordering::Relaxed);
    }
}

impl Shelf for Disk {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        let store = Sparse::new(length_bytes, &self.pages);
        self.layers.lock().unwrap().insert(layer, Arc::clone(&store));
        Ok(store)
    }

    fn open(&self, layer: LayerId) -> io::Result<Arc<dyn Store>> {
        let found = self.layers.lock().unwrap().get(&layer).cloned();
        found.map(|store| store as Arc<dyn Store>).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, layer: LayerId) -> io::Result<()> {
        self.layers.lock().unwrap().remove(&layer);
        Ok(())
    }

    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        self.memory.load()
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        self.memory.keep(catalogue)
    }
}

/// Blocks that one map tells of.
const GROUP_BLOCKS: u64 = 16_384;

fn try_write(store: &dyn Store, block: u64, version: u64) -> Result<(), ErrorKind> {
    let data = common::content(version).into();
    let written = sanwire_store::run(store, Request::Write { offset_bytes: block * BLOCK, data }, kernel);
    written.map(drop).map_err(|error| error.kind)
}

fn flush(store: &dyn Store) -> Result<(), ErrorKind> {
    sanwire_store::run(store, Request::Flush, kernel).map(drop).map_err(|error| error.kind)
}

fn take(tree: &Tree, name: Option<&str>, layer: u64) {
    let prepared = tree.prepare("v", id(layer), &mut kernel).unwrap();
    let hold = tree.hold("v").unwrap();
    tree.take(prepared, name, 0, &hold, &mut kernel).unwrap();
}

/// A volume of so many blocks, of which the first ones were written before the first snapshot.
fn volume(disk: &Arc<Disk>, blocks: u64, written: u64) -> (Tree, SnapshotStore) {
    let base = Sparse::new(blocks * BLOCK, &disk.pages);
    (0..written).for_each(|block| try_write(&*base, block, 1).unwrap());
    let base = Base { store: base, identity: "base".to_owned(), may_be_longer: false };
    let tree = Tree::create(Arc::clone(disk) as _, "v", Origin::Base(base), &mut kernel).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    take(&tree, Some("s"), 1);
    (tree, store)
}

#[test]
fn what_was_written_can_be_flushed_however_full_the_store_is() {
    for pages in 3..20 {
        let disk = Disk::new(pages);
        let (_tree, store) = volume(&disk, 8 * GROUP_BLOCKS, 0);
        // Each in a group of its own, with a page for what says that it is there.
        let written = (0..8).filter(|group| try_write(&store, group * GROUP_BLOCKS, 2).is_ok()).count();
        assert_eq!((flush(&store), written), (Ok(()), 8.min((pages as usize - 1) / 2)));
    }
}

#[test]
fn a_deleted_snapshot_makes_room_where_there_is_none() {
    let disk = Disk::new(10_000);
    let (tree, store) = volume(&disk, 4000, 3000);
    (0..2500).for_each(|block| try_write(&store, block, 2).unwrap());
    take(&tree, None, 2);
    disk.leave(0);
    tree.forget("v", "s").unwrap();
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    assert!(disk.free() >= 2500, "{} pages are free", disk.free());
    let expected = |block: u64| u64::from(block < 3000) + u64::from(block < 2500);
    assert!((0..4000).all(|block| read(&store, block) == expected(block)));
}

#[test]
fn a_merge_leaves_room_to_those_who_write() {
    let disk = Disk::new(100_000);
    // Below there is nothing of what was written.
    let (tree, store) = volume(&disk, 3 * GROUP_BLOCKS, 0);
    (0..3 * GROUP_BLOCKS).step_by(2).for_each(|block| try_write(&store, block, 2).unwrap());
    take(&tree, None, 2);
    tree.forget("v", "s").unwrap();
    disk.leave(3);
    let refused = tree.tidy(&mut kernel);
    assert!(matches!(refused, Err(SnapshotError::NoRoom { .. })), "{refused:?}");
    assert_eq!(disk.free(), 3);
    disk.leave(1000);
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    assert!(disk.pages.fewest.load(Ordering::Relaxed) >= 700, "{:?}", disk.pages);
    assert!(disk.free() >= 1000);
    assert!((0..3 * GROUP_BLOCKS).all(|block| read(&store, block) == if block % 2 == 0 { 2 } else { 0 }));
}
