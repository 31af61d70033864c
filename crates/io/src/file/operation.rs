//! One operation on its way through a ring, call by call.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use io_uring::{opcode, squeue, types};
use sanwire_buffer::Slices;
use sanwire_store::{Access, Completion, KernelOp, Outcome, Request, StoreError};
use sanwire_store_file::blocking;

/// The most that one call reads or writes; the kernel's own bound is a page below 2 GiB.
const CALL_MAX_BYTES: usize = 1 << 30;
/// The most runs of memory that one call writes (`IOV_MAX`); more than that are several calls.
const CALL_MAX_RUNS: usize = 1024;
/// How often one operation may be told to try again without getting on.
const RETRIES_MAX: u32 = 1000;

/// An operation between submission and completion.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) tag: u64,
    op: KernelOp,
    /// What earlier calls got done.
    done_bytes: u64,
    /// Zeroes are written as data: the file system or device cannot zero a range.
    writes_zeroes: bool,
    retries: u32,
    /// Where the runs lie that the next call writes, if they are several. The kernel reads it as long as the call lasts.
    runs: Vec<libc::iovec>,
}

/// What a call's result means.
pub(super) enum Step {
    /// Another call is needed.
    Again,
    /// It is over.
    Over(Result<(), StoreError>),
}

impl Operation {
    pub(super) fn new(tag: u64, op: KernelOp) -> Self {
        Operation { tag, op, done_bytes: 0, writes_zeroes: false, retries: 0, runs: Vec::new() }
    }

