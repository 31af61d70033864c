//! The options of `sanwire dvd`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanwire_core::Size;

use super::DeriveCommand;

/// `sanwire dvd`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        sanwire dvd create disk cam --region 16M+8M --allow-ops write --principal 10.0.0.7\n  \
                        sanwire dvd ls\n  sanwire dvd show cam\n  sanwire dvd set cam --until 2h\n  sanwire dvd revoke cam\n  \
                        sanwire dvd test write_once.wasm --command 'write 0+8'\n\n\
                        docs/dvd.md says what they are, docs/dvd-programs.md how programs are written")]
pub(crate) struct DvdArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: DvdCommand,
}

/// What can be done with derived virtual devices.
#[derive(Subcommand, Debug)]
pub(crate) enum DvdCommand {
    /// What a server can be asked about them.
    #[command(flatten)]
    Derive(DeriveCommand),
    /// Ask a program about commands, without a server
    Test(DvdTestArgs),
}

/// `sanwire dvd test`.
#[derive(Args, Debug)]
#[command(
    after_help = "A command is a CDB in hexadecimal digits, or a word with the first block and how many: read, write,\n\
                  verify, write-same, compare-and-write, unmap (several ranges), flush, sanitize, copy-from, copy-to.\n\
                  Behind it may stand\n  by=WHO     who gives it: chap:USER, key:CLIENTID, an iSCSI name, an IP address or a MAC\n  \
                  at=TIME    when, as in 2026-12-24T18:00:00Z\n  \
                  with=FILE  the data that it brings\n  \
                  fails      it does not end well, if the program asks to be told how it ends\n\n\
                  Examples:\n  sanwire dvd test write_once.wasm --command 'write 0+8' --command 'write 4+8'\n  \
                  sanwire dvd test one_writer.wasm --command 'write 0+8 by=chap:a'\n  \
                  sanwire dvd test hours.wasm --time 2026-12-24T09:00:00Z --command '2a000000000000000800'\n\n\
                  docs/dvd-programs.md says how programs are written"
)]
pub(crate) struct DvdTestArgs {
    /// The module of the program
    #[arg(value_name = "FILE.wasm")]
    pub(crate) program: PathBuf,

    /// A command to ask about; may be given several times: they come one after the other
    #[arg(long = "command", value_name = "COMMAND", required = true)]
    pub(crate) commands: Vec<String>,

    /// Who gives commands that say nothing else
    #[arg(long, value_name = "WHO", default_value = "127.0.0.1")]
    pub(crate) principal: String,

    /// When commands are given that say nothing else [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,

    /// The data of commands that say nothing else, but for flush, unmap and what reads
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,

    /// Where the state of the program is kept from one run to the next [default: it is not]
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<PathBuf>,

    /// How large the device is
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) size: Size,

    /// Bytes of a block of the device: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = block_bytes)]
    pub(crate) block_size: u32,

    /// Fuel for each call, to see what would be enough [default: 100000, as in a server]
    #[arg(long, value_name = "UNITS")]
    pub(crate) fuel: Option<u64>,
}

fn block_bytes(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err("a block has 512 or 4096 bytes".into()),
    }
}
