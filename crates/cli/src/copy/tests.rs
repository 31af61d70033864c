use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sanwire_initiator::{OpKind, Volume, VolumeError, VolumeInfo};

use super::*;
use crate::parking::block_on;
use crate::test_volume::{info, serve};

/// A directory that is gone with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sanwire-copy-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// The journal of a copy whose source cannot tell whether it was changed, as that of a volume.
    fn journal(&self) -> Journal {
        self.journal_of(key(None))
    }

    /// That of a copy whose source can, as that of an image file.
    fn journal_of_file(&self) -> Journal {
        self.journal_of(key(Some("1")))
    }

    fn journal_of(&self, key: Key) -> Journal {
        Journal::new(&self.0.join("journal"), key).unwrap()
    }

    /// A sparse image: data at the start, in the middle, and at an end that is within a block.
    fn image(&self, size_bytes: u64) -> PathBuf {
        let path = self.0.join("source.img");
        let file = fs::File::create(&path).unwrap();
        file.set_len(size_bytes).unwrap();
        for (number, place) in [0, 3 << 20, size_bytes - 700].into_iter().enumerate() {
            file.write_all_at(&[number as u8 + 1; 700], place).unwrap();
        }
        file.write_all_at(&[0; 64 << 10], 1 << 20).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SIZE_BYTES: u64 = (5 << 20) + 1000;
const OPTIONS: CopyOptions = CopyOptions { depth: 4, done_bytes: None, verify: false, by_server: false };

fn key(source_version: Option<&str>) -> Key {
    Key {
        from: "a".into(),
        to: "b".into(),
        size_bytes: SIZE_BYTES,
        source_version: source_version.map(str::to_owned),
        destination_identity: "2".into(),
    }
}

fn volume(size_bytes: u64) -> Volume {
    serve(info(size_bytes, 512), |_| None)
}

fn as_end(volume: &Volume) -> End {
    End::Volume(volume.clone(), "hs+ip://box/disk".into())
}

fn run(from: &End, to: &mut End, journal: &Journal) -> anyhow::Result<Copied> {
    block_on(copy(from, to, journal, OPTIONS, |_| ()))
}

#[test]
fn a_mebibyte_goes_at_once_where_the_volume_takes_it_and_zeroes_within_are_not_sent() {
    const LONGEST: usize = 3 << 20;
    let scratch = Scratch::new("long");
    let source = scratch.0.join("source.img");
    let mut content: Vec<u8> = (0..9 << 20).map(|at| (at / 512 * 31 + at) as u8 | 1).collect();
    content[1 << 20..(1 << 20) + (512 << 10)].fill(0);
    fs::write(&source, &content).unwrap();
    let written = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&written);
    let long =
        VolumeInfo { transfer_max_bytes: LONGEST as u32, transfer_limit_bytes: LONGEST as u32, ..info(9 << 20, 512) };
    let volume = serve(long, move |op| {
        if let OpKind::Write { data, .. } = op {
            noted.lock().unwrap().push(data.len());
        }
        None
    });
    let from = End::Image(Image::open_source(&source).unwrap());
    let copied = run(&from, &mut as_end(&volume), &scratch.journal()).unwrap();
    assert_eq!((copied.data_bytes, copied.zero_bytes), ((8 << 20) + (512 << 10), 512 << 10));
    let mut written = written.lock().unwrap().clone();
    written.sort_unstable();
    assert_eq!(written, [&[512 << 10][..], &[1 << 20; 8]].concat());
    let back = scratch.0.join("back.img");
    run(&as_end(&volume), &mut End::Image(Image::open_destination(&back).unwrap()), &scratch.journal()).unwrap();
    assert!(fs::read(back).unwrap() == content);
}

#[test]
fn the_memory_of_a_copy_does_not_grow_with_its_depth() {
    let scratch = Scratch::new("depth");
    let end = End::Image(Image::open_source(&scratch.image(SIZE_BYTES)).unwrap());
    let in_flight_bytes = |depth: u16| end.chunk_bytes(depth) * u64::from(depth);
    assert!([1, 2, 8, 13, 16, 32, 128].iter().all(|depth| in_flight_bytes(*depth) <= 32 << 20));
    assert_eq!(end.chunk_bytes(1024), 256 << 10);
}

