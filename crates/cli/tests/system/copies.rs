//! `sanwire cp`: both ways, sparse, through pipes, going on after an interruption, and never over what is there by mistake.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{
    Client, Process, Ran, SERVER_ADDRESS, Scratch, Server, Wire, World, pattern, port, run, run_ok, wait_until,
};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(120);
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
        run_ok(world.sanwire(&["cp", "--overwrite", &image.display().to_string(), &url]), TIMEOUT);
        run_ok(world.sanwire(&["cp", "--overwrite", &url, &back.display().to_string()]), TIMEOUT);
        assert!(same(&image, &back), "the copy over {wire:?} differs");
        let used_bytes = fs::metadata(&back).expect("the copy").blocks() * 512;
        assert!(used_bytes < 2 * 3 * PART_BYTES as u64, "{used_bytes} bytes are no longer sparse");
        fs::remove_file(&back).expect("the copy can be removed");
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// Begins a copy, and kills it when it has got somewhere.
fn interrupt(world: &World, arguments: &[&str]) {
    let mut copy = Process::spawn("cp", world.sanwire(arguments), world.scratch.path("cp.log"));
    let journals = world.state("client").join("sanwire/cp");
    wait_until("the copy has got somewhere", TIMEOUT, || {
        assert!(copy.is_alive(), "it was too fast: {}", copy.log());
        fs::read_dir(&journals).is_ok_and(|mut entries| entries.next().is_some())
    });
    copy.kill();
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
    interrupt(&world, &arguments);
    let told = run(world.sanwire(&arguments), TIMEOUT);
    assert!(told.code == Some(2) && told.stderr.contains("--resume goes on with it"), "{told:?}");
    let told = run(world.sanwire(&[&arguments[..], &["--resume"]].concat()), TIMEOUT);
    assert!(told.code == Some(0) && told.stderr.contains("going on at"), "{told:?}");
    assert!(told.stdout.contains("were there from an interrupted copy"), "{told:?}");
    assert!(same(&image, &world.scratch.path("disk.img")), "the copy differs");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_volume_that_changed_since_its_copy_was_interrupted_is_copied_as_it_is_now() {
    let test = "a_volume_that_changed_since_its_copy_was_interrupted_is_copied_as_it_is_now";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = Server::start(&world, &["disk=ram:64M,delay=read:240ms"]);
    let (image, part, back) = (world.scratch.path("image"), world.scratch.path("part"), world.scratch.path("back"));
    fs::write(&image, pattern(3, 64 << 20)).expect("an image");
    fs::write(&part, pattern(4, 64 << 10)).expect("a part");
    let url = Wire::Ip.url("disk");
    let text = |path: &Path| path.display().to_string();
    run_ok(world.sanwire(&["cp", &text(&image), &url]), TIMEOUT);
    let arguments = ["cp", "--depth", "4", &url, &text(&back)];
    interrupt(&world, &arguments);
    run_ok(world.sanwire(&["cp", "--overwrite", &text(&part), &url]), TIMEOUT);
    let told = run(world.sanwire(&["cp", "--resume", "--verify", &url, &text(&back)]), TIMEOUT);
    assert!(told.code == Some(0) && told.stderr.contains("compared with the source again"), "{told:?}");
    assert!(told.stdout.contains("verified"), "{told:?}");
    let mut expected = pattern(3, 64 << 20);
    expected[..64 << 10].copy_from_slice(&pattern(4, 64 << 10));
    assert!(fs::read(&back).expect("the copy") == expected, "a mixture of two states");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_volume_goes_through_a_pipe_and_over_what_is_there_only_when_told() {
    let test = "a_volume_goes_through_a_pipe_and_over_what_is_there_only_when_told";
    let Some(world) = World::new(test, 1500, &["sh", "cat"]) else { return };
    let mut server = Server::start_for(&world, Wire::Iscsi, &["disk=ram:16M", "other=ram:16M"]);
    let (image, back) = (world.scratch.path("image"), world.scratch.path("back"));
    fs::write(&image, pattern(6, 9_000_000)).expect("an image");
    for (wire, options) in [(Wire::Ip, ""), (Wire::Iscsi, "--overwrite")] {
        let in_shell = |script: &str| {
            let mut command = world.on_client("sh");
            command.args(["-c", script, env!("CARGO_BIN_EXE_sanwire"), &wire.url("disk"), &wire.url("other")]);
            command.arg(&image).arg(&back).env("XDG_STATE_HOME", world.state("client"));
            run(command, TIMEOUT)
        };
        let copied = in_shell(&format!("cat \"$3\" | \"$0\" cp {options} - \"$1\""));
        assert!(copied.code == Some(0) && copied.stdout.starts_with("copied"), "{copied:?}");
        let again = in_shell("cat \"$3\" | \"$0\" cp - \"$1\"");
        assert!(again.code == Some(2) && again.stderr.contains("add --overwrite"), "{again:?}");
        let refused = in_shell("\"$0\" cp \"$3\" \"$1\"");
        assert!(refused.code == Some(2) && refused.stderr.contains("holds something"), "{refused:?}");
        let copied = in_shell("\"$0\" cp --json \"$1\" - | cat > \"$4\"");
        assert!(copied.code == Some(0) && copied.stderr.contains("\"data_bytes\":"), "{copied:?}");
        let mut expected = pattern(6, 9_000_000);
        expected.resize(16 << 20, 0);
        assert!(fs::read(&back).expect("the copy") == expected, "the copy over {wire:?} differs");
        let through = in_shell(&format!("\"$0\" cp \"$1\" - | \"$0\" cp {options} --json - \"$2\""));
        assert!(through.code == Some(0) && through.stdout.contains("\"data_bytes\":"), "{through:?}");
        run_ok(world.sanwire(&["cp", "--verify", &wire.url("other"), &back.display().to_string()]), TIMEOUT);
        assert!(fs::read(&back).expect("the copy") == expected, "the copy of the copy over {wire:?} differs");
    }
    assert!(!world.scratch.path("-").exists() && !Path::new("-").exists(), "no file is called -");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn whoever_overwrites_a_volume_is_told_who_else_writes_to_it() {
    let scratch = Scratch::new();
    let port = port();
    let url = format!("hs+ip://127.0.0.1:{port}/disk");
    let mut server = Server::start_here(&scratch, port, &["disk=ram:1M"]);
    let [alice, bob] = ["alice", "bob"].map(|name| Client::new(&scratch, name));
    let image = scratch.text("image");
    fs::write(&image, pattern(2, 1 << 20)).expect("an image");
    let told = bob.run(&["cp", &image, &url]);
    assert!(told.code == Some(0) && told.stderr.is_empty(), "nobody else writes: {told:?}");

    let load = ["bench", &url, "--reads", "0", "--overwrite", "--time", "3600"];
    let mut writer = Process::spawn("bench", alice.command(&load), scratch.path("bench.log"));
    let bench: &[&str] = &["bench", &url, "--reads", "50", "--overwrite", "--time", "0.1"];
    let mut piped = Command::new("sh");
    piped.args(["-c", "\"$0\" cp --overwrite - \"$1\" < \"$2\"", env!("CARGO_BIN_EXE_sanwire"), &url, &image]);
    piped.env("XDG_STATE_HOME", scratch.path("bob")).env("XDG_CONFIG_HOME", scratch.path("bob"));
    let is_told = |told: &Ran| told.stderr.contains(&alice.id()) && told.stderr.contains("open for writing");
    wait_until("alice has written", TIMEOUT, || is_told(&bob.run(bench)));
    for told in [bob.run(&["cp", "--overwrite", &image, &url]), run(piped, TIMEOUT), bob.run(bench)] {
        assert!(told.code == Some(0) && is_told(&told), "{told:?}");
    }
    let refused = bob.run(&["cp", &image, &url]);
    assert!(refused.code == Some(2) && is_told(&refused), "{refused:?}");
    for harmless in [&["cp", "--overwrite", &url, &image][..], &["bench", &url, "--time", "0.1"]] {
        let told = bob.run(harmless);
        assert!(told.code == Some(0) && !told.stderr.contains("open for writing"), "{told:?}");
    }
    assert!(writer.is_alive(), "{}", writer.log());
    writer.kill();
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn what_stays_in_one_server_is_copied_by_it_over_no_wire() {
    let scratch = Scratch::new();
    let (socket, ip, tcp) = (scratch.path("c.sock"), port(), port());
    let volume = |name: &str| format!("{name}=file:{},size=32M", scratch.text(&format!("{name}.img")));
    let volumes = [volume("a"), volume("b"), volume("c")];
    let wires = [format!("hs-ip:127.0.0.1:{ip}"), format!("iscsi:127.0.0.1:{tcp}")];
    let options = ["--control".to_owned(), scratch.text("c.sock")];
    let mut server = Server::start_on(
        &scratch,
        &wires.each_ref().map(|wire| &**wire),
        &volumes.each_ref().map(|it| &**it),
        &options,
    );
    let image = scratch.path("a.img");
    // Where nobody has written it is a hole: at the end there is none.
    File::options()
        .write(true)
        .open(&image)
        .and_then(|file| file.write_all_at(&pattern(5, PART_BYTES), 3 << 20))
        .expect("data");
    let passed = || -> u64 {
        let metrics = ctl_ok(&socket, &["metrics"]);
        let of_wires = metrics.lines().filter(|line| line.starts_with("sanwire_wire_bytes_total"));
        of_wires.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    };
    let client = Client::new(&scratch, "client");
    let hyperscsi = |name: &str| format!("hs+ip://127.0.0.1:{ip}/{name}");
    let iscsi = |name: &str| format!("iscsi://127.0.0.1:{tcp}/iqn.2026-11.org.sanwire:{name}/0");
    for (from, to, name) in [(hyperscsi("a"), hyperscsi("b"), "b"), (iscsi("a"), iscsi("c"), "c")] {
        let before = passed();
        let copied = client.run(&["cp", "--json", &from, &to]);
        assert_eq!(copied.code, Some(0), "{copied:?}");
        let told: serde_json::Value = serde_json::from_str(&copied.stdout).expect("JSON");
        assert!(told["server_bytes"] == told["data_bytes"] && told["zero_bytes"].as_u64() >= Some(16 << 20), "{told}");
        let copy = scratch.path(&format!("{name}.img"));
        assert!(same(&image, &copy), "the copy from {from} to {to} differs");
        assert!(fs::metadata(&copy).expect("the copy").blocks() * 512 <= 2 * PART_BYTES as u64, "it has no holes");
        let crossed = passed() - before;
        assert!(crossed < 1 << 20, "{crossed} bytes have crossed the wire");
        let capped = client.run(&["cp", "--overwrite", "--cap", "1G", "--json", "--verify", &from, &to]);
        if from.starts_with("iscsi:") {
            assert!(capped.code == Some(2) && capped.stderr.contains("--cap is for HyperSCSI"), "{capped:?}");
            continue;
        }
        assert!(capped.code == Some(0) && capped.stdout.contains("\"server_bytes\":0"), "{capped:?}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// A large volume with few data: what crosses the link is those.
#[test]
fn holes_are_sent_in_no_direction() {
    const LARGE_BYTES: u64 = 1 << 30;
    const DATA_BYTES: usize = 4 << 20;
    const MOST_BYTES: u64 = 2 * DATA_BYTES as u64;
    let Some(world) = World::new("holes_are_sent_in_no_direction", 9000, &["cmp"]) else { return };
    world.add_path(1, 9000);
    let image = world.scratch.path("image.raw");
    let made = File::create(&image).and_then(|file| {
        file.set_len(LARGE_BYTES)?;
        file.write_all_at(&pattern(7, DATA_BYTES), 1 << 29)
    });
    made.expect("an image");
    let volume = |name: &str| format!("{name}=file:{},size=1G", world.scratch.text(&format!("{name}.img")));
    let portals = ["iscsi", "visa"].map(|wire| format!("{wire}:{SERVER_ADDRESS}"));
    let options = ["--allow", "any", "--wire", &portals[0], "--wire", &portals[1]];
    let mut server = Server::start_with(&world, &[&volume("disk")], &options);
    let others = [volume("other"), volume("second")];
    let wires = ["--wire", "hs-ip:10.77.1.1", "--wire", "iscsi:10.77.1.1:3261", "--allow", "any"];
    let mut beside = Server::start_beside(&world, "beside", "lan1", &others.each_ref().map(String::as_str), &wires);
    let (source, back) = (image.display().to_string(), world.scratch.path("back.raw"));
    let copy = |what: &str, from: &str, to: &str| {
        let carried = || world.carried_bytes(0) + world.carried_bytes(1);
        let before = carried();
        run_ok(world.sanwire(&["cp", "--overwrite", from, to]), TIMEOUT);
        let bytes = carried() - before;
        let ways = if from.contains("://") && to.contains("://") { 2 } else { 1 };
        assert!(bytes >= DATA_BYTES as u64 && bytes < ways * MOST_BYTES, "{what}: {bytes} bytes have crossed");
    };
    let same_as_image = |other: &Path| {
        let mut compare = Command::new("cmp");
        compare.args([&image, other]);
        run_ok(compare, TIMEOUT);
        let used_bytes = fs::metadata(other).expect("a copy").blocks() * 512;
        assert!(used_bytes < MOST_BYTES, "{}: {used_bytes} bytes are used", other.display());
    };
    for wire in [Wire::Ethernet, Wire::Ip, Wire::Iscsi, Wire::Visa, Wire::VisaTcp] {
        copy(&format!("{wire:?}, to the volume"), &source, &wire.url("disk"));
        same_as_image(&world.scratch.path("disk.img"));
        copy(&format!("{wire:?}, from the volume"), &wire.url("disk"), &back.display().to_string());
        same_as_image(&back);
        fs::remove_file(&back).expect("the copy can be removed");
    }
    copy("from server to server", &Wire::Ip.url("disk"), "hs+ip://10.77.1.1/other");
    same_as_image(&world.scratch.path("other.img"));
    let second = "iscsi://10.77.1.1:3261/iqn.2026-11.org.sanwire:second/0";
    copy("from server to server over iSCSI", &Wire::Iscsi.url("disk"), second);
    same_as_image(&world.scratch.path("second.img"));
    for server in [&mut server, &mut beside] {
        assert!(server.stop().success(), "{}", server.log());
    }
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
