//! What is to be a volume.

use std::collections::BTreeMap;

use sanwire_core::Size;
use sanwire_server::{Request, VolumeStatus};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// A new volume, on a store or from a snapshot: give `store` or `source`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewVolume {
    /// What clients call it.
    pub(super) name: String,
    /// Where its blocks are: `pool:POOL`, `ram:SIZE`, `file:PATH`, the absolute path of a block device, and what else
    /// `sanwire serve --help` names.
    store: Option<String>,
    /// The snapshot whose content it gets, in the same pool: `VOLUME@SNAPSHOT`.
    source: Option<String>,
    /// With `store`, the other keys of a volume in the configuration, like `size` or `readonly`.
    #[serde(default)]
    options: BTreeMap<String, OptionValue>,
    /// The iSCSI target that gets it as its next logical unit; without it, a target of its own.
    target: Option<String>,
    /// With `store`: whether it becomes another volume than it was, under an identity that no client knows.
    #[serde(default)]
    renew: bool,
    /// With `store`: whether what is there is taken for the volume that was served from it before, though it does not look so.
    #[serde(default)]
    adopt: bool,
}

/// The value of a key of a volume.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum OptionValue {
    /// Whether the key stands there.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A text, like `10G`.
    Text(String),
}

/// A volume as it is to be in a pool. What is not said may be in any way.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeInPool {
    /// The pool; without it, the default one.
    pool: Option<String>,
    /// Its length, like `20G`.
    size: String,
    /// Its logical block, in bytes.
    block: Option<u32>,
    /// The protection level of its packets over HyperSCSI, HDSP and VISA, like `aes-128-gcm`.
    security: Option<String>,
    /// Whether its content is neither deleted nor rolled back.
    protected: Option<bool>,
}

impl NewVolume {
    /// What serves it.
    pub(super) fn request(self) -> Result<Request, Problem> {
        let NewVolume { name, store, source, options, target, renew, adopt } = self;
        match (store, source) {
            (Some(store), None) => {
                Ok(Request::AddVolume { volume: text(&name, &store, &options)?, target, renew, adopt })
            }
            (None, Some(snapshot)) if options.is_empty() && !renew && !adopt => {
                Ok(Request::Clone { snapshot, name, target })
            }
            (None, Some(_)) => Err(Problem::invalid("with source there are neither options, renew nor adopt")),
            _ => Err(Problem::invalid("give store or source")),
        }
    }
}

impl VolumeInPool {
    /// What makes it.
    pub(super) fn request(&self, name: &str) -> Result<Request, Problem> {
        let size = OptionValue::Number(self.size_bytes()?);
        let mut options = BTreeMap::from([("size".to_owned(), size)]);
        let mut add = |key: &str, value: Option<OptionValue>| value.map(|value| options.insert(key.to_owned(), value));
        add("block", self.block.map(|block| OptionValue::Number(block.into())));
        add("security", self.security.clone().map(OptionValue::Text));
        add("protected", self.protected.map(OptionValue::Flag));
        let store = format!("pool:{}", self.pool.as_deref().unwrap_or_default());
        Ok(Request::AddVolume { volume: text(name, &store, &options)?, target: None, renew: false, adopt: false })
    }

    /// # Errors
    /// A problem when a volume that is there is another one.
    pub(super) fn check_equal(&self, there: &VolumeStatus) -> Result<(), Problem> {
        let is_so = |wanted: Option<&str>, is: &str| wanted.is_none_or(|wanted| wanted == is);
        let differs = [
            ("pool", there.pool.is_some() && is_so(self.pool.as_deref(), there.pool.as_deref().unwrap_or_default())),
            ("size", self.size_bytes()? == there.size_bytes),
            ("block", self.block.is_none_or(|block| block == there.block_bytes)),
            ("security", is_so(self.security.as_deref(), &there.security)),
            ("protected", self.protected.is_none_or(|protected| protected == there.protected)),
        ];
        let differs: Vec<&str> = differs.iter().filter(|(_, is_equal)| !is_equal).map(|(key, _)| *key).collect();
        if differs.is_empty() {
            return Ok(());
        }
        let detail = format!("a volume of this name is served, with another {}", differs.join(", "));
        Err(Problem::new("volume-exists", detail))
    }

    fn size_bytes(&self) -> Result<u64, Problem> {
        let size: Result<Size, _> = self.size.parse();
        size.map(|size| size.0).map_err(|error| Problem::new("size-invalid", format!("size: {error}")))
    }
}

