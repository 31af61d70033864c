//! `sanwire info`.

use sanwire_core::Size;
use sanwire_initiator::VolumeInfo;
use serde_json::{Value, json};

use crate::args::InfoArgs;
use crate::connect::Connection;
use crate::failure::misuse;
use crate::output;

/// Prints what is known of one volume.
pub(crate) fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let name = args.url.volume().map_err(|error| misuse(error.to_string()))?;
    let connection = Connection::open(&args.url, &args.client)?;
    let info = connection.volume(name)?.info();
    if args.json {
        return Ok(output::print(&format!("{}\n", serde_json::to_string_pretty(&to_json(&info))?))?);
    }
    Ok(output::print(&describe(&info))?)
}

/// The volume for programs: sizes in bytes.
pub(super) fn to_json(info: &VolumeInfo) -> Value {
    json!({
        "name": *info.name,
        "lun": info.lun.number(),
        "size_bytes": info.size_bytes,
        "block_bytes": info.block_bytes,
        "physical_block_bytes": info.physical_block_bytes,
        "read_only": info.read_only,
        "discards": info.discards,
        "transfer_max_bytes": info.transfer_max_bytes,
        "server": *info.server,
        "wire": *info.wire,
        "mtu_bytes": info.mtu_bytes,
    })
}

fn describe(info: &VolumeInfo) -> String {
    let yes_no = |is_so| if is_so { "yes" } else { "no" };
    let rows = [
        ("volume", info.name.to_string()),
        ("number", info.lun.to_string()),
        ("size", format!("{} ({} bytes)", Size(info.size_bytes), info.size_bytes)),
        ("block", format!("{} bytes, {} on the medium", info.block_bytes, info.physical_block_bytes)),
        ("read-only", yes_no(info.read_only).into()),
        ("discards", yes_no(info.discards).into()),
        ("longest transfer", Size(info.transfer_max_bytes.into()).to_string()),
        ("server", info.server.to_string()),
        ("wire", format!("{}, MTU {}", info.wire, info.mtu_bytes)),
    ];
    rows.iter().map(|(key, value)| format!("{key:<18}{value}\n")).collect()
}
