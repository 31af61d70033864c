//! What is asked of copies to other servers, and what is said.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A copy of a volume, straight to one of another server.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyOrder {
    /// The volume that is copied. By HTTP the path says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(ignore)]
    pub volume: String,
    /// The volume that it is copied to, by its URLs, the best first: the first that can be reached is taken. It has at least that length, the
    /// same blocks, and takes this server for one that may write there.
    pub to: Vec<String>,
    /// The public key that its server must have, in hexadecimal digits; without it any server is taken that is pinned here, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_key: Option<String>,
    /// What an interrupted copy had done, in bytes from the start: that is compared, and copied again where it differs.
    #[serde(default)]
    pub resume_bytes: u64,
    /// Whether all is compared at the end.
    #[serde(default)]
    pub verify: bool,
    /// How many bytes are copied in a second at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_bytes_per_second: Option<u64>,
    /// How long a server that is away is waited for, in seconds; without it, as for other volumes of other servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_seconds: Option<u32>,
    /// For how many seconds the copy goes on while nobody asks about it, from 10 to 120; without it, 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unasked_seconds: Option<u32>,
}

/// What a server says of copies that go straight from one server to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyTerms {
    /// Which client it is to other servers; `None`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Why who asks may not have it take part in any; `None`: they may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The URLs by which other servers reach it, the best first.
    pub urls: Vec<String>,
}
