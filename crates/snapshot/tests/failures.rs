//! Flushes of layers that fail, or take their time: who is told, and in which order things reach a store.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{BLOCK, Memory, id, kernel, read, write};
use sanwire_snapshot::{Base, Damage, LayerId, Origin, Shelf, SnapshotError, SnapshotStore, Tree};
use sanwire_store::{
    Capabilities, Completer, CompletionQueue, ErrorKind, Geometry, Outcome, RamStore, Request, ResizeError, Started,
    Store, StoreError,
};

/// Blocks that one map tells of.
const GROUP_BLOCKS: u64 = 16_384;

/// What a store does with its requests, one after the other; then it does all as it should.
#[derive(Debug)]
enum Deed {
    Well,
    Fail(ErrorKind),
    /// It is pending until the test says.
    Wait,
}

/// Memory that does with its flushes, and with writes of maps, what it is told.
#[derive(Debug)]
struct Moody {
    ram: RamStore,
    flushes: Mutex<Vec<Deed>>,
    maps: Mutex<Vec<Deed>>,
    waiting: Mutex<Vec<Completer>>,
    flushes_begun: AtomicU32,
    /// Called at the next flush.
    meanwhile: Mutex<Option<Meanwhile>>,
}

struct Meanwhile(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Moody {
    fn new(length_bytes: u64) -> Arc<Self> {
        Arc::new(Moody {
            ram: RamStore::new(length_bytes, BLOCK as u32),
            flushes: Mutex::default(),
            maps: Mutex::default(),
            waiting: Mutex::default(),
            flushes_begun: AtomicU32::new(0),
            meanwhile: Mutex::default(),
        })
    }
}

fn next(deeds: &Mutex<Vec<Deed>>) -> Deed {
    let mut deeds = deeds.lock().unwrap();
    if deeds.is_empty() { Deed::Well } else { deeds.remove(0) }
}

impl Store for Moody {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.ram.capabilities()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let deed = match &request {
            Request::Flush => {
                self.flushes_begun.fetch_add(1, Ordering::Relaxed);
                if let Some(Meanwhile(act)) = self.meanwhile.lock().unwrap().take() {
                    act();
                }
                next(&self.flushes)
            }
            Request::Write { data, .. } if data.contiguous().starts_with(b"SANWLMAP") => next(&self.maps),
            _ => Deed::Well,
        };
        match deed {
            Deed::Well => self.ram.start(request, completions),
            Deed::Fail(kind) => Started::Done(Err(StoreError::new(kind, 0))),
            Deed::Wait => {
                let (pending, completer) = completions.pend();
                self.waiting.lock().unwrap().push(completer);
                Started::Pending(pending)
            }
        }
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.ram.resize(length_bytes)
    }
}

#[derive(Default, Debug)]
struct MoodyShelf {
    layers: Mutex<BTreeMap<LayerId, Arc<Moody>>>,
    memory: Memory,
    /// The next changes of the catalogue fail: whether they are made all the same.
    failing: Mutex<Vec<bool>>,
}

impl MoodyShelf {
    fn layer(&self, layer: u64) -> Arc<Moody> {
        Arc::clone(&self.layers.lock().unwrap()[&id(layer)])
    }
}

impl Shelf for MoodyShelf {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        let store = Moody::new(length_bytes);
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
        let mut failing = self.failing.lock().unwrap();
        if failing.is_empty() {
            return self.memory.keep(catalogue);
        }
        if failing.remove(0) {
            self.memory.keep(catalogue)?;
        }
        Err(io::ErrorKind::StorageFull.into())
    }
}

fn family(blocks: u64) -> (Arc<MoodyShelf>, Arc<Tree>, SnapshotStore) {
    let shelf = Arc::new(MoodyShelf::default());
    let origin = Origin::Empty { length_bytes: blocks * BLOCK, block_bytes: BLOCK as u32, layer: id(1) };
    let tree = Tree::create(Arc::clone(&shelf) as _, "v", origin, &mut kernel).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    (shelf, Arc::new(tree), store)
}

fn flush(store: &SnapshotStore) -> Result<(), ErrorKind> {
    sanwire_store::run(store, Request::Flush, kernel).map(drop).map_err(|error| error.kind)
}

fn snapshot(tree: &Tree, name: &str, layer: u64) -> Result<(), SnapshotError> {
    let prepared = tree.prepare("v", id(layer), &mut kernel)?;
    let hold = tree.hold("v")?;
    tree.take(prepared, Some(name), 0, &hold, &mut kernel)
}