#[test]
fn an_image_goes_to_a_volume_and_comes_back_equal_and_sparse() {
    let scratch = Scratch::new("both-ways");
    let source = scratch.image(SIZE_BYTES);
    let volume = volume(8 << 20);
    let junk = block_on(volume.buffer(64 << 10)).unwrap();
    let mut junk = junk;
    junk.fill(0xee);
    block_on(volume.write(2 << 20, junk.freeze())).unwrap();

    let last = Cell::new(0);
    let from = End::Image(Image::open_source(&source).unwrap());
    let copied =
        block_on(copy(&from, &mut as_end(&volume), &scratch.journal(), OPTIONS, |done| last.set(done))).unwrap();
    assert_eq!(copied.data_bytes + copied.zero_bytes, SIZE_BYTES);
    assert!(copied.data_bytes < 1 << 20, "holes were not sent: {copied:?}");
    assert_eq!(last.get(), SIZE_BYTES);
    assert_eq!(scratch.journal().load(), None, "a complete copy leaves no journal");

    let back = scratch.0.join("back.img");
    run(&as_end(&volume), &mut End::Image(Image::open_destination(&back).unwrap()), &scratch.journal()).unwrap();
    let (source, back_content) = (fs::read(source).unwrap(), fs::read(&back).unwrap());
    assert_eq!(back_content.len(), 8 << 20);
    assert!(back_content[..source.len()] == source[..], "the junk where the source has a hole is gone too");
    assert!(back_content[source.len()..].iter().all(|byte| *byte == 0));
    assert!(fs::metadata(&back).unwrap().blocks() * 512 < 2 << 20, "the copy has holes");
}

/// A volume that says so often of a flush that what came before was lost, and how many writes it has had.
fn losing(losses: u64) -> (Volume, Arc<AtomicU64>) {
    let (writes, left) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(losses));
    let counted = Arc::clone(&writes);
    let volume = serve(info(8 << 20, 512), move |op| match op {
        OpKind::Write { .. } => {
            counted.fetch_add(1, Ordering::SeqCst);
            None
        }
        OpKind::Flush => {
            let is_lost = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            is_lost.then(|| VolumeError::WritesLost { server: "memory".into() })
        }
        _ => None,
    });
    (volume, writes)
}

#[test]
fn what_the_destination_has_lost_is_copied_again() {
    let scratch = Scratch::new("lost");
    let from = End::Image(Image::open_source(&scratch.image(SIZE_BYTES)).unwrap());
    let written = |losses| {
        let (volume, writes) = losing(losses);
        let copied = run(&from, &mut as_end(&volume), &scratch.journal_of_file());
        (copied, writes.load(Ordering::SeqCst))
    };
    let (copied, once) = written(0);
    let once_copied = copied.unwrap();
    let (copied, again) = written(2);
    assert_eq!(copied.unwrap(), once_copied, "and it is counted once");
    assert!(again > once, "{again} writes, {once} where nothing is lost");
    let error = written(u64::MAX).0.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(VolumeError::WritesLost { .. })), "not for ever: {error}");
}

#[test]
fn a_volume_without_discard_and_zeroing_gets_zeroes_written() {
    let scratch = Scratch::new("no-discard");
    let source = scratch.image(SIZE_BYTES);
    let volume = serve(info(8 << 20, 4096), |op| match op {
        OpKind::Discard { .. } | OpKind::WriteZeroes { .. } => Some(VolumeError::Unsupported),
        _ => None,
    });
    let from = End::Image(Image::open_source(&source).unwrap());
    let copied = run(&from, &mut as_end(&volume), &scratch.journal()).unwrap();
    assert_eq!((copied.data_bytes, copied.zero_bytes), (SIZE_BYTES, 0));
}

/// A volume that tells the lowest byte that was written since the last look.
fn watched_volume() -> (Volume, impl Fn() -> u64) {
    let written = Arc::new(AtomicU64::new(u64::MAX));
    let lowest = Arc::clone(&written);
    let volume = serve(info(8 << 20, 512), move |op| {
        if let OpKind::Write { offset_bytes, .. } | OpKind::Discard { offset_bytes, .. } = op {
            lowest.fetch_min(*offset_bytes, Ordering::SeqCst);
        }
        None
    });
    (volume, move || written.swap(u64::MAX, Ordering::SeqCst))
}

