use std::fs;
use std::path::{Path, PathBuf};

use sanwire_buffer::Slices;
use sanwire_store::{Acceptance, Completion, Expectation, OpenError, Outcome, VOLUME_MARK as MARK};

use super::*;
use crate::blocking;

/// A path of its own for each test, gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sanwire-store-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn sized(size_bytes: u64) -> FileOptions {
    FileOptions { size_bytes: Some(size_bytes), ..FileOptions::default() }
}

fn run(store: &FileStore, request: Request) -> Completion {
    blocking::run(store, request)
}

fn read(store: &FileStore, offset_bytes: u64, length: usize) -> Vec<u8> {
    match run(store, Request::Read { offset_bytes, buffer: vec![0xee; length].into() }) {
        Ok(Outcome::Read(frame)) => frame.to_vec(),
        other => panic!("read at {offset_bytes}: {other:?}"),
    }
}

fn kind(completion: Completion) -> ErrorKind {
    completion.expect_err("an error").kind
}

fn open_error(path: &Path, options: &FileOptions) -> String {
    FileStore::open(path, options).expect_err("an error").to_string()
}

#[test]
fn a_sparse_file_is_made_when_absent_and_never_cut() {
    let scratch = Scratch::new("make");
    assert!(open_error(&scratch.0, &FileOptions::default()).ends_with("does not exist: give size= to create it"));
    drop(FileStore::open(&scratch.0, &sized(1 << 30)).unwrap());
    assert_eq!(fs::metadata(&scratch.0).unwrap().len(), 1 << 30);
    assert_eq!(FileStore::open(&scratch.0, &FileOptions::default()).unwrap().geometry().length_bytes, 1 << 30);

    let message = open_error(&scratch.0, &sized(2 << 30));
    assert!(
        message.contains("has 1 GiB (1073741824 bytes), not the 2 GiB") && message.contains("add grow"),
        "{message}"
    );
    let longer = FileStore::open(&scratch.0, &FileOptions { grow: true, ..sized(4096) }).unwrap();
    assert_eq!(longer.geometry().length_bytes, 1 << 30, "it is served as long as it is");
    drop(longer);
    let grown = FileStore::open(&scratch.0, &FileOptions { grow: true, ..sized(2 << 30) }).unwrap();
    assert_eq!(grown.geometry().length_bytes, 2 << 30);
}

#[test]
fn a_failed_creation_leaves_nothing_behind() {
    let scratch = Scratch::new("odd");
    assert!(open_error(&scratch.0, &sized(1000)).contains("not a positive multiple of the 512-byte block"));
    assert!(!scratch.0.exists());
}

/// Another program's, or one that is damaged: to take it for none would make another volume of the file.
#[test]
fn a_file_whose_mark_cannot_be_read_is_not_taken_for_one_without() {
    let scratch = Scratch::new("mark");
    let open = |acceptance| {
        let (fresh, fallback) = ([1; 16], [2; 16]);
        let expected =
            Expectation { name: "a", known: None, known_below: None, is_kept: true, acceptance, fresh, fallback };
        FileStore::open_volume(&scratch.0, &sized(1 << 20), &expected).map(|(_, known)| known.unwrap())
    };
    if !open(Acceptance::Known).unwrap().is_marked {
        return;
    }
    for acceptance in [Acceptance::Adopted, Acceptance::Renewed] {
        let file = File::open(&scratch.0).unwrap();
        rustix::fs::fsetxattr(&file, MARK, b"nonsense", rustix::fs::XattrFlags::empty()).unwrap();
        let refused = open(Acceptance::Known).unwrap_err().to_string();
        assert!(refused.contains("which volume it holds (its extended attribute user.sanwire.volume)"), "{refused}");
        assert!(refused.contains("`--adopt a` once") && refused.contains("`--renew a`"), "{refused}");
        let taken = open(acceptance).unwrap();
        assert!(taken.is_marked && open(Acceptance::Known).unwrap() == taken);
    }
}

#[test]
fn two_writers_never_share_a_file() {
    let scratch = Scratch::new("lock");
    let writer = FileStore::open(&scratch.0, &sized(1 << 20)).unwrap();
    let read_only = FileOptions { read_only: true, ..FileOptions::default() };
    for options in [&FileOptions::default(), &read_only] {
        assert!(matches!(FileStore::open(&scratch.0, options), Err(OpenError::Locked { .. })), "{options:?}");
    }
    drop(writer);
    let readers = [0; 2].map(|_| FileStore::open(&scratch.0, &read_only).unwrap());
    assert!(open_error(&scratch.0, &FileOptions::default()).contains("in use by another server"));
    drop(readers);
    FileStore::open(&scratch.0, &FileOptions::default()).unwrap();
}

#[test]
fn only_files_and_block_devices_are_stores() {
    let options = FileOptions::default();
    assert!(open_error(Path::new("/tmp"), &options).contains("not a regular file or a block device"));
    assert!(open_error(Path::new("/dev/null"), &options).contains("not a regular file or a block device"));
    let only = FileOptions { only_block_device: true, ..sized(4096) };
    assert!(open_error(Path::new("/dev/no-such-disk"), &only).contains("No such file"));
    assert!(!Path::new("/dev/no-such-disk").exists());
}

