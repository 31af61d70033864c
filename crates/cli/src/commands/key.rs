//! `sanwire key`.

use std::path::Path;

use sanwire_initiator::{Client, Server, Url};

use crate::args::{ClientArgs, KeyArgs, KeyCommand};
use crate::connect::{identity, options};
use crate::failure::misuse;
use crate::keys::{self, hexadecimal};
use crate::known_servers::KnownServers;
use crate::output;

/// Makes, shows or pins keys.
pub(crate) fn run(args: &KeyArgs) -> anyhow::Result<()> {
    let text = match &args.command {
        KeyCommand::New { file } => {
            keys::make_new(file)?;
            format!("{} holds a new key: only its owner may read it\n", file.display())
        }
        KeyCommand::Show { file } => show(file.as_deref())?,
        KeyCommand::Pin { url, forget: true, .. } => forget(url)?,
        KeyCommand::Pin { url, client, .. } => pin(url, client)?,
    };
    Ok(output::print(&text)?)
}

fn show(file: Option<&Path>) -> anyhow::Result<String> {
    // A new key in the place of the one that is asked for would be taken for that.
    if let Some(file) = file.filter(|file| !file.exists()) {
        let file = file.display();
        return Err(misuse(format!("there is no key file {file}: `sanwire key new {file}` makes one")));
    }
    let identity = identity(file)?;
    Ok(format!("public key  {}\nclient id   {}\n", hexadecimal(identity.public()), identity.client_id()))
}

fn pin(url: &Url, args: &ClientArgs) -> anyhow::Result<String> {
    let mut options = options(args, &url.server)?;
    options.server_key = None;
    let key = Client::connect(url, &options)?.server_key();
    let key = key.ok_or_else(|| misuse(format!("{url}: servers that speak iSCSI have no key to pin")))?;
    let mut known = KnownServers::load()?;
    let before = known.pin(&url.server, key)?;
    let shown = hexadecimal(&key);
    Ok(match before {
        None => format!("{} is taken with this key only, from now on:\n{shown}\n", url.server),
        Some(before) if before == key => format!("{} is taken with this key only, as before:\n{shown}\n", url.server),
        Some(before) => {
            format!(
                "{} is taken with this key only, from now on:\n{shown}\nbefore, it was:\n{}\n",
                url.server,
                hexadecimal(&before)
            )
        }
    })
}

fn forget(url: &Url) -> anyhow::Result<String> {
    let server: &Server = &url.server;
    Ok(match KnownServers::load()?.forget(server)? {
        true => format!("{server} is taken with any key\n"),
        false => format!("{server} was not pinned\n"),
    })
}
