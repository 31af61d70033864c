//! `sanwire cp`.

mod connections;
mod direct;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use sanwire_core::Size;
use sanwire_initiator::{Server, Url};
use sanwire_server::written_seconds;
use serde_json::json;

use self::connections::Connections;
use self::direct::{Attempt, Side, Wanted};
use super::assembled::{ArrayVolume, check_options};
use crate::args::{CpArgs, CpEnd};
use crate::config::state_directory;
use crate::connect::{Connection, check_protocol, options_of_one};
use crate::copy::{
    Copied, CopyOptions, End, Image, Interrupted, Journal, Key, check_fit, copy, find_data, read_in, write_out,
};
use crate::failure::misuse;
use crate::parking::block_on;
use crate::{output, signals};

/// Copies, showing how far it is.
pub(crate) fn run(args: &CpArgs) -> anyhow::Result<()> {
    check(args)?;
    let bar = bar();
    let start = Instant::now();
    let copied = match (&args.from, &args.to) {
        (CpEnd::Pipe, _) => from_stdin(args, &bar).map(|copied| (copied, None)),
        (_, CpEnd::Pipe) => to_stdout(args, &bar).map(|copied| (copied, None)),
        _ => between(args, &bar),
    };
    let (copied, way) = copied.inspect_err(|_| bar.abandon())?;
    bar.finish_and_clear();
    let text = match args.json {
        true => format!("{}\n", to_json(copied, way.as_deref(), start.elapsed())),
        false => summary(copied, way.as_deref(), start.elapsed()),
    };
    if args.to == CpEnd::Pipe {
        eprint!("{text}");
        return Ok(());
    }
    Ok(output::print(&text)?)
}

/// Ends that do not go together are a mistake.
fn check(args: &CpArgs) -> anyhow::Result<()> {
    let ends = [&args.from, &args.to];
    let servers = ends.iter().filter_map(|end| if let CpEnd::Volume(url) = end { Some(&url.server) } else { None });
    let servers: Vec<&Server> = servers.collect();
    let has_array = ends.iter().any(|end| matches!(end, CpEnd::Array(_)));
    if servers.is_empty() && !has_array {
        return Err(misuse(
            "neither end is a volume: copy files with cp(1), or name a volume like hs+ip://HOST/VOLUME, or array:NAME",
        ));
    }
    // An array is the same one however it is found.
    if args.from.to_string() == args.to.to_string() {
        return Err(misuse(format!("{} is both ends of the copy: name two", args.from)));
    }
    let has_pipe = args.from == CpEnd::Pipe || args.to == CpEnd::Pipe;
    if has_pipe && (args.resume || args.verify) {
        return Err(misuse("a pipe cannot be read twice: leave out --resume and --verify"));
    }
    if servers.is_empty() {
        check_options("cp")?;
    } else {
        check_protocol(&args.client, &servers)?;
    }
    if args.direct {
        direct::check_ends(&args.from, &args.to).map_err(|reason| misuse(format!("{reason}: leave out --direct")))?;
    }
    if args.to == CpEnd::Pipe && io::stdout().is_terminal() {
        return Err(misuse("stdout is a terminal: send it to a file or another program"));
    }
    Ok(())
}

/// An end, and what it needs meanwhile. The end is to be dropped first: the array waits for that.
struct Opened {
    end: End,
    array: Option<ArrayVolume>,
}

