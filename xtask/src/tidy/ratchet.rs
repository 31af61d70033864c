//! Limits on lengths, with today's exceptions in `xtask/ratchet.toml`, and on circles of modules: they may shrink, never grow.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::Finding;
use super::lengths::Lengths;

const PATH: &str = "xtask/ratchet.toml";
const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;
const HEAD: &str = "\
# Files over 400 lines and functions over 70, tests left out, and how many modules of a crate name each other in one circle. An
# entry may be lowered or removed, never raised: `cargo xtask tidy --update` lowers them all to what is there today.
";

/// The exceptions: lengths by path, and by `path::function`. The circles of crates that are named; others may have any.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ratchet {
    files: BTreeMap<String, usize>,
    functions: BTreeMap<String, usize>,
    circles: BTreeMap<String, usize>,
}

impl Ratchet {
    /// Reads the exceptions.
    ///
    /// # Errors
    /// When the file is missing or not of the form that [`Ratchet::write`] gives it.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(root.join(PATH)).map_err(|error| format!("{PATH}: {error}"))?;
        Self::parse(&text)
    }

    /// Writes the exceptions.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, root: &Path) -> Result<(), String> {
        fs::write(root.join(PATH), self.to_text()).map_err(|error| format!("{PATH}: {error}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut ratchet = Ratchet::default();
        let mut section = None;
        for (index, line) in text.lines().enumerate() {
            let refuse =
                || format!("{PATH}:{}: expected [files], [functions], [circles] or \"PATH\" = NUMBER", index + 1);
            match line.trim() {
                "" => {}
                comment if comment.starts_with('#') => {}
                "[files]" => section = Some(&mut ratchet.files),
                "[functions]" => section = Some(&mut ratchet.functions),
                "[circles]" => section = Some(&mut ratchet.circles),
                entry => {
                    let (name, lines) = entry.split_once(" = ").ok_or_else(refuse)?;
                    let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).ok_or_else(refuse)?;
                    let lines = lines.parse().map_err(|_| refuse())?;
                    section.as_mut().ok_or_else(refuse)?.insert(name.into(), lines);
                }
            }
        }
        Ok(ratchet)
    }

    fn to_text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (section, entries) in [("files", &self.files), ("functions", &self.functions), ("circles", &self.circles)] {
            let _ = writeln!(text, "\n[{section}]");
            for (name, lines) in entries {
                let _ = writeln!(text, "\"{name}\" = {lines}");
            }
        }
        text
    }

    /// What is too long, and what could be lowered.
    pub(super) fn check(&self, lengths: &Lengths) -> Vec<Finding> {
        let mut findings = compare("file", &lengths.files, &self.files, FILE_LINES_MAX);
        findings.extend(compare("function", &lengths.functions, &self.functions, FUNCTION_LINES_MAX));
        findings
    }

    /// Which circles have grown, and which entries could be lowered.
    pub(super) fn check_circles(&self, circles: &BTreeMap<String, usize>) -> Vec<Finding> {
        let compare = |(name, limit): (&String, &usize)| {
            let modules = circles.get(name).copied().unwrap_or(0);
            let message = match modules.cmp(limit) {
                Ordering::Equal => return None,
                Ordering::Greater => format!(
                    "{modules} modules name each other in a circle, {limit} are allowed: let one of two name the other only"
                ),
                Ordering::Less => {
                    format!("the circle has shrunk to {modules} modules: lower its entry (cargo xtask tidy --update)")
                }
            };
            Some(Finding::new(name, 0, message))
        };
        self.circles.iter().filter_map(compare).collect()
    }

    /// Lowers each entry to today's length, and removes those that are no exceptions any more. Gives how many changed.
    pub(super) fn lower(&mut self, lengths: &Lengths, circles: &BTreeMap<String, usize>) -> usize {
        let before = self.circles.clone();
        for (name, limit) in &mut self.circles {
            *limit = circles.get(name).copied().unwrap_or(0).min(*limit);
        }
        lower(&mut self.files, &lengths.files, FILE_LINES_MAX)
            + lower(&mut self.functions, &lengths.functions, FUNCTION_LINES_MAX)
            + usize::from(before != self.circles)
    }
}

