//! Small servers for tests.

use std::any::Any;
use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs, process};

use sanwire_core::{Lun, Protection};
use sanwire_io::file::EngineKind;
use sanwire_store::kind::{self, Backing, Likeness, Place, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, VolumeSpec, Written};

use super::slow::{Next, Step};
use super::{ManageError, Manager};
use crate::allow::AllowList;
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::derived::check_derived;
use crate::error::StartError;
use crate::front::hyperscsi::clients::Compression;
use crate::front::hyperscsi::{Identity, Recovery};
use crate::front::iscsi::Authentication;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::wire::Wire;

/// A server of these volumes, each with a target of its own.
pub(crate) fn config(volumes: &[&str]) -> ServerConfig {
    sanwire_store_file::register();
    let mut specs: Vec<VolumeSpec> = volumes.iter().map(|spec| spec.parse().unwrap()).collect();
    // As the command line does, which refuses what is wrong there; so that it can be seen that the server does, too, it goes on here.
    let _ = check_derived(&mut specs, Protection::Checksum);
    let volume = |(lun, spec)| VolumeConfig { lun: Lun::new(lun).unwrap(), spec, origin: Origin::CommandLine };
    let volumes: Vec<VolumeConfig> = (0..).zip(specs).map(volume).collect();
    let exports =
        volumes.iter().map(|volume| TargetNodeConfig::of_volume(&volume.spec.name, AllowList::default()).unwrap());
    ServerConfig {
        name: "test".into(),
        identity: Identity::from_private(crate::random::bytes().unwrap()).unwrap(),
        psk: [0; 32],
        wires: vec!["hs-ip:127.0.0.1:1".parse().unwrap()].into_iter().map(any_port).collect(),
        protection: Protection::Checksum,
        compression: Compression::Off,
        rekey_interval: ServerConfig::REKEY_INTERVAL_DEFAULT,
        allow: AllowList::default(),
        clients: Vec::new(),
        exports: exports.collect(),
        pools: Vec::new(),
        volumes,
        accepted: Default::default(),
        discovery: Authentication::default(),
        state_directory: None,
        audit_log: None,
        announced: Default::default(),
        metrics_of_clients: false,
        rdma: Default::default(),
        direct_copies: Default::default(),
        shards: 1,
        memory_bytes: ServerConfig::MEMORY_BYTES_DEFAULT,
        ring_bytes: 1 << 20,
        engine: EngineKind::Auto,
        visa: Default::default(),
        recovery: Recovery::default(),
    }
}

pub(crate) fn any_port(wire: Wire) -> Wire {
    match wire.address() {
        Some(address) => wire.at((address.ip(), 0).into()),
        None => wire,
    }
}

/// `silent:PATH`: a store that nobody answers about who opens it, as long as somebody listens at the path.
struct SilentKind;

#[derive(Debug)]
struct SilentBacking(String);

impl StoreKind for SilentKind {
    fn words(&self) -> &'static [&'static str] {
        &["silent"]
    }

    fn form(&self) -> &'static str {
        "silent:PATH"
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        Ok(Arc::new(SilentBacking(written.place().to_owned())))
    }
}

impl Backing for SilentBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        let heard = UnixStream::connect(&self.0).and_then(|mut stream| stream.read_to_end(&mut Vec::new()));
        let source = heard.err().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
        Err(OpenError::Io { path: (&self.0).into(), action: "open", source })
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.0)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let is_same = (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| other.0 == self.0);
        if is_same { Likeness::Same } else { Likeness::Other }
    }
}

/// What somebody listens at who is silent; stores that are opened there fail when it is dropped.
pub(crate) struct Silent {
    listener: UnixListener,
    path: PathBuf,
}

impl Silent {
    pub(crate) fn new(kept: &Kept) -> Silent {
        kind::register(&SilentKind);
        let path = kept.directory.join("silent.sock");
        Silent { listener: UnixListener::bind(&path).unwrap(), path }
    }

    pub(crate) fn volume(&self, name: &str) -> String {
        format!("{name}=silent:{}", self.path.display())
    }

    /// Breaks off with all who wait.
    pub(crate) fn give_up(self) {
        drop(self.listener);
        fs::remove_file(self.path).unwrap();
    }
}

/// A server that keeps its state there, and what it is configured to be.
pub(crate) struct Kept {
    pub(crate) directory: PathBuf,
    pub(crate) configured: Vec<String>,
}

impl Kept {
    pub(crate) fn new(label: &str, configured: &[&str]) -> Kept {
        let directory = env::temp_dir().join(format!("sanwire-kept-manager-{label}-{}", process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Kept { directory, configured: configured.iter().map(|text| (*text).to_owned()).collect() }
    }

    pub(crate) fn config(&self) -> ServerConfig {
        let volumes: Vec<&str> = self.configured.iter().map(String::as_str).collect();
        ServerConfig { state_directory: Some(self.directory.join("state")), ..config(&volumes) }
    }

    pub(crate) fn start(&self) -> Result<Manager, StartError> {
        let config = self.config();
        Manager::start(config.clone(), Box::new(move || Ok(config.clone())))
    }

    pub(crate) fn changes(&self) -> PathBuf {
        self.directory.join("state/changes-test.json")
    }
}

impl Kept {
    /// As on a disk that is full: no change can be kept from now on.
    pub(crate) fn fill_disk(&self) {
        fs::create_dir(self.changes().with_extension("json.new")).unwrap();
    }
}

/// Does what of a request takes long, and gives the rest.
pub(super) fn work(step: Step) -> Next {
    match step {
        Step::Slow(slow) => slow.run(),
        Step::Done(answer) => panic!("{answer:?}"),
    }
}

/// The same for all that a request does until this is done.
pub(super) fn work_until(manager: &mut Manager, mut step: Step, what: &str) -> Next {
    loop {
        let is_it = matches!(&step, Step::Slow(slow) if slow.what == what);
        let rest = work(step);
        if is_it {
            return rest;
        }
        step = go_on(manager, rest).unwrap();
    }
}

pub(super) fn go_on(manager: &mut Manager, next: Next) -> Result<Step, ManageError> {
    match next {
        Next::Then(then) => then(manager),
        Next::Over(_) => panic!("it is over"),
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
