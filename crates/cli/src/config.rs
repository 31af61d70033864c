//! What `serve` is asked to do: the file and the command line as one checked value, before anything is opened.

mod attachments;
mod check;
mod clients;
mod connection_options;
mod defaults;
mod file;
mod secret;
mod server_name;
mod targets;
mod warnings;
mod web;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sanwire_core::Protection;
use sanwire_core::limits::LUNS_MAX;
use sanwire_iscsi::Authentication;
use sanwire_server::{
    AllowList, Announced, Compression, DerivedError, DirectCopies, Origin, PoolConfig, ServerConfig, TargetNodeConfig,
    VisaWishes, check_derived,
};
use sanwire_store::kind::Place;
use sanwire_store::{Acceptance, VolumeName, VolumeSpec};
use sanwire_web::WebConfig;

use crate::args::{EngineChoice, LogArgs, LogFormat, LogLevel, RecoveryChoice, ServeArgs, visa_wishes};
use crate::failure::misuse;
use file::FileConfig;

pub(crate) use attachments::{Attachments, Given, save as save_attachment};
pub(crate) use clients::FileClient;
pub(crate) use connection_options::ConnectionOptions;
pub(crate) use defaults::{config_directory, data_directory, is_credential, runtime_directory, state_directory};
pub(crate) use sanwire_server::Wire;
pub(crate) use secret::{Password, read_password};
pub(crate) use server_name::ServerName;
use warnings::Written;

/// Shards at the most: more threads than any machine of today has cores.
const SHARDS_MAX: u16 = 1024;

/// One server, whole and checked.
#[derive(Debug)]
pub(crate) struct ServeConfig {
    /// What clients call it.
    pub(crate) name: ServerName,
    /// The directories in which volumes can be without naming a path.
    pub(crate) pools: Vec<PoolConfig>,
    /// The volumes, by their numbers; none where a file names none.
    pub(crate) volumes: Vec<VolumeSpec>,
    /// Where each of them is said.
    pub(crate) origins: Vec<Origin>,
    /// Those of which something else than what is remembered is taken.
    pub(crate) accepted: BTreeMap<VolumeName, Acceptance>,
    /// A directory to make first: that of the default volume.
    pub(crate) make_directory: Option<PathBuf>,
    /// The wires; at least one.
    pub(crate) wires: Vec<Wire>,
    /// Whom it serves.
    pub(crate) allow: AllowList,
    /// Which of its addresses clients are told.
    pub(crate) announced: Announced,
    /// The clients that are known by their ids.
    pub(crate) clients: Vec<FileClient>,
    /// The iSCSI targets: those of the file, else one for each volume.
    pub(crate) targets: Vec<TargetNodeConfig>,
    /// How iSCSI discovery sessions show who they are.
    pub(crate) discovery: Authentication,
    /// What clients must know.
    pub(crate) password: Option<Password>,
    /// The file of what clients must know, in place of a password.
    pub(crate) secret_file: Option<PathBuf>,
    /// How volumes are guarded that do not say so themselves.
    pub(crate) security: Protection,
    /// Whether data of HyperSCSI connections may be compressed.
    pub(crate) compression: Compression,
    /// How long the keys of a connection are used.
    pub(crate) rekey_interval: Duration,
    /// Where its static key is kept.
    pub(crate) key_file: PathBuf,
    /// Where reservations and changes of the running server are kept; `None` when the user has no place for state.
    pub(crate) state_directory: Option<PathBuf>,
    /// Where it is managed, when the user has said so.
    pub(crate) control: Option<PathBuf>,
    /// Where changes by management are noted, when the user has said so.
    pub(crate) audit_log: Option<PathBuf>,
    /// Whether the metrics tell of each client.
    pub(crate) metrics_of_clients: bool,
    /// Which copies go straight to other servers.
    pub(crate) direct_copies: DirectCopies,
    /// The HTTP API, if it has any place.
    pub(crate) web: WebConfig,
    /// Threads that serve.
    pub(crate) shards: usize,
    /// How files and block devices are read and written.
    pub(crate) engine: EngineChoice,
    /// How lost packets are sent again.
    pub(crate) recovery: RecoveryChoice,
    /// What VISA connections should be.
    pub(crate) visa: VisaWishes,
    /// How much it logs.
    pub(crate) log: LogLevel,
    /// How it writes a line of its log, if that is said.
    pub(crate) log_format: Option<LogFormat>,
    /// What is hardly meant so, a line for each.
    pub(crate) warnings: Vec<String>,
}

