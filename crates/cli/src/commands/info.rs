//! `sanwire info`.

mod array;

use sanwire_core::Size;
use sanwire_initiator::{LinkStatus, Url, VolumeInfo, WireUnit};
use serde_json::{Value, json};

use super::movement;
use crate::args::{InfoArgs, VolumePlace};
use crate::connect::Connection;
use crate::failure::misuse;
use crate::output;

/// Prints what is known of one volume.
pub(crate) fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let url = match &args.url {
        VolumePlace::Volume(url) => url,
        VolumePlace::Array(place) => return array::print(place, args.json),
    };
    let name = url.volume().map_err(|error| misuse(error.to_string()))?;
    let connection = Connection::open(url, &args.client)?;
    let info = connection.volume(name)?.info();
    let (links, adapter) = (connection.links(), connection.adapter());
    if args.json {
        let mut value = to_json(&info, url);
        value["links"] = links.iter().map(link_to_json).collect();
        value["receive_path"] = connection.receive_path().into();
        value["data"] = connection.movement().map(|data| movement::to_json(&data, adapter.as_deref())).into();
        return Ok(output::print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?);
    }
    let links: String = links.iter().map(describe_link).collect();
    let path = connection.receive_path().map(|path| format!("{:<18}by {path}\n", "packets come"));
    let data = connection.movement().map(|data| movement::rows(&data, adapter.as_deref())).unwrap_or_default();
    let data: String = data.iter().map(|[what, told]| format!("{what:<18}{told}\n")).collect();
    Ok(output::print(&format!("{}{}{links}{data}", describe(&info), path.unwrap_or_default()))?)
}

/// A link for programs: times in microseconds.
pub(super) fn link_to_json(link: &LinkStatus) -> Value {
    json!({
        "peer": link.path.peer.to_string(),
        "packet_max_bytes": link.packet_max_bytes,
        "round_trip_us": link.round_trip.map(|time| time.as_micros() as u64),
        "bytes_per_second": link.bytes_per_second,
        "sent_packets": link.sent_packets,
        "resent_packets": link.resent_packets,
        "timeouts": link.timeouts,
        "state": state(link),
    })
}

fn describe_link(link: &LinkStatus) -> String {
    let round_trip = link.round_trip.map_or("not measured".to_owned(), |time| format!("{} us", time.as_micros()));
    let rate = Size(link.bytes_per_second);
    let (peer, bytes) = (link.path.peer, link.packet_max_bytes);
    format!("{:<18}{peer}, {}, {bytes} bytes, round trip {round_trip}, {rate}/s\n", "link", state(link))
}

fn state(link: &LinkStatus) -> &'static str {
    if link.is_live { "live" } else { "silent" }
}

/// The volume for programs: sizes in bytes.
pub(super) fn to_json(info: &VolumeInfo, url: &Url) -> Value {
    let (unit, unit_bytes) = match info.unit {
        WireUnit::Packet(bytes) => ("packet_max_bytes", bytes),
        WireUnit::DataSegment(bytes) => ("data_segment_max_bytes", bytes),
    };
    json!({
        "url": url.to_string(),
        "name": *info.name,
        "identity": identity(info),
        "lun": info.lun.number(),
        "size_bytes": info.size_bytes,
        "block_bytes": info.block_bytes,
        "physical_block_bytes": info.physical_block_bytes,
        "read_only": info.read_only,
        "discards": info.discards,
        "transfer_max_bytes": info.transfer_max_bytes,
        "server": *info.server,
        "wire": *info.wire,
        unit: unit_bytes,
        "security": info.protection.map(|protection| protection.to_string()),
        "compression": info.is_compressed,
        "cap_bytes_per_second": info.rate_cap_bytes_per_second,
    })
}

/// What stays the same of a volume, and is another volume's never: its NAA name, or all that its server calls it.
pub(super) fn identity(info: &VolumeInfo) -> String {
    info.naa.map_or_else(|| info.identity.to_string(), |naa| format!("naa.{naa:016x}"))
}

fn describe(info: &VolumeInfo) -> String {
    let unit = match info.unit {
        WireUnit::Packet(bytes) => format!("packets of up to {bytes} bytes"),
        WireUnit::DataSegment(bytes) => format!("data segments of up to {bytes} bytes"),
    };
    let yes_no = |is_so| if is_so { "yes" } else { "no" };
    let rows = [
        ("volume", info.name.to_string()),
        ("identity", identity(info)),
        ("number", info.lun.to_string()),
        ("size", format!("{} ({} bytes)", Size(info.size_bytes), info.size_bytes)),
        ("block", format!("{} bytes, {} on the medium", info.block_bytes, info.physical_block_bytes)),
        ("read-only", yes_no(info.read_only).into()),
        ("discards", yes_no(info.discards).into()),
        ("longest transfer", Size(info.transfer_max_bytes.into()).to_string()),
        ("server", info.server.to_string()),
        ("wire", format!("{}, {unit}", info.wire)),
        ("security", info.protection.unwrap_or_default().to_string()),
        ("compression", yes_no(info.is_compressed).into()),
        ("cap", info.rate_cap_bytes_per_second.map_or("none".into(), |cap| format!("{}/s", Size(cap)))),
    ];
    rows.iter().map(|(key, value)| format!("{key:<18}{value}\n")).collect()
}

/// The largest packet of the path to a volume, in bytes, where packets carry it.
pub(super) fn packet_max_bytes(volume: &VolumeInfo) -> Option<u32> {
    match volume.unit {
        WireUnit::Packet(bytes) => Some(bytes),
        WireUnit::DataSegment(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_volume;

    #[test]
    fn what_a_wire_carries_at_once_has_the_name_that_it_has_there() {
        let url: Url = "hs+ip://box/disk".parse().unwrap();
        let packet = test_volume::info(1 << 30, 4096);
        let segment = VolumeInfo { unit: WireUnit::DataSegment(262_144), wire: "iSCSI".into(), ..packet.clone() };
        assert!(describe(&packet).contains("none, packets of up to 1500 bytes\n"));
        assert!(describe(&segment).contains("iSCSI, data segments of up to 262144 bytes\n"));
        let (packet, segment) = (to_json(&packet, &url), to_json(&segment, &url));
        assert_eq!((&packet["packet_max_bytes"], packet.get("data_segment_max_bytes")), (&1500.into(), None));
        assert_eq!((&segment["data_segment_max_bytes"], segment.get("packet_max_bytes")), (&262_144.into(), None));
        assert_eq!(packet["url"], "hs+ip://box/disk");
    }
}
