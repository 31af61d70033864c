//! One client, as it is configured.

use std::fmt;
use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sanwire_core::ClientId;
use sanwire_hyperscsi::wire::offer::TRANSFER_MIN_BYTES;
use sanwire_hyperscsi::{PRIORITY_MAX, Psk};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::compression::Compression;
use crate::pattern::VolumePattern;

/// The longest name, in bytes.
const NAME_MAX_BYTES: usize = 64;

/// The highest weight.
pub const WEIGHT_MAX: u16 = 1000;

/// A secret that is never shown. In JSON: 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub Psk);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

// Keys with hyphens stand in the files of what was changed while a server ran.
/// What a client is and may do. It is served from wherever it comes, because it has a name of its own: its id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// Who it is: what its static key shows.
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub id: ClientId,
    /// What administrators call it; empty for nothing.
    #[serde(default)]
    pub name: String,
    /// What it must know instead of the server's secret.
    #[serde(default, with = "secret", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, write_only)]
    pub psk: Option<Secret>,
    /// Whether it may manage the server.
    #[serde(default)]
    pub manage: bool,
    /// Whether it may read only.
    #[serde(alias = "read-only", default)]
    pub read_only: bool,
    /// Whether removable media stay in while it is connected.
    #[serde(alias = "lock-media", default, skip_serializing_if = "is_false")]
    pub lock_media: bool,
    /// The volumes that it sees.
    #[serde(default = "all_volumes", with = "texts")]
    #[schema(value_type = Vec<String>)]
    pub volumes: Vec<VolumePattern>,
    /// Its share of the bandwidth, beside those of others: 1 to [`WEIGHT_MAX`].
    #[serde(default = "one")]
    pub weight: u16,
    /// Bytes that it gets and sends in a second at the most.
    #[serde(alias = "cap-bytes-per-second", default, skip_serializing_if = "Option::is_none")]
    pub cap_bytes_per_second: Option<u64>,
    /// Packets in flight each way at the most.
    #[serde(alias = "window-packets", default, skip_serializing_if = "Option::is_none")]
    pub window_packets: Option<u32>,
    /// Whether data is compressed; without it, as the server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// The largest data transfer of a command.
    #[serde(alias = "transfer-max-bytes", default, skip_serializing_if = "Option::is_none")]
    pub transfer_max_bytes: Option<u32>,
    /// How much sooner it has its turn: 0 to [`PRIORITY_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

/// What is to be changed of a client; what is not said stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    /// What administrators call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A secret of its own, from its next handshake on.
    #[serde(with = "secret", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-fA-F]{64}$", write_only, default = json!(null))]
    pub psk: Option<Secret>,
    /// Whether it is to know the server's secret again.
    #[serde(alias = "no-password", skip_serializing_if = "is_false")]
    pub no_password: bool,
    /// Whether it may manage the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manage: Option<bool>,
    /// Whether it may read only.
    #[serde(alias = "read-only", skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Whether removable media stay in while it is connected.
    #[serde(alias = "lock-media", skip_serializing_if = "Option::is_none")]
    pub lock_media: Option<bool>,
    /// The volumes that it sees: names with `*` and `?`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// Its share of the bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 65535)]
    pub weight: Option<u16>,
    /// Bytes in a second at the most; 0 for no such limit.
    #[serde(alias = "cap-bytes-per-second", skip_serializing_if = "Option::is_none")]
    pub cap_bytes_per_second: Option<u64>,
    /// Packets in flight each way at the most; 0 for no such limit.
    #[serde(alias = "window-packets", skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 4_294_967_295_u32)]
    pub window_packets: Option<u32>,
    /// Whether data is compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// The largest data transfer of a command, from its next connection on; 0 for no such limit.
    #[serde(alias = "transfer-max-bytes", skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 4_294_967_295_u32)]
    pub transfer_max_bytes: Option<u32>,
    /// How much sooner it has its turn: 0 to [`PRIORITY_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 255)]
    pub priority: Option<u8>,
}

/// Why a client cannot be so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientError {
    /// Not a name.
    #[error(
        "'{0}' is no name for a client: use 1 to {NAME_MAX_BYTES} letters, digits, '.', '_', '-', and not the form of an id"
    )]
    Name(String),
    /// Another client has the name.
    #[error("another client is called {0}: choose another name")]
    NameTaken(String),
    /// Two clients have the name.
    #[error("{name} names two clients, {ids}: use the id, and give one of them another name")]
    Ambiguous {
        /// The name.
        name: String,
        /// Theirs.
        ids: String,
    },
    /// Nothing is to be changed.
    #[error("nothing is said that is to change: give a setting, like --volumes or --read-only")]
    NoSettings,
    /// The id is there twice.
    #[error("the client {0} stands there twice: remove one")]
    Twice(ClientId),
    /// Not an id.
    #[error("'{0}' is no id of a client: `sanwire id` prints it on its host, 32 hexadecimal digits")]
    Id(String),
    /// There is no such client.
    #[error("no client called {0} is known: `clients` lists them")]
    Unknown(String),
    /// There is one already.
    #[error("the client {0} is known already: change it with set-client")]
    Known(ClientId),
    /// Not a pattern.
    #[error("'{0}' names no volumes: use names, with * for any text and ? for any one character")]
    Volumes(String),
    /// Not a weight.
    #[error("a weight is a number from 1 to {WEIGHT_MAX}, not {0}")]
    Weight(u16),
    /// Not a priority.
    #[error("a priority is a number from 0 to {PRIORITY_MAX}, not {0}")]
    Priority(u8),
    /// Too small to be of use.
    #[error("the largest transfer is 4096 bytes or more, not {0}")]
    Transfer(u32),
}

