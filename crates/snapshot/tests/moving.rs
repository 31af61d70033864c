//! A merge gives back the place of blocks in the upper layer only once nobody reads them there any more.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use common::{BLOCK, Memory, id, kernel, read, write};
use sanwire_snapshot::{LayerId, Origin, Shelf, Tree};
use sanwire_store::{
    Completer, CompletionQueue, ErrorKind, Geometry, RamStore, Request, ResizeError, Space, Started, Store, StoreError,
};

/// Memory of which one read takes its time, and one flush fails.
#[derive(Debug)]
struct Slow {
    ram: RamStore,
    is_slow: AtomicBool,
    reading: Mutex<Option<(Completer, u64, usize)>>,
    fails: AtomicBool,
}

impl Slow {
    /// The read that has waited ends: it finds what is there now.
    fn go_on(&self) {
        let (completer, offset_bytes, length) = self.reading.lock().unwrap().take().unwrap();
        let buffer = vec![9; length].into();
        completer.complete(sanwire_store::run(&self.ram, Request::Read { offset_bytes, buffer }, kernel));
    }
}

impl Store for Slow {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match request {
            Request::Read { offset_bytes, buffer } if self.is_slow.swap(false, Ordering::Relaxed) => {
                let (pending, completer) = completions.pend();
                *self.reading.lock().unwrap() = Some((completer, offset_bytes, buffer.len()));
                Started::Pending(pending)
            }
            Request::Flush if self.fails.swap(false, Ordering::Relaxed) => {
                Started::Done(Err(StoreError::new(ErrorKind::Unwritable, 0)))
            }
            request => self.ram.start(request, completions),
        }
    }

    /// A merge is done in parts of a quarter of that.
    fn space(&self) -> Option<Space> {
        Some(Space { used_bytes: 0, available_bytes: Some(1024 * BLOCK) })
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.ram.resize(length_bytes)
    }
}

#[derive(Default, Debug)]
struct SlowShelf {
    layers: Mutex<BTreeMap<LayerId, Arc<Slow>>>,
    memory: Memory,
}

impl Shelf for SlowShelf {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        let ram = RamStore::new(length_bytes, BLOCK as u32);
        let (is_slow, reading, fails) = (AtomicBool::new(false), Mutex::default(), AtomicBool::new(false));
        let store = Arc::new(Slow { ram, is_slow, reading, fails });
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

fn take(tree: &Tree, name: Option<&str>, layer: u64) {
    let prepared = tree.prepare("v", id(layer), &mut kernel).unwrap();
    let hold = tree.hold("v").unwrap();
    tree.take(prepared, name, 0, &hold, &mut kernel).unwrap();
}

/// A read of the upper layer that takes longer than the merge, which fails once at its first try, if that is asked for.
fn read_through_a_merge(fails: bool) {
    const WRITTEN: u64 = 700;
    // It is in the second part of three.
    const READ: u64 = 300;
    let shelf = Arc::new(SlowShelf::default());
    let origin = Origin::Empty { length_bytes: 1000 * BLOCK, block_bytes: BLOCK as u32, layer: id(1) };
    let tree = Tree::create(Arc::clone(&shelf) as _, "v", origin, &mut kernel).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    take(&tree, Some("s"), 2);
    (0..WRITTEN).for_each(|block| write(&store, block, 7));
    take(&tree, None, 3);
    tree.forget("v", "s").unwrap();
    let upper = Arc::clone(&shelf.layers.lock().unwrap()[&id(2)]);
    upper.is_slow.store(true, Ordering::Relaxed);
    let (refused, found) = thread::scope(|scope| {
        let reader = scope.spawn(|| read(&store, READ));
        while upper.reading.lock().unwrap().is_none() {
            thread::yield_now();
        }
        upper.fails.store(fails, Ordering::Relaxed);
        let refused = (0..20).map(|_| tree.tidy(&mut kernel)).filter(Result::is_err).count();
        upper.go_on();
        (refused, reader.join().unwrap())
    });
    assert_eq!((refused, found), (usize::from(fails), 7), "its place was given back under it");
    write(&store, READ, 8);
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    assert_eq!((read(&store, READ), read(&store, 1), tree.layers_count()), (8, 7, 2));
}

#[test]
fn a_read_that_is_under_way_finds_what_is_merged_meanwhile() {
    read_through_a_merge(false);
}

#[test]
fn a_read_that_is_under_way_is_waited_for_by_the_merge_after_one_that_has_failed() {
    read_through_a_merge(true);
}
