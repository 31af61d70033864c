//! Why stores cannot be opened, and what to do.

use std::io;
use std::path::PathBuf;

use sanwire_core::Size;

use crate::expectation::VOLUME_MARK;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel refused a call.
    #[error("cannot {action} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
    /// A store of another kind cannot be opened.
    #[error("cannot open {store}: {source}")]
    Elsewhere {
        /// Which, as it is written.
        store: String,
        /// Why, and what to do.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// Whether it is where it should be, and only cannot be reached now.
        is_away: bool,
    },
    /// It is the absence of one.
    #[error("none: is no medium: give the image of a disc, or take the one that is in out by eject-volume")]
    NoMedium,
    /// It is a part of another volume, which only the server of that volume has.
    #[error("dvd:{parent} is a part of the volume {parent}: only the server that serves that volume can open it")]
    Derived {
        /// The volume from which it is derived.
        parent: String,
    },
    /// The server has no such pool.
    #[error("there is no pool {}: name one with --pool, or as [[pool]] in the configuration file", pool.as_ref().map_or("at all".into(), |pool| format!("called {pool}")))]
    NoPool {
        /// Which, if one was named.
        pool: Option<String>,
    },
    /// There is no such file, and no size to make one of.
    #[error("{} does not exist: give size= to create it", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// More than the machine has.
    #[error("{} of memory ({wanted_bytes} bytes) cannot be had: this machine has {} with its swap space; choose a smaller size, or a file", Size(*wanted_bytes), Size(*total_bytes))]
    Memory {
        /// The size that was asked for.
        wanted_bytes: u64,
        /// Memory and swap space.
        total_bytes: u64,
    },
    /// It was served before, and is not there.
    #[error("{} does not exist, though it held the volume {name} before: mount its file system, or bring the file back. {}", path.display(), renew(name))]
    Vanished {
        /// The file.
        path: PathBuf,
        /// The volume.
        name: String,
    },
    /// Which volume it holds cannot be read.
    #[error("cannot read of {} which volume it holds (its extended attribute {VOLUME_MARK}): {source}; see to its file system. {}", path.display(), adopt(name))]
    Mark {
        /// The file.
        path: PathBuf,
        /// The volume that it is to hold.
        name: String,
        /// The kernel's word.
        source: io::Error,
    },
    /// Another one was served before from that path.
    #[error("{} is not what held the volume {name} before: mount its file system, or bring the right file or device back. {}", path.display(), adopt(name))]
    Replaced {
        /// The file.
        path: PathBuf,
        /// The volume.
        name: String,
    },
    /// It was longer when it was served before.
    #[error("{} has {} ({is_bytes} bytes), and had {} ({was_bytes} bytes) when it held the volume {name} before: restore what is missing. {}", path.display(), Size(*is_bytes), Size(*was_bytes), renew(name))]
    CutShort {
        /// The file.
        path: PathBuf,
        /// The volume.
        name: String,
        /// The length it has.
        is_bytes: u64,
        /// The length it had.
        was_bytes: u64,
    },
    /// Another process has it.
    #[error("{} is in use by another server or mounted: stop that first, or open it readonly at both ends", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A directory, a terminal, a socket.
    #[error("{} is not {expected}", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// It exists with another length.
    #[error("{} has {} ({is_bytes} bytes), not the {} ({wanted_bytes} bytes) of size=: {advice}", path.display(), Size(*is_bytes), Size(*wanted_bytes))]
    Size {
        /// The file.
        path: PathBuf,
        /// The length it has.
        is_bytes: u64,
        /// The length that was asked for.
        wanted_bytes: u64,
        /// What can be done.
        advice: &'static str,
    },
    /// Its length is not a whole number of blocks, or is zero.
    #[error("{} has {length_bytes} bytes, which is not a positive multiple of the {block_bytes}-byte block", path.display())]
    Blocks {
        /// The file.
        path: PathBuf,
        /// The length it has.
        length_bytes: u64,
        /// The block it should be a multiple of.
        block_bytes: u32,
    },
    /// The file system or device needs larger blocks for direct I/O.
    #[error("{} takes direct I/O only in blocks of {needed_bytes} bytes, not {block_bytes}: give block={needed_bytes} or leave direct out", path.display())]
    Direct {
        /// The file.
        path: PathBuf,
        /// The block that was asked for.
        block_bytes: u32,
        /// The block that the medium needs.
        needed_bytes: u32,
    },
}

/// What to do when a path cannot be used.
fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "; check the path, and make its directory",
        io::ErrorKind::PermissionDenied => "; the user who runs the server must be allowed to read and write there",
        io::ErrorKind::ReadOnlyFilesystem => "; choose another place, or serve it readonly",
        _ => "",
    }
}

/// What to do who wants the volume with what is there now.
fn renew(name: &str) -> String {
    format!(
        "To go on with what is there now, or with an empty volume, as another one that no client takes for the former, give \
         `--renew {name}` to `sanwire serve` once, or add it by `sanwire ctl add-volume --renew`"
    )
}

/// The same, where a file or device is there: it may be the right one.
fn adopt(name: &str) -> String {
    format!(
        "If it is the right one (a copy without extended attributes, say), give `--adopt {name}` once. {}",
        renew(name)
    )
}
