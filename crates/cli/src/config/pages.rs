//! Tests: the pages that describe the configuration file name each key that it may have, and no others.

use std::collections::BTreeSet;
use std::path::Path;

use super::file;
use crate::stores;

const MANUAL: &str = include_str!("../../../../packaging/man/sanwire.toml.5");
const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");

/// A part of the file: how it begins, where the manual page tells of it, and where the document does.
struct Part {
    begin: &'static str,
    manual: &'static str,
    document: &'static [(&'static str, &'static str)],
}

/// What ends in a table of its own is told of there.
const TABLES: [&str; 6] = ["metrics", "pool", "volume", "client", "target", "discovery"];

const PARTS: [Part; 7] = [
    Part { begin: "", manual: "KEYS", document: &[("# The configuration file", "Each `[[volume]]`")] },
    Part { begin: "[metrics]\n", manual: "METRICS", document: &[("### Metrics of clients", "## Protection levels")] },
    Part { begin: "[[pool]]\n", manual: "POOLS", document: &[("### Pools", "\n```")] },
    Part {
        begin: "[[volume]]\n",
        manual: "VOLUMES",
        document: &[("Each `[[volume]]`", "### Pools"), ("### Stores on other servers", "`nbd:` reaches")],
    },
    Part { begin: "[[client]]\n", manual: "CLIENTS", document: &[("## HyperSCSI clients", "## Protection levels")] },
    Part { begin: "[[target]]\n", manual: "ISCSI TARGETS", document: &[("## iSCSI targets", "### Who may use")] },
    Part { begin: "[discovery]\n", manual: "ISCSI TARGETS", document: &[("### Who may use", "## Changing")] },
];

impl Part {
    /// The keys that its reader knows, as the refusal of another one lists them.
    fn keys(&self) -> BTreeSet<String> {
        stores::register();
        let text = format!("{}no-such-key = 1\n", self.begin);
        let refusal = file::parse(Path::new("sanwire.toml"), &text).unwrap_err().to_string();
        let (_, known) = refusal.split_once("expected ").unwrap_or_else(|| panic!("{}: {refusal}", self.begin));
        let words = known.split([' ', ',', '`']).filter(|word| !["", "one", "of", "or"].contains(word));
        words.filter(|key| !self.begin.is_empty() || !TABLES.contains(key)).map(str::to_owned).collect()
    }
}

/// What stands behind `.TP` in a section of the manual page: its terms.
fn terms(section: &str) -> BTreeSet<String> {
    let (_, rest) = MANUAL.split_once(&format!("\n.SH {section}\n")).unwrap_or_else(|| panic!("no {section}"));
    let section = rest.split_once("\n.SH ").map_or(rest, |(section, _)| section);
    // Some are in running text.
    let lines = section.lines().filter_map(|line| line.strip_prefix(".BR ").or_else(|| line.strip_prefix(".B ")));
    let plain = lines.map(|line| line.replace("\\-", "-"));
    plain.flat_map(|line| line.split([' ', '"', ',', ':']).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn the_manual_page_names_every_key_and_no_other() {
    for part in &PARTS {
        let (keys, terms) = (part.keys(), terms(part.manual));
        let missing: Vec<_> = keys.difference(&terms).collect();
        assert!(missing.is_empty(), "{} {missing:?} are not in packaging/man/sanwire.toml.5", part.begin);
    }
    let all: BTreeSet<String> = PARTS.iter().flat_map(Part::keys).collect();
    for part in &PARTS {
        let is_key =
            |term: &&String| !term.is_empty() && term.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let terms = terms(part.manual);
        let others: Vec<_> = terms.iter().filter(is_key).filter(|term| !all.contains(*term)).collect();
        let others: Vec<_> = others
            .into_iter()
            .filter(|term| !["and", "or", "user", "secret", "sanwire", "ctl"].contains(&&***term))
            .collect();
        assert!(others.is_empty(), "{}: {others:?} are no keys", part.manual);
    }
}

#[test]
fn the_document_names_every_key() {
    for part in &PARTS {
        let between = |(begin, end): &(&str, &str)| {
            let (_, rest) = DOCUMENT.split_once(begin).unwrap_or_else(|| panic!("no '{begin}'"));
            rest.split_once(end).unwrap_or_else(|| panic!("no '{end}'")).0
        };
        let told: String = part.document.iter().map(between).collect();
        let missing: Vec<_> = part.keys().into_iter().filter(|key| !told.contains(&format!("`{key}`"))).collect();
        assert!(missing.is_empty(), "{} {missing:?} are not in docs/configuration.md", part.begin);
    }
}
