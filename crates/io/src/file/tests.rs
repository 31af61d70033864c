use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_buffer::{Frame, Slice, Slices};
use sanwire_store::{ErrorKind, StoreError};

use super::*;

mod measure;
mod model;

const KINDS: [EngineKind; 2] = [EngineKind::IoUring, EngineKind::Threads];
/// One of the disk's file systems and one in memory: they take different ways.
const DIRECTORIES: [&str; 2] = ["/var/tmp", "/dev/shm"];

/// A file of its own, without a name.
fn scratch(directory: &str, length_bytes: u64) -> Arc<File> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(directory).join(format!("sanwire-io-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.set_len(length_bytes).unwrap();
    Arc::new(file)
}

fn memory() -> Region {
    Region::new(2 << 20).unwrap()
}

fn op(file: &Arc<File>, request: Request) -> KernelOp {
    KernelOp { file: Arc::clone(file), is_block_device: false, request }
}

fn read(file: &Arc<File>, offset_bytes: u64, buffer: Frame) -> KernelOp {
    op(file, Request::Read { offset_bytes, buffer })
}

fn write(file: &Arc<File>, offset_bytes: u64, data: impl Into<Slices>) -> KernelOp {
    op(file, Request::Write { offset_bytes, data: data.into() })
}

/// Whether the engine's descriptor woke its sleeper. Found readable only at the end of the time, it did not.
fn is_woken(engine: &FileEngine, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: engine.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let began = Instant::now();
    // SAFETY: one pollfd, writable while the call lasts.
    let is_readable = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 };
    is_readable && (timeout_ms == 0 || began.elapsed() < Duration::from_millis(timeout_ms as u64))
}

/// Flushes, and reaps only when the descriptor says so, until nothing is in flight.
fn finish(engine: &mut FileEngine) -> Vec<(u64, Completion)> {
    let mut all = vec![];
    while engine.in_flight() > 0 {
        engine.flush().unwrap();
        assert!(is_woken(engine, 60_000), "nothing came of {engine:?}");
        engine.reap(&mut |tag, completion| all.push((tag, completion)));
    }
    all
}

fn run(engine: &mut FileEngine, op: KernelOp) -> Completion {
    engine.submit(7, op).unwrap();
    let (tag, completion) = finish(engine).pop().expect("one completion");
    assert_eq!(tag, 7);
    completion
}

