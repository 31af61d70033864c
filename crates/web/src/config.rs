//! What the API is told to be, and what of that can be another one while it runs.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sanwire_server::written_seconds;

use crate::accounts::Accounts;
use crate::address::WebAddress;
use crate::tls::{CertificateError, Certificates, Tls};
use crate::web::WebError;

/// What the API is told to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WebConfig {
    /// Where it is reached.
    pub addresses: Vec<WebAddress>,
    /// Names by which the server is called there, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Where its accounts are kept; without it there are none.
    pub accounts_file: Option<PathBuf>,
    /// A certificate and its key, for all that comes by TCP.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether that key is guarded, whatever its mode says: a credential of a service manager.
    pub has_guarded_key: bool,
    /// Where the server keeps a certificate that it makes for itself, for what comes from other hosts.
    pub own_certificate: Option<PathBuf>,
    /// Whether other hosts are served without TLS.
    pub is_plaintext: bool,
}

impl WebConfig {
    /// Whether it can be served so, as far as that is known without opening anything.
    ///
    /// # Errors
    /// [`WebError::Open`].
    pub fn check(&self) -> Result<(), WebError> {
        match self.addresses.iter().find(|address| self.needs_own(address)) {
            Some(open) if self.own_certificate.is_none() => Err(WebError::Open(open.clone())),
            _ => Ok(()),
        }
    }

    /// Whether the server's own certificate is needed there.
    pub(crate) fn needs_own(&self, address: &WebAddress) -> bool {
        self.certificate.is_none() && !self.is_plaintext && !address.is_local()
    }

    /// The certificate, if there is need of one.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, CertificateError> {
        match (&self.certificate, &self.own_certificate) {
            (Some((certificate, key)), _) => Tls::load(certificate, key, self.has_guarded_key).map(Some),
            (None, Some(path)) if self.has_own() => {
                let mut names = self.hosts.clone();
                names.push("localhost".to_owned());
                let addresses = self.addresses.iter().filter_map(|address| match address {
                    WebAddress::Tcp(address) if !address.ip().is_unspecified() => Some(address.ip().to_string()),
                    _ => None,
                });
                names.extend(addresses);
                Tls::own(path, &names).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Looks at the files that it names, as far as they are there, without making any, and says of what is hardly meant so.
    ///
    /// # Errors
    /// [`WebError`]: it could not be served.
    pub fn look(&self) -> Result<Option<String>, WebError> {
        if self.addresses.is_empty() {
            return Ok(None);
        }
        Accounts::load(self.accounts_file.clone())?;
        Ok(self.look_at_certificate()?)
    }

    /// The same of the certificate alone.
    ///
    /// # Errors
    /// [`CertificateError`]: it cannot be used.
    pub fn look_at_certificate(&self) -> Result<Option<String>, CertificateError> {
        if self.addresses.is_empty() {
            return Ok(None);
        }
        let has_files = self.certificate.is_some() || self.own_certificate.as_deref().is_some_and(Path::exists);
        let tls = if has_files { self.tls_that_is_there()? } else { None };
        Ok(tls.and_then(|tls| tls.warning(SystemTime::now())))
    }

    fn tls_that_is_there(&self) -> Result<Option<Tls>, CertificateError> {
        match (&self.certificate, &self.own_certificate) {
            (Some(_), _) => self.tls(),
            (None, Some(path)) if self.has_own() => Tls::load(path, path, false).map(Some),
            _ => Ok(None),
        }
    }

    fn has_own(&self) -> bool {
        self.addresses.iter().any(|address| self.needs_own(address))
    }

    /// Has connections from now on served with the certificate that another configuration names, and says what has changed, and what
    /// has not.
    pub(crate) fn renew(&self, now: &WebConfig, certificates: Option<&Certificates>) -> Vec<String> {
        let mut lines = Vec::new();
        let rest = |config: &WebConfig| (config.addresses.clone(), config.hosts.clone(), config.is_plaintext);
        if rest(self) != rest(now) {
            lines
                .push("not changed: where and by which names the HTTP API is reached, until the next start".to_owned());
        }
        let certificate = now.certificate.clone();
        let wanted = WebConfig { certificate, has_guarded_key: now.has_guarded_key, ..self.clone() };
        match (certificates, wanted.tls()) {
            (Some(certificates), Ok(Some(tls))) => {
                let is_new = certificates.now().fingerprint != tls.fingerprint;
                let end = tls.end().map(|end| format!(", until {}", written_seconds(end)));
                let end = end.unwrap_or_default();
                let line = format!("the HTTP API has another certificate{end}: its SHA-256 is {}", tls.fingerprint);
                if let Some(warning) = tls.warning(SystemTime::now()) {
                    tracing::warn!("{warning}");
                }
                lines.extend(Some(line).filter(|_| is_new));
                certificates.set(tls);
            }
            (_, Err(error)) => lines.push(format!("not changed: {error}")),
            (None, Ok(None)) => {}
            (Some(_), Ok(None)) | (None, Ok(Some(_))) => {
                lines.push("not changed: whether the HTTP API has TLS, until the next start".to_owned());
            }
        }
        lines
    }
}
