//! The kinds of stores that need more than memory: the one place that names them.

use std::error::Error;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use sanwire_core::ClientId;
use sanwire_initiator::{ClientOptions, Server};
use sanwire_rbd::RbdKind;
use sanwire_remote::array::ArrayKind;
use sanwire_remote::nbd::NbdKind;
use sanwire_remote::volume::{Access, VolumeKind};
use sanwire_store::kind;

use crate::args::ClientArgs;
use crate::commands::discover::find_volumes;
use crate::connect;

/// What a client of another server is told unless its volume says more: the same as one on the command line.
#[derive(Parser)]
struct Usual {
    #[command(flatten)]
    client: ClientArgs,
}

/// Makes them known, before any volume is read.
pub(crate) fn register() {
    sanwire_store_file::register();
    sanwire_server::register_dvd();
    kind::register(&NbdKind);
    kind::register(&ArrayKind { discover: find_volumes, options });
    kind::register(&RbdKind);
    kind::register(&VolumeKind { options });
}

/// Who makes options now.
static TURN: Mutex<()> = Mutex::new(());

/// What is said of a store, as it is said on the command line.
pub(crate) fn arguments(access: &Access) -> Vec<OsString> {
    let mut arguments = vec![OsString::from("sanwire")];
    for (name, file) in [("--password-file", &access.password_file), ("--key-file", &access.key_file)] {
        arguments.extend(file.iter().flat_map(|file| [OsString::from(name), file.clone().into_os_string()]));
    }
    if let Some(path) = access.iser_path {
        arguments.extend([OsString::from("--iser-path"), path.to_string().into()]);
    }
    arguments
}

fn options(server: &Server, access: &Access) -> Result<ClientOptions, Box<dyn Error + Send + Sync>> {
    // One after the other, though stores are opened side by side: a key may have to be made, and what a password is made into takes much
    // memory.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let usual = Usual::try_parse_from(arguments(access))?;
    let mut options = connect::options(&usual.client, server)?;
    options.server_key = access.server_key.or(options.server_key);
    Ok(options)
}

/// Which client this host's servers are to others.
pub(crate) fn client_id() -> Result<ClientId, String> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    connect::identity(None).map(|identity| identity.client_id()).map_err(|error| format!("{error:#}"))
}
