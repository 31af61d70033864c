//! A request of the transmission phase, checked: what a connection may do without looking again.

use sanwire_initiator::VolumeError;

use sanwire_nbd::wire::*;

/// The longest read or write of one request. Clients take 32 MiB for granted when nothing else is said.
pub(crate) const REQUEST_MAX_BYTES: u32 = 32 << 20;

/// What a client wants. Ranges are within the volume, which takes writes if there is a change among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Read {
        offset_bytes: u64,
        length: u32,
        in_one_piece: bool,
    },
    Write {
        offset_bytes: u64,
        length: u32,
        stable: bool,
    },
    Zero {
        offset_bytes: u64,
        length: u32,
        stable: bool,
    },
    Trim {
        offset_bytes: u64,
        length: u32,
        stable: bool,
    },
    /// Tell what is allocated.
    Status {
        offset_bytes: u64,
        length: u32,
        only_first: bool,
    },
    Flush,
    /// There is no cache to fill.
    Cache,
    Disconnect,
}

/// A request that is not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Answer with the error, after reading and forgetting so many bytes of data.
    Answer { error: Errno, skip_bytes: u32 },
    /// The data behind it is too long to be read: close.
    Close,
}

/// What requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) size_bytes: u64,
    pub(crate) read_only: bool,
    /// Whether the client has chosen the context in which it may ask for block status.
    pub(crate) tells_allocation: bool,
}

impl Command {
    /// The command of a request.
    ///
    /// # Errors
    /// What to do with a request that cannot be carried out.
    pub(crate) fn check(request: &RawRequest, bounds: Bounds) -> Result<Command, Refusal> {
        let RawRequest { flags, kind, offset_bytes, length_bytes: length, .. } = *request;
        let skip_bytes = if kind == CMD_WRITE { length } else { 0 };
        if skip_bytes > REQUEST_MAX_BYTES {
            return Err(Refusal::Close);
        }
        let refuse = |error| Err(Refusal::Answer { error, skip_bytes });
        if flags & !flags_of(kind) != 0 {
            return refuse(Errno::Invalid);
        }
        let changes = matches!(kind, CMD_WRITE | CMD_TRIM | CMD_WRITE_ZEROES);
        if changes && bounds.read_only {
            return refuse(Errno::Permission);
        }
        let ranged = changes || matches!(kind, CMD_READ | CMD_CACHE | CMD_BLOCK_STATUS);
        if ranged && offset_bytes.checked_add(u64::from(length)).is_none_or(|end| end > bounds.size_bytes) {
            // There is never space there for data; the others are just wrong.
            let needs_space = matches!(kind, CMD_WRITE | CMD_WRITE_ZEROES);
            return refuse(if needs_space { Errno::NoSpace } else { Errno::Invalid });
        }
        let stable = flags & CMD_FLAG_FUA != 0;
        Ok(match kind {
            CMD_READ if length > REQUEST_MAX_BYTES => return refuse(Errno::Invalid),
            CMD_READ => Command::Read { offset_bytes, length, in_one_piece: flags & CMD_FLAG_DF != 0 },
            CMD_WRITE => Command::Write { offset_bytes, length, stable },
            CMD_DISCONNECT => Command::Disconnect,
            CMD_FLUSH => Command::Flush,
            CMD_TRIM => Command::Trim { offset_bytes, length, stable },
            CMD_CACHE => Command::Cache,
            CMD_BLOCK_STATUS if bounds.tells_allocation && length > 0 => {
                Command::Status { offset_bytes, length, only_first: flags & CMD_FLAG_REQ_ONE != 0 }
            }
            // Zeroes are written either way: a hole is allowed without NO_HOLE, never asked for.
            CMD_WRITE_ZEROES => Command::Zero { offset_bytes, length, stable },
            _ => return refuse(Errno::Invalid),
        })
    }
}

/// FUA is allowed on every command, and means nothing on those that change nothing.
fn flags_of(kind: u16) -> u16 {
    match kind {
        CMD_READ => CMD_FLAG_FUA | CMD_FLAG_DF,
        CMD_WRITE_ZEROES => CMD_FLAG_FUA | CMD_FLAG_NO_HOLE,
        CMD_BLOCK_STATUS => CMD_FLAG_FUA | CMD_FLAG_REQ_ONE,
        _ => CMD_FLAG_FUA,
    }
}

