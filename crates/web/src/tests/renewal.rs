//! A certificate that is renewed while the API is served.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};

use super::FakeDesk;
use crate::{Web, WebAddress, WebConfig};

/// Takes every certificate, and keeps the last one.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<u8>>);

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.0.lock().unwrap() = certificate.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

type Client = StreamOwned<ClientConnection, TcpStream>;

/// A connection over which something was asked, and the SHA-256 of the certificate that it has seen.
fn connect(address: SocketAddr) -> (Client, String) {
    let seen = Arc::new(Seen::default());
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(seen.clone())
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut client = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    ask(&mut client);
    let octets = digest(&SHA256, &seen.0.lock().unwrap());
    let octets: Vec<String> = octets.as_ref().iter().map(|octet| format!("{octet:02X}")).collect();
    (client, octets.join(":"))
}

fn ask(client: &mut Client) {
    client.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"ok\n") {
        let mut part = [0; 1024];
        let length = client.read(&mut part).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&text));
        text.extend(&part[..length]);
    }
}

/// Files with a certificate and its key.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("sanwire-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Files(directory)
    }

    fn certificate(&self) -> PathBuf {
        self.0.join("certificate.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }

    fn write(&self) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(self.certificate(), made.cert.pem()).unwrap();
        fs::write(self.key(), made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(self.key(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn config(&self) -> WebConfig {
        let addresses = vec!["127.0.0.1:0".parse().unwrap()];
        WebConfig { addresses, certificate: Some((self.certificate(), self.key())), ..WebConfig::default() }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn serve(config: &WebConfig) -> (Web, SocketAddr) {
    let web = Web::start(config, Arc::new(FakeDesk::new(super::requests::answer))).unwrap();
    let WebAddress::Tcp(address) = web.addresses()[0] else { panic!("no port") };
    (web, address)
}

#[test]
fn a_certificate_comes_in_the_place_of_another_one_and_connections_go_on() {
    let files = Files::new("renewal");
    files.write();
    let config = files.config();
    let (web, address) = serve(&config);
    let (renew, metrics) = (web.renewal(), web.metrics());
    let (mut first, before) = connect(address);
    assert_eq!(Some(before.clone()), web.fingerprint());
    assert_eq!(renew(&config), [""; 0], "it is the same");
    files.write();
    let told = renew(&config);
    let (_, after) = connect(address);
    assert!(told.len() == 1 && told[0].ends_with(&after), "{told:?}");
    assert_ne!(before, after);
    assert!(metrics().contains("\nsanwire_http_certificate_expires_timestamp_seconds 6"), "{}", metrics());
    ask(&mut first);
    // A key of another certificate, and a file that is gone.
    let key = fs::read(files.key()).unwrap();
    files.write();
    fs::write(files.key(), key).unwrap();
    for gone in [None, Some(files.certificate())] {
        gone.into_iter().for_each(|path| fs::remove_file(path).unwrap());
        assert!(config.look_at_certificate().is_err());
        let told = renew(&config);
        assert!(
            told.len() == 1 && told[0].starts_with("not changed: ") && told[0].contains("certificate.pem"),
            "{told:?}"
        );
        assert_eq!(connect(address).1, after);
    }
}

#[test]
fn what_takes_a_start_is_said() {
    let files = Files::new("renewal-start");
    files.write();
    let config = files.config();
    let (web, _) = serve(&config);
    let plain = WebConfig { certificate: None, ..config.clone() };
    assert_eq!(web.renewal()(&plain), ["not changed: whether the HTTP API has TLS, until the next start"]);
    let moved = WebConfig { addresses: vec!["127.0.0.1:1".parse().unwrap()], ..config.clone() };
    let told = web.renewal()(&moved);
    assert_eq!(told, ["not changed: where and by which names the HTTP API is reached, until the next start"]);
    let (plain, _) = serve(&plain);
    assert_eq!(plain.renewal()(&config), ["not changed: whether the HTTP API has TLS, until the next start"]);
}

#[test]
fn files_that_would_not_do_are_found_before_anything_is_served() {
    let files = Files::new("renewal-look");
    files.write();
    let accounts = files.0.join("accounts.json");
    let config = WebConfig { accounts_file: Some(accounts.clone()), ..files.config() };
    assert_eq!(config.look().unwrap(), None);
    fs::write(&accounts, "nonsense").unwrap();
    assert!(config.look().unwrap_err().to_string().contains("accounts.json"));
    fs::remove_file(&accounts).unwrap();
    fs::set_permissions(files.key(), fs::Permissions::from_mode(0o440)).unwrap();
    assert!(config.look().unwrap_err().to_string().contains("key.pem"));
    let guarded = WebConfig { has_guarded_key: true, ..config };
    assert_eq!(guarded.look().unwrap(), None, "a credential of a service manager has this mode");
    let own = files.0.join("own.pem");
    let addresses = vec!["0.0.0.0:0".parse().unwrap()];
    let config = WebConfig { addresses, own_certificate: Some(own.clone()), ..WebConfig::default() };
    assert_eq!(config.look().unwrap(), None);
    assert!(!Path::exists(&own), "a look makes nothing");
}
