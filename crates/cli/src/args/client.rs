//! The options of the commands that use volumes.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sanwire_core::{ParseProtectionError, Protection, Size};
use sanwire_initiator::{DiskType, IserPath, Url, VisaWishes};
use sanwire_iscsi::IscsiName;
use sanwire_server::Compression;

use super::place::{ArrayPlace, PlaceError, VolumePlace};
use super::reach::ReachArgs;
use super::{RecoveryChoice, VisaChecksum, VisaMode, visa_payload, visa_wishes};

/// What every client command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// How the server is reached, and the client known there.
    #[command(flatten)]
    pub(crate) reach: ReachArgs,

    /// Minimum protection level of volumes over HyperSCSI, HDSP and VISA that this client accepts: none, hash, encryption, or the name of a cipher
    ///
    /// Volumes that demand more get more: see `security` among the keys of a volume.
    #[arg(long, value_name = "LEVEL", default_value = "none", help_heading = "Connection")]
    pub(crate) security: LeastSecurity,

    /// Whether HyperSCSI compresses data where it shrinks: off, allowed (if the server wants it) or required
    #[arg(long, value_name = "HOW", default_value = "off", help_heading = "Connection")]
    pub(crate) compression: Compression,

    /// How many bytes a second go each way over HyperSCSI at the most, like 100M
    #[arg(long, value_name = "SIZE", help_heading = "Connection")]
    pub(crate) cap: Option<Size>,

    /// How much of the unflushed writes to each volume is kept, to be written again if the server's host loses its power
    ///
    /// Beyond half of it the volume is flushed in the background. With 0, or when others write to the volume too, the next flush fails
    /// once instead.
    #[arg(long, value_name = "SIZE", default_value = "64M", help_heading = "Connection")]
    pub(crate) keep_writes: Size,

    /// Lock the medium of a removable HyperSCSI volume while this client is connected
    #[arg(long, help_heading = "Connection")]
    pub(crate) lock_media: bool,

    /// Which commands an HDSP volume is to take: ata, sata or scsi [default: as the server likes best]
    #[arg(long, value_name = "TYPE", help_heading = "Connection")]
    pub(crate) disk_type: Option<DiskTypeChoice>,

    /// How packets that were lost are sent again
    #[arg(long, value_name = "HOW", default_value = "selective", help_heading = "Connection")]
    pub(crate) recovery: RecoveryChoice,

    /// What is for VISA alone.
    #[command(flatten)]
    pub(crate) visa: VisaArgs,

    /// What iSCSI needs beyond that.
    #[command(flatten)]
    pub(crate) iscsi: IscsiArgs,
}

/// The least protection that a client accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeastSecurity(pub(crate) Protection);

impl FromStr for LeastSecurity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The cheapest cipher: others are stronger.
        let parsed = if text == "encryption" { Ok(Protection::Aes128Gcm) } else { text.parse() };
        parsed
            .map(LeastSecurity)
            .map_err(|error: ParseProtectionError| format!("{error}, or encryption for any cipher"))
    }
}

/// Commands of a disk by HDSP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum DiskTypeChoice {
    /// Those of ATA.
    Ata,
    /// Those of ATA, as a disk of SATA.
    Sata,
    /// Those of SCSI.
    Scsi,
}

impl From<DiskTypeChoice> for DiskType {
    fn from(choice: DiskTypeChoice) -> Self {
        match choice {
            DiskTypeChoice::Ata => DiskType::Ata,
            DiskTypeChoice::Sata => DiskType::Sata,
            DiskTypeChoice::Scsi => DiskType::Scsi,
        }
    }
}

/// What only iSCSI sessions take.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "iSCSI")]
pub(crate) struct IscsiArgs {
    /// The name by which targets know this client [default: made of the client's id]
    #[arg(long, value_name = "IQN")]
    pub(crate) initiator_name: Option<IscsiName>,

    /// User name that the target must authenticate as (mutual CHAP); needs --target-password-file
    #[arg(long, value_name = "NAME", requires = "target_password_file")]
    pub(crate) target_user: Option<String>,

