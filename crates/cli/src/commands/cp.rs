//! `sanwire cp`.

use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use sanwire_core::Size;

use crate::args::{CpArgs, CpEnd};
use crate::config::state_directory;
use crate::connect::Connection;
use crate::copy::{Copied, CopyOptions, End, Image, Journal, Key, copy};
use crate::failure::misuse;
use crate::{output, signals};

/// Copies, showing how far it is.
pub(crate) fn run(args: &CpArgs) -> anyhow::Result<()> {
    let connection = match (&args.from, &args.to) {
        (CpEnd::File(_), CpEnd::File(_)) => {
            return Err(misuse(
                "neither end is a volume: copy files with cp(1), or name a volume like hs+ip://HOST/VOLUME",
            ));
        }
        (from, to) if from == to => return Err(misuse(format!("{from} is both ends of the copy: name two"))),
        (CpEnd::Volume(url), _) | (_, CpEnd::Volume(url)) => Connection::open(url, &args.client)?,
    };
    // A destination on another server has a connection of its own.
    let second = match (&args.from, &args.to) {
        (CpEnd::Volume(from), CpEnd::Volume(to)) if from.server != to.server => {
            Some(Connection::open(to, &args.client)?)
        }
        _ => None,
    };
    let from = open(&args.from, &connection, Image::open_source)?;
    let mut to = open(&args.to, second.as_ref().unwrap_or(&connection), Image::open_destination)?;
    let pausers = [Some(&connection), second.as_ref()].into_iter().flatten().map(Connection::pauser).collect();
    signals::on_suspend(pausers).context("cannot catch signals")?;
    second.map(Connection::run_in_background).transpose()?;
    let journal = Journal::new(&state_directory()?.join("cp"), key(args, &from, &to)?)?;
    let options = CopyOptions { depth: args.depth, restart: args.restart };
    let bar = bar(from.size_bytes());
    let start = Instant::now();
    let copying = copy(&from, &mut to, &journal, options, |done_bytes| bar.set_position(done_bytes));
    let copied = connection.block_on(copying).inspect_err(|_| bar.abandon())?;
    bar.finish_and_clear();
    Ok(output::print(&summary(copied, start.elapsed()))?)
}

fn open(
    end: &CpEnd,
    connection: &Connection,
    open_image: impl FnOnce(&std::path::Path) -> anyhow::Result<Image>,
) -> anyhow::Result<End> {
    match end {
        CpEnd::File(path) => open_image(path).map(End::Image),
        CpEnd::Volume(url) => {
            let name = url.volume().map_err(|error| misuse(error.to_string()))?;
            Ok(End::Volume(connection.volume(name)?, url.to_string()))
        }
    }
}

fn key(args: &CpArgs, from: &End, to: &End) -> anyhow::Result<Key> {
    let name = |end: &CpEnd| match end {
        CpEnd::Volume(url) => Ok(url.to_string()),
        CpEnd::File(path) => {
            let path = path.canonicalize().with_context(|| path.display().to_string())?;
            Ok::<_, anyhow::Error>(path.display().to_string())
        }
    };
    let changed = match from {
        End::Image(image) => Some(image.changed_nanos()?.to_string()),
        End::Volume(..) => None,
    };
    let inode = match to {
        End::Image(image) => Some(image.inode()?),
        End::Volume(..) => None,
    };
    Ok(Key { from: name(&args.from)?, to: name(&args.to)?, size_bytes: from.size_bytes(), changed, inode })
}

/// A bar on stderr; when that is no terminal, nothing is shown.
fn bar(size_bytes: u64) -> ProgressBar {
    const TEMPLATE: &str =
        "{percent:>3}% [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left";
    let bar = ProgressBar::new(size_bytes);
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn summary(copied: Copied, elapsed: Duration) -> String {
    let Copied { resumed_bytes, data_bytes, zero_bytes } = copied;
    let rate = (data_bytes + zero_bytes) as f64 / elapsed.as_secs_f64().max(1e-9) / f64::from(1 << 20);
    let resumed = match resumed_bytes {
        0 => String::new(),
        bytes => format!(", {} were there from an interrupted copy", Size(bytes)),
    };
    format!(
        "copied {} ({} data, {} zero{resumed}) in {:.1} s, {rate:.0} MiB/s\n",
        Size(data_bytes + zero_bytes),
        Size(data_bytes),
        Size(zero_bytes),
        elapsed.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_well_written_and_the_summary_adds_up() {
        assert_eq!(bar(10).length(), Some(10));
        let copied = Copied { resumed_bytes: 1 << 30, data_bytes: 1 << 20, zero_bytes: 3 << 20 };
        assert_eq!(
            summary(copied, Duration::from_secs(2)),
            "copied 4 MiB (1 MiB data, 3 MiB zero, 1 GiB were there from an interrupted copy) in 2.0 s, 2 MiB/s\n"
        );
    }
}
