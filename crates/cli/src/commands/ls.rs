//! `sanwire ls`.

use std::time::Duration;

use sanwire_attach::{Kind, Record, Registry};
use sanwire_core::Size;
use sanwire_core::text::printable;
use sanwire_initiator::{
    AoeServer, HdspServer, IscsiServer, Server, Station, Url, VolumeInfo, aoe_targets, hdsp_servers, targets,
};
use sanwire_iscsi::DiscoveredTarget;
use serde_json::{Value, json};

use super::info::to_json;
use super::{device, status};
use crate::args::{ClientArgs, LsArgs};
use crate::connect::{Connection, check_protocol, options};
use crate::output;

/// Lists a server's volumes, or what is attached here.
pub(crate) fn run(args: &LsArgs) -> anyhow::Result<()> {
    let text = match &args.url {
        Some(url) => volumes(url, &args.client, args.json)?,
        None => attachments(&Registry::open(device::helper)?.list()?, args.json)?,
    };
    Ok(output::print(&text)?)
}

fn volumes(url: &Url, client: &ClientArgs, json: bool) -> anyhow::Result<String> {
    check_protocol(client, &[&url.server])?;
    let mut volumes = Vec::new();
    let mut failure = None;
    for server in servers(&url.server, client)? {
        let server = Url { server, volume: None };
        match Connection::open(&server, client).and_then(|connection| connection.list()) {
            Ok(found) => volumes.extend(found.into_iter().map(|volume| (server.with_volume(&volume), volume))),
            // One target that takes others only does not hide the rest.
            Err(error) => failure
                .replace(error)
                .iter()
                .for_each(|before| eprintln!("sanwire: {}", printable(&before.to_string()))),
        }
    }
    match failure {
        Some(error) if volumes.is_empty() => return Err(error),
        Some(error) => eprintln!("sanwire: {}", printable(&error.to_string())),
        None => {}
    }
    if url.volume.is_some() {
        volumes.retain(|(of_volume, _)| of_volume == url);
        anyhow::ensure!(!volumes.is_empty(), "there is no {url}: `sanwire ls {}` lists what there is", url.server);
    }
    if json {
        let volumes: Vec<_> = volumes.iter().map(|(url, volume)| to_json(volume, url)).collect();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&volumes)?));
    }
    Ok(volume_table(&volumes))
}

/// How long targets and servers on an Ethernet have to say that they are there.
const ETHERNET_TIME: Duration = Duration::from_secs(1);

/// The server, or each target of an iSCSI host, or on an Ethernet.
fn servers(server: &Server, client: &ClientArgs) -> anyhow::Result<Vec<Server>> {
    match server {
        Server::Iscsi(host) if host.target.is_none() => {
            let targets = targets(host, &options(client, server)?)?;
            let of_target = |target: DiscoveredTarget| IscsiServer { target: Some(target.name), ..host.clone() };
            Ok(targets.into_iter().map(|target| Server::Iscsi(of_target(target))).collect())
        }
        Server::Aoe(ethernet @ AoeServer { address: None, .. }) => {
            let mut servers: Vec<_> =
                aoe_targets(ethernet, ETHERNET_TIME)?.into_iter().map(|found| found.server).collect();
            // A target may answer by several stations.
            servers.dedup();
            Ok(servers.into_iter().map(Server::Aoe).collect())
        }
        Server::Hdsp(ethernet) if ethernet.is_everybody() => {
            let found = hdsp_servers(ethernet, &options(client, server)?, ETHERNET_TIME)?;
            let mut servers: Vec<Server> = Vec::new();
            for found in found {
                let station = Station::Name(found.name);
                let place = Server::Hdsp(HdspServer { interface: ethernet.interface.clone(), server: station });
                servers.extend(Some(place).filter(|place| !servers.contains(place)));
            }
            Ok(servers)
        }
        _ => Ok(vec![server.clone()]),
    }
}

