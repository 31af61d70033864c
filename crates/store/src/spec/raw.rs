//! The two written forms of a volume, and their one way into [`VolumeSpec`].

use std::fmt;
use std::str::FromStr;

use sanwire_core::Size;
use serde::Deserialize;

use super::{Backing, StoreSpec, VolumeSpec};
use crate::layer::parse_time;
use crate::{FileOptions, Patience};

/// What is wrong with what the user wrote.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// No `NAME=` in front.
    #[error("'{text}' has no name: a volume is NAME=STORE[,KEY[=VALUE]]..., like disk0=ram:1G")]
    NoName {
        /// What was written.
        text: String,
    },
    /// Not a volume's name.
    #[error("'{name}' is no volume name: 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'")]
    Name {
        /// What was written.
        name: String,
    },
    /// Not one of the stores.
    #[error("'{store}' is no store: use ram:SIZE, null:SIZE, file:PATH or the absolute path of a block device")]
    Store {
        /// What was written.
        store: String,
    },
    /// No such key.
    #[error("there is no key '{key}': use {}", KEYS.join(", "))]
    Key {
        /// What was written.
        key: String,
    },
    /// Given more than once.
    #[error("{key} is given twice")]
    Twice {
        /// Which key.
        key: &'static str,
    },
    /// Not a value for the key.
    #[error("'{value}' is no value for {key}: use {expected}")]
    Value {
        /// Which key.
        key: &'static str,
        /// What was written.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// The key is not for this store.
    #[error("{key} is not for this store: {reason}")]
    NotHere {
        /// Which key.
        key: &'static str,
        /// Why.
        reason: &'static str,
    },
}

const KEYS: [&str; 14] = [
    "size",
    "grow",
    "block",
    "readonly",
    "removable",
    "security",
    "compression",
    "when-full",
    "when-gone",
    "thick",
    "direct",
    "delay",
    "error",
    "seed",
];

const LEVELS: &str = "none, hash, aes-128-gcm, aes-256-gcm or chacha20-poly1305";

/// A volume as written, from either form: each value is kept as text, however often it was given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVolume {
    pub(super) name: String,
    pub(super) store: String,
    #[serde(default)]
    size: Values,
    #[serde(default)]
    grow: Values,
    #[serde(default)]
    block: Values,
    #[serde(default)]
    readonly: Values,
    #[serde(default)]
    removable: Values,
    #[serde(default)]
    security: Values,
    #[serde(default)]
    compression: Values,
    #[serde(default, rename = "when-full")]
    when_full: Values,
    #[serde(default, rename = "when-gone")]
    when_gone: Values,
    #[serde(default)]
    thick: Values,
    #[serde(default)]
    direct: Values,
    #[serde(default)]
    delay: Values,
    #[serde(default)]
    error: Values,
    #[serde(default)]
    seed: Values,
}

/// What was given for one key.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Written")]
struct Values(Vec<String>);

/// The ways to write a value in TOML.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, a number, true, false or an array of texts")]
enum Written {
    Flag(bool),
    Number(u64),
    Text(String),
    Texts(Vec<String>),
}

impl From<Written> for Values {
    fn from(written: Written) -> Self {
        Values(match written {
            Written::Flag(flag) => vec![flag.to_string()],
            Written::Number(number) => vec![number.to_string()],
            Written::Text(text) => vec![text],
            Written::Texts(texts) => texts,
        })
    }
}

impl Values {
    /// The only value, parsed; `None` when there was none.
    fn single<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SpecError> {
        match &self.0[..] {
            [] => Ok(None),
            [value] => parse(value).map(Some).ok_or_else(|| SpecError::Value { key, value: value.clone(), expected }),
            _ => Err(SpecError::Twice { key }),
        }
    }

    fn flag(&self, key: &'static str) -> Result<bool, SpecError> {
        Ok(self.single(key, "true, false or the key alone", |text| text.parse().ok())?.unwrap_or(false))
    }