/// As before a snapshot when a flush has failed.
fn write_again(tree: &Tree, layer: u64) -> Result<(), SnapshotError> {
    assert!(matches!(snapshot(tree, "s", layer), Err(SnapshotError::Unsettled)));
    let prepared = tree.prepare("v", id(layer + 1), &mut kernel)?;
    let hold = tree.hold("v")?;
    tree.take(prepared, None, 0, &hold, &mut kernel)?;
    drop(hold);
    assert!(matches!(snapshot(tree, "s", layer + 2), Err(SnapshotError::Unsettled)));
    while tree.tidy(&mut kernel)?.is_some() {}
    Ok(())
}

#[test]
fn a_flush_that_fails_for_a_snapshot_fails_the_next_one_of_a_user() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    shelf.layer(1).flushes.lock().unwrap().push(Deed::Fail(ErrorKind::Unwritable));
    assert!(matches!(snapshot(&tree, "s", 2), Err(SnapshotError::Store { .. })));
    assert_eq!((flush(&store), flush(&store)), (Err(ErrorKind::Unwritable), Ok(())));
    write_again(&tree, 3).unwrap();
    snapshot(&tree, "s", 9).unwrap();
    write(&store, 1, 2);
    assert_eq!((flush(&store), read(&store, 1)), (Ok(()), 2));
}

#[test]
fn what_a_snapshot_holds_after_a_failed_flush_was_written_once_more() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    flush(&store).unwrap();
    write(&store, 1, 2);
    shelf.layer(1).flushes.lock().unwrap().push(Deed::Fail(ErrorKind::Unwritable));
    assert_eq!(flush(&store), Err(ErrorKind::Unwritable));
    // What fails while it is written again is no snapshot either.
    shelf.layer(1).flushes.lock().unwrap().extend([
        Deed::Well,
        Deed::Well,
        Deed::Well,
        Deed::Fail(ErrorKind::Unwritable),
    ]);
    assert!(matches!(write_again(&tree, 2), Err(SnapshotError::Store { .. })));
    assert!(matches!(snapshot(&tree, "s", 8), Err(SnapshotError::Unsettled)));
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    snapshot(&tree, "s", 9).unwrap();
    assert_eq!((flush(&store), read(&store, 1)), (Ok(()), 2));
}

#[test]
fn a_base_that_has_lost_something_has_no_snapshot() {
    let (shelf, base) = (Arc::new(MoodyShelf::default()), Moody::new(100 * BLOCK));
    let tree = Tree::create(shelf, "v", Origin::Base(common::base(&base)), &mut kernel).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    base.flushes.lock().unwrap().push(Deed::Fail(ErrorKind::Unwritable));
    assert_eq!((flush(&store), flush(&store)), (Err(ErrorKind::Unwritable), Ok(())));
    assert!(matches!(snapshot(&tree, "s", 1), Err(SnapshotError::Unsure)));
}

#[test]
fn a_flush_is_not_over_while_a_map_is_on_its_way() {
    let (shelf, _tree, store) = family(GROUP_BLOCKS + 100);
    write(&store, 1, 1);
    write(&store, GROUP_BLOCKS + 1, 1);
    shelf.layer(1).maps.lock().unwrap().extend([Deed::Wait, Deed::Fail(ErrorKind::Full)]);
    let queue = CompletionQueue::new(|| ());
    let started = store.start(Request::Flush, &queue);
    assert!(matches!(started, Started::Layered(_)), "{started:?}");
}

#[test]
fn one_flush_at_a_time_is_at_a_layer_s_store() {
    let (shelf, _tree, store) = family(100);
    let layer = shelf.layer(1);
    let before = layer.flushes_begun.load(Ordering::Relaxed);
    layer.flushes.lock().unwrap().push(Deed::Wait);
    let queue = CompletionQueue::new(|| ());
    let started = [(); 3].map(|()| store.start(Request::Flush, &queue));
    assert_eq!(layer.flushes_begun.load(Ordering::Relaxed) - before, 1, "{started:?}");
    layer.waiting.lock().unwrap().drain(..).for_each(|completer| completer.complete(Ok(Outcome::Done)));
}

