//! VISA over UDP and TCP: our server and our client, between two hosts.

mod wireshark;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{
    Attached, Filesystem, LoopDevice, Process, SERVER_ADDRESS, Server, Tmpfs, World, pattern, run, run_ok, wait_until,
};

const TIMEOUT: Duration = Duration::from_secs(120);

const CONTENT_BYTES: usize = 3 << 20;

/// Both carriers, by their schemes.
const SCHEMES: [&str; 2] = ["visa", "visa+tcp"];

const CLASSIC: [&str; 2] = ["--visa-mode", "classic"];

/// Serves these volumes, to everybody unless options say otherwise.
fn serve(world: &World, volumes: &[&str], options: &[&str]) -> Server {
    let wire = format!("visa:{SERVER_ADDRESS}");
    let allow: &[&str] = if options.contains(&"--allow") { &[] } else { &["--allow", "any"] };
    Server::start_alone(world, volumes, &[&["--wire", &wire][..], allow, options].concat())
}

/// What `sanwire` says to this.
#[track_caller]
fn sanwire(world: &World, arguments: &[&str]) -> String {
    run_ok(world.sanwire(arguments), TIMEOUT)
}

fn url(scheme: &str, volume: &str) -> String {
    format!("{scheme}://{SERVER_ADDRESS}/{volume}")
}

/// Copies content to a volume and back, and compares.
#[track_caller]
fn copy_and_compare(world: &World, url: &str, seed: u64, options: &[&str]) {
    let (image, back) = (world.scratch.path("image"), world.scratch.path("back"));
    let content = pattern(seed, CONTENT_BYTES);
    fs::write(&image, &content).expect("an image");
    drop(fs::remove_file(&back));
    sanwire(world, &[&["cp", "--overwrite", &image.display().to_string(), url][..], options].concat());
    sanwire(world, &[&["cp", url, &back.display().to_string()][..], options].concat());
    let read = fs::read(&back).expect("a copy");
    assert!(read[..CONTENT_BYTES] == content, "what was read is what was written");
}

#[test]
fn visa_volumes_are_found_copied_to_and_read() {
    let test = "visa_volumes_are_found_copied_to_and_read";
    for mtu in [1500, 9000] {
        let Some(world) = World::new(test, mtu, &[]) else { return };
        let store = world.scratch.path("disk.img");
        let volumes = [
            &format!("disk=file:{},size=16M", store.display())[..],
            "large=ram:4M,block=4096",
            "secret=ram:8M,security=aes-128-gcm",
        ];
        let options = ["--visa-mode", "either", "--visa-checksum", "either", "--shards", "2"];
        let mut server = serve(&world, &volumes, &options);
        for (scheme, wire) in [("visa", "VISA"), ("visa+tcp", "VISA/TCP")] {
            let listed = sanwire(&world, &["ls", &format!("{scheme}://{SERVER_ADDRESS}")]);
            assert!(["disk", "large", "secret"].iter().all(|name| listed.contains(&url(scheme, name))), "{listed}");
            let found = sanwire(&world, &["discover", &format!("{scheme}://{SERVER_ADDRESS}"), "--wide"]);
            assert!(found.contains(wire) && found.contains("16 MiB"), "{found}");
            for (seed, volume) in [(1, "disk"), (2, "large"), (3, "secret")] {
                copy_and_compare(&world, &url(scheme, volume), seed, &[]);
            }
            let stored = fs::read(&store).expect("the store");
            assert!(stored[..CONTENT_BYTES] == pattern(1, CONTENT_BYTES), "a copy is flushed");
            copy_and_compare(&world, &url(scheme, "disk"), 4, &CLASSIC);
            copy_and_compare(&world, &url(scheme, "disk"), 5, &["--visa-checksum", "off"]);
            let told = sanwire(&world, &["info", &url(scheme, "secret")]);
            assert!(told.contains("aes-128-gcm"), "{told}");
            let absent = run(world.sanwire(&["info", &url(scheme, "absent")]), TIMEOUT);
            assert!(absent.code == Some(1) && absent.stderr.contains("absent"), "{}", absent.stderr);
        }
        // One is larger than a packet of either link, the other as small as may be.
        for payload in ["60K", "1K"] {
            copy_and_compare(&world, &url("visa", "secret"), 6, &[&CLASSIC[..], &["--visa-payload", payload]].concat());
        }
        let told = sanwire(&world, &["info", &url("visa", "disk")]);
        assert!(told.contains(&format!("packets of up to {} bytes", mtu - 28)), "{told}");
        assert!(server.stop().success(), "{}", server.log());
    }
}

