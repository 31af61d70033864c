//! What a layer costs: reads of 64 KiB through one, against the same store alone. By the clock, so only when it is asked for:
//!
//! ```text
//! cargo test --release -p sanwire-store-file --test layer_speed -- --ignored --nocapture
//! ```

use std::fs;
use std::hint::black_box;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sanwire_buffer::Frame;
use sanwire_snapshot::{LayerId, Origin, Shelf, Tree};
use sanwire_store::{Outcome, RamStore, Request, Store};
use sanwire_store_file::{FileOptions, FileStore, LayerDirectory, blocking};

const LENGTH: u64 = 256 << 20;
const READ: u64 = 64 << 10;
const READS: u64 = 20_000;
/// The best of so many is compared: the machine does other things as well.
const ROUNDS: u32 = 9;

/// A layer in memory, and no more than that.
#[derive(Default, Debug)]
struct One(Mutex<Option<Vec<u8>>>);

impl Shelf for One {
    fn create(&self, _: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        Ok(Arc::new(RamStore::new(length_bytes, 512)))
    }

    fn open(&self, _: LayerId) -> io::Result<Arc<dyn Store>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn remove(&self, _: LayerId) -> io::Result<()> {
        Ok(())
    }

    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        *self.0.lock().unwrap() = Some(catalogue.to_vec());
        Ok(())
    }
}

fn layered(shelf: Arc<dyn Shelf>) -> Arc<dyn Store> {
    let origin = Origin::Empty { length_bytes: LENGTH, block_bytes: 4096, layer: LayerId([1; 16]) };
    let tree = Tree::create(shelf, "v", origin, &mut blocking::perform).unwrap();
    Arc::new(tree.volume("v", &mut blocking::perform).unwrap())
}

fn fill(store: &dyn Store) {
    for offset_bytes in (0..LENGTH).step_by(1 << 20) {
        let data = vec![offset_bytes as u8; 1 << 20].into();
        assert!(blocking::run(store, Request::Write { offset_bytes, data }).is_ok());
    }
    assert!(blocking::run(store, Request::Flush).is_ok());
}

/// Reads at scattered places; how long that took.
fn round(store: &dyn Store) -> Duration {
    let (mut frame, mut place) = (Frame::from(vec![0; READ as usize]), 1u64);
    let since = Instant::now();
    for _ in 0..READS {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset_bytes = (place >> 33) % (LENGTH / READ) * READ;
        if let Some(shared) = store.share(offset_bytes, READ as usize) {
            black_box(shared);
            continue;
        }
        match blocking::run(store, Request::Read { offset_bytes, buffer: frame }) {
            Ok(Outcome::Read(filled)) => frame = filled,
            other => panic!("{other:?}"),
        }
    }
    since.elapsed()
}

/// The same without what memory shares.
#[derive(Debug)]
struct Copied(Arc<dyn Store>);

impl Store for Copied {
    fn geometry(&self) -> sanwire_store::Geometry {
        self.0.geometry()
    }

    fn start(&self, request: Request, completions: &sanwire_store::CompletionQueue) -> sanwire_store::Started {
        self.0.start(request, completions)
    }
}

fn compare(what: &str, alone: &dyn Store, layered: &dyn Store) {
    let (mut of_alone, mut of_layered) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        of_alone = of_alone.min(round(alone));
        of_layered = of_layered.min(round(layered));
    }
    let ratio = of_alone.as_secs_f64() / of_layered.as_secs_f64();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / READS as f64;
    println!(
        "{what}: {:.2} us alone, {:.2} us through a layer: {:.1} %",
        each(of_alone),
        each(of_layered),
        ratio * 100.0
    );
    assert!(ratio >= 0.9, "{what}");
}

#[test]
#[ignore = "the clock judges it"]
fn reads_of_64_kib_through_a_layer_are_nearly_as_fast_as_without() {
    let alone: Arc<dyn Store> = Arc::new(RamStore::new(LENGTH, 4096));
    let above = layered(Arc::new(One::default()));
    [&alone, &above].into_iter().for_each(|store| fill(&**store));
    compare("memory, copied", &Copied(alone), &Copied(above));

    let directory = PathBuf::from("/dev/shm").join(format!("sanwire-layer-speed-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let options = FileOptions { size_bytes: Some(LENGTH), block_bytes: Some(4096), ..FileOptions::default() };
    let alone = FileStore::open(directory.join("alone"), &options).unwrap();
    let above = layered(Arc::new(LayerDirectory::new(directory.join("layers")).unwrap()));
    fill(&alone);
    fill(&*above);
    compare("a file in tmpfs", &alone, &*above);
    drop((alone, above));
    fs::remove_dir_all(&directory).unwrap();
}