#[test]
fn a_volume_that_grows_while_a_snapshot_is_taken_keeps_what_is_written_there() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    let prepared = tree.prepare("v", id(2), &mut kernel).unwrap();
    let hold = tree.hold("v").unwrap();
    let growing = {
        let (store, (sender, growing)) = (store.clone(), std::sync::mpsc::channel());
        let act = move || {
            let grower = thread::spawn(move || store.resize((GROUP_BLOCKS + 100) * BLOCK).unwrap());
            // Long enough for it to end, if it does not wait.
            thread::sleep(Duration::from_millis(50));
            sender.send(grower).unwrap();
        };
        *shelf.layer(1).meanwhile.lock().unwrap() = Some(Meanwhile(Box::new(act)));
        growing
    };
    tree.take(prepared, Some("s"), 0, &hold, &mut kernel).unwrap();
    drop(hold);
    // It has been called.
    growing.recv().unwrap().join().unwrap();
    write(&store, GROUP_BLOCKS + 50, 7);
    flush(&store).unwrap();
    assert_eq!(read(&store, GROUP_BLOCKS + 50), 7);
    drop((store, tree));
    let tree = Tree::open(shelf, None).unwrap();
    assert_eq!(read(&tree.volume("v", &mut kernel).unwrap(), GROUP_BLOCKS + 50), 7);
}

#[test]
fn a_volume_takes_no_writes_while_nobody_knows_where_they_would_be_at_the_next_start() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    let prepared = tree.prepare("v", id(2), &mut kernel).unwrap();
    let hold = tree.hold("v").unwrap();
    shelf.failing.lock().unwrap().extend([true, false, false, false]);
    assert!(matches!(tree.take(prepared, Some("s"), 0, &hold, &mut kernel), Err(SnapshotError::Keep(_))));
    drop(hold);
    let data = common::content(2).into();
    let written = sanwire_store::run(&store, Request::Write { offset_bytes: BLOCK, data }, kernel);
    assert_eq!(written.unwrap_err().kind, ErrorKind::Unwritable);
    assert_eq!((flush(&store), read(&store, 1)), (Err(ErrorKind::Unwritable), 1));
    assert!(matches!(tree.forget("v", "s"), Err(SnapshotError::Keep(_))), "it may be there");
    assert!(matches!(tree.tidy(&mut kernel), Err(SnapshotError::Keep(_))), "nothing is changed meanwhile");
    assert!(tree.is_untidy());
    // As after a crash: the snapshot is there.
    let kept = shelf.load().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&kept).contains("\"s\""));

    assert_eq!(tree.tidy(&mut kernel).unwrap(), None);
    write(&store, 1, 2);
    assert_eq!((flush(&store), read(&store, 1)), (Ok(()), 2));
    drop((store, tree));
    let tree = Tree::open(shelf, None).unwrap();
    assert_eq!((tree.snapshots(), read(&tree.volume("v", &mut kernel).unwrap(), 1)), (vec![], 2));
}

#[test]
fn what_may_have_been_kept_is_made_certain_before_layers_are_removed() {
    let (shelf, tree, store) = family(100);
    drop(tree.prepare("v", id(2), &mut kernel).unwrap());
    drop((store, tree));
    shelf.failing.lock().unwrap().push(true);
    let count = || shelf.layers.lock().unwrap().len();
    assert!(matches!(Tree::open(Arc::clone(&shelf) as _, None), Err(SnapshotError::Keep(_))));
    assert_eq!(count(), 2);
    Tree::open(Arc::clone(&shelf) as _, None).unwrap();
    assert_eq!(count(), 1);
}

#[test]
fn a_family_is_made_once_and_one_that_was_half_made_again() {
    let shelf = Arc::new(MoodyShelf::default());
    let origin = |layer| Origin::Empty { length_bytes: 100 * BLOCK, block_bytes: BLOCK as u32, layer: id(layer) };
    let create = |layer| Tree::create(Arc::clone(&shelf) as _, "v", origin(layer), &mut kernel);
    // The layer is made, and then the volume cannot be.
    let failing = Arc::new(FailsLater { shelf: Arc::clone(&shelf), left: AtomicU32::new(1) });
    assert!(matches!(Tree::create(failing, "v", origin(1), &mut kernel), Err(SnapshotError::Keep(_))));
    let opened = Tree::open(Arc::clone(&shelf) as _, None).unwrap();
    assert!(matches!(opened.volume("v", &mut kernel), Err(SnapshotError::NoVolume)), "nothing takes its writes");
    drop(opened);
    let tree = create(2).unwrap();
    write(&tree.volume("v", &mut kernel).unwrap(), 1, 1);
    flush(&tree.volume("v", &mut kernel).unwrap()).unwrap();
    assert!(matches!(create(3), Err(SnapshotError::Exists)));
    assert_eq!(read(&tree.volume("v", &mut kernel).unwrap(), 1), 1);
}

