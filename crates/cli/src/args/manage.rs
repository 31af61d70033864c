//! What a running server can be asked, whatever the way to it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sanwire_core::{ClientId, Size};
use sanwire_initiator::Url;
use sanwire_server::{Compression, PortState};

use super::{
    AuditArgs, ContentCommand, CopiesCommand, EventsArgs, ReachArgs, SessionsArgs, SetVolumeArgs, StandingCommand,
    TargetCommand,
};

/// `sanwire manage`.
#[derive(Args, Debug)]
#[command(
    after_help = "The client needs the permission: `sanwire ctl set-client ID --manage` on the server's host.\n\nExamples:\n  \
                  sanwire manage hs+ip://storage status\n  \
                  sanwire manage hs+ip://storage add-volume disk1=file:/srv/disk1.img,size=20G\n  \
                  sanwire manage hs+eth://eth0/storage statistics --json"
)]
pub(crate) struct ManageArgs {
    /// The server, over HyperSCSI or VISA
    pub(crate) url: Url,

    /// What to do
    #[command(subcommand)]
    pub(crate) command: ManageCommand,

    /// On which terms.
    #[command(flatten)]
    pub(crate) terms: AskingArgs,

    /// How to connect.
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// How a running server is asked, and its answer printed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct AskingArgs {
    /// Do not wait for a change that takes long: print its job, which goes on
    #[arg(long, global = true)]
    pub(crate) no_wait: bool,

    /// Change it only if it still has this revision: `revision` of the volume, the target, the client or the whole in `status --json` or
    /// `clients --json`, or of `collections` for what is to be added
    #[arg(long, value_name = "NUMBER", global = true)]
    pub(crate) if_revision: Option<u64>,

    /// Only tell what it would do, or why it would be refused
    #[arg(long, global = true)]
    pub(crate) dry_run: bool,

    /// Show all columns of sessions, clients and statistics, and names at their full length
    #[arg(long, global = true, conflicts_with = "json")]
    pub(crate) wide: bool,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// How an answer is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// As tables for a screen.
    Narrow,
    /// As tables with all that there is.
    Wide,
    /// For programs.
    Json,
}

impl AskingArgs {
    /// What was asked for.
    pub(crate) fn form(self) -> Form {
        match self {
            AskingArgs { json: true, .. } => Form::Json,
            AskingArgs { wide: true, .. } => Form::Wide,
            _ => Form::Narrow,
        }
    }
}

/// What a running server can be asked.
#[derive(Subcommand, Debug)]
pub(crate) enum ManageCommand {
    /// Show wires, volumes and iSCSI targets
    Status,
    /// Show the whole server as a tree: volumes, targets, units, port groups, sessions
    Tree,
    /// Show who uses what, over every wire
    Sessions(SessionsArgs),
    /// Show counters: volumes, connections over all wires, dropped packets, quotas
    Statistics,
    /// How the server stands.
    #[command(flatten)]
    Standing(StandingCommand),
    /// Serve another volume; with file:PATH,size=SIZE its file is made
    AddVolume {
        /// The volume: NAME=STORE[,KEY[=VALUE]]...
        #[arg(value_name = "VOLUME")]
        volume: String,
        /// Make it a logical unit of this iSCSI target [default: a target of its own]
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
        /// Take what is there as another volume than was served from that file before, or make the file anew when it is missing
        #[arg(long)]
        renew: bool,
        /// Take what is there for the volume that was served from that file before, though it does not look so
        #[arg(long, conflicts_with = "renew")]
        adopt: bool,
    },
    /// Stop serving a volume, unless clients use it; its content stays where it is
    RemoveVolume {
        /// The volume's name
        name: String,
        /// Do it also while clients use the volume
        #[arg(long)]
        force: bool,
    },
    /// Make a volume longer
    ResizeVolume {
        /// The volume's name
        name: String,
        /// The new size, like 20G
        size: Size,
    },
    /// Have the copies of arrays looked after.
    #[command(flatten)]
    Copies(CopiesCommand),
    /// Eject the medium of a drive (type=optical) or of a removable volume
    EjectVolume {
        /// The volume's name
        name: String,
        /// Do it also while a client has locked it
        #[arg(long)]
        force: bool,
    },
    /// Load the medium again, or another disc into a drive
    LoadVolume {
        /// The volume's name
        name: String,
        /// What is to be the disc: file:PATH [default: the one that was taken out]
        store: Option<String>,
    },
    /// Change a volume's protection level online, protect its content from deletion and rollback, or say who owns it
    SetVolume(SetVolumeArgs),
    /// Pools and what is in them.
    #[command(flatten)]
    Content(ContentCommand),
    /// Give a volume another LUN, or make it a logical unit of an iSCSI target
    MapVolume {
        /// The volume's name
        name: String,
        /// The LUN [default, with --target: the next free one]
        #[arg(long, value_name = "NUMBER", required_unless_present = "target")]
        lun: Option<u16>,
        /// The iSCSI target; it is made when there is none [default: HyperSCSI]
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
        /// Do it also while clients use the volume
        #[arg(long)]
        force: bool,
    },
    /// Remove a volume from an iSCSI target
    UnmapVolume {
        /// The volume's name
        name: String,
        /// The iSCSI target
        #[arg(long, value_name = "IQN")]
        target: String,
        /// Do it also while clients use the volume
        #[arg(long)]
        force: bool,
    },
    /// iSCSI targets.
    #[command(flatten)]
    Target(TargetCommand),
    /// Show the HyperSCSI clients that are known by their ids, and what each may do
    Clients,
    /// Allow another client, whatever its address
    AddClient {
        /// Its id, as `sanwire id` prints it on its host
        id: ClientId,
        /// What it may do.
        #[command(flatten)]
        settings: SettingsArgs,
        /// Do it also when it takes volumes that the client uses, or writing to them, away
        #[arg(long)]
        force: bool,
    },
    /// Change what a client may do
    SetClient {
        /// Its id or name
        client: String,
        /// What changes.
        #[command(flatten)]
        settings: SettingsArgs,
        /// Do it also when it takes volumes that the client uses, or writing to them, away
        #[arg(long)]
        force: bool,
    },
    /// Refuse a client, whatever the rules say, until it is added again
    RemoveClient {
        /// Its id or name
        client: String,
        /// Do it also when it takes volumes that the client uses, or writing to them, away
        #[arg(long)]
        force: bool,
    },
    /// Discard runtime changes to a client and use its configured settings
    ResetClient {
        /// Its id or name
        client: String,
        /// Do it also when it takes volumes that the client uses, or writing to them, away
        #[arg(long)]
        force: bool,
    },
    /// Disconnect a client: end its sessions; it may connect again
    DropClient {
        /// Its id or name, or the name of an iSCSI initiator
        client: String,
    },
    /// End one session, over whatever wire; its client may come again
    DropSession {
        /// Its number, as `sessions` shows it
        session: String,
    },
    /// Pause a client or an initiator: keep the connection, hold its I/O
    PauseClient {
        /// Its id or name, or the name of an iSCSI initiator
        client: String,
    },
    /// Resume a paused client or initiator
    ResumeClient {
        /// Its id or name, or the name of an iSCSI initiator
        client: String,
    },
    /// Set the ALUA access state of a target port group: initiators with several paths use the best
    SetAccessState {
        /// The target port group: over iSCSI, the portal group's tag
        group: u16,
        /// The ALUA state
        state: PortStateArg,
        /// Of this iSCSI target alone [default: of all that are reached through the group]; `hyperscsi`: of HyperSCSI's ports
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
    },
    /// Print the link by which somebody begins with the HTTP API: once, within ten minutes
    WebLogin {
        /// The user who chooses another password by it [default: the first administrator, while there is none]
        name: Option<String>,
    },
    /// Print all counters as text for Prometheus (OpenMetrics)
    Metrics,
    /// Show events: volumes, sessions, refusals, links, stores, jobs, reloads
    Events(EventsArgs),
    /// Show the audit log: who has changed what, or was refused
    Audit(AuditArgs),
    /// Show jobs: changes that take long, running and ended
    Jobs,
    /// Show one job, or wait for its end
    Job {
        /// Its number
        id: u64,
        /// Wait until it is over; its failure is that of this command
        #[arg(long)]
        wait: bool,
    },
    /// End a job before it is done, if it can be: a copy to another server, a comparison of the copies of an array, its growth
    CancelJob {
        /// Its number
        id: u64,
    },
    /// Reload the configuration file, unless that takes away volumes that clients use
    Reload {
        /// Do it also when it takes away volumes that clients use
        #[arg(long)]
        force: bool,
        /// Forget what was changed while the server ran: all is as the configuration says
        #[arg(long)]
        reset: bool,
    },
}

