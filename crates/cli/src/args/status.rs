//! The options of `sanwire status`.

use std::time::Duration;

use clap::Args;

use super::client::seconds;

/// `sanwire status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sanwire status\n  sanwire status --rate 2\n  sanwire status --json")]
pub(crate) struct StatusArgs {
    /// Measure for so many seconds what each attachment does in one
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) rate: Option<Duration>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
