//! TLS: with a certificate of the administrator's, or one that the server makes for itself.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sanwire_server::replace_file;
use tokio_rustls::TlsAcceptor;

/// What is wrong with a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read the certificate of the HTTP API in {}: {source}", path.display())]
    Read {
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
    /// None can be made.
    #[error("no certificate can be made for the HTTP API in {}: {reason}", path.display())]
    Make {
        /// Where it is to be.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A certificate with its key.
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    /// The SHA-256 of the certificate, in hexadecimal digits with colons.
    pub(crate) fingerprint: String,
}

impl Tls {
    /// That of the administrator.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| CertificateError::Read { path, source }
        };
        let mode = fs::metadata(key).map_err(failed(key))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(CertificateError::Open { path: key.to_owned() });
        }
        let chain = fs::read(certificate).map_err(failed(certificate))?;
        let key = fs::read(key).map_err(failed(key))?;
        Tls::of(&chain, &key).map_err(|reason| CertificateError::Unfit { path: certificate.to_owned(), reason })
    }

    /// The server's own, for these names, which is made when it is not there.
    pub(crate) fn own(path: &Path, names: &[String]) -> Result<Self, CertificateError> {
        if !path.exists() {
            make(path, names).map_err(|reason| CertificateError::Make { path: path.to_owned(), reason })?;
        }
        Tls::load(path, path)
    }

    fn of(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Vec<CertificateDer<'_>> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::into_owned).collect();
        let first = chain.first().ok_or("no certificate stands there")?;
        let octets: Vec<String> = digest(&SHA256, first).as_ref().iter().map(|octet| format!("{octet:02X}")).collect();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("its key: {error}"))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint: octets.join(":") })
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
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Tls::own(&path, &[]).err().unwrap(), CertificateError::Open { .. }));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "nonsense").unwrap();
        assert!(matches!(Tls::own(&path, &[]).err().unwrap(), CertificateError::Unfit { .. }));
        fs::remove_file(path).unwrap();
    }
}
