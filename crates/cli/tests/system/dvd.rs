//! Derived virtual devices: parts of a volume for others, over every wire, and their end.

mod file;
mod life;
mod parts;
mod principals;
mod program;
mod tree;

pub(crate) use program::ONE_WRITE;

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::harness::{
    AUTHORITY, Attached, Filesystem, Ran, SERVER_ADDRESS, Scratch, Server, World, pattern, run, run_ok,
};

const TIMEOUT: Duration = Duration::from_secs(60);

const MIB: usize = 1 << 20;

/// Where the volumes of this server are on each of its wires; AoE is asked for by numbers, and guards nothing.
fn urls(world: &World, volume: &str) -> [(&'static str, String); 7] {
    let interface = world.interface();
    [
        ("hs+eth", format!("hs+eth://{interface}/box/{volume}")),
        ("hs+ip", format!("hs+ip://{SERVER_ADDRESS}/{volume}")),
        ("hdsp", format!("hdsp://{interface}/box/{volume}")),
        ("visa", format!("visa://{SERVER_ADDRESS}/{volume}")),
        ("visa+tcp", format!("visa+tcp://{SERVER_ADDRESS}/{volume}")),
        ("iscsi", format!("iscsi://{SERVER_ADDRESS}/{AUTHORITY}:{volume}/0")),
        ("iser", format!("iser://{SERVER_ADDRESS}/{AUTHORITY}:{volume}/0")),
    ]
}

/// Serves volumes on all of these wires to everybody.
fn serve(world: &World, volumes: &[&str], options: &[&str]) -> Server {
    let (hdsp, visa) = (format!("hdsp:{}", world.interface()), format!("visa:{SERVER_ADDRESS}"));
    // Of one port.
    let (iscsi, iser) = (format!("iscsi:{SERVER_ADDRESS}"), format!("iser:{SERVER_ADDRESS}"));
    let wires = ["--wire", &hdsp, "--wire", &visa, "--wire", &iscsi, "--wire", &iser, "--allow", "any"];
    Server::start_with(world, volumes, &[&wires[..], options].concat())
}

/// `sanwire dvd` at the server that listens at `c.sock`.
fn dvd(scratch: &Scratch, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.arg("dvd").args(arguments).args(["--socket", &scratch.text("c.sock")]).env_remove("SANWIRE_LOG");
    run(command, TIMEOUT)
}

#[track_caller]
fn dvd_ok(scratch: &Scratch, arguments: &[&str]) -> String {
    let ran = dvd(scratch, arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

#[test]
fn a_derived_volume_is_a_part_of_its_parent_on_every_wire() {
    let test = "a_derived_volume_is_a_part_of_its_parent_on_every_wire";
    let Some(world) = World::new(test, 9000, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let control = world.scratch.text("c.sock");
    let volumes = [
        "part=dvd:cam,region=2M+1M,region=512K+512K,principal=any",
        "cam=dvd:disk,region=4M+2M,region=1M+1M,principal=any",
        "fixed=dvd:disk,region=4M+2M,allow-ops=read,principal=any",
        &format!("disk=file:{},size=16M", store.display()),
    ];
    let mut server = serve(&world, &volumes, &["--control", &control]);
    let (image, back) = (world.scratch.path("image"), world.scratch.path("back"));
    let mut expected = vec![0; 16 * MIB];
    for (seed, (wire, url)) in (1..).zip(urls(&world, "cam")) {
        let content = pattern(seed, 3 * MIB);
        fs::write(&image, &content).expect("an image");
        run_ok(world.sanwire(&["cp", "--overwrite", &image.display().to_string(), &url]), TIMEOUT);
        expected[4 * MIB..6 * MIB].copy_from_slice(&content[..2 * MIB]);
        expected[MIB..2 * MIB].copy_from_slice(&content[2 * MIB..]);
        assert!(fs::read(&store).expect("the store") == expected, "over {wire}: its regions, and nothing else");
    }
    for ((wire, part), (_, fixed)) in urls(&world, "part").into_iter().zip(urls(&world, "fixed")) {
        drop(fs::remove_file(&back));
        run_ok(world.sanwire(&["cp", &part, &back.display().to_string()]), TIMEOUT);
        let read = fs::read(&back).expect("a copy");
        let of_cam = [&expected[MIB..2 * MIB], &expected[4 * MIB + MIB / 2..5 * MIB]].concat();
        assert!(read == of_cam, "over {wire}: a part of a part");
        let refused = run(world.sanwire(&["cp", "--overwrite", &image.display().to_string(), &fixed]), TIMEOUT);
        assert_eq!(refused.code, Some(1), "over {wire}: {}", refused.stdout);
    }
    assert!(fs::read(&store).expect("the store") == expected, "what may only be read was not written");
    let told = dvd_ok(&world.scratch, &["show", "cam"]);
    assert!(told.contains("4M+2M 1M+1M") && told.contains("client ") && told.contains("initiator iqn."), "{told}");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_file_system_lives_in_three_regions() {
    let tools = ["mkfs.ext4", "fsck.ext4", "mount", "sync"];
    let Some(world) = World::new("a_file_system_lives_in_three_regions", 9000, &tools) else { return };
    let store = world.scratch.path("disk.img");
    let rest = pattern(7, 64 * MIB);
    fs::write(&store, &rest).expect("a disk that is full");
    let volumes = [
        &format!("disk=file:{}", store.display())[..],
        "cam=dvd:disk,region=40M+12M,region=4M+8M,region=20M+12M,principal=any",
    ];
    let mut server = serve(&world, &volumes, &[]);
    let url = format!("hs+ip://{SERVER_ADDRESS}/cam");
    let attached = Attached::device(&world, &url);
    Filesystem::Ext4.make(&attached.place);
    let filler = Filesystem::Ext4.open(&attached.place, &world.scratch.path("mnt"));
    (0..12).for_each(|index| filler.write(index));
    filler.close();
    Filesystem::Ext4.check(&attached.place);
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
    let written = fs::read(&store).expect("the store");
    let mut from = 0;
    for (start, end) in [(4, 12), (20, 32), (40, 52), (64, 64)] {
        assert!(
            written[from * MIB..start * MIB] == rest[from * MIB..start * MIB],
            "before {start} MiB nothing changed"
        );
        from = end;
    }
    assert!(written[4 * MIB..12 * MIB] != rest[4 * MIB..12 * MIB], "what is derived was written");
}