    /// A file whose first line is the target's secret
    #[arg(long, value_name = "FILE", requires = "target_user")]
    pub(crate) target_password_file: Option<PathBuf>,

    /// Protect headers and data by CRC32C digests
    #[arg(long)]
    pub(crate) digests: bool,

    /// By what iSER goes: tcp (iWARP in software, for any network card), or rdma (an RDMA adapter of this host)
    #[arg(long, value_name = "PATH", default_value = "tcp")]
    pub(crate) iser_path: IserPath,

    /// TCP connections of a session
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=8))]
    pub(crate) connections: u16,

    /// Error recovery level to ask for: 0 sessions, 1 digests, 2 connections
    #[arg(long, value_name = "LEVEL", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) recovery_level: u8,

    /// How long a command may stand still at the target before it is aborted and fails, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) command_timeout: Duration,
}

/// What is for VISA alone.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "VISA")]
pub(crate) struct VisaArgs {
    /// How VISA recovers from losses: modern, classic (as in 1998; the server must allow it) or either
    #[arg(long, value_name = "MODE", default_value = "modern")]
    pub(crate) visa_mode: VisaMode,

    /// Whether VISA packets have a checksum where nothing else protects them better: on, off (the server must allow it) or either
    #[arg(long, value_name = "WHEN", default_value = "on")]
    pub(crate) visa_checksum: VisaChecksum,

    /// Payload of a VISA packet in classic mode, from 1K to 60K [default: as the server likes, or 8K]
    #[arg(long, value_name = "SIZE", value_parser = visa_payload)]
    pub(crate) visa_payload: Option<Size>,
}

impl VisaArgs {
    /// What they mean.
    pub(crate) fn wishes(&self) -> VisaWishes {
        visa_wishes(self.visa_mode, self.visa_checksum, self.visa_payload)
    }
}

/// `sanwire discover`.
#[derive(Args, Debug)]
#[command(
    after_help = "It shows servers with their volumes, as far as this client may see them; a target that is reached by both iSCSI and iSER, in a line for each.\n\nExamples:\n  sanwire discover\n  sanwire discover --interface eth0\n  sanwire discover --host 192.168.1.10\n  \
                  sanwire discover iscsi://192.168.1.10"
)]
pub(crate) struct DiscoverArgs {
    /// Ask these hosts or Ethernets: iscsi:// or iser://[USER@]HOST[:PORT] for targets, hdsp://[IF] for servers, aoe://[IF] for targets
    #[arg(value_name = "URL", conflicts_with_all = ["interface", "host"])]
    pub(crate) url: Vec<Url>,

    /// Ask on this network interface only (raw Ethernet; takes root) [default: every one that is up]
    #[arg(long, value_name = "IF", conflicts_with = "host")]
    pub(crate) interface: Option<String>,

    /// Ask this host over IP, HOST or HOST:PORT (repeatable)
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,

    /// How long to wait for answers, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) time: Duration,

    /// Show security, wire, largest packet, and links, too
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// How to connect.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `sanwire ls`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sanwire ls hs+ip://127.0.0.1\n  sanwire ls hs+eth://eth0/storage\n  \
                         sanwire ls iscsi://192.168.1.10\n  sanwire ls")]
pub(crate) struct LsArgs {
    /// The server, or one of its volumes; without it, what is attached on this host
    pub(crate) url: Option<Url>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// How to connect.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `sanwire info`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sanwire info hs+ip://127.0.0.1/disk0\n  sanwire info array:data")]
pub(crate) struct InfoArgs {
    /// The volume, or array:NAME, of which the labels are read
    pub(crate) url: VolumePlace,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// How to connect.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `sanwire detach`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sanwire detach disk0\n  sanwire detach /dev/loop0\n  sanwire detach hs+ip://127.0.0.1/disk0"
)]
pub(crate) struct DetachArgs {
    /// The volume's URL or name, the device or its name, the mount point or the socket
    pub(crate) what: String,

