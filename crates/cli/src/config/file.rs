//! The configuration file: TOML in which an unknown key is an error, and every error has its line.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::num::{NonZeroU16, NonZeroU32};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sanwire_core::{Protection, Size};
use sanwire_iscsi::Authentication;
use sanwire_server::{AllowRule, AnnounceRule, Compression, CopyOrderers, CopyPlace, DirectCopies, PoolConfig};
use sanwire_store::VolumeSpec;
use sanwire_web::WebAddress;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use super::clients::{FileClient, WrittenClient};
use super::targets::{FileTarget, WrittenDiscovery, WrittenTarget};
use super::web::FileWeb;
use super::{ServerName, Wire};
use crate::args::{EngineChoice, LogFormat, LogLevel, RecoveryChoice, VisaChecksum, VisaMode, visa_payload};
use crate::failure::misuse;

/// The file's content; a key has the name of the option that says the same.
#[derive(Debug, Default)]
pub(super) struct FileConfig {
    pub(super) name: Option<ServerName>,
    pub(super) wires: Vec<Wire>,
    pub(super) allow: Vec<AllowRule>,
    pub(super) announce: Vec<AnnounceRule>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) secret_file: Option<PathBuf>,
    pub(super) security: Option<Protection>,
    pub(super) compression: Option<Compression>,
    pub(super) rekey_interval: Option<NonZeroU32>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) state_directory: Option<PathBuf>,
    pub(super) control: Option<PathBuf>,
    pub(super) audit_log: Option<PathBuf>,
    pub(super) metrics_of_clients: bool,
    pub(super) direct_copies: DirectCopies,
    pub(super) web: FileWeb,
    pub(super) shards: Option<NonZeroU16>,
    pub(super) engine: Option<EngineChoice>,
    pub(super) recovery: Option<RecoveryChoice>,
    pub(super) visa_mode: Option<VisaMode>,
    pub(super) visa_checksum: Option<VisaChecksum>,
    pub(super) visa_payload: Option<Size>,
    pub(super) log: Option<LogLevel>,
    pub(super) log_format: Option<LogFormat>,
    pub(super) pools: Vec<PoolConfig>,
    pub(super) volumes: Vec<VolumeSpec>,
    pub(super) clients: Vec<FileClient>,
    pub(super) targets: Vec<FileTarget>,
    pub(super) discovery: Authentication,
}

/// What serde reads; texts are parsed afterwards, so that an error has the place of its own text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    name: Option<Text>,
    #[serde(default)]
    wire: Vec<Text>,
    #[serde(default)]
    allow: Vec<Text>,
    #[serde(default)]
    announce: Vec<Text>,
    password_file: Option<PathBuf>,
    secret_file: Option<PathBuf>,
    security: Option<Text>,
    compression: Option<Text>,
    rekey_interval: Option<NonZeroU32>,
    key_file: Option<PathBuf>,
    state_directory: Option<PathBuf>,
    control: Option<PathBuf>,
    audit_log: Option<PathBuf>,
    #[serde(default)]
    metrics: WrittenMetrics,
    direct_copies: Option<Text>,
    direct_copy_to: Option<Vec<Text>>,
    #[serde(default)]
    http: Vec<Text>,
    #[serde(default)]
    http_hosts: Vec<Text>,
    http_certificate: Option<PathBuf>,
    http_key: Option<PathBuf>,
    #[serde(default)]
    http_plaintext: bool,
    shards: Option<NonZeroU16>,
    engine: Option<EngineChoice>,
    recovery: Option<RecoveryChoice>,
    visa_mode: Option<VisaMode>,
    visa_checksum: Option<VisaChecksum>,
    visa_payload: Option<Text>,
    log: Option<LogLevel>,
    log_format: Option<LogFormat>,
    #[serde(default)]
    pool: Vec<Spanned<WrittenPool>>,
    #[serde(default)]
    volume: Vec<Spanned<VolumeSpec>>,
    #[serde(default)]
    client: Vec<Spanned<WrittenClient>>,
    #[serde(default)]
    target: Vec<Spanned<WrittenTarget>>,
    discovery: Option<WrittenDiscovery>,
}

