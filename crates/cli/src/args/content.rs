//! What a running server can be asked about pools, and the content of volumes there.

use clap::{Subcommand, ValueEnum};

/// On or off.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Switch {
    /// It is so
    On,
    /// It is not
    Off,
}

/// What can be asked about pools.
#[derive(Subcommand, Debug)]
pub(crate) enum ContentCommand {
    /// Show the pools: directories in which volumes can be without naming a path
    Pools,
    /// Forget a pool that the configuration does not name any more: what is gone for good
    ForgetPool {
        /// The pool's name
        name: String,
    },
    /// Delete a volume of a pool with its content, unless clients use it
    DeleteVolume {
        /// The volume's name
        name: String,
        /// Do it also while clients use the volume
        #[arg(long)]
        force: bool,
        /// Delete its snapshots too
        #[arg(long)]
        snapshots: bool,
    },
    /// Take a snapshot of a volume of a pool, or of several as they are at one moment
    Snapshot {
        /// The volumes, separated by commas
        #[arg(value_name = "VOLUME[,VOLUME]...", value_delimiter = ',', required = true)]
        volumes: Vec<String>,
        /// What the snapshot is called
        #[arg(value_name = "NAME")]
        name: String,
        /// Protect it from deletion until that is taken back
        #[arg(long)]
        protected: bool,
    },
    /// Show the snapshots
    Snapshots {
        /// Of this volume [default: all]
        volume: Option<String>,
    },
    /// Protect a snapshot from deletion, or take that back
    SetSnapshot {
        /// VOLUME@SNAPSHOT
        snapshot: String,
        /// On or off
        #[arg(long, value_name = "ON|OFF")]
        protected: Switch,
    },
    /// Delete a snapshot
    DeleteSnapshot {
        /// VOLUME@SNAPSHOT
        snapshot: String,
    },
    /// Make a new volume of a snapshot, and serve it
    Clone {
        /// VOLUME@SNAPSHOT
        snapshot: String,
        /// The name of the new volume
        name: String,
        /// Make it a logical unit of this iSCSI target [default: a target of its own]
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
    },
    /// Roll a volume back to its snapshot, unless clients use it
    Rollback {
        /// VOLUME@SNAPSHOT
        snapshot: String,
        /// Do it also while clients use the volume
        #[arg(long)]
        force: bool,
        /// What it holds now becomes this snapshot
        #[arg(long, value_name = "NAME")]
        keep: Option<String>,
    },
}
