//! How a volume of another server is written as a store: as its URL.

use std::any::Any;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::Protection;
use sanwire_initiator::{ClientOptions, IscsiServer, IserPath, Server, Url};
use sanwire_store::kind::{Backing, Likeness, Place, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, StoreSpec, Written};

use super::{Exclusive, RemoteStore};

/// How long requests wait for a server that is away, as a rule, and at the most.
const PATIENCE_DEFAULT: Duration = Duration::from_secs(60);
const PATIENCE_MAX: Duration = Duration::from_hours(1);

/// What the other server must be shown, and how it is reached.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Access {
    /// A file with a password: HyperSCSI's, HDSP's and VISA's, or the CHAP secret of the URL's user.
    pub password_file: Option<PathBuf>,
    /// The file with the key by which a server of HyperSCSI, HDSP or VISA knows its clients.
    pub key_file: Option<PathBuf>,
    /// The static key that a server of HyperSCSI, HDSP or VISA must have, whichever is pinned.
    pub server_key: Option<[u8; 32]>,
    /// By what iSER goes.
    pub iser_path: Option<IserPath>,
}

/// Makes a client's options for a server: the program's own knows where keys are kept.
pub type MakeOptions = fn(&Server, &Access) -> Result<ClientOptions, Box<dyn Error + Send + Sync>>;

/// Volumes of other servers.
pub struct VolumeKind {
    /// Makes the options of each client.
    pub options: MakeOptions,
}

#[derive(Clone, Debug)]
struct VolumeBacking {
    url: Url,
    /// The same, as it is told.
    place: String,
    access: Access,
    /// Packets are protected so at least, whatever the other server demands.
    security: Protection,
    patience: Duration,
    exclusive: Exclusive,
    options: MakeOptions,
}

impl StoreKind for VolumeKind {
    fn words(&self) -> &'static [&'static str] {
        &["hs+ip", "hs+eth", "hdsp", "visa", "visa+tcp", "iscsi", "iser", "aoe"]
    }

    fn form(&self) -> &'static str {
        "the URL of another server's volume, like hs+ip://HOST/VOLUME"
    }

    fn keys(&self) -> &'static [&'static str] {
        &[
            "reconnect",
            "exclusive",
            "takeover",
            "password-file",
            "key-file",
            "server-key",
            "server-security",
            "iser-path",
        ]
    }

    fn lacks(&self, key: &str) -> &'static str {
        match key {
            "size" | "grow" => "another server's volume has the size that it has there",
            _ => "stores of its kind have no such key",
        }
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let url: Url = written.store().parse().map_err(|_| written.is_no_store())?;
        url.volume().map_err(|_| written.is_no_store())?;
        if written.block_bytes().is_some() {
            return Err(SpecError::NotHere {
                key: "block",
                reason: "another server's volume has the blocks that it has",
            });
        }
        let patience = written.value("reconnect", "a time of up to an hour, like 60s", |text| {
            humantime::parse_duration(text).ok().filter(|time| *time <= PATIENCE_MAX)
        })?;
        let file = |key| written.value(key, "a file's path", |text| Some(PathBuf::from(text)));
        let server_key = written.value("server-key", "a public key of 64 hexadecimal digits", read_key)?;
        let iser_path = written.value("iser-path", "tcp or rdma", |text| text.parse().ok())?;
        let (password_file, key_file) = (file("password-file")?, file("key-file")?);
        let access = Access { password_file, key_file, server_key, iser_path };
        let levels = "none, hash, aes-128-gcm, aes-256-gcm or chacha20-poly1305";
        let security: Option<Protection> = written.value("server-security", levels, |text| text.parse().ok())?;
        let security = security.unwrap_or_default();
        let has_keys = !matches!(url.server, Server::Iscsi(_) | Server::Aoe(_));
        if server_key.is_some() && !has_keys {
            return Err(SpecError::NotHere {
                key: "server-key",
                reason: "only servers of HyperSCSI, HDSP and VISA have keys",
            });
        }
        if security > Protection::Checksum && !has_keys {
            return Err(SpecError::NotHere {
                key: "server-security",
                reason: "only HyperSCSI, HDSP and VISA protect packets",
            });
        }
        if iser_path.is_some() && !matches!(url.server, Server::Iscsi(IscsiServer { is_iser: true, .. })) {
            return Err(SpecError::NotHere { key: "iser-path", reason: "only iSER goes by one or the other" });
        }
        let (place, patience) = (url.to_string(), patience.unwrap_or(PATIENCE_DEFAULT));
        let exclusive = match (written.flag("takeover")?, written.flag("exclusive")?) {
            (true, _) => Exclusive::Taken,
            (false, true) => Exclusive::Yes,
            (false, false) => Exclusive::No,
        };
        if let (Server::Aoe(_), Exclusive::Yes | Exclusive::Taken) = (&url.server, exclusive) {
            return Err(SpecError::NotHere {
                key: if exclusive == Exclusive::Taken { "takeover" } else { "exclusive" },
                reason: "AoE has no persistent reservations: see to it yourself that this host alone writes there",
            });
        }
        Ok(Arc::new(VolumeBacking { url, place, access, security, patience, exclusive, options: self.options }))
    }
}

/// The same store, of which nothing is reserved, whatever is written; `unless_held`: only where no other client has it for itself. Other
/// kinds of stores stay what they are.
pub(crate) fn unreserved(spec: StoreSpec, unless_held: bool) -> StoreSpec {
    let exclusive = if unless_held { Exclusive::Unheld } else { Exclusive::No };
    let volume = (&*spec.backing as &dyn Any).downcast_ref::<VolumeBacking>();
    match volume.map(|volume| VolumeBacking { exclusive, ..volume.clone() }) {
        Some(volume) => StoreSpec { backing: Arc::new(volume), ..spec },
        None => spec,
    }
}

/// A key as `sanwire key show` prints it.
fn read_key(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let digits = text.as_bytes().as_chunks::<2>();
    let is_long_enough = digits.0.len() == key.len() && digits.1.is_empty();
    let digit = |digit: u8| (digit as char).to_digit(16);
    for (place, [high, low]) in key.iter_mut().zip(digits.0) {
        *place = (digit(*high)? << 4 | digit(*low)?) as u8;
    }
    is_long_enough.then_some(key)
}

impl Backing for VolumeBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        let failed = |source, is_away| OpenError::Elsewhere { store: self.place.clone(), source, is_away };
        let mut options = (self.options)(&self.url.server, &self.access).map_err(|error| failed(error, false))?;
        options.protection_min = options.protection_min.max(self.security);
        options.reconnect_patience = Some(self.patience);
        // What was handed over may be done for as long as its server lives: only its word, or its absence, ends a request.
        options.iscsi.command_patience = None;
        match RemoteStore::open(&self.url, options, self.exclusive) {
            Ok(store) => Ok((Arc::new(store), None)),
            Err(error) => {
                let is_away = error.is_of_now();
                Err(failed(Box::new(error), is_away))
            }
        }
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.place)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        match (other as &dyn Any).downcast_ref::<Self>() {
            Some(other)
                if (&other.place, &other.access, other.security) == (&self.place, &self.access, self.security)
                    && (other.patience, other.exclusive) == (self.patience, self.exclusive) =>
            {
                Likeness::Same
            }
            _ => Likeness::Other,
        }
    }
}
