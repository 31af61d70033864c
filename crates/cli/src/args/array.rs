//! The options of `sanwire array`.

use clap::{Args, Subcommand};
use sanwire_core::Size;
use sanwire_initiator::IserPath;

/// `sanwire array`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sanwire array create data --mirror hs+ip://box1/disk hs+eth://box2/disk\n  \
                        sanwire serve --volume d=array:data,member=hs+ip://box1/disk\n  \
                        sudo sanwire attach array:data\n  \
                        sanwire array show hs+ip://box1/disk\n  \
                        sanwire array replace data 2 hs+ip://box3/disk --member hs+ip://box1/disk\n  \
                        sanwire array scrub data    # while it is attached on this host\n\n\
                        A STORE is written as for --volume: a URL, file:PATH, a block device. All but create and show \
                        are for arrays that nobody uses; scrub, replace and grow also for one that is attached on this \
                        host, which knows its members: then none are named")]
pub(crate) struct ArrayArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: ArrayCommand,
}

/// What can be done with arrays.
#[derive(Subcommand, Debug)]
pub(crate) enum ArrayCommand {
    /// Make an array of volumes; all that they hold is lost
    Create(CreateArgs),
    /// Show what the labels of members say
    Show {
        /// Members of one or more arrays
        #[arg(required = true, value_name = "STORE")]
        stores: Vec<String>,
        /// How they are reached
        #[command(flatten)]
        path: PathArgs,
    },
    /// Bring all members up to date, and compare their copies
    Scrub(UseArgs),
    /// Have another volume take the place of a member that is gone
    Replace {
        /// The array
        name: String,
        /// The member that is gone, from 1 on
        number: usize,
        /// The volume that takes its place; all that it holds is lost
        #[arg(value_name = "STORE")]
        store: String,
        /// A member that is there; may be given several times. None is needed while the array is attached on this host
        #[arg(long = "member", value_name = "STORE")]
        members: Vec<String>,
        /// What keeps other hosts away
        #[command(flatten)]
        guard: GuardArgs,
    },
    /// Take all that the members have room for, after they have become longer, and other volumes behind them
    Grow {
        /// The array and its members
        #[command(flatten)]
        array: UseArgs,
        /// A volume that comes behind the others, of an array whose parts stand one behind the other; all that it holds is lost. Of
        /// mirrors as many at once as hold the same
        #[arg(long = "add", value_name = "STORE")]
        added: Vec<String>,
    },
    /// Take what is there for the array, though the members that are missing may have newer content, which is lost then
    Force(ForceArgs),
}

impl ArrayCommand {
    /// The array that it changes.
    pub(crate) fn changed(&self) -> Option<&str> {
        match self {
            ArrayCommand::Show { .. } => None,
            ArrayCommand::Create(args) => Some(&args.name),
            ArrayCommand::Scrub(args) | ArrayCommand::Grow { array: args, .. } => Some(&args.name),
            ArrayCommand::Force(args) => Some(&args.name),
            ArrayCommand::Replace { name, .. } => Some(name),
        }
    }
}

/// `sanwire array create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The name of the array, by which its members find each other
    pub(crate) name: String,

    /// The volumes
    #[arg(required = true, value_name = "STORE")]
    pub(crate) stores: Vec<String>,

    /// All hold the same; with N, each N in a row do, and the rest is chained or striped [default N: all]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub(crate) mirror: Option<usize>,

    /// Each has a part of all, in turn
    #[arg(long, conflicts_with = "concat")]
    pub(crate) stripe: bool,

    /// One behind the other
    #[arg(long)]
    pub(crate) concat: bool,

    /// How much of a stripe each has in turn: 4K to 1M
    #[arg(long, value_name = "SIZE", default_value = "64K", requires = "stripe")]
    pub(crate) chunk: Size,

    /// Take volumes that hold something, too
    #[arg(long)]
    pub(crate) force: bool,

    /// What keeps other hosts away
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
}

/// Whether all members can be kept from other hosts.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct GuardArgs {
    /// Take members, too, that cannot be reserved for one host: AoE targets and NBD exports. See to it yourself that only one host uses them
    #[arg(long)]
    pub(crate) unfenced: bool,

    /// How they are reached
    #[command(flatten)]
    pub(crate) path: PathArgs,
}

/// How members are reached.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PathArgs {
    /// By what iSER goes to the members that do not say it themselves (iser-path=): tcp (iWARP in software), or rdma (an RDMA adapter of
    /// this host)
    #[arg(long, value_name = "PATH")]
    pub(crate) iser_path: Option<IserPath>,
}

impl GuardArgs {
    /// Whether any of it was said.
    pub(crate) fn is_said(self) -> bool {
        self.unfenced || self.path.iser_path.is_some()
    }
}

/// An array that is worked on.
#[derive(Args, Debug)]
pub(crate) struct UseArgs {
    /// The array
    pub(crate) name: String,
    /// Its members; those that the labels of these name are found by themselves. None while it is attached on this host
    #[arg(value_name = "STORE")]
    pub(crate) stores: Vec<String>,

    /// What keeps other hosts away
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
}

/// An array of which some members are taken for all.
#[derive(Args, Debug)]
pub(crate) struct ForceArgs {
    /// The array
    pub(crate) name: String,
    /// The members that are there; those that the labels of these name are not looked for
    #[arg(required = true, value_name = "STORE")]
    pub(crate) stores: Vec<String>,

    /// What keeps other hosts away
    #[command(flatten)]
    pub(crate) guard: GuardArgs,
}
