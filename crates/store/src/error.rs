//! What goes wrong with a store: the kind, the place, the cause.

use std::io;

/// The kinds that a device tells apart when it makes sense data of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The medium could not be read there (EIO on a read, an injected error).
    Unreadable,
    /// The medium could not be written there (EIO on a write, an injected error).
    Unwritable,
    /// No space is left behind a thin store (ENOSPC, EDQUOT).
    Full,
    /// The store does not take writes.
    ReadOnly,
    /// Offset and length are not within the store.
    OutOfRange,
    /// The backing object is gone, perhaps for a while (ENXIO, ENODEV, ENOLINK, ENOMEDIUM, ESTALE, ESHUTDOWN, a file cut short).
    Gone,
    /// The store cannot do this (discard on a file system without holes).
    Unsupported,
    /// Anything else that the kernel said.
    Other,
}

impl ErrorKind {
    /// All kinds in their order, each with its word for people and programs.
    pub const WORDS: [(ErrorKind, &'static str); 8] = [
        (ErrorKind::Unreadable, "unreadable"),
        (ErrorKind::Unwritable, "unwritable"),
        (ErrorKind::Full, "full"),
        (ErrorKind::ReadOnly, "read-only"),
        (ErrorKind::OutOfRange, "out-of-range"),
        (ErrorKind::Gone, "gone"),
        (ErrorKind::Unsupported, "unsupported"),
        (ErrorKind::Other, "other"),
    ];
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
#[error("{kind:?} at byte {offset_bytes}{}", source.as_ref().map(|s| format!(": {s}")).unwrap_or_default())]
pub struct StoreError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Where in the store: the first byte known to be affected.
    pub offset_bytes: u64,
    /// The kernel's word, when there was one.
    #[source]
    pub source: Option<io::Error>,
}

/// What was being done when the kernel said no: the same errno means different things for different work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing data or zeroes, discarding, flushing.
    Write,
}

impl StoreError {
    /// An error without a kernel's word.
    #[must_use]
    pub fn new(kind: ErrorKind, offset_bytes: u64) -> Self {
        StoreError { kind, offset_bytes, source: None }
    }

    /// What the kernel's error means for a request on an open file or block device.
    #[must_use]
    pub fn from_io(access: Access, offset_bytes: u64, source: io::Error) -> Self {
        StoreError { kind: kind_of(access, &source), offset_bytes, source: Some(source) }
    }

    /// The file ended before the request did: it was cut short after it had been opened.
    #[must_use]
    pub fn cut_short(offset_bytes: u64) -> Self {
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends here: it was cut short while in use");
        StoreError { kind: ErrorKind::Gone, offset_bytes, source: Some(source) }
    }
}

/// Linux's numbers of errors, the same on all its machines that this is for: no system is asked for them.
mod errno {
    pub const EPERM: i32 = 1;
    pub const EIO: i32 = 5;
    pub const ENXIO: i32 = 6;
    pub const EBADF: i32 = 9;
    pub const ENODEV: i32 = 19;
    pub const ENOTTY: i32 = 25;
    pub const ETXTBSY: i32 = 26;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const ENOSYS: i32 = 38;
    pub const ENODATA: i32 = 61;
    pub const ENOLINK: i32 = 67;
    pub const EBADMSG: i32 = 74;
    pub const EILSEQ: i32 = 84;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ESHUTDOWN: i32 = 108;
    pub const ESTALE: i32 = 116;
    pub const EUCLEAN: i32 = 117;
    pub const EREMOTEIO: i32 = 121;
    pub const EDQUOT: i32 = 122;
    pub const ENOMEDIUM: i32 = 123;
}

/// The one table from errno to [`ErrorKind`].
fn kind_of(access: Access, error: &io::Error) -> ErrorKind {
    let medium = match access {
        Access::Read => ErrorKind::Unreadable,
        Access::Write => ErrorKind::Unwritable,
    };
    match error.raw_os_error() {
        // The block layer says ENODATA for a medium error, EILSEQ for failed protection information and EREMOTEIO for
        // a failed target; file systems say EBADMSG and EUCLEAN for a failed checksum.
        Some(errno::EIO | errno::ENODATA | errno::EILSEQ | errno::EREMOTEIO | errno::EBADMSG | errno::EUCLEAN) => {
            medium
        }
        Some(errno::ENOSPC | errno::EDQUOT) => ErrorKind::Full,
        // The engine keeps the file open, so EBADF can only mean that it is open the other way round.
        Some(errno::EROFS | errno::EBADF | errno::EPERM | errno::ETXTBSY) if access == Access::Write => {
            ErrorKind::ReadOnly
        }
        // ENOLINK: a device whose transport fails over, without another path for now.
        Some(errno::ENXIO | errno::ENODEV | errno::ENOLINK | errno::ENOMEDIUM | errno::ESTALE | errno::ESHUTDOWN) => {
            ErrorKind::Gone
        }
        Some(errno::EOPNOTSUPP | errno::ENOSYS | errno::ENOTTY) => ErrorKind::Unsupported,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_errno_means_what_was_being_done() {
        for (access, errno, kind) in [
            (Access::Read, libc::EIO, ErrorKind::Unreadable),
            (Access::Write, libc::EIO, ErrorKind::Unwritable),
            (Access::Write, libc::ENOSPC, ErrorKind::Full),
            // No room that somebody makes helps a file that is as long as it may be.
            (Access::Write, libc::EFBIG, ErrorKind::Other),
            (Access::Write, libc::EBADF, ErrorKind::ReadOnly),
            (Access::Read, libc::EBADF, ErrorKind::Other),
            (Access::Read, libc::ENXIO, ErrorKind::Gone),
            (Access::Write, libc::EOPNOTSUPP, ErrorKind::Unsupported),
        ] {
            let error = StoreError::from_io(access, 4096, io::Error::from_raw_os_error(errno));
            assert_eq!((error.kind, error.offset_bytes), (kind, 4096), "{access:?} {errno}");
        }
    }

    #[test]
    fn the_numbers_are_those_of_this_system() {
        for (number, systems) in [
            (errno::EPERM, libc::EPERM),
            (errno::EIO, libc::EIO),
            (errno::ENXIO, libc::ENXIO),
            (errno::EBADF, libc::EBADF),
            (errno::ENODEV, libc::ENODEV),
            (errno::ENOTTY, libc::ENOTTY),
            (errno::ETXTBSY, libc::ETXTBSY),
            (errno::ENOSPC, libc::ENOSPC),
            (errno::EROFS, libc::EROFS),
            (errno::ENOSYS, libc::ENOSYS),
            (errno::ENODATA, libc::ENODATA),
            (errno::ENOLINK, libc::ENOLINK),
            (errno::EBADMSG, libc::EBADMSG),
            (errno::EILSEQ, libc::EILSEQ),
            (errno::EOPNOTSUPP, libc::EOPNOTSUPP),
            (errno::ESHUTDOWN, libc::ESHUTDOWN),
            (errno::ESTALE, libc::ESTALE),
            (errno::EUCLEAN, libc::EUCLEAN),
            (errno::EREMOTEIO, libc::EREMOTEIO),
            (errno::EDQUOT, libc::EDQUOT),
            (errno::ENOMEDIUM, libc::ENOMEDIUM),
        ] {
            assert_eq!(number, systems);
        }
    }
}
