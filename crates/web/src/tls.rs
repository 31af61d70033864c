//! TLS: with a certificate of the administrator's, or one that the server makes for itself.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sanwire_server::{replace_file, written_seconds};

use crate::certificate;

/// What is wrong with a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read the {part} of the HTTP API in {}: {source}", path.display())]
    Read {
        /// What it holds: the certificate or the key.
        part: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read the key.
    #[error("the key of the HTTP API in {} may be read by others: `chmod 600` it, and have another one made", path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It is no certificate, no key, or they do not belong together.
    #[error("the certificate of the HTTP API in {} cannot be used: {reason}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is the server's own.
    #[error(
        "{source}; it is the server's own: put back a copy, or move it away, and another one with another fingerprint is made"
    )]
    Own {
        /// What is wrong with it.
        source: Box<CertificateError>,
    },
    /// None can be made.
    #[error("no certificate can be made for the HTTP API in {}: {reason}", path.display())]
    Make {
        /// Where it is to be.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Before a certificate ends, so long is warned.
const WARNED_BEFORE: Duration = Duration::from_secs(14 * DAY.as_secs());

/// How often.
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A certificate with its key.
#[derive(Debug)]
pub(crate) struct Tls {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
    /// The SHA-256 of the certificate, in hexadecimal digits with colons.
    pub(crate) fingerprint: String,
}

/// The certificate of a running API, in whose place another one can come: connections that are there go on.
#[derive(Clone)]
pub(crate) struct Certificates(Arc<ArcSwap<Tls>>);

impl Certificates {
    pub(crate) fn new(tls: Tls) -> Self {
        Certificates(Arc::new(ArcSwap::from_pointee(tls)))
    }

    /// What connections that begin now are served with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.load().config)
    }

    pub(crate) fn now(&self) -> Arc<Tls> {
        self.0.load_full()
    }

    pub(crate) fn set(&self, tls: Tls) {
        self.0.store(Arc::new(tls));
    }
}

impl Tls {
    /// That of the administrator. A key that `is_trusted` may be readable by others as far as its mode says.
    pub(crate) fn load(certificate: &Path, key: &Path, is_trusted: bool) -> Result<Self, CertificateError> {
        let failed = |part, path: &Path| {
            let path = path.to_owned();
            move |source| CertificateError::Read { part, path, source }
        };
        let metadata = fs::metadata(key).map_err(failed("key", key))?;
        if metadata.is_dir() {
            return Err(failed("key", key)(io::ErrorKind::IsADirectory.into()));
        }
        let mode = metadata.permissions().mode();
        if mode & 0o077 != 0 && !is_trusted {
            return Err(CertificateError::Open { path: key.to_owned() });
        }
        let chain = fs::read(certificate).map_err(failed("certificate", certificate))?;
        let key = fs::read(key).map_err(failed("key", key))?;
        Tls::of(&chain, &key).map_err(|reason| CertificateError::Unfit { path: certificate.to_owned(), reason })
    }

    /// The server's own, for these names, which is made when it is not there, or is for others.
    pub(crate) fn own(path: &Path, names: &[String]) -> Result<Self, CertificateError> {
        let made = || make(path, names).map_err(|reason| CertificateError::Make { path: path.to_owned(), reason });
        if !path.exists() {
            made()?;
        }
        let load = || Tls::load(path, path, false).map_err(|error| CertificateError::Own { source: Box::new(error) });
        let own = load()?;
        match names.iter().find(|name| !certificate::is_for(&own.certificate, name)) {
            None => Ok(own),
            Some(name) => {
                made()?;
                let own = load()?;
                let fingerprint = &own.fingerprint;
                tracing::warn!(
                    "the HTTP API has another certificate, since the one before was not for {name}: its SHA-256 is {fingerprint}"
                );
                Ok(own)
            }
        }
    }

    /// When it ends.
    pub(crate) fn end(&self) -> Option<SystemTime> {
        certificate::end_of(&self.certificate)
    }

    /// What is to be said of its end, if that is near.
    pub(crate) fn warning(&self, now: SystemTime) -> Option<String> {
        let end = self.end()?;
        let time = written_seconds(end);
        match end.duration_since(now) {
            Ok(left) if left >= WARNED_BEFORE => None,
            Ok(left) => Some(format!(
                "the certificate of the HTTP API ends in {} days, at {time}: put another one in its place, and reload",
                left.as_secs() / DAY.as_secs()
            )),
            Err(_) => Some(format!(
                "the certificate of the HTTP API has ended at {time}, and clients refuse it: put another one in its place, and reload"
            )),
        }
    }

    fn of(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Vec<CertificateDer<'_>> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::into_owned).collect();
        let first = chain.first().cloned().ok_or("no certificate stands there")?;
        let octets: Vec<String> = digest(&SHA256, &first).as_ref().iter().map(|octet| format!("{octet:02X}")).collect();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("its key: {error}"))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), certificate: first, fingerprint: octets.join(":") })
    }
}

/// Makes a certificate and its key, in one file.
fn make(path: &Path, names: &[String]) -> Result<(), String> {
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| error.to_string())?;
    let text = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    replace_file(path, text.as_bytes()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_of_a_server_stays_the_same() {
        let path = std::env::temp_dir().join(format!("sanwire-tls-{}.pem", std::process::id()));
        let _ = fs::remove_file(&path);
        let first = Tls::own(&path, &["box".into()]).unwrap().fingerprint;
        assert_eq!(first.len(), 95, "{first}");
        assert_eq!(Tls::own(&path, &["box".into()]).unwrap().fingerprint, first);
        let other = Tls::own(&path, &["box".into(), "nas.example".into(), "192.0.2.1".into()]).unwrap().fingerprint;
        assert_ne!(other, first, "it is for the names that the server has now");
        assert_eq!(Tls::own(&path, &["box".into(), "192.0.2.1".into()]).unwrap().fingerprint, other);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        let refused = || match Tls::own(&path, &[]).err().unwrap() {
            CertificateError::Own { source } => *source,
            error => error,
        };
        assert!(matches!(refused(), CertificateError::Open { .. }));
        assert_eq!(Tls::load(&path, &path, true).unwrap().fingerprint, other, "a service manager guards it otherwise");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "nonsense").unwrap();
        assert!(matches!(refused(), CertificateError::Unfit { .. }));
        assert!(
            Tls::own(&path, &[]).err().unwrap().to_string().contains("another one with another fingerprint is made")
        );
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn who_has_a_certificate_is_warned_two_weeks_before_its_end() {
        let mut parameters = rcgen::CertificateParams::new(["box".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2027, 3, 31);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let tls = Tls::of(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        let warning = |now| tls.warning(humantime::parse_rfc3339(now).unwrap());
        assert_eq!(warning("2027-03-16T23:59:59Z"), None);
        let near = warning("2027-03-28T12:00:00Z").unwrap();
        assert!(near.contains("in 2 days, at 2027-03-31T00:00:00Z"), "{near}");
        assert!(warning("2027-03-31T00:00:01Z").unwrap().contains("has ended at 2027-03-31T00:00:00Z"));
    }
}
