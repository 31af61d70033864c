//! The options by which volumes are derived from others, at a server.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanwire_core::Protection;
use sanwire_initiator::Url;

use super::{AskingArgs, ReachArgs, Switch};
use crate::config::ServerName;

/// What a server can be asked about volumes that are derived from others.
#[derive(Subcommand, Debug)]
pub(crate) enum DeriveCommand {
    /// Derive a volume from another one: a part of it, for those who are named
    Create(Box<DvdCreateArgs>),
    /// Derive all volumes of a list, or none of them: up to 1000 at a time
    #[command(after_help = "The list is TOML or JSON, with what `dvd create` has as arguments:\n  \
                            [[dvd]]\n  \
                            parent = \"disk\"\n  \
                            name = \"cam\"\n  \
                            regions = [\"16M+8M\"]\n  \
                            operations = [\"read\", \"write\"]\n  \
                            principals = [\"10.0.0.7\"]\n  \
                            until = \"30days\"\n\n\
                            There are read_only, security, owners and target, too. No volume of a list\n\
                            has a program, or is derived from another one of it.\n\n\
                            As JSON: [{ \"parent\": \"disk\", \"name\": \"cam\", \"principals\": [\"any\"] }]\n\n\
                            Example:\n  \
                            make-list | sanwire dvd create-list -")]
    CreateList {
        /// A file with the list, or - for stdin
        #[arg(value_name = "FILE")]
        list: PathBuf,
        /// Which server.
        #[command(flatten)]
        way: Box<WayArgs>,
    },
    /// List the volumes that are derived from others
    Ls {
        /// Those that are derived from this one, and from these [default: all]
        parent: Option<String>,
        /// Which server.
        #[command(flatten)]
        way: Box<WayArgs>,
    },
    /// Show one of them: regions, operations, principals, the time that is left, and what each principal has done
    Show {
        /// Its name
        name: String,
        /// Which server.
        #[command(flatten)]
        way: Box<WayArgs>,
    },
    /// Have one of them end at another time, earlier or later: never after that from which it is derived
    Set {
        /// Its name
        name: String,
        /// When: a time like 2027-01-31T18:00:00Z, or how long from now on, like 2h
        #[arg(long, value_name = "TIME", required_unless_present = "no_until", conflicts_with = "no_until")]
        until: Option<String>,
        /// It ends when it is revoked, or with that from which it is derived
        #[arg(long)]
        no_until: bool,
        /// Which server.
        #[command(flatten)]
        way: Box<WayArgs>,
    },
    /// Revoke one of them, and those that are derived from it: at once, whoever uses it
    Revoke {
        /// Its name
        name: String,
        /// Which server.
        #[command(flatten)]
        way: Box<WayArgs>,
    },
}

/// `sanwire dvd create`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        sanwire dvd create disk cam --region 16M+8M --allow-ops write --principal 10.0.0.7\n  \
                        sanwire dvd create disk part --region 0+1G 4G+1G --principal chap:alice --until 30days\n  \
                        sanwire dvd create disk all --at hs+ip://storage --principal key:$(sanwire id)\n  \
                        sanwire dvd create disk movie --file /mnt/disk/movie.mkv --principal 10.0.0.7\n\n\
                        A principal is one of\n  \
                        any                who may reach the server\n  \
                        ADDR, ADDR/BITS    who comes from such an address\n  \
                        key:ID             the client with the key of this id (`sanwire id`)\n  \
                        chap:USER          an iSCSI initiator that knows the CHAP secret of USER\n  \
                        claimed:IQN        an iSCSI initiator that says to be called so (* and ? as usual)\n  \
                        claimed:MAC        a station that says to have this Ethernet address")]
pub(crate) struct DvdCreateArgs {
    /// The volume from which it is derived
    pub(crate) parent: String,

    /// What it is called
    pub(crate) name: String,

    /// The parts of the parent that it has, in this order, in bytes: whole blocks [default: all of it]
    #[arg(long = "region", value_name = "OFFSET+LENGTH", num_args = 1..)]
    pub(crate) regions: Vec<String>,

    /// What may be done with it: read, write, discard, management, reservations, copy-source, copy-target, or operation codes like
    /// 8Fh [default: what may be done with the parent]
    #[arg(long = "allow-ops", value_name = "OPERATION,...", value_delimiter = ',')]
    pub(crate) operations: Vec<String>,

    /// Who may use it
    #[arg(long = "principal", value_name = "WHO", num_args = 1.., required = true)]
    pub(crate) principals: Vec<String>,

    /// How long: a time like 2027-01-31T18:00:00Z, or how long from now on, like 2h [default: until it is revoked]
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,

    /// The WebAssembly module that judges its commands
    #[arg(long, value_name = "FILE.wasm")]
    pub(crate) program: Option<PathBuf>,

    /// It cannot be written
    #[arg(long)]
    pub(crate) read_only: bool,

    /// The protection level over HyperSCSI, HDSP and VISA [default: that of the parent, which is the least]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) security: Option<Protection>,

    /// Who may derive volumes from it, besides the owners of the parent
    #[arg(long = "owner", value_name = "WHO", num_args = 1..)]
    pub(crate) owners: Vec<String>,

    /// Make it a logical unit of this iSCSI target [default: a target of its own]
    #[arg(long, value_name = "IQN")]
    pub(crate) target: Option<String>,

    /// A file as a device.
    #[command(flatten)]
    pub(crate) file: FileArgs,

    /// Which server.
    #[command(flatten)]
    pub(crate) way: WayArgs,
}

/// A file that is to be a device.
#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// It is this file, which is on a file system of this host whose disk is the parent (ext2, ext3, ext4, XFS), and read-only. It ends when
    /// this command does, and when the file is truncated, deleted, renamed, or lies elsewhere on its disk
    #[arg(id = "file", long = "file", value_name = "PATH", conflicts_with_all = ["regions", "until", "read_only"])]
    pub(crate) path: Option<PathBuf>,

    /// The file can be written, in place; nobody may have it open on this host meanwhile
    #[arg(long, requires = "file")]
    pub(crate) writable: bool,

    /// Whether the file is immutable meanwhile, as by `chattr +i`: no program of this host changes or moves it then [default: on with
    /// --writable, else off]
    #[arg(long, value_name = "on|off", requires = "file")]
    pub(crate) pin: Option<Switch>,

    /// Take it on trust that the parent is the disk of the file: on another one, others get blocks of other files
    #[arg(long, requires = "file")]
    pub(crate) device_is_parent: bool,
}

/// Which server is asked, and how.
#[derive(Args, Debug)]
pub(crate) struct WayArgs {
    /// A server elsewhere, over HyperSCSI or VISA: as its manager, or as an owner of the parent [default: one of this host]
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "socket"])]
    pub(crate) at: Option<Url>,

    /// Which server of this host, by its name [default: the only one that runs here]
    #[arg(long, value_name = "NAME", conflicts_with = "socket")]
    pub(crate) server: Option<ServerName>,

    /// The socket of a server that was started with --control PATH
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// On which terms.
    #[command(flatten)]
    pub(crate) terms: AskingArgs,

    /// How to connect.
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}