    fn all<T: FromStr<Err = &'static str>>(&self, key: &'static str) -> Result<Vec<T>, SpecError> {
        let parse =
            |value: &String| value.parse().map_err(|expected| SpecError::Value { key, value: value.clone(), expected });
        self.0.iter().map(parse).collect()
    }
}

impl RawVolume {
    /// Reads `STORE[,KEY[=VALUE]]...`.
    fn from_text(name: &str, text: &str) -> Result<Self, SpecError> {
        let mut parts = split_at_commas(text).into_iter();
        let none = Values::default;
        let mut raw = RawVolume {
            name: name.into(),
            store: parts.next().unwrap_or_default(),
            size: none(),
            grow: none(),
            block: none(),
            readonly: none(),
            removable: none(),
            security: none(),
            compression: none(),
            when_full: none(),
            when_gone: none(),
            thick: none(),
            direct: none(),
            delay: none(),
            error: none(),
            seed: none(),
        };
        for part in parts {
            // A key alone is a flag that is set.
            let (key, value) = part.split_once('=').unwrap_or((&part, "true"));
            let values = raw.values_mut(key).ok_or_else(|| SpecError::Key { key: key.into() })?;
            values.0.push(value.into());
        }
        Ok(raw)
    }

    /// Gives a key this value alone; none: takes it away.
    pub(super) fn set(&mut self, key: &str, value: Option<String>) {
        if let Some(values) = self.values_mut(key) {
            values.0 = value.into_iter().collect();
        }
    }

    fn values_mut(&mut self, key: &str) -> Option<&mut Values> {
        Some(match key {
            "size" => &mut self.size,
            "grow" => &mut self.grow,
            "block" => &mut self.block,
            "readonly" => &mut self.readonly,
            "removable" => &mut self.removable,
            "security" => &mut self.security,
            "compression" => &mut self.compression,
            "when-full" => &mut self.when_full,
            "when-gone" => &mut self.when_gone,
            "thick" => &mut self.thick,
            "direct" => &mut self.direct,
            "delay" => &mut self.delay,
            "error" => &mut self.error,
            "seed" => &mut self.seed,
            _ => return None,
        })
    }

    fn values(&self, key: &str) -> &[String] {
        let values = match key {
            "size" => &self.size,
            "grow" => &self.grow,
            "block" => &self.block,
            "readonly" => &self.readonly,
            "removable" => &self.removable,
            "security" => &self.security,
            "compression" => &self.compression,
            "when-full" => &self.when_full,
            "when-gone" => &self.when_gone,
            "thick" => &self.thick,
            "direct" => &self.direct,
            "delay" => &self.delay,
            "error" => &self.error,
            "seed" => &self.seed,
            _ => return &[],
        };
        &values.0
    }

    fn to_patience(&self) -> Result<Patience, SpecError> {
        const EXPECTED: &str = "error, or wait: and a time of up to an hour, like wait:60s";
        let parse = |text: &str| match text {
            "error" => Some(None),
            _ => text.strip_prefix("wait:").and_then(parse_time).filter(|time| !time.is_zero()).map(Some),
        };
        let of = |values: &Values, key| Ok(values.single(key, EXPECTED, parse)?.flatten());
        Ok(Patience { full: of(&self.when_full, "when-full")?, gone: of(&self.when_gone, "when-gone")? })
    }

    fn to_store(&self) -> Result<StoreSpec, SpecError> {
        let block_bytes = self.block.single("block", "512 or 4096", |text| match text.parse() {
            Ok(block @ (512 | 4096)) => Some(block),
            _ => None,
        })?;
        let options = FileOptions {
            size_bytes: self.size.single("size", "a positive size, like 10G", parse_size)?,
            grow: self.grow.flag("grow")?,
            read_only: self.readonly.flag("readonly")?,
            direct: self.direct.flag("direct")?,
            block_bytes,
            only_block_device: false,
        };
        Ok(StoreSpec {
            block_bytes,
            read_only: options.read_only,
            thick: self.thick.flag("thick")?,
            errors: self.error.all("error")?,
            seed: self.seed.single("seed", "a number below 2^64", |text| text.parse().ok())?.unwrap_or(0),
            delays: self.delay.all("delay")?,
            backing: self.to_backing(options)?,
        })
    }