/// A volume in the form of one line.
fn text(name: &str, store: &str, options: &BTreeMap<String, OptionValue>) -> Result<String, Problem> {
    let invalid = |detail| Err(Problem::new("volume-text-invalid", detail));
    // Of a name and of a key there is no way to write these.
    if [name].into_iter().chain(options.keys().map(String::as_str)).any(|word| word.contains(['=', ',', '\\'])) {
        return invalid("no name and no option has a '=', a ',' or a '\\'");
    }
    let mut text = format!("{name}={}", escaped(store));
    for (key, value) in options {
        text += &match value {
            OptionValue::Flag(false) => continue,
            OptionValue::Flag(true) => format!(",{key}"),
            OptionValue::Number(number) => format!(",{key}={number}"),
            OptionValue::Text(value) => format!(",{key}={}", escaped(value)),
        };
    }
    if text.chars().any(char::is_control) {
        return invalid("no name, store or option has a control character");
    }
    Ok(text)
}

/// What stays one part of the line.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace(',', r"\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Result<String, Problem> {
        match serde_json::from_str::<NewVolume>(json).unwrap().request()? {
            Request::AddVolume { volume, .. } => Ok(volume),
            request => panic!("{request:?}"),
        }
    }

    #[test]
    fn a_new_volume_is_written_as_one_line() {
        let json = r#"{"name":"a","store":"file:/x=y","options":{"size":"10G","readonly":true,"removable":false,"block":4096}}"#;
        assert_eq!(text(json).unwrap(), "a=file:/x=y,block=4096,readonly,size=10G");
    }

    #[test]
    fn nothing_in_a_new_volume_becomes_another_key() {
        let json = r#"{"name":"a","store":"file:/x,readonly","options":{"error":"1,readonly"}}"#;
        assert_eq!(text(json).unwrap(), r"a=file:/x\,readonly,error=1\,readonly");
        let json = r#"{"name":"a","store":"file:/x\\","options":{"size":"1G"}}"#;
        assert_eq!(text(json).unwrap(), r"a=file:/x\\,size=1G");
        for json in [
            r#"{"name":"a=ram:1G,x","store":"ram:1G"}"#,
            r#"{"name":"a=b","store":"ram:1G"}"#,
            r#"{"name":"a\\","store":"ram:1G"}"#,
            r#"{"name":"a","store":"ram:1G","options":{"size=1,readonly":true}}"#,
            r#"{"name":"a","store":"ram:1G","options":{"size\\":true}}"#,
            r#"{"name":"a","store":"ram:1G\n"}"#,
        ] {
            assert_eq!(text(json).unwrap_err().code, "volume-text-invalid", "{json}");
        }
    }

    #[test]
    fn a_new_volume_has_a_store_or_a_source() {
        let request = |json: &str| serde_json::from_str::<NewVolume>(json).unwrap().request().map_err(|no| no.code);
        let clone = Request::Clone { snapshot: "a@b".into(), name: "c".into(), target: None };
        assert_eq!(request(r#"{"name":"c","source":"a@b"}"#), Ok(clone));
        for json in [
            r#"{"name":"c"}"#,
            r#"{"name":"c","source":"a@b","store":"ram:1G"}"#,
            r#"{"name":"c","source":"a@b","options":{"readonly":true}}"#,
            r#"{"name":"c","source":"a@b","renew":true}"#,
        ] {
            assert_eq!(request(json), Err("request-invalid".into()), "{json}");
        }
    }

    #[test]
    fn a_volume_that_is_there_is_compared_with_what_is_wanted() {
        let there: VolumeStatus = serde_json::from_value(serde_json::json!({
            "name": "a", "origin": "management", "lun": 0, "size_bytes": 1 << 30, "block_bytes": 512, "read_only": false,
            "security": "none", "pool": "fast",
        }))
        .unwrap();
        let compare = |json: &str| {
            let wanted = serde_json::from_str::<VolumeInPool>(json).unwrap();
            wanted.check_equal(&there).map_err(|problem| problem.detail)
        };
        assert_eq!(compare(r#"{"size":"1G"}"#), Ok(()));
        assert_eq!(
            compare(r#"{"size":"1024M","pool":"fast","block":512,"security":"none","protected":false}"#),
            Ok(())
        );
        for (json, key) in [
            (r#"{"size":"2G"}"#, "size"),
            (r#"{"size":"1G","pool":"slow"}"#, "pool"),
            (r#"{"size":"1G","protected":true}"#, "protected"),
            (r#"{"size":"1G","security":"hash","block":4096}"#, "block, security"),
        ] {
            assert!(compare(json).unwrap_err().ends_with(&format!("another {key}")), "{json}");
        }
        assert!(compare(r#"{"size":"big"}"#).is_err());
    }
}
