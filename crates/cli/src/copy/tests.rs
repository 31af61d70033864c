use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_initiator::{OpKind, Volume, VolumeError};

use super::*;
use crate::test_volume::{block_on, info, serve};

/// A directory that is gone with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sanwire-copy-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn journal(&self) -> Journal {
        let key = Key { from: "a".into(), to: "b".into(), size_bytes: 1, changed: None, inode: None };
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
const OPTIONS: CopyOptions = CopyOptions { depth: 4, restart: false };

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

#[test]
fn an_interrupted_copy_goes_on_where_it_was() {
    let scratch = Scratch::new("resume");
    let source = scratch.image(SIZE_BYTES);
    let written = Arc::new(AtomicU64::new(u64::MAX));
    let lowest = Arc::clone(&written);
    let volume = serve(info(8 << 20, 512), move |op| {
        if let OpKind::Write { offset_bytes, .. } | OpKind::Discard { offset_bytes, .. } = op {
            lowest.fetch_min(*offset_bytes, Ordering::SeqCst);
        }
        None
    });
    scratch.journal().save(3 << 20).unwrap();
    let from = End::Image(Image::open_source(&source).unwrap());
    let copied = run(&from, &mut as_end(&volume), &scratch.journal()).unwrap();
    assert_eq!((copied.resumed_bytes, written.load(Ordering::SeqCst)), (3 << 20, 3 << 20));

    scratch.journal().save(3 << 20).unwrap();
    let restart = CopyOptions { restart: true, ..OPTIONS };
    let copied = block_on(copy(&from, &mut as_end(&volume), &scratch.journal(), restart, |_| ())).unwrap();
    assert_eq!((copied.resumed_bytes, written.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn a_resumed_file_has_nothing_of_the_first_try_behind_the_place() {
    let scratch = Scratch::new("resume-file");
    let path = scratch.0.join("back.img");
    fs::write(&path, vec![0xee; 4 << 20]).unwrap();
    scratch.journal().save(1 << 20).unwrap();
    let mut to = End::Image(Image::open_destination(&path).unwrap());
    run(&as_end(&volume(4 << 20)), &mut to, &scratch.journal()).unwrap();
    let content = fs::read(&path).unwrap();
    assert!(content[..1 << 20].iter().all(|byte| *byte == 0xee) && content[1 << 20..].iter().all(|byte| *byte == 0));

    fs::remove_file(&path).unwrap();
    scratch.journal().save(1 << 20).unwrap();
    let mut to = End::Image(Image::open_destination(&path).unwrap());
    let copied = run(&as_end(&volume(4 << 20)), &mut to, &scratch.journal()).unwrap();
    assert_eq!(copied.resumed_bytes, 0, "the file of the first try is gone");
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
    let error = run(&from, &mut as_end(&volume), &scratch.journal()).unwrap_err();
    assert!(format!("{error:#}").starts_with("writing hs+ip://box/disk: no space is left"), "{error:#}");
    assert_eq!(scratch.journal().load(), Some(512));
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
fn a_journal_of_another_source_counts_as_none() {
    let scratch = Scratch::new("journal");
    scratch.journal().save(77).unwrap();
    assert_eq!(scratch.journal().load(), Some(77));
    let key = Key { from: "a".into(), to: "b".into(), size_bytes: 2, changed: None, inode: None };
    assert_eq!(Journal::new(&scratch.0.join("journal"), key).unwrap().load(), None);
}
