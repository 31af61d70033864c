//! iSER by RDMA adapters: the guest has two in software, siw (iWARP over TCP) and rxe (RoCE v2).

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::LIMIT;
use crate::harness::{AUTHORITY, GUEST_LINKS, Guest, Server, World, pattern, run_ok};

const MIB: usize = 16;
/// A whole round takes two minutes on a machine that has other things to do.
const WHOLE_LIMIT: Duration = Duration::from_secs(400);
/// Enough for a file system.
const DISK_MIB: &str = "96";

/// What a link of the guest gets besides.
const ADDRESS_V6: &str = "fd53:616e:7769::2";

const DISK: &str = "iqn.2026-11.org.sanwire:disk";
const LINUX_TARGET: &str = "iqn.2003-01.org.linux-iscsi.guest:disk";

#[test]
#[ignore = "boots a Linux guest"]
fn iser_goes_by_rdma_adapters() {
    let test = "iser_goes_by_rdma_adapters";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let Some(mut guest) = Guest::boot(&world, test) else { return };
    server_and_client_go_by_adapters(&mut guest);
    an_adapter_at_one_end_and_iwarp_of_our_own_at_the_other_understand_each_other(&world, &mut guest);
    initiator_and_target_of_linux_go_by_the_same_adapter(&mut guest);
}

fn server_and_client_go_by_adapters(guest: &mut Guest) {
    let [link, _] = GUEST_LINKS;
    // One of them by a user who may lock little memory, and one by IPv6.
    for (job, kind, address) in [("whole-of-somebody", "rxe", link.guest), ("whole", "siw", ADDRESS_V6)] {
        guest.run("rdma-sanwire", &[job, kind, address, &MIB.to_string()], WHOLE_LIMIT);
        guest.run("no-warnings", &[], LIMIT);
    }
    guest.run("rdma-sanwire", &["crowd", "siw", ADDRESS_V6, "16"], LIMIT);
    guest.run("rdma-sanwire", &["absence", "siw", ADDRESS_V6], LIMIT);
    guest.run("rdma-sanwire", &["silence", link.server], LIMIT);
    guest.run("no-warnings", &[], LIMIT);
}

/// siw speaks what `sanwire_iwarp` does, so each end can be by an adapter alone.
fn an_adapter_at_one_end_and_iwarp_of_our_own_at_the_other_understand_each_other(world: &World, guest: &mut Guest) {
    let [link, _] = GUEST_LINKS;
    let mib = MIB.to_string();

    guest.run("rdma-sanwire", &["serve", "siw", link.guest, &mib], LIMIT);
    let [image, back] = ["image", "back"].map(|name| world.scratch.path(name));
    let content = pattern(1, MIB << 20);
    fs::write(&image, &content).expect("an image");
    let url = format!("iser://{}:3270/{AUTHORITY}:disk/0", link.guest);
    let sanwire = |arguments: &[&str]| {
        let mut sanwire = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        let state = world.state("client");
        sanwire.args(arguments).env("XDG_STATE_HOME", &state).env("XDG_CONFIG_HOME", &state);
        run_ok(sanwire, LIMIT)
    };
    sanwire(&["cp", "--overwrite", "--verify", &world.scratch.text("image"), &url]);
    sanwire(&["cp", &url, &world.scratch.text("back")]);
    assert!(fs::read(&back).expect("a copy") == content, "what was read is what was written");
    let mut sum = Command::new("b2sum");
    sum.arg(&image);
    let sum = run_ok(sum, LIMIT);
    let said = guest.run("rdma-sanwire", &["end"], LIMIT);
    assert!(sum.starts_with(said.lines().last().expect("a sum")), "{said}");

    let disk = format!("disk=file:{},size={MIB}M", world.scratch.path("disk.img").display());
    let wire = format!("iser:{}", link.server);
    let mut server = Server::start_alone(world, &[&disk], &["--wire", &wire, "--allow", "any"]);
    let url = format!("iser://{}/{AUTHORITY}:disk/0", link.server);
    guest.run("rdma-sanwire", &["copy", "siw", &url, &mib], LIMIT);
    guest.run("no-warnings", &[], LIMIT);
    assert!(server.stop().success(), "{}", server.log());
}

/// All of it within the guest: the kernel uses the same adapter as the program.
fn initiator_and_target_of_linux_go_by_the_same_adapter(guest: &mut Guest) {
    let [link, _] = GUEST_LINKS;
    guest.run("rdma-sanwire", &["serve", "siw", link.guest, DISK_MIB], LIMIT);
    let portal = format!("{}:3270", link.guest);
    guest.run("iser-login", &[&portal, DISK], LIMIT);
    let device = format!("/dev/disk/by-path/ip-{portal}-iscsi-{DISK}-lun-0");
    guest.run("filesystem", &["ext4", &device], LIMIT);
    let in_guest = guest.run("sum", &[&device], LIMIT);
    guest.run("logout", &[&portal, DISK], LIMIT);
    let said = guest.run("rdma-sanwire", &["end"], LIMIT);
    assert_eq!(said.lines().last(), in_guest.lines().last(), "what the kernel reads is what is stored");

    guest.run("lio-iser", &[link.guest, LINUX_TARGET, &MIB.to_string()], LIMIT);
    let url = format!("iser://{}/{LINUX_TARGET}/0", link.guest);
    guest.run("rdma-sanwire", &["copy", "siw", &url, &MIB.to_string()], LIMIT);
}
