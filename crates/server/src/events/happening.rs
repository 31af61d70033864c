//! What can happen, in words and for programs.

use std::fmt;

use sanwire_core::Size;
use sanwire_core::text::shortened;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Of a text for people, so much is kept.
const TEXT_MAX_BYTES: usize = 384;

/// Of the lines that a reload has changed, so many are kept.
pub(super) const LINES_MAX: usize = 16;

/// What has happened. As JSON: `"event": "volume-added", "volume": "disk1"`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Happening {
    /// A volume is served.
    VolumeAdded {
        /// Its name.
        volume: String,
    },
    /// A volume is served no longer.
    VolumeRemoved {
        /// Its name.
        volume: String,
    },
    /// A volume was derived from another one.
    DvdCreated {
        /// Its name.
        volume: String,
        /// That from which it is derived.
        parent: String,
    },
    /// A volume that is derived from another one ends at another time than before. That it lasts some minutes longer is not told.
    DvdChanged {
        /// Its name.
        volume: String,
        /// That from which it is derived.
        parent: String,
        /// When, as in RFC 3339; without it, when it is revoked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<String>,
    },
    /// A volume that was derived from another one is revoked.
    DvdRevoked {
        /// Its name.
        volume: String,
        /// That from which it was derived.
        parent: String,
    },
    /// The time of a volume is over that was derived from another one.
    DvdExpired {
        /// Its name.
        volume: String,
        /// That from which it was derived.
        parent: String,
        /// When that was, as in RFC 3339.
        until: String,
    },
    /// Somebody was refused to derive a volume.
    DvdRefused {
        /// What it was to be called.
        volume: String,
        /// That from which it was to be derived.
        parent: String,
        /// Who has asked.
        who: String,
        /// Why, for people.
        why: String,
    },
    /// A derived volume has refused commands since that was told last.
    DvdUseRefused {
        /// Its name.
        volume: String,
        /// Who has given most of them.
        who: String,
        /// What has refused them: `operation`, `region`, `program`; or `not-admitted`: who is no principal of it.
        why: String,
        /// How many.
        count: u64,
    },
    /// A volume is longer.
    VolumeResized {
        /// Its name.
        volume: String,
        /// What it has now.
        size_bytes: u64,
    },
    /// A snapshot was taken.
    SnapshotTaken {
        /// Of which volume.
        volume: String,
        /// Its name.
        snapshot: String,
    },
    /// A snapshot was deleted.
    SnapshotDeleted {
        /// Of which volume.
        volume: String,
        /// Its name.
        snapshot: String,
    },
    /// A volume holds again what it held at a snapshot.
    RolledBack {
        /// Which.
        volume: String,
        /// The snapshot.
        snapshot: String,
    },
    /// A volume was made of a snapshot.
    Cloned {
        /// What was made.
        volume: String,
        /// The volume of the snapshot.
        source: String,
        /// The snapshot.
        snapshot: String,
    },
    /// What a volume held was deleted, with its snapshots.
    ContentDeleted {
        /// Which.
        volume: String,
    },
    /// Reservations of a volume were ended that initiators had made.
    ReservationsCleared {
        /// Of which.
        volume: String,
        /// How many registrations.
        registrations: u32,
    },
    /// The store of a volume cannot do its work, and commands wait for it.
    StoreFailing {
        /// Of which volume.
        volume: String,
        /// Why, for people.
        why: String,
    },
    /// No command waits for the store of a volume any more.
    StoreWorking {
        /// Of which volume.
        volume: String,
        /// Commands that have failed meanwhile.
        failed: u32,
    },
    /// A pool has little room left: it has come to 90 or 95 % of one of its bounds.
    PoolFilling {
        /// Which.
        pool: String,
        /// Of which of them.
        of: PoolBound,
        /// What is left until that.
        available_bytes: u64,
        /// How much of it is taken, rounded down.
        percent: u8,
    },
    /// An iSCSI target was made by itself.
    TargetAdded {
        /// Its name.
        target: String,
    },
    /// An iSCSI target was set otherwise.
    TargetChanged {
        /// Its name.
        target: String,
    },
    /// An iSCSI target was removed.
    TargetRemoved {
        /// Its name.
        target: String,
    },
    /// A session begins.
    SessionOpened {
        /// Its number, in hexadecimal digits.
        session: String,
        /// Who, and from where, for people.
        who: String,
        /// The iSCSI target that it uses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
    /// A session is over.
    SessionClosed {
        /// Its number.
        session: String,
        /// Whose it was.
        who: String,
    },
    /// Somebody was refused something: a login, a handshake, a packet.
    Refused {
        /// Who, as far as that is known.
        who: String,
        /// What, for people.
        what: String,
        /// How often within a second.
        count: u64,
    },
    /// A wire is away.
    LinkLost {
        /// Which.
        wire: String,
    },
    /// A wire is there again.
    LinkBack {
        /// Which.
        wire: String,
    },
    /// A change that takes long has begun.
    JobBegun {
        /// The number of the job.
        job: u64,
        /// What is done, for people.
        what: String,
    },
    /// It is over.
    JobEnded {
        /// The number of the job.
        job: u64,
        /// Why it was not done, if it was not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// The configuration was read again.
    Reloaded {
        /// What has changed, one line for each thing.
        changed: Vec<String>,
    },
}

/// What bounds a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolBound {
    /// What its volumes may have together, written or not.
    Limit,
    /// The room of its file system.
    FileSystem,
}

