//! Why a server does not start, and what to do about it.

use std::io;
use std::path::PathBuf;

use sanwire_device::UnitError;
use sanwire_store::OpenError;

use crate::derived::DerivedError;
use crate::front::hyperscsi::clients::ChangeError;
use crate::front::iscsi::target_node::TargetNodeError;
use crate::kept::StateError;
use crate::pools::PoolError;
use crate::wire::Wire;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A volume's store cannot be opened.
    #[error("volume {volume}: {source}")]
    Store {
        /// Which.
        volume: String,
        /// Why.
        source: OpenError,
    },
    /// It cannot be known which volume a file should hold.
    #[error(
        "volume {volume}: what is remembered of it in {} cannot be read: {source}; make that file readable, or remove it after checking \
         that {} is the right one, or make another volume of what is there by `--renew {volume}`", place.display(), file.display()
    )]
    Record {
        /// Which.
        volume: String,
        /// Where it is remembered.
        place: PathBuf,
        /// Its file or device.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A store on which no disk can stand.
    #[error("volume {volume}: {source}")]
    Unit {
        /// Which.
        volume: String,
        /// Why.
        source: UnitError,
    },
    /// A volume cannot be derived from another one.
    #[error("volume {volume}: {source}")]
    Derived {
        /// Which.
        volume: String,
        /// Why.
        source: DerivedError,
    },
    /// A volume's name or number is wrong or taken.
    #[error("volume {volume}: {reason}")]
    Volume {
        /// Which.
        volume: String,
        /// Why.
        reason: String,
    },
    /// A pool cannot be used, or not so.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A wire cannot be opened.
    #[error("wire {wire}: {source}{}", hint(.wire, .source))]
    Wire {
        /// Which.
        wire: Wire,
        /// Why.
        source: io::Error,
    },
    /// The clients cannot be as they are configured, or what was changed of them cannot be read.
    #[error(transparent)]
    Clients(#[from] ChangeError),
    /// What was changed while the server ran cannot be brought back, or another server keeps it.
    #[error(transparent)]
    State(#[from] StateError),
    /// The server cannot be what it was changed to.
    #[error("{source}; this is the configuration with what was changed by ctl, which {} keeps", path.display())]
    Changed {
        /// Where the changes are kept.
        path: PathBuf,
        /// Why.
        source: Box<StartError>,
    },
    /// The audit log cannot be written.
    #[error("the audit log {} cannot be written: {source}", path.display())]
    Audit {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The iSCSI targets cannot be as they are configured.
    #[error(transparent)]
    TargetNode(#[from] TargetNodeError),
    /// The machine refuses memory, threads or randomness.
    #[error("the server cannot get {what}: {source}")]
    Resource {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

fn hint(wire: &Wire, source: &io::Error) -> String {
    match (wire.address(), source.kind()) {
        (None, io::ErrorKind::PermissionDenied) => {
            "; raw Ethernet needs root or the capability CAP_NET_RAW (`setcap cap_net_raw+ep sanwire`)".into()
        }
        (Some(_), io::ErrorKind::AddrInUse) => wire.port_advice(),
        (Some(_), _) => listening_advice(source).into(),
        _ => String::new(),
    }
}

/// What to do when an address and port cannot be listened at, to be said behind the error; empty where that is not known.
#[must_use]
pub fn listening_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program listens there: choose another port",
        io::ErrorKind::AddrNotAvailable => "; this host does not have that address",
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 take root or the capability CAP_NET_BIND_SERVICE: choose another one"
        }
        _ => "",
    }
}
