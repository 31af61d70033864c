//! `sanwire attach` by the entries of a file.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use clap::{ArgMatches, CommandFactory};

use super::assembled::is_said;
use crate::args::{AttachArgs, AttachKind, AttachOptions, Attachable, Cli, Entry, EntryName, VolumePlace};
use crate::config::{Attachments, ConnectionOptions, Given, save_attachment};
use crate::failure::misuse;
use crate::{connect, output};

/// The entry of this name, which says everything.
pub(crate) fn entry(args: &AttachArgs, name: &EntryName) -> anyhow::Result<Entry> {
    let given = given();
    if let Some((option, _)) = given.first() {
        let name = name.as_str();
        return Err(misuse(format!(
            "--{option} belongs into the entry {name}: write it there, or give the volume's URL"
        )));
    }
    Attachments::read(args.config.as_deref())?.entry(name.as_str())
}

/// Reads the file and the secrets that it names, and says what it has.
pub(crate) fn check(args: &AttachArgs) -> anyhow::Result<()> {
    let attachments = Attachments::read(args.config.as_deref())?;
    let names: Vec<&str> = match &args.what {
        Some(Attachable::Entry(name)) => vec![name.as_str()],
        Some(Attachable::Volume(_) | Attachable::Array(_)) => {
            return Err(misuse("--check is for the entries of a file: give a name, or none"));
        }
        None => attachments.names().collect(),
    };
    let mut text = String::new();
    let mut places = BTreeMap::new();
    for name in names {
        let Entry { url, options } = attachments.entry(name)?;
        check_entry(&url, &options).with_context(|| format!("the entry {name}"))?;
        for place in places_of(&url, &options) {
            if let Some(other) = places.insert(place.clone(), name.to_owned()) {
                return Err(misuse(format!(
                    "the entries {other} and {name} both have {place}: only one of them can be attached"
                )));
            }
        }
        let _ = writeln!(text, "{name}: {url}");
    }
    let _ = writeln!(text, "{} is correct", attachments.path().display());
    Ok(output::print(&text)?)
}

/// What no other attachment can have at the same time.
fn places_of(url: &VolumePlace, options: &AttachOptions) -> Vec<String> {
    let volume = (!options.again).then(|| url.to_string());
    let paths = [&options.socket, &options.mount_point].into_iter().flatten().map(|path| path.display().to_string());
    let addresses = [options.listen, options.metrics].into_iter().flatten().map(|address| address.to_string());
    volume.into_iter().chain(paths).chain(addresses).collect()
}

/// Whether the options go together, and the files that they name are there.
fn check_entry(url: &VolumePlace, options: &AttachOptions) -> anyhow::Result<()> {
    super::attach::check_kind(options)?;
    let VolumePlace::Volume(url) = url else { return Ok(()) };
    connect::check_protocol(&options.client, &[&url.server])?;
    options.terms.as_deref().map(ConnectionOptions::read).transpose()?;
    connect::options(&options.client, &url.server).map(drop)
}

/// Writes an entry, and says what makes it start with the host.
pub(crate) fn save(args: &AttachArgs, name: &EntryName) -> anyhow::Result<()> {
    let (place, written) = match &args.what {
        Some(Attachable::Volume(url)) => (VolumePlace::Volume(url.clone()), url.to_string()),
        Some(Attachable::Array(array)) => {
            super::attach::array::check_given()?;
            (VolumePlace::Array(array.clone()), array.written().to_owned())
        }
        _ => return Err(misuse("--save needs the URL of a volume, or array:NAME")),
    };
    let device = match &place {
        VolumePlace::Volume(url) => {
            format!("SERVER/{}", url.volume().map_err(|error| misuse(error.to_string()))?)
        }
        VolumePlace::Array(array) => format!("array/{}", array.name()),
    };
    check_entry(&place, &args.options)?;
    let mut options: Vec<Given> = vec![("url".into(), vec![written])];
    options.extend(given());
    if args.options.client.reach.wait.is_none() {
        // A file system that is in use does not survive anything else.
        options.push(("wait".into(), vec!["forever".into()]));
    }
    let path = save_attachment(args.config.as_deref(), name, &options)?;
    let has_device = args.options.kind == AttachKind::Fuse && !args.options.no_device;
    Ok(output::print(&saved(&path, name, &place, has_device.then_some(&device)))?)
}

/// What to type next. Of the file system's name only its server can say the first half.
fn saved(path: &Path, name: &EntryName, url: &VolumePlace, device: Option<&String>) -> String {
    let (path, name) = (path.display(), name.as_str());
    let unit = format!("sanwire-attach@{name}.service");
    let mut text = format!(
        "{path} has the entry {name} now: {url}\n\nattach it now and at each start of the host:\n  systemctl enable --now {unit}\n"
    );
    if let Some(device) = device {
        let _ = write!(
            text,
            "\nwhen it has a file system, the line for /etc/fstab (`sanwire ls` shows the name of the device):\n  \
             /dev/sanwire/{device}  /mnt/{name}  auto  _netdev,nofail,x-systemd.requires={unit},x-systemd.device-timeout=0  0  2\n"
        );
    }
    text
}

/// The options that the command line has, as an entry has them.
pub(super) fn given() -> Vec<Given> {
    let matches = Cli::command().get_matches_from(env::args_os());
    let Some(("attach", matches)) = matches.subcommand() else { return vec![] };
    let command = Entry::command();
    command
        .get_arguments()
        .filter_map(|option| {
            let values = said(matches, option.get_id().as_str())?;
            let values = if option.get_action().takes_values() { values } else { vec![] };
            Some((option.get_long()?.to_owned(), values))
        })
        .collect()
}

fn said(matches: &ArgMatches, id: &str) -> Option<Vec<String>> {
    // Not every option of an entry is one of the command.
    let values = is_said(matches, id).then(|| matches.get_raw(id)).flatten()?;
    Some(values.map(|value| value.to_string_lossy().into_owned()).collect())
}