#[test]
fn every_request_does_what_it_says() {
    let scratch = Scratch::new("requests");
    for direct in [false, true] {
        let options = FileOptions { direct, block_bytes: Some(4096), ..sized(1 << 20) };
        let store = match FileStore::open(&scratch.0, &options) {
            Err(OpenError::Io { action, .. }) if action.contains("direct") => continue,
            other => other.unwrap(),
        };
        run(&store, Request::Write { offset_bytes: 4096, data: vec![7; 12288].into() }).unwrap();
        // An odd address: direct I/O would refuse it.
        let odd = sanwire_buffer::Slice::from(vec![8; 4097]).slice(1..4097);
        run(&store, Request::Write { offset_bytes: 8192, data: odd.into() }).unwrap();
        // Pieces at even addresses, and such as only the page cache takes.
        let region = sanwire_buffer::Region::new(1 << 16).unwrap();
        let page = |fill: u8| {
            let mut frame = region.frame(4096).unwrap();
            frame.fill(fill);
            frame.freeze()
        };
        let even = Slices::gather([page(1), page(2), page(3)]).unwrap();
        let odd = Slices::gather([page(4).slice(0..4095), page(5).slice(0..2), page(6).slice(1..4096)]).unwrap();
        assert_eq!((even.pieces().len(), odd.pieces().len(), odd.len()), (3, 3, 8192));
        for (offset_bytes, data) in [(32768, even), (45056, odd)] {
            let request = Request::Write { offset_bytes, data };
            assert_eq!(Arc::ptr_eq(store.file_for(&request), &store.file), !direct || offset_bytes == 32768);
            run(&store, request).unwrap();
        }
        let expected = [[1; 4096], [2; 4096], [3; 4096], [4; 4096], [6; 4096]].concat();
        let found = read(&store, 32768, 20480);
        assert!(found[..16383] == expected[..16383] && found[16383..16385] == [5; 2]);
        assert!(found[16385..] == expected[16385..], "direct: {direct}");
        run(&store, Request::WriteZeroes { offset_bytes: 12288, length_bytes: 4096 }).unwrap();
        run(&store, Request::Flush).unwrap();
        let expected = [vec![0; 4096], vec![7; 4096], vec![8; 4096], vec![0; 8192]].concat();
        assert!(read(&store, 0, 20480) == expected, "direct: {direct}");
        if store.geometry().discards {
            run(&store, Request::Discard { offset_bytes: 0, length_bytes: 1 << 20 }).unwrap();
            assert!(read(&store, 0, 20480) == vec![0; 20480]);
        }
    }
}

/// As packets lie in pages that a network card fills: what begins and ends at a sector needs no copy.
#[test]
fn pieces_of_whole_sectors_go_past_the_page_cache() {
    let scratch = Scratch::new("sectors");
    let store = match FileStore::open(&scratch.0, &FileOptions { direct: true, ..sized(1 << 20) }) {
        // Not every file system does it, and some only in blocks of 4096 bytes.
        Err(OpenError::Direct { .. }) => return,
        Err(OpenError::Io { action, .. }) if action.contains("direct") => return,
        other => other.unwrap(),
    };
    let region = sanwire_buffer::Region::new(1 << 16).unwrap();
    for (at, length, is_direct) in [(512, 1024, true), (512, 3072, true), (300, 1024, false)] {
        let piece = |fill: u8| {
            let mut frame = region.frame(4096).unwrap();
            frame.fill(fill);
            frame.freeze().slice(at..at + length)
        };
        let data = Slices::gather((1..=4).map(piece)).unwrap();
        assert_eq!((data.pieces().len(), data.len()), (4, 4 * length));
        let request = Request::Write { offset_bytes: 512, data };
        assert_eq!(Arc::ptr_eq(store.file_for(&request), &store.file), is_direct, "{length} bytes at {at}");
        run(&store, request).unwrap();
        let expected: Vec<u8> = (1..=4).flat_map(|fill| vec![fill; length]).collect();
        assert!(read(&store, 512, 4 * length) == expected, "{length} bytes at {at}");
    }
}

#[test]
fn refusals_have_their_kind() {
    let scratch = Scratch::new("refusals");
    let store = FileStore::open(&scratch.0, &sized(1 << 20)).unwrap();
    let beyond = Request::Read { offset_bytes: 1 << 20, buffer: vec![0; 512].into() };
    assert_eq!(kind(run(&store, beyond)), ErrorKind::OutOfRange);
    fs::OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(1000).unwrap();
    let cut = run(&store, Request::Read { offset_bytes: 512, buffer: vec![0; 1024].into() }).unwrap_err();
    assert_eq!((cut.kind, cut.offset_bytes), (ErrorKind::Gone, 1000));
    fs::OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(1 << 20).unwrap();
    drop(store);

    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let store = FileStore::open(&scratch.0, &options).unwrap();
    assert!(store.geometry().discards, "it has holes");
    let write = Request::Write { offset_bytes: 0, data: vec![0; 512].into() };
    assert_eq!(kind(run(&store, write)), ErrorKind::ReadOnly);
}

