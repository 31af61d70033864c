//! How many modules of a crate name each other in a circle: none of them can be read, or used, without all the others.
//!
//! A module is a file. It names another one by a path that begins with `crate`, `super`, `self` or one of its own modules; declaring
//! a module is not naming it, and what the root of a crate exports does not count.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, is_word, words};

/// The modules of a crate that each of them names.
type Named<'m> = BTreeMap<&'m str, BTreeSet<&'m str>>;

/// The largest circle of each crate, by the crate's directory: how many modules it has, 0 without one.
pub(super) fn measure(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut crates: BTreeMap<&str, BTreeMap<String, &Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        if let Some(module) = module_of(source) {
            crates.entry(source.crate_directory()).or_default().insert(module, source);
        }
    }
    crates.into_iter().map(|(name, modules)| (name.into(), largest_circle(&modules))).collect()
}

/// The path of a file's module within its crate; `None` for the root, and for what is no module of a crate's library.
fn module_of(source: &Source) -> Option<String> {
    let path = source.path.strip_prefix(source.crate_directory())?.strip_prefix("/src/")?.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    (!matches!(path, "lib" | "main")).then(|| path.replace('/', "::"))
}

fn largest_circle(modules: &BTreeMap<String, &Source>) -> usize {
    let named: Named = modules.iter().map(|(module, source)| (&**module, named_by(module, source, modules))).collect();
    let reached: Named = named.keys().map(|module| (*module, reached_from(module, &named))).collect();
    let circle = |module: &&str| reached[module].iter().filter(|other| reached[**other].contains(module)).count();
    named.keys().map(circle).max().unwrap_or(0)
}

/// The modules that are named by a module, by those that these name, and so on; itself only if it is in a circle.
fn reached_from<'m>(module: &str, named: &Named<'m>) -> BTreeSet<&'m str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&'m str> = named[module].iter().copied().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(&named[next]);
        }
    }
    reached
}

/// The other modules that a module names.
fn named_by<'m>(module: &str, source: &Source, modules: &'m BTreeMap<String, &Source>) -> BTreeSet<&'m str> {
    let found = |path: String| {
        let place = place_of(&path, module, modules)?;
        // The deepest module of the path; what follows is in it.
        let found = (1..=place.len()).rev().find_map(|length| modules.get_key_value(&place[..length].join("::")));
        found.map(|(found, _)| &**found)
    };
    let named = paths(source.code_before_tests()).into_iter().filter_map(found);
    named.filter(|other| *other != module).collect()
}

/// A path from the root of the crate; `None` for one that leads into another crate, or to what is in scope anyway.
fn place_of<'p>(path: &'p str, module: &'p str, modules: &BTreeMap<String, &Source>) -> Option<Vec<&'p str>> {
    let mut names = path.split("::").map(str::trim).peekable();
    let mut place: Vec<&str> = module.split("::").collect();
    match *names.peek()? {
        "crate" => place.clear(),
        "self" => {}
        "super" => {
            while names.next_if_eq(&"super").is_some() {
                place.pop();
            }
        }
        name if modules.contains_key(&format!("{module}::{name}")) => {}
        _ => return None,
    }
    place.extend(names.filter(|name| !matches!(*name, "crate" | "self")));
    Some(place)
}

/// All paths in code: those that are imported, each by itself, and those of more than one name elsewhere.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code.to_owned();
    for start in words(code, "use") {
        let end = code[start..].find(';').map_or(code.len(), |length| start + length);
        let tree: String = code[start + 3..end].split_whitespace().collect::<Vec<_>>().join(" ");
        expand("", &tree, &mut found);
        rest.replace_range(start..end, &" ".repeat(end - start));
    }
    let is_of_path = |character: char| character == ':' || character.is_ascii() && is_word(character as u8);
    let others = rest.split(|character| !is_of_path(character)).filter(|path| path.contains("::"));
    found.extend(others.map(str::to_owned));
    found
}

/// The paths of a tree of imports.
fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let Some((before, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        return found.push(format!("{prefix}{}", path.trim()));
    };
    let prefix = format!("{prefix}{}", before.trim());
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let (mut depth, mut from) = (0_usize, 0);
    for (at, byte) in group.bytes().enumerate().chain([(group.len(), b',')]) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                if !group[from..at].trim().is_empty() {
                    expand(&prefix, group[from..at].trim(), found);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(files: &[(&str, &str)]) -> usize {
        let sources: Vec<_> = files.iter().map(|(path, text)| Source::parse(path, text)).collect();
        measure(&sources)["crates/a"]
    }

    #[test]
    fn modules_that_name_each_other_are_a_circle() {
        let (lib, one) = (("crates/a/src/lib.rs", "mod one; mod two; use one::A;"), "crates/a/src/one.rs");
        let two = ("crates/a/src/two.rs", "use crate::one::A;");
        assert_eq!(largest(&[lib, (one, "use std::fmt;"), two]), 0);
        assert_eq!(largest(&[lib, (one, "use crate::{x::Y, two::{self, B as C}};"), two]), 2);
        assert_eq!(largest(&[lib, (one, "fn f() -> super::two::B {}"), two]), 2);
        assert_eq!(largest(&[lib, (one, "// crate::two::B\n#[cfg(test)]\nmod tests { use crate::two::B; }"), two]), 0);
    }

    #[test]
    fn a_module_below_another_one_counts_as_a_module() {
        let parent = "crates/a/src/one.rs";
        let child = ("crates/a/src/one/below.rs", "use super::A;");
        assert_eq!(largest(&[(parent, "mod below;"), child]), 0, "it is declared, not named");
        assert_eq!(largest(&[(parent, "mod below;\npub use below::B;"), child]), 2);
        let far = ("crates/a/src/two/mod.rs", "use crate::one::below::B;");
        assert_eq!(largest(&[(parent, "mod below;\nuse crate::two::C;"), child, far]), 3);
        let test = ("crates/a/src/one/tests.rs", "use super::A; use crate::two::C;");
        assert_eq!(largest(&[(parent, "mod below;"), child, far, test]), 0);
    }
}
