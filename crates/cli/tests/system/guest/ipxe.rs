//! A machine without a disk: iPXE, as it is in network cards, boots Linux from an AoE target.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{GUEST_LINKS, Process, Server, World, guest_files, is_installed, run_ok, skip};

const LIMIT: Duration = Duration::from_secs(30);
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// As Debian's package `ipxe` has it.
const IPXE: &str = "/usr/lib/ipxe/ipxe.lkrn";
/// It cannot boot disks of less than a cylinder (8 MiB).
const IMAGE_BYTES: u64 = 64 << 20;

#[test]
#[ignore = "emulates a machine"]
fn a_machine_without_a_disk_boots_linux_from_an_aoe_target() {
    let test = "a_machine_without_a_disk_boots_linux_from_an_aoe_target";
    if let Some(missing) = ["syslinux", "mkfs.vfat", "mcopy"].into_iter().find(|tool| !is_installed(tool)) {
        return skip(test, &format!("the program {missing} is not installed"));
    }
    if !Path::new(IPXE).exists() {
        return skip(test, &format!("there is no {IPXE}"));
    }
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let Some(files) = guest_files(test) else { return };
    let image = bootable_image(&world, &files.join("vmlinuz"));
    let [link, _] = GUEST_LINKS;
    world.add_tap(link.interface, link.server);
    let volume = format!("boot=file:{},readonly,shelf=7,slot=3", image.display());
    let wire = format!("aoe:{}", link.interface);
    let mut server = Server::start_with(&world, &[&volume], &["--allow", "any", "--wire", &wire]);
    let network = format!("tap,id=wire,ifname={},script=no,downscript=no", link.interface);
    let mut machine = world.on_server("qemu-system-x86_64");
    machine.args(["-accel", "tcg", "-m", "512", "-nographic", "-no-reboot", "-netdev", &network]);
    machine.args(["-device", "virtio-net-pci,netdev=wire,romfile="]);
    machine.args(["-kernel", IPXE, "-append", "ifopen net0 && sanboot aoe:e7.3"]);
    let mut console = Process::spawn("the machine", machine, world.scratch.path("console.log"));
    console.wait_for("Linux version", BOOT_LIMIT);
    console.kill();
    assert!(server.stop().success(), "{}", server.log());
}

/// A FAT file system with a boot loader and this kernel, which tells of its start on the serial port.
fn bootable_image(world: &World, kernel: &Path) -> PathBuf {
    let image = world.scratch.path("boot.img");
    let file = fs::File::create(&image).expect("an image");
    file.set_len(IMAGE_BYTES).expect("its length");
    let settings = world.scratch.path("syslinux.cfg");
    let text = "SERIAL 0\nDEFAULT linux\nLABEL linux\nKERNEL vmlinuz\nAPPEND console=ttyS0 panic=-1\n";
    fs::write(&settings, text).expect("the settings of the boot loader");
    let tool = |name: &str, arguments: &[&Path]| {
        let mut command = Command::new(name);
        command.args(arguments);
        run_ok(command, LIMIT)
    };
    tool("mkfs.vfat", &[&image]);
    tool("syslinux", &[Path::new("--install"), &image]);
    tool("mcopy", &[Path::new("-i"), &image, &settings, Path::new("::syslinux.cfg")]);
    tool("mcopy", &[Path::new("-i"), &image, kernel, Path::new("::vmlinuz")]);
    image
}
