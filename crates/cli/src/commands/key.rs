//! `sanwire key`.

use std::io::{self, IsTerminal};
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
        KeyCommand::Pin { url, key, replace, client, .. } => pin(url, *key, *replace, client)?,
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

fn pin(url: &Url, key: Option<[u8; 32]>, may_replace: bool, args: &ClientArgs) -> anyhow::Result<String> {
    let server = &url.server;
    if !matches!(server, Server::HyperScsi(_) | Server::Hdsp(_) | Server::Visa(_)) {
        return Err(misuse(format!("{url}: only servers that speak HyperSCSI, HDSP or VISA have a key to pin")));
    }
    // Who names the key has compared it.
    let is_named = key.is_some();
    let key = key.map_or_else(|| shown_by(url, args), Ok)?;
    let (mut known, shown) = (KnownServers::load()?, hexadecimal(&key));
    let before = known.key_of(server).filter(|before| *before != key);
    if let Some(before) = before {
        let keys =
            format!("{server} is pinned with another key\npinned:   {}\nreceived: {shown}\n", hexadecimal(&before));
        confirm(&keys, is_named, may_replace)?;
    }
    let was_pinned = known.pin(server, key)?.is_some();
    Ok(match before {
        None if was_pinned => format!("{server} is taken with this key only, as before:\n{shown}\n"),
        None => format!("{server} is taken with this key only, from now on:\n{shown}\n"),
        Some(before) => {
            let before = hexadecimal(&before);
            format!("{server} is taken with this key only, from now on:\n{shown}\nbefore, it was:\n{before}\n")
        }
    })
}

/// The key that the server has now, whoever it is.
fn shown_by(url: &Url, args: &ClientArgs) -> anyhow::Result<[u8; 32]> {
    let mut options = options(args, &url.server)?;
    options.server_key = None;
    let key = Client::connect(url, &options)?.server_key();
    key.ok_or_else(|| misuse(format!("{url}: the server has no key to pin")))
}

/// Another key takes the place of a pinned one only if somebody has compared it.
fn confirm(keys: &str, is_named: bool, may_replace: bool) -> anyhow::Result<()> {
    const COMPARE: &str = "compare with `sanwire key show` of the key file on the server";
    if !may_replace {
        return Err(misuse(format!("{keys}nothing was changed: {COMPARE}, then add --replace --key KEY")));
    }
    if is_named {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(misuse(format!("{keys}nothing was changed: {COMPARE}, and say by --key which one it has")));
    }
    eprint!(
        "{keys}Either the server was set up anew, or somebody else answers in its place: {COMPARE}.\nReplace it? Type yes: "
    );
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(misuse("nothing was changed")) }
}

fn forget(url: &Url) -> anyhow::Result<String> {
    let server: &Server = &url.server;
    Ok(match KnownServers::load()?.forget(server)? {
        true => format!("{server} is taken with any key\n"),
        false => format!("{server} was not pinned\n"),
    })
}
