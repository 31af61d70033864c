//! A thousand snapshots of one volume: each is what the volume was, none makes reading slower, and all can go again.

mod common;

use std::sync::Arc;

use common::{BLOCK, Memory, content, id, kernel, read, write};
use sanwire_snapshot::{Origin, Tree};
use sanwire_store::{Outcome, RamStore, Request, Store};

const SNAPSHOTS: u64 = 1000;
const BLOCKS: u64 = 200;

/// What is written after each snapshot: few blocks, and not the same ones.
fn written_in(round: u64) -> [u64; 3] {
    [round % BLOCKS, round * 7 % BLOCKS, round * round % BLOCKS]
}

/// The volume as one run of bytes.
fn bytes(store: &dyn Store) -> Vec<u8> {
    let buffer = vec![9; (BLOCKS * BLOCK) as usize].into();
    match sanwire_store::run(store, Request::Read { offset_bytes: 0, buffer }, kernel) {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn expected(model: &[u64]) -> Vec<u8> {
    model.iter().map(|version| content(*version)).collect::<Vec<_>>().concat()
}

fn snapshot(tree: &Tree, name: &str, layer: u64) {
    let prepared = tree.prepare("v", id(layer), &mut kernel).unwrap();
    let hold = tree.hold("v").unwrap();
    tree.take(prepared, Some(name), 0, &hold, &mut kernel).unwrap();
}

#[test]
fn each_of_a_thousand_snapshots_is_what_the_volume_was() {
    let base = Arc::new(RamStore::new(BLOCKS * BLOCK, BLOCK as u32));
    let shelf = Arc::new(Memory::default());
    let tree = Tree::create(Arc::clone(&shelf) as _, "v", Origin::Base(common::base(&base)), &mut kernel).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    let (mut model, mut models) = (vec![0; BLOCKS as usize], Vec::new());
    for round in 1..=SNAPSHOTS {
        for block in written_in(round) {
            write(&store, block, round);
            model[block as usize] = round;
        }
        snapshot(&tree, &format!("s{round}"), round);
        models.push(model.clone());
    }
    assert_eq!((bytes(&store), shelf.layers.lock().unwrap().len()), (expected(&model), SNAPSHOTS as usize));
    assert!(store.memory_bytes() < 1 << 20, "{} bytes", store.memory_bytes());
    drop((store, tree));

    // As after a restart.
    let tree = Tree::open(Arc::clone(&shelf) as _, Some(common::base(&base))).unwrap();
    for (round, model) in (1..).zip(&models) {
        let view = tree.view("v", &format!("s{round}"), &mut kernel).unwrap();
        assert_eq!(bytes(&view), expected(model), "snapshot {round}");
        drop(view);
        tree.close(&format!("v@s{round}"));
    }

    // Most go; what is left stays what it was, and so does the volume.
    let store = tree.volume("v", &mut kernel).unwrap();
    for round in (1..=SNAPSHOTS).filter(|round| round % 100 != 0) {
        tree.forget("v", &format!("s{round}")).unwrap();
    }
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    assert!(shelf.layers.lock().unwrap().len() <= 11, "{} layers are left", shelf.layers.lock().unwrap().len());
    for (at, model) in (1..).zip(&models).filter(|(round, _)| round % 100 == 0) {
        tree.clone_volume(("v", &format!("s{at}")), "clone", id(2 * SNAPSHOTS + at), &mut kernel).unwrap();
        assert_eq!(bytes(&tree.volume("clone", &mut kernel).unwrap()), expected(model), "snapshot {at}");
        tree.remove("clone").unwrap();
    }
    for round in (100..=SNAPSHOTS).step_by(100) {
        tree.forget("v", &format!("s{round}")).unwrap();
    }
    while tree.tidy(&mut kernel).unwrap().is_some() {}
    let settling = tree.prepare_settle("v", 16 << 20, &mut kernel).unwrap().unwrap();
    let hold = tree.hold("v").unwrap();
    tree.settle(settling, &hold, || Ok(()), &mut kernel).unwrap();
    drop(hold);
    assert_eq!(
        (shelf.layers.lock().unwrap().len(), bytes(&*base)),
        (0, expected(&model)),
        "all of it is in the base again"
    );
    write(&store, 3, 9999);
    assert_eq!((read(&store, 3), read(&*base, 3)), (9999, 9999));
}

#[test]
fn a_client_that_gives_back_every_second_block_takes_little_memory() {
    let blocks = (1 << 30) / 512;
    let base = Arc::new(RamStore::new(blocks * 512, 512));
    let tree = Tree::create(Arc::new(Memory::default()), "v", Origin::Base(common::base(&base)), &mut kernel).unwrap();
    let store = tree.volume("v", &mut kernel).unwrap();
    snapshot(&tree, "s", 1);
    for block in (0..blocks).step_by(2) {
        let request = Request::Discard { offset_bytes: block * 512, length_bytes: 512 };
        sanwire_store::run(&store, request, kernel).unwrap();
    }
    assert!(store.memory_bytes() < 2 << 20, "{} bytes", store.memory_bytes());
}
