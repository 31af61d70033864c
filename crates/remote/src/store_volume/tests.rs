use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use sanwire_initiator::VolumeError;
use sanwire_store::{Completion, ErrorKind, RamStore, Request, Started, StoreError, StoreSpec};

use super::*;

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn names() -> StoreNames {
    StoreNames { name: "data".to_owned(), server: "array".to_owned(), identity: "one".to_owned() }
}

/// Writes, reads back, and looks at the rest.
fn use_it(volume: &Volume) {
    block_on(async {
        let mut frame = volume.buffer(8192).await.unwrap();
        frame.fill(7);
        volume.write_stable(4096, frame.freeze()).await.unwrap();
        volume.flush().await.unwrap();
        let read = volume.read(0, volume.buffer(16_384).await.unwrap()).await.unwrap();
        assert!(read[..4096].iter().chain(&read[12_288..]).all(|byte| *byte == 0));
        assert!(read[4096..12_288].iter().all(|byte| *byte == 7));
        volume.write_zeroes(4096, 4096).await.unwrap();
        let read = volume.read(4096, volume.buffer(8192).await.unwrap()).await.unwrap();
        assert!(read[..4096].iter().all(|byte| *byte == 0) && read[4096..].iter().all(|byte| *byte == 7));
        volume.check().await.unwrap();
    });
}

#[test]
fn a_store_in_memory_and_one_in_a_file_are_used_as_volumes() {
    let path = std::env::temp_dir().join(format!("sanwire-volume-{}", std::process::id()));
    sanwire_store_file::register();
    let spec: StoreSpec = format!("file:{},size=1M", path.display()).parse().unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(RamStore::new(1 << 20, 512)), spec.open().unwrap()];
    for store in stores {
        let weak = Arc::downgrade(&store);
        let own = StoreVolume::start(store, names(), None).unwrap();
        assert_eq!((own.volume().info().size_bytes, &*own.volume().info().name), (1 << 20, "data"));
        use_it(&own.volume());
        own.leave(Duration::from_secs(10));
        assert!(weak.upgrade().is_none(), "it is closed");
    }
    std::fs::remove_file(path).unwrap();
}

/// A store that is gone while it is said to be.
#[derive(Debug)]
struct Unsteady {
    store: RamStore,
    is_gone: Arc<AtomicBool>,
}

impl Store for Unsteady {
    fn geometry(&self) -> Geometry {
        self.store.geometry()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if self.is_gone.load(Ordering::Relaxed) {
            let end: Completion = Err(StoreError::new(ErrorKind::Gone, 0));
            return Started::Done(end);
        }
        self.store.start(request, completions)
    }
}

fn unsteady(patience: Duration) -> (StoreVolume, Arc<AtomicBool>) {
    let is_gone = Arc::new(AtomicBool::new(true));
    let store = Unsteady { store: RamStore::new(1 << 20, 512), is_gone: Arc::clone(&is_gone) };
    (StoreVolume::start(Arc::new(store), names(), Some(patience)).unwrap(), is_gone)
}

#[test]
fn what_is_asked_waits_for_a_store_that_is_gone() {
    let (own, is_gone) = unsteady(Duration::from_secs(60));
    let back = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        is_gone.store(false, Ordering::Relaxed);
    });
    use_it(&own.volume());
    back.join().unwrap();
    let outages = own.outages();
    assert_eq!((outages.begun(), outages.ended()), (1, 1));
}

#[test]
fn a_store_that_stays_away_is_given_up() {
    let (own, _is_gone) = unsteady(Duration::ZERO);
    let failed = block_on(own.volume().flush());
    assert!(matches!(failed, Err(VolumeError::Disconnected { .. })), "{failed:?}");
    assert!(own.outages().is_gone());
}

/// A store that is as long as it is said to be.
#[derive(Debug)]
struct Lengthened {
    store: RamStore,
    length_bytes: Arc<AtomicU64>,
}

impl Store for Lengthened {
    fn geometry(&self) -> Geometry {
        Geometry { length_bytes: self.length_bytes.load(Ordering::Relaxed), ..self.store.geometry() }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        self.store.start(request, completions)
    }
}

/// Whoever uses a volume asks for nothing but what he needs.
#[test]
fn a_volume_that_is_written_all_the_time_tells_that_its_store_has_grown() {
    let length_bytes = Arc::new(AtomicU64::new(1 << 20));
    let store = Lengthened { store: RamStore::new(2 << 20, 512), length_bytes: Arc::clone(&length_bytes) };
    let own = StoreVolume::start(Arc::new(store), names(), None).unwrap();
    let (volume, end) = (own.volume(), Instant::now() + Duration::from_secs(60));
    length_bytes.store(2 << 20, Ordering::Relaxed);
    while volume.info().size_bytes == 1 << 20 {
        assert!(Instant::now() < end, "it still tells the length that it had");
        block_on(volume.flush()).unwrap();
    }
    assert_eq!(volume.info().size_bytes, 2 << 20);
    block_on(volume.write_zeroes((2 << 20) - 4096, 4096)).unwrap();
}