/// What the metrics have beside what they always have.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMetrics {
    #[serde(default)]
    clients: bool,
}

/// A pool, as serde reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPool {
    name: String,
    directory: PathBuf,
    limit: Option<String>,
    #[serde(default)]
    default: bool,
    snapshots: Option<String>,
}

impl WrittenPool {
    fn check(pool: &Spanned<WrittenPool>, source: &Source<'_>) -> anyhow::Result<PoolConfig> {
        let WrittenPool { name, directory, limit, default, snapshots } = pool.get_ref();
        let checked = PoolConfig::new(name, directory.clone(), limit.as_deref(), *default);
        let checked = checked.and_then(|pool| pool.with_snapshots(snapshots.as_deref().unwrap_or("auto")));
        checked.map_err(|error| source.refuse(Some(pool.span()), &error.to_string()))
    }
}

pub(super) type Text = Spanned<String>;

fn payload(text: &Text, source: &Source<'_>) -> anyhow::Result<Size> {
    visa_payload(text.get_ref()).map_err(|error| source.refuse(Some(text.span()), &format!("visa-payload: {error}")))
}

/// Reads and checks a file.
///
/// # Errors
/// A [`crate::failure::Misuse`] with the file's name and, for what is in it, the line.
pub(super) fn read(path: &Path) -> anyhow::Result<FileConfig> {
    let text = fs::read_to_string(path)
        .map_err(|error| misuse(format!("cannot read the configuration file {}: {error}", path.display())))?;
    parse(path, &text)
}

pub(super) fn parse(path: &Path, text: &str) -> anyhow::Result<FileConfig> {
    let source = Source { path, text };
    let written: Written = source.read()?;
    let wires = source.parse_all::<Wire>(&written.wire)?;
    let targets = written.target.iter().map(|target| target.get_ref().check(&source, target.span()));
    let targets = targets.collect::<anyhow::Result<Vec<_>>>()?;
    source.refuse_repeated(&targets, "target", |target| target.config.name.to_string())?;
    let clients = written.client.iter().map(|client| client.get_ref().check(&source, client.span()));
    let clients = clients.collect::<anyhow::Result<Vec<_>>>()?;
    source.refuse_repeated(&clients, "client", |client| client.id().to_string())?;
    let named: Vec<_> = clients.iter().filter(|client| !client.get_ref().name().is_empty()).cloned().collect();
    source.refuse_repeated(&named, "name of a client", |client| client.name().to_owned())?;
    let discovery = written.discovery.as_ref().map(|discovery| discovery.check(&source)).transpose()?;
    source.refuse_repeated(&written.pool, "pool", |pool| pool.name.clone())?;
    let pools = written.pool.iter().map(|pool| WrittenPool::check(pool, &source));
    source.refuse_repeated(&wires, "wire", Wire::to_string)?;
    let http = source.parse_all::<WebAddress>(&written.http)?;
    source.refuse_repeated(&http, "place for HTTP", WebAddress::to_string)?;
    let http = http.into_iter().map(Spanned::into_inner).collect();
    source.refuse_repeated(&written.volume, "volume", |volume| volume.name.to_string())?;
    let direct_copies = direct_copies(&written, &source)?;
    Ok(FileConfig {
        name: written.name.as_ref().map(|name| source.parse(name)).transpose()?.map(Spanned::into_inner),
        wires: wires.into_iter().map(Spanned::into_inner).collect(),
        allow: source.parse_all::<AllowRule>(&written.allow)?.into_iter().map(Spanned::into_inner).collect(),
        announce: source.parse_all::<AnnounceRule>(&written.announce)?.into_iter().map(Spanned::into_inner).collect(),
        password_file: written.password_file,
        secret_file: written.secret_file,
        security: written.security.as_ref().map(|text| source.parse(text)).transpose()?.map(Spanned::into_inner),
        compression: written.compression.as_ref().map(|text| source.parse(text)).transpose()?.map(Spanned::into_inner),
        rekey_interval: written.rekey_interval,
        key_file: written.key_file,
        state_directory: written.state_directory,
        control: written.control,
        audit_log: written.audit_log,
        metrics_of_clients: written.metrics.clients,
        direct_copies,
        web: FileWeb {
            addresses: http,
            hosts: source.parse_all(&written.http_hosts)?.into_iter().map(Spanned::into_inner).collect(),
            certificate: written.http_certificate,
            key: written.http_key,
            is_plaintext: written.http_plaintext,
        },
        shards: written.shards,
        engine: written.engine,
        recovery: written.recovery,
        visa_mode: written.visa_mode,
        visa_checksum: written.visa_checksum,
        visa_payload: written.visa_payload.as_ref().map(|text| payload(text, &source)).transpose()?,
        log: written.log,
        log_format: written.log_format,
        pools: pools.collect::<anyhow::Result<_>>()?,
        volumes: written.volume.into_iter().map(Spanned::into_inner).collect(),
        clients: clients.into_iter().map(Spanned::into_inner).collect(),
        targets: targets.into_iter().map(Spanned::into_inner).collect(),
        discovery: discovery.unwrap_or_default(),
    })
}

