//! Why a pool cannot do what is asked of it.

use std::io;
use std::path::PathBuf;

use sanwire_core::Size;

use crate::kept::StateError;

/// Why a pool cannot be used, or not so.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Its directory cannot be used.
    #[error("pool {pool}: {} cannot be used: {source}{}", directory.display(), hint(source))]
    Directory {
        /// Which.
        pool: String,
        /// Where.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another server uses it.
    #[error(
        "pool {pool}: another server uses {}{}: stop it, or give this one another directory",
        directory.display(), holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    InUse {
        /// Which.
        pool: String,
        /// Where.
        directory: PathBuf,
        /// Its process, if that is known.
        holder: Option<u32>,
    },
    /// It is another one than before.
    #[error(
        "pool {pool}: {} is not the directory that it had before: mount its file system, or, to begin with what is there, give it another \
         name", directory.display()
    )]
    Replaced {
        /// Which.
        pool: String,
        /// Where.
        directory: PathBuf,
    },
    /// Its file system does not answer.
    #[error(
        "pool {0}: its file system does not answer: see to the disk or the server on which it is; what is asked of other pools is done"
    )]
    Hangs(String),
    /// What stands at its path is not what was opened.
    #[error(
        "pool {pool}: {} is not the directory any more that this server has opened: nothing was changed. Mount its file system again, or \
         restart the server", directory.display()
    )]
    Moved {
        /// Which.
        pool: String,
        /// Where.
        directory: PathBuf,
    },
    /// What it keeps of itself cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A volume that names no pool may be in one that is not configured.
    #[error(
        "volume {volume} is in none of the pools, and the pools {} were configured before and are not any more: configure the one that has \
         it, or, to have it made anew, name its pool (pool:NAME); what is gone for good can be forgotten (sanwire ctl forget-pool NAME)",
        pools.join(", ")
    )]
    Absent {
        /// Which.
        volume: String,
        /// Those that are not there.
        pools: Vec<String>,
    },
    /// It is one of this server.
    #[error("pool {0} is in use: only one that is not configured any more is forgotten")]
    InService(String),
    /// There is none, and was none.
    #[error("no pool {0} was ever used by this server, or it is forgotten already")]
    Unknown(String),
    /// It is still known.
    #[error("pool {pool} cannot be forgotten: {source}")]
    NotForgotten {
        /// Which.
        pool: String,
        /// Why.
        source: io::Error,
    },
    /// A volume that is to be served is there.
    #[error(
        "volume {volume} is to be served from pool {pool}, which is not there: remove it first (sanwire ctl remove-volume {volume})"
    )]
    Awaited {
        /// Which.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// Its volumes would have more than it is to have.
    #[error(
        "pool {pool} has a limit of {}, of which its other volumes have {}: volume {volume} can have {} at the most",
        Size(*limit_bytes), Size(*others_bytes), Size(*largest_bytes)
    )]
    Full {
        /// Which.
        pool: String,
        /// The volume that is to be there, or longer.
        volume: String,
        /// What all its volumes may have.
        limit_bytes: u64,
        /// What the others have.
        others_bytes: u64,
        /// What this one can have.
        largest_bytes: u64,
    },
    /// It is configured so, or made of files that do not share blocks.
    #[error(
        "pool {0} makes no snapshots: its file system does not share blocks between files, as XFS and btrfs do; nothing was copied. Layers make \
         them on any file system: snapshots = \"layers\" in the pool's configuration"
    )]
    NoSharing(String),
    /// What is below layers has two names.
    #[error(
        "pool {0} makes no snapshots: its file system gives no file a second name (hard link), as exFAT and some network file systems; move the \
         pool to ext4, XFS or btrfs"
    )]
    NoLinks(String),
    /// A volume of layers and a snapshot that is a file.
    #[error(
        "snapshot {0} is a file, and its volume is made of layers by now: clone it, or serve it (pool:POOL/{0},readonly) and copy it"
    )]
    OtherWay(String),
    /// Each layer is an open file.
    #[error(
        "there is no room for {content}: volumes are made of {most} layers, each an open file, or of more; delete snapshots or clones, or \
         allow the server more files (LimitNOFILE= of its service)"
    )]
    TooManyLayers {
        /// The snapshot or clone.
        content: String,
        /// How many layers there may be.
        most: usize,
    },
    /// It is in no pool.
    #[error(
        "volume {0} is in no pool: only content of pools is deleted, and has snapshots; a volume with any other store has them by layers that \
         a pool keeps (layers=POOL): remove it, and add it so"
    )]
    NotInPool(String),
    /// What is wanted as a store is below layers.
    #[error(
        "{store} is below the layers of volume {volume} in pool {pool}, and does not hold what that volume holds: serve it as that volume \
         (layers={pool}); when that has no snapshots and clones any more, and all is merged back, it can be served by itself"
    )]
    BelowLayers {
        /// As it is written.
        store: String,
        /// Which pool has the layers.
        pool: String,
        /// Which volume is made of them.
        volume: String,
    },
    /// The store of a volume is not whole yet.
    #[error(
        "layers of volume {0} are being copied back to its store, which holds only a part of what the volume does until that is over: wait \
         (its layers in the pool, .sanwire-layers, are gone then), or, if the store is not needed any more, add --force"
    )]
    CopyingBack(String),
    /// Another volume that is served has the same store.
    #[error(
        "{store} is served as volume {volume}: what is below layers is written by nobody else; remove that volume first"
    )]
    StoreServed {
        /// As it is written.
        store: String,
        /// As which volume.
        volume: String,
    },
    /// No name of a snapshot.
    #[error(
        "'{0}' is no snapshot: use VOLUME@SNAPSHOT, each 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'"
    )]
    SnapshotName(String),
    /// There is one already.
    #[error("there is a snapshot {0} already: choose another name")]
    SnapshotExists(String),
    /// There is none.
    #[error("there is no snapshot {0}: see `sanwire ctl snapshots`")]
    NoSnapshot(String),
    /// Something is not to be deleted or replaced.
    #[error("{0} is protected: take that back first (--protected off)")]
    Protected(String),
    /// The volume has snapshots.
    #[error("volume {volume} has {count} snapshots: delete them first, or add --snapshots")]
    HasSnapshots {
        /// Which.
        volume: String,
        /// How many.
        count: usize,
    },
    /// A volume is served from it.
    #[error("snapshot {snapshot} is served as volume {volume}: remove that first")]
    SnapshotServed {
        /// Which.
        snapshot: String,
        /// As what.
        volume: String,
    },
    /// A copy to another server reads it.
    #[error(
        "snapshot {0} is there for a copy to another server, and goes with it: end that first (`sanwire ctl jobs`, `sanwire ctl cancel-job`), or \
         take a snapshot of your own"
    )]
    Copied(String),
    /// The volume was not so long then.
    #[error("snapshot {snapshot} is longer than volume {volume}: make that as long first")]
    Shorter {
        /// Which.
        snapshot: String,
        /// Whose.
        volume: String,
    },
    /// It has a volume of that name, served or not.
    #[error("pool {pool} has content of a volume called {volume}: choose another name, add it, or delete it")]
    ContentExists {
        /// Which.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// Its store does not end what it has begun.
    #[error(
        "nothing was changed: volume {0} has not ended the writes that it had begun in time; see to its store, and ask again"
    )]
    Silent(String),
    /// The system refuses something.
    #[error("pool {pool}: cannot {action} {content}: {source}")]
    Failed {
        /// Which.
        pool: String,
        /// What was to be done.
        action: &'static str,
        /// To what.
        content: String,
        /// Why.
        source: io::Error,
    },
    /// The content of a volume is neither the one nor the other.
    #[error(
        "the rollback to {snapshot} has begun and could not be ended: {source}; writes to the volume wait until it is rolled back again, or          the server is started again, which ends it"
    )]
    HalfRolledBack {
        /// To which snapshot.
        snapshot: String,
        /// Why.
        source: io::Error,
    },
    /// A rollback of the volume is not over.
    #[error(
        "a rollback of volume {volume} has begun and is not over: what it holds is neither the one nor the other, and its snapshot is \
         needed; roll it back again, to any of its snapshots"
    )]
    RollingBack {
        /// Which.
        volume: String,
    },
    /// Somebody has its file open.
    #[error(
        "the file of volume {0} is open elsewhere: it is served under another name, or by another program, or a command that it had begun \
         has not ended; end that first"
    )]
    Locked(String),
    /// Some snapshots of several were taken, and could not be taken back.
    #[error("{source}; the snapshots {} were taken all the same: delete them", snapshots.join(", "))]
    HalfTaken {
        /// Which were.
        snapshots: Vec<String>,
        /// Why the others were not.
        source: Box<PoolError>,
    },
    /// The content of a volume that was to be deleted is there.
    #[error(
        "the content of volume {volume}, which is not served, is not deleted, or not all of it: {source}; delete it again"
    )]
    NotDeleted {
        /// Which.
        volume: String,
        /// Why.
        source: Box<PoolError>,
    },
    /// It is not said where something is.
    #[error("{content} is in the pools {}: say which is meant", pools.join(" and "))]
    Ambiguous {
        /// What.
        content: String,
        /// Where it is.
        pools: Vec<String>,
    },
}

impl PoolError {
    /// Whether nothing is wrong but that there is no room.
    pub(super) fn has_no_room(&self) -> bool {
        let PoolError::Failed { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "; mount its file system, or make it (mkdir -m 700)",
        io::ErrorKind::PermissionDenied => "; the user who runs the server must be allowed to read and write there",
        _ => "",
    }
}
