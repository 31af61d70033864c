//! The servers that are measured, all running at once on the server's host; only the one that is asked works.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::link::{End, INTERFACE, SERVER_ADDRESS};
use crate::process::{Host, Running};
use crate::random::Random;

/// Bytes of each volume: more than any processor's cache, little enough to fill quickly.
pub(crate) const VOLUME_BYTES: u64 = 256 << 20;
/// The name of our server.
pub(crate) const SERVER_NAME: &str = "bench";
/// The shelf and the slot of vblade's disk.
pub(crate) const AOE_DISK: [&str; 2] = ["7", "1"];
/// The name of tgt's target.
pub(crate) const TGT_TARGET: &str = "iqn.2026-01.net.sanwire:bench";

/// The number of tgtd's control socket, so that another tgtd of this machine is left alone.
const TGT_CONTROL: &str = "977";
/// Frames that vblade says it can queue.
const VBLADE_BUFFERS: &str = "64";
const TIMEOUT: Duration = Duration::from_secs(5);

fn directory() -> PathBuf {
    PathBuf::from(format!("/dev/shm/sanwire-bench-{}", std::process::id()))
}

/// Where programs keep their state, so that no run begins with what the one before, or the user's own server, has kept. It is
/// among [`Files`], and gone with them.
pub(crate) fn state_directory() -> PathBuf {
    directory().join("state")
}

/// Files in memory that the servers serve, and keys; gone with the value.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
}

impl Files {
    /// Makes their directory on tmpfs.
    ///
    /// # Errors
    /// When there is no `/dev/shm`.
    pub(crate) fn new() -> Result<Self> {
        let directory = directory();
        fs::create_dir_all(&directory)?;
        Ok(Files { directory })
    }

    /// The path of a disk's image; it is made when absent.
    ///
    /// # Errors
    /// When `/dev/shm` has no room.
    pub(crate) fn image(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        if !Path::new(&path).exists() {
            fill(&path, VOLUME_BYTES)?;
        }
        Ok(path)
    }

