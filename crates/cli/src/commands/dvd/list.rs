//! Lists of volumes that are to be derived, as they are written in a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use sanwire_server::{NewDvd, NewDvds, REQUEST_MAX_BYTES};
use serde::Deserialize;

use crate::failure::misuse;

/// A list as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    dvd: Vec<NewDvd>,
}

/// The list in this file, or at stdin.
///
/// # Errors
/// When it cannot be read, or is none.
pub(super) fn read(path: &Path) -> anyhow::Result<NewDvds> {
    let is_stdin = path == Path::new("-");
    let shown = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let source: Box<dyn Read> = match is_stdin {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).with_context(|| format!("cannot read the list {shown}"))?),
    };
    let mut text = String::new();
    // A longer one is refused by the server in any case.
    let max = 4 * REQUEST_MAX_BYTES;
    source.take(max as u64 + 1).read_to_string(&mut text).with_context(|| format!("cannot read the list {shown}"))?;
    if text.len() > max {
        return Err(misuse(format!("{shown} has more than {max} bytes: derive fewer volumes at a time")));
    }
    let dvds = parsed(&text).map_err(|reason| {
        misuse(format!("{shown} is no list of volumes to derive: {reason}; see `sanwire dvd create-list --help`"))
    })?;
    check_length(NewDvds { dvds })
}

/// A list as JSON begins with an object, or with an array of such, which no table of TOML does.
fn parsed(text: &str) -> Result<Vec<NewDvd>, String> {
    let begin = text.trim_start();
    let is_array = begin.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with(['{', ']']));
    if is_array {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    if begin.starts_with('{') {
        let NewDvds { dvds } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        return Ok(dvds);
    }
    let Tables { dvd } = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    Ok(dvd)
}

/// Such a list as a server takes: a longer one is not even looked at there.
fn check_length(list: NewDvds) -> anyhow::Result<NewDvds> {
    let length_bytes = serde_json::to_vec(&list)?.len();
    // What is around it is short.
    if length_bytes > REQUEST_MAX_BYTES - 1024 {
        return Err(misuse(format!(
            "the list has {length_bytes} bytes as it is sent, and a server takes {REQUEST_MAX_BYTES}: derive fewer volumes at a time"
        )));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_the_same_in_each_form() {
        let names = |text: &str| -> Vec<String> { parsed(text).unwrap().into_iter().map(|new| new.name).collect() };
        let toml = "# two\n[[dvd]]\nparent = \"disk\"\nname = \"a\"\nprincipals = [\"any\"]\n\n[[dvd]]\nparent = \"disk\"\nname = \"b\"\nprincipals = []\n";
        let array = r#" [ {"parent":"disk","name":"a","principals":["any"]}, {"name":"b","principals":[]} ]"#;
        let object = r#"{"dvds":[{"name":"a","principals":[]},{"name":"b","principals":[]}]}"#;
        for text in [toml, array, object] {
            assert_eq!(names(text), ["a", "b"], "{text}");
        }
        assert!(names("[]").is_empty());
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "missing field `dvd`"),
            ("[[dvd]]\nname = \"a\"\n", "principals"),
            ("[[dvd]]\nname = \"a\"\nprincipals = []\nregion = []\n", "region"),
            (r#"[{"name":"a","principals":[],"region":[]}]"#, "region"),
            (r#"{"dvd":[]}"#, "dvd"),
            (r#"[{"name":"a""#, "EOF"),
        ] {
            let reason = parsed(text).unwrap_err();
            assert!(reason.contains(part), "{text}: {reason}");
        }
        let many = NewDvds { dvds: vec![NewDvd { until: Some("2h".repeat(1000)), ..NewDvd::default() }; 400] };
        assert!(check_length(many).unwrap_err().to_string().contains("derive fewer volumes at a time"));
        assert!(check_length(NewDvds::default()).is_ok());
    }
}
