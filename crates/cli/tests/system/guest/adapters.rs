//! RDMA adapters in software, of each kind: the tests of `crates/verbs`, our server and client, and the initiator and the target of Linux,
//! all within the guest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{LIMIT, is_long};
use crate::harness::{GUEST_LINKS, Guest, World, run_ok};

const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// XFS takes no smaller disks than 300 MiB.
const DISK_MIB: &str = "320";
const COPY_MIB: &str = "16";

const DISK: &str = "iqn.2026-11.org.sanwire:disk";
const STRICT: &str = "iqn.2026-11.org.sanwire:strict";
const LINUX_TARGET: &str = "iqn.2003-01.org.linux-iscsi.guest:disk";

#[test]
#[ignore = "boots a Linux guest"]
fn programs_and_the_kernel_go_by_adapters_of_each_kind() {
    let test = "programs_and_the_kernel_go_by_adapters_of_each_kind";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let Some(mut guest) = Guest::boot(&world, test) else { return };
    let [link, _] = GUEST_LINKS;
    let portal = format!("{}:3270", link.guest);
    let url = format!("iser://{portal}/{DISK}/0");
    let tests = tests_of_verbs();
    for kind in ["siw", "rxe"] {
        guest.run("rdma-adapter", &[kind, link.guest, &tests], LIMIT);
        guest.run("rdma-server", &["serve", kind, link.guest, DISK_MIB], LIMIT);
        attach(&mut guest, kind, &url);
        guest.run("no-warnings", &[], LIMIT);
        // By siw a file system of Linux is in rdma.rs.
        if is_long() || kind == "rxe" {
            use_initiator_of_linux(&mut guest, &portal);
        }
        guest.run("rdma-server", &["end"], LIMIT);
    }
    guest.run("lio-iser", &[link.guest, LINUX_TARGET, COPY_MIB], LIMIT);
    let url = format!("iser://{}/{LINUX_TARGET}/0", link.guest);
    guest.run("rdma-sanwire", &["copy", "rxe", &url, COPY_MIB], LIMIT);
}

/// Our client tells of the volume, and where there is time for it attaches it, keeps a file system on it, and is idle.
fn attach(guest: &mut Guest, kind: &str, url: &str) {
    guest.run("rdma-info", &[kind, url], LIMIT);
    let jobs: &[&[&str]] = match kind {
        _ if is_long() => &[&["filesystem", "xfs"], &["fio-verify"], &["idle"]],
        "siw" => &[&["filesystem", "ext4"], &["idle"]],
        _ => &[],
    };
    for job in jobs {
        guest.run("sanwire", &[&["--iser-path=rdma", url][..], job].concat(), LIMIT);
    }
}

/// The server is killed under load and comes again. Links are not cut: siw reaches an address of its own host without them, and over rxe
/// the initiator of Linux 6.12 waits for ever for the end of its own connection then (iser_release_work). Whether the kernel warned is not
/// asked here: it does of that initiator (iser.rs says where).
fn use_initiator_of_linux(guest: &mut Guest, portal: &str) {
    guest.run("iser-refused", &[portal, STRICT], LIMIT);
    guest.run("iser-login", &[portal, DISK], LIMIT);
    let device = format!("/dev/disk/by-path/ip-{portal}-iscsi-{DISK}-lun-0");
    if is_long() {
        for kind in ["xfs", "ext4"] {
            guest.run("filesystem", &[kind, &device], LIMIT);
        }
        guest.run("fio-verify", &[&device], LIMIT);
    }
    guest.run("restart", &["start", &device, "24m"], LIMIT);
    guest.run("rdma-server", &["kill"], LIMIT);
    guest.run("rdma-server", &["again"], LIMIT);
    guest.run("restart", &["finish"], LIMIT);
    guest.run("logout", &[portal, DISK], LIMIT);
}

/// Where the guest has the program of the tests of `crates/verbs`, which `cargo xtask test` has built and names.
fn tests_of_verbs() -> String {
    let program = std::env::var_os("SANWIRE_ADAPTER_TESTS").map_or_else(build_tests_of_verbs, PathBuf::from);
    // The guest has the directory of our program, with all that is below it.
    let shared = Path::new(env!("CARGO_BIN_EXE_sanwire")).parent().expect("the directory of the program");
    let place = program.strip_prefix(shared).expect("they are built where the program is");
    format!("/host/{}", place.display())
}

fn build_tests_of_verbs() -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--workspace", "--test", "adapter", "--no-run", "--message-format", "json"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    let said = run_ok(cargo, BUILD_LIMIT);
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == "adapter");
    let program = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.expect("the tests of crates/verbs are built")
}
