//! Layers in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use sanwire_snapshot::{Base, LayerId, Shelf};
use sanwire_store::{Completion, KernelOp, Outcome, RamStore, Request, Store};

pub const BLOCK: u64 = 4096;

/// A shelf that ends with the process.
#[derive(Default, Debug)]
pub struct Memory {
    pub layers: Mutex<BTreeMap<LayerId, Arc<RamStore>>>,
    catalogue: Mutex<Option<Vec<u8>>>,
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
        Ok(self.catalogue.lock().unwrap().clone())
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        *self.catalogue.lock().unwrap() = Some(catalogue.to_vec());
        Ok(())
    }
}

/// What is below all layers.
#[allow(dead_code, reason = "not all tests have one")]
pub fn base<S: Store + 'static>(store: &Arc<S>) -> Base {
    Base { store: Arc::clone(store) as _, identity: "base".to_owned(), may_be_longer: false }
}

/// Memory asks nothing of a kernel.
pub fn kernel(op: KernelOp) -> Completion {
    panic!("{op:?} is for the kernel")
}

pub fn id(number: u64) -> LayerId {
    LayerId(u128::from(number).to_be_bytes())
}

/// What a block holds that was written last by this version.
pub fn content(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK as usize / 8)
}

#[allow(dead_code, reason = "not all tests write what is flushed")]
pub fn write(store: &dyn Store, block: u64, version: u64) {
    let request = Request::Write { offset_bytes: block * BLOCK, data: content(version).into() };
    sanwire_store::run(store, request, kernel).unwrap();
}

/// The version that a block holds.
pub fn read(store: &dyn Store, block: u64) -> u64 {
    let buffer = vec![9; BLOCK as usize].into();
    match sanwire_store::run(store, Request::Read { offset_bytes: block * BLOCK, buffer }, kernel) {
        Ok(Outcome::Read(frame)) => {
            let version = u64::from_le_bytes(*frame.first_chunk().unwrap());
            assert_eq!(&*frame, content(version), "block {block} is torn");
            version
        }
        other => panic!("{other:?}"),
    }
}
