//! Clients that the server knows by their ids: `[[client]]`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use sanwire_core::{ClientId, Size};
use sanwire_server::{ClientConfig, ClientError, ClientSettings, Secret};
use serde::Deserialize;
use toml::Spanned;

use super::file::{Source, Text};
use super::secret::{Password, read_password};
use crate::keys;

/// A client of the file. Its password takes long to make a secret of.
#[derive(Clone, Debug)]
pub(crate) struct FileClient {
    config: ClientConfig,
    secret: OwnSecret,
}

/// What a client must know, where it is not what the server has for all.
#[derive(Clone, Debug)]
enum OwnSecret {
    None,
    Password(Password),
    KeyFile(PathBuf),
}

/// `[[client]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenClient {
    id: Text,
    name: Option<String>,
    password_file: Option<PathBuf>,
    secret_file: Option<PathBuf>,
    #[serde(default)]
    manage: bool,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    lock_media: bool,
    volumes: Option<Vec<String>>,
    weight: Option<u16>,
    cap: Option<Text>,
    window: Option<u32>,
    compression: Option<Text>,
    max_transfer: Option<Text>,
    priority: Option<u8>,
}

impl WrittenClient {
    /// What is meant; `span` is the place of the whole.
    pub(super) fn check(&self, source: &Source<'_>, span: Range<usize>) -> anyhow::Result<Spanned<FileClient>> {
        let unknown = |_| {
            let message = ClientError::Id(self.id.get_ref().clone()).to_string();
            source.refuse(Some(self.id.span()), &message)
        };
        let id: ClientId = self.id.get_ref().parse().map_err(unknown)?;
        let cap = self.cap.as_ref().map(|cap| source.parse::<Size>(cap)).transpose()?;
        let transfer = self.max_transfer.as_ref().map(|size| source.parse::<Size>(size)).transpose()?;
        let compression = self.compression.as_ref().map(|text| source.parse(text)).transpose()?;
        let settings = ClientSettings {
            name: self.name.clone(),
            manage: Some(self.manage),
            read_only: Some(self.read_only),
            lock_media: Some(self.lock_media),
            volumes: self.volumes.clone(),
            weight: self.weight,
            cap_bytes_per_second: cap.map(|cap| cap.get_ref().0),
            window_packets: self.window,
            compression: compression.map(Spanned::into_inner),
            transfer_max_bytes: transfer.map(|size| u32::try_from(size.get_ref().0).unwrap_or(u32::MAX)),
            priority: self.priority,
            ..ClientSettings::default()
        };
        let config = ClientConfig::new(id)
            .with(&settings)
            .map_err(|error| source.refuse(Some(span.clone()), &format!("client {id}: {error}")))?;
        let secret = match (&self.password_file, &self.secret_file) {
            (None, None) => OwnSecret::None,
            (Some(file), None) => OwnSecret::Password(read_password(file)?),
            (None, Some(file)) => OwnSecret::KeyFile(file.clone()),
            (Some(_), Some(_)) => {
                let message = format!("client {id}: give either password-file or secret-file");
                return Err(source.refuse(Some(span), &message));
            }
        };
        Ok(Spanned::new(span, FileClient { config, secret }))
    }
}

impl FileClient {
    /// What it may do.
    pub(super) fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Who it is.
    pub(super) fn id(&self) -> ClientId {
        self.config.id
    }

    /// Whether it has a password or key of its own.
    pub(super) fn has_secret(&self) -> bool {
        !matches!(self.secret, OwnSecret::None)
    }

    /// The file of its own key.
    pub(super) fn key_file(&self) -> Option<&Path> {
        match &self.secret {
            OwnSecret::KeyFile(file) => Some(file),
            OwnSecret::None | OwnSecret::Password(_) => None,
        }
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// The client with its secret.
    pub(crate) fn resolve(&self) -> anyhow::Result<ClientConfig> {
        let psk = match &self.secret {
            OwnSecret::None => None,
            OwnSecret::Password(password) => Some(Secret(keys::psk(password)?)),
            OwnSecret::KeyFile(file) => Some(Secret(keys::secret(file)?)),
        };
        Ok(ClientConfig { psk, ..self.config.clone() })
    }
}
