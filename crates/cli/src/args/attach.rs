//! The options of `sanwire attach`, which the entries of its file have too.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, ValueEnum};
use sanwire_initiator::Url;

use super::ClientArgs;
use super::place::{ArrayPlace, PlaceError, VolumePlace};

/// `sanwire attach`.
#[derive(Args, Debug)]
#[command(after_help = "It stays in the foreground; Ctrl-C or `sanwire detach` ends it.\n\nExamples:
  sanwire attach hs+ip://127.0.0.1/disk0 --mount-point ~/disk0
  sudo sanwire attach hs+eth://eth0/storage/disk0 --wait forever
  sanwire attach hs+ip://127.0.0.1/disk0 --as nbd --socket /tmp/disk0.sock
  sanwire attach hs+ip://127.0.0.1/disk0 --as nbd --listen 127.0.0.1:10809
  sudo sanwire attach array:data
  sudo sanwire attach --save data hs+ip://storage/disk0 --password-file /etc/sanwire/password
  sudo sanwire attach --save pair array:data
  sudo sanwire attach data")]
pub(crate) struct AttachArgs {
    /// The volume, or the name of an entry of the file of attachments, which says the volume and the options
    ///
    /// An array is written as for `serve --volume`: array:NAME, with member=URL for what its labels do not lead to, discover=URL for whom to
    /// ask, unfenced for members that nothing keeps from other hosts, or iser-path=rdma where iSER goes by an RDMA adapter.
    #[arg(value_name = "URL|NAME", required_unless_present = "check")]
    pub(crate) what: Option<Attachable>,

    /// The file of attachments (TOML) [default: /etc/sanwire/attach.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Write this into the file of attachments as a new entry, in place of attaching, and print what makes it start with the host
    #[arg(long, value_name = "NAME", conflicts_with = "check")]
    pub(crate) save: Option<EntryName>,

    /// Read the file of attachments, say what is wrong in it, and attach nothing
    #[arg(long)]
    pub(crate) check: bool,

    /// With --exclusive: take the volume over from another client that has it for itself and is gone for good
    ///
    /// That client writes no more, and what it had under way is aborted; if it still lives, its users get I/O errors. No key of an entry: a
    /// host that took the volume over at each start would cut off whoever has taken it over meanwhile.
    #[arg(long)]
    pub(crate) preempt: bool,

    /// What an entry says too.
    #[command(flatten)]
    pub(crate) options: AttachOptions,
}

/// How a volume is attached.
#[derive(Args, Debug)]
pub(crate) struct AttachOptions {
    /// What it becomes
    #[arg(long = "as", value_name = "KIND", default_value = "fuse")]
    pub(crate) kind: AttachKind,

    /// FUSE: the directory that will hold the file [default: one in the runtime directory]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["socket", "listen"])]
    pub(crate) mount_point: Option<PathBuf>,

    /// FUSE: only the file, no block device over it
    #[arg(long, conflicts_with_all = ["socket", "listen"])]
    pub(crate) no_device: bool,

    /// NBD: the unix socket [default: one in the runtime directory]
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub(crate) socket: Option<PathBuf>,

    /// NBD: a TCP address to listen on. No authentication or encryption: every program that can connect can read and write
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address)]
    pub(crate) listen: Option<SocketAddr>,

    /// A TCP address at which Prometheus reads how the attachment is: `http://ADDR:PORT/metrics`, for everybody who can connect
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address)]
    pub(crate) metrics: Option<SocketAddr>,

    /// Attach it also when it is attached on this host already; both write without knowing of each other
    #[arg(long)]
    pub(crate) again: bool,

    /// Nobody else writes to the volume while it is attached: a persistent reservation of the type Write Exclusive
    ///
    /// Other hosts may read. It is held while the server is away and through its restarts, and released by detaching. Refused while another client
    /// has it. Over HyperSCSI all programs with this client's key are one client.
    #[arg(long, conflicts_with = "again")]
    pub(crate) exclusive: bool,

    /// Only the volume with this identity, as `sanwire info` tells it: not another one that has its name by now
    #[arg(long, value_name = "ID")]
    pub(crate) identity: Option<String>,

    /// Attach it for reading only, also where it may be written
    #[arg(long)]
    pub(crate) read_only: bool,

    /// HyperSCSI: a file of the connection's terms, which SIGHUP has read again and agreed on while the volume is used
    ///
    /// TOML, of security, compression, cap, lock-media, max-transfer and priority: what it names counts in place of the options.
    #[arg(long, value_name = "FILE")]
    pub(crate) terms: Option<PathBuf>,

    /// How to connect.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

impl AttachOptions {
    /// Those that mean something for an array: what a member needs is said with the member.
    const OF_ARRAYS: [&str; 8] = ["as", "mount-point", "no-device", "socket", "listen", "metrics", "read-only", "wait"];

    /// Why an option does not go with an array.
    pub(crate) fn refusal_for_array(option: &str) -> Option<String> {
        ArrayPlace::refusal(option, &Self::OF_ARRAYS)
    }
}

/// An entry of the file of attachments, read like a command line.
#[derive(Parser, Debug)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct Entry {
    /// The volume, or an array.
    #[arg(long)]
    pub(crate) url: VolumePlace,

    /// How it is attached.
    #[command(flatten)]
    pub(crate) options: AttachOptions,
}

/// What a volume becomes on this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum AttachKind {
    /// A file, and for root a block device over it
    Fuse,
    /// An NBD export, for qemu and nbd-client
    Nbd,
}

/// What can be attached: text that begins with `array:` is an array, other text with `://` in it a URL, and the rest the name of an entry.
#[derive(Clone, Debug)]
pub(crate) enum Attachable {
    /// A volume.
    Volume(Url),
    /// An array.
    Array(ArrayPlace),
    /// An entry.
    Entry(EntryName),
}

impl FromStr for Attachable {
    type Err = AttachableError;

    fn from_str(text: &str) -> Result<Self, AttachableError> {
        if !ArrayPlace::is_meant_by(text) && !Url::is_meant_by(text) {
            return Ok(Attachable::Entry(text.parse()?));
        }
        Ok(match text.parse::<VolumePlace>()? {
            VolumePlace::Volume(url) => Attachable::Volume(url),
            VolumePlace::Array(array) => Attachable::Array(array),
        })
    }
}

/// Text that is neither a URL nor a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachableError {
    /// It is meant as a URL, or as an array.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// It is not.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// The name of an entry. It is that of an instance of a unit too, so its letters are those that need no escaping there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EntryName(String);

/// The longest name of an entry.
const NAME_MAX_BYTES: usize = 64;

/// Text that is no name of an entry.
#[derive(Debug, thiserror::Error)]
#[error(
    "'{0}' is neither a URL nor the name of an entry: a name has up to {NAME_MAX_BYTES} letters, digits, -, _ and ., and begins with a letter or digit"
)]
pub(crate) struct NameError(String);

impl EntryName {
    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EntryName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter);
        let is_name = text.len() <= NAME_MAX_BYTES
            && text.bytes().all(is_plain)
            && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if is_name { Ok(EntryName(text.to_owned())) } else { Err(NameError(text.to_owned())) }
    }
}

fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "an address is IP:PORT, like 127.0.0.1:10809 or [::1]:10809")
}
