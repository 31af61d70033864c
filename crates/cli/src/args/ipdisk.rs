//! The options of `sanwire ipdisk`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::Args;
use sanwire_core::Size;
use sanwire_server::AllowRule;
use sanwire_store::{SpecError, VolumeSpec};

use super::{ServeArgs, VisaChecksum, VisaMode};
use crate::config::{ServerName, Wire};
use crate::failure::misuse;

/// The RAM disk of the paper, in bytes.
const RAM_BYTES: u64 = 32 << 20;

/// What its one volume is called.
const VOLUME: &str = "disk0";

/// What a server without a name of its own is called.
const SERVER: &str = "ipdisk";

const EXAMPLES: &str = "\
Clients choose classic or modern mode, and whether packets have a checksum.

Examples:
  sanwire ipdisk
  sanwire ls visa://127.0.0.1
  sanwire bench visa://127.0.0.1/disk0 --visa-mode classic
  sanwire ipdisk --address 192.168.1.10 --allow 192.168.1.0/24
  sanwire ipdisk /srv/disk.img --size 1G
  sanwire ipdisk /dev/sdb --read-only";

/// `sanwire ipdisk`: a server with one disk, as the IPdisk of 1998 was.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct IpdiskArgs {
    /// The file or block device that is served [default: a RAM disk]
    #[arg(value_name = "FILE")]
    pub(crate) store: Option<PathBuf>,

    /// The size of the RAM disk, or of a file that is to be made [default: 32M for the RAM disk]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,

    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Listen there, over UDP and TCP; port 5675 unless it says another [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = address)]
    pub(crate) address: Option<SocketAddr>,

    /// Whom to serve: an address, a prefix, a client id or any (repeatable) [default: clients on this host]
    #[arg(long = "allow", value_name = "WHO")]
    pub(crate) allow: Vec<AllowRule>,

    /// A file whose first line is the password that clients must know; only its owner may read it
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// What clients call it
    #[arg(long, value_name = "NAME", default_value = SERVER)]
    pub(crate) name: ServerName,

    /// The directory in which it keeps its key and the identity of its disk [default: in the user's state directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state_directory: Option<PathBuf>,

    /// The socket by which `sanwire ctl` manages it [default: one in the runtime directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<NonZeroU16>,
}

impl IpdiskArgs {
    /// The same as options of `sanwire serve`.
    ///
    /// # Errors
    /// A misuse, when the file's name or the size cannot be that of a volume.
    pub(crate) fn serve(&self) -> anyhow::Result<ServeArgs> {
        let address = self.address.unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), sanwire_initiator::VISA_PORT));
        let volume: VolumeSpec = self.volume()?.parse().map_err(|error: SpecError| misuse(error.to_string()))?;
        let wire: Wire = format!("visa:{address}").parse()?;
        Ok(ServeArgs {
            volumes: vec![volume],
            wires: vec![wire],
            allow: self.allow.clone(),
            password_file: self.password_file.clone(),
            name: Some(self.name.clone()),
            state_directory: self.state_directory.clone(),
            control: self.control.clone(),
            shards: self.shards,
            visa_mode: Some(VisaMode::Either),
            visa_checksum: Some(VisaChecksum::Either),
            ..ServeArgs::default()
        })
    }

    /// Its volume as it is written behind `--volume`.
    fn volume(&self) -> anyhow::Result<String> {
        let size = self.size.map_or(RAM_BYTES, |size| size.0);
        let mut written = match &self.store {
            None => format!("{VOLUME}=ram:{size}"),
            Some(path) => {
                let path = std::path::absolute(path)?;
                let path = path.to_str().filter(|path| !path.contains(','));
                let path =
                    path.ok_or_else(|| misuse("the file's name has a comma, or is no text: give it another one"))?;
                if path.starts_with("/dev/") { format!("{VOLUME}={path}") } else { format!("{VOLUME}=file:{path}") }
            }
        };
        if let (Some(size), Some(_)) = (self.size, &self.store) {
            written.push_str(&format!(",size={}", size.0));
        }
        if self.read_only {
            written.push_str(",readonly");
        }
        Ok(written)
    }
}

/// An address, with or without a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = |text: &str| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, sanwire_initiator::VISA_PORT));
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let found = bare(bracketed.unwrap_or(text)).or_else(|| text.parse().ok());
    found.ok_or_else(|| String::from("use an address, like 192.168.1.10, 192.168.1.10:5675 or [::1]:5675"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        ipdisk: IpdiskArgs,
    }

    fn given(arguments: &[&str]) -> IpdiskArgs {
        Given::try_parse_from([&["ipdisk"], arguments].concat()).unwrap().ipdisk
    }

    #[test]
    fn it_is_a_ram_disk_of_32_mib_on_the_loopback_unless_said() {
        crate::stores::register();
        let args = given(&[]);
        assert_eq!(args.volume().unwrap(), "disk0=ram:33554432");
        let served = args.serve().unwrap();
        assert_eq!((served.wires[0].to_string().as_str(), served.allow.len()), ("visa:127.0.0.1:5675", 0));
        let args = given(&["/srv/disk.img", "--size", "1G", "--address", "[::1]", "--read-only"]);
        assert_eq!(args.volume().unwrap(), "disk0=file:/srv/disk.img,size=1073741824,readonly");
        assert_eq!(args.serve().unwrap().wires[0].to_string(), "visa:[::1]:5675");
        assert_eq!(given(&["/dev/sdb"]).volume().unwrap(), "disk0=/dev/sdb");
        assert!(given(&["a,b"]).serve().unwrap_err().to_string().contains("comma"));
        assert!(Given::try_parse_from(["ipdisk", "--address", "host"]).is_err());
    }
}
