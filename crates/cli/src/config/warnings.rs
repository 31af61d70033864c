//! What is legal in a configuration, and hardly meant: it is served so, and said.
//!
//! Each warning is one line that says what has which effect, and what to do.

mod access;
mod effects;
mod state;
mod targets;
mod volumes;

use std::path::{Path, PathBuf};

use sanwire_store::kind::Place;

use super::file::FileConfig;
use super::{ServeArgs, ServeConfig, Wire};

/// What the finished configuration does not show any more: what was written, and where.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Keys that were given and hold for HyperSCSI only.
    hyperscsi_keys: Vec<&'static str>,
    /// Keys that were given and hold for HyperSCSI, HDSP and VISA.
    client_keys: Vec<&'static str>,
    /// Keys that were given and hold for VISA only.
    visa_keys: Vec<&'static str>,
    /// Whether something holds for iSCSI discovery.
    has_discovery: bool,
    /// Paths of the file that are relative, with their keys.
    relative_paths: Vec<(String, PathBuf)>,
    /// Keys of the HTTP API that were given.
    http_keys: Vec<&'static str>,
    /// Whether targets were written.
    has_targets: bool,
}

impl Written {
    /// What stands in the file and on the command line.
    pub(super) fn of(file: &FileConfig, args: &ServeArgs) -> Self {
        let of_hyperscsi = [
            ("compression", file.compression.is_some() || args.compression.is_some()),
            ("rekey-interval", file.rekey_interval.is_some() || args.rekey_interval.is_some()),
            ("recovery", file.recovery.is_some() || args.recovery.is_some()),
        ];
        let of_visa = [
            ("visa-mode", file.visa_mode.is_some() || args.visa_mode.is_some()),
            ("visa-checksum", file.visa_checksum.is_some() || args.visa_checksum.is_some()),
            ("visa-payload", file.visa_payload.is_some() || args.visa_payload.is_some()),
        ];
        let of_clients = [
            ("security", file.security.is_some() || args.security.is_some()),
            ("password-file", file.password_file.is_some() || args.password_file.is_some()),
            ("secret-file", file.secret_file.is_some() || args.secret_file.is_some()),
        ];
        let http_keys = [
            ("http-hosts", !file.web.hosts.is_empty()),
            ("http-certificate", file.web.certificate.is_some()),
            ("http-plaintext", file.web.is_plaintext),
        ];
        let paths = [
            ("password-file", &file.password_file),
            ("secret-file", &file.secret_file),
            ("key-file", &file.key_file),
            ("state-directory", &file.state_directory),
            ("control", &file.control),
            ("audit-log", &file.audit_log),
            ("http-certificate", &file.web.certificate),
            ("http-key", &file.web.key),
        ];
        let paths = paths.into_iter().filter_map(|(key, path)| Some((key.to_owned(), path.as_deref()?)));
        let stores = file.volumes.iter().filter_map(|volume| match volume.store.backing.place() {
            Place::File(path) => Some((format!("volume {}: store", volume.name), path)),
            _ => None,
        });
        let programs = file.volumes.iter().filter_map(|volume| {
            Some((format!("volume {}: program", volume.name), sanwire_server::program_of(volume)?))
        });
        let is_relative = |(_, path): &(String, &Path)| path.is_relative();
        Written {
            hyperscsi_keys: given(&of_hyperscsi),
            client_keys: given(&of_clients),
            visa_keys: given(&of_visa),
            has_discovery: !file.discovery.users.is_empty() || file.discovery.mutual.is_some(),
            relative_paths: paths
                .chain(stores)
                .chain(programs)
                .filter(is_relative)
                .map(|(key, path)| (key, path.to_owned()))
                .collect(),
            http_keys: given(&http_keys),
            has_targets: !file.targets.is_empty(),
        }
    }
}

fn given(keys: &[(&'static str, bool)]) -> Vec<&'static str> {
    keys.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| *key).collect()
}

/// All that there is to say, the gravest first: who is not served, what is not reached, what has no effect.
pub(super) fn warnings(config: &ServeConfig, written: &Written) -> Vec<String> {
    let mut lines = access::warnings(config);
    lines.extend(targets::warnings(config, written));
    lines.extend(volumes::warnings(config));
    lines.extend(effects::warnings(config, written));
    lines.extend(state::warnings(config));
    lines
}

impl ServeConfig {
    /// Whether it serves clients with ids: by HyperSCSI, HDSP or VISA.
    fn has_clients(&self) -> bool {
        self.wires.iter().any(Wire::is_for_clients)
    }

    /// Whether it serves HyperSCSI, over Ethernet or IP.
    fn has_hyperscsi(&self) -> bool {
        self.wires.iter().any(|wire| wire.scheme().starts_with("hs+"))
    }

    /// Whether it serves HDSP.
    fn has_hdsp(&self) -> bool {
        self.wires.iter().any(Wire::has_disk_addresses)
    }

    /// Whether it serves VISA.
    fn has_visa(&self) -> bool {
        self.wires.iter().any(|wire| wire.scheme().starts_with("visa"))
    }

    /// Whether it serves ATA over Ethernet.
    fn has_aoe(&self) -> bool {
        self.wires.iter().any(Wire::has_shelves)
    }

    /// Whether it serves iSCSI.
    fn has_iscsi(&self) -> bool {
        self.wires.iter().any(Wire::has_targets)
    }
}
