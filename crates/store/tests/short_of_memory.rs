//! A disk in memory where there is less memory than it has blocks. The limit is that of the whole process: one test.
#![forbid(unsafe_code)]

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sanwire_store::{ErrorKind, Outcome, RamStore, Request, Store};

const CHUNK_BYTES: u64 = 256 << 10;

fn run(store: &RamStore, request: Request) -> Result<Outcome, ErrorKind> {
    sanwire_store::run(store, request, |op| panic!("{op:?}")).map_err(|error| error.kind)
}

fn write(store: &RamStore, offset_bytes: u64, length: usize, byte: u8) -> Result<(), ErrorKind> {
    run(store, Request::Write { offset_bytes, data: vec![byte; length].into() }).map(drop)
}

fn read(store: &RamStore, offset_bytes: u64) -> u8 {
    match run(store, Request::Read { offset_bytes, buffer: vec![0xee; 512].into() }) {
        Ok(Outcome::Read(bytes)) => bytes[0],
        other => panic!("read at {offset_bytes}: {other:?}"),
    }
}

fn address_space_bytes() -> u64 {
    let pages: u64 = fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_disk_in_memory_is_full_when_no_memory_is_to_be_had() {
    let store = RamStore::new(4 << 30, 512);
    let most = Some(address_space_bytes() + (96 << 20));
    setrlimit(Resource::As, Rlimit { current: most, maximum: getrlimit(Resource::As).maximum }).unwrap();
    let chunks = (0..(4u64 << 30) / CHUNK_BYTES)
        .find(|chunk| match write(&store, chunk * CHUNK_BYTES, CHUNK_BYTES as usize, 7) {
            Ok(()) => false,
            Err(kind) => {
                assert_eq!(kind, ErrorKind::Full, "27 07 for initiators");
                true
            }
        })
        .expect("less memory than blocks");
    assert!((0..chunks).all(|chunk| read(&store, chunk * CHUNK_BYTES) == 7), "what was written stays");
    // Half of it lies where there is memory: nobody sees a part of a write.
    let (last, half) = (chunks * CHUNK_BYTES - 4096, 8192);
    assert_eq!(write(&store, last, half, 9), Err(ErrorKind::Full));
    assert_eq!((read(&store, last), read(&store, last + 4096)), (7, 0));
    // Somebody reads a chunk, and it would have to be copied for this write.
    let shared = store.share(0, CHUNK_BYTES as usize).expect("shared");
    assert_eq!(write(&store, 0, 512, 9), Err(ErrorKind::Full));
    assert_eq!((read(&store, 0), shared.to_vec()[0]), (7, 7));
    drop(shared);
    assert_eq!(write(&store, 0, 512, 9), Ok(()), "what has memory is written");
    assert_eq!(vec![1u8; 8 << 20].len(), 8 << 20, "some is left for the rest of the process");
    for chunk in 0..128 {
        run(&store, Request::Discard { offset_bytes: chunk * CHUNK_BYTES, length_bytes: CHUNK_BYTES }).unwrap();
    }
    assert_eq!(write(&store, last, half, 9), Ok(()), "memory that is given back can be had again");
}
