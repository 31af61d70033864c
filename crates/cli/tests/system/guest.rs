//! Against a Linux host with a stock kernel, emulated: `tests/guest/README.md` says how it is made.
//!
//! These tests take long, so they are run by `cargo xtask test`, or by `cargo test -p sanwire --test system -- --ignored guest::`.

mod adapters;
mod aoe;
mod ipxe;
mod iscsi;
mod iser;
mod isolation;
mod lio;
mod optical;
mod package;
mod rdma;
mod zero_copy;

use std::time::Duration;

use crate::harness::{GUEST_LINKS, Guest, SERVER_NAME, Server, World};

const LIMIT: Duration = Duration::from_secs(300);

/// Whether what other jobs show already is tried here too: a guest takes long.
fn is_long() -> bool {
    std::env::var_os("SANWIRE_TIMES").is_some()
}

#[test]
#[ignore = "boots a Linux guest"]
fn another_kernel_attaches_volumes_over_both_wires_and_has_a_driver_for_a_third() {
    let test = "another_kernel_attaches_volumes_over_both_wires_and_has_a_driver_for_a_third";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let Some(mut guest) = Guest::boot(&world, test) else { return };
    let [ethernet, ip] = GUEST_LINKS;
    let [eth, udp] = [format!("hs-eth:{}", ethernet.interface), format!("hs-ip:{}", ip.server)];
    let aoe = GUEST_LINKS.map(|link| format!("aoe:{}", link.interface));
    let volume = format!("disk=file:{},size=128M", world.scratch.text("disk.img"));
    let for_aoe = format!("beside=file:{},{}", world.scratch.text("aoe.img"), aoe::VOLUME);
    let second = format!("second=file:{},{}", world.scratch.text("second.img"), aoe::SECOND_VOLUME);
    let options = ["--allow", "any", "--wire", &eth, "--wire", &udp, "--wire", &aoe[0], "--wire", &aoe[1]];
    let mut server = Server::start_with(&world, &[&volume, &for_aoe, &second], &options);
    guest.run("sanwire", &[&format!("hs+eth://eth0/{SERVER_NAME}/disk"), "filesystem", "ext4"], LIMIT);
    guest.run("sanwire", &[&format!("hs+ip://{}/disk", ip.server), "fio-verify"], LIMIT);
    aoe::the_driver_of_linux_finds_a_target_and_writes_on_when_the_server_is_back(&world, &mut guest, &mut server);
    aoe::the_driver_has_two_shelves_over_two_links_and_writes_on_when_one_is_cut(&world, &mut guest);
    assert!(server.stop().success(), "{}", server.log());
}