fn resumed(done_bytes: u64) -> CopyOptions {
    CopyOptions { done_bytes: Some(done_bytes), ..OPTIONS }
}

#[test]
fn a_copy_of_a_file_goes_on_where_it_was_only_when_it_is_told_so() {
    let scratch = Scratch::new("resume");
    let source = scratch.image(SIZE_BYTES);
    let (volume, lowest) = watched_volume();
    let journal = scratch.journal_of_file();
    journal.save(3 << 20).unwrap();
    let from = End::Image(Image::open_source(&source).unwrap());
    let copied = block_on(copy(&from, &mut as_end(&volume), &journal, resumed(3 << 20), |_| ())).unwrap();
    assert_eq!((copied.resumed_bytes, lowest()), (3 << 20, 3 << 20));

    journal.save(3 << 20).unwrap();
    let copied = run(&from, &mut as_end(&volume), &journal).unwrap();
    assert_eq!((copied.resumed_bytes, lowest()), (0, 0));
}

#[test]
fn a_copy_of_a_volume_that_has_changed_goes_on_as_a_copy_of_what_it_holds_now() {
    let scratch = Scratch::new("resume-changed");
    let (volume, path) = (volume(4 << 20), scratch.0.join("back.img"));
    let fill = |offset_bytes: u64, byte: u8| {
        let mut frame = block_on(volume.buffer(64 << 10)).unwrap();
        frame.fill(byte);
        block_on(volume.write(offset_bytes, frame.freeze())).unwrap();
    };
    fill(0, 1);
    fill(512 << 10, 1);
    fill(3 << 20, 1);
    run(&as_end(&volume), &mut End::Image(Image::open_destination(&path).unwrap()), &scratch.journal()).unwrap();
    // One part is changed, one is cleared, and somebody has spoilt the copy where the volume has nothing.
    fill(0, 2);
    block_on(volume.discard(512 << 10, 64 << 10)).unwrap();
    fs::File::options().write(true).open(&path).unwrap().write_all_at(&[9; 100], (1 << 20) + 77).unwrap();
    let mut to = End::Image(Image::open_destination(&path).unwrap());
    let copied = block_on(copy(&as_end(&volume), &mut to, &scratch.journal(), resumed(2 << 20), |_| ())).unwrap();
    let mut expected = vec![0; 4 << 20];
    expected[..64 << 10].fill(2);
    expected[3 << 20..][..64 << 10].fill(1);
    assert!(fs::read(&path).unwrap() == expected, "a mixture of two states");
    assert!((1 << 20..2 << 20).contains(&copied.resumed_bytes), "what was the same was left alone: {copied:?}");
}

#[test]
fn a_resumed_file_has_nothing_of_the_first_try_behind_the_place() {
    let scratch = Scratch::new("resume-file");
    let path = scratch.0.join("back.img");
    fs::write(&path, vec![0xee; 4 << 20]).unwrap();
    let mut to = End::Image(Image::open_destination(&path).unwrap());
    let journal = scratch.journal_of_file();
    block_on(copy(&as_end(&volume(4 << 20)), &mut to, &journal, resumed(1 << 20), |_| ())).unwrap();
    let content = fs::read(&path).unwrap();
    assert!(content[..1 << 20].iter().all(|byte| *byte == 0xee) && content[1 << 20..].iter().all(|byte| *byte == 0));

    fs::remove_file(&path).unwrap();
    let mut to = End::Image(Image::open_destination(&path).unwrap());
    let copied = block_on(copy(&as_end(&volume(4 << 20)), &mut to, &journal, resumed(1 << 20), |_| ())).unwrap();
    assert_eq!(copied.resumed_bytes, 0, "the file of the first try is gone");
}