impl ClientConfig {
    /// A client that may use all volumes, and no more.
    #[must_use]
    pub fn new(id: ClientId) -> Self {
        ClientConfig {
            id,
            name: String::new(),
            psk: None,
            manage: false,
            read_only: false,
            lock_media: false,
            volumes: all_volumes(),
            weight: one(),
            cap_bytes_per_second: None,
            window_packets: None,
            compression: None,
            transfer_max_bytes: None,
            priority: None,
        }
    }

    /// This client with other settings.
    ///
    /// # Errors
    /// [`ClientError`] for what cannot be.
    pub fn with(mut self, settings: &ClientSettings) -> Result<Self, ClientError> {
        if let Some(name) = &settings.name {
            self.name = check_name(name)?.to_owned();
        }
        if let Some(volumes) = &settings.volumes {
            let parse = |text: &String| text.parse().map_err(|_| ClientError::Volumes(text.clone()));
            self.volumes = volumes.iter().map(parse).collect::<Result<_, _>>()?;
        }
        if let Some(weight) = settings.weight {
            self.weight =
                if (1..=WEIGHT_MAX).contains(&weight) { weight } else { return Err(ClientError::Weight(weight)) };
        }
        self.psk = settings.psk.or(self.psk.filter(|_| !settings.no_password));
        self.manage = settings.manage.unwrap_or(self.manage);
        self.read_only = settings.read_only.unwrap_or(self.read_only);
        self.lock_media = settings.lock_media.unwrap_or(self.lock_media);
        let limit = |new: Option<u64>, old: Option<u64>| new.map_or(old, |new| Some(new).filter(|limit| *limit != 0));
        self.cap_bytes_per_second = limit(settings.cap_bytes_per_second, self.cap_bytes_per_second);
        let window = limit(settings.window_packets.map(u64::from), self.window_packets.map(u64::from));
        self.window_packets = window.and_then(|packets| u32::try_from(packets).ok());
        self.set_options(settings)?;
        Ok(self)
    }

    fn set_options(&mut self, settings: &ClientSettings) -> Result<(), ClientError> {
        self.compression = settings.compression.or(self.compression);
        match settings.priority {
            Some(priority) if priority > PRIORITY_MAX => return Err(ClientError::Priority(priority)),
            Some(priority) => self.priority = Some(priority),
            None => {}
        }
        match settings.transfer_max_bytes {
            Some(0) => self.transfer_max_bytes = None,
            Some(bytes) if bytes < TRANSFER_MIN_BYTES => return Err(ClientError::Transfer(bytes)),
            Some(bytes) => self.transfer_max_bytes = Some(bytes),
            None => {}
        }
        Ok(())
    }

    /// Whether it sees a volume.
    #[must_use]
    pub fn sees(&self, volume: &str) -> bool {
        self.volumes.iter().any(|pattern| pattern.matches(volume))
    }

    /// Whether it sees every volume, whatever its name.
    pub(crate) fn sees_all(&self) -> bool {
        self.volumes.iter().any(VolumePattern::is_all)
    }

    /// Its name with its id, or the id alone.
    #[must_use]
    pub fn shown(&self) -> String {
        if self.name.is_empty() { self.id.to_string() } else { format!("{} ({})", self.name, self.id) }
    }
}

fn check_name(name: &str) -> Result<&str, ClientError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name = (1..=NAME_MAX_BYTES).contains(&name.len()) && name.chars().all(is_allowed);
    if is_name && name.parse::<ClientId>().is_err() { Ok(name) } else { Err(ClientError::Name(name.to_owned())) }
}

fn all_volumes() -> Vec<VolumePattern> {
    vec![VolumePattern::all()]
}

fn one() -> u16 {
    1
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Secret {
    fn digits(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

/// The text is not 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a secret is 64 hexadecimal digits")]
pub struct NoSecret;

impl FromStr for Secret {
    type Err = NoSecret;

    fn from_str(text: &str) -> Result<Self, NoSecret> {
        let mut psk = Psk::default();
        if text.len() != 2 * psk.len() {
            return Err(NoSecret);
        }
        HEXLOWER_PERMISSIVE.decode_mut(text.as_bytes(), &mut psk).map_err(|_| NoSecret)?;
        Ok(Secret(psk))
    }
}

/// Values that are texts in JSON.
pub(crate) mod text {
    use std::fmt;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Lists of such values.
mod texts {
    use std::fmt;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: fmt::Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

/// A secret that may be there.
mod secret {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Secret;

    pub(super) fn serialize<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
        match secret {
            Some(secret) => serializer.serialize_str(&secret.digits()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