/// Between two things that can be read anywhere, in any order.
fn between(args: &CpArgs, bar: &ProgressBar) -> anyhow::Result<(Copied, Option<String>)> {
    let connections = Connections::open(args)?;
    let Opened { array: source, end: from } = open(&args.from, args, connections.of_source(), Image::open_source)?;
    let destination = open(&args.to, args, connections.of_destination(), Image::open_destination)?;
    let Opened { array: destination, end: mut to } = destination;
    look_for_writers(args, &to, connections.of_destination())?;
    signals::on_suspend(connections.pausers()).context("cannot catch signals")?;
    let journal = Journal::new(&state_directory()?.join("cp"), key(args, &from, &to)?)?;
    let done_bytes = begin(args, journal.load(), journal.must_compare())?;
    // What the server does by itself goes over no wire, so that nothing would hold it to a cap.
    let by_server = args.client.cap.is_none() && is_one_server(&args.from, &args.to);
    let options = CopyOptions { depth: args.depth, done_bytes, verify: args.verify, by_server };
    bar.set_length(from.size_bytes());
    if let Some((first, second)) = connections.of_two_servers() {
        let (size_bytes, destination) = (from.size_bytes(), to.identity()?);
        let security = args.client.security.0.max(from.protection()).max(to.protection());
        let wanted =
            Wanted { args, size_bytes, destination, security, resumed_bytes: done_bytes, journal: &journal, bar };
        if let Some((copied, way)) = directly(&wanted, (&from, first), (&to, second))? {
            return Ok((copied, Some(way)));
        }
    }
    let connection = connections.run()?;
    if let Some(done_bytes) = done_bytes.filter(|_| !journal.must_compare()) {
        // What was there does not count for the rate.
        bar.set_position(done_bytes);
        bar.tick();
        bar.reset_eta();
    }
    let copying = async {
        if done_bytes.is_none() {
            check_empty(args, &to, from.size_bytes()).await?;
        }
        copy(&from, &mut to, &journal, options, |done_bytes| bar.set_position(done_bytes)).await
    };
    let copied = match &connection {
        Some(connection) => connection.block_on(copying),
        None => block_on(copying),
    }?;
    drop((from, to));
    source.iter().chain(&destination).try_for_each(ArrayVolume::check)?;
    Ok((copied, None))
}

/// Has the source's server copy straight to the destination's, where both allow that: what was copied, and by which way.
///
/// # Errors
/// When it was begun and has failed, or nothing else is wanted.
fn directly(
    wanted: &Wanted<'_>,
    (from, source): (&End, &Connection),
    (to, destination): (&End, &Connection),
) -> anyhow::Result<Option<(Copied, String)>> {
    let args = wanted.args;
    let (CpEnd::Volume(source_url), CpEnd::Volume(destination_url)) = (&args.from, &args.to) else { return Ok(None) };
    if args.no_direct || direct::check_ends(&args.from, &args.to).is_err() {
        return Ok(None);
    }
    to.check_writable()?;
    check_fit(from, to)?;
    if wanted.resumed_bytes.is_none() {
        destination.block_on(check_empty(args, to, wanted.size_bytes))?;
    }
    let from = Side { connection: source, url: source_url };
    match direct::attempt(wanted, from, Side { connection: destination, url: destination_url })? {
        Attempt::Done(copied, way) => Ok(Some((copied, way))),
        Attempt::NotBegun(reason) if args.direct => anyhow::bail!("cannot copy from server to server: {reason}"),
        Attempt::NotBegun(reason) => {
            wanted.bar.suspend(|| eprintln!("sanwire: the data passes this host: {reason}"));
            Ok(None)
        }
    }
}

/// Whether both are volumes that one server is reached for: by iSCSI it may have them in several targets.
fn is_one_server(from: &CpEnd, to: &CpEnd) -> bool {
    match (from, to) {
        (CpEnd::Volume(from), CpEnd::Volume(to)) => match (&from.server, &to.server) {
            (Server::Iscsi(from), Server::Iscsi(to)) => (&from.host, from.port) == (&to.host, to.port),
            // Each session sees one volume.
            (Server::Hdsp(_), _) => false,
            (from, to) => from == to,
        },
        _ => false,
    }
}

/// Connects to the server of one end. What the other end's protocol has is no mistake.
fn connect(url: &Url, args: &CpArgs) -> anyhow::Result<Connection> {
    Connection::open_as(url, &options_of_one(&args.client, &url.server)?)
}

/// From a volume into stdout.
fn to_stdout(args: &CpArgs, bar: &ProgressBar) -> anyhow::Result<Copied> {
    let Opened { array, end: from } = open_alone(&args.from, args, Image::open_source)?;
    bar.set_length(from.size_bytes());
    let mut output = io::stdout().lock();
    let copied = block_on(write_out(&from, &mut output, args.depth, |done_bytes| bar.set_position(done_bytes)))?;
    drop(from);
    array.iter().try_for_each(ArrayVolume::check)?;
    Ok(copied)
}

