//! What was found, for people and for programs.

use sanwire_core::Size;
use sanwire_core::text::printable;
use sanwire_initiator::Url;
use serde::Serialize;
use serde_json::Value;

use super::ways::{BY_ADAPTER, OtherWay, ToldWay};
use super::{Link, Seen, Volumes};
use crate::commands::info::{packet_max_bytes, to_json};
use crate::output;

/// A server for programs.
#[derive(Serialize)]
pub(super) struct Told<'a> {
    name: &'a str,
    url: String,
    wire: &'a str,
    address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_max_bytes: Option<u32>,
    links: &'a [Link],
    others: Vec<ToldWay<'a>>,
    volumes: Vec<Value>,
    problem: Option<&'a str>,
}

pub(super) fn tell<'a>(seen: &'a Seen, volumes: &'a Volumes) -> Told<'a> {
    let (url, first) = (seen.url(), seen.links.first());
    Told {
        name: &seen.name,
        url: url.to_string(),
        wire: seen.wire(),
        address: first.map_or("", |link| &link.address),
        packet_max_bytes: first.and_then(|link| link.packet_max_bytes),
        links: &seen.links,
        others: seen.others.iter().flatten().map(OtherWay::tell).collect(),
        volumes: volumes.iter().flatten().map(|volume| to_json(volume, &url.with_volume(volume))).collect(),
        problem: volumes.as_ref().err().map(String::as_str),
    }
}

/// A line for each way to each volume, and to each server that shows none; and why those show none. `wide` also shows how it is reached.
pub(super) fn describe(found: &[(&Seen, &Volumes)], wide: bool) -> (String, String) {
    let none = || "-".to_owned();
    let mut rows = Vec::new();
    let mut problems = String::new();
    for (seen, volumes) in found {
        let row = |(wire, url, links): (&str, Url, &[Link]), packet: Option<u32>, told: [String; 4]| {
            let links = links.iter().map(Link::describe).collect::<Vec<String>>().join(", ");
            let packet = packet.map_or_else(none, |bytes| bytes.to_string());
            let url = if wire == BY_ADAPTER { format!("{url} --iser-path rdma") } else { url.to_string() };
            let [volume, size, mode, security] = told;
            [seen.name.clone(), volume, size, mode, url, security, wire.to_owned(), packet, links]
        };
        match volumes {
            Ok(volumes) if !volumes.is_empty() => {
                for volume in volumes {
                    let mode = if volume.read_only { "ro" } else { "rw" };
                    let security = volume.protection.map_or_else(none, |protection| protection.to_string());
                    let told = [volume.name.to_string(), Size(volume.size_bytes).to_string(), mode.into(), security];
                    // What the path carries, as `info` says: a server announces what the largest of its interfaces takes.
                    let packet = packet_max_bytes(volume);
                    let ways = seen.ways().into_iter().map(|(wire, url, links)| (wire, url.with_volume(volume), links));
                    rows.extend(ways.map(|way| row(way, packet, told.clone())));
                }
            }
            other => {
                let packet = seen.links.first().and_then(|link| link.packet_max_bytes);
                rows.extend(seen.ways().into_iter().map(|way| row(way, packet, [none(), none(), none(), none()])));
                let why = other.as_ref().err().map_or("it has no volumes for this client", String::as_str);
                problems += &format!("{}: {}\n", seen.url(), printable(why));
            }
        }
    }
    let head = ["SERVER", "VOLUME", "SIZE", "MODE", "URL", "SECURITY", "WIRE", "PACKET", "LINKS"];
    if wide {
        return (output::table(head, &rows), problems);
    }
    let narrow = rows.into_iter().map(|[server, volume, size, mode, url, ..]| [server, volume, size, mode, url]);
    (output::table(["SERVER", "VOLUME", "SIZE", "MODE", "URL"], &narrow.collect::<Vec<_>>()), problems)
}
