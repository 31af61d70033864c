//! How an export is written as a store: `nbd:PATH`, `nbd:HOST:PORT[/EXPORT]` or the URL `nbd://HOST[:PORT][/EXPORT]`.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use sanwire_nbd::wire::TEXT_MAX_BYTES;
use sanwire_store::kind::{Backing, Likeness, Place, Rewritten, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, Written};

use super::{Address, NbdError, NbdStore, Options};

/// Connections to one export, at the most.
const CONNECTIONS_MAX: usize = 16;
/// The longest wait for a server that can be asked for.
const PATIENCE_MAX: Duration = Duration::from_hours(1);

/// NBD exports.
pub struct NbdKind;

#[derive(PartialEq, Debug)]
struct NbdBacking {
    written: String,
    address: Address,
    options: Options,
    /// Which export of which server, told from all others.
    place: String,
}

impl StoreKind for NbdKind {
    fn words(&self) -> &'static [&'static str] {
        &["nbd"]
    }

    fn form(&self) -> &'static str {
        "nbd:PATH, nbd:HOST:PORT[/EXPORT]"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["export", "connections", "reconnect"]
    }

    fn lacks(&self, key: &str) -> &'static str {
        match key {
            "size" | "grow" => "an export has the size that its server gives it",
            _ => "stores of its kind have no such key",
        }
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let (address, export) = Address::read(written.place()).ok_or_else(|| written.is_no_store())?;
        let is_name = |text: &str| (text.len() <= TEXT_MAX_BYTES).then(|| text.to_owned());
        let named = written.value("export", "an export's name", is_name)?;
        if export.is_some() && named.is_some() {
            return Err(SpecError::NotHere { key: "export", reason: "it stands behind the port already" });
        }
        let defaults = Options::default();
        let export = named.or(export.filter(|name| is_name(name).is_some())).unwrap_or_default();
        let connections = written.value("connections", "a number from 1 to 16", |text| {
            text.parse().ok().filter(|count| (1..=CONNECTIONS_MAX).contains(count))
        })?;
        let patience = written.value("reconnect", "a time of up to an hour, like 60s", |text| {
            humantime::parse_duration(text).ok().filter(|time| *time <= PATIENCE_MAX)
        })?;
        let options = Options {
            block_bytes: written.block_bytes(),
            read_only: written.is_read_only(),
            connections: connections.unwrap_or(defaults.connections),
            patience: patience.unwrap_or(defaults.patience),
            export,
        };
        let place = options.place(&address);
        Ok(Arc::new(NbdBacking { written: written.store().to_owned(), address, options, place }))
    }
}

impl Backing for NbdBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        match NbdStore::open(&self.address, &self.options) {
            Ok(store) => Ok((Arc::new(store), None)),
            Err(error) => {
                let is_away = matches!(error, NbdError::Unreachable { .. } | NbdError::AtWork | NbdError::InUse);
                Err(OpenError::Elsewhere { store: self.written.clone(), source: Box::new(error), is_away })
            }
        }
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.place)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let is_same = (other as &dyn Any).downcast_ref() == Some(self);
        if is_same { Likeness::Same } else { Likeness::Other }
    }

    fn absolute(&self) -> Option<Rewritten> {
        let Address::Path(path) = &self.address else { return None };
        let path = std::path::absolute(path).ok()?;
        Some(Rewritten { store: Some(format!("nbd:{}", path.to_str()?)), keys: Vec::new() })
    }
}