impl Happening {
    /// As it is kept: what is long says how long it was.
    pub(super) fn bounded(mut self) -> Happening {
        let shorten = |text: &mut String| *text = shortened(text, TEXT_MAX_BYTES).into_owned();
        match &mut self {
            Happening::DvdUseRefused { who: text, .. } => shorten(text),
            Happening::DvdRefused { volume, parent, why, .. } => [volume, parent, why].into_iter().for_each(shorten),
            Happening::StoreFailing { why: text, .. }
            | Happening::Refused { what: text, .. }
            | Happening::JobBegun { what: text, .. }
            | Happening::JobEnded { refused: Some(text), .. } => shorten(text),
            Happening::Reloaded { changed } => {
                let others = changed.len().saturating_sub(LINES_MAX);
                changed.truncate(LINES_MAX);
                changed.iter_mut().for_each(shorten);
                changed.extend((others > 0).then(|| format!("and {others} more")));
            }
            _ => {}
        }
        self
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::VolumeAdded { volume } => write!(f, "volume {volume} is served"),
            Happening::VolumeRemoved { volume } => write!(f, "volume {volume} is not served any more"),
            Happening::DvdCreated { volume, parent } => write!(f, "volume {volume} is derived from {parent}"),
            Happening::DvdChanged { volume, parent, until: Some(until) } => {
                write!(f, "volume {volume}, which is derived from {parent}, ends at {until} now")
            }
            Happening::DvdChanged { volume, parent, until: None } => {
                write!(f, "volume {volume}, which is derived from {parent}, ends when it is revoked now")
            }
            Happening::DvdRevoked { volume, parent } => {
                write!(f, "volume {volume}, which was derived from {parent}, is revoked")
            }
            Happening::DvdExpired { volume, parent, until } => {
                write!(f, "the time of volume {volume}, which was derived from {parent}, was over at {until}")
            }
            Happening::DvdRefused { volume, parent, who, why } => {
                write!(f, "{who} was refused to derive volume {volume} from {parent}: {why}")
            }
            Happening::DvdUseRefused { volume, who, why, count } => {
                write!(f, "volume {volume} has refused commands ({why}), {count} in the last time: {who}")
            }
            Happening::VolumeResized { volume, size_bytes } => {
                write!(f, "volume {volume} has {} now", Size(*size_bytes))
            }
            Happening::SnapshotTaken { volume, snapshot } => write!(f, "snapshot {volume}@{snapshot} is taken"),
            Happening::SnapshotDeleted { volume, snapshot } => write!(f, "snapshot {volume}@{snapshot} is deleted"),
            Happening::RolledBack { volume, snapshot } => {
                write!(f, "volume {volume} holds what the snapshot {volume}@{snapshot} does")
            }
            Happening::Cloned { volume, source, snapshot } => {
                write!(f, "volume {volume} is made of the snapshot {source}@{snapshot}")
            }
            Happening::ContentDeleted { volume } => write!(f, "the content of volume {volume} is deleted"),
            Happening::ReservationsCleared { volume, registrations } => {
                write!(f, "reservations of volume {volume} are ended; registrations: {registrations}")
            }
            Happening::StoreFailing { why, .. } => f.write_str(why),
            Happening::StoreWorking { volume, failed } => {
                write!(f, "no command waits for the store of {volume} any more; {failed} failed meanwhile")
            }
            Happening::PoolFilling { pool, of, available_bytes, percent } => {
                write!(f, "pool {pool} has {} left: {percent} % of its {of} is taken", Size(*available_bytes))
            }
            Happening::TargetAdded { target } => write!(f, "target {target} is there"),
            Happening::TargetChanged { target } => write!(f, "target {target} is set otherwise"),
            Happening::TargetRemoved { target } => write!(f, "target {target} is gone"),
            Happening::SessionOpened { session, who, target: None } => write!(f, "session {session} of {who} begins"),
            Happening::SessionOpened { session, who, target: Some(target) } => {
                write!(f, "session {session} of {who} with {target} begins")
            }
            Happening::SessionClosed { session, who } => write!(f, "session {session} of {who} is over"),
            Happening::Refused { who, what, count } => write!(f, "{who} is refused: {what} ({count} within a second)"),
            Happening::LinkLost { wire } => write!(f, "wire {wire} is gone"),
            Happening::LinkBack { wire } => write!(f, "wire {wire} is there again"),
            Happening::JobBegun { job, what } => write!(f, "job {job} begins: {what}"),
            Happening::JobEnded { job, refused: None } => write!(f, "job {job} is done"),
            Happening::JobEnded { job, refused: Some(reason) } => write!(f, "job {job} was not done: {reason}"),
            Happening::Reloaded { changed } if changed.is_empty() => {
                f.write_str("the configuration was reloaded: nothing differs")
            }
            Happening::Reloaded { changed } => write!(f, "the configuration was reloaded: {}", changed.join("; ")),
        }
    }
}

impl fmt::Display for PoolBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoolBound::Limit => "limit",
            PoolBound::FileSystem => "file system",
        })
    }
}
