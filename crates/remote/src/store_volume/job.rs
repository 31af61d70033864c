//! What a volume is asked, as requests to the store, so that it can be asked again.

use std::sync::Arc;
use std::time::Instant;

use sanwire_buffer::{Frame, Slice};
use sanwire_initiator::{AllocatedRun, OpKind, OpOutput, VolumeError};
use sanwire_store::{Completion, CompletionQueue, ErrorKind, Outcome, Request, Started, Store, StoreError};

/// One operation.
#[derive(Debug)]
pub(super) enum Job {
    Read { offset_bytes: u64, length: usize },
    Write { offset_bytes: u64, data: Slice, is_stable: bool },
    Flush,
    Discard { offset_bytes: u64, length_bytes: u64 },
    WriteZeroes { offset_bytes: u64, length_bytes: u64 },
    Allocation { offset_bytes: u64, length_bytes: u64 },
}

impl Job {
    /// The operation, with the buffer to be filled; else what it ends with at once.
    pub(super) fn new(kind: OpKind) -> Result<(Job, Option<Frame>), Result<OpOutput, VolumeError>> {
        Ok(match kind {
            OpKind::Read { offset_bytes, buffer } => (Job::Read { offset_bytes, length: buffer.len() }, Some(buffer)),
            OpKind::Write { offset_bytes, data, stable } => {
                (Job::Write { offset_bytes, data, is_stable: stable }, None)
            }
            OpKind::Flush => (Job::Flush, None),
            OpKind::Discard { offset_bytes, length_bytes } => (Job::Discard { offset_bytes, length_bytes }, None),
            OpKind::WriteZeroes { offset_bytes, length_bytes } => {
                (Job::WriteZeroes { offset_bytes, length_bytes }, None)
            }
            OpKind::Allocation { offset_bytes, length_bytes } => (Job::Allocation { offset_bytes, length_bytes }, None),
            OpKind::Check => return Err(Ok(OpOutput::Done)),
            OpKind::Copy { .. } => return Err(Err(VolumeError::Unsupported)),
        })
    }

    /// Asks the store. A read without a buffer gets one of its own.
    pub(super) fn start(
        &self,
        buffer: Option<Frame>,
        store: &Arc<dyn Store>,
        completions: &CompletionQueue,
    ) -> Started {
        let request = match self {
            Job::Read { offset_bytes, length } => match buffer.or_else(|| Frame::zeroed(*length)) {
                Some(buffer) => Request::Read { offset_bytes: *offset_bytes, buffer },
                None => return Started::Done(Err(StoreError::new(ErrorKind::Full, *offset_bytes))),
            },
            Job::Write { offset_bytes, data, is_stable } => {
                let request = Request::Write { offset_bytes: *offset_bytes, data: data.clone().into() };
                if !is_stable {
                    return store.start(request, completions);
                }
                let flushed = Arc::clone(store);
                return store.start(request, completions).then(completions, move |end, completions| match end {
                    Ok(_) => flushed.start(Request::Flush, completions),
                    failed => Started::Done(failed),
                });
            }
            Job::Flush => Request::Flush,
            Job::Discard { offset_bytes, length_bytes } => {
                if !store.geometry().discards {
                    return Started::Done(Err(StoreError::new(ErrorKind::Unsupported, *offset_bytes)));
                }
                Request::Discard { offset_bytes: *offset_bytes, length_bytes: *length_bytes }
            }
            Job::WriteZeroes { offset_bytes, length_bytes } => {
                Request::WriteZeroes { offset_bytes: *offset_bytes, length_bytes: *length_bytes }
            }
            Job::Allocation { offset_bytes, length_bytes } => {
                Request::Allocation { offset_bytes: *offset_bytes, length_bytes: *length_bytes }
            }
        };
        store.start(request, completions)
    }
}

/// What the store's answer is to who uses the volume; `since`: when it was asked first.
pub(super) fn answer(end: Completion, server: &Arc<str>, since: Instant) -> Result<OpOutput, VolumeError> {
    match end {
        Ok(Outcome::Done) => Ok(OpOutput::Done),
        Ok(Outcome::Read(frame)) => Ok(OpOutput::Frame(frame)),
        Ok(Outcome::Allocated(run)) => {
            Ok(OpOutput::Allocation(vec![AllocatedRun { length_bytes: run.length_bytes, is_mapped: run.is_mapped }]))
        }
        Err(error) => Err(match error.kind {
            ErrorKind::Unreadable | ErrorKind::Unwritable => {
                VolumeError::Medium { offset_bytes: error.offset_bytes, sense: error.to_string().into() }
            }
            ErrorKind::Full => VolumeError::NoSpace,
            ErrorKind::ReadOnly => VolumeError::ReadOnly,
            ErrorKind::Unsupported => VolumeError::Unsupported,
            ErrorKind::Gone => VolumeError::Disconnected { server: Arc::clone(server), since },
            ErrorKind::OutOfRange | ErrorKind::Other => VolumeError::Protocol { what: error.to_string().into() },
        }),
    }
}