fn compare(
    what: &str,
    lengths: &BTreeMap<String, usize>,
    exceptions: &BTreeMap<String, usize>,
    max: usize,
) -> Vec<Finding> {
    let mut findings = vec![];
    for (name, &lines) in lengths {
        let (path, function) = name.split_once("::").map_or((name.as_str(), ""), |(path, name)| (path, name));
        let (limit, is_exception) = exceptions.get(name).map_or((max, false), |limit| (*limit, true));
        if lines > limit {
            let message =
                format!("the {what} {function} has {lines} lines, {limit} are allowed: split it by its ideas");
            findings.push(Finding::new(path, 0, message.replace("  ", " ")));
        } else if is_exception && lines < limit {
            let message = format!("{name} has shrunk to {lines} lines: lower its entry (cargo xtask tidy --update)");
            findings.push(Finding::new(PATH, 0, message));
        }
    }
    let gone = exceptions.keys().filter(|name| !lengths.contains_key(*name));
    findings.extend(
        gone.map(|name| Finding::new(PATH, 0, format!("{name} is gone: remove its entry (cargo xtask tidy --update)"))),
    );
    findings
}

fn lower(exceptions: &mut BTreeMap<String, usize>, lengths: &BTreeMap<String, usize>, max: usize) -> usize {
    let before = exceptions.clone();
    exceptions.retain(|name, limit| match lengths.get(name) {
        Some(&lines) => {
            *limit = lines.min(*limit);
            lines > max
        }
        None => false,
    });
    before.iter().filter(|(name, limit)| exceptions.get(*name) != Some(limit)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(file: usize, function: usize) -> Lengths {
        let functions = BTreeMap::from([("a.rs::f".into(), function)]);
        Lengths { files: BTreeMap::from([("a.rs".into(), file)]), functions }
    }

    fn ratchet(text: &str) -> Ratchet {
        Ratchet::parse(text).unwrap()
    }

    #[test]
    fn the_limits_hold_where_nothing_is_listed() {
        assert_eq!(Ratchet::default().check(&lengths(400, 70)), []);
        let findings = Ratchet::default().check(&lengths(401, 71));
        let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(messages[0], "a.rs: the file has 401 lines, 400 are allowed: split it by its ideas");
        assert_eq!(messages[1], "a.rs: the function f has 71 lines, 70 are allowed: split it by its ideas");
    }

    #[test]
    fn an_entry_may_not_grow_and_must_shrink_with_its_file() {
        let listed = ratchet("[files]\n\"a.rs\" = 450\n[functions]\n\"a.rs::f\" = 90\n");
        assert_eq!(listed.check(&lengths(450, 90)), []);
        assert_eq!(listed.check(&lengths(451, 91)).len(), 2);
        assert_eq!(listed.check(&lengths(449, 60)).len(), 2);
        assert_eq!(listed.check(&Lengths::default()).len(), 2, "gone");
    }

    #[test]
    fn an_update_lowers_and_never_raises() {
        let mut listed = ratchet("[files]\n\"a.rs\" = 450\n[functions]\n\"a.rs::f\" = 90\n");
        assert_eq!(listed.lower(&lengths(500, 60), &BTreeMap::new()), 1);
        assert_eq!(listed, ratchet("[files]\n\"a.rs\" = 450\n"));
        assert_eq!(listed.lower(&lengths(420, 60), &BTreeMap::new()), 1);
        assert_eq!(Ratchet::parse(&listed.to_text()), Ok(ratchet("[files]\n\"a.rs\" = 420\n")));
    }

    #[test]
    fn a_circle_may_not_grow_and_one_that_is_not_listed_may_be_any() {
        let mut listed = ratchet("[circles]\n\"crates/a\" = 5\n");
        let circles = |modules| BTreeMap::from([("crates/a".into(), modules), ("crates/b".into(), 50)]);
        assert_eq!(listed.check_circles(&circles(5)), []);
        assert!(listed.check_circles(&circles(6))[0].to_string().starts_with("crates/a: 6 modules"));
        assert_eq!(listed.check_circles(&circles(4)).len(), 1, "it must be lowered");
        assert_eq!(listed.lower(&Lengths::default(), &circles(6)), 0);
        assert_eq!(listed.lower(&Lengths::default(), &circles(4)), 1);
        assert_eq!(listed, ratchet("[circles]\n\"crates/a\" = 4\n"));
        assert_eq!(Ratchet::parse(&listed.to_text()), Ok(listed));
    }

    #[test]
    fn another_form_is_refused_with_its_line() {
        for text in ["\"a.rs\" = 1", "[files]\na.rs = 1", "[files]\n\"a.rs\" = x", "[other]"] {
            assert!(Ratchet::parse(text).unwrap_err().starts_with(PATH), "{text}");
        }
    }
}
