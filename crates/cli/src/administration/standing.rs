//! How a server stands: its wires, its configuration, the reservations of a volume.

use sanwire_core::Size;
use sanwire_server::{ConfigurationStatus, LinkStatus, ReservationKind, ReservationsStatus};

use super::tables::{origin_name, show_deviations};
use crate::output;

pub(super) fn show_links(links: &[LinkStatus]) -> String {
    let row = |link: &LinkStatus| {
        let connections = link.connections.map_or_else(|| "-".to_owned(), |count| count.to_string());
        [
            link.link.clone(),
            link.wire.clone(),
            if link.up { "up" } else { "down" }.to_owned(),
            connections,
            Size(link.received_bytes).to_string(),
            Size(link.sent_bytes).to_string(),
            (link.kernel_dropped_packets + link.unsent_packets).to_string(),
            link.receive_path.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let heads = ["LINK", "WIRE", "STATE", "CONNECTIONS", "RECEIVED", "SENT", "LOST PACKETS", "BY"];
    output::table(heads, &links.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn show_configuration(configuration: &ConfigurationStatus) -> String {
    let ConfigurationStatus { wires, security, allow, has_password, pools, volumes, targets, clients, .. } =
        configuration;
    let mut text = format!("on {}, security {security}", wires.join(", "));
    text.push_str(&format!(", allow {}", if allow.is_empty() { "this host".to_owned() } else { allow.join(",") }));
    text.push_str(if *has_password { ", with a password\n" } else { ", without a password\n" });
    let mut tables = Vec::new();
    let rows: Vec<_> = pools.iter().map(|pool| [pool.name.clone(), pool.directory.clone()]).collect();
    if !rows.is_empty() {
        tables.push(output::table(["POOL", "DIRECTORY"], &rows));
    }
    let rows = volumes.iter().map(|volume| {
        [volume.lun.to_string(), volume.name.clone(), volume.store.clone(), origin_name(volume.origin).to_owned()]
    });
    tables.push(output::table(["LUN", "VOLUME", "STORE", "ORIGIN"], &rows.collect::<Vec<_>>()));
    let units = targets.iter().flat_map(|target| target.units.iter().map(|unit| (&target.name, unit)));
    let rows: Vec<_> =
        units.map(|(target, unit)| [target.clone(), unit.lun.to_string(), unit.volume.clone()]).collect();
    if !rows.is_empty() {
        tables.push(output::table(["TARGET", "LUN", "VOLUME"], &rows));
    }
    let rows: Vec<_> = clients.iter().map(|client| [client.id.to_string(), client.name.clone()]).collect();
    if !rows.is_empty() {
        tables.push(output::table(["CLIENT", "NAME"], &rows));
    }
    if !configuration.deviations.is_empty() {
        tables.push(show_deviations(&configuration.deviations));
    }
    format!("{text}\n{}", tables.join("\n"))
}

pub(super) fn show_reservations(reservations: &ReservationsStatus) -> String {
    let ReservationsStatus { volume, r#type, generation, persistent, reserved_by, registrants } = reservations;
    let kind = r#type.map_or("no persistent reservation", ReservationKind::word);
    let kept = if *persistent { ", kept through restarts" } else { "" };
    let mut text = format!("{volume}: {kind}, generation {generation}{kept}\n");
    if let Some(session) = reserved_by {
        text.push_str(&format!("session {session} has it by RESERVE\n"));
    }
    let rows = registrants.iter().map(|registrant| {
        let port = registrant.target_port.map_or_else(|| "all".to_owned(), |port| port.to_string());
        let holder = if registrant.holder { "holder" } else { "" };
        [registrant.initiator.clone(), port, registrant.key.clone(), holder.to_owned()]
    });
    text.push_str(&output::table(["REGISTERED", "TARGET PORT", "KEY", ""], &rows.collect::<Vec<_>>()));
    text
}
