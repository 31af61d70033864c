//! The two written forms of a volume, and their one way into [`VolumeSpec`].

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sanwire_core::{DeviceType, Size};
use serde::{Deserialize, Deserializer, de};

use super::layers::refused;
use super::{ShelfSlot, SpecError, StoreSpec, VolumeSpec, Written};
use crate::Patience;
use crate::kind::{self, Place, Rewritten};
use crate::layer::parse_time;

/// The keys that volumes of all kinds have.
const KEYS: [&str; 18] = [
    "type",
    "block",
    "readonly",
    "removable",
    "security",
    "compression",
    "shelf",
    "slot",
    "disk-address",
    "when-full",
    "when-gone",
    "protected",
    "owner",
    "layers",
    "thick",
    "delay",
    "error",
    "seed",
];

const LEVELS: &str = "none, hash, aes-128-gcm, aes-256-gcm or chacha20-poly1305";

/// All keys that there are, in the order in which they are told and written.
pub(super) fn all_keys() -> impl Iterator<Item = &'static str> {
    kind::keys().into_iter().chain(KEYS)
}

/// A volume as written, from either form: each value is kept as text, however often it was given.
#[derive(Clone, Debug)]
pub(super) struct RawVolume {
    pub(super) name: String,
    pub(super) store: String,
    pub(super) values: BTreeMap<&'static str, Vec<String>>,
}

/// One of the keys that there are.
struct Key(&'static str);

impl Key {
    fn of(key: &str) -> Option<Key> {
        all_keys().find(|known| *known == key).map(Key)
    }
}

/// A field of a table.
enum Field {
    Name,
    Store,
    Key(&'static str),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let field = String::deserialize(deserializer)?;
        match &*field {
            "name" => Ok(Field::Name),
            "store" => Ok(Field::Store),
            key => Key::of(key).map(|Key(key)| Field::Key(key)).ok_or_else(|| {
                let keys: Vec<_> = all_keys().collect();
                de::Error::custom(format!("unknown field `{key}`, expected name, store or {}", keys.join(", ")))
            }),
        }
    }
}

impl<'de> Deserialize<'de> for RawVolume {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Table)
    }
}

struct Table;

impl<'de> de::Visitor<'de> for Table {
    type Value = RawVolume;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of a volume")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<RawVolume, A::Error> {
        let (mut name, mut store, mut values) = (None, None, BTreeMap::new());
        while let Some(field) = map.next_key()? {
            match field {
                Field::Name => name = Some(map.next_value()?),
                Field::Store => store = Some(map.next_value()?),
                Field::Key(key) => _ = values.insert(key, Vec::from(map.next_value::<Scalar>()?)),
            }
        }
        let name = name.ok_or_else(|| de::Error::missing_field("name"))?;
        Ok(RawVolume { name, store: store.ok_or_else(|| de::Error::missing_field("store"))?, values })
    }
}

/// The ways to write a value in TOML.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, a number, true, false or an array of texts")]
enum Scalar {
    Flag(bool),
    Number(u64),
    Text(String),
    Texts(Vec<String>),
}

impl From<Scalar> for Vec<String> {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Flag(flag) => vec![flag.to_string()],
            Scalar::Number(number) => vec![number.to_string()],
            Scalar::Text(text) => vec![text],
            Scalar::Texts(texts) => texts,
        }
    }
}

impl RawVolume {
    /// Reads `STORE[,KEY[=VALUE]]...`.
    pub(super) fn from_text(name: &str, text: &str) -> Result<Self, SpecError> {
        let mut parts = split_at_commas(text).into_iter();
        let store = parts.next().unwrap_or_default();
        let mut raw = RawVolume { name: name.into(), store, values: BTreeMap::new() };
        for part in parts {
            // A key alone is a flag that is set.
            let (key, value) = part.split_once('=').unwrap_or((&part, "true"));
            let Key(key) = Key::of(key).ok_or_else(|| SpecError::Key { key: key.into() })?;
            raw.values.entry(key).or_default().push(value.into());
        }
        Ok(raw)
    }

    /// Gives a key this value alone; none: takes it away.
    pub(super) fn set(&mut self, key: &'static str, value: Option<String>) {
        self.values.insert(key, value.into_iter().collect());
    }

    /// Gives a key these values and no others.
    pub(super) fn set_all(&mut self, key: &'static str, values: Vec<String>) {
        self.values.insert(key, values);
    }

    /// The same with another name, on another store.
    pub(super) fn named(mut self, name: &str, store: &str) -> RawVolume {
        (self.name, self.store) = (name.to_owned(), store.to_owned());
        self
    }

    /// The same, written so.
    pub(super) fn rewrite(&mut self, Rewritten { store, keys }: Rewritten) {
        self.store = store.unwrap_or_else(|| std::mem::take(&mut self.store));
        keys.into_iter().for_each(|(key, value)| self.set(key, Some(value)));
    }

    pub(super) fn values(&self, key: &str) -> &[String] {
        self.values.get(key).map_or(&[], |values| values)
    }

    /// The only value, parsed; `None` when there was none.
    pub(super) fn single<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SpecError> {
        match self.values(key) {
            [] => Ok(None),
            [value] => parse(value).map(Some).ok_or_else(|| SpecError::Value { key, value: value.clone(), expected }),
            _ => Err(SpecError::Twice { key }),
        }
    }

    pub(super) fn flag(&self, key: &'static str) -> Result<bool, SpecError> {
        Ok(self.single(key, "true, false or the key alone", |text| text.parse().ok())?.unwrap_or(false))
    }

