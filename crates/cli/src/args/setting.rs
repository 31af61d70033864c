//! What can be changed of a volume while it is served.

use clap::Args;
use sanwire_core::Protection;

use super::Switch;

/// `set-volume`.
#[derive(Args, Debug)]
pub(crate) struct SetVolumeArgs {
    /// The volume's name
    pub(crate) name: String,

    /// What is to be otherwise.
    #[command(flatten)]
    pub(crate) setting: VolumeSetting,
}

/// One of these.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct VolumeSetting {
    /// The protection level over HyperSCSI, HDSP and VISA: none, hash, aes-128-gcm, aes-256-gcm or chacha20-poly1305
    #[arg(long, value_name = "LEVEL")]
    pub(crate) security: Option<Protection>,

    /// Whether its content is neither deleted nor rolled back: on or off
    #[arg(long, value_name = "ON|OFF")]
    pub(crate) protected: Option<Switch>,

    /// Who may derive volumes from it, and list and revoke these, without managing the server: in place of those who could before
    #[arg(long = "owner", value_name = "WHO", num_args = 1..)]
    pub(crate) owners: Vec<String>,

    /// Nobody may but who manages the server
    #[arg(long)]
    pub(crate) no_owner: bool,
}
