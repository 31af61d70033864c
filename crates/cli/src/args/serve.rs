//! The options of `sanwire serve`.

use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;

use clap::Args;
use sanwire_core::{Protection, Size};
use sanwire_server::{AllowRule, AnnounceRule, Compression, PoolConfig};
use sanwire_store::{VolumeName, VolumeSpec};
use sanwire_web::WebAddress;

use super::{EngineChoice, RecoveryChoice, VisaChecksum, VisaMode, visa_payload};
use crate::config::{ServerName, Wire};

const EXAMPLES: &str = "\
Without --volume and without a file it serves disk0, 1 GiB in the user's data directory; without --wire it serves on hs-ip:127.0.0.1; without --allow it serves clients on the same host only.

Examples:
  sanwire serve
  sanwire serve --volume disk0=file:/srv/disk0.img,size=10G --wire hs-ip:0.0.0.0 --allow 10.0.0.0/8
  sanwire serve --volume sdb=/dev/sdb,readonly --wire hs-eth:eth0 --allow 02:00:5e:10:00:01
  sanwire serve --volume fast=ram:2G --wire iscsi:0.0.0.0 --allow iqn.1993-08.org.debian:*
  sanwire serve --config /etc/sanwire.toml
  sanwire serve --check --config /etc/sanwire.toml

