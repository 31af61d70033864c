//! The file of attachments: TOML with a table for each, whose keys are the options of `sanwire attach`.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, CommandFactory, Parser};
use rustix::fs::{FlockOperation, flock};
use sanwire_store::kind::Place;
use toml::{Spanned, Value};

use super::file::Source;
use crate::args::{ArrayPlace, AttachOptions, Entry, EntryName, VolumePlace};
use crate::failure::misuse;

/// Where the file is when nobody says so.
const PATH: &str = "/etc/sanwire/attach.toml";

/// The keys of an entry.
type Table = BTreeMap<Spanned<String>, Spanned<Value>>;

/// A file of attachments.
#[derive(Debug)]
pub(crate) struct Attachments {
    path: PathBuf,
    text: String,
    tables: BTreeMap<Spanned<String>, Table>,
}

impl Attachments {
    /// Reads the file.
    ///
    /// # Errors
    /// A [`crate::failure::Misuse`], with the line when it is no TOML.
    pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let path = path.unwrap_or(Path::new(PATH));
        let text = fs::read_to_string(path)
            .map_err(|error| misuse(format!("cannot read the file of attachments {}: {error}", path.display())))?;
        Self::parse(path, text)
    }

    fn parse(path: &Path, text: String) -> anyhow::Result<Self> {
        let tables = Source { path, text: &text }.read()?;
        Ok(Attachments { path: path.to_owned(), text, tables })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the entries.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(|name| name.get_ref().as_str())
    }

    /// The entry of this name.
    ///
    /// # Errors
    /// A [`crate::failure::Misuse`]: there is none, or a line of it is wrong.
    pub(crate) fn entry(&self, name: &str) -> anyhow::Result<Entry> {
        let source = Source { path: &self.path, text: &self.text };
        let found = self.tables.iter().find(|(key, _)| key.get_ref() == name);
        let (key, table) = found.ok_or_else(|| {
            let path = self.path.display();
            misuse(format!("{path} has no entry {name}: it has {}", list(&self.names().collect::<Vec<_>>())))
        })?;
        if let Err(error) = name.parse::<EntryName>() {
            return Err(source.refuse(Some(key.span()), &error.to_string()));
        }
        let command = Entry::command();
        let mut words = Vec::new();
        for (key, value) in table {
            words
                .extend(words_of(&command, key, value).map_err(|(span, message)| source.refuse(Some(span), &message))?);
        }
        let entry = Entry::try_parse_from(words).map_err(|error| {
            let place = culprit(&error).and_then(|option| table.get(option.as_str())).map(Spanned::span);
            let text = error.to_string();
            let message = text.lines().next().unwrap_or_default();
            let message = message.strip_prefix("error: ").unwrap_or(message);
            let message = match culprit(&error) {
                _ if !table.contains_key("url") => "the entry has no url, which says the volume".to_owned(),
                Some(missing) if error.kind() == ErrorKind::MissingRequiredArgument => {
                    format!("the entry has no {missing}, which belongs to what it says")
                }
                _ => message.to_owned(),
            };
            source.refuse(Some(place.unwrap_or(key.span())), &message)
        })?;
        let refuse_url = |message: &str| {
            let place = table.get("url").map_or(key.span(), Spanned::span);
            source.refuse(Some(place), message)
        };
        match &entry.url {
            VolumePlace::Volume(url) => url.volume().map(drop).map_err(|error| refuse_url(&error.to_string()))?,
            VolumePlace::Array(array) => {
                check_array(array).map_err(|message| refuse_url(&message))?;
                let refusal = |key: &Spanned<String>| {
                    let refused = AttachOptions::refusal_for_array(key.get_ref()).filter(|_| key.get_ref() != "url");
                    refused.map(|message| (key.span(), message))
                };
                if let Some((span, message)) = table.keys().find_map(refusal) {
                    return Err(source.refuse(Some(span), message.trim_start_matches("--")));
                }
            }
        }
        Ok(entry)
    }
}

/// This file is read in other directories too.
fn check_array(array: &ArrayPlace) -> Result<(), String> {
    let spec = array.spec().map_err(|error| error.to_string())?;
    let is_relative = |place: &Place<'_>| matches!(place, Place::File(path) if path.is_relative());
    match spec.backing.places().into_iter().find(is_relative) {
        Some(Place::File(path)) => Err(format!(
            "the member {} is no absolute path: this file is read in other directories too",
            path.display()
        )),
        _ => Ok(()),
    }
}

/// An option of the command line: its name and its values, none for a flag.
pub(crate) type Given = (String, Vec<String>);