/// The states of a portal group.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum PortStateArg {
    /// The best way
    ActiveOptimized,
    /// A way that works, where there is no better one
    ActiveNonOptimized,
    /// No way to the medium
    Standby,
    /// No way at all
    Unavailable,
}

impl From<PortStateArg> for PortState {
    fn from(state: PortStateArg) -> Self {
        match state {
            PortStateArg::ActiveOptimized => PortState::ActiveOptimized,
            PortStateArg::ActiveNonOptimized => PortState::ActiveNonOptimized,
            PortStateArg::Standby => PortState::Standby,
            PortStateArg::Unavailable => PortState::Unavailable,
        }
    }
}

/// What a client may do; what is not said stays.
#[derive(Args, Debug)]
pub(crate) struct SettingsArgs {
    /// What administrators call it
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// A file whose first line is a password of its own
    #[arg(long, value_name = "FILE", conflicts_with_all = ["own_secret_file", "no_own_password"])]
    pub(crate) own_password_file: Option<PathBuf>,

    /// A file with a key of its own, in place of a password (`sanwire key new` makes one)
    #[arg(long, value_name = "FILE", conflicts_with = "no_own_password")]
    pub(crate) own_secret_file: Option<PathBuf>,

    /// Drop its own password or key: the server's is required again
    #[arg(long)]
    pub(crate) no_own_password: bool,

    /// Whether it may manage the server
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) manage: Option<bool>,

    /// Whether it may read only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) read_only: Option<bool>,

    /// Whether removable media stay in while it is connected
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) lock_media: Option<bool>,

    /// The volumes that it sees: names, with * for any text, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) volumes: Option<Vec<String>>,

    /// Its share of the bandwidth beside others, 1 to 1000
    #[arg(long, value_name = "NUMBER")]
    pub(crate) weight: Option<u16>,

    /// Rate limit in bytes per second, like 100M; 0 for none
    #[arg(long, value_name = "SIZE")]
    pub(crate) cap: Option<Size>,

    /// Packets in flight each way at the most; 0 for no limit
    #[arg(long, value_name = "PACKETS")]
    pub(crate) window: Option<u32>,

    /// Whether its data is compressed: off, allowed or required
    #[arg(long, value_name = "HOW")]
    pub(crate) compression: Option<Compression>,

    /// The largest data transfer of a command, like 256K, from its next connection on; 0 for no limit
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_transfer: Option<Size>,

    /// How much sooner than others it has its turn, 0 to 7
    #[arg(long, value_name = "NUMBER")]
    pub(crate) priority: Option<u8>,
}