impl ServeConfig {
    /// Reads the file, adds the command line, fills in the defaults and checks the whole.
    ///
    /// # Errors
    /// A [`crate::failure::Misuse`] that says where and what to do.
    pub(crate) fn load(args: &ServeArgs, log: LogArgs) -> anyhow::Result<Self> {
        let file = match &args.config {
            Some(path) => file::read(path)?,
            None => FileConfig::default(),
        };
        Self::combine(file, args.clone(), log)
    }

    fn combine(file: FileConfig, args: ServeArgs, log: LogArgs) -> anyhow::Result<Self> {
        let written = Written::of(&file, &args);
        let security = args.security.or(file.security).unwrap_or_default();
        let Volumes { volumes, origins, make_directory } =
            Volumes::combine(file.volumes, args.volumes, args.config.is_some(), security)?;
        let pools = join(file.pools, args.pools);
        PoolConfig::check_all(&pools).map_err(|error| misuse(error.to_string()))?;
        let accepted = accepted(args.renewed, args.adopted, &volumes)?;
        let wires = wires(file.wires, args.wires)?;
        let allow = AllowList::new(join(file.allow, args.allow));
        let in_the_clear = volumes.iter().filter(|volume| volume.security.unwrap_or(security) == Protection::Checksum);
        let made = targets::made(in_the_clear, &wires, &allow)?;
        let password_file = args.password_file.or(file.password_file);
        let secret_file = args.secret_file.or(file.secret_file);
        let clients_have_secrets = file.clients.iter().any(FileClient::has_secret);
        if password_file.is_some() || secret_file.is_some() || clients_have_secrets {
            targets::refuse_open(&file.targets, &made, &wires)?;
        }
        let targets = targets::resolve(file.targets, made, &volumes, &allow)?;
        check_one_secret(password_file.as_deref(), secret_file.as_deref())?;
        let key_file = args.key_file.or(file.key_file);
        let state_directory = args.state_directory.or(file.state_directory).map_or_else(state_directory, Ok);
        let name = args.name.or(file.name).map_or_else(defaults::server_name, Ok)?;
        let web = file.web.combine(args.http, name.as_str(), state_directory.as_deref().ok())?;
        let rekey_interval = args.rekey_interval.or(file.rekey_interval);
        let mut config = ServeConfig {
            pools,
            volumes,
            origins,
            accepted,
            make_directory,
            wires,
            allow,
            announced: Announced::new(join(file.announce, args.announce)),
            clients: file.clients,
            targets,
            discovery: file.discovery,
            security,
            compression: args.compression.or(file.compression).unwrap_or_default(),
            rekey_interval: rekey_interval.map_or(ServerConfig::REKEY_INTERVAL_DEFAULT, seconds),
            password: password_file.as_deref().map(read_password).transpose()?,
            secret_file,
            key_file: match (key_file, &state_directory) {
                (Some(file), _) => file,
                (None, Ok(state)) => state.join("server.key"),
                (None, Err(error)) => return Err(misuse(format!("{error}, or give --state-directory"))),
            },
            state_directory: state_directory.ok(),
            control: args.control.or(file.control),
            audit_log: args.audit_log.or(file.audit_log),
            metrics_of_clients: file.metrics_of_clients,
            direct_copies: file.direct_copies,
            web,
            shards: shards(args.shards.or(file.shards).map(Into::into))?,
            engine: args.engine.or(file.engine).unwrap_or_default(),
            recovery: args.recovery.or(file.recovery).unwrap_or_default(),
            visa: visa_wishes(
                args.visa_mode.or(file.visa_mode).unwrap_or_default(),
                args.visa_checksum.or(file.visa_checksum).unwrap_or_default(),
                args.visa_payload.or(file.visa_payload),
            ),
            name,
            log: log.level.or(file.log).unwrap_or(LogLevel::Info),
            log_format: log.format.or(file.log_format),
            warnings: Vec::new(),
        };
        config.warnings = warnings::warnings(&config, &written);
        Ok(config)
    }
}

