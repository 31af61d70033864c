//! NFS: nfs-ganesha at the server, libnfs's programs at the client, for kernels without NFS.
//!
//! These programs copy whole files, so only what copies can show is measured: no block reads and nothing random. Nor writes:
//! over NFS 4, libnfs 4.0 (Debian 12's) fails to write more than about 3000 bytes at once, and NFS 3 would take the host's
//! rpcbind.

use std::fs;

use anyhow::Result;

use crate::link::{End, SERVER_ADDRESS, call};
use crate::load::MIB;
use crate::process::{Host, Running};
use crate::servers::{Files, fill, installed, wait_for};

use super::load::{COPY, COPY_BYTES, Load, ZONE, ZONE_BYTES, Zone, timed};
use crate::mounted::Mounted;

const EXPORT: &str = "/bench";

/// The server and what it exports.
#[derive(Debug)]
pub(super) struct Nfs {
    // Ends before its file system is unmounted.
    _server: Running,
    mounted: Mounted,
}

/// Whether the client can do it.
pub(super) fn can(load: Load) -> bool {
    matches!(load, Load::Copy | Load::Zone(Zone::Read | Zone::Reread))
}

/// What the client does.
pub(super) fn command(load: Load) -> Vec<String> {
    let file = if load == Load::Copy { COPY } else { ZONE };
    let line = format!("nfs-cat 'nfs://{SERVER_ADDRESS}{EXPORT}/{file}?version=4' > /dev/null");
    vec!["sh".into(), "-c".into(), line]
}

impl Nfs {
    /// Exports what is mounted; nothing when a program is missing.
    ///
    /// # Errors
    /// When the server does not come up.
    pub(super) fn new(host: &Host, files: &Files, mounted: Mounted) -> Result<Option<Self>> {
        let (Some(ganesha), Some(_)) = (installed("ganesha.nfsd"), installed("nfs-cat")) else { return Ok(None) };
        let [configuration, log, process, recovery] =
            ["ganesha.conf", "ganesha.log", "ganesha.pid", "ganesha"].map(|name| files.path(name));
        fs::create_dir_all(&recovery)?;
        let directory = &mounted.directory;
        fill(&format!("{directory}/{ZONE}"), ZONE_BYTES)?;
        fs::write(
            &configuration,
            format!(
                "NFS_CORE_PARAM {{ Protocols = 4; Bind_addr = {SERVER_ADDRESS}; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
                 NFSv4 {{ Graceless = true; RecoveryRoot = \"{recovery}\"; }}\n\
                 EXPORT {{ Export_Id = 1; Path = \"{directory}\"; Pseudo = \"{EXPORT}\"; Protocols = 4; Access_Type = RW;\n\
                 Squash = No_Root_Squash; SecType = sys; Transports = TCP; FSAL {{ Name = VFS; }} }}\n"
            ),
        )?;
        let arguments = ["-F", "-f", &configuration, "-L", &log, "-p", &process, "-N", "NIV_CRIT"];
        let server = host.start(End::Server, &ganesha, &arguments)?;
        let url = format!("nfs://{SERVER_ADDRESS}{EXPORT}?version=4");
        wait_for("nfs-ganesha", || host.run(End::Client, "timeout", &["2", "nfs-ls", &url]).map(drop))?;
        Ok(Some(Nfs { _server: server, mounted }))
    }

    /// Does it once, and gives the MiB per second.
    ///
    /// # Errors
    /// When a program fails or takes too long.
    pub(super) fn measure(&self, host: &Host, load: Load) -> Result<f64> {
        if load == Load::Zone(Zone::Read) {
            // The first read finds the server's page cache empty; the second does not.
            forget(&format!("{}/{ZONE}", self.mounted.directory))?;
        }
        let (_, seconds) = timed(host, &command(load))?;
        let length_bytes = if load == Load::Copy { COPY_BYTES } else { ZONE_BYTES };
        Ok(length_bytes as f64 / MIB / seconds)
    }
}

/// Has this host's page cache give a file up.
fn forget(path: &str) -> Result<()> {
    let output = format!("of={path}");
    call("dd", &[&output, "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]).map(drop)
}
