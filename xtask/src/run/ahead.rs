//! What is made ready while the compiler works, since it mostly waits for a network: packages, and then the Linux guest.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};

use super::{Ended, keep, steps};

pub struct Ahead {
    packages: Receiver<Ended>,
    work: Option<JoinHandle<()>>,
}

impl Ahead {
    pub fn begin(root: &Path, with_packages: bool) -> Ahead {
        let root = root.to_owned();
        let (sender, packages) = mpsc::channel();
        let is_root = steps::is_root();
        let work = move || {
            if with_packages {
                // Whoever began all this has an end of it.
                let _ = sender.send(keep(steps::packages(&root), &root));
            }
            drop(sender);
            if is_root {
                build_guest(&root);
            }
        };
        // Who is not root may be asked for a password.
        if with_packages && !is_root {
            work();
            return Ahead { packages, work: None };
        }
        Ahead { packages, work: Some(thread::spawn(work)) }
    }

    /// Waits until the packages are there, and gives what was said.
    pub fn packages(&self) -> impl Iterator<Item = Ended> {
        self.packages.iter()
    }

    pub fn end(self) {
        if let Some(work) = self.work {
            // The step of the guest has waited for it, and told of its faults.
            let _ = work.join();
        }
    }
}

/// Its own step waits for this build, or builds what it could not, and says why that fails; so nothing is said here.
fn build_guest(root: &Path) {
    let mut build: Command = steps::guest_build(root);
    let _ = build.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}