    /// The next call. Memory within `registered` (addresses) is the ring's fixed buffer 0.
    ///
    /// The entry points into this operation's memory, also to its list of runs, and names its file: the operation must be kept, and
    /// nobody may touch its memory, until the call's result is there. The operation itself may be moved.
    pub(super) fn entry(&mut self, registered: &Range<usize>) -> squeue::Entry {
        let file = types::Fd(self.op.file.as_raw_fd());
        let done = usize::try_from(self.done_bytes).unwrap_or(usize::MAX);
        match &mut self.op.request {
            Request::Read { offset_bytes, buffer } => {
                let rest = &mut buffer[done..];
                let (pointer, length) = (rest.as_mut_ptr(), rest.len().min(CALL_MAX_BYTES) as u32);
                let place = *offset_bytes + self.done_bytes;
                if is_within(rest.as_ptr(), rest.len(), registered) {
                    opcode::ReadFixed::new(file, pointer, length, 0).offset(place).build()
                } else {
                    opcode::Read::new(file, pointer, length).offset(place).build()
                }
            }
            Request::Write { offset_bytes, data } => {
                let place = *offset_bytes + self.done_bytes;
                if let [only] = data.pieces() {
                    let rest = &only[done..];
                    return write_entry(file, (rest.as_ptr(), rest.len()), place, registered);
                }
                collect_runs(data, done, &mut self.runs);
                match self.runs[..] {
                    [run] => write_entry(file, (run.iov_base.cast(), run.iov_len), place, registered),
                    ref runs => {
                        opcode::Writev::new(file, runs.as_ptr().cast(), runs.len() as u32).offset(place).build()
                    }
                }
            }
            // There is no call for it: it is asked when this one's turn comes.
            Request::Allocation { .. } => opcode::Nop::new().build(),
            Request::Flush => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            Request::Discard { offset_bytes, length_bytes } => opcode::Fallocate::new(file, *length_bytes)
                .offset(*offset_bytes)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            Request::WriteZeroes { offset_bytes, length_bytes } if self.writes_zeroes => {
                let rest = usize::try_from(*length_bytes - self.done_bytes).unwrap_or(usize::MAX);
                let zeroes = &blocking::zeroes()[..rest.min(blocking::zeroes().len())];
                write_entry(file, (zeroes.as_ptr(), zeroes.len()), *offset_bytes + self.done_bytes, registered)
            }
            Request::WriteZeroes { offset_bytes, length_bytes } => opcode::Fallocate::new(file, *length_bytes)
                .offset(*offset_bytes)
                .mode(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        }
    }

    /// Takes the result of the call: a negative errno or a count.
    pub(super) fn advance(&mut self, result: i32) -> Step {
        let Ok(count) = u64::try_from(result) else { return self.fail(result.saturating_neg()) };
        let (offset_bytes, length_bytes) = self.op.request.range_bytes();
        let place = offset_bytes + self.done_bytes;
        match self.op.request {
            Request::Flush | Request::Discard { .. } | Request::Allocation { .. } => return Step::Over(Ok(())),
            Request::WriteZeroes { .. } if !self.writes_zeroes => return Step::Over(Ok(())),
            Request::Read { .. } if count == 0 => return Step::Over(Err(StoreError::cut_short(place))),
            _ if count == 0 => {
                return Step::Over(Err(StoreError::from_io(Access::Write, place, io::ErrorKind::WriteZero.into())));
            }
            _ => {}
        }
        self.retries = 0;
        self.done_bytes += count;
        if self.done_bytes < length_bytes { Step::Again } else { Step::Over(Ok(())) }
    }

    /// The completion, once the last step is over.
    pub(super) fn into_completion(self, result: Result<(), StoreError>) -> Completion {
        result?;
        Ok(match self.op.request {
            Request::Read { buffer, .. } => Outcome::Read(buffer),
            Request::Allocation { .. } => return blocking::perform(self.op),
            _ => Outcome::Done,
        })
    }

    /// The completion of an operation that could not even be begun.
    pub(super) fn into_failure(self, error: io::Error) -> Completion {
        Err(StoreError::from_io(self.access(), self.op.request.range_bytes().0, error))
    }

    fn fail(&mut self, errno: i32) -> Step {
        match errno {
            libc::EINTR | libc::EAGAIN if self.retries < RETRIES_MAX => {
                self.retries += 1;
                return Step::Again;
            }
            libc::EOPNOTSUPP if matches!(self.op.request, Request::WriteZeroes { .. }) && !self.writes_zeroes => {
                self.writes_zeroes = true;
                return Step::Again;
            }
            _ => {}
        }
        let place = self.op.request.range_bytes().0 + self.done_bytes;
        Step::Over(Err(StoreError::from_io(self.access(), place, io::Error::from_raw_os_error(errno))))
    }

    fn access(&self) -> Access {
        match self.op.request {
            Request::Read { .. } | Request::Allocation { .. } => Access::Read,
            _ => Access::Write,
        }
    }
}

fn write_entry(
    file: types::Fd,
    (pointer, length): (*const u8, usize),
    place: u64,
    registered: &Range<usize>,
) -> squeue::Entry {
    let is_fixed = is_within(pointer, length, registered);
    let length = length.min(CALL_MAX_BYTES) as u32;
    if is_fixed {
        opcode::WriteFixed::new(file, pointer, length, 0).offset(place).build()
    } else {
        opcode::Write::new(file, pointer, length).offset(place).build()
    }
}

/// Where the bytes from `done` on lie, as far as one call takes them. Pages of a region often lie side by side: such are one run.
fn collect_runs(data: &Slices, done: usize, runs: &mut Vec<libc::iovec>) {
    runs.clear();
    let end = data.len().min(done + CALL_MAX_BYTES);
    for bytes in data.runs(done..end) {
        let goes_on = |last: &&mut libc::iovec| last.iov_base as usize + last.iov_len == bytes.as_ptr() as usize;
        if let Some(last) = runs.last_mut().filter(goes_on) {
            last.iov_len += bytes.len();
        } else if runs.len() < CALL_MAX_RUNS {
            runs.push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
        } else {
            break;
        }
    }
}

fn is_within(pointer: *const u8, length: usize, addresses: &Range<usize>) -> bool {
    let start = pointer as usize;
    addresses.start <= start && start + length <= addresses.end
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use sanwire_buffer::{Region, Slice};
    use sanwire_store::ErrorKind;

    use super::*;

    fn operation(request: Request) -> Operation {
        let file = Arc::new(File::open("/dev/null").unwrap());
        Operation::new(1, KernelOp { file, is_block_device: false, request })
    }

    fn write() -> Operation {
        operation(Request::Write { offset_bytes: 4096, data: vec![1; 1024].into() })
    }

    fn failure(step: Step) -> Option<(ErrorKind, u64)> {
        match step {
            Step::Over(Err(error)) => Some((error.kind, error.offset_bytes)),
            _ => None,
        }
    }

    #[test]
    fn a_short_call_is_followed_by_one_for_the_rest() {
        let mut operation = write();
        assert!(matches!(operation.advance(500), Step::Again));
        assert!(matches!(operation.advance(-libc::EINTR), Step::Again));
        assert!(matches!(operation.advance(524), Step::Over(Ok(()))));

        let mut operation = write();
        assert!(matches!(operation.advance(512), Step::Again));
        assert_eq!(failure(operation.advance(-libc::ENOSPC)), Some((ErrorKind::Full, 4608)));
    }

    /// What the next call writes, run by run, and where.
    fn next_call(operation: &mut Operation) -> (Vec<Vec<u8>>, u64) {
        let _ = operation.entry(&(0..0));
        let run = |run: &libc::iovec| {
            // SAFETY: the operation has the memory, and nobody writes to it.
            unsafe { std::slice::from_raw_parts(run.iov_base.cast::<u8>(), run.iov_len) }.to_vec()
        };
        (operation.runs.iter().map(run).collect(), operation.done_bytes)
    }

    #[test]
    fn pieces_are_one_call_and_a_short_one_is_followed_by_the_right_rest() {
        let pieces: [Slice; 3] = [vec![1; 500].into(), vec![2; 24].into(), vec![3; 500].into()];
        let data = Slices::gather(pieces).unwrap();
        let mut operation = operation(Request::Write { offset_bytes: 4096, data });
        assert_eq!(next_call(&mut operation), (vec![vec![1; 500], vec![2; 24], vec![3; 500]], 0));
        assert!(matches!(operation.advance(512), Step::Again));
        assert_eq!(next_call(&mut operation), (vec![vec![2; 12], vec![3; 500]], 512));
        assert!(matches!(operation.advance(-libc::EAGAIN), Step::Again));
        assert_eq!(next_call(&mut operation), (vec![vec![2; 12], vec![3; 500]], 512), "the same again");
        assert!(matches!(operation.advance(12), Step::Again));
        assert_eq!(next_call(&mut operation), (vec![vec![3; 500]], 524));
        assert!(matches!(operation.advance(500), Step::Over(Ok(()))));
    }

    #[test]
    fn a_call_has_no_more_runs_than_the_kernel_takes_and_what_lies_side_by_side_is_one() {
        let frames = (0..1500).map(|number| Slice::from(vec![number as u8; 3]).slice(1..2));
        let data = Slices::gather(frames).unwrap();
        let mut operation = operation(Request::Write { offset_bytes: 0, data });
        assert_eq!(next_call(&mut operation).0.len(), CALL_MAX_RUNS);
        assert!(matches!(operation.advance(CALL_MAX_RUNS as i32), Step::Again));
        let (rest, _) = next_call(&mut operation);
        assert_eq!((rest.len(), rest[0][0]), (1500 - CALL_MAX_RUNS, CALL_MAX_RUNS as u8));

        let region = Region::new(1 << 16).unwrap();
        let pages: Vec<Slice> = (0..4).map(|_| region.frame(4096).unwrap().freeze()).collect();
        let mut runs = Vec::new();
        collect_runs(&Slices::gather(pages).unwrap(), 100, &mut runs);
        assert_eq!(runs.iter().map(|run| run.iov_len).collect::<Vec<_>>(), [4 * 4096 - 100]);
    }

    #[test]
    fn a_call_without_progress_is_not_made_for_ever() {
        let mut operation = write();
        let again = (0..=RETRIES_MAX).take_while(|_| matches!(operation.advance(-libc::EAGAIN), Step::Again)).count();
        assert_eq!(again, RETRIES_MAX as usize);
        assert_eq!(failure(write().advance(0)), Some((ErrorKind::Other, 4096)));
    }

    #[test]
    fn zeroes_are_written_where_the_kernel_has_no_call_for_it() {
        let mut operation = operation(Request::WriteZeroes { offset_bytes: 512, length_bytes: 1024 });
        assert!(matches!(operation.advance(-libc::EOPNOTSUPP), Step::Again));
        assert!(matches!(operation.advance(512), Step::Again));
        assert_eq!(failure(operation.advance(-libc::EOPNOTSUPP)), Some((ErrorKind::Unsupported, 1024)));
    }
}