/// Adds an entry at the end of the file, which is made when absent; gives its path.
///
/// # Errors
/// A [`crate::failure::Misuse`] when there is an entry of this name, or the file is wrong.
pub(crate) fn save(path: Option<&Path>, name: &EntryName, options: &[Given]) -> anyhow::Result<PathBuf> {
    let path = path.unwrap_or(Path::new(PATH));
    let unwritable = || format!("cannot write {}", path.display());
    // The file itself may be a link to somewhere else.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let _turn = take_turn(&real).with_context(unwritable)?;
    let before = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(misuse(format!("cannot read {}: {error}", path.display()))),
    };
    let there = Attachments::parse(path, before)?;
    if there.names().any(|there| there == name.as_str()) {
        let (path, name) = (path.display(), name.as_str());
        return Err(misuse(format!("{path} has an entry {name} already: choose another name, or remove that one")));
    }
    let mut text = there.text;
    if !text.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
    }
    let table: toml::Table = options.iter().map(written).collect::<anyhow::Result<_>>()?;
    text.push_str(&toml::to_string(&toml::Table::from_iter([(name.as_str().to_owned(), Value::Table(table))]))?);
    let whole = Attachments::parse(path, text)?;
    whole.entry(name.as_str())?;
    replace(&real, &whole.text).with_context(unwritable)?;
    Ok(path.to_owned())
}

/// What an option is in the file. A path there means the same wherever it is read.
fn written((key, values): &Given) -> anyhow::Result<(String, Value)> {
    let command = Entry::command();
    let is_path = option(&command, key).is_some_and(is_path);
    let value = |text: &String| -> anyhow::Result<Value> {
        if !is_path {
            return Ok(Value::String(text.clone()));
        }
        let path = std::path::absolute(text)?;
        Ok(Value::String(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned()))
    };
    let value = match &values[..] {
        [] => Value::Boolean(true),
        [one] => value(one)?,
        several => Value::Array(several.iter().map(value).collect::<anyhow::Result<_>>()?),
    };
    Ok((key.clone(), value))
}

/// The directory of the file, for one program at a time that changes the file, until this is dropped.
fn take_turn(path: &Path) -> io::Result<fs::File> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let turn = fs::File::open(directory)?;
    flock(&turn, FlockOperation::LockExclusive)?;
    Ok(turn)
}

/// Written aside and renamed into place: there is always a whole file. Its owner and its mode stay.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&aside)?;
    if let Ok(before) = fs::metadata(path) {
        fchown(&file, Some(before.uid()), Some(before.gid()))?;
        file.set_permissions(before.permissions())?;
    }
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all())?;
    fs::rename(&aside, path)
}

/// A key with its value as words of a command line; else where what is wrong.
fn words_of(
    command: &clap::Command,
    key: &Spanned<String>,
    value: &Spanned<Value>,
) -> Result<Vec<String>, (Range<usize>, String)> {
    let name = key.get_ref();
    let Some(option) = option(command, name) else {
        let known: Vec<_> = command.get_arguments().filter_map(Arg::get_long).collect();
        return Err((key.span(), format!("unknown key `{name}`: an entry has {}", list(&known))));
    };
    let refuse = |what: &str| Err((value.span(), format!("{name} {what}")));
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    let texts = match value.get_ref() {
        Value::Boolean(is_set) if is_flag => return Ok(is_set.then(|| format!("--{name}")).into_iter().collect()),
        _ if is_flag => return refuse("is true or false"),
        Value::Array(values) if matches!(option.get_action(), ArgAction::Append) => {
            values.iter().map(text_of).collect()
        }
        value => text_of(value).map(|text| vec![text]),
    };
    let Some(texts) = texts else { return refuse("is a text or a number") };
    if is_path(option) && texts.iter().any(|path| Path::new(path).is_relative()) {
        return refuse("is an absolute path: this file is read in other directories too");
    }
    Ok(texts.into_iter().map(|text| format!("--{name}={text}")).collect())
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

fn option<'a>(command: &'a clap::Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|option| option.get_long() == Some(name))
}

fn is_path(option: &Arg) -> bool {
    option.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// The option that an error is about.
fn culprit(error: &clap::Error) -> Option<String> {
    let said = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(said) => said,
        ContextValue::Strings(said) => said.first()?,
        _ => return None,
    };
    Some(said.split([' ', '=']).next()?.trim_start_matches('-').to_owned())
}

