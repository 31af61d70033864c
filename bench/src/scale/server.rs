//! A server of many volumes, and what it takes.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};

use crate::process::{cpu_of_threads, stat};
use crate::servers::Files;

/// The target that has all volumes, each under its own number.
pub(crate) const TARGET: &str = "iqn.2026-01.net.sanwire:scale";

/// What the names of threads that serve volumes begin with.
const SHARD: &str = "shard";
const READER_PROCESSOR: usize = 0;
const ASKERS_PROCESSOR: usize = 1;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A server on the loopback, on ports of its own.
pub(crate) struct ScaleServer {
    child: Child,
    control: PathBuf,
    config: String,
    /// What the configuration says besides the volumes.
    head: String,
    pub(crate) iscsi: SocketAddr,
    pub(crate) hyperscsi: SocketAddr,
    /// The unix socket of its HTTP API.
    pub(crate) http: PathBuf,
    /// How long it took until it served.
    pub(crate) start: Duration,
    /// Whether its shards have a processor of their own.
    is_parted: AtomicBool,
}

/// What a server takes at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Processor time so far of the threads that are there.
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
}

impl ScaleServer {
    /// Starts one with so many volumes, all of them also units of one iSCSI target.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn start(sanwire: &str, files: &Files, volumes: usize) -> Result<Self> {
        Self::start_with(sanwire, files, &format!("scale-{volumes}"), |head| configuration(head, volumes))
    }

    /// Starts one whose configuration is made of what must be in it.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn start_with(
        sanwire: &str,
        files: &Files,
        name: &str,
        configuration: impl FnOnce(&str) -> Result<String>,
    ) -> Result<Self> {
        let [iscsi, hyperscsi] =
            [TcpListener::bind(("127.0.0.1", 0))?.local_addr()?, UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?];
        let [config, state, key, control, http] =
            ["conf", "state", "key", "control", "http"].map(|kind| files.path(&format!("{name}.{kind}")));
        let head = format!(
            "name = \"scale\"\nwire = [\"iscsi:{iscsi}\", \"hs-ip:{hyperscsi}\"]\nallow = [\"any\"]\nkey-file = \"{key}\"\n\
             state-directory = \"{state}\"\ncontrol = \"{control}\"\nhttp = [\"unix:{http}\"]\nlog = \"error\"\n"
        );
        fs::write(&config, configuration(&head)?)?;
        let begun = Instant::now();
        let child = Command::new(sanwire)
            .args(["serve", "--config", &config])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let (control, http, start) = (control.into(), http.into(), Duration::ZERO);
        let mut server = ScaleServer {
            child,
            control,
            config,
            head,
            iscsi,
            hyperscsi,
            http,
            start,
            is_parted: AtomicBool::new(false),
        };
        while TcpStream::connect(iscsi).is_err() || !server.control.exists() || !server.http.exists() {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server has ended: {status}");
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!("the server does not come up within {START_TIMEOUT:?}");
            }
            thread::sleep(POLL);
        }
        server.start = begun.elapsed();
        Ok(server)
    }

    /// Has it read a configuration with so many volumes; how long that took.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) fn reload(&self, volumes: usize) -> Result<Duration> {
        fs::write(&self.config, configuration(&self.head, volumes)?)?;
        self.manage(&json!({ "do": "reload" }))
    }

    /// What it takes now.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let cpu = cpu_of_threads(self.child.id())?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let resident_bytes = line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024;
        Ok(Usage { cpu, resident_bytes })
    }

    /// Processor time of all its threads, also of those that have ended, as requests to manage it have threads of their own; to a
    /// hundredth of a second.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn cpu_with_ended(&self) -> Result<Duration> {
        Ok(stat(self.child.id()).context("the server has ended")?.1)
    }

    /// Gives its shards, and who reads from it, one processor, and its other threads, with who asks them, another one: what a reader
    /// loses then, it loses to the server and not to the lack of processors. `false` on a machine with one.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn part(&self) -> Result<bool> {
        if thread::available_parallelism()?.get() < 2 {
            return Ok(false);
        }
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let thread = thread?;
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            let id = thread.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
            let pinned = pin(id, if name.starts_with(SHARD) { READER_PROCESSOR } else { ASKERS_PROCESSOR });
            // One that has just ended need not be anywhere.
            pinned.or_else(|error| if error == Errno::SRCH { Ok(()) } else { Err(error) })?;
        }
        self.is_parted.store(true, Ordering::Relaxed);
        Ok(true)
    }

    /// Puts the calling thread to where the shards are, once they have a processor of their own.
    ///
    /// # Errors
    /// When this process may not use that processor.
    pub(crate) fn join_reader(&self) -> Result<()> {
        if self.is_parted.load(Ordering::Relaxed) { Ok(pin(None, READER_PROCESSOR)?) } else { Ok(()) }
    }

    /// Puts the calling thread to where the shards are not.
    ///
    /// # Errors
    /// When this process may not use that processor.
    pub(crate) fn join_askers(&self) -> Result<()> {
        if self.is_parted.load(Ordering::Relaxed) { Ok(pin(None, ASKERS_PROCESSOR)?) } else { Ok(()) }
    }

    /// Asks to manage it; how long the answer took.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) fn manage(&self, request: &Value) -> Result<Duration> {
        let begun = Instant::now();
        let mut stream = UnixStream::connect(&self.control)?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        let took = begun.elapsed();
        let answer: Value = serde_json::from_str(&answer)?;
        match &answer["refused"] {
            Value::Null => Ok(took),
            reason => bail!("{request}: {reason}"),
        }
    }

    /// Adds a volume, as a further unit of the target.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) fn add(&self, name: &str) -> Result<Duration> {
        self.manage(&json!({ "do": "add-volume", "volume": format!("{name}=null:1G"), "target": TARGET }))
    }

    /// Removes a volume, whoever uses it.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) fn remove(&self, name: &str) -> Result<Duration> {
        self.manage(&json!({ "do": "remove-volume", "name": name, "force": true }))
    }

    /// The address of its HyperSCSI wire, in a URL.
    pub(crate) fn url(&self) -> String {
        format!("hs+ip://{}", self.hyperscsi)
    }
}

/// Has a thread, or the calling one, run on this processor alone.
fn pin(thread: Option<Pid>, processor: usize) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(thread, &set)
}

/// With so many volumes, all of them also units of one iSCSI target.
fn configuration(head: &str, volumes: usize) -> Result<String> {
    let mut text = head.to_owned();
    for number in 0..volumes {
        write!(text, "[[volume]]\nname = \"v{number}\"\nstore = \"null:1G\"\n")?;
    }
    write!(text, "[[target]]\nname = \"{TARGET}\"\n[target.lun]\n")?;
    for number in 0..volumes {
        writeln!(text, "\"{number}\" = \"v{number}\"")?;
    }
    Ok(text)
}

impl Drop for ScaleServer {
    fn drop(&mut self) {
        // It keeps nothing that matters.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
