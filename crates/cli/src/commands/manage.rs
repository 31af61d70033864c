//! `sanwire manage`.

use std::time::Duration;

use anyhow::Context;
use sanwire_server::{Answer, Request, Response};

use crate::args::{Asked, ManageArgs};
use crate::connect::Connection;
use crate::{administration, paging};

/// The code of an answer for which there is no room in band.
const TOO_LONG: &str = "answer-too-long";

/// Asks the server in band and prints its answer.
pub(crate) fn run(args: &ManageArgs) -> anyhow::Result<()> {
    let connection = Connection::open_to_manage(&args.url, &args.reach)?;
    administration::run(&args.command, Asked::Elsewhere, args.terms, |request| ask(&connection, request))
}

pub(super) fn ask(connection: &Connection, request: &Request) -> anyhow::Result<Answer> {
    match respond(connection, request)? {
        Response::Refused(refusal) if refusal.code == TOO_LONG && !request.is_change() => {
            paging::in_pages(request, |page| respond(connection, page))
        }
        response => administration::answer_of(response),
    }
}

pub(super) fn respond(connection: &Connection, request: &Request) -> anyhow::Result<Response> {
    read(&connection.administer(&serde_json::to_vec(request)?)?)
}

/// The same of a server that may be away, and is not waited for then for longer than that.
pub(super) fn ask_within(connection: &Connection, patience: Duration, request: &Request) -> anyhow::Result<Answer> {
    administration::answer_of(read(&connection.administer_within(patience, &serde_json::to_vec(request)?)?)?)
}

fn read(answer: &[u8]) -> anyhow::Result<Response> {
    anyhow::ensure!(!answer.is_empty(), "the server has too many other requests to do: ask again");
    serde_json::from_slice(answer).context("the server's answer cannot be read: is it another version?")
}