The same in a file:
  wire = [\"hs-ip:0.0.0.0\", \"hs-eth:eth0\"]
  allow = [\"192.168.0.0/16\"]
  [[volume]]
  name = \"disk0\"
  store = \"file:/srv/disk0.img\"
  size = \"10G\"";

/// `sanwire serve`. What stands here adds to the file (volumes, wires, rules) or overrides it (the rest).
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Read a configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Only check the configuration, say everything that is wrong or hardly meant, and exit
    ///
    /// Nothing is opened or made, and a server that runs is not touched. Exit status: 0 it can be served (perhaps with warnings), 1
    /// something of it is missing on this host, 2 it is wrong.
    #[arg(long)]
    pub(crate) check: bool,

    /// Serve a volume: NAME=STORE[,KEY[=VALUE]]... (repeatable)
    ///
    /// STORE is ram:SIZE, null:SIZE (for measuring the protocol), none: (with type=optical: no disc yet), file:PATH (with size=SIZE it is made, sparse, when
    /// absent), pool:[POOL] (a file in that pool, made when absent), the absolute path of a block device, nbd:PATH or nbd:HOST:PORT[/EXPORT] (an NBD server's export),
    /// rbd:POOL/IMAGE (a Ceph RBD image), array:NAME (made by `sanwire array`) or the URL of another server's volume. Keys: type=disk|optical (a drive with that disc in it), size=SIZE, grow, block=512|4096, readonly, removable,
    /// security=LEVEL, compression=off, when-full=wait:TIME and when-gone=wait:TIME (commands wait for their store), protected (its content is neither deleted nor rolled back), thick (no space is given back), direct (past the page cache), delay=[WHICH:]TIME and error=RULE (for tests), seed=NUMBER.
    #[arg(long = "volume", value_name = "NAME=STORE[,KEY[=VALUE]]...")]
    pub(crate) volumes: Vec<VolumeSpec>,

    /// A pool, a directory in which volumes can be without naming a path: NAME=DIRECTORY[,limit=SIZE][,default][,snapshots=WAY] (repeatable)
    ///
    /// A volume in it is written pool:NAME, or pool: for the default one. The limit is for the sizes of all its volumes together, written
    /// or not. WAY says how snapshots are made: auto (reflink where the file system has it), reflink, layers (on any file system) or none.
    #[arg(long = "pool", value_name = "NAME=DIRECTORY[,limit=SIZE][,default][,snapshots=WAY]")]
    pub(crate) pools: Vec<PoolConfig>,

    /// Serve this volume as another one than before: with the file that is there, or made anew when it is missing (repeatable)
    ///
    /// Without this a file that held a volume before and is missing, shorter, or another one is refused. Clients that knew the former
    /// volume do not go on with this one. Give it once: each start with it makes another volume again.
    #[arg(long = "renew", value_name = "NAME")]
    pub(crate) renewed: Vec<VolumeName>,

    /// Take the file or device that is there for this volume, though it does not look like what held it before (repeatable)
    ///
    /// Clients go on with it as the same volume. So it must hold all that they have written, as a copy of the former file does
    /// that was made while the server was stopped. Give it once.
    #[arg(long = "adopt", value_name = "NAME")]
    pub(crate) adopted: Vec<VolumeName>,

    /// Serve on a wire: hs-eth:IF, hs-ip:ADDR[:5674], iscsi:ADDR[:3260][,GROUP], iser:ADDR[:3260][,GROUP], aoe:IF, hdsp:IF or visa:ADDR[:5675] (repeatable)
    ///
    /// Behind an interface, `,path=xdp` has packets come by AF_XDP and `,path=packet` by AF_PACKET, as in hdsp:eth0,path=xdp.
    ///
    /// visa:ADDR is served over UDP and TCP; visa-tcp:ADDR is TCP alone.
    ///
    /// Over iSCSI each volume is unit 0 of a target iqn.2026-11.org.sanwire:NAME, unless the file has targets.
    #[arg(long = "wire", value_name = "WIRE")]
    pub(crate) wires: Vec<Wire>,

    /// Whom to serve: an address, a prefix, a MAC, a client id, an iSCSI name or any (repeatable)
    ///
    /// In an iSCSI name, * stands for any text. Unknown clients of HyperSCSI, HDSP and VISA get no answer at all.
    #[arg(long = "allow", value_name = "WHO")]
    pub(crate) allow: Vec<AllowRule>,

    /// Which of its addresses the server tells clients: an address or prefix, or an interface; again for others [default: all]
    ///
    /// HyperSCSI clients use them as further links, iSCSI initiators as portals. What is not named is served all the same to who asks there.
    #[arg(long = "announce", value_name = "PREFIX|INTERFACE")]
    pub(crate) announce: Vec<AnnounceRule>,

    /// A file whose first line is the password that clients of HyperSCSI, HDSP and VISA must know; only its owner may read it
    ///
    /// iSCSI does not use it: there, give targets `chap` in the configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// A file with a key that clients of HyperSCSI, HDSP and VISA must know, in place of a password; `sanwire key new` makes one
    #[arg(long, value_name = "FILE", conflicts_with = "password_file")]
    pub(crate) secret_file: Option<PathBuf>,

    /// Default protection level, over HyperSCSI, HDSP and VISA, of volumes without their own `security`: none, hash, aes-128-gcm, aes-256-gcm or
    /// chacha20-poly1305 [default: none]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) security: Option<Protection>,

    /// Whether HyperSCSI compresses data where it shrinks: off, allowed (for clients that want it) or required [default: off]
    #[arg(long, value_name = "HOW")]
    pub(crate) compression: Option<Compression>,

    /// How long the keys of a HyperSCSI connection are used before new ones are agreed on, in seconds [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) rekey_interval: Option<NonZeroU32>,

    /// The file of this server's static key; it is made when absent
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// The directory in which this server keeps what a restart brings back: changes by `sanwire ctl`, reservations, its key [default:
    /// in the user's state directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state_directory: Option<PathBuf>,

    /// What clients call this server [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<ServerName>,

    /// The socket by which `sanwire ctl` manages this server [default: one in the runtime directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// Serve the HTTP API: ADDR[:5674] or unix:PATH (repeatable)
    ///
    /// Off unless said. See docs/http-api.md.
    #[arg(long = "http", value_name = "WHERE")]
    pub(crate) http: Vec<WebAddress>,

    /// The file in which changes of the running server are noted [default: in the user's state directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,

    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<NonZeroU16>,

    /// How files and block devices are read and written [default: auto]
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<EngineChoice>,

    /// How packets that were lost are sent again [default: selective]
    #[arg(long, value_name = "HOW")]
    pub(crate) recovery: Option<RecoveryChoice>,

    /// How VISA recovers from losses: modern, classic (as in 1998) or either, as the client wants it [default: modern]
    #[arg(long, value_name = "MODE")]
    pub(crate) visa_mode: Option<VisaMode>,

    /// Whether VISA packets have a checksum where nothing else protects them better: on, off or either, as the client wants it [default: on]
    #[arg(long, value_name = "WHEN")]
    pub(crate) visa_checksum: Option<VisaChecksum>,

    /// Payload of a VISA packet in classic mode, from 1K to 60K, or less if the client wants that [default: as the client likes, or 8K]
    #[arg(long, value_name = "SIZE", value_parser = visa_payload)]
    pub(crate) visa_payload: Option<Size>,
}
