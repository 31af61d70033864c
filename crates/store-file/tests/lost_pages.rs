//! What the kernel could not write of a file before a server opens it: the first flush tells of it, whatever the server has made
//! stable of the file meanwhile.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use sanwire_store::{Acceptance, Expectation, Request};
use sanwire_store_file::{FileOptions, FileStore, blocking};

const FILE_BYTES: usize = 16 << 20;

/// A file system on a device that pretends to have more room than there is.
struct Lossy {
    directory: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", said.trim())) }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

impl Lossy {
    fn new() -> Result<Lossy, String> {
        let own = Lossy { directory: std::env::temp_dir().join(format!("sanwire-lost-pages-{}", std::process::id())) };
        let (room, mounted, device) = (own.room(), own.mounted(), own.room().join("device"));
        [&room, &mounted].into_iter().try_for_each(fs::create_dir_all).map_err(|error| error.to_string())?;
        run("mount", &["-t", "tmpfs", "-o", "size=4m", "none", text(&room)])?;
        File::create(&device).and_then(|file| file.set_len(64 << 20)).map_err(|error| error.to_string())?;
        // Without a journal, which the lack of room would end, and with all that is no file's data written already.
        let options = ["-q", "-F", "-N", "64", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"];
        run("mkfs.ext4", &[&options[..], &[text(&device)]].concat())?;
        run("mount", &["-o", "loop", text(&device), text(&mounted)])?;
        Ok(own)
    }

    fn room(&self) -> PathBuf {
        self.directory.join("room")
    }

    fn mounted(&self) -> PathBuf {
        self.directory.join("mounted")
    }

    /// A file of which the kernel has lost what was written, and has told nobody. It stays known as long as it is open.
    fn lose(&self, name: &str) -> (PathBuf, File) {
        let path = self.mounted().join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![1; FILE_BYTES]).unwrap();
        // That writes what the file system has, and tells nobody of a file.
        let _ = rustix::fs::syncfs(File::open(self.mounted()).unwrap());
        (path, file)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        for path in [self.mounted(), self.room()] {
            let _ = run("umount", &["--lazy", text(&path)]);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn flush(store: &FileStore) -> bool {
    blocking::run(store, Request::Flush).is_ok()
}

/// As after the end of a server of which the file had no mark yet.
#[test]
fn a_file_that_is_marked_when_it_is_opened_still_tells_with_its_first_flush_what_was_lost_before() {
    let lossy = match Lossy::new() {
        Ok(lossy) => lossy,
        Err(reason) => return sanwire_testing::skip(&sanwire_testing::this_test(), &reason),
    };
    for direct in [false, true] {
        let (path, _known) = lossy.lose(if direct { "direct" } else { "cached" });
        let expected = Expectation {
            name: "a",
            known: None,
            known_below: None,
            is_kept: true,
            acceptance: Acceptance::Known,
            fresh: [1; 16],
            fallback: [2; 16],
        };
        let options = FileOptions { direct, ..FileOptions::default() };
        let (store, _) = FileStore::open_volume(&path, &options, &expected).unwrap();
        let marks = rustix::fs::getxattr(&path, "user.sanwire.volume", &mut [0; 64]);
        assert!(marks.is_ok(), "it was to be marked: {marks:?}");
        assert_eq!([(); 2].map(|()| flush(&store)), [false, true], "direct: {direct}");
    }
}
