//! One operation on its way through a ring, call by call.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use io_uring::{opcode, squeue, types};
use sanwire_store::{Access, Completion, KernelOp, Outcome, Request, StoreError};
use sanwire_store_file::blocking;

/// The most that one call reads or writes; the kernel's own bound is a page below 2 GiB.
const CALL_MAX_BYTES: usize = 1 << 30;
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
        Operation { tag, op, done_bytes: 0, writes_zeroes: false, retries: 0 }
    }

    /// The next call. Memory within `registered` (addresses) is the ring's fixed buffer 0.
    ///
    /// The entry points into this operation's memory and names its file: the operation must be kept, and nobody may
    /// touch its memory, until the call's result is there.
    pub(super) fn entry(&mut self, registered: &Range<usize>) -> squeue::Entry {
        let file = types::Fd(self.op.file.as_raw_fd());
        let done = usize::try_from(self.done_bytes).unwrap_or(usize::MAX);
        match &mut self.op.request {
            Request::Read { offset_bytes, buffer } => {
                let rest = &mut buffer[done..];
                let (pointer, length) = (rest.as_mut_ptr(), rest.len().min(CALL_MAX_BYTES) as u32);
                let place = *offset_bytes + self.done_bytes;
                if is_within(rest, registered) {
                    opcode::ReadFixed::new(file, pointer, length, 0).offset(place).build()
                } else {
                    opcode::Read::new(file, pointer, length).offset(place).build()
                }
            }
            Request::Write { offset_bytes, data } => {
                write_entry(file, &data[done..], *offset_bytes + self.done_bytes, registered)
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
                write_entry(file, zeroes, *offset_bytes + self.done_bytes, registered)
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

fn write_entry(file: types::Fd, data: &[u8], place: u64, registered: &Range<usize>) -> squeue::Entry {
    let length = data.len().min(CALL_MAX_BYTES) as u32;
    if is_within(data, registered) {
        opcode::WriteFixed::new(file, data.as_ptr(), length, 0).offset(place).build()
    } else {
        opcode::Write::new(file, data.as_ptr(), length).offset(place).build()
    }
}

fn is_within(bytes: &[u8], addresses: &Range<usize>) -> bool {
    let start = bytes.as_ptr() as usize;
    addresses.start <= start && start + bytes.len() <= addresses.end
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

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
