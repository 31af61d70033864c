//! ext4, XFS and FAT on attached volumes: what was written is there after the volume was detached and attached again.

use crate::harness::{Attached, Filesystem, Server, Wire, World};

const FILES: u64 = 48;

#[test]
fn filesystems_on_ethernet_with_mtu_1500() {
    hold_files("filesystems_on_ethernet_with_mtu_1500", Wire::Ethernet, 1500);
}

#[test]
fn filesystems_on_ethernet_with_mtu_9000() {
    hold_files("filesystems_on_ethernet_with_mtu_9000", Wire::Ethernet, 9000);
}

#[test]
fn filesystems_over_ip_with_mtu_1500() {
    hold_files("filesystems_over_ip_with_mtu_1500", Wire::Ip, 1500);
}

#[test]
fn filesystems_over_ip_with_mtu_9000() {
    hold_files("filesystems_over_ip_with_mtu_9000", Wire::Ip, 9000);
}

#[test]
fn filesystems_over_iscsi_with_mtu_9000() {
    hold_files("filesystems_over_iscsi_with_mtu_9000", Wire::Iscsi, 9000);
}

fn hold_files(test: &str, wire: Wire, mtu: u32) {
    let Some(world) = World::new(test, mtu, &Filesystem::TOOLS) else { return };
    let volumes = Filesystem::ALL.map(|kind| volume(&world, kind));
    let mut server = Server::start_for(&world, wire, &volumes.each_ref().map(String::as_str));
    let directory = world.scratch.path("mnt");
    for kind in Filesystem::ALL {
        let attached = Attached::device(&world, &wire.url(kind.volume()));
        kind.make(&attached.place);
        let filler = kind.open(&attached.place, &directory);
        (0..FILES).for_each(|index| filler.write(index));
        filler.close();
        attached.detach(&world);

        let attached = Attached::device(&world, &wire.url(kind.volume()));
        kind.check(&attached.place);
        let filler = kind.open(&attached.place, &directory);
        filler.verify(FILES);
        filler.close();
        attached.detach(&world);
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// A sparse file, large enough for XFS, with large blocks under one of the file systems.
pub fn volume(world: &World, kind: Filesystem) -> String {
    let block_bytes = if kind == Filesystem::Xfs { 4096 } else { 512 };
    let name = kind.volume();
    format!("{name}=file:{},size=320M,block={block_bytes}", world.scratch.text(&format!("{name}.img")))
}
