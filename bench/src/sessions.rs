//! Many sessions with one iSCSI target, which do nothing but stay.

use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use clap::Args;
use sanwire_initiator::{Client, ClientOptions, Url, Volume};

/// `sanwire-bench sessions`.
#[derive(Args, Debug)]
pub(crate) struct SessionsArgs {
    /// A logical unit of the target
    url: Url,
    /// How many
    count: usize,
}

/// Logs in as often, each time as somebody else, and stays until it is killed.
///
/// # Errors
/// When a login fails, or a session ends.
pub(crate) fn run(args: &SessionsArgs) -> Result<()> {
    let held: Vec<(Volume, JoinHandle<()>)> = (0..args.count).map(|_| log_in(&args.url)).collect::<Result<_>>()?;
    for (volume, thread) in held {
        if thread.join().is_err() {
            bail!("the thread of a session with {} panicked", volume.info().server);
        }
    }
    bail!("no session is left")
}

fn log_in(url: &Url) -> Result<(Volume, JoinHandle<()>)> {
    let mut options = ClientOptions::anonymous()?;
    // Nothing is transferred.
    options.memory_bytes = 1 << 20;
    let mut client = Client::connect(url, &options)?;
    let volume = client.open(url.volume()?)?;
    Ok((volume, client.run_in_background().context("no thread for a session")?))
}
