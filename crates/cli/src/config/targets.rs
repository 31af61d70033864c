//! iSCSI targets: as they are written, and what holds when none are.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::ops::Range;
use std::path::PathBuf;

use sanwire_core::Lun;
use sanwire_iscsi::{Authentication, ChapAlgorithm, ChapSecret, Credential, IscsiName};
use sanwire_server::{AllowList, AllowRule, Redirection, TargetNodeConfig, TargetNodeError};
use sanwire_store::VolumeSpec;
use serde::Deserialize;
use toml::Spanned;

use super::Wire;
use super::file::{Source, Text};
use super::secret::{check_private, read_password};
use crate::failure::misuse;

/// A target of the file.
#[derive(Debug)]
pub(super) struct FileTarget {
    pub(super) config: TargetNodeConfig,
    /// Whether it has access rules of its own; else those of the server hold.
    pub(super) has_rules: bool,
}

/// `[[target]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenTarget {
    name: Text,
    #[serde(default)]
    alias: String,
    #[serde(default)]
    lun: BTreeMap<String, Text>,
    allow: Option<Vec<Text>>,
    chap: Option<Vec<WrittenCredential>>,
    mutual_chap: Option<WrittenCredential>,
    chap_algorithms: Option<Spanned<Vec<Text>>>,
    #[serde(default)]
    portal_groups: Vec<NonZeroU16>,
    #[serde(default)]
    require_digests: bool,
    redirect: Option<Text>,
    redirect_for_good: Option<Spanned<bool>>,
}

/// `[discovery]`: who must show who they are before they learn of targets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenDiscovery {
    #[serde(default)]
    chap: Vec<WrittenCredential>,
    mutual_chap: Option<WrittenCredential>,
    chap_algorithms: Option<Spanned<Vec<Text>>>,
}

/// A CHAP user; one of the two secrets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenCredential {
    user: Text,
    secret: Option<Text>,
    secret_file: Option<PathBuf>,
}

impl WrittenTarget {
    /// What is meant; `span` is the place of the whole.
    pub(super) fn check(&self, source: &Source<'_>, span: Range<usize>) -> anyhow::Result<Spanned<FileTarget>> {
        let mut units = BTreeMap::new();
        for (number, volume) in &self.lun {
            let lun = number.parse().ok().and_then(Lun::new).ok_or_else(|| {
                let max = Lun::MAX;
                let message = format!("'{number}' is no logical unit number: use a number from 0 to {max}");
                source.refuse(Some(volume.span()), &message)
            })?;
            units.insert(lun, volume.get_ref().clone());
        }
        let rules = self.allow.as_deref().map(|rules| source.parse_all::<AllowRule>(rules)).transpose()?;
        let has_rules = rules.is_some();
        let rules = rules.unwrap_or_default().into_iter().map(Spanned::into_inner).collect();
        let config = TargetNodeConfig {
            name: source.parse::<IscsiName>(&self.name)?.into_inner(),
            alias: self.alias.clone(),
            units,
            allow: AllowList::new(rules),
            authentication: authentication(
                source,
                self.chap.as_deref().unwrap_or(&[]),
                self.mutual_chap.as_ref(),
                self.chap_algorithms.as_ref(),
            )?,
            is_meant_open: self.chap.as_ref().is_some_and(Vec::is_empty),
            requires_digests: self.require_digests,
            group_tags: self.portal_groups.iter().map(|tag| tag.get()).collect(),
            redirect: self.redirection(source, &span)?,
            set: None,
        };
        Ok(Spanned::new(span, FileTarget { config, has_rules }))
    }
}

impl WrittenTarget {
    /// Where initiators are sent; a target that sends nobody away has units.
    fn redirection(&self, source: &Source<'_>, span: &Range<usize>) -> anyhow::Result<Option<(String, bool)>> {
        let Some(address) = &self.redirect else {
            if let Some(for_good) = &self.redirect_for_good {
                let message = "redirect-for-good says how, and redirect where to: give redirect too";
                return Err(source.refuse(Some(for_good.span()), message));
            }
            if self.lun.is_empty() {
                let message = "a target has volumes, or sends initiators elsewhere: give lun or redirect";
                return Err(source.refuse(Some(span.clone()), message));
            }
            return Ok(None);
        };
        let redirection = source.parse::<Redirection>(address)?.into_inner();
        Ok(Some((redirection.to_string(), self.redirect_for_good.as_ref().is_some_and(|for_good| *for_good.get_ref()))))
    }
}

impl WrittenDiscovery {
    pub(super) fn check(&self, source: &Source<'_>) -> anyhow::Result<Authentication> {
        authentication(source, &self.chap, self.mutual_chap.as_ref(), self.chap_algorithms.as_ref())
    }
}

