//! Copies that are compared while members come and go.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sanwire_store::{CompletionQueue, ErrorKind, Geometry, RamStore, Request, Started, Store, StoreError};

use super::common::{drive, kernel};
use super::mirror_of;

const MIB: u64 = 1 << 20;
const DATA_AT: u64 = MIB;

/// A disk that may be gone, and has something done before it is read where its data begins.
struct Disk {
    inner: RamStore,
    is_gone: AtomicBool,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl Store for Disk {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if self.is_gone.load(Ordering::Relaxed) {
            return Started::Done(Err(StoreError::new(ErrorKind::Gone, 0)));
        }
        if let Request::Read { offset_bytes: DATA_AT, .. } = request {
            let meanwhile = self.meanwhile.lock().unwrap().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
        }
        self.inner.start(request, completions)
    }
}

fn write(store: &dyn Store, offset_bytes: u64, byte: u8) {
    let request = Request::Write { offset_bytes, data: vec![byte; 4096].into() };
    sanwire_store::run(store, request, kernel).unwrap();
}

#[test]
fn a_copy_that_is_left_alone_while_it_is_compared_lacks_nothing() {
    let disk = |_| {
        let (inner, is_gone) = (RamStore::new(6 * MIB, 512), AtomicBool::new(false));
        Arc::new(Disk { inner, is_gone, meanwhile: Mutex::default() })
    };
    let disks: Vec<Arc<Disk>> = (0..2).map(disk).collect();
    let (_, array) = mirror_of(&disks);
    // What is compared first differs, and the one that was read goes before that is known.
    write(&disks[0].inner, DATA_AT + 8192, 3);
    let (going, writer) = (Arc::clone(&disks[0]), array.clone());
    let meanwhile = move || {
        going.is_gone.store(true, Ordering::Relaxed);
        write(&writer, 2 * MIB, 5);
    };
    *disks[1].meanwhile.lock().unwrap() = Some(Box::new(meanwhile));
    let ended = array.scrub(&mut drive).unwrap_err().to_string();
    assert!(ended.contains("a member went away while its copies were compared"), "{ended}");
    let [gone, left] = &array.members()[..] else { panic!("{:?}", array.members()) };
    assert!(!gone.is_present && left.is_present && left.behind_bytes == 0, "{gone:?} {left:?}");
    write(&array, 4096, 6);
}
