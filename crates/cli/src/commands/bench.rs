//! `sanwire bench`.

use anyhow::Context;
use sanwire_core::Movement;
use sanwire_initiator::{LinkStatus, Url, VolumeInfo};

use super::assembled::{ArrayVolume, check_options};
use super::info::link_to_json;
use super::movement;
use crate::args::{ArrayPlace, BenchArgs, ByteRange, VolumePlace};
use crate::bench::{Load, Measured, measure};
use crate::connect::Connection;
use crate::failure::misuse;
use crate::parking::block_on;
use crate::{output, signals};

/// Measures and prints.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    if args.reads < 100 && !args.overwrite {
        return Err(misuse("writing destroys what the volume holds: add --overwrite if that is meant"));
    }
    match &args.url {
        VolumePlace::Volume(url) => of_volume(args, url),
        VolumePlace::Array(place) => of_array(args, place),
    }
}

fn of_volume(args: &BenchArgs, url: &Url) -> anyhow::Result<()> {
    let name = url.volume().map_err(|error| misuse(error.to_string()))?;
    let connection = Connection::open(url, &args.client)?;
    let volume = connection.volume(name)?;
    let load = load(args, &volume.info())?;
    if args.reads < 100 {
        connection.warn_of_overwriting(&volume)?;
    }
    signals::on_suspend(vec![connection.pauser()]).context("cannot catch signals")?;
    let measured = connection.block_on(measure(&volume, &load))?;
    let adapter = connection.adapter();
    tell(args, (&load, &measured), &connection.links(), (connection.movement(), adapter.as_deref()))
}

fn of_array(args: &BenchArgs, place: &ArrayPlace) -> anyhow::Result<()> {
    check_options("bench")?;
    let reach = &args.client.reach;
    let array = match args.reads {
        100 => ArrayVolume::look(place, reach)?,
        _ => ArrayVolume::assemble_for_now(place, reach)?,
    };
    let volume = array.volume()?;
    let load = load(args, &volume.info())?;
    let measured = block_on(measure(&volume, &load))?;
    drop(volume);
    array.check()?;
    drop(array);
    tell(args, (&load, &measured), &[], (None, None))
}

fn tell(
    args: &BenchArgs,
    (load, measured): (&Load, &Measured),
    links: &[LinkStatus],
    (data, adapter): (Option<Movement>, Option<&str>),
) -> anyhow::Result<()> {
    Ok(output::print(&if args.json {
        let mut value = measured.to_json(&args.url, load);
        value["links"] = links.iter().map(link_to_json).collect();
        value["data"] = data.map(|data| movement::to_json(&data, adapter)).into();
        format!("{}\n", serde_json::to_string_pretty(&value)?)
    } else {
        let links: String = links.iter().map(describe_sent).collect();
        let data = data.map(|data| movement::rows(&data, adapter)).unwrap_or_default();
        let data: String = data.iter().map(|[what, told]| format!("  {what:<15}{told}\n")).collect();
        format!("{}{links}{data}", measured.describe(&args.url, load))
    })?)
}

/// What a link had to do for it, for people.
fn describe_sent(link: &LinkStatus) -> String {
    let LinkStatus { path, sent_packets, resent_packets, timeouts, .. } = link;
    let peer = path.peer;
    format!(
        "  link           {peer}, {sent_packets} packets sent, {resent_packets} of them again, {timeouts} timeouts\n"
    )
}

/// The load, checked against the volume.
fn load(args: &BenchArgs, info: &VolumeInfo) -> anyhow::Result<Load> {
    let range = args.range.unwrap_or(ByteRange { start_bytes: 0, end_bytes: info.size_bytes });
    let block_bytes = args.block;
    if !block_bytes.is_multiple_of(info.block_bytes) || block_bytes > info.transfer_max_bytes {
        let (unit, max) = (info.block_bytes, info.transfer_max_bytes);
        return Err(misuse(format!("--block {block_bytes}: {} takes multiples of {unit} up to {max} bytes", args.url)));
    }
    if range.end_bytes > info.size_bytes || !range.start_bytes.is_multiple_of(info.block_bytes.into()) {
        let (size, unit) = (info.size_bytes, info.block_bytes);
        return Err(misuse(format!("--range: {} has {size} bytes in blocks of {unit}: stay within", args.url)));
    }
    if range.end_bytes - range.start_bytes < block_bytes.into() {
        return Err(misuse("--range is shorter than one --block: make it longer"));
    }
    Ok(Load {
        block_bytes,
        depth: args.depth,
        reads_percent: args.reads,
        pattern: args.pattern,
        time: args.time,
        range,
        seed: args.seed,
    })
}
