//! How a server is called.

use std::str::FromStr;

use sanwire_core::limits::VOLUME_NAME_MAX_BYTES;

/// What clients call a server: 1 to 64 of the ASCII letters, digits, `.`, `_` and `-`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerName(String);

impl ServerName {
    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=VOLUME_NAME_MAX_BYTES).contains(&text.len()) && text.bytes().all(is_allowed) {
            Ok(ServerName(text.into()))
        } else {
            let rule = "1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'";
            Err(format!("'{text}' is no server name: {rule}"))
        }
    }
}
