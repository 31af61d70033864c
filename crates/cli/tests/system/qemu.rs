//! qemu's tools on an NBD export.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Attached, Server, Wire, World, pattern, run_ok};

const TIMEOUT: Duration = Duration::from_secs(120);

#[test]
fn qemu_img_converts_and_compares() {
    let Some(world) = World::new("qemu_img_converts_and_compares", 9000, &["qemu-img"]) else { return };
    let volume = format!("disk=file:{},size=64M", world.scratch.text("disk.img"));
    let mut server = Server::start_for(&world, Wire::Iscsi, &[&volume]);
    let image = world.scratch.path("image.raw");
    let mut bytes = pattern(7, 24 << 20);
    bytes.extend(vec![0; 16 << 20]);
    bytes.extend(pattern(8, 24 << 20));
    fs::write(&image, bytes).expect("an image");
    for wire in [Wire::Ethernet, Wire::Ip, Wire::Iscsi] {
        let attached = Attached::nbd(&world, &wire.url("disk"));
        let export = attached.place.display().to_string();
        let qemu_img = |arguments: &[&str]| {
            let mut command = Command::new("qemu-img");
            command.args(arguments);
            run_ok(command, TIMEOUT)
        };
        let source = image.display().to_string();
        let told = qemu_img(&["info", "--output=json", &export]);
        assert!(told.contains("\"virtual-size\": 67108864"), "{told}");
        qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", &source, &export]);
        let told = qemu_img(&["compare", "-f", "raw", "-F", "raw", &source, &export]);
        assert!(told.contains("Images are identical"), "{told}");
        attached.detach(&world);
        assert!(fs::read(&image).expect("the image") == fs::read(world.scratch.path("disk.img")).expect("the store"));
    }
    assert!(server.stop().success(), "{}", server.log());
}