    /// How long to wait for the end, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) wait: Duration,
}

/// One end of a copy: text that begins with `array:` is an array, text with `://` in it a URL, a hyphen stdin or stdout, other text a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CpEnd {
    /// A volume.
    Volume(Url),
    /// An array.
    Array(ArrayPlace),
    /// An image file or a block device.
    File(PathBuf),
    /// Stdin or stdout.
    Pipe,
}

impl FromStr for CpEnd {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        if ArrayPlace::is_meant_by(text) {
            Ok(CpEnd::Array(text.parse()?))
        } else if Url::is_meant_by(text) {
            let url: Url = text.parse().map_err(PlaceError::Url)?;
            url.volume()?;
            Ok(CpEnd::Volume(url))
        } else if text == "-" {
            Ok(CpEnd::Pipe)
        } else {
            Ok(CpEnd::File(text.into()))
        }
    }
}

impl std::fmt::Display for CpEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CpEnd::Volume(url) => url.fmt(f),
            CpEnd::Array(array) => array.fmt(f),
            CpEnd::File(path) => path.display().fmt(f),
            CpEnd::Pipe => f.write_str("-"),
        }
    }
}

/// `sanwire cp`.
#[derive(Args, Debug)]
#[command(
    after_help = "Holes and blocks of zeroes are not sent. Between two volumes of one server (over iSCSI: of one portal) the server \
                  copies by itself, unless --cap is given, and no data crosses the wire. Between two servers that allow it to this client, the \
                  source's server copies straight to the destination's, from a snapshot where the volume can have one. In all other copies a volume that is \
                  written meanwhile gives a mixture of its states: stop what uses it first. An array as the destination is assembled for this host alone, and one that is read is only looked at.\n\nExamples:
  sanwire cp debian.img hs+ip://127.0.0.1/disk0
  sanwire cp hs+eth://eth0/storage/disk0 backup.img --verify
  sanwire cp hs+ip://old/disk0 hs+ip://new/disk0 --overwrite
  sanwire cp array:data backup.img
  sanwire cp hs+ip://127.0.0.1/disk0 - | zstd > backup.zst
  zstdcat backup.zst | sanwire cp - hs+ip://127.0.0.1/disk0 --overwrite"
)]
pub(crate) struct CpArgs {
    /// An image file, a block device, a volume's URL, array:NAME, or - for stdin
    pub(crate) from: CpEnd,

    /// An image file (made when absent), a block device, a volume's URL, array:NAME, or - for stdout
    pub(crate) to: CpEnd,

    /// Allow a volume or block device as the destination that is not all zeroes: what it holds is lost
    #[arg(long)]
    pub(crate) overwrite: bool,

    /// Go on with an interrupted copy of the same source to the same destination
    ///
    /// An image file must not have changed since. A volume, of which nobody knows whether it has, is read again from its start: what
    /// differs from what was copied is copied again.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Read both ends again afterwards, and fail if they differ
    #[arg(long)]
    pub(crate) verify: bool,

    /// Copy straight from server to server, or not at all: no data passes this host
    ///
    /// Both volumes are named by hs+ip or hs+eth. The source's server writes to a part of the destination that is derived for it alone,
    /// and taken back at the end. Without this option that is done where both servers allow it to this client.
    #[arg(long, conflicts_with = "no_direct")]
    pub(crate) direct: bool,

    /// Have all data pass this host, whatever servers could do by themselves
    #[arg(long)]
    pub(crate) no_direct: bool,

    /// Print JSON (with - as the destination on stderr)
    #[arg(long)]
    pub(crate) json: bool,

    /// Operations in flight
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,

    /// How to connect.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

pub(super) fn seconds(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "a time is a number of seconds above 0 and up to 1000000, like 5 or 0.5";
    let seconds: f64 = text.parse().map_err(|_| EXPECTED)?;
    if seconds > 0.0 && seconds <= 1e6 { Ok(Duration::from_secs_f64(seconds)) } else { Err(EXPECTED) }
}
