//! A request on an open file, done with ordinary blocking calls: what a thread pool runs. And [`run`], the simplest driver.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, SeekFrom};
use sanwire_buffer::Slices;
use sanwire_store::{Access, Allocation, Completion, KernelOp, Outcome, Request, Store, StoreError};

/// Zeroes to write where the kernel cannot zero a range itself, aligned for direct I/O.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);

static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

/// A run of zeroes, aligned to a page: what engines write for [`Request::WriteZeroes`] where `fallocate` cannot.
#[must_use]
pub fn zeroes() -> &'static [u8] {
    &ZEROES.0
}

/// Has a store do a request, and waits for its end, but for no [`sanwire_store::Delayed`].
///
/// # Errors
/// The store's.
pub fn run(store: &dyn Store, request: Request) -> Completion {
    sanwire_store::run(store, request, perform)
}

/// Does the request and waits for its end.
///
/// # Errors
/// As [`StoreError::from_io`] maps the kernel's; [`sanwire_store::ErrorKind::Gone`] where a read meets the end of a file that
/// was cut short.
pub fn perform(op: KernelOp) -> Completion {
    let file = &*op.file;
    match op.request {
        Request::Read { offset_bytes, mut buffer } => {
            read_full(file, offset_bytes, &mut buffer)?;
            Ok(Outcome::Read(buffer))
        }
        Request::Write { offset_bytes, data } => write_pieces(file, offset_bytes, &data),
        Request::Flush => {
            file.sync_data().map(|()| Outcome::Done).map_err(|e| StoreError::from_io(Access::Write, 0, e))
        }
        Request::Discard { offset_bytes, length_bytes } => discard(file, offset_bytes, length_bytes),
        Request::Allocation { length_bytes, .. } if op.is_block_device => {
            // A block device does not tell what it has.
            Ok(Outcome::Allocated(Allocation { is_mapped: true, length_bytes }))
        }
        Request::Allocation { offset_bytes, length_bytes } => allocation(file, offset_bytes, length_bytes),
        Request::WriteZeroes { offset_bytes, length_bytes } => write_zeroes(file, offset_bytes, length_bytes),
    }
}

fn read_full(file: &File, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
    let mut filled = 0;
    while filled < buffer.len() {
        let place = offset_bytes + filled as u64;
        match file.read_at(&mut buffer[filled..], place) {
            Ok(0) => return Err(StoreError::cut_short(place)),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(StoreError::from_io(Access::Read, place, error)),
        }
    }
    Ok(())
}

fn write_full(file: &File, offset_bytes: u64, data: &[u8]) -> Completion {
    let mut written = 0;
    while written < data.len() {
        let place = offset_bytes + written as u64;
        match file.write_at(&data[written..], place) {
            Ok(0) => return Err(StoreError::from_io(Access::Write, place, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(StoreError::from_io(Access::Write, place, error)),
        }
    }
    Ok(Outcome::Done)
}

/// As few calls as possible for all pieces: the kernel takes them as they lie.
fn write_pieces(file: &File, offset_bytes: u64, data: &Slices) -> Completion {
    if let [only] = data.pieces() {
        return write_full(file, offset_bytes, only);
    }
    let mut runs: Vec<IoSlice<'_>> = data.runs(0..data.len()).map(IoSlice::new).collect();
    let (mut rest, mut place) = (&mut runs[..], offset_bytes);
    while !rest.is_empty() {
        // It writes no more runs than a call may have.
        match rustix::io::pwritev(file, rest, place) {
            Ok(0) => return Err(StoreError::from_io(Access::Write, place, io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                IoSlice::advance_slices(&mut rest, count);
                place += count as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(StoreError::from_io(Access::Write, place, errno.into())),
        }
    }
    Ok(Outcome::Done)
}

/// `fallocate` punches holes in block devices too: it discards where discarded blocks read as zeroes.
fn discard(file: &File, offset_bytes: u64, length_bytes: u64) -> Completion {
    allocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset_bytes, length_bytes)
        .map_err(|error| StoreError::from_io(Access::Write, offset_bytes, error))
}

fn write_zeroes(file: &File, offset_bytes: u64, length_bytes: u64) -> Completion {
    match allocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset_bytes, length_bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        other => return other.map_err(|error| StoreError::from_io(Access::Write, offset_bytes, error)),
    }
    let mut done_bytes = 0;
    while done_bytes < length_bytes {
        let count = usize::try_from(length_bytes - done_bytes).unwrap_or(usize::MAX).min(zeroes().len());
        write_full(file, offset_bytes + done_bytes, &zeroes()[..count])?;
        done_bytes += count as u64;
    }
    Ok(Outcome::Done)
}

/// Nothing reads or writes at the file's own position, so moving it is harmless.
fn allocation(file: &File, offset_bytes: u64, length_bytes: u64) -> Completion {
    use rustix::io::Errno;
    let answer = |is_mapped, end: u64| {
        let length_bytes = end.saturating_sub(offset_bytes).clamp(1, length_bytes);
        Ok(Outcome::Allocated(Allocation { is_mapped, length_bytes }))
    };
    match rustix::fs::seek(file, SeekFrom::Data(offset_bytes)) {
        Ok(data) if data > offset_bytes => answer(false, data),
        Ok(_) => match rustix::fs::seek(file, SeekFrom::Hole(offset_bytes)) {
            Ok(hole) => answer(true, hole),
            Err(errno) => Err(StoreError::from_io(Access::Read, offset_bytes, errno.into())),
        },
        // No data from here to the end. A file that was cut short has nothing behind that, not zeroes: reading says so.
        Err(Errno::NXIO) => match file.metadata() {
            Ok(metadata) if offset_bytes < metadata.len() => answer(false, metadata.len()),
            Ok(_) => answer(true, u64::MAX),
            Err(error) => Err(StoreError::from_io(Access::Read, offset_bytes, error)),
        },
        // A file system without holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => answer(true, u64::MAX),
        Err(errno) => Err(StoreError::from_io(Access::Read, offset_bytes, errno.into())),
    }
}

fn allocate(file: &File, mode: FallocateFlags, offset_bytes: u64, length_bytes: u64) -> io::Result<Outcome> {
    if length_bytes == 0 {
        // The kernel calls a range of no bytes invalid.
        return Ok(Outcome::Done);
    }
    loop {
        match rustix::fs::fallocate(file, mode, offset_bytes, length_bytes) {
            Ok(()) => return Ok(Outcome::Done),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
