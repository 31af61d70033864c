//! What is said of the HTTP API.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sanwire_web::{WebAddress, WebConfig};

use super::defaults::is_credential;
use crate::failure::misuse;

/// What the file says of it.
#[derive(Debug, Default)]
pub(super) struct FileWeb {
    /// Where it is reached.
    pub(super) addresses: Vec<WebAddress>,
    /// By which names.
    pub(super) hosts: Vec<HostName>,
    /// With which certificate.
    pub(super) certificate: Option<PathBuf>,
    /// And its key.
    pub(super) key: Option<PathBuf>,
    /// Whether without TLS.
    pub(super) is_plaintext: bool,
}

/// A name of this host, without a port.
#[derive(Clone, Debug)]
pub(super) struct HostName(String);

/// The text is no name.
#[derive(Debug)]
pub(super) struct NoHostName(String);

impl fmt::Display for NoHostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no name of a host: use letters, digits, '.' and '-', without a scheme or a port", self.0)
    }
}

impl FromStr for HostName {
    type Err = NoHostName;

    fn from_str(text: &str) -> Result<Self, NoHostName> {
        let is_name =
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
        if is_name { Ok(HostName(text.to_owned())) } else { Err(NoHostName(text.to_owned())) }
    }
}

impl FileWeb {
    /// The API with what the command line adds.
    pub(super) fn combine(
        self,
        addresses: Vec<WebAddress>,
        server: &str,
        state: Option<&Path>,
    ) -> anyhow::Result<WebConfig> {
        let addresses = super::join(self.addresses, addresses);
        let mut hosts: Vec<String> = self.hosts.into_iter().map(|HostName(name)| name).collect();
        hosts.push(server.to_owned());
        let accounts_file = state.map(|directory| directory.join(format!("http-{server}.json")));
        let own_certificate = state.map(|directory| directory.join(format!("http-{server}.pem")));
        let certificate = match (self.certificate, self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(misuse("http-certificate and http-key: give both or none".to_owned())),
        };
        let is_plaintext = self.is_plaintext;
        let has_guarded_key = certificate.as_ref().is_some_and(|(_, key)| is_credential(key));
        let config =
            WebConfig { addresses, hosts, accounts_file, certificate, has_guarded_key, own_certificate, is_plaintext };
        config.check().map_err(|error| misuse(error.to_string()))?;
        Ok(config)
    }
}
