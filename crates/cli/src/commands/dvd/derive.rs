//! `sanwire dvd create`, `create-list`, `ls`, `show`, `set` and `revoke`: volumes of a server that are derived from others.

use std::fs;
use std::path::Path;

use anyhow::Context;
use data_encoding::BASE64;
use sanwire_server::{Answer, DvdEnd, NewDvd, Request};

use super::file::{self, Ask};
use super::list;
use crate::args::{DeriveCommand, DvdCreateArgs, WayArgs};
use crate::commands::manage;
use crate::connect::Connection;
use crate::failure::misuse;
use crate::{administration, control};

/// The longest module that is sent to a server, in bytes: a longer one is put into a file there, and named in its configuration.
const MODULE_MAX_BYTES: u64 = 256 << 10;

/// Asks the server, and prints its answer.
pub(super) fn run(command: &DeriveCommand) -> anyhow::Result<()> {
    let (request, way) = match command {
        DeriveCommand::Create(args) => match &args.file.path {
            Some(path) => return file::run(args, path, new(args)?, &*asker(&args.way)?),
            None => (Request::CreateDvd(new(args)?), &args.way),
        },
        DeriveCommand::CreateList { list, way } => (Request::CreateDvds(list::read(list)?), &**way),
        DeriveCommand::Ls { parent, way } => (Request::Dvds { parent: parent.clone() }, &**way),
        DeriveCommand::Show { name, way } => (Request::Dvd { name: name.clone() }, &**way),
        // Either of both is given.
        DeriveCommand::Set { name, until, no_until: _, way } => {
            (Request::SetDvd(DvdEnd { name: name.clone(), until: until.clone() }), &**way)
        }
        DeriveCommand::Revoke { name, way } => (Request::RevokeDvd { name: name.clone() }, &**way),
    };
    ask(request, way)
}

fn ask(request: Request, way: &WayArgs) -> anyhow::Result<()> {
    match &way.at {
        Some(url) => {
            let connection = Connection::open_to_manage(url, &way.reach)?;
            administration::run_request(request, way.terms, |request| manage::ask(&connection, request))
        }
        None => {
            let socket = way.socket.clone().map_or_else(|| control::find_socket(way.server.as_ref()), Ok)?;
            let ask = |request: &Request| -> anyhow::Result<Answer> { control::ask(&socket, request) };
            administration::run_request(request, way.terms, ask)
        }
    }
}

/// Asks the server again and again: a connection that is idle for long does not stay.
fn asker(way: &WayArgs) -> anyhow::Result<Box<Ask<'_>>> {
    if let Some(url) = &way.at {
        return Ok(Box::new(move |request: &Request| {
            manage::ask(&Connection::open_to_manage(url, &way.reach)?, request)
        }));
    }
    let socket = way.socket.clone().map_or_else(|| control::find_socket(way.server.as_ref()), Ok)?;
    Ok(Box::new(move |request: &Request| control::ask(&socket, request)))
}

fn new(args: &DvdCreateArgs) -> anyhow::Result<NewDvd> {
    Ok(NewDvd {
        parent: args.parent.clone(),
        name: args.name.clone(),
        regions: args.regions.clone(),
        operations: args.operations.clone(),
        principals: args.principals.clone(),
        until: args.until.clone(),
        read_only: args.read_only,
        security: args.security.map(|level| level.to_string()),
        owners: args.owners.clone(),
        program: args.program.as_deref().map(module).transpose()?,
        target: args.target.clone(),
    })
}

/// A module as it is sent.
fn module(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let length_bytes = fs::metadata(path).with_context(|| format!("cannot read the program {shown}"))?.len();
    if length_bytes > MODULE_MAX_BYTES {
        return Err(misuse(format!(
            "the program {shown} has {length_bytes} bytes, and at most {MODULE_MAX_BYTES} are sent to a server: make it smaller, or put it into a \
             file there and name that in the configuration (program = \"PATH\")"
        )));
    }
    Ok(BASE64.encode(&fs::read(path).with_context(|| format!("cannot read the program {shown}"))?))
}