    /// The path of one of them.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is in a directory of its own, and in memory only.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Makes a file of whole mebibytes full of bytes that are not zero, and has them on the disk.
///
/// # Errors
/// When there is no room.
pub(crate) fn fill(path: &str, length_bytes: u64) -> Result<()> {
    let mut random = Random::new(7);
    let chunk: Vec<u8> = (0..1 << 17).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut file = File::create(path).with_context(|| path.to_owned())?;
    for _ in 0..length_bytes / chunk.len() as u64 {
        file.write_all(&chunk)?;
    }
    Ok(file.sync_all()?)
}

/// Writes all of a volume of ours once, so that what is read later are its own pages and none is touched for the first time
/// while it is measured: a machine whose hypervisor takes free memory back pays a tenfold price for that.
///
/// # Errors
/// When the server does not take it.
pub(crate) fn fill_volume(host: &Host, sanwire: &str, files: &Files, url: &str) -> Result<()> {
    let image = files.image("content.img")?;
    let key = files.path("client.key");
    let copied = host.run(End::Client, sanwire, &["cp", &image, url, "--overwrite", "--key-file", &key]);
    fs::remove_file(&image)?;
    copied.map(drop)
}

/// A wire of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Ethernet,
    /// Raw Ethernet on this further interface.
    EthernetOn(&'static str),
    Ip,
    /// HyperSCSI over IP at this further address.
    IpOn(&'static str),
    /// VISA over UDP at this address, where the server takes it over TCP as well.
    Visa(&'static str),
    /// A client's way to the same by TCP.
    VisaTcp(&'static str),
    /// iSCSI at this address and port.
    Iscsi(&'static str),
    /// The same by RDMA.
    Iser(&'static str),
    /// HDSP on this interface; packets come to the server by this path.
    Hdsp(&'static str, &'static str),
}

/// Both wires of HyperSCSI.
pub(crate) const HYPERSCSI: [Wire; 2] = [Wire::Ethernet, Wire::Ip];

impl Wire {
    /// As rows call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wire::Ethernet | Wire::EthernetOn(_) => "HS/eth",
            Wire::Ip | Wire::IpOn(_) => "HS/IP",
            Wire::Visa(_) => "VISA",
            Wire::VisaTcp(_) => "VISA TCP",
            Wire::Iscsi(_) => "iSCSI",
            Wire::Iser(_) => "iSER",
            Wire::Hdsp(..) => "HDSP",
        }
    }

    /// Where a volume of our server is.
    pub(crate) fn url(self, volume: &str) -> String {
        match self {
            Wire::Iscsi(_) | Wire::Iser(_) => format!("{}/iqn.2026-11.org.sanwire:{volume}/0", self.server_url()),
            _ => format!("{}/{volume}", self.server_url()),
        }
    }

    fn server_url(self) -> String {
        match self {
            Wire::Ethernet => Wire::EthernetOn(INTERFACE).server_url(),
            Wire::EthernetOn(interface) => format!("hs+eth://{interface}/{SERVER_NAME}"),
            Wire::Ip => Wire::IpOn(SERVER_ADDRESS).server_url(),
            Wire::IpOn(address) => format!("hs+ip://{address}"),
            Wire::Visa(address) => format!("visa://{address}"),
            Wire::VisaTcp(address) => format!("visa+tcp://{address}"),
            Wire::Iscsi(portal) => format!("iscsi://{portal}"),
            Wire::Iser(portal) => format!("iser://{portal}"),
            Wire::Hdsp(interface, _) => format!("hdsp://{interface}/{SERVER_NAME}"),
        }
    }

    fn option(self) -> String {
        match self {
            Wire::Ethernet => Wire::EthernetOn(INTERFACE).option(),
            Wire::EthernetOn(interface) => format!("hs-eth:{interface}"),
            Wire::Ip => Wire::IpOn(SERVER_ADDRESS).option(),
            Wire::IpOn(address) => format!("hs-ip:{address}"),
            Wire::Visa(address) => format!("visa:{address}"),
            Wire::VisaTcp(address) => format!("visa-tcp:{address}"),
            Wire::Iscsi(portal) => format!("iscsi:{portal}"),
            Wire::Iser(portal) => format!("iser:{portal}"),
            Wire::Hdsp(interface, path) => format!("hdsp:{interface},path={path}"),
        }
    }
}

/// Our server on these wires, with these volumes and more options; its control socket is the file `control`.
///
/// # Errors
/// When it does not come up.
pub(crate) fn start_sanwire(
    host: &Host,
    sanwire: &str,
    files: &Files,
    wires: &[Wire],
    volumes: &[String],
    more: &[&str],
) -> Result<Running> {
    let [key, client_key, control] = ["server.key", "client.key", "control"].map(|name| files.path(name));
    let wire_options: Vec<String> = wires.iter().map(|wire| wire.option()).collect();
    let mut arguments = vec!["serve", "--name", SERVER_NAME, "--allow", "any", "--key-file", &key, "--log", "error"];
    arguments.extend(["--control", &control]);
    arguments.extend(wire_options.iter().flat_map(|wire| ["--wire", wire]));
    arguments.extend(volumes.iter().flat_map(|volume| ["--volume", volume]));
    arguments.extend(more);
    let server = host.start(End::Server, sanwire, &arguments)?;
    for wire in wires {
        let list = ["ls", &wire.server_url(), "--wait", "2", "--key-file", &client_key];
        wait_for(sanwire, || host.run(End::Client, sanwire, &list).map(drop))?;
    }
    Ok(server)
}

/// vblade on this interface, or nothing when it is not installed.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn start_vblade(host: &Host, files: &Files, interface: &str) -> Result<Option<Running>> {
    let Some(vblade) = installed("vblade") else { return Ok(None) };
    let [shelf, slot] = AOE_DISK;
    let image = files.image("vblade.img")?;
    host.start(End::Server, &vblade, &["-b", VBLADE_BUFFERS, shelf, slot, interface, &image]).map(Some)
}

/// tgtd with these disks from LUN 1 on, or nothing when it or its client is not installed. A disk is what `tgtadm` wants to
/// know of it.
///
/// # Errors
/// When it does not come up.
pub(crate) fn start_tgt(host: &Host, portal: &str, disks: &[&[&str]]) -> Result<Option<Running>> {
    let (Some(tgtd), Some(_)) = (installed("tgtd"), installed("iscsi-perf")) else { return Ok(None) };
    let server = host.start(End::Server, &tgtd, &["-f", "-C", TGT_CONTROL, "--iscsi", &format!("portal={portal}")])?;
    let control = |words: &str, more: &[&str]| -> Result<()> {
        let mut arguments = vec!["-C", TGT_CONTROL, "--lld", "iscsi"];
        arguments.extend(words.split(' '));
        arguments.extend(more);
        host.run(End::Server, "tgtadm", &arguments).map(drop)
    };
    wait_for("tgtd", || control("--op new --mode target --tid 1 -T", &[TGT_TARGET]))?;
    for (lun, disk) in (1..).zip(disks) {
        control(&format!("--op new --mode logicalunit --tid 1 --lun {lun}"), disk)?;
    }
    control("--op bind --mode target --tid 1 -I ALL", &[])?;
    Ok(Some(server))
}

/// The program's path; the administrator's directories count, also when they are not on the path.
pub(crate) fn installed(program: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let directories = path.split(':').chain(["/usr/sbin", "/usr/local/sbin", "/sbin"]);
    let found = directories.map(|directory| Path::new(directory).join(program)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!(
            "sanwire-bench: {program} is not installed: its rows are missing (packaging/setup.sh bench installs it)"
        );
    }
    found.map(|path| path.display().to_string())
}

/// The first line of what a program says about its version.
pub(crate) fn version(package: &str) -> String {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    query.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Tries until it works, a few seconds long.
///
/// # Errors
/// That of the last attempt.
pub(crate) fn wait_for(what: &str, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + TIMEOUT;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= end => return Err(error).context(format!("{what} does not come up")),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Fails when a signal asked to end.
///
/// # Errors
/// Then.
pub(crate) fn check_interrupted(flag: &std::sync::atomic::AtomicBool) -> Result<()> {
    if flag.load(std::sync::atomic::Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}
