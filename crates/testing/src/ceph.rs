//! A small Ceph cluster: one monitor, and one store of objects in memory, on ports of this host's loopback.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::is_installed;

/// What it takes.
const PROGRAMS: [&str; 6] = ["ceph-mon", "ceph-osd", "ceph", "ceph-authtool", "monmaptool", "rbd"];

/// A cluster that ends with its value, with the pool `rbd` in it.
#[derive(Debug)]
pub struct Ceph {
    directory: PathBuf,
    daemons: Vec<Child>,
}

/// A cluster that hangs for as long as this lives.
#[derive(Debug)]
pub struct Frozen(u32);

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

/// Whether every thread of a process stands still (proc(5)); one that is gone does.
fn is_stopped(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let state = |stat: String| stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .all(|stat| state(stat) == Some('T'))
}

fn signal(signal: &str, process: u32) {
    let status = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill {signal} {process}");
}

impl Ceph {
    /// Whether the programs are there (packages ceph-mon, ceph-osd and ceph-common).
    #[must_use]
    pub fn can_run() -> bool {
        PROGRAMS.into_iter().all(is_installed)
    }

    /// Starts a cluster: about a second.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Ceph {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sanwire-ceph-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        for part in ["mon", "run", "log", "osd0"] {
            fs::create_dir_all(directory.join(part)).expect("a directory for the cluster");
        }
        let mut ceph = Ceph { directory, daemons: Vec::new() };
        let (fsid, osd) = ("0f5a7f0e-6d0c-4b5b-9a3b-0d9d1d1f5a01", "0f5a7f0e-6d0c-4b5b-9a3b-0d9d1d1f5a02");
        let monitor = ceph.configure(fsid);
        let keyring = ceph.text("keyring");
        ceph.run(
            "ceph-authtool",
            &["--create-keyring", &keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"],
        );
        let admin = ["--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *"];
        ceph.run("ceph-authtool", &[&[&*keyring][..], &admin].concat());
        let (map, own) = (ceph.text("monmap"), ceph.text("osd0/keyring"));
        ceph.run("monmaptool", &["--create", "--addv", "a", &monitor, "--fsid", fsid, &map]);
        ceph.run("ceph-mon", &["--mkfs", "-i", "a", "--monmap", &map, "--keyring", &keyring]);
        ceph.spawn("ceph-mon", &["-i", "a", "-f"]);
        ceph.run("ceph", &["osd", "new", osd]);
        ceph.run("ceph-authtool", &["--create-keyring", &own, "--gen-key", "-n", "osd.0"]);
        ceph.run("ceph", &["auth", "add", "osd.0", "mon", "allow profile osd", "osd", "allow *", "-i", &own]);
        ceph.run("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", osd, "--keyring", &own]);
        ceph.spawn("ceph-osd", &["-i", "0", "-f", "--keyring", &own]);
        ceph.run("ceph", &["osd", "pool", "create", "rbd", "8"]);
        ceph.run("ceph", &["osd", "pool", "application", "enable", "rbd", "rbd"]);
        ceph
    }

    /// Makes an image in the pool.
    ///
    /// # Panics
    /// When the cluster refuses.
    pub fn create(&self, image: &str, size: &str) {
        self.run("rbd", &["create", &format!("rbd/{image}"), "--size", size]);
    }

    /// Runs a program of Ceph against the cluster, and gives what it says.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect(program);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Stops what has the objects, until the value that it gives is dropped: requests wait, as in an outage.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        let osd = self.daemons.last().expect("the cluster runs").id();
        signal("-STOP", osd);
        // The signal is only sent: each thread works on until it is delivered there.
        while !is_stopped(osd) {
            thread::sleep(Duration::from_millis(1));
        }
        Frozen(osd)
    }

    /// The cluster's configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.directory.join("ceph.conf")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("CEPH_CONF", self.config()).stdin(Stdio::null());
        if program == "ceph" {
            // It would wait five minutes for a monitor that does not run.
            command.args(["--connect-timeout", "30"]);
        }
        command
    }

    fn spawn(&mut self, program: &str, arguments: &[&str]) {
        let mut command = self.command(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemons.push(command.spawn().expect(program));
    }

    fn text(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Writes the configuration, and gives the monitor's addresses.
    fn configure(&self, fsid: &str) -> String {
        let free =
            || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let monitor = format!("[v2:127.0.0.1:{},v1:127.0.0.1:{}]", free(), free());
        let at = |name: &str| self.text(name);
        let lines = [
            "[global]".to_owned(),
            format!("fsid = {fsid}"),
            format!("mon host = {monitor}"),
            "public addr = 127.0.0.1\ncluster addr = 127.0.0.1".to_owned(),
            format!("run dir = {}", at("run")),
            format!("admin socket = {}", at("run/$cluster-$name.$pid.asok")),
            format!("log file = {}", at("log/$name.log")),
            format!("keyring = {}", at("keyring")),
            format!("mon data = {}\nosd data = {}", at("mon"), at("osd$id")),
            "osd objectstore = memstore\nmemstore device bytes = 2147483648".to_owned(),
            "osd pool default size = 1\nosd pool default min size = 1\nmon allow pool size one = true".to_owned(),
            "osd pool default pg autoscale mode = off\nosd crush chooseleaf type = 0".to_owned(),
            // Or a monitor ends itself where less than a twentieth of the disk is free.
            "mon data avail warn = 0\nmon data avail crit = 0".to_owned(),
            "paxos propose interval = 0.05\npaxos min wait = 0.01\nosd fast shutdown = true\n".to_owned(),
        ];
        let mut file = fs::File::create(self.config()).expect("a configuration file");
        file.write_all(lines.join("\n").as_bytes()).expect("it can be written");
        monitor
    }

    /// Where the cluster keeps its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}
