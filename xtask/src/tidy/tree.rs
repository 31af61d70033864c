//! The files of the repository.

use std::fs;
use std::path::Path;

/// Directories that are built, not written.
const SKIPPED: [&str; 5] = ["target", ".git", "corpus", "artifacts", "work"];
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
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
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
