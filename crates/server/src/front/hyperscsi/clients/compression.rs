//! Whether data of HyperSCSI connections may be compressed.

use std::fmt;
use std::str::FromStr;

use sanwire_hyperscsi::Stance;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a server wants of compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Nothing is compressed.
    #[default]
    Off,
    /// Data is compressed where it shrinks, with clients that want it.
    Allowed,
    /// As before, and clients that cannot are not served.
    Required,
}

/// The text names no compression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("compression is off, allowed or required, not '{0}'")]
pub struct NoCompression(String);

impl FromStr for Compression {
    type Err = NoCompression;

    fn from_str(text: &str) -> Result<Self, NoCompression> {
        match text {
            "off" => Ok(Compression::Off),
            "allowed" => Ok(Compression::Allowed),
            "required" => Ok(Compression::Required),
            _ => Err(NoCompression(text.to_owned())),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Off => "off",
            Compression::Allowed => "allowed",
            Compression::Required => "required",
        })
    }
}

impl From<Compression> for Stance {
    fn from(compression: Compression) -> Stance {
        match compression {
            Compression::Off => Stance::Ignored,
            Compression::Allowed => Stance::Supported,
            Compression::Required => Stance::Enforced,
        }
    }
}