#[test]
fn a_verified_copy_is_read_again_and_one_that_differs_fails() {
    let scratch = Scratch::new("verify");
    let source = scratch.image(SIZE_BYTES);
    let from = End::Image(Image::open_source(&source).unwrap());
    let options = CopyOptions { verify: true, ..OPTIONS };
    let copied = block_on(copy(&from, &mut as_end(&volume(8 << 20)), &scratch.journal(), options, |_| ())).unwrap();
    assert_eq!(copied.verified_bytes, SIZE_BYTES);

    let clearing = volume(8 << 20);
    let forgetful = serve(info(8 << 20, 512), {
        let (source, spoilt) = (source.clone(), AtomicU64::new(0));
        move |op| {
            // At the last flush somebody writes the source.
            if matches!(op, OpKind::Flush) && spoilt.fetch_add(1, Ordering::SeqCst) == 1 {
                fs::File::options().write(true).open(&source).unwrap().write_all_at(&[7], (3 << 20) + 5).unwrap();
            }
            None
        }
    });
    drop(clearing);
    let copied = block_on(copy(&from, &mut as_end(&forgetful), &scratch.journal(), options, |_| ()));
    let message = copied.unwrap_err().to_string();
    assert!(message.contains(&format!("at byte {}", (3 << 20) + 5)), "{message}");
}

#[test]
fn a_thin_volume_is_read_only_where_it_has_space() {
    let scratch = Scratch::new("thin");
    let read = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&read);
    let volume = serve(info(64 << 20, 512), move |op| {
        if let OpKind::Read { buffer, .. } = op {
            counted.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        }
        None
    });
    let mut frame = block_on(volume.buffer(4096)).unwrap();
    frame.fill(5);
    block_on(volume.write(40 << 20, frame.freeze())).unwrap();
    let path = scratch.0.join("back.img");
    run(&as_end(&volume), &mut End::Image(Image::open_destination(&path).unwrap()), &scratch.journal()).unwrap();
    let content = fs::read(&path).unwrap();
    assert!(content.len() == 64 << 20 && content[40 << 20..][..4096] == [5; 4096]);
    let read_bytes = read.load(Ordering::SeqCst);
    assert!(read_bytes <= 4 << 20, "{read_bytes} bytes were read for 4096");
}

#[test]
fn a_server_that_does_not_copy_by_itself_is_read_and_written() {
    let scratch = Scratch::new("refused");
    let source = scratch.image(SIZE_BYTES);
    let names = |naa| VolumeInfo { naa: Some(naa), ..info(8 << 20, 512) };
    let from = serve(names(1), |_| None);
    run(&End::Image(Image::open_source(&source).unwrap()), &mut as_end(&from), &scratch.journal()).unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    let to = serve(names(2), move |op| {
        counted.fetch_add(matches!(op, OpKind::Copy { naa: [1, 2], .. }).into(), Ordering::SeqCst);
        None
    });
    let options = CopyOptions { by_server: true, verify: true, depth: 1, ..OPTIONS };
    let copied = block_on(copy(&as_end(&from), &mut as_end(&to), &scratch.journal(), options, |_| ())).unwrap();
    assert_eq!((copied.server_bytes, copied.verified_bytes), (0, 8 << 20));
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it is asked once");
}

#[test]
fn what_a_copy_would_destroy_is_found_and_what_it_leaves_alone_is_not() {
    let volume = volume(8 << 20);
    let find = |size_bytes| block_on(find_data(&as_end(&volume), 0..size_bytes, 4)).unwrap();
    assert_eq!(find(8 << 20), None);
    let mut frame = block_on(volume.buffer(512)).unwrap();
    frame.fill(0);
    frame[511] = 1;
    block_on(volume.write(5 << 20, frame.freeze())).unwrap();
    assert!(find(8 << 20).is_some_and(|place| place <= 5 << 20));
    assert!(find((5 << 20) + 1).is_some(), "the copy clears the rest of its last block");
    assert_eq!(find(5 << 20), None);
}

#[test]
fn a_volume_goes_through_pipes_and_comes_back_equal() {
    let scratch = Scratch::new("pipes");
    let source = fs::read(scratch.image(SIZE_BYTES)).unwrap();
    let (first, second) = (volume(8 << 20), volume(8 << 20));
    let copied = block_on(read_in(&mut &source[..], &as_end(&first), 4, |_| ())).unwrap();
    assert_eq!(copied.data_bytes + copied.zero_bytes, SIZE_BYTES);
    let mut told = Vec::new();
    let copied = block_on(write_out(&as_end(&first), &mut told, 4, |_| ())).unwrap();
    assert_eq!(copied.data_bytes + copied.zero_bytes, 8 << 20);
    assert!(copied.zero_bytes > 1 << 20, "{copied:?}");
    assert!(
        told.len() == 8 << 20 && told[..source.len()] == source && told[source.len()..].iter().all(|byte| *byte == 0)
    );
    block_on(read_in(&mut &told[..], &as_end(&second), 1, |_| ())).unwrap();
    let error = block_on(read_in(&mut &[told, vec![1]].concat()[..], &as_end(&second), 4, |_| ())).unwrap_err();
    assert!(error.to_string().starts_with("stdin has more than the 8388608 bytes"), "{error}");
}