fn bytes(completion: Completion) -> Vec<u8> {
    match completion {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn failure(completion: Completion) -> (ErrorKind, u64) {
    let StoreError { kind, offset_bytes, .. } = completion.expect_err("an error");
    (kind, offset_bytes)
}

/// Runs a test on each kind of engine and each kind of file.
fn everywhere(depth: u32, test: impl Fn(&mut FileEngine, Arc<File>, &Region)) {
    for kind in KINDS {
        for directory in DIRECTORIES {
            let memory = memory();
            let mut engine = FileEngine::new(&memory, depth, kind).unwrap();
            assert_eq!(engine.kind(), kind);
            test(&mut engine, scratch(directory, 1 << 20), &memory);
            drop(engine);
            assert_eq!(memory.free_bytes(), memory.length_bytes(), "every frame came home");
        }
    }
}

#[test]
fn holes_are_told_from_data() {
    everywhere(4, |engine, file, _| {
        run(engine, write(&file, 65_536, vec![6; 65_536])).unwrap();
        let mut ask = |offset_bytes, length_bytes| match run(
            engine,
            op(&file, Request::Allocation { offset_bytes, length_bytes }),
        ) {
            Ok(Outcome::Allocated(allocation)) => (allocation.is_mapped, allocation.length_bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!(ask(0, 1 << 20), (false, 65_536));
        assert_eq!(ask(65_536, 1 << 19), (true, 65_536));
        assert_eq!(ask(65_536 + 512, 512), (true, 512));
        assert_eq!(ask(131_072, (1 << 20) - 131_072), (false, (1 << 20) - 131_072));
        // Cut short: what is missing is no hole, which would count as zeroes.
        file.set_len(1 << 19).unwrap();
        assert_eq!(ask(131_072, (1 << 20) - 131_072), (false, (1 << 19) - 131_072));
        assert_eq!(ask(1 << 19, 1 << 19), (true, 1 << 19));
    });
}

#[test]
fn what_was_written_is_read_and_holes_are_zeroes() {
    everywhere(4, |engine, file, memory| {
        let mut frame = memory.frame(8192).unwrap();
        frame.fill(5);
        run(engine, write(&file, 4096, frame.freeze())).unwrap();
        run(engine, write(&file, 8192, vec![6; 512])).unwrap();
        run(engine, op(&file, Request::Flush)).unwrap();
        let zeroes = Request::WriteZeroes { offset_bytes: 4096, length_bytes: 2048 };
        run(engine, op(&file, zeroes)).unwrap();
        let mut expected = [vec![0; 6144], vec![5; 2048], vec![6; 512], vec![5; 3584]].concat();
        let mut frame = memory.frame(12288).unwrap();
        frame.fill(0xee);
        assert!(bytes(run(engine, read(&file, 0, frame))) == expected);
        run(engine, op(&file, Request::Discard { offset_bytes: 8192, length_bytes: 4096 })).unwrap();
        expected[8192..].fill(0);
        assert!(bytes(run(engine, read(&file, 0, vec![0xee; 12288].into()))) == expected, "memory of its own");
        // More than one run of the zeroes that stand in where the file system cannot zero a range.
        run(engine, write(&file, 0, vec![9; 300_032])).unwrap();
        run(engine, op(&file, Request::WriteZeroes { offset_bytes: 512, length_bytes: 299_008 })).unwrap();
        let expected = [vec![9; 512], vec![0; 299_008], vec![9; 512]].concat();
        assert!(bytes(run(engine, read(&file, 0, vec![0; 300_032].into()))) == expected);
    });
}

#[test]
fn pieces_are_written_one_after_the_other_however_many_they_are() {
    everywhere(4, |engine, file, memory| {
        // Each at an odd place of a page of its own; the last ones are more than a call takes.
        let pieces: Vec<Slice> = (0..2500u32)
            .map(|number| Slice::from(vec![number as u8; 210]).slice(5..5 + 100 + number as usize % 101))
            .collect();
        let expected = pieces.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>();
        run(engine, write(&file, 512, Slices::gather(pieces).unwrap())).unwrap();
        assert!(bytes(run(engine, read(&file, 512, vec![0; expected.len()].into()))) == expected);
        // Those that lie side by side, and others of the registered memory.
        let mut frames: Vec<Frame> = (0..8).map(|_| memory.frame(4096).unwrap()).collect();
        frames.iter_mut().zip(1..).for_each(|(frame, fill)| frame.fill(fill));
        frames.swap(6, 7);
        let pieces = Slices::gather(frames.into_iter().map(Frame::freeze)).unwrap();
        let expected = pieces.to_vec();
        run(engine, write(&file, 4096, pieces)).unwrap();
        assert!(bytes(run(engine, read(&file, 4096, vec![0; 32768].into()))) == expected);
    });
}

#[test]
fn a_full_engine_hands_the_operation_back() {
    everywhere(2, |engine, file, _| {
        engine.submit(1, write(&file, 0, vec![1; 512])).unwrap();
        engine.submit(2, op(&file, Request::Flush)).unwrap();
        let refused = engine.submit(3, write(&file, 512, vec![3; 512])).expect_err("full");
        assert!(matches!(&refused.request, Request::Write { data, .. } if *data.contiguous() == [3; 512]));
        assert_eq!(engine.in_flight(), 2);
        assert_eq!(finish(engine).len(), 2);
        engine.submit(3, refused).unwrap();
        assert_eq!(finish(engine).len(), 1);
        assert_eq!(bytes(run(engine, read(&file, 512, vec![0; 512].into()))), [3; 512]);
    });
}

#[test]
fn an_idle_engine_does_not_wake_anybody() {
    everywhere(2, |engine, file, _| {
        assert!(!is_woken(engine, 0));
        run(engine, write(&file, 0, vec![1; 512])).unwrap();
        // A worker of a busy host may be halted for long between raising the descriptor and noting that; it must not stay raised.
        let mut is_quiet = || {
            engine.reap(&mut |tag, _| panic!("{tag} twice"));
            !is_woken(engine, 20)
        };
        let mut is_quiet_soon = || {
            is_quiet() || {
                thread::sleep(Duration::from_millis(20));
                false
            }
        };
        assert!((0..500).any(|_| is_quiet_soon()));
    });
}

#[test]
fn nothing_at_all_is_done_at_once() {
    everywhere(2, |engine, file, _| {
        assert!(bytes(run(engine, read(&file, 0, vec![].into()))).is_empty());
        run(engine, op(&file, Request::Discard { offset_bytes: 0, length_bytes: 0 })).unwrap();
    });
}

#[test]
fn a_file_cut_short_is_gone_from_there() {
    everywhere(2, |engine, file, _| {
        file.set_len(5000).unwrap();
        let cut = run(engine, read(&file, 4096, vec![0; 4096].into()));
        assert_eq!(failure(cut), (ErrorKind::Gone, 5000));
    });
}

#[test]
fn the_kernel_s_refusals_have_their_kind() {
    for kind in KINDS {
        let mut engine = FileEngine::new(&memory(), 4, kind).unwrap();
        for directory in DIRECTORIES {
            let writable = scratch(directory, 1 << 20);
            let path = format!("/proc/self/fd/{}", writable.as_raw_fd());
            let read_only = Arc::new(File::open(&path).unwrap());
            let refused = run(&mut engine, write(&read_only, 512, vec![1; 512]));
            assert_eq!(failure(refused), (ErrorKind::ReadOnly, 512), "{kind:?} in {directory}");
            let zeroes = Request::WriteZeroes { offset_bytes: 512, length_bytes: 512 };
            assert_eq!(failure(run(&mut engine, op(&read_only, zeroes))), (ErrorKind::ReadOnly, 512));
        }
        let full = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        let refused = run(&mut engine, write(&full, 4096, vec![1; 512]));
        assert_eq!(failure(refused), (ErrorKind::Full, 4096), "{kind:?}");
    }
}

#[test]
fn dropping_an_engine_does_what_was_submitted() {
    for kind in KINDS {
        let file = scratch(DIRECTORIES[0], 1 << 20);
        let memory = memory();
        let mut engine = FileEngine::new(&memory, 64, kind).unwrap();
        for tag in 0..32 {
            let mut frame = memory.frame(4096).unwrap();
            frame.fill(tag as u8 + 1);
            engine.submit(tag, write(&file, tag * 4096, frame.freeze())).unwrap();
            engine.submit(99, read(&file, tag * 4096, memory.frame(4096).unwrap())).unwrap();
            if tag == 20 {
                engine.flush().unwrap();
            }
        }
        drop(engine);
        assert_eq!(memory.free_bytes(), memory.length_bytes());
        assert_eq!(Arc::strong_count(&file), 1);
        let written = bytes(blocking::perform(read(&file, 0, vec![0; 32 * 4096].into())));
        assert!(written.chunks(4096).zip(1..).all(|(chunk, fill)| chunk.iter().all(|byte| *byte == fill)), "{kind:?}");
    }
}

#[test]
fn a_depth_out_of_bounds_is_refused() {
    for depth in [0, DEPTH_MAX + 1] {
        let error = FileEngine::new(&memory(), depth, EngineKind::Auto).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    FileEngine::new(&memory(), DEPTH_MAX, EngineKind::Auto).unwrap();
}

#[test]
fn a_region_too_large_to_register_works_all_the_same() {
    let memory = Region::new(3 << 30).unwrap();
    let mut engine = FileEngine::new(&memory, 2, EngineKind::IoUring).unwrap();
    let file = scratch(DIRECTORIES[0], 1 << 20);
    let mut frame = memory.frame(4096).unwrap();
    frame.fill(3);
    run(&mut engine, write(&file, 0, frame.freeze())).unwrap();
    assert_eq!(bytes(run(&mut engine, read(&file, 0, memory.frame(4096).unwrap()))), [3; 4096]);
}

/// A pipe's end gives bytes later: the descriptor must wake a sleeper at that time, not before.
#[test]
fn a_completion_wakes_a_sleeper() {
    for kind in KINDS {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: both are new and ours alone.
        let [reader, writer] = ends.map(|end| unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(end) });
        let mut engine = FileEngine::new(&memory(), 2, kind).unwrap();
        let reader = Arc::new(reader);
        if kind == EngineKind::Threads {
            // Blocking calls at an offset cannot read a pipe: its refusal is as good a completion.
            engine.submit(1, read(&reader, 0, vec![0; 8].into())).unwrap();
            engine.flush().unwrap();
            assert!(is_woken(&engine, 60_000));
            continue;
        }
        // An offset of -1 is how io_uring reads a stream.
        engine.submit(1, read(&reader, u64::MAX, vec![0; 8].into())).unwrap();
        engine.flush().unwrap();
        assert!(!is_woken(&engine, 50));
        engine.reap(&mut |_, _| panic!("too early"));
        let is_written = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_written);
        let sleeper = std::thread::spawn(move || {
            // However long the other needs to fall asleep: nothing depends on it.
            std::thread::sleep(Duration::from_millis(100));
            told.store(true, Ordering::Release);
            io::Write::write_all(&mut &writer, &[4; 8]).unwrap();
            writer
        });
        assert!(is_woken(&engine, 60_000));
        assert!(is_written.load(Ordering::Acquire), "too early");
        let mut seen = vec![];
        engine.reap(&mut |tag, completion| seen.push((tag, bytes(completion))));
        assert_eq!(seen, [(1, vec![4; 8])]);
        drop(sleeper.join());
    }
}
