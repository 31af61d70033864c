//! No file may speak of the place where it was written.

use super::Finding;
use super::tree::TextFile;

/// In two parts each, so that this file does not break the rule.
const FORBIDDEN: [(&str, &str); 2] = [("/wo", "rk/"), ("../sha", "red")];

/// One finding for each line with such a path.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let words = FORBIDDEN.map(|(start, end)| format!("{start}{end}"));
    let lines = file.text.lines().enumerate();
    let found = lines.filter_map(|(index, line)| Some((index + 1, words.iter().find(|word| names(line, word))?)));
    found
        .map(|(line, word)| Finding::new(&file.path, line, format!("{word} is a path of one workplace: leave it out")))
        .collect()
}

/// Whether the path stands in the line by itself and not as the end of a longer one.
fn names(line: &str, word: &str) -> bool {
    let continues = |before: char| before.is_alphanumeric() || "._-}])".contains(before);
    line.match_indices(word).any(|(start, _)| !line[..start].ends_with(continues))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: String) -> Vec<usize> {
        check(&TextFile { path: "a.md".into(), text }).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn paths_of_a_workplace_are_found() {
        assert_eq!(lines(format!("ok\nsee {}{}x", "../sha", "red/")), [2]);
        assert_eq!(lines(format!("{}{}main", "/wo", "rk/")), [1]);
        assert_eq!(lines(format!("fuzz{}{}TARGET", "/wo", "rk/")), Vec::<usize>::new(), "a directory of ours");
        assert_eq!(lines("its work / shared with others; homework/a".into()), Vec::<usize>::new());
    }
}