    fn to_backing(&self, options: FileOptions) -> Result<Backing, SpecError> {
        let unknown = || SpecError::Store { store: self.store.clone() };
        if self.store.starts_with('/') {
            refuse(options.size_bytes.is_some(), "size", "a block device has the size it has (a file is file:PATH)")?;
            refuse(options.grow, "grow", "a block device has the size it has (a file is file:PATH)")?;
            let options = FileOptions { only_block_device: true, ..options };
            return Ok(Backing::File { path: (&self.store).into(), options });
        }
        let (kind, place) = self.store.split_once(':').ok_or_else(unknown)?;
        if kind == "file" {
            refuse(options.grow && options.size_bytes.is_none(), "grow", "it needs size=, the length to grow to")?;
            return if place.is_empty() { Err(unknown()) } else { Ok(Backing::File { path: place.into(), options }) };
        }
        if !matches!(kind, "ram" | "null") {
            return Err(unknown());
        }
        refuse(options.size_bytes.is_some(), "size", "the size stands right behind ram: or null:")?;
        refuse(options.grow, "grow", "only a file grows")?;
        refuse(options.direct, "direct", "only files and block devices have a page cache to go past")?;
        let size_bytes = parse_size(place).filter(|size| *size >= u64::from(options.block_bytes.unwrap_or(512)));
        let size_bytes = size_bytes.ok_or_else(unknown)?;
        Ok(if kind == "ram" { Backing::Ram { size_bytes } } else { Backing::Null { size_bytes } })
    }
}

impl TryFrom<RawVolume> for VolumeSpec {
    type Error = SpecError;

    fn try_from(raw: RawVolume) -> Result<Self, SpecError> {
        let removable = raw.removable.flag("removable")?;
        let security = raw.security.single("security", LEVELS, |text| text.parse().ok())?;
        let compressible = raw.compression.single("compression", "off or allowed", |text| match text {
            "off" => Some(false),
            "allowed" => Some(true),
            _ => None,
        })?;
        let compressible = compressible.unwrap_or(true);
        let (name, store, patience) = (raw.name.parse()?, raw.to_store()?, raw.to_patience()?);
        Ok(VolumeSpec { name, store, removable, security, compressible, patience, written: raw })
    }
}

/// The form of one line, from which the same volume is made again.
impl fmt::Display for RawVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, escaped(&self.store))?;
        for key in KEYS {
            self.values(key).iter().try_for_each(|value| write!(f, ",{key}={}", escaped(value)))?;
        }
        Ok(())
    }
}

/// What [`split_at_commas`] takes for one part that is this text.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace(',', r"\,")
}

impl FromStr for VolumeSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, store) = text.split_once('=').ok_or_else(|| SpecError::NoName { text: text.into() })?;
        RawVolume::from_text(name, store)?.try_into()
    }
}

impl FromStr for StoreSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let raw = RawVolume::from_text("", text)?;
        const NOT_SERVED: &str = "only a volume with a name is served to initiators";
        refuse(raw.removable.flag("removable")?, "removable", NOT_SERVED)?;
        refuse(!raw.when_full.0.is_empty(), "when-full", NOT_SERVED)?;
        refuse(!raw.when_gone.0.is_empty(), "when-gone", NOT_SERVED)?;
        raw.to_store()
    }
}

fn refuse(is_given: bool, key: &'static str, reason: &'static str) -> Result<(), SpecError> {
    if is_given { Err(SpecError::NotHere { key, reason }) } else { Ok(()) }
}

fn parse_size(text: &str) -> Option<u64> {
    text.parse().ok().map(|Size(bytes)| bytes).filter(|bytes| *bytes > 0)
}

/// The parts between the commas that no backslash stands before.
fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![];
    let mut part = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => part.push(chars.next_if(|next| matches!(next, ',' | '\\')).unwrap_or('\\')),
            ',' => parts.push(std::mem::take(&mut part)),
            _ => part.push(c),
        }
    }
    parts.push(part);
    parts
}