/// Fails for good after so many changes of the catalogue.
#[derive(Debug)]
struct FailsLater {
    shelf: Arc<MoodyShelf>,
    left: AtomicU32,
}

impl Shelf for FailsLater {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        self.shelf.create(layer, length_bytes)
    }

    fn open(&self, layer: LayerId) -> io::Result<Arc<dyn Store>> {
        self.shelf.open(layer)
    }

    fn remove(&self, layer: LayerId) -> io::Result<()> {
        self.shelf.remove(layer)
    }

    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        self.shelf.load()
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => self.shelf.keep(catalogue),
            Err(_) => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

#[test]
fn layers_that_were_cut_or_are_older_and_another_base_are_refused() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    snapshot(&tree, "s", 2).unwrap();
    let older = copy(&shelf.layer(2).ram);
    drop((store, tree));
    let open = || Tree::open(Arc::clone(&shelf) as _, None);
    let volume = || open().and_then(|tree| tree.volume("v", &mut kernel));
    assert_eq!(read(&volume().unwrap(), 1), 1);

    let put = |layer, ram| {
        let moody = Arc::into_inner(Moody::new(BLOCK)).unwrap();
        shelf.layers.lock().unwrap().insert(id(layer), Arc::new(Moody { ram, ..moody }))
    };
    let now = put(2, older).unwrap();
    assert!(matches!(volume(), Err(SnapshotError::Damaged { source: Damage::Older, .. })));
    let shorter = RamStore::new(now.ram.geometry().length_bytes - BLOCK, BLOCK as u32);
    let header = Request::Write { offset_bytes: 0, data: bytes(&now.ram, BLOCK as usize).into() };
    sanwire_store::run(&shorter, header, kernel).unwrap();
    put(2, shorter);
    assert!(matches!(volume(), Err(SnapshotError::Damaged { source: Damage::Cut { .. }, .. })));
    let other = Moody::new(100 * BLOCK);
    let with_base = Tree::open(Arc::clone(&shelf) as _, Some(common::base(&other)));
    assert!(matches!(with_base, Err(SnapshotError::OtherBase)));

    shelf.layers.lock().unwrap().insert(id(2), now);
    assert_eq!(read(&volume().unwrap(), 1), 1);
}

#[test]
fn another_base_or_one_that_was_cut_is_refused() {
    let (shelf, base) = (Arc::new(MoodyShelf::default()), Moody::new(100 * BLOCK));
    let origin = Origin::Base(common::base(&base));
    drop(Tree::create(Arc::clone(&shelf) as _, "v", origin, &mut kernel).unwrap());
    let open = |base: Option<Base>| Tree::open(Arc::clone(&shelf) as _, base).map(drop);
    let other = Base { identity: "other".to_owned(), ..common::base(&base) };
    for refused in [None, Some(other), Some(common::base(&Moody::new(99 * BLOCK)))] {
        assert!(matches!(open(refused), Err(SnapshotError::OtherBase)));
    }
    open(Some(common::base(&base))).unwrap();
}

