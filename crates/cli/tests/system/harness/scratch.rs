//! A directory that goes away with its test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::SERVER_NAME;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory of this test alone.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// What no other test of any process has, for names.
    pub label: String,
}

impl Scratch {
    /// Makes it.
    pub fn new() -> Scratch {
        let label = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("system-{label}"));
        fs::create_dir_all(&path).expect("a directory for the test");
        Scratch { path, label }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file in it that only its owner reads; gives its path.
    pub fn secret(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        fs::write(&path, content).expect("the secret is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("only its owner reads it");
        self.text(name)
    }

    /// The audit log of a server of this host.
    pub fn audit_log(&self) -> PathBuf {
        self.path(&format!("server-state/sanwire/audit-{SERVER_NAME}.jsonl"))
    }

    /// A path in it, as text for command lines.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What a failed test left mounted here must not be removed from the inside.
        let _ = fs::remove_dir_all(&self.path);
    }
}
