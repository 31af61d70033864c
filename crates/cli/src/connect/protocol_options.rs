//! Options of one protocol with a server that speaks another one are a mistake: whoever gave them relies on what is not done.

use std::time::Duration;

use sanwire_core::Protection;
use sanwire_initiator::{IscsiServer, IserPath, Links, Server};
use sanwire_server::Compression;

use crate::args::{ClientArgs, ReachArgs, RecoveryChoice, VisaChecksum, VisaMode};
use crate::failure::misuse;

/// What `--command-timeout` is when nobody says it.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// An option, whether it was given, whose it is, and whether a server speaks that.
type Given = (&'static str, bool, &'static str, fn(&Server) -> bool);

const HYPERSCSI: &str = "HyperSCSI";
const ISCSI: &str = "iSCSI";
const ISER: &str = "iSER";
const HDSP: &str = "HDSP";
const VISA: &str = "VISA";

/// # Errors
/// Some option means nothing to any of the servers.
pub(crate) fn check_protocol(args: &ClientArgs, servers: &[&Server]) -> anyhow::Result<()> {
    let (iscsi, visa) = (&args.iscsi, &args.visa);
    let given: [Given; 16] = [
        ("--initiator-name", iscsi.initiator_name.is_some(), ISCSI, is_iscsi),
        ("--target-user", iscsi.target_user.is_some(), ISCSI, is_iscsi),
        ("--digests", iscsi.digests, ISCSI, is_iscsi),
        ("--iser-path", iscsi.iser_path != IserPath::default(), ISER, is_iser),
        ("--connections", iscsi.connections != 1, ISCSI, is_iscsi),
        ("--recovery-level", iscsi.recovery_level != 0, ISCSI, is_iscsi),
        ("--command-timeout", iscsi.command_timeout != COMMAND_TIMEOUT, ISCSI, is_iscsi),
        ("--security", args.security.0 != Protection::default(), "HyperSCSI, HDSP and VISA", has_keys),
        ("--compression", args.compression != Compression::Off, HYPERSCSI, is_hyperscsi),
        ("--cap", args.cap.is_some(), HYPERSCSI, is_hyperscsi),
        ("--lock-media", args.lock_media, HYPERSCSI, is_hyperscsi),
        ("--recovery", args.recovery != RecoveryChoice::Selective, HYPERSCSI, is_hyperscsi),
        ("--disk-type", args.disk_type.is_some(), HDSP, |server| matches!(server, Server::Hdsp(_))),
        ("--visa-mode", visa.visa_mode != VisaMode::default(), VISA, is_visa),
        ("--visa-checksum", visa.visa_checksum != VisaChecksum::default(), VISA, is_visa),
        ("--visa-payload", visa.visa_payload.is_some(), VISA, is_visa),
    ];
    check(&of_reach(&args.reach), servers)?;
    check(&given, servers)
}

/// The same for a command that takes no other options.
pub(super) fn check_reach(args: &ReachArgs, server: &Server) -> anyhow::Result<()> {
    check(&of_reach(args), &[server])
}

fn of_reach(args: &ReachArgs) -> [Given; 2] {
    [
        ("--secret-file", args.secret_file.is_some(), "HyperSCSI, HDSP and VISA", has_keys),
        ("--links", args.links.0 != Links::default(), HYPERSCSI, is_hyperscsi),
    ]
}

fn check(options: &[Given], servers: &[&Server]) -> anyhow::Result<()> {
    let is_strange = |(_, is_given, _, speaks): &&Given| *is_given && !servers.iter().any(|server| speaks(server));
    let Some((option, _, owner, _)) = options.iter().find(is_strange) else { return Ok(()) };
    let speak = match servers {
        [server] => format!("{server} speaks something else"),
        servers => {
            let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
            format!("{} speak something else", servers.join(" and "))
        }
    };
    Err(misuse(format!("{option} is for {owner}, and {speak}: leave it out")))
}

fn is_hyperscsi(server: &Server) -> bool {
    matches!(server, Server::HyperScsi(_))
}

fn is_iscsi(server: &Server) -> bool {
    matches!(server, Server::Iscsi(_))
}

fn is_iser(server: &Server) -> bool {
    matches!(server, Server::Iscsi(IscsiServer { is_iser: true, .. }))
}

fn is_visa(server: &Server) -> bool {
    matches!(server, Server::Visa(_))
}

fn has_keys(server: &Server) -> bool {
    matches!(server, Server::HyperScsi(_) | Server::Hdsp(_) | Server::Visa(_))
}