fn bytes(store: &RamStore, length: usize) -> Vec<u8> {
    let read = Request::Read { offset_bytes: 0, buffer: vec![0; length].into() };
    match sanwire_store::run(store, read, kernel) {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn copy(store: &RamStore) -> RamStore {
    let length_bytes = store.geometry().length_bytes;
    let made = RamStore::new(length_bytes, BLOCK as u32);
    let data = bytes(store, length_bytes as usize).into();
    sanwire_store::run(&made, Request::Write { offset_bytes: 0, data }, kernel).unwrap();
    made
}

#[test]
fn what_was_lost_before_a_volume_was_closed_is_not_in_a_snapshot_of_later() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    flush(&store).unwrap();
    write(&store, 1, 2);
    shelf.layer(1).flushes.lock().unwrap().push(Deed::Fail(ErrorKind::Unwritable));
    assert_eq!(flush(&store), Err(ErrorKind::Unwritable));
    drop(store);
    tree.close("v");
    let store = tree.volume("v", &mut kernel).unwrap();
    assert_eq!(flush(&store), Ok(()), "a user has heard of it");
    write_again(&tree, 2).unwrap();
    snapshot(&tree, "s", 9).unwrap();
}

#[test]
fn a_snapshot_that_is_read_is_not_forgotten_and_the_next_of_its_name_is_another_one() {
    let (_shelf, tree, store) = family(100);
    write(&store, 1, 1);
    snapshot(&tree, "s", 2).unwrap();
    let view = tree.view("v", "s", &mut kernel).unwrap();
    assert!(matches!(tree.forget("v", "s"), Err(SnapshotError::Busy)));
    assert!(matches!(tree.remove("v"), Err(SnapshotError::Busy)));
    drop(view);
    // Nobody has closed it.
    tree.forget("v", "s").unwrap();
    write(&store, 1, 2);
    snapshot(&tree, "s", 3).unwrap();
    assert_eq!(read(&tree.view("v", "s", &mut kernel).unwrap(), 1), 2);
    drop(store);
    tree.remove("v").unwrap();
}

#[test]
fn a_damaged_layer_keeps_none_but_its_volume_from_opening_and_can_be_removed() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    snapshot(&tree, "s", 2).unwrap();
    write(&store, 1, 2);
    flush(&store).unwrap();
    tree.clone_volume(("v", "s"), "c", id(3), &mut kernel).unwrap();
    tree.clone_volume(("v", "s"), "d", id(4), &mut kernel).unwrap();
    drop((store, tree));
    // Its header is gone.
    let header = Request::Write { offset_bytes: 0, data: vec![0; BLOCK as usize].into() };
    sanwire_store::run(&shelf.layer(3).ram, header, kernel).unwrap();
    let tree = Tree::open(Arc::clone(&shelf) as _, None).unwrap();
    assert!(matches!(tree.volume("c", &mut kernel), Err(SnapshotError::Damaged { .. })));
    let [v, d] = ["v", "d"].map(|volume| read(&tree.volume(volume, &mut kernel).unwrap(), 1));
    assert_eq!((v, d), (2, 1));
    tree.remove("c").unwrap();
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    assert_eq!(shelf.layers.lock().unwrap().len(), 3);
}

#[test]
fn a_layer_that_cannot_be_merged_keeps_no_others_from_it() {
    let (shelf, tree, store) = family(100);
    for (number, name) in (2..).zip(["a", "b", "c", "d", "e"]) {
        write(&store, number, number);
        snapshot(&tree, name, number).unwrap();
    }
    // Layers are 1 (a), 2 (b), 3 (c), 4 (d), 5 (e), 6. That of b cannot be opened.
    drop((store, tree));
    let damaged = shelf.layers.lock().unwrap().insert(id(2), Moody::new(100 * BLOCK)).unwrap();
    let tree = Tree::open(Arc::clone(&shelf) as _, None).unwrap();
    ["a", "c", "d"].iter().for_each(|name| tree.forget("v", name).unwrap());
    assert!(tree.tidy(&mut kernel).is_err());
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    assert_eq!(tree.layers_count(), 4, "c and d are in e's layer");
    shelf.layers.lock().unwrap().insert(id(2), damaged);
    tree.forget("v", "b").unwrap();
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    assert_eq!(tree.layers_count(), 2);
    let store = tree.volume("v", &mut kernel).unwrap();
    assert!((2..7).all(|number| read(&store, number) == number));
}

#[test]
fn writes_that_were_held_too_long_are_given_back_and_nothing_is_taken() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    let prepared = tree.prepare("v", id(2), &mut kernel).unwrap();
    let hold = tree.hold("v").unwrap();
    let release = hold.release();
    let written = Arc::new(Mutex::new(false));
    let act = {
        let (store, written) = (store.clone(), Arc::clone(&written));
        move || {
            release.give_back();
            write(&store, 1, 2);
            *written.lock().unwrap() = true;
        }
    };
    // While the flush for the snapshot takes its time.
    *shelf.layer(1).meanwhile.lock().unwrap() = Some(Meanwhile(Box::new(act)));
    assert!(matches!(tree.take(prepared, Some("s"), 0, &hold, &mut kernel), Err(SnapshotError::Late)));
    assert!(*written.lock().unwrap());
    drop(hold);
    assert_eq!((tree.snapshots(), read(&store, 1)), (vec![], 2));
    snapshot(&tree, "s", 3).unwrap();
}

#[test]
fn who_looks_at_a_family_does_not_wait_for_who_changes_it() {
    let (shelf, tree, store) = family(100);
    write(&store, 1, 1);
    snapshot(&tree, "s", 2).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let act = {
        let (tree, seen) = (Arc::clone(&tree), Arc::clone(&seen));
        move || *seen.lock().unwrap() = Some((tree.snapshots().len(), tree.layers().len(), tree.used_bytes("v", "s")))
    };
    *shelf.layer(2).meanwhile.lock().unwrap() = Some(Meanwhile(Box::new(act)));
    snapshot(&tree, "t", 3).unwrap();
    assert!(matches!(*seen.lock().unwrap(), Some((1, 3, _))));
}
