//! A base that is longer than what is known of it, in the middle of a merge.

mod common;

use std::sync::Arc;

use common::{BLOCK, Memory, base, id, kernel, read, write};
use sanwire_snapshot::{Base, Origin, Tree};
use sanwire_store::{
    Allocation, CompletionQueue, Geometry, Outcome, RamStore, Request, ResizeError, Space, Started, Store,
};

/// Memory where there is little space, which each write takes: a merge is done in parts of a quarter of that.
#[derive(Debug)]
struct Tight(RamStore);

impl Store for Tight {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        match request {
            Request::Allocation { length_bytes, .. } => {
                Started::Done(Ok(Outcome::Allocated(Allocation { is_mapped: false, length_bytes })))
            }
            request => self.0.start(request, completions),
        }
    }

    fn space(&self) -> Option<Space> {
        Some(Space { used_bytes: 0, available_bytes: Some(1024 * BLOCK) })
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        self.0.resize(length_bytes)
    }
}

#[test]
fn what_a_merge_has_moved_behind_the_former_end_of_the_base_is_found_after_a_crash() {
    let (shelf, below) = (Arc::new(Memory::default()), Arc::new(Tight(RamStore::new(10 * BLOCK, 4096))));
    let below_layers = || Base { may_be_longer: true, ..base(&below) };
    let tree = Tree::create(Arc::clone(&shelf) as _, "v", Origin::Base(below_layers()), &mut kernel).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    let take = |name, layer| {
        let prepared = tree.prepare("v", id(layer), &mut kernel).unwrap();
        tree.take(prepared, name, 0, &tree.hold("v").unwrap(), &mut kernel).unwrap();
    };
    take(Some("s"), 1);
    store.resize(1000 * BLOCK).unwrap();
    (0..700).for_each(|block| write(&store, block, 7));
    take(None, 2);
    tree.forget("v", "s").unwrap();
    // Its owner has made it longer meanwhile.
    below.resize(1000 * BLOCK).unwrap();
    (10..1000).for_each(|block| write(&*below, block, 9));
    assert!((0..2).all(|_| tree.tidy(&mut kernel).unwrap().is_some()));
    assert_eq!(tree.layers_count(), 2, "there are more parts than two");
    drop((store, tree));
    let tree = Tree::open(Arc::clone(&shelf) as _, Some(below_layers())).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    let holds = |store: &dyn Store| (0..1000).all(|block| read(store, block) == if block < 700 { 7 } else { 0 });
    assert!(holds(&store));
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    assert!(holds(&store) && (0..700).all(|block| read(&*below, block) == 7));
}
