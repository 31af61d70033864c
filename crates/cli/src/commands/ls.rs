//! `sanwire ls`.

use sanwire_attach::{Kind, Record, Registry};
use sanwire_core::Size;
use sanwire_initiator::{Url, VolumeInfo};

use super::info::to_json;
use crate::args::{ClientArgs, LsArgs};
use crate::connect::Connection;
use crate::output;

/// Lists a server's volumes, or what is attached here.
pub(crate) fn run(args: &LsArgs) -> anyhow::Result<()> {
    let text = match &args.url {
        Some(url) => volumes(url, &args.client, args.json)?,
        None => attachments(&Registry::open()?.list()?, args.json)?,
    };
    Ok(output::print(&text)?)
}

fn volumes(url: &Url, client: &ClientArgs, json: bool) -> anyhow::Result<String> {
    let connection = Connection::open(url, client)?;
    let mut volumes = connection.list()?;
    if let Some(name) = &url.volume {
        volumes.retain(|volume| *volume.name == **name);
        anyhow::ensure!(
            !volumes.is_empty(),
            "{} has no volume {name}: `sanwire ls {}` lists them",
            url.server,
            url.server
        );
    }
    if json {
        let volumes: Vec<_> = volumes.iter().map(to_json).collect();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&volumes)?));
    }
    Ok(volume_table(url, &volumes))
}

fn volume_table(url: &Url, volumes: &[VolumeInfo]) -> String {
    let rows: Vec<_> = volumes
        .iter()
        .map(|volume| {
            [
                volume.lun.to_string(),
                volume.name.to_string(),
                Size(volume.size_bytes).to_string(),
                Size(volume.block_bytes.into()).to_string(),
                if volume.read_only { "ro" } else { "rw" }.into(),
                format!("{}/{}", url.server, volume.name),
            ]
        })
        .collect();
    output::table(["LUN", "NAME", "SIZE", "BLOCK", "MODE", "URL"], &rows)
}

fn attachments(records: &[Record], json: bool) -> anyhow::Result<String> {
    if json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(records)?));
    }
    let rows: Vec<_> = records
        .iter()
        .map(|record| {
            let (kind, place) = match &record.kind {
                Kind::Fuse { file, .. } => ("fuse", file.display().to_string()),
                Kind::Nbd { url, .. } => ("nbd", url.clone()),
            };
            let device = record.device().map_or_else(|| "-".into(), |device| device.display().to_string());
            [record.volume.clone(), kind.into(), device, place, record.pid.to_string()]
        })
        .collect();
    Ok(output::table(["VOLUME", "AS", "DEVICE", "AT", "PROCESS"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_volume;

    #[test]
    fn a_volume_is_one_line_with_its_url() {
        let info = VolumeInfo { read_only: true, ..test_volume::info(1 << 30, 4096) };
        let table = volume_table(&"hs+ip://box".parse().unwrap(), &[info]);
        let expected = "LUN  NAME  SIZE   BLOCK  MODE  URL\n0    disk  1 GiB  4 KiB  ro    hs+ip://box/disk\n";
        assert_eq!(table, expected);
    }
}