fn list(words: &[&str]) -> String {
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::args::{AttachKind, Patience};

    fn entry(text: &str, name: &str) -> anyhow::Result<Entry> {
        Attachments::parse(Path::new("attach.toml"), text.to_owned())?.entry(name)
    }

    #[test]
    fn an_entry_is_what_the_command_line_would_say() {
        let text = "[data]\nurl = \"hs+ip://box/data\"\nas = \"nbd\"\nwait = \"forever\"\nlinks = 2\nagain = false\n\
                    password-file = \"/p\"\nname-server = [\"192.0.2.1\", \"192.0.2.2\"]\n[more]\nurl = \"hs+ip://box/more\"\n";
        let Entry { url, options } = entry(text, "data").unwrap();
        assert_eq!((url.to_string().as_str(), options.kind), ("hs+ip://box/data", AttachKind::Nbd));
        assert_eq!((options.client.reach.wait, options.client.reach.links.0.max), (Some(Patience::Forever), 2));
        assert_eq!((options.again, options.client.reach.name_server.len()), (false, 2));
        assert_eq!(entry(text, "more").unwrap().options.kind, AttachKind::Fuse);
        assert!(entry(text, "other").unwrap_err().to_string().ends_with("no entry other: it has data, more"));
    }

    #[test]
    fn an_array_takes_the_options_that_mean_something_for_it() {
        crate::stores::register();
        let url = "[data]\nurl = 'array:data,member=hs+ip://box/disk'\n";
        let Entry { url: place, options } =
            entry(&format!("{url}wait = 'forever'\nread-only = true\n"), "data").unwrap();
        assert_eq!((place.to_string().as_str(), options.read_only), ("array:data", true));
        for (text, part) in [
            (
                format!("{url}exclusive = true\n"),
                "attach.toml:3: exclusive is not for arrays: leave it out, or give what",
            ),
            (format!("{url}wait = 3\npassword-file = '/p'\n"), "attach.toml:4: password-file is not for arrays"),
            (
                format!("{url}iser-path = 'rdma'\n"),
                "attach.toml:3: iser-path is not for arrays: give it with the array",
            ),
            ("[data]\nurl = 'array:data,size=1M'\n".to_owned(), "attach.toml:2: invalid value 'array:data,size=1M'"),
            (
                "[data]\nurl = 'array:data,member=file:x.img'\n".to_owned(),
                "attach.toml:2: the member x.img is no absolute",
            ),
            ("[data]\nurl = 'array:'\n".to_owned(), "attach.toml:2: invalid value 'array:'"),
        ] {
            let message = entry(&text, "data").unwrap_err().to_string();
            assert!(message.starts_with(part), "{text}: {message}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        let url = "[data]\nurl = \"hs+ip://box/data\"\n";
        for (line, part) in [
            ("speed = 3", "attach.toml:3: unknown key `speed`: an entry has url, as, "),
            ("wait = \"ever\"", "attach.toml:3: invalid value 'ever' for '--wait"),
            ("wait = true", "attach.toml:3: wait is a text or a number"),
            ("lock-media = 1", "attach.toml:3: lock-media is true or false"),
            ("password-file = \"p\"", "attach.toml:3: password-file is an absolute path"),
            ("wait = [1, 2]", "attach.toml:3: wait is a text or a number"),
            ("socket = \"/s\"\nlisten = \"127.0.0.1:1\"", "attach.toml:"),
            ("[data]", "attach.toml:3: "),
            ("x", "attach.toml:3: "),
        ] {
            let message = entry(&format!("{url}{line}\n"), "data").unwrap_err().to_string();
            assert!(message.starts_with(part), "{line}: {message}");
        }
        let no_url = entry("\n[data]\nwait = 3\n", "data").unwrap_err().to_string();
        assert_eq!(no_url, "attach.toml:2: the entry has no url, which says the volume");
        let server = entry("[data]\nurl = \"hs+ip://box\"\n", "data").unwrap_err().to_string();
        assert!(server.starts_with("attach.toml:2: ") && server.contains("names no volume"), "{server}");
    }

    #[test]
    fn an_entry_is_added_and_never_replaced() {
        let directory = std::env::temp_dir().join(format!("sanwire-attachments-{}", std::process::id()));
        let path = directory.join("etc/attach.toml");
        let add = |name: &str, options: &[(&str, &[&str])]| {
            let owned = |(key, values): &(&str, &[&str])| {
                ((*key).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
            };
            save(Some(&path), &name.parse().unwrap(), &options.iter().map(owned).collect::<Vec<Given>>())
        };
        add("a", &[("url", &["hs+ip://box/a"]), ("wait", &["forever"]), ("lock-media", &[])]).unwrap();
        add("b", &[("url", &["hs+ip://box/b"]), ("password-file", &["secret"])]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("[a]\n") && text.contains("lock-media = true\n") && text.contains("\n\n[b]\n"),
            "{text}"
        );
        let read = Attachments::read(Some(&path)).unwrap();
        assert!(read.entry("a").unwrap().options.client.lock_media);
        assert!(read.entry("b").unwrap().options.client.reach.password_file.is_some_and(|path| path.is_absolute()));
        assert!(add("a", &[("url", &["hs+ip://box/c"])]).unwrap_err().to_string().contains("has an entry a already"));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn entries_that_are_added_together_are_all_there_and_the_file_stays_what_it_was() {
        let directory = std::env::temp_dir().join(format!("sanwire-attachments-together-{}", std::process::id()));
        fs::create_dir_all(directory.join("real")).unwrap();
        let (link, real) = (directory.join("attach.toml"), directory.join("real/entries"));
        fs::write(&real, "").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let link = &link;
                let options = [("url".to_owned(), vec![format!("hs+ip://box/d{number}")])];
                scope.spawn(move || save(Some(link), &format!("e{number}").parse().unwrap(), &options).unwrap());
            }
        });
        assert_eq!(Attachments::read(Some(&link)).unwrap().names().count(), 8);
        assert!(link.is_symlink() && fs::metadata(&real).unwrap().mode() & 0o777 == 0o600);
        fs::remove_dir_all(directory).unwrap();
    }
}