/// From stdin into a volume.
fn from_stdin(args: &CpArgs, bar: &ProgressBar) -> anyhow::Result<Copied> {
    let Opened { array, end: to } = open_alone(&args.to, args, Image::open_destination)?;
    to.check_writable()?;
    bar.set_length(to.size_bytes());
    let copied = block_on(async {
        check_empty(args, &to, to.size_bytes()).await?;
        read_in(&mut io::stdin().lock(), &to, args.depth, |done_bytes| bar.set_position(done_bytes)).await
    });
    drop(to);
    drop(array);
    copied
}

/// Opens the one volume of a copy, and looks at it; then its connection works on another thread.
fn open_alone(end: &CpEnd, args: &CpArgs, open_image: OpenImage) -> anyhow::Result<Opened> {
    let connection = match end {
        CpEnd::Volume(url) => Some(connect(url, args)?),
        _ => None,
    };
    let opened = open(end, args, connection.as_ref(), open_image)?;
    if *end == args.to {
        look_for_writers(args, &opened.end, connection.as_ref())?;
    }
    let pausers = connection.iter().map(Connection::pauser).collect();
    signals::on_suspend(pausers).context("cannot catch signals")?;
    connection.map(Connection::run_in_background).transpose()?;
    Ok(opened)
}

/// Ends what copies of this host that were killed have left writing to the destination, if that is a volume of a server, and says who else does.
fn look_for_writers(args: &CpArgs, to: &End, connection: Option<&Connection>) -> anyhow::Result<()> {
    let (CpEnd::Volume(url), End::Volume(volume, _), Some(connection)) = (&args.to, to, connection) else {
        return Ok(());
    };
    direct::end_left(Side { connection, url }, &to.identity()?)?;
    connection.warn_of_overwriting(volume)
}

type OpenImage = fn(&Path) -> anyhow::Result<Image>;

/// Opens an end. An array is assembled to be written, and looked at to be read.
fn open(end: &CpEnd, args: &CpArgs, connection: Option<&Connection>, open_image: OpenImage) -> anyhow::Result<Opened> {
    let mut array = None;
    let end = match end {
        CpEnd::Pipe => return Err(misuse("a pipe cannot be opened as a file")),
        CpEnd::File(path) => open_image(path).map(End::Image)?,
        CpEnd::Volume(url) => {
            let name = url.volume().map_err(|error| misuse(error.to_string()))?;
            let connection = connection.context("there is no connection for it")?;
            End::Volume(connection.volume(name)?, url.to_string())
        }
        CpEnd::Array(place) => {
            let reach = &args.client.reach;
            let opened = match *end == args.to {
                true => ArrayVolume::assemble_for_now(place, reach)?,
                false => ArrayVolume::look(place, reach)?,
            };
            let volume = opened.volume()?;
            array = Some(opened);
            End::Volume(volume, place.to_string())
        }
    };
    Ok(Opened { end, array })
}

fn key(args: &CpArgs, from: &End, to: &End) -> anyhow::Result<Key> {
    let name = |end: &CpEnd| match end {
        CpEnd::File(path) => {
            let path = path.canonicalize().with_context(|| path.display().to_string())?;
            Ok::<_, anyhow::Error>(path.display().to_string())
        }
        other => Ok(other.to_string()),
    };
    Ok(Key {
        from: name(&args.from)?,
        to: name(&args.to)?,
        size_bytes: from.size_bytes(),
        source_version: from.version()?,
        destination_identity: to.identity()?,
    })
}