/// What a write beyond the new end would make of the blocks between.
#[test]
fn a_file_that_was_cut_short_shows_no_zeroes_and_takes_no_write_until_it_is_whole() {
    let scratch = Scratch::new("cut");
    let store = FileStore::open(&scratch.0, &sized(1 << 20)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&scratch.0).unwrap();
    let length = || fs::metadata(&scratch.0).unwrap().len();
    let write = |offset_bytes| Request::Write { offset_bytes, data: vec![7; 4096].into() };
    for offset_bytes in (0..1 << 20).step_by(4096) {
        run(&store, write(offset_bytes)).unwrap();
    }
    file.set_len(64 << 10).unwrap();
    let refused = run(&store, write((1 << 20) - 4096)).unwrap_err();
    assert_eq!((refused.kind, refused.offset_bytes), (ErrorKind::Gone, (1 << 20) - 4096), "the last block, at once");
    let others = [
        write(512 << 10),
        write(0),
        Request::Read { offset_bytes: 0, buffer: vec![0; 512].into() },
        Request::Read { offset_bytes: 512 << 10, buffer: vec![0; 512].into() },
        Request::WriteZeroes { offset_bytes: 512 << 10, length_bytes: 4096 },
        Request::Flush,
    ];
    for request in others {
        let asked = format!("{request:?}");
        assert_eq!(kind(run(&store, request)), ErrorKind::Gone, "{asked}");
    }
    assert_eq!(length(), 64 << 10, "nothing made it longer");
    assert!(store.resize(2 << 20).unwrap_err().to_string().contains("cut short"));
    file.set_len(1 << 20).unwrap();
    run(&store, write(512 << 10)).unwrap();
    assert_eq!(read(&store, 0, 4096), [7; 4096], "it is whole");

    // Some milliseconds later it is noticed wherever the write goes.
    file.set_len(64 << 10).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(kind(run(&store, write(512 << 10))), ErrorKind::Gone);
    assert_eq!(length(), 64 << 10);
}

#[test]
fn a_thin_file_counts_what_it_takes() {
    let scratch = Scratch::new("space");
    let store = FileStore::open(&scratch.0, &sized(8 << 20)).unwrap();
    if !store.geometry().discards {
        assert_eq!(store.space(), None);
        return;
    }
    let used_bytes = || store.space().unwrap().used_bytes;
    assert_eq!(used_bytes(), 0);
    run(&store, Request::Write { offset_bytes: 1 << 20, data: vec![7; 1 << 20].into() }).unwrap();
    run(&store, Request::Flush).unwrap();
    assert!((1 << 20..2 << 20).contains(&used_bytes()), "{}", used_bytes());
    assert!(store.space().unwrap().available_bytes.unwrap() > 0);
    run(&store, Request::Discard { offset_bytes: 0, length_bytes: 8 << 20 }).unwrap();
    assert!(used_bytes() < 1 << 20);

    run(&store, Request::WriteZeroes { offset_bytes: 0, length_bytes: 8 << 20 }).unwrap();
    run(&store, Request::Write { offset_bytes: 0, data: vec![7; 8 << 20].into() }).unwrap();
    run(&store, Request::Flush).unwrap();
    drop(store);
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let whole = FileStore::open(&scratch.0, &options).unwrap();
    assert!(!whole.geometry().discards && whole.space().is_none(), "all of it is there");
}

#[test]
fn a_full_medium_is_full() {
    let full = KernelOp {
        file: Arc::new(File::options().write(true).open("/dev/full").unwrap()),
        is_block_device: false,
        request: Request::Write { offset_bytes: 4096, data: vec![1; 512].into() },
    };
    assert_eq!(kind(blocking::perform(full)), ErrorKind::Full);
}

#[test]
fn a_file_is_made_longer_and_never_shorter() {
    let path = std::env::temp_dir().join(format!("sanwire-resize-{}", std::process::id()));
    let options = FileOptions { size_bytes: Some(1 << 20), ..FileOptions::default() };
    let store = FileStore::open(&path, &options).unwrap();
    assert!(matches!(store.resize((1 << 20) - 512), Err(ResizeError::Shorter { is_bytes: 0x10_0000 })));
    assert!(matches!(store.resize((1 << 30) + 1), Err(ResizeError::Blocks { .. })));
    store.resize(1 << 30).unwrap();
    assert_eq!(
        (store.geometry().length_bytes, File::open(&path).unwrap().metadata().unwrap().len()),
        (1 << 30, 1 << 30)
    );
    std::fs::remove_file(&path).unwrap();
}

/// The kernel says of a device that it has no mark, and that none may be removed.
#[test]
fn the_mark_that_a_device_never_has_is_put_back() {
    let device = Path::new("/dev/null");
    let mark = VolumeMark::of(device).expect("it has none, which is known");
    mark.put_back(device).unwrap();
}