/// Which copies go straight to other servers.
fn direct_copies(written: &Written, source: &Source<'_>) -> anyhow::Result<DirectCopies> {
    let by = written.direct_copies.as_ref().map(|text| source.parse::<CopyOrderers>(text)).transpose()?;
    let to = written.direct_copy_to.as_ref().map(|to| source.parse_all::<CopyPlace>(to)).transpose()?;
    let to = to.map(|to| to.into_iter().map(Spanned::into_inner).collect());
    Ok(DirectCopies {
        by: by.map(Spanned::into_inner).unwrap_or_default(),
        to: to.unwrap_or_else(CopyPlace::usual),
        client_id: None,
    })
}

/// The file, for messages.
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// What stands in it, as far as TOML can tell.
    pub(super) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        toml::from_str(self.text).map_err(|error| self.refuse(self.place_of(&error), error.message()))
    }

    pub(super) fn refuse(&self, span: Option<Range<usize>>, message: &str) -> anyhow::Error {
        let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let path = self.path.display();
        match span {
            Some(span) => misuse(format!("{path}:{}: {message}", self.line_of(span.start))),
            None => misuse(format!("{path}: {message}")),
        }
    }

    /// Where the error is. What a volume's own check says comes with the span of all volumes: find the one.
    fn place_of(&self, error: &toml::de::Error) -> Option<Range<usize>> {
        #[derive(Deserialize)]
        struct Tables {
            volume: Vec<Spanned<toml::Table>>,
        }
        let tables = toml::from_str(self.text).map_or(vec![], |Tables { volume }| volume);
        let culprit = tables.into_iter().find(|table| {
            let refusal = VolumeSpec::deserialize(table.get_ref().clone()).err();
            refusal.is_some_and(|refusal| refusal.message() == error.message())
        });
        let span = error.span()?;
        Some(culprit.map(|table| table.span()).filter(|table| span.start < table.start).unwrap_or(span))
    }

    fn line_of(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }

    pub(super) fn parse<T: FromStr<Err: fmt::Display>>(&self, text: &Text) -> anyhow::Result<Spanned<T>> {
        match text.get_ref().parse() {
            Ok(value) => Ok(Spanned::new(text.span(), value)),
            Err(error) => Err(self.refuse(Some(text.span()), &error.to_string())),
        }
    }

    pub(super) fn parse_all<T: FromStr<Err: fmt::Display>>(&self, texts: &[Text]) -> anyhow::Result<Vec<Spanned<T>>> {
        texts.iter().map(|text| self.parse(text)).collect()
    }

    /// Refuses a value whose `key` stands there a second time.
    fn refuse_repeated<T>(&self, values: &[Spanned<T>], what: &str, key: impl Fn(&T) -> String) -> anyhow::Result<()> {
        let mut first_places = BTreeMap::new();
        for value in values {
            let (key, place) = (key(value.get_ref()), value.span().start);
            if let Some(first) = first_places.get(&key) {
                let first = self.line_of(*first);
                let message = format!("the {what} {key} stands in line {first} already: remove one or change it");
                return Err(self.refuse(Some(value.span()), &message));
            }
            first_places.insert(key, place);
        }
        Ok(())
    }
}