/// Says what becomes of an interrupted copy; gives how much of it was done if it goes on.
fn begin(args: &CpArgs, interrupted: Option<Interrupted>, must_compare: bool) -> anyhow::Result<Option<u64>> {
    let (from, to) = (&args.from, &args.to);
    let Some(Interrupted { done_bytes, at, obstacle }) = interrupted else {
        if args.resume {
            eprintln!("sanwire: no interrupted copy of {from} to {to} is known: it begins at its start");
        }
        return Ok(None);
    };
    let (done, at) = (Size(done_bytes), written_seconds(at));
    if !args.resume {
        let hint = if obstacle.is_none() { "--resume goes on with it, without it" } else { "now" };
        eprintln!(
            "sanwire: an interrupted copy of {from} to {to} is there ({done}, {at}): {hint} the copy begins anew"
        );
        return Ok(None);
    }
    if let Some(obstacle) = obstacle {
        anyhow::bail!("the interrupted copy ({done}, {at}) cannot go on, {obstacle}: copy without --resume");
    }
    let compared = if must_compare { "; what was copied is compared with the source again first" } else { "" };
    eprintln!("sanwire: going on at {done}, where the copy was interrupted {at}{compared}");
    Ok(Some(done_bytes))
}

/// A volume or device that holds something is overwritten only when that is meant.
async fn check_empty(args: &CpArgs, to: &End, size_bytes: u64) -> anyhow::Result<()> {
    if args.overwrite || !to.has_room() {
        return Ok(());
    }
    match find_data(to, 0..size_bytes, args.depth).await? {
        None => Ok(()),
        Some(place_bytes) => Err(misuse(format!(
            "{} holds something (at byte {place_bytes}), which the copy would destroy: look whether somebody uses it, \
             and add --overwrite if that is meant",
            args.to
        ))),
    }
}

/// A bar on stderr; when that is no terminal, nothing is shown.
fn bar() -> ProgressBar {
    const TEMPLATE: &str =
        "{percent:>3}% [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left";
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn summary(copied: Copied, way: Option<&str>, elapsed: Duration) -> String {
    let Copied { resumed_bytes, data_bytes, server_bytes, zero_bytes, verified_bytes } = copied;
    let rate = (data_bytes + zero_bytes) as f64 / elapsed.as_secs_f64().max(1e-9) / f64::from(1 << 20);
    let resumed = match resumed_bytes {
        0 => String::new(),
        bytes => format!(", {} were there from an interrupted copy", Size(bytes)),
    };
    let by_server = match way {
        Some(way) => format!(", straight from server to server ({way})"),
        None if server_bytes > 0 => ", by the server itself".to_owned(),
        None => String::new(),
    };
    let verified = if verified_bytes > 0 { ", verified" } else { "" };
    format!(
        "copied {} ({} data, {} zero{resumed}) in {:.1} s, {rate:.0} MiB/s{by_server}{verified}\n",
        Size(data_bytes + zero_bytes),
        Size(data_bytes),
        Size(zero_bytes),
        elapsed.as_secs_f64(),
    )
}

fn to_json(copied: Copied, way: Option<&str>, elapsed: Duration) -> serde_json::Value {
    json!({
        "data_bytes": copied.data_bytes,
        "server_bytes": copied.server_bytes,
        "zero_bytes": copied.zero_bytes,
        "resumed_bytes": copied.resumed_bytes,
        "verified_bytes": copied.verified_bytes,
        "direct": way.is_some(),
        "way": way,
        "seconds": elapsed.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_well_written_and_the_summary_adds_up() {
        assert_eq!(bar().length(), Some(0));
        let copied = Copied { resumed_bytes: 1 << 30, data_bytes: 1 << 20, zero_bytes: 3 << 20, ..Copied::default() };
        assert_eq!(
            summary(copied, None, Duration::from_secs(2)),
            "copied 4 MiB (1 MiB data, 3 MiB zero, 1 GiB were there from an interrupted copy) in 2.0 s, 2 MiB/s\n"
        );
        let told = to_json(Copied { verified_bytes: 5, ..copied }, Some("hs+ip://b/v"), Duration::from_secs(2));
        assert_eq!(told["resumed_bytes"], 1_u64 << 30);
        assert_eq!((&told["verified_bytes"], &told["seconds"]), (&json!(5), &json!(2.0)));
    }
}