#[test]
fn visa_volumes_are_measured_and_attached_by_entries_of_a_file() {
    let test = "visa_volumes_are_measured_and_attached_by_entries_of_a_file";
    let Some(world) = World::new(test, 9000, &[]) else { return };
    // Names of devices are the whole machine's.
    let volume = format!("disk-{}", world.scratch.label);
    let mut server = serve(&world, &[&format!("{volume}=ram:8M")], &[]);
    let file = world.scratch.text("attach.toml");
    for (name, scheme) in [("udp", "visa"), ("tcp", "visa+tcp")] {
        let url = url(scheme, &volume);
        let measured = sanwire(&world, &["bench", &url, "--depth", "8", "--time", "0.3"]);
        assert!(measured.contains("IOPS") || measured.contains("MiB/s"), "{measured}");
        sanwire(&world, &["attach", "--config", &file, "--save", name, &url]);
        let attach = world.sanwire(&["attach", "--config", &file, name]);
        let mut attached = Process::spawn("attach", attach, world.scratch.path(&format!("{name}.log")));
        attached.wait_for("is attached as\n", TIMEOUT);
        let device = attached.log().lines().find(|line| line.starts_with("/dev/loop")).expect("a device").to_owned();
        sanwire(&world, &["detach", &device]);
        assert!(attached.wait(TIMEOUT).success(), "{}", attached.log());
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn classic_mode_and_no_checksum_are_off_unless_the_server_allows_them() {
    let test = "classic_mode_and_no_checksum_are_off_unless_the_server_allows_them";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = serve(&world, &["disk=ram:8M"], &[]);
    // What is not allowed is not done: the connection is there all the same.
    for options in [&CLASSIC[..], &["--visa-checksum", "off"], &[]] {
        let told = run(world.sanwire(&[&["info", &url("visa", "disk")][..], options].concat()), TIMEOUT);
        assert_eq!(told.code, Some(0), "{options:?}: {}", told.stderr);
        assert!(!told.stderr.contains("nothing checks"), "{options:?}: {}", told.stderr);
        assert!(told.stdout.contains("packets of up to 1472 bytes"), "{options:?}: {}", told.stdout);
    }
    assert!(server.stop().success(), "{}", server.log());
    let mut server = serve(&world, &["disk=ram:8M"], &["--visa-checksum", "either"]);
    let told = run(world.sanwire(&["info", &url("visa", "disk"), "--visa-checksum", "off"]), TIMEOUT);
    assert!(told.stderr.contains("nothing checks the packets"), "{}", told.stderr);
    assert!(server.stop().success(), "{}", server.log());
    let mut server = serve(&world, &["disk=ram:8M"], &["--visa-mode", "either"]);
    let told = sanwire(&world, &[&["info", &url("visa", "disk")][..], &CLASSIC].concat());
    assert!(told.contains("packets of up to 8232 bytes"), "{told}");
    assert!(server.stop().success(), "{}", server.log());
    // The shorter of what both ends want, with a header of 40 bytes.
    let mut server = serve(&world, &["disk=ram:8M"], &["--visa-mode", "either", "--visa-payload", "4K"]);
    for (options, packet) in [(&[][..], 4136), (&["--visa-payload", "2K"], 2088), (&["--visa-payload", "60K"], 4136)] {
        let told = sanwire(&world, &[&["info", &url("visa", "disk")][..], &CLASSIC, options].concat());
        assert!(told.contains(&format!("packets of up to {packet} bytes")), "{options:?}: {told}");
        copy_and_compare(&world, &url("visa", "disk"), packet, &[&CLASSIC[..], options].concat());
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn packets_are_lost_and_a_visa_server_killed_without_an_error() {
    let test = "packets_are_lost_and_a_visa_server_killed_without_an_error";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let volume = format!("disk=file:{},size=64M", store.display());
    let mut server = serve(&world, &[&volume], &["--visa-mode", "either"]);
    world.lose(5);
    copy_and_compare(&world, &url("visa", "disk"), 2, &[]);
    let lost = world.lose_nothing();
    assert!(lost.iter().all(|lost| *lost > 20), "{lost:?} packets were lost");
    // A payload of 8 KiB is six fragments: fewer are lost, or few packets would get through.
    world.lose(1);
    copy_and_compare(&world, &url("visa", "disk"), 3, &CLASSIC);
    world.lose_nothing();
    let image = world.scratch.path("image");
    let content = pattern(3, 16 << 20);
    fs::write(&image, &content).expect("an image");
    for (scheme, options) in [("visa", &[][..]), ("visa", &CLASSIC[..]), ("visa+tcp", &[][..])] {
        let arguments = [&["cp", "--overwrite", "--wait", "60"][..], options].concat();
        let (image, url) = (image.display().to_string(), url(scheme, "disk"));
        let before = server.log().matches("connected over VISA").count();
        let copying = thread::scope(|scope| {
            let copying = scope.spawn(|| run(world.sanwire(&[&arguments[..], &[&image, &url]].concat()), TIMEOUT));
            wait_until("the copy goes on", TIMEOUT, || server.log().matches("connected over VISA").count() > before);
            thread::sleep(Duration::from_millis(50));
            server.kill();
            thread::sleep(Duration::from_millis(500));
            server.restart();
            copying.join().expect("a copy")
        });
        // A copy that was over before has not waited for the server.
        wait_until("the server is back", TIMEOUT, || {
            run(world.sanwire(&["info", "--wait", "60", &url]), TIMEOUT).code == Some(0)
        });
        assert_eq!(copying.code, Some(0), "{scheme} {options:?}: {copying:?}");
        let stored = fs::read(&store).expect("the store");
        assert!(stored[..content.len()] == content, "{scheme} {options:?}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_visa_link_is_cut_and_comes_back() {
    let Some(world) = World::new("a_visa_link_is_cut_and_comes_back", 9000, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let mut server = serve(&world, &[&format!("disk=file:{},size=64M", store.display())], &[]);
    let image = world.scratch.path("image");
    for (seed, scheme) in (4..).zip(SCHEMES) {
        let content = pattern(seed, 32 << 20);
        fs::write(&image, &content).expect("an image");
        let (image, url) = (image.display().to_string(), url(scheme, "disk"));
        let before = server.log().matches("connected over VISA").count();
        let copying = thread::scope(|scope| {
            let copy = || run(world.sanwire(&["cp", "--overwrite", "--wait", "60", &image, &url]), TIMEOUT);
            let copying = scope.spawn(copy);
            wait_until("the copy goes on", TIMEOUT, || server.log().matches("connected over VISA").count() > before);
            thread::sleep(Duration::from_millis(50));
            world.cut_link();
            thread::sleep(Duration::from_secs(3));
            world.restore_link();
            copying.join().expect("a copy")
        });
        assert_eq!(copying.code, Some(0), "{scheme}: {copying:?}");
        assert!(fs::read(&store).expect("the store")[..content.len()] == content, "{scheme}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn who_is_not_allowed_or_lacks_the_password_has_no_visa_volume() {
    let test = "who_is_not_allowed_or_lacks_the_password_has_no_visa_volume";
    let Some(world) = World::new(test, 1500, &["tcpdump"]) else { return };
    let mut server = serve(&world, &["disk=ram:8M"], &["--allow", "10.77.0.99"]);
    let mut tcpdump = capture(&world, "silence.pcap");
    for scheme in SCHEMES {
        let ran = run(world.sanwire(&["info", &url(scheme, "disk"), "--wait", "1"]), TIMEOUT);
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("no server answered"), "{}", ran.stderr);
    }
    wait_until("the server tells who asks", TIMEOUT, || server.log().contains("not allowed"));
    tcpdump.signal(Signal::INT);
    tcpdump.wait(TIMEOUT);
    let mut read = Command::new("tcpdump");
    read.arg("-r").arg(world.scratch.path("silence.pcap")).arg(format!("udp and src host {SERVER_ADDRESS}"));
    let answers = run_ok(read, TIMEOUT);
    assert!(answers.is_empty(), "strangers get no answer: {answers}");
    assert!(server.stop().success(), "{}", server.log());

    let [right, wrong] =
        ["right", "wrong"].map(|password| world.scratch.secret(password, &format!("{password} enough\n")));
    let mut server = serve(&world, &["disk=ram:8M"], &["--password-file", &right]);
    for scheme in SCHEMES {
        let info =
            |options: &[&str]| run(world.sanwire(&[&["info", &url(scheme, "disk")][..], options].concat()), TIMEOUT);
        let told = info(&["--password-file", &wrong]);
        assert!(told.code == Some(1) && told.stderr.contains("authentication failed"), "{}", told.stderr);
        // Whose password was wrong waits a moment.
        wait_until("the right password is taken", TIMEOUT, || info(&["--password-file", &right]).code == Some(0));
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_visa_volume_is_attached_shown_and_dropped() {
    let test = "a_visa_volume_is_attached_shown_and_dropped";
    let tools = [&Filesystem::TOOLS[..], &["fusermount3"]].concat();
    let Some(world) = World::new(test, 9000, &tools) else { return };
    let socket = world.scratch.text("control");
    let store = world.scratch.text("ext4.img");
    let volume = format!("ext4=file:{store},size=64M");
    let mut server = serve(&world, &[&volume], &["--control", &socket]);
    let ctl = |arguments: &[&str]| sanwire(&world, &[&["ctl", "--socket", &socket][..], arguments].concat());
    for (scheme, shown) in SCHEMES.into_iter().zip(["none", "none, TCP"]) {
        let attached = Attached::device(&world, &url(scheme, "ext4"));
        let sessions = ctl(&["sessions"]);
        assert!(sessions.contains("visa") && sessions.contains(shown), "{sessions}");
        Filesystem::Ext4.make(&attached.place);
        let metrics = ctl(&["metrics"]);
        for sample in ["sanwire_visa_handshakes_total{result=\"established\"}", "wire=\"visa:10.77.0.1:5675\""] {
            assert!(metrics.contains(sample), "{sample}: {metrics}");
        }
        // A dropped client comes again, and goes on.
        let id = sanwire(&world, &["id"]).trim().to_owned();
        ctl(&["drop-client", &id]);
        wait_until("the client is there again", TIMEOUT, || ctl(&["sessions"]).contains("visa"));
        Filesystem::Ext4.check(&attached.place);
        attached.detach(&world);
        let attached = Attached::device(&world, &url(scheme, "ext4"));
        Filesystem::Ext4.check(&attached.place);
        attached.detach(&world);
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_ipdisk_is_served_by_one_command() {
    let Some(world) = World::new("an_ipdisk_is_served_by_one_command", 1500, &[]) else { return };
    let (control, state) = (world.scratch.text("ipdisk.control"), world.state("server").display().to_string());
    let start = |options: &[&str]| {
        let mut command = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        command.args(["ipdisk", "--control", &control, "--state-directory", &state]).args(options);
        let mut process = Process::spawn("ipdisk", command, world.scratch.path("ipdisk.log"));
        process.wait_for("\n  on ", TIMEOUT);
        process
    };
    let mut ipdisk = start(&[]);
    let mut here = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
    here.args(["ls", "visa+tcp://127.0.0.1"]).env("XDG_STATE_HOME", world.state("client"));
    let listed = run_ok(here, TIMEOUT);
    assert!(listed.contains("disk0") && listed.contains("32 MiB"), "{listed}");
    let away = run(world.sanwire(&["ls", &format!("visa://{SERVER_ADDRESS}"), "--wait", "1"]), TIMEOUT);
    assert_eq!(away.code, Some(1), "it listens on the loopback alone: {}", away.stdout);
    ipdisk.signal(Signal::TERM);
    assert!(ipdisk.wait(TIMEOUT).success(), "{}", ipdisk.log());
    let file = world.scratch.text("disk.img");
    let mut ipdisk = start(&[&file, "--size", "16M", "--address", SERVER_ADDRESS, "--allow", "any"]);
    for scheme in SCHEMES {
        copy_and_compare(&world, &url(scheme, "disk0"), 7, &CLASSIC);
    }
    ipdisk.signal(Signal::TERM);
    assert!(ipdisk.wait(TIMEOUT).success(), "{}", ipdisk.log());
    assert!(fs::read(&file).expect("the store")[..CONTENT_BYTES] == pattern(7, CONTENT_BYTES));
}

#[test]
fn an_ipdisk_serves_a_raw_disk() {
    let Some(world) = World::new("an_ipdisk_serves_a_raw_disk", 1500, &["mount"]) else { return };
    let memory = Tmpfs::mount(&world.scratch.path("memory"), "24M");
    let image = memory.0.join("disk.img");
    let device = LoopDevice::new(&image, 16 << 20);
    let mut command = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
    command.args(["ipdisk", &device.0, "--address", SERVER_ADDRESS, "--allow", "any"]);
    command.args(["--control", &world.scratch.text("ipdisk.control")]);
    command.args(["--state-directory", &world.state("server").display().to_string()]);
    let mut ipdisk = Process::spawn("ipdisk", command, world.scratch.path("ipdisk.log"));
    ipdisk.wait_for("\n  on ", TIMEOUT);
    for (seed, scheme) in (8..).zip(SCHEMES) {
        let told = sanwire(&world, &["info", &url(scheme, "disk0")]);
        assert!(told.contains("16 MiB"), "{told}");
        copy_and_compare(&world, &url(scheme, "disk0"), seed, &CLASSIC);
        let stored = fs::read(&device.0).expect("the device");
        assert!(stored[..CONTENT_BYTES] == pattern(seed, CONTENT_BYTES), "{scheme}: it is on the device");
    }
    ipdisk.signal(Signal::TERM);
    assert!(ipdisk.wait(TIMEOUT).success(), "{}", ipdisk.log());
    drop(device);
    assert!(fs::read(&image).expect("the file")[..CONTENT_BYTES] == pattern(9, CONTENT_BYTES));
}

fn capture(world: &World, file: &str) -> Process {
    let mut command = world.on_client("tcpdump");
    // Whole packets, of which none is dropped.
    command.args(["-i", world.interface(), "-s", "0", "-B", "65536", "-U", "-w"]).arg(world.scratch.path(file));
    command.arg("port 5675");
    let mut tcpdump = Process::spawn("tcpdump", command, world.scratch.path("tcpdump.log"));
    tcpdump.wait_for("listening on", TIMEOUT);
    tcpdump
}