fn volume_table(volumes: &[(Url, VolumeInfo)]) -> String {
    let rows: Vec<_> = volumes
        .iter()
        .map(|(url, volume)| {
            [
                volume.lun.to_string(),
                volume.name.to_string(),
                Size(volume.size_bytes).to_string(),
                Size(volume.block_bytes.into()).to_string(),
                if volume.read_only { "ro" } else { "rw" }.into(),
                url.to_string(),
            ]
        })
        .collect();
    output::table(["LUN", "NAME", "SIZE", "BLOCK", "MODE", "URL"], &rows)
}

fn attachments(records: &[Record], json: bool) -> anyhow::Result<String> {
    if json {
        let attachments: Vec<_> = records.iter().map(attachment_json).collect();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&attachments)?));
    }
    let rows: Vec<_> = records
        .iter()
        .map(|record| {
            let (kind, place) = match &record.kind {
                Kind::Fuse { file, .. } => ("fuse", file.display().to_string()),
                Kind::Nbd { url, .. } => ("nbd", url.clone()),
            };
            let device = record
                .device_name()
                .or(record.device())
                .map_or_else(|| "-".into(), |device| device.display().to_string());
            [record.volume.clone(), status::state(record), kind.into(), device, place, record.pid.to_string()]
        })
        .collect();
    Ok(output::table(["VOLUME", "STATE", "AS", "DEVICE", "AT", "PROCESS"], &rows))
}

/// An attachment for programs: what there is not is null.
pub(super) fn attachment_json(record: &Record) -> Value {
    let (kind, mount_point, file, socket, nbd_url) = match &record.kind {
        Kind::Fuse { mount_point, file, .. } => ("fuse", Some(mount_point), Some(file), None, None),
        Kind::Nbd { socket, url } => ("nbd", None, None, socket.as_ref(), Some(url)),
    };
    json!({
        "url": record.volume,
        "as": kind,
        "device": record.device(),
        "name": record.device_name(),
        "mount_point": mount_point,
        "file": file,
        "socket": socket,
        "nbd_url": nbd_url,
        "pid": record.pid,
        "control": record.control,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_volume;

    #[test]
    fn programs_find_every_attachment_by_the_same_keys() {
        let record = |kind| Record {
            pid: 7,
            pid_started: 1,
            volume: "hs+ip://box/disk".into(),
            name: None,
            identity: None,
            kind,
            status: None,
            control: None,
        };
        let fuse = Kind::Fuse {
            mount_point: "/m".into(),
            made_mount_point: true,
            file: "/m/disk".into(),
            file_system: None,
            device: Some("/dev/loop3".into()),
            name: Some("/dev/sanwire/box/disk".into()),
        };
        let nbd = Kind::Nbd { socket: Some("/s".into()), url: "nbd+unix:///disk?socket=/s".into() };
        let of_array = Record { control: Some("/c".into()), ..record(nbd) };
        assert_eq!(
            attachment_json(&record(fuse)),
            json!({
                "url": "hs+ip://box/disk", "as": "fuse", "device": "/dev/loop3", "name": "/dev/sanwire/box/disk", "mount_point": "/m", "file": "/m/disk",
                "socket": null, "nbd_url": null, "pid": 7, "control": null,
            })
        );
        assert_eq!(
            attachment_json(&of_array),
            json!({
                "url": "hs+ip://box/disk", "as": "nbd", "device": null, "name": null, "mount_point": null, "file": null,
                "socket": "/s", "nbd_url": "nbd+unix:///disk?socket=/s", "pid": 7, "control": "/c",
            })
        );
    }

    #[test]
    fn a_volume_is_one_line_with_its_url() {
        let info = VolumeInfo { read_only: true, ..test_volume::info(1 << 30, 4096) };
        let url: Url = "hs+ip://box".parse().unwrap();
        let table = volume_table(&[(url.with_volume(&info), info)]);
        let expected = "LUN  NAME  SIZE   BLOCK  MODE  URL\n0    disk  1 GiB  4 KiB  ro    hs+ip://box/disk\n";
        assert_eq!(table, expected);
    }
}
