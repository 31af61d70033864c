//! What an administrator may ask of a running server.

mod reading;

use serde::{Deserialize, Serialize};

use super::audit::AuditQuery;
use super::clearing::Clearing;
use super::copies::{ArrayGrowth, MemberReplacement};
use super::direct::CopyOrder;
use super::dvds::{DvdEnd, NewDvd, NewDvds};
use crate::events::EventFilter;
use crate::front::hyperscsi::clients::ClientSettings;
use crate::front::iscsi::target_settings::TargetSettings;
use crate::manage::access::AccessChange;
use crate::manage::web_login::LinkFor;

/// What is asked of a running server. As JSON: `{"do": "add-volume", "volume": "disk1=ram:1G"}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What is served, and where.
    Status,
    /// Who uses it, over whatever wire.
    Sessions,
    /// Who has used a volume, of those who are there.
    VolumeSessions {
        /// Its name.
        name: String,
    },
    /// Which commands for a volume have been under way for longest.
    Commands {
        /// Its name.
        name: String,
    },
    /// By which wires clients come, and whether each is there.
    Links,
    /// What file and command line say, and what was changed while it ran.
    Configuration,
    /// What is served now, as the tables of a configuration file.
    ConfigurationFile,
    /// Who has reserved a volume, or is registered to.
    Reservations {
        /// Its name.
        name: String,
    },
    /// End the reservations of a volume, and what initiators have registered for them: those of a host that does not come again.
    ClearReservations(Clearing),
    /// Serve one more volume: `NAME=STORE[,KEY[=VALUE]]...`.
    AddVolume {
        /// The volume.
        volume: String,
        /// The iSCSI target that gets it as its next logical unit; without it, a target of its own.
        target: Option<String>,
        /// Whether it becomes another volume than it was: what is there is taken, or made anew, under a new identity.
        #[serde(default)]
        renew: bool,
        /// Whether what is there is taken for the volume that was served from it before, though it does not look so.
        #[serde(default)]
        adopt: bool,
    },
    /// Serve a volume no longer. Its content stays where it is.
    RemoveVolume {
        /// Its name.
        name: String,
        /// Whether that is done also while sessions use it.
        #[serde(default)]
        force: bool,
    },
    /// Serve a volume of a pool no longer, and delete its content.
    DeleteVolume {
        /// Its name.
        name: String,
        /// Whether that is done also while sessions use it.
        #[serde(default)]
        force: bool,
        /// Whether its snapshots are deleted too; else it is refused when there are any.
        #[serde(default)]
        snapshots: bool,
    },
    /// Take a snapshot of each of these volumes of pools, all as they are at one moment.
    Snapshot {
        /// Their names.
        volumes: Vec<String>,
        /// What each of the snapshots is called.
        name: String,
        /// Whether they are not deleted until that is taken back.
        #[serde(default)]
        protected: bool,
    },
    /// The snapshots.
    Snapshots {
        /// Of this volume; without it, all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume: Option<String>,
    },
    /// Protect a snapshot, or not any more.
    SetSnapshot {
        /// Which: `VOLUME@SNAPSHOT`.
        snapshot: String,
        /// Whether it is not deleted.
        protected: bool,
    },
    /// Delete a snapshot.
    DeleteSnapshot {
        /// Which: `VOLUME@SNAPSHOT`.
        snapshot: String,
    },
    /// Serve a new volume that holds what a snapshot does.
    Clone {
        /// Of which: `VOLUME@SNAPSHOT`.
        snapshot: String,
        /// What it is called.
        name: String,
        /// The iSCSI target that gets it as its next logical unit; without it, a target of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
    /// Have a volume hold what its snapshot does.
    Rollback {
        /// Which: `VOLUME@SNAPSHOT`.
        snapshot: String,
        /// Whether that is done also while sessions use the volume.
        #[serde(default)]
        force: bool,
        /// The snapshot that what it holds becomes before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep: Option<String>,
    },
    /// Derive a volume from another one.
    CreateDvd(NewDvd),
    /// Derive some volumes together: all of them, or none.
    CreateDvds(NewDvds),
    /// The volumes that are derived from others.
    Dvds {
        /// From this one, and from those that are; without it, all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
    },
    /// One of them, with what was counted of those who use it.
    Dvd {
        /// Its name.
        name: String,
    },
    /// Serve a volume no longer that is derived from another one, nor those that are derived from it: at once, whoever uses them.
    RevokeDvd {
        /// Its name.
        name: String,
    },
    /// Have a derived volume end at another time.
    SetDvd(DvdEnd),
    /// Copy a volume straight to one of another server.
    CopyOut(CopyOrder),
    /// What this server says of copies that go straight from one server to another.
    CopyTerms,
    /// Make a volume longer.
    ResizeVolume {
        /// Its name.
        name: String,
        /// Its new length: `20G`.
        size: String,
    },
    /// Compare the copies of an array, and make them the same where they differ.
    ScrubVolume {
        /// Its name.
        name: String,
    },
    /// Have another store take the place of a member of an array that is gone.
    ReplaceMember(MemberReplacement),
    /// Have an array take all that its members have room for, and other stores behind them.
    GrowArray(ArrayGrowth),
    /// Take the medium of a drive, or of a removable volume, out.
    EjectVolume {
        /// Its name.
        name: String,
        /// Whether that is done also while an initiator has locked it.
        #[serde(default)]
        force: bool,
    },
    /// Put the medium back, or another disc into a drive.
    LoadVolume {
        /// Its name.
        name: String,
        /// What is to be the disc, as the store of a volume: `file:PATH`.
        #[serde(default)]
        store: Option<String>,
    },
    /// Guard a volume's packets otherwise, while it is used, protect its content, or give it other owners: one of them.
    SetVolume {
        /// Its name.
        name: String,
        /// The protection level of its packets, as in the key of a volume: `aes-128-gcm`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        security: Option<String>,
        /// Whether its content is neither deleted nor rolled back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        protected: Option<bool>,
        /// Who may derive volumes from it, as in the key of a volume; none: nobody but who may manage the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owners: Option<Vec<String>>,
    },
    /// The directories in which volumes can be without naming a path.
    Pools,
    /// Forget a pool that the configuration does not name any more.
    ForgetPool {
        /// Its name.
        name: String,
    },
    /// Give a volume another HyperSCSI number, or make it a unit of an iSCSI target, which is made when there is none.
    MapVolume {
        /// Its name.
        name: String,
        /// The number; of a target's unit, the next free one when it is not said.
        #[serde(default)]
        lun: Option<u16>,
        /// The iSCSI target.
        #[serde(default)]
        target: Option<String>,
        /// Whether that is done also while sessions use it.
        #[serde(default)]
        force: bool,
    },
    /// Take a volume out of an iSCSI target. A target without units goes, unless it was made or set by itself.
    UnmapVolume {
        /// Its name.
        name: String,
        /// The iSCSI target.
        target: String,
        /// Whether that is done also while sessions use it.
        #[serde(default)]
        force: bool,
    },
    /// Make an iSCSI target without units; also one that is configured, and was removed.
    AddTarget {
        /// Its name, or what follows our own authority.
        name: String,
        /// How it is set; by default, for whom the server's `allow` names.
        #[serde(default)]
        settings: TargetSettings,
    },
    /// Set an iSCSI target otherwise. Sessions of those who may not use it any more end.
    SetTarget {
        /// Its name.
        name: String,
        /// What changes.
        settings: TargetSettings,
        /// Whether that is done also when those use it who may not any more.
        #[serde(default)]
        force: bool,
    },
    /// Take an iSCSI target away; its volumes stay.
    RemoveTarget {
        /// Its name.
        name: String,
        /// Whether that is done also while there are sessions with it, which end.
        #[serde(default)]
        force: bool,
    },
    /// The HyperSCSI clients that are known by their ids.
    Clients,
    /// Serve one more client, from wherever it comes; also one that was removed.
    AddClient {
        /// Its id, as `sanwire id` prints it.
        id: String,
        /// What it may do; by default, use all volumes.
        #[serde(default)]
        settings: ClientSettings,
        /// Whether that is done also when it takes volumes that it uses, or writing to them, away.
        #[serde(default)]
        force: bool,
    },
    /// Change what a client may do.
    SetClient {
        /// Its id or name.
        client: String,
        /// What changes.
        settings: ClientSettings,
        /// Whether that is done also when it takes volumes that it uses, or writing to them, away.
        #[serde(default)]
        force: bool,
    },
    /// Serve a client no longer, whatever else would permit it, until it is added again.
    RemoveClient {
        /// Its id or name.
        client: String,
        /// Whether that is done also when it takes volumes that it uses, or writing to them, away.
        #[serde(default)]
        force: bool,
    },
    /// Discard runtime changes to a client and use its configured settings.
    ResetClient {
        /// Its id or name.
        client: String,
        /// Whether that is done also when it takes volumes that it uses, or writing to them, away.
        #[serde(default)]
        force: bool,
    },
    /// End the sessions of a client; it may come again.
    DropClient {
        /// Its id or name, or the name of an iSCSI initiator.
        client: String,
    },
    /// End one session; its client may come again.
    DropSession {
        /// Its number, in hexadecimal digits.
        session: String,
    },
    /// Let a client or an initiator wait, over whatever wire: it stays connected, and its commands are not begun until it is resumed.
    PauseClient {
        /// Its id or name.
        client: String,
    },
    /// Let it go on.
    ResumeClient {
        /// Its id or name.
        client: String,
    },
    /// The changes that take long, and those that have taken long.
    Jobs,
    /// One of them.
    Job {
        /// Its number.
        id: u64,
        /// Whether its end is waited for, for a while.
        #[serde(default)]
        wait: bool,
    },
    /// End one that can be ended before it is done: a copy to another server, a comparison of copies, the growth of an array.
    CancelJob {
        /// Its number.
        id: u64,
    },
    /// Begin with something, and answer with a job when it takes long.
    Start {
        /// What.
        request: Box<Request>,
    },
    /// Change something on the condition that it is still what somebody has seen.
    IfRevision {
        /// The revision that what the request changes had then: `revision` of that, or of the `collections` of the status.
        revision: u64,
        /// What is to be done.
        request: Box<Request>,
    },
    /// Change something for somebody who may change only what is in pools, and add nothing elsewhere.
    InPools {
        /// In these; when there are none: in all, and also what is in no place, like clients.
        pools: Vec<String>,
        /// What is to be done.
        request: Box<Request>,
    },
    /// Tell what a change of volumes would do, or why it would be refused, and do nothing.
    DryRun {
        /// The change.
        request: Box<Request>,
    },
    /// The link by which somebody begins with the HTTP API: once, and for a short time.
    WebLogin(LinkFor),
    /// A part of an answer that is too long for who asks: as many of its items as there is room for.
    Page {
        /// What is asked; no change.
        request: Box<Request>,
        /// From which item on: that which the page before has named.
        #[serde(default)]
        from: u64,
    },
    /// What has happened.
    Events {
        /// What happened after this cursor, which an earlier answer gave; without it, all that is kept.
        #[serde(default)]
        since: Option<String>,
        /// Which of it.
        #[serde(default)]
        filter: EventFilter,
        /// Whether something is waited for, for a while, when that is nothing.
        #[serde(default)]
        wait: bool,
    },
    /// Lines of the audit log.
    Audit(AuditQuery),
    /// What was counted since the server started.
    Statistics,
    /// The same and more, in the text that Prometheus reads.
    Metrics,
    /// Set the ALUA access state of an iSCSI portal group's ports. Initiators of the targets are told.
    SetAccessState(AccessChange),
    /// Read the configuration again, and apply what differs.
    Reload {
        /// Whether that is done also when it takes volumes away from sessions that use them.
        #[serde(default)]
        force: bool,
        /// Only tell what differs, and what is in use of that.
        #[serde(default)]
        dry_run: bool,
        /// Whether what was changed while the server ran is forgotten.
        #[serde(default)]
        reset: bool,
    },
}