    fn all<T: FromStr<Err = &'static str>>(&self, key: &'static str) -> Result<Vec<T>, SpecError> {
        let parse =
            |value: &String| value.parse().map_err(|expected| SpecError::Value { key, value: value.clone(), expected });
        self.values(key).iter().map(parse).collect()
    }

    fn to_patience(&self) -> Result<Patience, SpecError> {
        const EXPECTED: &str = "error, or wait: and a time of up to an hour, like wait:60s";
        let parse = |text: &str| match text {
            "error" => Some(None),
            _ => text.strip_prefix("wait:").and_then(parse_time).filter(|time| !time.is_zero()).map(Some),
        };
        let of = |key| Ok(self.single(key, EXPECTED, parse)?.flatten());
        Ok(Patience { full: of("when-full")?, gone: of("when-gone")? })
    }

    fn to_shelf_slot(&self) -> Result<Option<ShelfSlot>, SpecError> {
        let shelf =
            self.single("shelf", "a number from 0 to 4094", |text| text.parse().ok().filter(|shelf| *shelf < 0xfff))?;
        let slot =
            self.single("slot", "a number from 0 to 254", |text| text.parse().ok().filter(|slot| *slot < 0xff))?;
        refuse(shelf.is_some() && slot.is_none(), "shelf", "an address has both: give it a slot, too")?;
        refuse(slot.is_some() && shelf.is_none(), "slot", "an address has both: give it a shelf, too")?;
        Ok(shelf.zip(slot).map(|(shelf, slot)| ShelfSlot { shelf, slot }))
    }

    pub(super) fn to_store(&self, device_type: DeviceType) -> Result<StoreSpec, SpecError> {
        let block_bytes = self.single("block", "512 or 4096", |text| match text.parse() {
            Ok(block @ (512 | 4096)) => Some(block),
            _ => None,
        })?;
        let is_disc = device_type == DeviceType::Optical;
        refuse(is_disc && block_bytes.is_some(), "block", "a disc has blocks of 2048 bytes")?;
        let read_only = self.flag("readonly")? || is_disc;
        let unknown = || SpecError::Store { store: self.store.clone() };
        let (kind, place) = kind::find(&self.store).ok_or_else(unknown)?;
        for key in kind::keys().into_iter().filter(|key| !kind.keys().contains(key)) {
            refuse(self.values(key).iter().any(|value| value != "false"), key, kind.lacks(key))?;
        }
        let backing = kind.read(&Written { raw: self, place, block_bytes, read_only })?;
        let is_empty_disk = !is_disc && backing.place() == Place::Nowhere && backing.pool().is_none();
        refuse(is_empty_disk, "type=disk", "only a drive, type=optical, can be empty")?;
        let backing = match self.pool_of_layers()? {
            Some(_) if is_disc => return refused("layers", "nothing is written to a disc"),
            Some(pool) => self.below_layers(backing, kind, &pool)?,
            None => backing,
        };
        Ok(StoreSpec {
            read_only,
            thick: self.flag("thick")?,
            errors: self.all("error")?,
            seed: self.single("seed", "a number below 2^64", |text| text.parse().ok())?.unwrap_or(0),
            delays: self.all("delay")?,
            backing,
        })
    }
}

impl TryFrom<RawVolume> for VolumeSpec {
    type Error = SpecError;

    fn try_from(raw: RawVolume) -> Result<Self, SpecError> {
        let removable = raw.flag("removable")?;
        let security = raw.single("security", LEVELS, |text| text.parse().ok())?;
        let compressible = raw.single("compression", "off or allowed", |text| match text {
            "off" => Some(false),
            "allowed" => Some(true),
            _ => None,
        })?;
        let compressible = compressible.unwrap_or(true);
        let device_type = raw.single("type", DeviceType::EXPECTED, DeviceType::from_word)?.unwrap_or_default();
        let (name, store, patience) = (raw.name.parse()?, raw.to_store(device_type)?, raw.to_patience()?);
        let protected = raw.flag("protected")?;
        let owners = raw.values("owner").to_vec();
        let aoe = raw.to_shelf_slot()?;
        let disk_address = raw.single("disk-address", "a number from 0 to 254", |text| {
            text.parse().ok().filter(|address| *address < 0xff)
        })?;
        Ok(VolumeSpec {
            name,
            device_type,
            store,
            removable,
            security,
            compressible,
            aoe,
            disk_address,
            patience,
            protected,
            owners,
            written: raw,
        })
    }
}

/// The form of one line, from which the same volume is made again.
impl fmt::Display for RawVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, escaped(&self.store))?;
        for key in all_keys() {
            self.values(key).iter().try_for_each(|value| write!(f, ",{key}={}", escaped(value)))?;
        }
        Ok(())
    }
}

/// What [`split_at_commas`] takes for one part that is this text.
pub(super) fn escaped(text: &str) -> String {
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
        refuse(raw.flag("removable")?, "removable", NOT_SERVED)?;
        refuse(!raw.values("when-full").is_empty(), "when-full", NOT_SERVED)?;
        refuse(!raw.values("when-gone").is_empty(), "when-gone", NOT_SERVED)?;
        refuse(raw.flag("protected")?, "protected", NOT_SERVED)?;
        refuse(!raw.values("owner").is_empty(), "owner", NOT_SERVED)?;
        refuse(!raw.values("layers").is_empty(), "layers", NOT_SERVED)?;
        refuse(!raw.values("type").is_empty(), "type", NOT_SERVED)?;
        raw.to_store(DeviceType::Disk)
    }
}

fn refuse(is_given: bool, key: &'static str, reason: &'static str) -> Result<(), SpecError> {
    if is_given { Err(SpecError::NotHere { key, reason }) } else { Ok(()) }
}

pub(super) fn parse_size(text: &str) -> Option<u64> {
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