/// The protocol's word for a volume's error.
pub(crate) fn errno_of(error: &VolumeError) -> Errno {
    match error {
        VolumeError::Misaligned { .. } | VolumeError::OutOfRange { .. } => Errno::Invalid,
        VolumeError::TooLong { .. } => Errno::NoMemory,
        VolumeError::ReadOnly | VolumeError::Reserved => Errno::Permission,
        VolumeError::NoSpace => Errno::NoSpace,
        VolumeError::Unsupported => Errno::Unsupported,
        VolumeError::Closed => Errno::Shutdown,
        VolumeError::Medium { .. }
        | VolumeError::Disconnected { .. }
        | VolumeError::TimedOut { .. }
        | VolumeError::WritesLost { .. }
        | VolumeError::Protocol { .. } => Errno::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { size_bytes: 1 << 30, read_only: false, tells_allocation: true };

    fn raw(kind: u16, flags: u16, offset_bytes: u64, length_bytes: u32) -> RawRequest {
        RawRequest { flags, kind, cookie: 1, offset_bytes, length_bytes }
    }

    fn answered(request: RawRequest, bounds: Bounds) -> Errno {
        match Command::check(&request, bounds) {
            Err(Refusal::Answer { error, skip_bytes }) => {
                assert_eq!(skip_bytes, if request.kind == CMD_WRITE { request.length_bytes } else { 0 });
                error
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn illegal_requests_get_the_documented_error() {
        assert_eq!(answered(raw(CMD_READ, 0, 1 << 30, 1), BOUNDS), Errno::Invalid);
        assert_eq!(answered(raw(CMD_WRITE, 0, u64::MAX, 512), BOUNDS), Errno::NoSpace);
        assert_eq!(answered(raw(CMD_WRITE_ZEROES, 0, 1 << 30, 512), BOUNDS), Errno::NoSpace);
        assert_eq!(answered(raw(CMD_TRIM, 0, 1 << 30, 512), BOUNDS), Errno::Invalid);
        assert_eq!(answered(raw(CMD_BLOCK_STATUS, 0, 1 << 30, 512), BOUNDS), Errno::Invalid);
        assert_eq!(answered(raw(CMD_BLOCK_STATUS, 0, 0, 0), BOUNDS), Errno::Invalid);
        let unasked = Bounds { tells_allocation: false, ..BOUNDS };
        assert_eq!(answered(raw(CMD_BLOCK_STATUS, 0, 0, 512), unasked), Errno::Invalid);
        assert_eq!(answered(raw(CMD_READ, 0, 0, REQUEST_MAX_BYTES + 1), BOUNDS), Errno::Invalid);
        assert_eq!(answered(raw(CMD_READ, CMD_FLAG_NO_HOLE, 0, 512), BOUNDS), Errno::Invalid);
        assert_eq!(answered(raw(42, 0, 0, 512), BOUNDS), Errno::Invalid);
        let read_only = Bounds { read_only: true, ..BOUNDS };
        for kind in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
            assert_eq!(answered(raw(kind, 0, 0, 512), read_only), Errno::Permission);
        }
        assert_eq!(Command::check(&raw(CMD_WRITE, 0, 0, u32::MAX), BOUNDS), Err(Refusal::Close));
    }

    proptest! {
        #[test]
        fn what_passes_is_within_the_volume(kind in 0u16..9, flags in 0u16..40, offset in any::<u64>(), length in any::<u32>()) {
            let offset = if offset % 2 == 0 { offset % (1 << 31) } else { offset };
            if let Ok(command) = Command::check(&raw(kind, flags, offset, length), BOUNDS) {
                let data_bytes = match command {
                    Command::Read { length, .. } | Command::Write { length, .. } => length,
                    _ => 0,
                };
                prop_assert!(data_bytes <= REQUEST_MAX_BYTES);
                if !matches!(command, Command::Flush | Command::Disconnect) {
                    prop_assert!(offset.checked_add(u64::from(length)).unwrap() <= BOUNDS.size_bytes);
                }
            }
        }
    }
}
