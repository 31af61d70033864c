//! `sanwire man`.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{Cli, ManArgs};

/// What the exit code says, as `failure` gives it.
const EXIT_STATUS: [(&str, &str); 4] = [
    ("0", "It is done."),
    ("1", "Something failed while working; stderr says what."),
    ("2", "The command line, or a file of the configuration, is wrong. Nothing was opened or changed."),
    (
        "130, 143",
        "SIGINT or SIGTERM ended it before it was done: serve by the second one, attach by a SIGINT after the first, others by the first.",
    ),
];

const ENVIRONMENT: [(&str, &str); 7] = [
    ("SANWIRE_LOG", "How much is logged on stderr, unless --log says it."),
    ("SANWIRE_NAME_SERVER", "The name servers that are asked for hosts, unless --name-server says them."),
    ("STATE_DIRECTORY, XDG_STATE_HOME", "Where keys and what a server keeps are: the first as systemd sets it."),
    ("RUNTIME_DIRECTORY, XDG_RUNTIME_DIR", "Where sockets and mount points are."),
    ("CONFIGURATION_DIRECTORY, XDG_CONFIG_HOME", "Where known-servers is."),
    (
        "CREDENTIALS_DIRECTORY",
        "Secrets in files of this directory (LoadCredential= of systemd) are taken whatever their mode.",
    ),
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC, JOURNAL_STREAM",
        "Set by systemd: it is told when the service is ready and that it lives, and the log has priorities in place of times.",
    ),
];

const FILES: [(&str, &str); 7] = [
    ("/etc/sanwire/sanwire.toml", "What the packaged service serves: sanwire.toml(5)."),
    ("/etc/sanwire/attach.toml", "What `sanwire attach NAME` attaches: sanwire-attach.toml(5)."),
    (
        "/var/lib/sanwire/server, /var/lib/sanwire/volumes",
        "What the packaged service keeps, its audit log among it, and where its volumes may be.",
    ),
    (
        "~/.local/state/sanwire, root: /var/lib/sanwire",
        "The key of this client, and what a server keeps that is started by hand. What root has in the former place is used on.",
    ),
    ("~/.config/sanwire/known-servers, root: /etc/sanwire/known-servers", "The pinned keys of servers."),
    ("$XDG_RUNTIME_DIR/sanwire, root: /run/sanwire", "Sockets of servers, and what is attached."),
    ("/dev/sanwire/SERVER/VOLUME", "The block devices of attached volumes."),
];

/// Writes one page for the program and one for each command.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<()> {
    let directory = &args.directory;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let written = fs::create_dir_all(directory).and_then(|()| write_pages(&command, &[], directory));
    written.with_context(|| format!("cannot write manual pages into {}", directory.display()))
}

/// Writes the page of a command, and those of its subcommands; `above` are the pages that lead to it.
fn write_pages(command: &Command, above: &[String], directory: &Path) -> io::Result<()> {
    let man = Man::new(command.clone()).manual("Sanwire").source(concat!("sanwire ", env!("CARGO_PKG_VERSION")));
    let name = man.get_filename();
    let page = name.trim_end_matches(".1").to_owned();
    let below: Vec<&Command> = command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    let of_command = |command: &Command| Man::new(command.clone()).get_filename().trim_end_matches(".1").to_owned();
    let mut related = above.to_vec();
    related.extend(below.iter().map(|command| of_command(command)));
    fs::write(directory.join(&name), page_of(command, &man, &related)?)?;
    let above = [above, &[page]].concat();
    below.into_iter().try_for_each(|command| write_pages(command, &above, directory))
}

fn page_of(command: &Command, man: &Man, related: &[String]) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(help) = command.get_after_long_help().or(command.get_after_help()) {
        notes(&help.to_string()).to_writer(&mut page)?;
    }
    for (title, rows) in [("EXIT STATUS", &EXIT_STATUS[..]), ("ENVIRONMENT", &ENVIRONMENT), ("FILES", &FILES)] {
        list(title, rows).to_writer(&mut page)?;
    }
    let mut see_also = Roff::default();
    see_also.control("SH", ["SEE ALSO"]);
    let pages = related.iter().map(|page| (page.as_str(), 1));
    let pages: Vec<_> = pages.chain([("sanwire.toml", 5), ("sanwire-attach.toml", 5)]).collect();
    for (at, (page, section)) in pages.iter().enumerate() {
        let end = if at + 1 == pages.len() { "" } else { "," };
        see_also.text([bold(*page), roman(format!("({section}){end}"))]);
    }
    see_also.to_writer(&mut page)?;
    Ok(page)
}

/// Notes and examples as they stand in the help: indented lines are to be pasted, and are not filled.
fn notes(help: &str) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["NOTES"]);
    let mut is_verbatim = false;
    for line in help.lines() {
        let indented = line.starts_with("  ");
        if indented != is_verbatim && !line.is_empty() {
            roff.control(if indented { "nf" } else { "fi" }, []);
            is_verbatim = indented;
        }
        match line {
            "" => drop(roff.control("PP", [])),
            line => drop(roff.text([roman(line)])),
        }
    }
    if is_verbatim {
        roff.control("fi", []);
    }
    roff
}

fn list(title: &str, rows: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", [title]);
    for (term, text) in rows {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(*text)]);
    }
    roff
}
