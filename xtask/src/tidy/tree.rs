//! The files of the repository.

use std::fs;
use std::path::Path;

/// Directories that are built, not written. By their whole paths: one of such a name elsewhere is ours.
const SKIPPED: [&str; 6] = ["target", ".git", "fuzz/target", "fuzz/corpus", "fuzz/artifacts", "fuzz/work"];
/// What text files of this repository are called.
const EXTENSIONS: [&str; 9] = ["rs", "md", "toml", "sh", "lua", "yml", "json", "service", "conf"];
const NAMES: [&str; 2] = ["Makefile", "run"];

/// A text file.
#[derive(Clone, Debug)]
pub(super) struct TextFile {
    /// Below the root, with `/` between.
    pub(super) path: String,
    pub(super) text: String,
}

/// All text files, by their paths.
///
/// # Errors
/// When a directory or file cannot be read.
pub(super) fn read(root: &Path) -> Result<Vec<TextFile>, String> {
    let mut files = vec![];
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(directory: &Path, prefix: &str, files: &mut Vec<TextFile>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if kind.is_dir() && !SKIPPED.contains(&path.as_str()) {
            walk(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() && is_text(&name) {
            // A file that somebody removes meanwhile is none of ours.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                files.push(TextFile { path, text });
            }
        }
    }
    Ok(())
}

fn is_text(name: &str) -> bool {
    NAMES.contains(&name) || name.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_built_is_left_out() {
        let root = std::env::temp_dir().join(format!("sanwire-tidy-{}", std::process::id()));
        for path in ["target/a.rs", "fuzz/target/a.rs", "crates/server/src/a.rs", "crates/x/tests/work/a.rs"] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let paths: Vec<String> = read(&root).unwrap().into_iter().map(|file| file.path).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(paths, ["crates/server/src/a.rs", "crates/x/tests/work/a.rs"]);
    }
}