/// A volume that cannot be derived as it is written.
fn misplaced((volume, error): (String, DerivedError)) -> anyhow::Error {
    misuse(format!("volume {volume}: {error}"))
}

/// The volumes of file and command line, or the one that is served where neither is given.
struct Volumes {
    volumes: Vec<VolumeSpec>,
    origins: Vec<Origin>,
    make_directory: Option<PathBuf>,
}

impl Volumes {
    fn combine(
        in_file: Vec<VolumeSpec>,
        given: Vec<VolumeSpec>,
        has_file: bool,
        usual: Protection,
    ) -> anyhow::Result<Self> {
        let origins = [vec![Origin::File; in_file.len()], vec![Origin::CommandLine; given.len()]].concat();
        let mut volumes = join(in_file, given);
        check_names(&volumes)?;
        check_places(&volumes)?;
        check_shelves(&volumes)?;
        check_disk_addresses(&volumes)?;
        check_derived(&mut volumes, usual).map_err(misplaced)?;
        // Who writes a file says what is served.
        if !volumes.is_empty() || has_file {
            return Ok(Volumes { volumes, origins, make_directory: None });
        }
        let directory = data_directory()?;
        let volumes = vec![defaults::volume(&directory)?];
        Ok(Volumes { volumes, origins: vec![Origin::Default], make_directory: Some(directory) })
    }
}

/// Where it is served: over HyperSCSI and IP, if nothing is said.
fn wires(in_file: Vec<Wire>, given: Vec<Wire>) -> anyhow::Result<Vec<Wire>> {
    let mut wires = join(in_file, given);
    if wires.is_empty() {
        wires.push(Wire::default());
    }
    check_wires(&wires)?;
    add_besides(&mut wires);
    Ok(wires)
}

fn join<T>(mut first: Vec<T>, second: Vec<T>) -> Vec<T> {
    first.extend(second);
    first
}

fn check_one_secret(password: Option<&Path>, secret: Option<&Path>) -> anyhow::Result<()> {
    let Some((password, secret)) = password.zip(secret) else { return Ok(()) };
    let (password, secret) = (password.display(), secret.display());
    Err(misuse(format!("password file {password} and secret file {secret}: give one of them")))
}

fn seconds(count: NonZeroU32) -> Duration {
    Duration::from_secs(count.get().into())
}

fn shards(wanted: Option<u16>) -> anyhow::Result<usize> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(SHARDS_MAX.into());
    match wanted {
        None => Ok(cores()),
        Some(count) if count <= SHARDS_MAX => Ok(count.into()),
        Some(count) => {
            Err(misuse(format!("{count} shards are too many: use at most {SHARDS_MAX}, best one for a core")))
        }
    }
}

fn check_names(volumes: &[VolumeSpec]) -> anyhow::Result<()> {
    if volumes.len() > LUNS_MAX {
        let count = volumes.len();
        return Err(misuse(format!(
            "{count} volumes are too many: one server has at most {LUNS_MAX}, start another one"
        )));
    }
    let mut seen = BTreeSet::new();
    match volumes.iter().find(|volume| !seen.insert(&volume.name)) {
        Some(twice) => Err(misuse(format!("two volumes are called {}: give each a name of its own", twice.name))),
        None => Ok(()),
    }
}

/// One file or device is one volume; two that only read it may share it. What is below layers is shared with nobody, wherever it is.
fn check_places(volumes: &[VolumeSpec]) -> anyhow::Result<()> {
    let mut seen: BTreeMap<Place<'_>, &VolumeSpec> = BTreeMap::new();
    for volume in volumes {
        let place = volume.store.backing.place();
        if matches!(place, Place::Memory | Place::Nowhere | Place::Volume(_)) {
            continue;
        }
        let Some(other) = seen.insert(place, volume) else { continue };
        let (both, store) = (format!("the volumes {} and {} both are", other.name, volume.name), volume.store_text());
        if volume.below_layers().is_some() || other.below_layers().is_some() {
            return Err(misuse(format!(
                "{both} {store}: what is below layers is one volume; give each a store of its own"
            )));
        }
        if let Place::File(path) = place
            && !(volume.store.read_only && other.store.read_only)
        {
            let path = path.display();
            return Err(misuse(format!("{both} {path}: give each a place of its own, or make both readonly")));
        }
    }
    Ok(())
}