fn authentication(
    source: &Source<'_>,
    chap: &[WrittenCredential],
    mutual: Option<&WrittenCredential>,
    algorithms: Option<&Spanned<Vec<Text>>>,
) -> anyhow::Result<Authentication> {
    let users = chap.iter().map(|user| user.check(source)).collect::<anyhow::Result<_>>()?;
    let mutual = mutual.map(|target| target.check(source)).transpose()?;
    let Some(written) = algorithms else { return Ok(Authentication { users, mutual, algorithms: Vec::new() }) };
    if users.is_empty() && mutual.is_none() {
        let message = "nobody is asked for CHAP here: give chap too, or leave the key out";
        return Err(source.refuse(Some(written.span()), message));
    }
    if written.get_ref().is_empty() {
        let message =
            "without an algorithm nobody could log in: name one of md5, sha1, sha256, sha3-256, or leave the key out";
        return Err(source.refuse(Some(written.span()), message));
    }
    let algorithms = source.parse_all::<ChapAlgorithm>(written.get_ref())?;
    Ok(Authentication { users, mutual, algorithms: algorithms.into_iter().map(Spanned::into_inner).collect() })
}

impl WrittenCredential {
    fn check(&self, source: &Source<'_>) -> anyhow::Result<Credential> {
        let name = self.user.get_ref().clone();
        let refuse = |message: &str| source.refuse(Some(self.user.span()), &format!("CHAP user {name}: {message}"));
        let secret = match (&self.secret, &self.secret_file) {
            (Some(secret), None) => {
                check_private(source.path, "configuration file with a secret")?;
                secret.get_ref().as_bytes().to_vec()
            }
            (None, Some(path)) => read_password(path)?.as_bytes().to_vec(),
            _ => return Err(refuse("give either secret or secret-file")),
        };
        let secret = ChapSecret::new(secret).map_err(|error| refuse(&error.to_string()))?;
        Ok(Credential { name, secret })
    }
}

/// A target for each of these volumes, when iSCSI is served at all.
pub(super) fn made<'a>(
    volumes: impl Iterator<Item = &'a VolumeSpec>,
    wires: &[Wire],
    allow: &AllowList,
) -> anyhow::Result<Vec<TargetNodeConfig>> {
    if !wires.iter().any(Wire::has_targets) {
        return Ok(Vec::new());
    }
    let of_volume = |volume: &VolumeSpec| TargetNodeConfig::of_volume(&volume.name, allow.clone());
    volumes.map(of_volume).collect::<Result<Vec<_>, _>>().map_err(|error| misuse(error.to_string()))
}

/// Refuses targets that are open to whoever `allow` names where a password or secret is set, which guards HyperSCSI only.
pub(super) fn refuse_open(written: &[FileTarget], made: &[TargetNodeConfig], wires: &[Wire]) -> anyhow::Result<()> {
    if !wires.iter().any(Wire::has_targets) {
        return Ok(());
    }
    let open = match written {
        [] => made.first(),
        written => written.iter().map(|target| &target.config).find(|config| config.is_open()),
    };
    match open {
        Some(target) => Err(misuse(format!(
            "the password or secret protects HyperSCSI only, and the iSCSI target {} would be open to whoever `allow` names: give it \
             chap in a [[target]] of the configuration file (chap = [] if it is meant to be open), or leave the iscsi: wire out",
            target.name
        ))),
        None => Ok(()),
    }
}

/// The targets to serve: those of the file; without any, those that are made.
pub(super) fn resolve(
    written: Vec<FileTarget>,
    made: Vec<TargetNodeConfig>,
    volumes: &[VolumeSpec],
    allow: &AllowList,
) -> anyhow::Result<Vec<TargetNodeConfig>> {
    let with_rules = |FileTarget { config, has_rules }: FileTarget| {
        if has_rules { config } else { TargetNodeConfig { allow: allow.clone(), ..config } }
    };
    let targets: Vec<TargetNodeConfig> =
        if written.is_empty() { made } else { written.into_iter().map(with_rules).collect() };
    check(&targets, volumes).map_err(|error| misuse(error.to_string()))?;
    Ok(targets)
}

/// Finds what [`sanwire_server::Server::start`] would refuse, before anything is opened.
fn check(targets: &[TargetNodeConfig], volumes: &[VolumeSpec]) -> Result<(), TargetNodeError> {
    let mut names = BTreeSet::new();
    let served: BTreeSet<&str> = volumes.iter().map(|volume| &*volume.name).collect();
    for target in targets {
        if !names.insert(&target.name) {
            return Err(TargetNodeError::NameTwice { target: target.name.clone() });
        }
        let mut numbered = BTreeSet::new();
        for (lun, volume) in &target.units {
            if !numbered.insert(volume) {
                return Err(TargetNodeError::VolumeTwice { target: target.name.clone(), volume: volume.clone() });
            }
            if !served.contains(volume.as_str()) {
                let (target, volume) = (target.name.clone(), volume.clone());
                return Err(TargetNodeError::NoVolume { target, lun: *lun, volume });
            }
        }
    }
    Ok(())
}
