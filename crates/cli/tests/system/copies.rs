//! `sanwire cp`: both ways, sparse, going on after an interruption.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use crate::harness::{Process, Server, Wire, World, pattern, run_ok, wait_until};

const PATIENCE: Duration = Duration::from_secs(120);
const IMAGE_BYTES: u64 = 256 << 20;
const PART_BYTES: usize = 8 << 20;

#[test]
fn images_are_copied_both_ways_and_stay_sparse() {
    let Some(world) = World::new("images_are_copied_both_ways_and_stay_sparse", 1500, &[]) else { return };
    let volume = format!("disk=file:{},size=256M", world.scratch.text("disk.img"));
    let mut server = Server::start_for(&world, Wire::Iscsi, &[&volume]);
    let (image, back) = (world.scratch.path("image.raw"), world.scratch.path("back.raw"));
    make_image(&image);
    for wire in [Wire::Ethernet, Wire::Ip, Wire::Iscsi] {
        let url = wire.url("disk");
        run_ok(world.sanwire(&["cp", "--restart", &image.display().to_string(), &url]), PATIENCE);
        run_ok(world.sanwire(&["cp", "--restart", &url, &back.display().to_string()]), PATIENCE);
        assert!(same(&image, &back), "the copy over {wire:?} differs");
        let used_bytes = fs::metadata(&back).expect("the copy").blocks() * 512;
        assert!(used_bytes < 2 * 3 * PART_BYTES as u64, "{used_bytes} bytes are no longer sparse");
        fs::remove_file(&back).expect("the copy can be removed");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_copy_that_was_killed_goes_on() {
    let Some(world) = World::new("a_copy_that_was_killed_goes_on", 9000, &[]) else { return };
    // Slow enough to be caught in the middle.
    let volume = format!("disk=file:{},size=64M,delay=write:250ms", world.scratch.text("disk.img"));
    let mut server = Server::start(&world, &[&volume]);
    let image = world.scratch.path("image.raw");
    fs::write(&image, pattern(3, 64 << 20)).expect("an image");
    let (source, url) = (image.display().to_string(), Wire::Ethernet.url("disk"));
    let arguments = ["cp", "--depth", "4", &source, &url];
    let mut first = Process::spawn("cp", world.sanwire(&arguments), world.scratch.path("cp.log"));
    let journals = world.state("client").join("sanwire/cp");
    wait_until("the copy has got somewhere", PATIENCE, || {
        assert!(first.is_alive(), "it was too fast: {}", first.log());
        fs::read_dir(&journals).is_ok_and(|mut entries| entries.next().is_some())
    });
    first.kill();
    let told = run_ok(world.sanwire(&arguments), PATIENCE);
    assert!(told.contains("were there from an interrupted copy"), "{told}");
    assert!(same(&image, &world.scratch.path("disk.img")), "the copy differs");
    assert!(server.stop().success(), "{}", server.log());
}

/// Three parts of data in a sparse file.
fn make_image(path: &Path) {
    let file = File::create(path).expect("an image");
    file.set_len(IMAGE_BYTES).expect("a length");
    for (seed, offset_bytes) in [(1, 0), (2, 100 << 20), (3, IMAGE_BYTES - PART_BYTES as u64)] {
        file.write_all_at(&pattern(seed, PART_BYTES), offset_bytes).expect("a part");
    }
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("an image") == fs::read(b).expect("its copy")
}
