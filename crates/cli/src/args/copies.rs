//! What is done with the copies of an array that is in use.

use clap::Subcommand;

/// About the copies of arrays.
#[derive(Subcommand, Debug)]
pub(crate) enum CopiesCommand {
    /// Compare the copies of an array while it is in use, and make them the same where they differ
    ScrubVolume {
        /// The volume's name
        name: String,
    },
    /// Have another store take the place of a member of an array that is gone, while it is in use
    ReplaceMember {
        /// The volume's name
        name: String,
        /// The member that is gone, from 1 on
        member: usize,
        /// The store that takes its place, as for a `member`; all that it holds is lost
        store: String,
    },
    /// Make an array longer while it is in use: by all that its members have room for, and by other stores behind them
    GrowArray {
        /// The volume's name
        name: String,
        /// A store that comes behind the members, of an array whose parts stand one behind the other; all that it holds is lost. Of mirrors
        /// as many at once as hold the same
        #[arg(long = "add", value_name = "STORE")]
        added: Vec<String>,
    },
}
