//! What stands in layers of volumes, and in their catalogue: whatever was damaged, it is refused or can be used, and never both.
#![no_main]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use libfuzzer_sys::fuzz_target;
use sanwire_snapshot::{LayerId, Origin, Shelf, SnapshotError, SnapshotStore, Tree};
use sanwire_store::{Completion, KernelOp, Outcome, RamStore, Request, Store};

const BLOCK: u64 = 512;
/// A group of the map, and a little of another one.
const LENGTH: u64 = (16_384 + 8) * BLOCK;
const LAYER: LayerId = LayerId([1; 16]);

#[derive(Default, Debug)]
struct Memory {
    layers: Mutex<BTreeMap<LayerId, Arc<RamStore>>>,
    catalogue: Mutex<Vec<u8>>,
}

impl Shelf for Memory {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        let store = Arc::new(RamStore::new(length_bytes, 512));
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
        Ok(Some(self.catalogue.lock().unwrap().clone()))
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        *self.catalogue.lock().unwrap() = catalogue.to_vec();
        Ok(())
    }
}

fn kernel(op: KernelOp) -> Completion {
    panic!("{op:?} is for the kernel")
}

fn run(store: &dyn Store, request: Request) -> Option<Vec<u8>> {
    match sanwire_store::run(store, request, kernel) {
        Ok(Outcome::Read(frame)) => Some(frame.to_vec()),
        _ => None,
    }
}

fn write(store: &dyn Store, offset_bytes: u64, data: Vec<u8>) {
    run(store, Request::Write { offset_bytes, data: data.into() });
}

fn open(shelf: &Arc<Memory>) -> Result<(Tree, SnapshotStore), SnapshotError> {
    let tree = Tree::open(Arc::clone(shelf) as _, None)?;
    let store = tree.volume("v", &mut kernel)?;
    Ok((tree, store))
}

/// What a volume does that could be opened: it takes writes, and shows them again, also after it was opened anew.
fn use_it(shelf: &Arc<Memory>, (tree, store): (Tree, SnapshotStore)) {
    let end_bytes = store.geometry().length_bytes;
    let places = [0, 16_383 * BLOCK, 16_384 * BLOCK, end_bytes.saturating_sub(BLOCK)];
    for (byte, offset_bytes) in (1..).zip(places.into_iter().filter(|place| place + BLOCK <= end_bytes)) {
        write(&store, offset_bytes, vec![byte; BLOCK as usize]);
    }
    run(&store, Request::Flush);
    let all = |store: &SnapshotStore| {
        run(store, Request::Read { offset_bytes: 0, buffer: vec![9; end_bytes.min(LENGTH) as usize].into() })
    };
    let before = all(&store);
    drop((tree, store));
    let (_, store) = open(shelf).expect("it was opened before");
    assert_eq!(all(&store), before);
}

fuzz_target!(|input: &[u8]| {
    let [kind, first, second, bytes @ ..] = input else { return };
    let shelf = Arc::new(Memory::default());
    let origin = Origin::Empty { length_bytes: LENGTH, block_bytes: BLOCK as u32, layer: LAYER };
    let tree = Tree::create(Arc::clone(&shelf) as _, "v", origin, &mut kernel).expect("nothing is in the way");
    let store = tree.volume("v", &mut kernel).expect("it was made");
    write(&store, 5 * BLOCK, vec![7; BLOCK as usize]);
    run(&store, Request::Flush);
    drop((tree, store));
    match kind % 3 {
        0 => *shelf.catalogue.lock().unwrap() = bytes.to_vec(),
        1 => {
            let catalogue = &mut *shelf.catalogue.lock().unwrap();
            let at = usize::from(u16::from_le_bytes([*first, *second])) % catalogue.len();
            catalogue.splice(at..(at + bytes.len()).min(catalogue.len()), bytes.iter().copied());
        }
        _ => {
            // Within the header and the first map.
            let at = u64::from(u16::from_le_bytes([*first, *second]) % 8192) / BLOCK * BLOCK;
            let mut data = bytes.to_vec();
            data.resize(data.len().next_multiple_of(BLOCK as usize), 0);
            let layer = shelf.layers.lock().unwrap().get(&LAYER).cloned().expect("it was made");
            write(&*layer, at, data);
        }
    }
    if let Ok(opened) = open(&shelf) {
        use_it(&shelf, opened);
    }
});
