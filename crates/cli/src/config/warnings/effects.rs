//! Keys that have no effect, and values that look like slips.

use std::thread::available_parallelism;

use sanwire_core::Size;

use super::{ServeConfig, Written};

/// A cap below this is hardly meant: a unit is missing.
const CAP_PLAUSIBLE_BYTES: u64 = 64 << 10;

pub(super) fn warnings(config: &ServeConfig, written: &Written) -> Vec<String> {
    let mut lines = Vec::new();
    if !config.has_hyperscsi() {
        let no_effect = "has no effect: it is for HyperSCSI, and no hs-eth: or hs-ip: wire is served";
        lines.extend(written.hyperscsi_keys.iter().map(|key| format!("{key} {no_effect}")));
    }
    if !config.has_visa() {
        let no_effect = "has no effect: it is for VISA, and no visa: wire is served";
        lines.extend(written.visa_keys.iter().map(|key| format!("{key} {no_effect}")));
    }
    if !config.has_clients() {
        let clients = (!config.clients.is_empty()).then_some("[[client]]");
        let no_effect =
            "has no effect: it is for HyperSCSI, HDSP and VISA, and no hs-eth:, hs-ip:, hdsp: or visa: wire is served";
        lines.extend(written.client_keys.iter().copied().chain(clients).map(|key| format!("{key} {no_effect}")));
    }
    for client in config.clients.iter().map(super::super::FileClient::config) {
        if let Some(cap) = client.cap_bytes_per_second.filter(|cap| *cap < CAP_PLAUSIBLE_BYTES) {
            let id = client.id;
            lines.push(format!("client {id}: a cap of {}/s is very low: is a unit missing, as in 10M?", Size(cap)));
        }
    }
    if config.web.addresses.is_empty() {
        let no_effect = "has no effect: `http` says where the HTTP API is reached, and is not there";
        lines.extend(written.http_keys.iter().map(|key| format!("{key} {no_effect}")));
    }
    if config.web.is_plaintext && config.web.addresses.iter().any(|address| !address.is_local()) {
        lines.push(
            "http-plaintext: passwords and tokens of the HTTP API can be read on the way; leave it out".to_owned(),
        );
    }
    let cores = available_parallelism().map_or(1, usize::from);
    if config.shards > cores {
        let shards = config.shards;
        lines.push(format!(
            "{shards} shards on {cores} cores: more threads than cores make it slower; leave `shards` out"
        ));
    }
    lines.extend(written.relative_paths.iter().map(|(key, path)| {
        let path = path.display();
        format!("{key}: {path} is relative to the directory in which the server is started, not to this file: write it from / on")
    }));
    lines
}
