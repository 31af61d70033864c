//! Configurations that are wrong, or legal and hardly meant: each is refused or warned of, never served in silence.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod attachments;
mod rows;
mod served;

use rows::{ID, ROWS};

/// What becomes of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// It is served, and this is said.
    Warned,
    /// It is wrong.
    Refused,
    /// It is right, but not on this host.
    Missing,
    /// A volume of it is not right on this host: a check says so, and a server serves the others.
    Apart,
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("odd-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        let scratch = Scratch(path);
        scratch.write("password", "a secret of hosts\n");
        scratch.write("key", &format!("{}\n", "ab".repeat(32)));
        scratch.write("empty", "\n");
        scratch.write("disk.img", &"x".repeat(4096));
        scratch
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed to others");
        path
    }

    /// Writes the configuration down; gives its file.
    fn configure(&self, text: &str) -> PathBuf {
        let directory = self.0.display().to_string();
        self.write("sanwire.toml", &text.replace("DIR", &directory).replace("ID", ID))
    }

    fn check(&self, text: &str) -> Output {
        let file = self.configure(text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        command.args(["serve", "--check", "--config"]).arg(file).env("XDG_STATE_HOME", self.0.join("state"));
        command.env_remove("SANWIRE_LOG").output().expect("the program runs")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn nothing_odd_is_served_in_silence() {
    let scratch = Scratch::new("rows");
    let mut failures = String::new();
    for (text, end, part) in ROWS {
        let output = scratch.check(text);
        let said = stderr(&output);
        let code = match end {
            End::Warned => 0,
            End::Missing | End::Apart => 1,
            End::Refused => 2,
        };
        if output.status.code() != Some(code) || !said.contains(&part.replace("ID", ID)) {
            failures += &format!("--- {text}\nwanted {end:?}: {part}\ngot {:?}: {said}\n", output.status.code());
        }
    }
    assert!(failures.is_empty(), "{failures}");
    let left: BTreeSet<_> =
        fs::read_dir(&scratch.0).expect("a directory").map(|entry| entry.unwrap().file_name()).collect();
    let known = ["disk.img", "empty", "key", "password", "sanwire.toml"].map(Into::into);
    assert_eq!(left, BTreeSet::from(known), "a check makes nothing");
}

#[test]
fn what_is_right_is_served_without_a_warning() {
    let scratch = Scratch::new("right");
    for text in [
        "[[volume]]\nname = 'a'\nstore = 'ram:1M'",
        "wire = ['hs-ip:0.0.0.0', 'iscsi:0.0.0.0']\nallow = ['10.0.0.0/8']\n[[volume]]\nname = 'a'\nstore = 'ram:1M'",
        "wire = ['hs-ip:[::]']\nallow = ['10.0.0.0/8', 'ID']\n[[volume]]\nname = 'a'\nstore = 'ram:1M'",
        "wire = ['hs-ip:0.0.0.0']\n[[client]]\nid = 'ID'\nvolumes = ['a*']\n[[volume]]\nname = 'a'\nstore = 'ram:1M'",
        "wire = ['hs-eth:lo']\nallow = ['02:00:5e:10:00:01']\n[[volume]]\nname = 'a'\nstore = 'file:DIR/new.img'\nsize = '1M'",
    ] {
        let output = scratch.check(text);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{text}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.starts_with("the configuration can be served: 1 volume, ") && said.ends_with("; 0 warnings\n"),
            "{said}"
        );
    }
}

/// The keys of a table, by what is said of one that is none.
fn keys(scratch: &Scratch, before: &str) -> Vec<String> {
    let said = stderr(&scratch.check(&format!("{before}no-such-key = 1")));
    let (_, expected) = said.split_once("expected").unwrap_or_else(|| panic!("{before}: {said}"));
    let words = expected.split(|c: char| !c.is_ascii_lowercase() && c != '-');
    words.filter(|word| !["", "one", "of", "or"].contains(word)).map(str::to_owned).collect()
}

/// A new key gets a row that shows what bad input comes to.
#[test]
fn every_key_that_there_is_has_a_row() {
    let scratch = Scratch::new("keys");
    let tables = [
        "",
        "[[volume]]\n",
        "[[pool]]\n",
        "[metrics]\n",
        "[[client]]\n",
        "[[target]]\n",
        "[discovery]\n",
        "[discovery]\nchap = [{ user = 'u', secret-file = '/s' }]\n[discovery.mutual-chap]\nuser = 'u'\n",
    ];
    let words: BTreeSet<&str> =
        ROWS.iter().flat_map(|(text, _, _)| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')).collect();
    for table in tables {
        let keys = keys(&scratch, table);
        assert!(!keys.is_empty(), "{table}");
        for key in keys {
            assert!(words.contains(key.as_str()), "{table}{key}: add a row to odd_configurations/rows.rs");
        }
    }
}
