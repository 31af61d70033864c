//! The options of `sanwire bench`.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sanwire_core::Size;

use super::client::{ClientArgs, seconds};
use super::place::VolumePlace;

/// In which order `bench` goes through the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Pattern {
    /// Anywhere
    Random,
    /// One block after the other, from the start again at the end
    Sequential,
}

/// A part of a volume, `START-END` in sizes; the end is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ByteRange {
    pub(crate) start_bytes: u64,
    pub(crate) end_bytes: u64,
}

impl FromStr for ByteRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let size = |text: &str| text.parse().map(|Size(bytes)| bytes).ok();
        let bounds = text.split_once('-').and_then(|(start, end)| Some((size(start)?, size(end)?)));
        match bounds {
            Some((start_bytes, end_bytes)) if start_bytes < end_bytes => Ok(ByteRange { start_bytes, end_bytes }),
            _ => Err("a range is START-END with START below END, like 0-512M or 1G-2G"),
        }
    }
}

/// `sanwire bench`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sanwire bench hs+ip://127.0.0.1/disk0
  sanwire bench hs+eth://eth0/storage/disk0 --block 4K --depth 32 --time 10
  sanwire bench hs+ip://127.0.0.1/scratch --block 512K --pattern sequential --reads 0 --overwrite")]
pub(crate) struct BenchArgs {
    /// The volume, or array:NAME, which this host assembles (for reading it is only looked at)
    pub(crate) url: VolumePlace,

    /// Bytes of one operation, a multiple of the volume's block
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = block)]
    pub(crate) block: u32,

    /// Operations in flight
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,

    /// How many of 100 operations are reads, the others being writes
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) reads: u8,

    /// The order of the blocks
    #[arg(long, default_value = "random")]
    pub(crate) pattern: Pattern,

    /// How long to measure, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) time: Duration,

    /// The part of the volume to use [default: all of it]
    #[arg(long, value_name = "START-END")]
    pub(crate) range: Option<ByteRange>,

    /// Allow writes: what the range holds is lost
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Where the random numbers start
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) seed: u64,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// How to connect.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

fn block(text: &str) -> Result<u32, String> {
    let Size(bytes) = text.parse().map_err(|error: sanwire_core::ParseSizeError| error.to_string())?;
    let block = u32::try_from(bytes).ok().filter(|block| *block > 0 && block.is_multiple_of(512));
    block.ok_or_else(|| "a block is a multiple of 512 bytes below 4 GiB, like 4K".into())
}