/// The volumes of which something else than what is remembered is taken.
fn accepted(
    renewed: Vec<VolumeName>,
    adopted: Vec<VolumeName>,
    volumes: &[VolumeSpec],
) -> anyhow::Result<BTreeMap<VolumeName, Acceptance>> {
    let renewed = renewed.into_iter().map(|name| ("--renew", name, Acceptance::Renewed));
    let adopted = adopted.into_iter().map(|name| ("--adopt", name, Acceptance::Adopted));
    let mut accepted = BTreeMap::new();
    for (option, name, acceptance) in renewed.chain(adopted) {
        if volumes.iter().all(|volume| volume.name != name) {
            return Err(misuse(format!("{option} {name}: no volume is called so")));
        }
        if accepted.insert(name.clone(), acceptance).is_some_and(|before| before != acceptance) {
            return Err(misuse(format!(
                "volume {name} is either adopted, and stays what it was, or renewed, and becomes another one: give one of the two"
            )));
        }
    }
    Ok(accepted)
}

/// Refuses two volumes at one address.
fn check_shelves(volumes: &[VolumeSpec]) -> anyhow::Result<()> {
    for (index, volume) in volumes.iter().enumerate() {
        let is_same = |other: &&VolumeSpec| volume.aoe.is_some() && other.aoe == volume.aoe;
        if let (Some(at), Some(other)) = (volume.aoe, volumes[..index].iter().find(is_same)) {
            let (first, second) = (&other.name, &volume.name);
            return Err(misuse(format!(
                "the volumes {first} and {second} both are at shelf {} and slot {}: give one another slot",
                at.shelf, at.slot
            )));
        }
    }
    Ok(())
}

/// The same for HDSP.
fn check_disk_addresses(volumes: &[VolumeSpec]) -> anyhow::Result<()> {
    for (index, volume) in volumes.iter().enumerate() {
        let is_same = |other: &&VolumeSpec| volume.disk_address.is_some() && other.disk_address == volume.disk_address;
        if let (Some(at), Some(other)) = (volume.disk_address, volumes[..index].iter().find(is_same)) {
            let (first, second) = (&other.name, &volume.name);
            let message =
                format!("the volumes {first} and {second} both have the disk address {at}: give one another one");
            return Err(misuse(message));
        }
    }
    Ok(())
}

/// What is spoken over UDP is spoken over TCP too, at the same address.
fn add_besides(wires: &mut Vec<Wire>) {
    let besides: Vec<Wire> = wires.iter().filter_map(Wire::also).filter(|wire| !wires.contains(wire)).collect();
    wires.extend(besides);
}

fn check_wires(wires: &[Wire]) -> anyhow::Result<()> {
    if wires.len() > usize::from(u8::MAX) {
        return Err(misuse(format!("{} wires are too many: use at most {}", wires.len(), u8::MAX)));
    }
    for (index, wire) in wires.iter().enumerate() {
        let place = |wire: &Wire| wire.portal().map(|(address, _)| (address, wire.is_by_adapter()));
        let is_same_portal = |other: &&Wire| wire.portal().is_some() && place(other) == place(wire);
        // iSCSI and iSER are told apart at one portal by how connections begin.
        let may_share = |other: &&Wire| {
            other.portal() == wire.portal()
                && other.has_targets()
                && wire.has_targets()
                && other.is_rdma() != wire.is_rdma()
        };
        let is_in_the_way = |other: &&Wire| *other != wire && is_same_portal(other) && !may_share(other);
        if let Some(other) = wires[..index].iter().find(is_in_the_way) {
            return Err(misuse(format!(
                "the wires {other} and {wire} are one portal in two groups: give it one group"
            )));
        }
        if wires[..index].contains(wire) {
            return Err(misuse(format!("the wire {wire} is given twice: once is enough")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod pages;
#[cfg(test)]
mod tests;
