//! The terms of a client's connection, in a file that may change while the connection is used.

use std::fs;
use std::path::Path;

use sanwire_core::Size;
use sanwire_hyperscsi::PRIORITY_MAX;
use sanwire_initiator::ClientOptions;
use sanwire_server::Compression;
use serde::Deserialize;

use super::file::{Source, Text};
use crate::args::LeastSecurity;
use crate::failure::misuse;

/// The shortest largest transfer that is of any use.
const TRANSFER_MIN_BYTES: u64 = 4096;

/// What the file says; what it does not name stays as the command line says.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionOptions {
    security: Option<LeastSecurity>,
    compression: Option<Compression>,
    cap: Option<Size>,
    lock_media: Option<bool>,
    max_transfer_bytes: Option<u32>,
    priority: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    security: Option<Text>,
    compression: Option<Text>,
    cap: Option<Text>,
    lock_media: Option<bool>,
    max_transfer: Option<Text>,
    priority: Option<toml::Spanned<u8>>,
}

impl ConnectionOptions {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let content =
            fs::read_to_string(path).map_err(|error| misuse(format!("cannot read {}: {error}", path.display())))?;
        ConnectionOptions::parse(path, &content)
    }

    fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        let source = Source { path, text };
        let written: Written = source.read()?;
        let security = written.security.map(|text| source.parse(&text)).transpose()?;
        let compression = written.compression.map(|text| source.parse(&text)).transpose()?;
        let cap = written.cap.map(|text| source.parse(&text)).transpose()?;
        let transfer = written.max_transfer.map(|text| source.parse::<Size>(&text)).transpose()?;
        if let Some(priority) = written.priority.as_ref().filter(|priority| *priority.get_ref() > PRIORITY_MAX) {
            let message = format!("a priority is a number from 0 to {PRIORITY_MAX}");
            return Err(source.refuse(Some(priority.span()), &message));
        }
        if let Some(transfer) = transfer.as_ref().filter(|transfer| transfer.get_ref().0 < TRANSFER_MIN_BYTES) {
            let message = format!("the largest transfer is {TRANSFER_MIN_BYTES} bytes or more");
            return Err(source.refuse(Some(transfer.span()), &message));
        }
        Ok(ConnectionOptions {
            security: security.map(toml::Spanned::into_inner),
            compression: compression.map(toml::Spanned::into_inner),
            cap: cap.map(toml::Spanned::into_inner),
            lock_media: written.lock_media,
            max_transfer_bytes: transfer.map(|size| u32::try_from(size.get_ref().0).unwrap_or(u32::MAX)),
            priority: written.priority.map(toml::Spanned::into_inner),
        })
    }

    /// The options with these terms in place of theirs.
    pub(crate) fn put_on(self, mut options: ClientOptions) -> ClientOptions {
        let wishes = &mut options.connection;
        options.protection_min = self.security.map_or(options.protection_min, |security| security.0);
        wishes.compression = self.compression.map_or(wishes.compression, Into::into);
        wishes.rate_cap_bytes_per_second = self.cap.map(|cap| cap.0).or(wishes.rate_cap_bytes_per_second);
        wishes.medium_lock = self.lock_media.unwrap_or(wishes.medium_lock);
        wishes.transfer_max_bytes = self.max_transfer_bytes.or(wishes.transfer_max_bytes);
        wishes.priority = self.priority.or(wishes.priority);
        options
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::Protection;

    use super::*;

    fn read(text: &str) -> anyhow::Result<ClientOptions> {
        let mut options = ClientOptions::anonymous().unwrap();
        options.connection.rate_cap_bytes_per_second = Some(7);
        Ok(ConnectionOptions::parse(Path::new("terms.toml"), text)?.put_on(options))
    }

    #[test]
    fn what_the_file_names_counts_and_the_rest_stays() {
        let options = read("security = \"encryption\"\nmax-transfer = \"64K\"\nlock-media = true\n").unwrap();
        assert_eq!(options.protection_min, Protection::Aes128Gcm);
        let wishes = &options.connection;
        assert_eq!((wishes.transfer_max_bytes, wishes.medium_lock), (Some(65_536), true));
        assert_eq!(wishes.rate_cap_bytes_per_second, Some(7), "as the command line says");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        for text in ["\npriority = 8", "\nmax-transfer = \"1K\"", "\nsecurity = \"rot13\"", "\nspeed = 1"] {
            let message = format!("{:#}", read(text).unwrap_err());
            assert!(message.starts_with("terms.toml:2: "), "{text}: {message}");
        }
    }
}
