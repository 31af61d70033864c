//! What a running server can be asked, whatever the way to it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sanwire_core::{ClientId, Protection, Size};
use sanwire_initiator::Url;
use sanwire_server::{Compression, PortState};
use sanwire_store::VolumeSpec;

use super::client::seconds;
use super::{AuditArgs, ContentCommand, EventsArgs, ReachArgs, Switch};

/// `sanwire manage`.
#[derive(Args, Debug)]
#[command(
    after_help = "The client needs the permission: `sanwire ctl set-client ID --manage` on the server's host.\n\nExamples:\n  \
                  sanwire manage hs+ip://storage status\n  \
                  sanwire manage hs+ip://storage add-volume disk1=file:/srv/disk1.img,size=20G\n  \
                  sanwire manage hs+eth://eth0/storage statistics --json"
)]
pub(crate) struct ManageArgs {
    /// The server, over HyperSCSI
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

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What a running server can be asked.
#[derive(Subcommand, Debug)]
pub(crate) enum ManageCommand {
    /// Show wires, volumes and iSCSI targets
    Status,
    /// Show all of it as a tree: volumes, targets, units, port groups, sessions
    Tree,
    /// Show who uses what, over every wire
    Sessions {
        /// Measure for so many seconds what each does in one
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        rate: Option<Duration>,
    },
    /// Show what was counted: volumes, connections over all wires, packets that were not taken
    Statistics,
    /// Serve one more volume; with file:PATH,size=SIZE its file is made
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
    /// Serve a volume no longer, unless clients use it; its content stays where it is
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
    /// Take the medium of a drive (type=optical), or of a removable volume, out
    EjectVolume {
        /// The volume's name
        name: String,
        /// Do it also while a client has locked it
        #[arg(long)]
        force: bool,
    },
    /// Put the medium back in, or another disc into a drive
    LoadVolume {
        /// The volume's name
        name: String,
        /// What is to be the disc: file:PATH [default: the one that was taken out]
        store: Option<String>,
    },
    /// Change how a volume's packets are guarded, while it is used, or protect its content
    SetVolume {
        /// The volume's name
        name: String,
        /// The level: none, hash, aes-128-gcm, aes-256-gcm or chacha20-poly1305
        #[arg(long, value_name = "LEVEL", required_unless_present = "protected", conflicts_with = "protected")]
        security: Option<Protection>,
        /// Whether its content is neither deleted nor rolled back: on or off
        #[arg(long, value_name = "ON|OFF")]
        protected: Option<Switch>,
    },
    /// Pools and what is in them.
    #[command(flatten)]
    Content(ContentCommand),
    /// Give a volume another number, or make it a unit of an iSCSI target
    MapVolume {
        /// The volume's name
        name: String,
        /// The number [default, with --target: the next free one]
        #[arg(long, value_name = "NUMBER", required_unless_present = "target")]
        lun: Option<u16>,
        /// The iSCSI target; it is made when there is none [default: HyperSCSI]
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
        /// Do it also while clients use the volume
        #[arg(long)]
        force: bool,
    },
    /// Take a volume out of an iSCSI target
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
    /// Show the HyperSCSI clients that are known by their ids
    Clients,
    /// Serve one more client, from wherever it comes
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
    /// Serve a client no longer, whatever the rules say, until it is added again
    RemoveClient {
        /// Its id or name
        client: String,
        /// Do it also when it takes volumes that the client uses, or writing to them, away
        #[arg(long)]
        force: bool,
    },
    /// Forget what was changed of a client: the configuration holds again
    ResetClient {
        /// Its id or name
        client: String,
        /// Do it also when it takes volumes that the client uses, or writing to them, away
        #[arg(long)]
        force: bool,
    },
    /// End the sessions of a client; it may come again
    DropClient {
        /// Its id or name, or the name of an iSCSI initiator
        client: String,
    },
    /// Let a client or an initiator wait: it stays connected, its commands are not begun
    PauseClient {
        /// Its id or name, or the name of an iSCSI initiator
        client: String,
    },
    /// Let it go on
    ResumeClient {
        /// Its id or name, or the name of an iSCSI initiator
        client: String,
    },
    /// Put an iSCSI portal group into another state (asymmetric access): initiators with several paths take the others
    SetAccessState {
        /// The portal group's tag
        group: u16,
        /// The state
        state: PortStateArg,
        /// Of this iSCSI target alone [default: of all that are reached through the group]; `hyperscsi`: of HyperSCSI's ports
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
    },
    /// Print all that is counted as text for Prometheus (OpenMetrics)
    Metrics,
    /// Show what has happened: volumes, sessions, refusals, links, stores, jobs, reloads
    Events(EventsArgs),
    /// Show who has changed what, or was refused, from the audit log
    Audit(AuditArgs),
    /// Show the changes that take long, and those that have taken long
    Jobs,
    /// Show one of them
    Job {
        /// Its number
        id: u64,
        /// Wait until it is over; its failure is that of this command
        #[arg(long)]
        wait: bool,
    },
    /// Read the configuration file again, and apply what differs, unless that takes away volumes that clients use
    Reload {
        /// Do it also when it takes away volumes that clients use
        #[arg(long)]
        force: bool,
        /// Only show what differs, and which volumes are in use of those that would go
        #[arg(long, conflicts_with = "force")]
        dry_run: bool,
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

    /// Take the server's password again
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

    /// Bytes in a second at the most, like 100M; 0 for no such limit
    #[arg(long, value_name = "SIZE")]
    pub(crate) cap: Option<Size>,

    /// Packets in flight each way at the most; 0 for no such limit
    #[arg(long, value_name = "PACKETS")]
    pub(crate) window: Option<u32>,

    /// Whether its data is compressed: off, allowed or required
    #[arg(long, value_name = "HOW")]
    pub(crate) compression: Option<Compression>,

    /// The largest data transfer of a command, like 256K, from its next connection on; 0 for no such limit
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_transfer: Option<Size>,

    /// How much sooner than others it has its turn, 0 to 7
    #[arg(long, value_name = "NUMBER")]
    pub(crate) priority: Option<u8>,
}

/// A volume as it is written on the command line, which must be a legal one; the server reads it again.
pub(crate) fn check_volume(text: &str) -> anyhow::Result<()> {
    text.parse::<VolumeSpec>().map(drop).map_err(|error| crate::failure::misuse(error.to_string()))
}
