//! Why something that was asked of a running server was not done.

use std::path::PathBuf;

use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Lun, ParseProtectionError};

use crate::derived::DerivedError;
use crate::error::StartError;
use crate::front::hyperscsi::clients::{ChangeError, ClientError};
use crate::front::iscsi::target_node::TargetNodeError;
use crate::front::iscsi::target_settings::TargetSettingsError;
use crate::manage::direct::CopyError;
use crate::manage::web_login::WebLinkError;
use crate::pools::PoolError;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// The text is no volume.
    #[error("{0}")]
    Spec(#[from] sanwire_store::SpecError),
    /// There is a volume of that name already.
    #[error("a volume called {0} is served already: choose another name")]
    Taken(String),
    /// It is to be the same volume, and another one.
    #[error(
        "a volume is either adopted, and stays what it was, or renewed, and becomes another one: give one of the two"
    )]
    RenewAndAdopt,
    /// Another request changes it.
    #[error("volume {name} is just {what}: ask again when that is over (`sanwire ctl jobs`)")]
    Busy {
        /// Which.
        name: String,
        /// What is done to it.
        what: &'static str,
    },
    /// It does not have the revision that the asker expects.
    #[error(
        "nothing was changed: {what} has revision {present} now, not {expected}: it was changed, the server was started again, or that \
         is the revision of something else; look at it again (`status --json` or `clients --json`)"
    )]
    Stale {
        /// What was to be changed.
        what: String,
        /// The revision that it was to have.
        expected: u64,
        /// The one that it has.
        present: u64,
    },
    /// The request changes no single thing that has a revision.
    #[error("a revision can be the condition of a change only, and stands in front of that alone")]
    NoCondition,
    /// There is no such job, or none any more.
    #[error("there is no job {0}, or it was over long ago: see `sanwire ctl jobs`")]
    NoJob(u64),
    /// It is over, or has to go on to its end.
    #[error("job {0} cannot be cancelled: it is over, or none that can: copies out, comparisons, growths of arrays")]
    NoCancel(u64),
    /// It was not copied straight to another server.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// There is no audit log.
    #[error("this server writes no audit log: give it a state directory, or --audit-log")]
    NoAudit,
    /// The audit log cannot be read.
    #[error("the audit log cannot be read: {0}")]
    Audit(std::io::Error),
    /// The configuration is just read again.
    #[error("the configuration is just being reloaded: ask again when that is over (`sanwire ctl jobs`)")]
    Reloading,
    /// There is no such volume.
    #[error("no volume called {0} is served")]
    NoVolume(String),
    /// Somebody uses it.
    #[error("volume {name} is in use by {users}: have it detached there first, or add --force")]
    InUse {
        /// Which.
        name: String,
        /// Who, for people.
        users: String,
    },
    /// The configuration would take volumes away from their users.
    #[error(
        "nothing was reloaded, for that would take away what is in use: {0}; have it detached there first, say it in the configuration, \
         or add --force"
    )]
    TakesAway(String),
    /// Others are derived from it.
    #[error(
        "volume {name} is that from which {} derived: revoke these first (`sanwire dvd revoke`), or add --force, which revokes them with it",
        are(derived)
    )]
    HasDerived {
        /// Which.
        name: String,
        /// Those that are.
        derived: Vec<String>,
    },
    /// It has a store of its own.
    #[error("volume {0} is not derived from another one: `sanwire ctl remove-volume` takes it out of service")]
    NotDerived(String),
    /// It cannot be derived so.
    #[error("volume {name}: {source}")]
    Derived {
        /// Which.
        name: String,
        /// Why.
        source: DerivedError,
    },
    /// Volumes cannot be derived together so.
    #[error("nothing was changed: {0}")]
    Together(String),
    /// The text of this one of them, from 1 on, cannot be understood.
    #[error("nothing was changed: volume {0} of the list: {1}")]
    TogetherText(usize, #[source] sanwire_store::SpecError),
    /// What is to judge its commands is no program.
    #[error("volume {name}: its program cannot be used: {reason}")]
    Module {
        /// Of which.
        name: String,
        /// Why.
        reason: String,
    },
    /// The asker does not own it.
    #[error("this client does not own volume {0}: `owner` of that volume names who may derive volumes from it")]
    NotOwner(String),
    /// The asker owns volumes, and may not manage the server.
    #[error(
        "this client may derive volumes from those that it owns, look at these, change when they end and revoke them, and no more: not {0}; `sanwire ctl set-client \
         CLIENT --manage` on the server's host permits all"
    )]
    NotForOwners(String),
    /// Owners have derived as many as they may.
    #[error("{count} volumes are derived from {volume} already, and its owners may have no more: revoke one first")]
    TooManyDerived {
        /// From which.
        volume: String,
        /// How many.
        count: usize,
    },
    /// Owners have as many programs as they may.
    #[error(
        "{count} volumes derived from {volume} have programs already, and those of its owners may be no more: revoke one first"
    )]
    TooManyPrograms {
        /// From which.
        volume: String,
        /// How many.
        count: usize,
    },
    /// Nobody is to be dropped.
    #[error("{0} has no session")]
    NoSession(String),
    /// There is no session of this number.
    #[error("there is no session {0}: see `sanwire ctl sessions`")]
    NoSuchSession(String),
    /// What this would do is not known beforehand.
    #[error("nothing was done: what {0} would do cannot be told beforehand")]
    NoRehearsal(String),
    /// The asker may change what is in pools only, or in some of them.
    #[error("nothing was changed: {0}")]
    OutsidePools(String),
    /// There is no link to begin with the HTTP API.
    #[error(transparent)]
    WebLink(#[from] WebLinkError),
    /// Too many are paused.
    #[error("too many clients are paused: resume one first")]
    TooManyPaused,
    /// Clients use volumes that they would not see any more.
    #[error(
        "nothing was changed, for that would take away what is in use: {0}; have it detached there first, or add --force"
    )]
    Hides(String),
    /// Nobody knows who uses it.
    #[error(
        "it cannot be seen who uses the volumes, since a part of the server does not answer: ask again, or add --force"
    )]
    Silent,
    /// The text is no reservation key.
    #[error("'{0}' is no reservation key: use up to 16 hexadecimal digits, as `sanwire ctl reservations` shows them")]
    ReservationKey(String),
    /// Nobody has registered it.
    #[error("nobody is registered with the key {key} for volume {name}: see `sanwire ctl reservations {name}`")]
    NoRegistration {
        /// For which volume.
        name: String,
        /// The key.
        key: String,
    },
    /// Who would lose a registration or a reservation is connected.
    #[error(
        "nothing was changed: {users} may use volume {name} by what would be ended, and is connected; have it end that itself, or add --force"
    )]
    Reserved {
        /// Which.
        name: String,
        /// Who, for people.
        users: String,
    },
    /// The reservations stay, since others could not be kept.
    #[error(
        "nothing was changed, since what is reserved of volume {name} could not be kept in {place}: the server's log says why"
    )]
    ReservationsNotKept {
        /// Of which volume.
        name: String,
        /// Where.
        place: String,
    },
    /// There is no such target.
    #[error("there is no iSCSI target {0}")]
    NoTarget(String),
    /// There is no such portal group, or the target is not reached through it.
    #[error("no iSCSI target is reached through portal group {0}: see the wires and the targets' groups")]
    NoGroup(u16),
    /// There is no such group of HyperSCSI ports.
    #[error("over HyperSCSI all volumes are reached through port group 1, not {0}")]
    NoHyperScsiGroup(u16),
    /// There is a target of that name already.
    #[error("there is an iSCSI target {0} already: change it with set-target, or choose another name")]
    TargetTaken(String),
    /// There are as many as there may be.
    #[error("there are {LUNS_MAX} iSCSI targets already: remove one first, or start another server")]
    TooManyTargets,
    /// Somebody has a session with it.
    #[error("iSCSI target {target} is in use by {users}: have it detached there first, or add --force")]
    TargetInUse {
        /// Which.
        target: String,
        /// Who, for people.
        users: String,
    },
    /// A target cannot be set so.
    #[error("target {target}: {source}")]
    TargetSettings {
        /// Which.
        target: String,
        /// Why.
        source: TargetSettingsError,
    },
    /// A target would be open that is made or set by itself.
    #[error(
        "the iSCSI target {0} would be open to whoever `allow` names, for the password guards HyperSCSI only: give it CHAP users \
         (--chap-user), or say that it is meant to be open (--no-chap)"
    )]
    TargetOpen(String),
    /// All numbers are taken.
    #[error("there are {LUNS_MAX} volumes already: remove one first, or start another server")]
    Full,
    /// The text is no size.
    #[error("'{0}' is no size: use a number with K, M, G or T, like 20G")]
    Size(String),
    /// The text is no level of protection.
    #[error("volume {name}: {source}")]
    Security {
        /// Which.
        name: String,
        /// Why.
        source: ParseProtectionError,
    },
    /// What is to be changed of a volume was not said, or too much at once.
    #[error("give one thing that is to be changed of the volume: its security, whether it is protected, or its owners")]
    OneSetting,
    /// A pool cannot do that.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The store stays as it is.
    #[error("volume {name}: {source}")]
    Resize {
        /// Which.
        name: String,
        /// Why.
        source: sanwire_store::ResizeError,
    },
    /// It has no copies, or they stay as they are.
    #[error("volume {name}: {source}")]
    Copies {
        /// Which.
        name: String,
        /// Why.
        source: sanwire_store::CopiesError,
    },
    /// The medium stays where it is.
    #[error("volume {name}: {source}")]
    Medium {
        /// Which.
        name: String,
        /// Why.
        source: sanwire_device::MediumError,
    },
    /// The volume is gone, and what was written to it may be lost.
    #[error(
        "volume {name} is not served any more, but what was written to it last may not be stable: {source}; see to its store before \
         you take that away, or rely on what it holds"
    )]
    Unstable {
        /// Which.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The volume cannot be opened.
    #[error(transparent)]
    Open(#[from] StartError),
    /// The targets cannot be so.
    #[error(transparent)]
    TargetNode(#[from] TargetNodeError),
    /// A client cannot be changed so.
    #[error(transparent)]
    Client(#[from] ChangeError),
    /// Where a volume is to be was not said.
    #[error("say where volume {0} is to be: --lun NUMBER over HyperSCSI, or --target IQN with or without --lun")]
    Where(String),
    /// The number is not one.
    #[error("{0} is no logical unit number: use a number from 0 to {max}", max = Lun::MAX)]
    Lun(u16),
    /// The number is taken.
    #[error("logical unit {lun} of {place} is taken: choose another number")]
    LunTaken {
        /// The number.
        lun: Lun,
        /// Where.
        place: String,
    },
    /// Not the name of a target.
    #[error("'{0}' is no name of an iSCSI target: use iqn.YYYY-MM.domain:name")]
    TargetName(String),
    /// The target would be open to whoever `allow` names.
    #[error(
        "there is no iSCSI target {0}, and a new one would be open, for the password protects HyperSCSI only: make it with CHAP users \
         first (`sanwire ctl add-target`), or put it into the configuration file, with chap, and reload"
    )]
    OpenTarget(String),
    /// A client is to have a secret, and the target is open to whoever `allow` names.
    #[error(
        "nothing was changed: the secret would guard HyperSCSI only, and the iSCSI target {0} is open to whoever `allow` names: give it \
         chap in a [[target]] of the configuration file (chap = [] if it is meant to be open), and reload"
    )]
    OpenBeside(String),
    /// The volume is not a unit of the target.
    #[error("volume {volume} is no logical unit of {target}")]
    NotThere {
        /// The volume.
        volume: String,
        /// The target.
        target: String,
    },
    /// It should be served already.
    #[error(
        "volume {name} is to be served already, and is not: {reason}; mend that and reload, or remove the volume first"
    )]
    Missing {
        /// Which.
        name: String,
        /// Why it is not.
        reason: String,
    },
    /// A change that would not survive a restart is none.
    #[error("nothing was changed, since it could not be kept in {}: {source}", path.display())]
    Keep {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A grant ends all the same when that cannot be kept.
    #[error(
        "volume {name} is revoked, and would be served again when the server starts: that could not be kept ({source}); the next change \
         that can be kept keeps it, too"
    )]
    RevokedUntilStart {
        /// The volume.
        name: String,
        /// Why.
        source: Box<ManageError>,
    },
    /// The configuration cannot be read.
    #[error("{0}")]
    Configuration(String),
}

/// These volumes, as what something is done to.
fn are(volumes: &[String]) -> String {
    const NAMED_MAX: usize = 8;
    let named = volumes[..volumes.len().min(NAMED_MAX)].join(", ");
    match volumes.len().saturating_sub(NAMED_MAX) {
        0 if volumes.len() == 1 => format!("{named} is"),
        0 => format!("{named} are"),
        others => format!("{named} and {others} others are"),
    }
}

impl From<ClientError> for ManageError {
    fn from(error: ClientError) -> Self {
        ManageError::Client(error.into())
    }
}