#[test]
fn a_failed_write_keeps_the_journal_and_names_the_volume() {
    let scratch = Scratch::new("failure");
    let source = scratch.image(SIZE_BYTES);
    let volume = serve(info(8 << 20, 512), |op| match op {
        OpKind::Write { offset_bytes: 0x10_0000.., .. } => Some(VolumeError::NoSpace),
        _ => None,
    });
    scratch.journal().save(512).unwrap();
    let from = End::Image(Image::open_source(&source).unwrap());
    let journal = scratch.journal_of_file();
    journal.save(512).unwrap();
    let error = block_on(copy(&from, &mut as_end(&volume), &journal, resumed(512), |_| ())).unwrap_err();
    assert!(format!("{error:#}").starts_with("writing hs+ip://box/disk: no space is left"), "{error:#}");
    assert_eq!(journal.load().map(|interrupted| interrupted.done_bytes), Some(512));
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let scratch = Scratch::new("fit");
    let source = scratch.image(SIZE_BYTES);
    let volume = serve(info(5 << 20, 512), |_| Some(VolumeError::Unsupported));
    let from = End::Image(Image::open_source(&source).unwrap());
    let message = run(&from, &mut as_end(&volume), &scratch.journal()).unwrap_err().to_string();
    assert!(message.contains("does not fit into hs+ip://box/disk (5 MiB)"), "{message}");
    let read_only = VolumeError::ReadOnly.to_string();
    let volume = serve(sanwire_initiator::VolumeInfo { read_only: true, ..info(8 << 20, 512) }, |_| None);
    let message = run(&from, &mut as_end(&volume), &scratch.journal()).unwrap_err().to_string();
    assert!(message.contains(&read_only), "{message}");
}

#[test]
fn a_journal_says_why_its_copy_cannot_go_on() {
    let scratch = Scratch::new("journal");
    let journal = scratch.journal_of_file();
    assert_eq!(journal.load(), None);
    journal.save(77).unwrap();
    let found = |key: Key| scratch.journal_of(key).load();
    let found_as = |key: Key| found(key).map(|interrupted| (interrupted.done_bytes, interrupted.obstacle));
    let same = || key(Some("1"));
    assert_eq!(found_as(same()), Some((77, None)));
    assert_eq!(found_as(Key { size_bytes: 2, ..same() }), Some((77, Some("the source has another size now"))));
    assert_eq!(found_as(key(Some("3"))), Some((77, Some("the source has been changed since"))));
    let other = Key { destination_identity: "4".into(), ..same() };
    assert_eq!(found_as(other), Some((77, Some("the destination is not the one of that copy"))));
    assert_eq!(found_as(Key { to: "c".into(), ..same() }), None);
    assert!(!journal.must_compare() && scratch.journal().must_compare());
    journal.remove().unwrap();
    assert_eq!(found_as(same()), None);
    journal.remove().unwrap();
}

#[test]
fn a_file_that_was_written_is_another_version_of_the_source() {
    let scratch = Scratch::new("version");
    let path = scratch.image(SIZE_BYTES);
    let version = || End::Image(Image::open_source(&path).unwrap()).version().unwrap();
    let before = version();
    assert!(before.is_some());
    assert_eq!(version(), before);
    fs::write(scratch.0.join("other"), vec![1; SIZE_BYTES as usize]).unwrap();
    fs::rename(scratch.0.join("other"), &path).unwrap();
    assert_ne!(version(), before);
    assert_eq!(as_end(&volume(1 << 20)).version().unwrap(), None);
}

/// Whatever the umask: what a volume held is often a file system with the secrets of a host.
#[test]
fn an_image_that_is_made_is_for_its_owner_alone() {
    let scratch = Scratch::new("mode");
    let path = scratch.0.join("made.img");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    Image::open_destination(&path).unwrap();
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    Image::open_destination(&path).unwrap();
    assert_eq!(mode(), 0o640, "one that is there stays as it is");
}
